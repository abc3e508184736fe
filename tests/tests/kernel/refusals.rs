//! Error messages for users when the kernel, the verifier or a foreign filter refuses an action of a plugin.
//! Needs root.

use ks_tests::refused::{Call, observe};
use ks_tests::{Folder, command, compile, finish, run_plugin};
use nix::errno::Errno;
use nix::libc;

/// `r0 = 20481`, and its replacement `r0 = r6`, where nothing has written `r6`.
const ASSIGNMENT: [u8; 8] = [0xb7, 0, 0, 0, 0x01, 0x50, 0, 0];
const UNWRITTEN: [u8; 8] = [0xbf, 0x60, 0, 0, 0, 0, 0, 0];

#[test]
fn root_a_refusal_names_the_scripts_line_and_asks_for_a_report() {
    let script = include_str!("scripts/refusals_a_refusal_names_the_scripts_line_and_asks_for_a_report.ks");
    let mut plugin = compile("refused", script).plugin;
    let at = plugin.windows(8).position(|bytes| bytes == ASSIGNMENT).expect("the result is a constant");
    plugin[at..at + 8].copy_from_slice(&UNWRITTEN);
    let outcome = run_plugin("refused", &plugin, &[] as &[&str]);
    let message = &outcome.stderr;
    assert_ne!(outcome.code, 0, "{message}");
    assert!(message.contains("cannot load the program `watch`"), "{message}");
    assert!(message.contains("verifier: R6 !read_ok"), "{message}");
    assert!(message.contains("return 20481 @ refused.ks:6"), "{message}");
    assert!(message.contains("please report it with the script"), "{message}");
}

/// Runs the host under a foreign filter of system calls, as in a container, which answers every call of a
/// kind with this error; returns its messages.
fn filtered(script: &str, call: Call, errno: Errno) -> String {
    let folder = Folder::new();
    let file = folder.write("filtered.wasm", compile("filtered", script).plugin);
    let mut host = command("ks-host");
    host.args(["--allow", "all"]).arg(file);
    let outcome = observe(&mut host, &[call], |_| Some(errno)).expect("the kernel has notifications");
    assert!(outcome.code != 0 && outcome.signal.is_none(), "{outcome:#?}");
    outcome.stderr
}

/// Filters of containers answer with EPERM and ENOSYS. Neither means a missing capability or a missing kernel
/// feature.
#[test]
fn root_a_foreign_filter_of_system_calls_is_named() {
    let counts = include_str!("scripts/refusals_counts.ks");
    let loads = include_str!("scripts/refusals_loads.ks");
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        for (script, name, number) in
            [(counts, "perf_event_open", libc::SYS_perf_event_open), (loads, "bpf", libc::SYS_bpf)]
        {
            let message = filtered(script, Call { name, number }, errno);
            let wanted = format!("(seccomp) that ks-host was started with refuses {name}");
            assert!(message.contains(&wanted), "{errno}: {message}");
            for wrong in ["CAP_NET_ADMIN", "RLIMIT_MEMLOCK", "--unconfined", "CONFIG_", "lockdown"] {
                assert!(!message.contains(wrong), "{errno}: {wrong}: {message}");
            }
        }
    }
}

/// The doctor makes the calls, and does not infer their results from capabilities.
#[test]
fn root_the_doctor_makes_the_calls() {
    for (name, number) in [("perf_event_open", libc::SYS_perf_event_open), ("bpf", libc::SYS_bpf)] {
        let mut doctor = command("ks-host");
        let refused = Call { name, number };
        let outcome =
            observe(doctor.arg("doctor"), &[refused], |_| Some(Errno::EPERM)).expect("notifications");
        let line = |topic: &str| outcome.stdout.lines().find(|line| line.contains(topic)).unwrap_or_default();
        assert!(line(&format!("{name}(2)")).starts_with("missing"), "{outcome:#?}");
        assert!(line("seccomp").starts_with("limited"), "{outcome:#?}");
    }
    let outcome = finish(command("ks-host").arg("doctor"));
    assert!(outcome.stdout.contains("works, as tried"), "{outcome:#?}");
}

/// A refusal for an observing program is not explained by rights over the network.
#[test]
fn root_a_hook_that_is_refused_is_not_blamed_on_the_network() {
    let script = include_str!("scripts/refusals_hook.ks");
    let folder = Folder::new();
    let file = folder.write("hook.wasm", compile("hook", script).plugin);
    let outcome = finish(command("ks-host").args(["--allow", "all"]).arg(file));
    // On a kernel with hooks the program loads.
    assert!(!outcome.stderr.contains("CAP_NET_ADMIN"), "{outcome:#?}");
    assert!(outcome.code == 0 || !outcome.stderr.is_empty(), "{outcome:#?}");
}

/// Loads one more than BPF_TRACE_MAX_PROGS programs.
#[test]
fn root_a_tracepoint_at_its_limit_of_programs_is_reported() {
    let program = |number: usize| {
        format!(
            "@tracepoint(\"sched/sched_process_exec\")\nfn p{number}(ctx: \
             *trace_event_raw_sched_process_exec) -> i32 {{\n    \
             return 0\n}}\n"
        )
    };
    let attach = |number: usize| format!("    if (attach(load(p{number}), \"\", 0) != 0) {{ return 11 }}\n");
    let (programs, attached): (String, String) =
        (0..65).map(|number| (program(number), attach(number))).unzip();
    let script = format!("{programs}fn main() -> i32 {{\n{attached}    return 0\n}}\n");
    let outcome = run_plugin("full", &compile("full", &script).plugin, &[] as &[&str]);
    assert!(outcome.stderr.contains("takes 64 programs at a time"), "{outcome:#?}");
    assert!(outcome.stderr.contains("sched/sched_process_exec"), "{outcome:#?}");
}

#[test]
fn root_a_struct_that_the_kernel_has_already_is_reported() {
    let script = include_str!("scripts/refusals_registered.ks");
    let folder = Folder::new();
    let file = folder.write("twice.wasm", compile("twice", script).plugin);
    // A script that registers waits.
    let outcome = finish(command("ks-host").args(["--allow", "all", "--no-wait"]).arg(file));
    assert!(outcome.stdout.starts_with("first 0\nsecond 17\n"), "{outcome:#?}");
    let message = &outcome.stderr;
    assert!(message.contains("cannot register `kstwice`; kernel: bpf(BPF_LINK_CREATE): EEXIST"), "{message}");
    assert!(message.contains("the kernel has one already"), "{message}");
}
