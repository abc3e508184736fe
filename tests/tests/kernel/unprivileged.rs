//! `ks-host` without root: capabilities are enough. These tests start as root, to become somebody else.

use std::process::Command;

use ks_tests::{Folder, binary, compile, finish};

/// Counts page faults of its own thread by a program, and context switches of everybody.
const SCRIPT: &str = include_str!("scripts/unprivileged.ks");

/// `ks-host` as user 65534 with these capabilities and no other.
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
    // Each of the two is needed, and its lack is told.
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
    let made = folder.path("made");
    let mut host = ks_tests::command("ks-host");
    let outcome = finish(
        host.arg(&plugin)
            .args(["--exec", "sh", "-c"])
            .arg(format!("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status > {}", made.display())),
    );
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let status = std::fs::read_to_string(made).expect("the command wrote it");
    assert_eq!(status.split_whitespace().collect::<Vec<_>>(), ["NoNewPrivs:", "0", "Seccomp:", "0"]);
}
