//! Maps of every kind from both halves, lines that the kernel half prints, and losses of a full map. These
//! tests need root.

use std::process::Command;

use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, allowed, command, finish, repository, run_script};

const NO_ARGUMENTS: &[&str] = &[];

fn example(name: &str) -> Outcome {
    let folder = Folder::new();
    let plugin = folder.path(name).with_extension("wasm");
    let source = repository().join("examples/state").join(name);
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!((built.code, built.stderr.as_str(), built.stdout.as_str()), (0, "", ""), "{built:#?}");
    finish(allowed().arg(&plugin))
}

#[test]
fn root_examples_print_what_they_promise() {
    let faults = example("latest_faults.ks");
    let lines: Vec<&str> = faults.stdout.lines().collect();
    assert_eq!((faults.code, lines.len(), faults.stderr.as_str()), (0, 9, ""), "{faults:#?}");
    assert!(lines[7].starts_with("fault 8 of "), "{faults:#?}");
    assert_eq!(lines[8], "8 records handled");
    let kinds = example("kinds.ks");
    let expected = "2 kinds of pages, 24 faults or more\noldest job 3, 1 left\nseen: true false\n";
    assert_eq!((kinds.code, kinds.stdout.as_str(), kinds.stderr.as_str()), (0, expected, ""), "{kinds:#?}");
}

