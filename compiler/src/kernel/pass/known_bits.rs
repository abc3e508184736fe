//! `x & 1` is `x` where `x` is 0 or 1, however it came there, and where only branches ask.
//!
//! In addresses it stays: the verifier may not know what `x` is.
//!
//! Besides being one instruction less it is one value less that says the same: at the start of a loop's turn the verifier
//! forgets of two such numbers the one that it has not needed yet, and with it that the two are one.

use super::{Replacements, constants};
use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, MirFunction, Op, Terminator, Value};

/// Runs the pass; gives whether anything changed. It must be run when all is simple.
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

/// The values that nothing but branches and comparisons reads.
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
    // Until something else is seen to come in, a parameter is taken for one.
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
