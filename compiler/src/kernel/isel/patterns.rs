//! Numbers of which the verifier may know that single bits are set, such as `x | 3`.
//!
//! What it knows of a number's bits and between which bounds the number is can contradict each other: on a way that no run
//! takes, `x | 3` is at least 4 and below 7. It goes on there, and takes the number for the constant that fits the bits,
//! 7, which was just compared with 7. Comparing that number again helps in new kernels alone. Of a number divided by one no
//! verifier knows a bit: that is compared again and used in its place.
//! Source: kernel/bpf/verifier.c, `__reg_bound_offset`, `reg_bounds_sanity_check` and `adjust_scalar_min_max_vals`, v6.1 to
//! v6.18.
//!
//! Bits above all that are unknown say no more than the bounds do, and are not counted here.

use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, Block, Callee, Function, Inst, Op, Origin, Type, Value};

/// Bits of each value that the verifier may know while it does not know some that are above them.
pub(super) struct Patterns(IndexVec<Value, u64>);

/// Where the bits may have come to be anywhere.
const ANY: u64 = u64::MAX;

impl Patterns {
    /// Nothing is found out for a function that has no number to keep below a limit.
    pub(super) fn new(function: &Function, order: &[Block]) -> Patterns {
        let insts = || order.iter().flat_map(|block| &function.blocks[*block].insts);
        let mut found = IndexVec::filled(function.values.len(), 0);
        if !insts().any(|inst| matches!(inst.op, Op::Below { .. })) {
            return Patterns(found);
        }
        // What other functions leave the verifier follows, too.
        let calls = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Function(_), .. });
        if !function.is_program {
            function.blocks[function.entry()].params.iter().for_each(|param| found[*param] = ANY);
        }
        for result in insts().filter(|inst| calls(inst)).filter_map(|inst| inst.result) {
            found[result] = ANY;
        }
        let is_alone = function.is_program && !insts().any(calls);
        let mut stored = if is_alone { 0 } else { ANY };
        let ops = function.definitions();
        let mut changed = true;
        while changed {
            changed = false;
            let mut join = |known: &mut u64, other: u64| {
                let both = *known | other;
                changed |= *known != both;
                *known = both;
            };
            for inst in insts() {
                match (&inst.op, inst.result) {
                    (Op::Store { base, value, .. }, _) if is_on_stack(function, *base) => {
                        join(&mut stored, found[*value]);
                    }
                    (Op::Load { base, .. }, Some(result)) if is_on_stack(function, *base) => {
                        join(&mut found[result], stored);
                    }
                    (op, Some(result)) => {
                        let made = made(op, &ops, &found);
                        join(&mut found[result], made);
                    }
                    (_, None) => {}
                }
            }
            for target in order.iter().flat_map(|block| function.blocks[*block].term.targets()) {
                for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                    let passed = found[*arg];
                    join(&mut found[*param], passed);
                }
            }
        }
        Patterns(found)
    }

    /// Whether what the verifier knows of a number's bits may contradict that it is between two others.
    pub(super) fn contradict(&self, value: Value) -> bool {
        self.0[value] != 0
    }
}

fn is_on_stack(function: &Function, base: Value) -> bool {
    matches!(function.values[base], Type::Ptr(Origin::Stack | Origin::Memory))
}

/// What is known of the bits that an instruction makes.
fn made(op: &Op, ops: &IndexVec<Value, Option<&Op>>, found: &IndexVec<Value, u64>) -> u64 {
    match op {
        Op::Binary(op, a, b) => {
            let number = |value: Value| Number { known: found[value], constant: constant(ops, value) };
            binary(*op, number(*a), number(*b))
        }
        Op::ZeroExtend(value) | Op::SignExtend(value) | Op::Below { value, .. } => found[*value],
        Op::Truncate(value) => found[*value] & u64::from(u32::MAX),
        Op::Narrow { value, bits, .. } => found[*value] & ((1 << bits) - 1),
        Op::SwapBytes { value, .. } => spread(found[*value]),
        _ => 0,
    }
}

fn constant(ops: &IndexVec<Value, Option<&Op>>, value: Value) -> Option<u64> {
    match ops[value] {
        Some(Op::Const(bits)) => Some(*bits),
        _ => None,
    }
}

fn spread(known: u64) -> u64 {
    if known == 0 { 0 } else { ANY }
}

/// An operand.
#[derive(Clone, Copy)]
struct Number {
    known: u64,
    constant: Option<u64>,
}

fn binary(op: BinaryOp, a: Number, b: Number) -> u64 {
    let either = a.known | b.known;
    match op {
        // A number that is no constant here may be one on some way.
        BinaryOp::Or => either | a.constant.or(b.constant).unwrap_or(ANY),
        BinaryOp::And => match a.constant.or(b.constant) {
            Some(mask) => {
                let below_top = u64::MAX.checked_shr(mask.leading_zeros()).unwrap_or(0);
                (either & mask) | (below_top & !mask)
            }
            None => ANY,
        },
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Xor if a.known != 0 && b.known != 0 => a.known & b.known,
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Xor => either,
        BinaryOp::Shl | BinaryOp::Mul => {
            let zeros = match (op, b.constant) {
                (BinaryOp::Shl, Some(amount)) => Some(amount & 63),
                (BinaryOp::Mul, Some(factor)) if factor.is_power_of_two() => {
                    Some(factor.trailing_zeros().into())
                }
                _ => None,
            };
            zeros.map_or(ANY, |zeros| either << zeros | ((1 << zeros) - 1))
        }
        BinaryOp::LShr | BinaryOp::AShr => match b.constant {
            Some(amount) => either >> (amount & 63),
            None => spread(either),
        },
        BinaryOp::UDiv | BinaryOp::URem | BinaryOp::SDiv | BinaryOp::SRem => 0,
    }
}
