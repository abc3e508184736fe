//! What the compiler and the running kernel say about a script.

use std::panic::AssertUnwindSafe;
use std::process::Command;

use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::{kernel, pending, pipeline, split};
use ks_wit::section::Arch;

use crate::bpffs::BpfFs;

/// Lines of the verifier's log that are kept.
const LOG_LINES: usize = 40;

/// Why a script failed: the same kind of reason is the same defect while a script is made smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: String,
    pub text: String,
}

/// The kernel half of a script as an object.
pub fn compile(script: &str) -> Result<Vec<u8>, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(|| object(script))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        Err(Failure { kind: format!("panic: {}", without_numbers(&text)), text })
    })
}

fn object(script: &str) -> Result<Vec<u8>, Failure> {
    let checked = pipeline::parse("random.ks", script.as_bytes(), pipeline::Options::new("random"))
        .expect("scripts are short")
        .check();
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|one| one.severity == Severity::Error).cloned().collect();
    let Some(hir) = checked.hir else { return Err(refused("check", &errors)) };
    let split = split::split(&hir);
    let later = pending::check(&hir, &split);
    if !later.is_empty() {
        return Err(refused("pending", &later));
    }
    let object = kernel::compile(&hir, &split, &checked.sources, Arch::X86_64)
        .map_err(|errors| refused("compile", &errors))?;
    Ok(object.elf().to_vec())
}

fn refused(stage: &str, errors: &[Diagnostic]) -> Failure {
    let texts: Vec<String> = errors.iter().map(|one| format!("{:?} {}", one.code, one.message)).collect();
    let kind = texts.first().map_or(String::new(), |text| without_numbers(text));
    Failure { kind: format!("{stage}: {kind}"), text: texts.join("\n") }
}

/// Loads the programs of an object as what they are and lets go of them.
///
/// `bpftool` may be older than the sections of tc programs, and is told what they are.
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
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(Failure { kind: format!("load: {}", without_numbers(verifier_reason(&text))), text: last.join("\n") })
}

/// The line in which the verifier says what it does not like.
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

fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
