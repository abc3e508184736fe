//! Hardware counters, on an emulated arm64 machine: its PMU counts instructions exactly, and has too few counters soon.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{finish_within, repository};

/// Runs one of the test files of the crate `ks-pmu-tests` there. Building it takes seconds, after the first time.
fn run_on(kernel: Kernel, file: &str) {
    let built = finish_within(
        Command::new(repository().join("scripts/arm64-test")).arg(file),
        Duration::from_secs(600),
    );
    assert_eq!(built.code, 0, "the tests cannot be built for arm64: {}", built.stderr);
    let test = Path::new(built.stdout.trim());
    let machine = Machine::new(kernel).file_as(test, "/test").seconds(240);
    let outcome = machine.run(&["/test", "--test-threads=1", "--nocapture"]);
    let passed = outcome.code == 0 && outcome.stdout.contains(" passed; 0 failed");
    assert!(passed && !outcome.stdout.contains("running 0 tests"), "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn arm64_kernel_6_12() {
    run_on(Kernel::V6_12Arm64, "pmu");
}

#[test]
fn arm64_kernel_6_12_with_two_kinds_of_core() {
    run_on(Kernel::V6_12Arm64Hybrid, "hybrid");
}
