//! The test bed of emulated kernels itself, and counting in them, on which the other kernel tests build.

use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::run_script;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["guest_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["guest_"]);
}

/// Output, errors and the exit code arrive unchanged.
#[test]
fn a_command_is_heard_in_full() {
    let script = "echo \"$VALUE\"; printf 'no\\r\\nline' >&2; lsmod | grep -c ^veth; exit 7";
    let machine = Machine::new(Kernel::V6_12).env("VALUE", "it's $HOME");
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
    let script = include_str!("scripts/test_bed_program_counts.ks");
    let ran = run_script::<&str>("emulated", script, &[]);
    assert_eq!(ran.code, 0, "{ran:#?}");
}
