//! Programs that observe: each kind is compiled for the running kernel, attached, and checked by its results.
//! They run on this kernel as far as it supports them, and on the emulated ones. These tests need root.

mod killed;
mod probes;
mod tracepoints;

use std::fs;
use std::process::Command;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, Outcome, allowed, command, finish, wait_until_gone};

#[test]
fn kernel_6_1() {
    observe_in(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    observe_in(Kernel::V6_12);
}

/// Each test takes a minute on an idle machine.
fn observe_in(kernel: Kernel) {
    Machine::new(kernel).seconds(400).run_tests(module_path!(), &["traced_"]);
}

/// Compiles a script for the running kernel and runs it. Objects that it might leak are named `ktNAME`.
fn run(name: &str, script: &str) -> Outcome {
    let folder = Folder::new();
    let source = folder.write(&format!("{name}.ks"), script);
    let plugin = folder.path(name).with_extension("wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = finish(host().arg(&plugin));
    wait_until_gone(&format!("kt{name}"));
    ran
}

/// Returns `ks-host` with tracefs mounted, in a mount namespace of its own if necessary.
fn host() -> Command {
    if fs::exists("/sys/kernel/tracing/events").unwrap_or_default() {
        return allowed();
    }
    let mut host = Command::new("unshare");
    host.args(["-m", "sh", "-c", "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$0\" \"$@\""]);
    host.arg(ks_tests::binary("ks-host")).args(["--allow", "all"]);
    host
}

/// Returns whether programs can attach to functions: a kernel may be locked down, or built without support.
fn has_trampolines() -> bool {
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    has_kprobes() && !lockdown.contains("[integrity]") && !lockdown.contains("[confidentiality]")
}

fn has_kprobes() -> bool {
    fs::exists("/sys/bus/event_source/devices/kprobe").unwrap_or_default()
}

/// On a busy machine an iteration may already be late when it would sleep, and then switches to no other
/// task. Tests that count switches therefore use several iterations for each.
const WAIT: &str = r#"
fn waited(turns: u32) -> u32 {
    var done: u32 = 0
    while (done < turns) {
        sleep(1)
        done += 1
    }
    return done
}
"#;

/// A thread that opens and reads files in a loop.
struct Opener(std::sync::Arc<std::sync::atomic::AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Opener {
    fn start() -> Opener {
        use std::sync::atomic::{AtomicBool, Ordering};
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                // One of the files exists; the test needs no particular one.
                let _ = (fs::read("/proc/self/comm"), fs::read("/nothing/here"));
                let _ = Command::new("/bin/true").status();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        Opener(stop, Some(thread))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().expect("it only opens files");
        }
    }
}
