//! Maps of maps: both halves use the same entries, and the kernel has the same ones. The tests run on the running kernel
//! and on the emulated ones. They need root.

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, allowed, compile, finish, wait_until_gone};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).seconds(400).run_tests(module_path!(), &["both_halves_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).seconds(400).run_tests(module_path!(), &["both_halves_"]);
}

/// An entry of an inner map that is not there is absent in both halves. What a program writes there is counted.
#[test]
fn both_halves_use_the_entries_of_inner_maps() {
    let folder = Folder::new();
    let script = include_str!("scripts/inner_maps_both_halves.ks");
    let file = folder.write("ksinner.wasm", compile("ksinner", script).plugin);
    // Of the slots: 42 and 100 in the first, 5 in the second, 1 to 3 in the third.
    let expected =
        "1 15\n100 42 5 0\n1 2 3, 6 entries\n0 0\n3 10 2\ntrue true false\n7 10\n50 true true 0\n61187\n";
    for isolation in ["thread", "process"] {
        let outcome = finish(allowed().args(["--isolation", isolation]).arg(&file));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{isolation}: {outcome:#?}");
        let lost =
            "updates by programs were lost, because an inner map was full or there was none for the key";
        for (map, updates) in [("by_slot", 1), ("by_name", 1)] {
            let line = format!("map `{map}`: {updates} {lost}");
            assert!(outcome.stderr.contains(&line), "{isolation}: {outcome:#?}");
        }
        wait_until_gone("ksinner");
    }
}
