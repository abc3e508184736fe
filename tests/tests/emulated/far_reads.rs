//! Reads far after a packet's headers, on the running kernel and on emulated ones. Needs root.

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::run_script;

/// Reads after the headers, at offsets that are constant and at others.
const FAR: &str = include_str!("../../scripts/far_reads.ks");

#[test]
fn root_far_reads_are_taken_by_the_verifier() {
    let outcome = run_script::<&str>("far", &FAR.replace("TARGET", ""), &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
}

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_far_reads_are"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_far_reads_are"]);
}
