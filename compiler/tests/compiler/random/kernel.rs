//! Acceptance of an object by the running kernel.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use ks_compiler_testing::bpffs::BpfFs;
use ks_compiler_testing::random::{Failure, without_numbers};

/// Kind of a failure of the kernel itself, which may hold its locks forever: shrinking must not provoke it
/// again.
pub const DEADLY: &str = "load: the kernel failed";

/// Number of lines of the verifier's log that are kept.
const LOG_LINES: usize = 40;

/// Loads the programs of an object with their own types, and unloads them.
///
/// `bpftool` may be older than the sections of tc programs, so it is given the type.
pub fn load(fs: &BpfFs, name: &str, elf: &[u8]) -> Result<(), Failure> {
    let is_tc = elf.windows(4).any(|bytes| bytes == b"tcx/");
    let kind: &[&str] = if is_tc { &["type", "classifier"] } else { &[] };
    let object = fs.write(&format!("{name}.o"), elf);
    let pins = fs.pin(name);
    let output = Command::new("bpftool")
        .args(["prog", "loadall", &object, &pins])
        .args(kind)
        .output()
        .expect("bpftool is installed");
    std::fs::remove_file(&object).expect("the object was written");
    if output.status.success() {
        std::fs::remove_dir_all(&pins).expect("the programs were pinned");
        return Ok(());
    }
    if let Some(signal) = output.status.signal() {
        let text =
            format!("bpftool was killed by signal {signal}; `dmesg` says what went wrong in the kernel");
        return Err(Failure { kind: DEADLY.into(), text });
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(Failure { kind: format!("load: {}", without_numbers(verifier_reason(&text))), text: last.join("\n") })
}

/// Returns the line with the verifier's reason.
fn verifier_reason(log: &str) -> &str {
    let mut reason = "";
    for line in log.lines() {
        if line.starts_with("processed ") || line.contains("END PROG LOAD LOG") {
            break;
        }
        reason = line;
    }
    reason
}
