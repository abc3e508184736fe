//! `ks-host` without root: capabilities are enough. These tests start as root and change to another user.

use std::ffi::OsStr;
use std::process::Command;

use ks_tests::{Folder, binary, compile, finish};

/// Counts page faults of its own thread by a program, and context switches of all tasks.
const SCRIPT: &str = include_str!("scripts/unprivileged.ks");

/// Returns `ks-host` as user 65534 with these capabilities only.
fn as_nobody(capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(format!("--inh-caps={capabilities}")).arg(format!("--ambient-caps={capabilities}"));
    command.arg(binary("ks-host")).arg("--no-cache");
    command
}

#[test]
fn root_two_capabilities_are_enough_to_observe() {
    let folder = Folder::new();
    let plugin = folder.write("ksunp.wasm", compile("ksunp", SCRIPT).plugin);
    let outcome = finish(as_nobody("-all,+bpf,+perfmon").arg(&plugin));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "true\n"), "{outcome:#?}");
    // Each of the two is needed, and its lack is reported.
    for (capabilities, missing) in [("-all,+bpf", "CAP_PERFMON"), ("-all,+perfmon", "CAP_BPF")] {
        let outcome = finish(as_nobody(capabilities).arg(&plugin));
        assert!(outcome.code != 0 && outcome.stderr.contains(missing), "{capabilities}: {outcome:#?}");
    }
}

#[test]
fn root_a_command_that_is_observed_is_not_confined() {
    let folder = Folder::new();
    let script = "fn main() -> i32 {\n    while (sleep(1000) == 0) {\n    }\n    return 0\n}\n";
    let plugin = folder.write("ksunc.wasm", compile("ksunc", script).plugin);
    let status_path = folder.path("made");
    let mut host = ks_tests::command("ks-host");
    let outcome = finish(
        host.arg(&plugin)
            .args(["--exec", "sh", "-c"])
            .arg(format!("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status > {}", status_path.display())),
    );
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let status = std::fs::read_to_string(status_path).expect("the command wrote it");
    assert_eq!(status.split_whitespace().collect::<Vec<_>>(), ["NoNewPrivs:", "0", "Seccomp:", "0"]);
}

/// tracefs belongs to root alone unless its mount options say otherwise. The error names that as the reason,
/// not a capability that programs at tracepoints do not need.
#[test]
fn root_a_tracefs_that_the_user_may_not_read_is_the_reason() {
    let folder = Folder::new();
    let script = "@tracepoint(\"sched/sched_switch\")\nfn seen(ctx: *trace_event_raw_sched_switch) -> \
                  i32 { return 0 }\n\
                  fn main() -> i32 {\n if (attach(load(seen), \"\", 0) != 0) { return 3 }\n return 0 }";
    let plugin = folder.write("ksclosed.wasm", compile("ksclosed", script).plugin);
    let mounted = |capabilities: &str, arguments: &[&OsStr]| {
        let host = as_nobody(capabilities);
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$@\"", "sh"]);
        finish(
            unshare
                .arg(host.get_program())
                .args(host.get_args().filter(|argument| *argument != "--no-cache"))
                .args(arguments),
        )
    };
    let run: &[&OsStr] = &["--no-cache".as_ref(), plugin.as_os_str()];
    let outcome = mounted("-all,+bpf,+perfmon", run);
    assert_eq!(outcome.code, 3, "{outcome:#?}");
    for expected in ["this user may not read tracefs", "remount,gid=GROUP,mode=750"] {
        assert!(outcome.stderr.contains(expected), "{expected}: {outcome:#?}");
    }
    assert!(!outcome.stderr.contains("CAP_NET_ADMIN"), "{outcome:#?}");
    let doctor = mounted("-all,+bpf,+perfmon", &["doctor".as_ref()]);
    let line = doctor.stdout.lines().find(|line| line.contains("tracefs")).unwrap_or_default();
    assert!(line.contains("this user may not read it"), "{doctor:#?}");
    // With the capability to read all files it works.
    let reading = mounted("-all,+bpf,+perfmon,+dac_read_search", run);
    assert_eq!((reading.code, reading.stderr.as_str()), (0, ""), "{reading:#?}");
}

/// Root of a user namespace has all capabilities there, but none that perf and BPF check.
#[test]
fn root_capabilities_of_a_user_namespace_do_not_count() {
    let folder = Folder::new();
    let plugin = folder.write("ksunp.wasm", compile("ksunp", SCRIPT).plugin);
    let inside = |arguments: &[&OsStr]| {
        let mut unshare = Command::new("unshare");
        finish(unshare.args(["--user", "--map-root-user"]).arg(binary("ks-host")).args(arguments))
    };
    let doctor = inside(&["doctor".as_ref()]);
    let line = |topic: &str| doctor.stdout.lines().find(|line| line.contains(topic)).unwrap_or_default();
    assert!(line("CAP_BPF").contains("held in a user namespace only"), "{doctor:#?}");
    let run = inside(&["--no-cache".as_ref(), plugin.as_os_str()]);
    assert!(run.code != 0 && run.stderr.contains("ks-host runs in a user namespace"), "{run:#?}");
}

/// Each memory of a plugin reserves more address space than its maximum size.
#[test]
fn root_a_limited_address_space_is_the_reason() {
    let folder = Folder::new();
    let plugin = folder.write("kslimit.wasm", compile("kslimit", "fn main() -> i32 { return 0 }").plugin);
    let limited =
        format!("ulimit -v 4000000; exec {} --no-cache {}", binary("ks-host").display(), plugin.display());
    let outcome = finish(Command::new("bash").args(["-c", &limited]));
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("ulimit -v unlimited"), "{outcome:#?}");
}
