//! Hardware counters, on an emulated arm64 machine: its PMU counts instructions exactly, and has too few counters soon.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{finish_within, repository};

/// Runs all tests of the crate `ks-pmu-tests` there. Building them takes seconds, after the first time.
#[test]
fn arm64_kernel_6_12() {
    let built = finish_within(
        Command::new(repository().join("scripts/arm64-test")).arg("pmu"),
        Duration::from_secs(600),
    );
    assert_eq!(built.code, 0, "the tests cannot be built for arm64: {}", built.stderr);
    let test = Path::new(built.stdout.trim());
    let machine = Machine::new(Kernel::V6_12Arm64).file_as(test, "/pmu").seconds(240);
    let outcome = machine.run(&["/pmu", "--test-threads=1", "--nocapture"]);
    let passed = outcome.code == 0 && outcome.stdout.contains(" passed; 0 failed");
    assert!(passed && !outcome.stdout.contains("running 0 tests"), "{}{}", outcome.stdout, outcome.stderr);
}
