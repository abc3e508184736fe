//! Every file in `kernel/` is a script that the verifier must accept, compiled for each instruction set, with few
//! helpers inlined, and for a kernel without iterators. Its first lines state the expected results: `// expect NAME = JSON` for a
//! global variable, `// returns N`, or `// load only`. Needs root.

use std::fs;
use std::path::Path;

use ks_compiler::kernel::{Cpu, Inlining, KernelVersion, Machine};
use ks_compiler::object;
use ks_compiler_testing::kernel_half::{build, configs, expect_only};
use ks_compiler_testing::loaded::Loaded;
use ks_wit::section::Arch;
use libtest_mimic::{Failed, Trial};

use crate::{scripts, stem};

/// The machines that each case is compiled for, with the names of their tests.
fn machines() -> [(&'static str, Machine); 6] {
    let with = |cpu| Machine { cpu, ..Arch::X86_64.into() };
    let old = Machine { kernel: Some(KernelVersion::new(6, 1)), ..Arch::X86_64.into() };
    [
        ("v1", with(Cpu::V1)),
        ("v2", with(Cpu::V2)),
        ("v3", with(Cpu::V3)),
        ("v4", with(Cpu::V4)),
        ("inlined_once", Machine { inlining: Inlining::Once, ..with(Cpu::V3) }),
        ("without_iterators", old),
    ]
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for path in scripts("kernel") {
        let name = stem(&path);
        for (machine_name, machine) in machines() {
            if machine.kernel.is_some() && TOO_LARGE_FOR_CALLS.contains(&name.as_str()) {
                continue;
            }
            let (path, case) = (path.clone(), name.clone());
            trials.push(Trial::test(format!("root_load::{machine_name}::{name}"), move || {
                check(&case, &path, machine)
            }));
        }
    }
    trials
}

/// Cases whose loops pass a pointer or a binding to the next iteration, which needs an iterator.
const POINTERS_CHANGE: &[&str] =
    &["bindings", "mixture", "record_of_an_arm", "records_of_iterations", "rings"];

/// Cases that exceed the verifier's limits on a kernel without iterators: loops by calls leave no stack
/// frames for loop bodies of their own.
const TOO_LARGE_FOR_CALLS: &[&str] = &["packet_in_large_loop"];

/// Checks a case, and reports what differs from its expectations.
fn check(name: &str, path: &Path, machine: Machine) -> Result<(), Failed> {
    let script = &fs::read_to_string(path)?;
    let object = match build(script, &[], machine) {
        Err(errors) if machine.kernel.is_some() && POINTERS_CHANGE.contains(&name) => {
            let too_old = errors.iter().all(|one| one.code.to_string() == "KS1005");
            return if too_old { Ok(()) } else { Err(format!("{errors:#?}").into()) };
        }
        built => built.unwrap_or_else(|errors| panic!("{errors:#?}\n{script}")),
    };
    expect_only(machine.cpu, &object);
    Loaded::load(object.elf());
    let read = object::read(object.elf())?;
    Loaded::load(&object::write(&read)?);
    if script.starts_with("// load only") {
        return Ok(());
    }
    let runnable = Loaded::load_runnable(object.elf());
    for (map, value) in configs(script) {
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
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}
