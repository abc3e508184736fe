//! Removes `x & 1` where `x` is 0 or 1 on every path and only branches use the result.
//!
//! In addresses the mask stays: the verifier may not know that `x` is 0 or 1.
//!
//! The pass saves an instruction, and avoids a second value with the same number. At the start of a loop's
//! iteration the verifier forgets, of two such numbers, the one that it has not needed yet, and that both are
//! equal.

use super::rewrite::{Replacements, constants};
use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, MirFunction, Op, Terminator, Value};

/// Runs the pass; returns whether anything changed. It expects a function that the other passes have
/// simplified.
pub fn run(function: &mut MirFunction) -> bool {
    let bits = bits(function);
    let constants = constants(function);
    let only_asked = only_asked(function);
    let mut replacements = Replacements::default();
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        let (Op::Binary(BinaryOp::And, a, b), Some(result)) = (&inst.op, inst.result) else { continue };
        for (value, other) in [(*a, *b), (*b, *a)] {
            if only_asked[result] && bits[value] && constants[other].is_some_and(|other| other & 1 == 1) {
                replacements.replace(result, value);
                break;
            }
        }
    }
    if !replacements.apply(function) {
        return false;
    }
    for block in function.blocks.iter_mut() {
        block.insts.retain(|inst| inst.result.is_none_or(|result| !replacements.is_replaced(result)));
    }
    true
}

/// The values that only branches and comparisons use.
fn only_asked(function: &MirFunction) -> IndexVec<Value, bool> {
    let mut found: IndexVec<Value, bool> = function.values.iter().map(|_| true).collect();
    for data in function.blocks.iter() {
        let computing = data.insts.iter().filter(|inst| !matches!(inst.op, Op::Compare(..)));
        let passed = data.term.targets().into_iter().flat_map(|target| target.args.iter().copied());
        computing.flat_map(|inst| inst.op.operands()).chain(passed).for_each(|value| found[value] = false);
        if let Terminator::Return(value) = data.term {
            found[value] = false;
        }
    }
    found
}

/// The values that are 0 or 1.
fn bits(function: &MirFunction) -> IndexVec<Value, bool> {
    let order = function.reverse_postorder();
    // Optimistic start: every value is taken for a bit until a definition contradicts it.
    let mut bits: IndexVec<Value, bool> = function.values.iter().map(|_| true).collect();
    function.blocks[function.entry()].params.iter().for_each(|param| bits[*param] = false);
    let mut changed = true;
    while changed {
        changed = false;
        for data in order.iter().map(|block| &function.blocks[*block]) {
            for inst in &data.insts {
                if let Some(result) = inst.result
                    && bits[result]
                    && !is_bit(&inst.op, &bits)
                {
                    bits[result] = false;
                    changed = true;
                }
            }
            for target in data.term.targets() {
                for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                    changed |= bits[*param] && !bits[*arg];
                    bits[*param] &= bits[*arg];
                }
            }
        }
    }
    bits
}

fn is_bit(op: &Op, bits: &IndexVec<Value, bool>) -> bool {
    match op {
        Op::Const(number) => *number <= 1,
        Op::Binary(BinaryOp::And, a, b) => bits[*a] || bits[*b],
        Op::Binary(BinaryOp::Or | BinaryOp::Xor, a, b) => bits[*a] && bits[*b],
        Op::ZeroExtend(value) | Op::Truncate(value) | Op::Narrow { value, .. } => bits[*value],
        other => other.is_test(),
    }
}
