//! The kernel frees everything that a plugin created, however `ks-host` ends. These tests need root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use ks_host::plugin::Outcome;
use ks_tests::plugins::run_with;
use ks_tests::{Folder, allowed, compile, is_within, kernel_objects, wait_until_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A script that attaches everything, prints a line, and waits. `NAME` makes the kernel's names unique to a
/// test.
const SCRIPT: &str = include_str!("scripts/cleanup.ks");

/// Starts the script and waits until everything is attached.
fn start(name: &str, folder: &Folder) -> Child {
    let file = folder.write(&format!("{name}.wasm"), compile(name, &SCRIPT.replace("NAME", name)).plugin);
    let mut child =
        allowed().arg(file).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("ks-host starts");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped"))
        .read_line(&mut line)
        .expect("ks-host prints a line");
    assert_eq!(line, "ready\n");
    let held = kernel_objects(name).expect("root may list what the kernel holds");
    assert!(held.len() >= 2, "the program and its map are in the kernel: {held:?}");
    assert_eq!(perf_events(child.id()), 2, "both events are open");
    child
}

/// Returns the number of open perf events of a process.
fn perf_events(pid: u32) -> usize {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives");
    let links = folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("the child is ours");
}

/// Waits at most ten seconds for the end, and returns the exit code.
fn end(mut child: Child) -> Option<i32> {
    let mut status = None;
    let ended = is_within(Duration::from_secs(10), || {
        status = child.try_wait().expect("the child is ours");
        status.is_some()
    });
    if !ended {
        signal(&child, Signal::SIGKILL);
    }
    status.expect("ks-host ends").code()
}

#[test]
fn root_sigkill_leaks_nothing() {
    let folder = Folder::new();
    let child = start("sigk", &folder);
    signal(&child, Signal::SIGKILL);
    assert_eq!(end(child), None);
    wait_until_gone("sigk");
}

#[test]
fn root_the_first_ctrl_c_requests_a_stop_and_keeps_the_plugins_code() {
    let folder = Folder::new();
    let child = start("sigi", &folder);
    signal(&child, Signal::SIGINT);
    assert_eq!(end(child), Some(7), "the script saw that it should stop and returned");
    wait_until_gone("sigi");
}

#[test]
fn root_sigterm_requests_a_stop_like_ctrl_c() {
    let folder = Folder::new();
    let child = start("sigt", &folder);
    signal(&child, Signal::SIGTERM);
    assert_eq!(end(child), Some(7));
    wait_until_gone("sigt");
}

/// A script that never checks for a stop request must end all the same.
#[test]
fn root_a_plugin_that_does_not_listen_is_stopped() {
    let folder = Folder::new();
    let script = SCRIPT.replace("NAME", "deaf").replace("while (sleep(1000) == 0) {", "while (true) {");
    let script = script.replace("    print(\"stopped\")\n    return 7\n", "");
    let file = folder.write("deaf.wasm", compile("deaf", &script).plugin);
    let outcome = ks_tests::finish(allowed().args(["--timeout", "1"]).arg(file));
    assert_eq!(outcome.code, 124, "{outcome:#?}");
    assert_eq!(outcome.stdout, "ready\n");
    wait_until_gone("deaf");
}

/// The kernel waits for all CPUs when a tracepoint loses its last program: of twelve, longer than the plugin may continue
/// after it was asked.
#[test]
fn root_time_of_detaching_is_none_of_the_plugin() {
    const POINTS: [&str; 12] = [
        "syscalls/sys_enter_acct",
        "syscalls/sys_enter_chroot",
        "syscalls/sys_enter_fchdir",
        "syscalls/sys_enter_getsid",
        "syscalls/sys_enter_ioprio_get",
        "syscalls/sys_enter_mincore",
        "syscalls/sys_enter_quotactl",
        "syscalls/sys_enter_readahead",
        "syscalls/sys_enter_sethostname",
        "syscalls/sys_enter_swapoff",
        "syscalls/sys_enter_sync",
        "syscalls/sys_enter_vhangup",
    ];
    let program = |point: &str| format!("@tracepoint(\"{point}\") {{ seen += 1 }}\n");
    let script = format!("var seen : u64 = 0\n{}", POINTS.map(program).concat());
    let ran = run_with(compile("detaches", &script).plugin, |options| {
        options.timeout = Some(Duration::from_millis(300));
        options.grace = Duration::from_millis(20);
    });
    assert!(ran.stdout.starts_with("seen\n"), "{:?} {}", ran.stdout, ran.stderr);
    assert_eq!(ran.outcome, Outcome::TimedOut, "{}", ran.stderr);
}
