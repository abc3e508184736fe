//! The scripts of the kernel's tests: the interpreter gets the expected results, before and after every pass.

use ks_compiler::hir::Hir;
use ks_compiler::kernel::mir::{Program, print};
use ks_compiler_testing::interp::{Environment, InterpError, Outcome, Plain, run};

use crate::mir::{scripts, stages, stages_with_small_frames, tree};

const MAX_ITERATIONS: i32 = 2000;
const FUEL: u64 = 2_000_000;

/// Runs a stage of the script's program.
fn outcome(hir: &Hir, program: &Program) -> Result<Outcome, InterpError> {
    let watch = program.functions.iter().find(|one| one.is_program).expect("a case has a program");
    run(program, watch.id, &[None], &Environment::of(hir, MAX_ITERATIONS), &mut Plain, FUEL)
}

/// Returns a global variable of at most 8 bytes, as the case's first lines write it.
fn number(hir: &Hir, outcome: &Outcome, name: &str) -> Option<i128> {
    let (id, global) = hir.globals.iter_enumerated().find(|(_, one)| one.name == name)?;
    let bytes = &outcome.globals[ks_compiler::index::Id::index(id)];
    let raw = bytes
        .iter()
        .rev()
        .try_fold(0u128, |raw, byte| (bytes.len() <= 8).then_some(raw << 8 | u128::from(*byte)))?;
    let int = hir.types.int(global.ty)?;
    let top = 1i128 << (int.bits - 1);
    let value = raw as i128;
    Some(if int.signed && value >= top { value - 2 * top } else { value })
}

#[test]
fn every_pass_keeps_what_a_case_does() {
    for (name, script) in scripts() {
        let hir = tree(&script);
        let stages = stages(&hir);
        let (_, first) = stages.first().expect("MIR before any pass");
        let expected = match outcome(&hir, first) {
            // The interpreter does not support functions of the kernel.
            Err(_) if hir.externs.iter().next().is_some() => continue,
            Err(InterpError::Fault(why)) if why.ends_with("runs no programs on packets") => continue,
            expected => expected.unwrap_or_else(|stuck| panic!("{name}: {stuck}")),
        };
        for (pass, program) in stages.into_iter().chain(stages_with_small_frames(&hir)) {
            let found = outcome(&hir, &program);
            assert!(
                found.as_ref() == Ok(&expected),
                "{name} after {pass}: {found:?}, not {expected:?}\n{}",
                print::program(&program, &hir)
            );
        }
    }
}

#[test]
fn the_interpreter_finds_what_the_kernel_finds() {
    let mut compared = 0;
    for (name, script) in scripts().iter().filter(|(_, script)| !script.starts_with("// load only")) {
        let hir = tree(script);
        let (_, program) = stages(&hir).remove(0);
        let outcome = outcome(&hir, &program).unwrap_or_else(|stuck| panic!("{name}: {stuck}"));
        for line in script.lines().map_while(|line| line.strip_prefix("// ")) {
            if let Some(result) = line.strip_prefix("returns ") {
                assert_eq!(outcome.result.to_string(), result, "{name}");
            } else if let Some((global, value)) =
                line.strip_prefix("expect ").and_then(|rest| rest.split_once(" = "))
                && let (Ok(value), Some(found)) = (value.parse::<i128>(), number(&hir, &outcome, global))
            {
                assert_eq!(found, value, "{name}: {global}");
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "{compared} variables compared");
}
