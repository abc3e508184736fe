//! The test bed of emulated kernels itself, and counting in them: what the other kernel tests build on.

use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::run_script;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(&["guest_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(&["guest_"]);
}

/// Output, errors and the exit code come back as the command gave them.
#[test]
fn a_command_is_heard_in_full() {
    let script = "echo \"$VALUE\"; printf 'no\\r\\nline' >&2; lsmod | grep -c ^veth; exit 7";
    let machine = Machine::new(Kernel::V6_12).env("VALUE", "it's $HOME").module("veth");
    let outcome = machine.run(&["sh", "-c", script]);
    assert_eq!(outcome.stdout, "it's $HOME\n1\n");
    assert_eq!(outcome.stderr, "no\r\nline");
    assert_eq!(outcome.code, 7);
}

#[test]
fn guest_is_the_kernel_that_was_asked_for() {
    let Some(version) = inside() else { return };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted");
    assert!(release.starts_with(&format!("{version}.")), "{release}");
}

#[test]
fn guest_program_counts() {
    let script = r#"
        var hits: u64 = 0

        @perf_event
        fn emulated_prog(ctx: *bpf_perf_event_data) -> i32 {
            hits += 1
            return 0
        }

        fn main() -> i32 {
            var att = attach(load(emulated_prog), perf_options { event: context_switches, pid: 0, cpu: -1, period: 1 }, 0)
            if (att == null) {
                return 1
            }
            for (i in 0..10) {
                sleep(1)
            }
            var seen = read(att)
            print("switches ", seen.raw, " hits ", hits)
            if (seen.raw == 0 || hits < seen.raw) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run_script::<&str>("emulated", script, &[]);
    assert_eq!(ran.code, 0, "{ran:#?}");
}
