//! Finds numbers of which the verifier may know single bits, such as `x | 3` and `x << 4`.
//!
//! The verifier's known bits and its bounds of a number can contradict each other. On a path that no run
//! takes, `x | 3` is at least 4 and below 7. The verifier continues there and takes the number for the
//! constant that fits the bits: 7, which was just compared with 7. Comparing that number again helps only in
//! newer kernels. No verifier knows any bit of a quotient: the number is divided by one, and the quotient is
//! compared again and used instead. Source: kernel/bpf/verifier.c, `__reg_bound_offset`,
//! `reg_bounds_sanity_check` and `adjust_scalar_min_max_vals`, v6.1 to v6.18.
//!
//! A single upper bound contradicts nothing: the verifier's lower bound has such bits. So an offset in a
//! packet that is only compared with the maximum packet offset needs no division. Known bits above all
//! unknown bits say no more than the bounds do, and are not counted here.

use std::ops::BitOr;

use crate::index::{FastMap, IndexVec};
use crate::kernel::mir::{
    BinaryOp, Block, Callee, Condition, Inst, MirFunction, Op, Origin, Terminator, Type, Value,
};
use crate::kernel::pass::scalar_ids::ScalarIds;

/// An over-approximation of the verifier's known bits of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct KnownBits {
    /// Bits that may be known while some bit above them is unknown.
    known: u64,
    /// Whether the lower bound may exceed the one that the known bits imply, but still has those bits.
    raised: bool,
    /// Whether the lower bound may lack the known bits.
    cut: bool,
}

impl KnownBits {
    const ANY: KnownBits = KnownBits { known: u64::MAX, raised: true, cut: true };

    fn with(self, known: u64) -> KnownBits {
        KnownBits { known, ..self }
    }
}

/// The union of both sets of possibilities.
impl BitOr for KnownBits {
    type Output = KnownBits;

    fn bitor(self, other: KnownBits) -> KnownBits {
        KnownBits {
            known: self.known | other.known,
            raised: self.raised || other.raised,
            cut: self.cut || other.cut,
        }
    }
}

/// The verifier's possible known bits of those numbers of a function that must stay below a bound.
pub(super) struct Patterns {
    numbers: IndexVec<Value, KnownBits>,
    limits: Limits,
}

impl Patterns {
    /// Returns `None` for a function without [`Op::Below`].
    pub(super) fn new(function: &MirFunction, order: &[Block]) -> Option<Patterns> {
        let insts = || order.iter().flat_map(|block| &function.blocks[*block].insts);
        if !insts().any(|inst| matches!(inst.op, Op::Below { .. })) {
            return None;
        }
        let numbers = IndexVec::filled(function.values.len(), KnownBits::default());
        let mut patterns = Patterns { numbers, limits: Limits::new(function, order) };
        // The verifier also tracks known bits across calls of functions of the object.
        let calls = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Function(_), .. });
        if !function.is_program {
            let params = &function.blocks[function.entry()].params;
            params.iter().for_each(|param| patterns.numbers[*param] = KnownBits::ANY);
        }
        for result in insts().filter(|inst| calls(inst)).filter_map(|inst| inst.result) {
            patterns.numbers[result] = KnownBits::ANY;
        }
        let is_alone = function.is_program && !insts().any(calls);
        patterns.follow(function, order, if is_alone { KnownBits::default() } else { KnownBits::ANY });
        Some(patterns)
    }

    /// Whether the verifier's known bits of a number may contradict its bounds.
    pub(super) fn contradict(&self, value: Value) -> bool {
        let number = self.numbers[value];
        number.known != 0 && (number.cut || self.limits.of(value) == Some(Limit::Several))
    }

    /// Propagates known bits to a fixed point; `stored` is what the stack may hold.
    fn follow(&mut self, function: &MirFunction, order: &[Block], mut stored: KnownBits) {
        let ops = function.definitions();
        let mut changed = true;
        while changed {
            changed = false;
            let mut join = |known: &mut KnownBits, other: KnownBits| {
                let both = *known | other;
                changed |= *known != both;
                *known = both;
            };
            for inst in order.iter().flat_map(|block| &function.blocks[*block].insts) {
                match (&inst.op, inst.result) {
                    (Op::Store { base, value, .. }, _) if is_on_stack(function, *base) => {
                        join(&mut stored, self.numbers[*value]);
                    }
                    (Op::Load { base, .. }, Some(result)) if is_on_stack(function, *base) => {
                        join(&mut self.numbers[result], stored);
                    }
                    (op, Some(result)) => {
                        let result_bits = self.result_bits(op, &ops);
                        join(&mut self.numbers[result], result_bits);
                    }
                    (_, None) => {}
                }
            }
            for target in order.iter().flat_map(|block| function.blocks[*block].term.targets()) {
                for (param, arg) in function.blocks[target.block].params.iter().zip(&target.args) {
                    let passed = self.numbers[*arg];
                    join(&mut self.numbers[*param], passed);
                }
            }
        }
    }

    /// The known bits of an instruction's result.
    fn result_bits(&self, op: &Op, ops: &IndexVec<Value, Option<&Op>>) -> KnownBits {
        match op {
            Op::Binary(op, a, b) => self.binary(*op, (*a, constant(ops, *a)), (*b, constant(ops, *b))),
            Op::ZeroExtend(value) | Op::Below { value, .. } => self.numbers[*value],
            Op::Truncate(value) => {
                let number = self.numbers[*value];
                number.with(number.known & u64::from(u32::MAX))
            }
            Op::SignExtend(value) => self.operand(*value),
            Op::Narrow { value, bits, .. } => {
                let number = self.operand(*value);
                number.with(number.known & ((1 << bits) - 1))
            }
            Op::SwapBytes { value, .. } => {
                let number = self.operand(*value);
                number.with(spread(number.known))
            }
            _ => KnownBits::default(),
        }
    }

    /// The known bits of an operand. A comparison may have raised its lower bound to anything.
    fn operand(&self, value: Value) -> KnownBits {
        let number = self.numbers[value];
        KnownBits { cut: number.cut || self.limits.of(value).is_some(), ..number }
    }

    fn binary(&self, op: BinaryOp, a: (Value, Option<u64>), b: (Value, Option<u64>)) -> KnownBits {
        let either = self.operand(a.0) | self.operand(b.0);
        match op {
            // A number that is not a constant here may be one on some path. The result is at least as large
            // as either operand.
            BinaryOp::Or => KnownBits {
                known: either.known | a.1.or(b.1).unwrap_or(u64::MAX),
                cut: either.cut || either.raised,
                ..either
            },
            BinaryOp::And => either.with(match a.1.or(b.1) {
                Some(mask) => {
                    let below_top = u64::MAX.checked_shr(mask.leading_zeros()).unwrap_or(0);
                    (either.known & mask) | (below_top & !mask)
                }
                None => u64::MAX,
            }),
            // Either operand may be a constant on a path where it was compared, so the known bits of the other stay.
            BinaryOp::Add | BinaryOp::Sub => KnownBits { raised: true, ..either },
            BinaryOp::Xor => either,
            BinaryOp::Shl | BinaryOp::Mul => {
                let zeros = match (op, b.1) {
                    (BinaryOp::Shl, Some(amount)) => Some(amount & 63),
                    (BinaryOp::Mul, Some(factor)) if factor.is_power_of_two() => {
                        Some(factor.trailing_zeros().into())
                    }
                    _ => None,
                };
                either.with(zeros.map_or(u64::MAX, |zeros| either.known << zeros | ((1 << zeros) - 1)))
            }
            BinaryOp::LShr | BinaryOp::AShr => {
                either.with(b.1.map_or(spread(either.known), |amount| either.known >> (amount & 63)))
            }
            BinaryOp::UDiv | BinaryOp::URem | BinaryOp::SDiv | BinaryOp::SRem => KnownBits::default(),
        }
    }
}

