//! Passes: MIR in, better MIR out, with the same meaning. One file each.

mod branches;
mod dead;
mod fold;
mod params;
#[cfg(test)]
mod tests;

use super::mir::verify::{VerifyError, verify};
use super::mir::{Function, Program, Value};
use crate::index::IndexVec;

/// A pass says whether it changed anything.
type Pass = fn(&mut Function) -> bool;

const PASSES: &[(&str, Pass)] =
    &[("params", params::run), ("fold", fold::run), ("branches", branches::run), ("dead", dead::run)];

/// Rounds after which a function is good enough; most need two or three.
const MAX_ROUNDS: usize = 16;

/// Runs all passes on all functions until nothing changes.
///
/// # Errors
/// Where debug assertions are on: the pass after which a rule of MIR is broken. A mistake of this compiler.
pub fn run(program: &mut Program) -> Result<(), VerifyError> {
    for function in &mut program.functions {
        check(function, "lowering")?;
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for (name, pass) in PASSES {
                changed |= pass(function);
                check(function, name)?;
            }
            if !changed {
                break;
            }
        }
    }
    Ok(())
}

fn check(function: &Function, after: &str) -> Result<(), VerifyError> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    verify(function).map_err(|error| VerifyError { what: format!("after {after}: {}", error.what), ..error })
}

/// Values that are to be replaced by others.
struct Replacements {
    by: IndexVec<Value, Option<Value>>,
    any: bool,
}

impl Replacements {
    fn new(function: &Function) -> Replacements {
        Replacements { by: function.values.iter().map(|_| None).collect(), any: false }
    }

    fn replace(&mut self, value: Value, by: Value) {
        self.by[value] = Some(by);
        self.any = true;
    }

    /// What stands for a value in the end.
    fn resolve(&self, mut value: Value) -> Value {
        while let Some(by) = self.by[value] {
            value = by;
        }
        value
    }

    /// Replaces every use. Gives whether there was anything to replace.
    fn apply(&self, function: &mut Function) -> bool {
        if !self.any {
            return false;
        }
        for block in function.blocks.iter_mut() {
            for inst in &mut block.insts {
                inst.op.map_operands(&mut |value| self.resolve(value));
            }
            block.term.map_operands(&mut |value| self.resolve(value));
        }
        true
    }
}
