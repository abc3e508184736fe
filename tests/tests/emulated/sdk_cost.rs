//! The cost of `ks-guest` for a read: instructions of one read through it compared with a direct call of the
//! contract, counted on the emulated arm64 machine, whose PMU counts them exactly.
//!
//! The host is built for that machine first, which takes minutes, so only `make sdk-cost` runs this.

use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, Outcome, finish_within, guests, repository};

/// Reads in the first loop, as in the plugin.
const READS: f64 = 20_000.0;

/// Returns the instructions per read, from the difference between the second loop and the first.
fn cost(outcome: &Outcome, row: &str) -> f64 {
    let [once, twice] = outcome.numbers(row)[..] else { panic!("{outcome:#?}") };
    (twice - once) as f64 / READS
}

#[test]
fn arm64_kernel_6_12_the_crate_costs_a_read_less_than_2_percent() {
    if std::env::var_os("KS_SDK_COST").is_none() {
        eprintln!("not run here: the host must be built for arm64, which takes minutes: `make sdk-cost`");
        return;
    }
    let mut build = Command::new(repository().join("scripts/arm64-build"));
    let built = finish_within(build.arg("ks-host"), Duration::from_secs(3600));
    assert_eq!(built.code, 0, "the host cannot be built for arm64: {}", built.stderr);
    let folder = Folder::new();
    let plugin = guests::rust(&repository().join("tests/guests/reads"), "guest_reads.wasm", None);
    let plugin = folder.write("reads.wasm", plugin);
    let run = |argument: &str| {
        let machine = Machine::new(Kernel::V6_12Arm64)
            .file_as(built.stdout.trim(), "/ks-host")
            .file_as(&plugin, "/reads.wasm")
            .seconds(300);
        let outcome = machine.run(&["/ks-host", "--isolation", "thread", "/reads.wasm", "--", argument]);
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        outcome
    };
    let (sdk, raw) = (run("sdk"), run("raw"));
    for (row, what) in [("user", "in user code"), ("all", "with the kernel")] {
        let (sdk, raw) = (cost(&sdk, row), cost(&raw, row));
        let above = 100.0 * (sdk / raw - 1.0);
        println!("{what}: {sdk:.1} instructions through ks-guest, {raw:.1} without: {above:+.2} %");
        assert!(above < 2.0, "{what}: {sdk} and {raw}");
    }
}