fn is_on_stack(function: &MirFunction, base: Value) -> bool {
    matches!(function.values[base], Type::Ptr(Origin::Stack | Origin::Memory))
}

fn constant(ops: &IndexVec<Value, Option<&Op>>, value: Value) -> Option<u64> {
    match ops[value] {
        Some(Op::Const(bits)) => Some(*bits),
        _ => None,
    }
}

/// All bits, if any bit is known: an operation may have moved it to any position.
fn spread(known: u64) -> u64 {
    if known == 0 { 0 } else { u64::MAX }
}

/// The bounds that numbers are compared with.
struct Limits {
    scalar_ids: ScalarIds,
    /// The limit of each representative of numbers that share a scalar id.
    limits: FastMap<Value, Limit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The number is only compared with this exclusive upper bound.
    One(u64),
    Several,
}

impl Limits {
    fn new(function: &MirFunction, order: &[Block]) -> Limits {
        let mut limits = Limits { scalar_ids: ScalarIds::new(function), limits: FastMap::default() };
        let ops = function.definitions();
        for block in order.iter().map(|block| &function.blocks[*block]) {
            for inst in &block.insts {
                match &inst.op {
                    Op::Below { value, bound } => limits.add(*value, Limit::One(*bound)),
                    Op::Compare(condition, a, b) => {
                        limits.add(*a, below(*condition, constant(&ops, *b)));
                        limits.add(*b, Limit::Several);
                    }
                    // The verifier also knows the results of comparisons in the called function.
                    Op::Call { callee: Callee::Function(_), args } => {
                        args.iter().for_each(|arg| limits.add(*arg, Limit::Several));
                    }
                    _ => {}
                }
            }
            if let Terminator::Branch { cond, .. } = block.term {
                limits.add(cond, Limit::Several);
            }
        }
        limits
    }

    fn add(&mut self, value: Value, limit: Limit) {
        let all = self.limits.entry(self.scalar_ids.number(value)).or_insert(limit);
        if *all != limit {
            *all = Limit::Several;
        }
    }

    fn of(&self, value: Value) -> Option<Limit> {
        self.limits.get(&self.scalar_ids.number(value)).copied()
    }
}

fn below(condition: Condition, with: Option<u64>) -> Limit {
    match (condition, with) {
        (Condition::Lt | Condition::Ge, Some(limit)) => Limit::One(limit),
        (Condition::Le | Condition::Gt, Some(limit)) => Limit::One(limit.saturating_add(1)),
        _ => Limit::Several,
    }
}