#[test]
fn root_lf_105_lines_of_the_kernel_half_stand_in_order_before_those_that_come_after() {
    let script = include_str!(
        "scripts/state_lf_105_lines_of_the_kernel_half_stand_in_order_before_those_that_come_after.ks"
    );
    let outcome = run_script("prints", script, NO_ARGUMENTS);
    let first = |n: u32| format!("{n}: -1 255 {:x} global hi z|   42|7   |%", n + 254);
    let expected = format!("{}\ntrue GREEN text\n{}\nfalse GREEN text\nown line\n", first(1), first(2));
    assert_eq!((outcome.code, outcome.stdout, outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lost_lines_and_updates_are_counted_exactly() {
    let script = include_str!("scripts/state_lost_lines_and_updates_are_counted_exactly.ks");
    let outcome = run_script("lost", script, NO_ARGUMENTS);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let (last, printed) = lines.split_last().expect("it printed");
    let numbers: Vec<u64> = last.split(' ').filter_map(|field| field.parse().ok()).collect();
    let [runs, entries] = numbers[..] else { panic!("{last}") };
    // The first page may hold other data too, and may already be mapped.
    assert!(runs >= 3999 && entries == 10, "{last}");
    assert_eq!(outcome.number_before(" updates by programs were lost"), 2 * runs - entries);
    // 352 bytes each, with the header; one byte of the ring stays free.
    assert_eq!(printed.len(), ((1 << 20) - 1) / 352);
    assert_eq!(outcome.number_before(" lines that programs printed were lost"), runs - printed.len() as u64);
    for (number, line) in (1..).zip(printed) {
        assert_eq!(**line, format!("{number} {number} {number} {number} x"));
    }
}

/// The kernel's own record of a map has the size of the option.
#[test]
fn root_an_option_sets_the_size_of_a_map() {
    const SCRIPT: &str = include_str!("scripts/state_sizes_by_option.ks");
    let sizes = |arguments: &[&str]| -> (Vec<u32>, Outcome) {
        let running = Running::start("kssizes", SCRIPT, arguments);
        let maps = finish(Command::new("bpftool").args(["map", "show"])).stdout;
        let maps: Vec<&str> = maps.lines().collect();
        let of = |name: &str| {
            let at =
                maps.iter().position(|line| line.contains(&format!("name {name} "))).expect("it is loaded");
            let entries = maps[at + 1].split_once("max_entries ").expect("every map has them").1;
            entries.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let sizes = vec![of("kssized"), of("ksrecent")];
        nix::unistd::getppid();
        (sizes, running.stop())
    };
    for (arguments, expected) in [
        (&[][..], [8, 2]),
        (&["--entries", "4", "--kept", "7"][..], [4, 7]),
        (&["--entries", "100", "--kept", "1000"][..], [100, 1000]),
    ] {
        let (found, outcome) = sizes(arguments);
        assert_eq!(found, expected, "{outcome:#?}");
        // Ten entries and elements, once.
        let [entries, elements] = expected.map(|size| size.min(10));
        let last = format!("entries {entries} elements {elements}");
        assert_eq!(outcome.stdout.lines().last(), Some(&*last), "{outcome:#?}");
        assert_eq!(outcome.stderr.contains("because it was full"), expected[0] < 10, "{outcome:#?}");
    }
    for (value, reason) in [("0", "`--entries` must be at least 1"), ("4000000000", "map `kssized`")] {
        let outcome = run_script("kssizes", SCRIPT, &["--entries", value]);
        assert!(outcome.code != 0 && outcome.stderr.contains(reason), "{outcome:#?}");
    }
}

#[test]
fn root_lf_143_map_iterations_visit_every_entry_once() {
    let script = include_str!("scripts/state_lf_143_walks_meet_every_entry_once.ks");
    let outcome = run_script("walks", script, NO_ARGUMENTS);
    let expected =
        "15000 112492500 337477500 left 0\n126 6\ncaught 5\n44850 -4 300\n55\n40 2\none true\n0 0\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_096_slots_of_all_cpus_are_added_up() {
    let script = include_str!("scripts/state_lf_096_slots_of_all_cpus_are_added_up.ks");
    let outcome = run_script("slots", script, NO_ARGUMENTS);
    let expected = "42 42 42 true 5 true\n2 0\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

/// The clock ticks on every CPU that is online: none of them is without a value.
#[test]
fn root_percpu_variables_have_a_value_for_each_cpu() {
    let script = include_str!("scripts/state_percpu_variables_have_a_value_for_each_cpu.ks");
    let outcome = run_script("percpu", script, NO_ARGUMENTS);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").expect("procfs is there");
    let online = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let expected = format!("true true true {online}\ntrue {online}\n6\n");
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, &*expected, ""));
}

#[test]
fn root_queues_and_filters_are_the_same_in_both_halves() {
    let script = include_str!("scripts/state_queues_and_filters_are_the_same_in_both_halves.ks");
    let outcome = run_script("queues", script, NO_ARGUMENTS);
    let expected = "7\n1 kernel\n2 user\n11 10 true\ntrue false\n1 stack of some depth: 1\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].contains("queues.ks:31: ") && lines[0].contains("`jobs`"),
        "{lines:?}"
    );
}

/// A module's declarations keep their own names, whatever the importing script declares.
#[test]
fn root_modules_declare_maps_variables_and_rings() {
    const MODULE: &str = "
        struct Noted { value: u32 }
        var seen : hash<u32, u64>(16)
        var total: u64 = 0
        var ring : ringbuf<Noted>(4096)
        config limits { most: u32 = 3, }
        @helper
        fn note(value: u32) -> u32 {
            seen[value] += 1
            total += 1
            var noted = ring.reserve()
            noted->value = limits.most
            ring.submit(noted)
            return value
        }
        fn noted(value: u32) -> u64 { return seen[value] * 100 + total }";
    const SCRIPT: &str = include_str!("scripts/state.ks");
    let folder = Folder::new();
    folder.write("lib.ks", MODULE);
    let script = folder.write("importing.ks", SCRIPT);
    let ran = finish(allowed().arg(script));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "101 12\n"), "{ran:#?}");
}

/// Struct values are the entries themselves; the iteration visits every index once, until `break`.
#[test]
fn root_arrays_are_iterated_over_in_the_kernel_half() {
    const SCRIPT: &str = include_str!("scripts/state_2.ks");
    let ran = run_script("kststwalk", SCRIPT, NO_ARGUMENTS);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "328250 7 6 8\n"), "{ran:#?}");
}

/// The first string is a compile-time constant. Its stack slot, which begins like the key, is never written.
#[test]
fn root_a_key_has_its_own_bytes_whatever_lay_there_before() {
    let script = include_str!("scripts/state_a_key_has_its_own_bytes_whatever_lay_there_before.ks");
    let outcome = run_script("kskeyp", script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "97 3\n"), "{outcome:#?}");
}
