//! Every file below `cases/` is a script that the verifier must accept. Its first lines say what a run must lead to:
//! `// expect NAME = JSON` for a global variable, `// returns N`, or `// load only`. Adding a case is adding a file.

use std::path::{Path, PathBuf};

use ks_compiler::kernel::{Cpu, KernelVersion, Machine};
use ks_wit::section::Arch;

use crate::kernel::Loaded;
use crate::{build, machine, object};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/cases");
    let entries = std::fs::read_dir(folder).expect("the cases are there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let wanted = std::env::var("KS_CASE").unwrap_or_default();
    paths.retain(|path| path.to_string_lossy().contains(&wanted));
    paths
}

#[test]
fn root_every_case_loads_and_does_what_it_says() {
    every_case(Cpu::V3);
}

#[test]
fn root_every_case_does_the_same_without_iterators() {
    let kernel = Some(KernelVersion::new(6, 1));
    every_case_for(Machine { kernel, ..Arch::X86_64.into() });
}

#[test]
fn root_every_case_does_the_same_with_the_oldest_instructions() {
    every_case(Cpu::V1);
}

#[test]
fn root_every_case_does_the_same_with_all_comparisons() {
    every_case(Cpu::V2);
}

#[test]
fn root_every_case_does_the_same_with_the_newest_instructions() {
    every_case(Cpu::V4);
}

/// Cases whose loops hand a pointer or a binding on, which needs an iterator.
const POINTERS_CHANGE: &[&str] = &["bindings", "mixture", "record_of_an_arm", "rings"];

/// Cases that the verifier of a kernel without iterators follows for longer than it may: calls of loops leave no room in the
/// frames for bodies of their own.
const TOO_LARGE_FOR_CALLS: &[&str] = &["packet_in_large_loop"];

fn every_case(cpu: Cpu) {
    every_case_for(Machine { cpu, ..Arch::X86_64.into() });
}

fn every_case_for(machine: Machine) {
    let mut failures = Vec::new();
    for path in cases() {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if machine.kernel.is_some() && TOO_LARGE_FOR_CALLS.contains(&name.as_str()) {
            continue;
        }
        let script = std::fs::read_to_string(&path).expect("a case is readable");
        match std::panic::catch_unwind(|| check(&name, &script, machine)) {
            Ok(wrong) => failures.extend(wrong.into_iter().map(|what| format!("{name}: {what}"))),
            Err(_) => failures.push(format!("{name}: does not compile or load")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What is not as the script says.
fn check(name: &str, script: &str, machine: Machine) -> Vec<String> {
    let object = match build(script, &[], machine) {
        Err(errors) if machine.kernel.is_some() && POINTERS_CHANGE.contains(&name) => {
            let too_old = errors.iter().all(|one| one.code.to_string() == "KS1005");
            return if too_old { Vec::new() } else { vec![format!("{errors:#?}")] };
        }
        built => built.unwrap_or_else(|errors| panic!("{errors:#?}\n{script}")),
    };
    machine::expect_only(machine.cpu, &object);
    println!("{name}: {} instructions", object.disassembly().lines().count());
    Loaded::load(object.elf());
    if script.starts_with("// load only") {
        return Vec::new();
    }
    let runnable = Loaded::load_runnable(object.elf());
    for (map, value) in crate::configs(script) {
        runnable.write(&map, &value);
    }
    let result = runnable.run("watch");
    let mut wrong = Vec::new();
    let mut globals = runnable.globals("bss");
    globals.extend(runnable.globals("data"));
    for line in script.lines().map_while(|line| line.strip_prefix("// ")) {
        if let Some(expected) = line.strip_prefix("returns ") {
            if result.to_string() != expected {
                wrong.push(format!("returned {result}, not {expected}"));
            }
        } else if let Some((name, value)) =
            line.strip_prefix("expect ").and_then(|rest| rest.split_once(" = "))
        {
            let expected: serde_json::Value = serde_json::from_str(value).expect("JSON");
            if globals.get(name) != Some(&expected) {
                wrong.push(format!("{name} is {:?}, not {expected}", globals.get(name)));
            }
        }
    }
    wrong
}

#[test]
fn root_map_entries_are_what_the_script_stored() {
    let object = object(include_str!("cases/maps.ks"));
    let loaded = Loaded::load_runnable(object.elf());
    loaded.run("watch");
    let names: std::collections::BTreeMap<String, u64> = loaded
        .entries("names")
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.as_u64().expect("a number")))
        .collect();
    assert_eq!(names.values().copied().collect::<Vec<_>>(), [2, 3], "{names:?}");
    let stats = loaded.entries("stats");
    assert_eq!(stats.len(), 1, "a part of an absent entry creates nothing: {stats:?}");
    assert_eq!(stats[0].1["kind"], 3);
}
