//! Unsigned bounds of numbers, from definitions and comparisons.

use std::borrow::Borrow;

use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, Condition, Op, Size, Type, Value};

/// An inclusive range of unsigned numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub least: u64,
    pub most: u64,
}

/// The depth to which operands are searched for the bounds of a number.
const DEPTH: u32 = 6;

/// The greatest unsigned number of `width` bits.
pub fn greatest(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The bounds that a number's definition proves.
pub fn proven(
    ops: &IndexVec<Value, Option<impl Borrow<Op>>>,
    types: &IndexVec<Value, Type>,
    value: Value,
) -> Bounds {
    DefinitionBounds { ops, types, follows: None }.of(value)
}

/// The bounds that a number's definition proves to the verifier of every kernel, from the definitions of values for which
/// `follows` returns true.
///
/// It knows nothing of the result of a division, and before Linux 6.10 nothing of a product, or a number of combined bits, of
/// two numbers that are no constants. Source: kernel/bpf/verifier.c, `adjust_scalar_min_max_vals`, v6.9.
pub fn followed(
    ops: &IndexVec<Value, Option<impl Borrow<Op>>>,
    types: &IndexVec<Value, Type>,
    value: Value,
    follows: &dyn Fn(Value) -> bool,
) -> Bounds {
    DefinitionBounds { ops, types, follows: Some(follows) }.of(value)
}

impl Bounds {
    fn exact_if(self, constant: Option<u64>) -> Bounds {
        constant.map_or(self, |bits| Bounds { least: bits, most: bits })
    }

    /// The bounds of a number that is within one of both.
    pub fn or(self, other: Bounds) -> Bounds {
        Bounds { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// The intersection of both bounds. If it is empty, the code is unreachable, and `self` is returned.
    pub fn within(self, other: Bounds) -> Bounds {
        let both = Bounds { least: self.least.max(other.least), most: self.most.min(other.most) };
        if both.least <= both.most { both } else { self }
    }
}

/// The definitions from which bounds are derived.
struct DefinitionBounds<'a, O> {
    ops: &'a IndexVec<Value, Option<O>>,
    types: &'a IndexVec<Value, Type>,
    /// For the bounds that the verifier follows: the values whose definitions it knows of.
    follows: Option<&'a dyn Fn(Value) -> bool>,
}

impl<O: Borrow<Op>> DefinitionBounds<'_, O> {
    fn of(&self, value: Value) -> Bounds {
        Bounds { least: 0, most: self.most(value, DEPTH) }.exact_if(self.constant(value))
    }

    fn op(&self, value: Value) -> Option<&Op> {
        self.ops[value].as_ref().map(Borrow::borrow)
    }

    /// Whether bounds of a combination of two numbers follow from theirs.
    fn combines(&self, a: Value, b: Value) -> bool {
        self.follows.is_none() || self.constant(a).or(self.constant(b)).is_some()
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.op(value) {
            Some(Op::Const(bits)) => Some(*bits),
            _ => None,
        }
    }

    fn most(&self, value: Value, depth: u32) -> u64 {
        let whole = greatest(self.types[value].bits().unwrap_or(64));
        if let Some(bits) = self.constant(value) {
            return bits;
        }
        let Some(depth) = depth.checked_sub(1) else { return whole };
        let of = |value: Value| self.most(value, depth);
        let found = match self.op(value) {
            _ if self.follows.is_some_and(|follows| !follows(value)) => whole,
            Some(op) if op.is_test() => 1,
            Some(Op::Load { size: Size::B, .. }) => 0xff,
            Some(Op::Load { size: Size::H, .. }) => 0xffff,
            Some(Op::Narrow { bits, signed: false, .. }) => greatest(u32::from(*bits)),
            Some(Op::ZeroExtend(inner)) => match of(*inner) {
                // The verifier does not even know that the upper half of a remainder or a loop-carried number
                // is zero.
                most if most == greatest(32) && !matches!(self.op(*inner), Some(Op::Load { .. })) => whole,
                most => most,
            },
            Some(Op::Truncate(inner)) => of(*inner),
            Some(Op::Below { value, bound }) => of(*value).min(bound - 1),
            Some(Op::Binary(BinaryOp::Add, a, b)) => of(*a).saturating_add(of(*b)),
            Some(Op::Binary(BinaryOp::And, a, b)) => of(*a).min(of(*b)),
            Some(Op::Binary(BinaryOp::Or | BinaryOp::Mul, a, b)) if !self.combines(*a, *b) => whole,
            Some(Op::Binary(BinaryOp::Or, a, b)) => greatest(u64::BITS - (of(*a) | of(*b)).leading_zeros()),
            Some(Op::Binary(BinaryOp::Mul, a, b)) => match (of(*a), of(*b)) {
                // It follows products of halves only.
                (a, b) if a.max(b) <= greatest(whole.count_ones() / 2) => a * b,
                _ => whole,
            },
            Some(Op::Binary(BinaryOp::Shl, a, b)) => match self.constant(*b) {
                Some(amount) if amount < u64::from(whole.count_ones()) => match of(*a) {
                    most if most <= (whole >> 1) >> amount => most << amount,
                    _ => whole,
                },
                _ => whole,
            },
            Some(Op::Binary(BinaryOp::LShr, a, b)) => self
                .constant(*b)
                .map_or(whole, |amount| of(*a) >> (amount & u64::from(whole.count_ones() - 1))),
            _ => whole,
        };
        // A truncated number may be anything.
        if found > whole { whole } else { found }
    }
}

/// The range of a number for which a comparison with a constant holds; `None` if it is not one range.
pub fn of_comparison(condition: Condition, limit: u64, width: u32) -> Option<Bounds> {
    let top = greatest(width);
    let (least, most) = match condition {
        Condition::Eq => (limit, limit),
        Condition::Ne if limit == 0 => (1, top),
        Condition::Lt => (0, limit.checked_sub(1)?),
        Condition::Le => (0, limit),
        Condition::Gt => (limit.checked_add(1)?, top),
        Condition::Ge => (limit, top),
        _ => return None,
    };
    (least <= most && most <= top).then_some(Bounds { least, most })
}

/// The result of comparing a number in these bounds with a constant, if it is the same for all of them.
pub fn answer(bounds: Bounds, condition: Condition, limit: u64, width: u32) -> Option<bool> {
    let positive = greatest(width - 1);
    let signed = unsigned(condition) != condition;
    if signed && (bounds.most > positive || limit > positive) {
        return None;
    }
    let either = |always: bool, never: bool| if always { Some(true) } else { never.then_some(false) };
    let Bounds { least, most } = bounds;
    match unsigned(condition) {
        Condition::Eq => either(least == limit && most == limit, limit < least || limit > most),
        Condition::Ne => either(limit < least || limit > most, least == limit && most == limit),
        Condition::Lt => either(most < limit, least >= limit),
        Condition::Le => either(most <= limit, least > limit),
        Condition::Gt => either(least > limit, most <= limit),
        Condition::Ge => either(least >= limit, most < limit),
        _ => None,
    }
}

/// The unsigned comparison with the same result for numbers whose sign bit is clear.
fn unsigned(condition: Condition) -> Condition {
    match condition {
        Condition::SLt => Condition::Lt,
        Condition::SLe => Condition::Le,
        Condition::SGt => Condition::Gt,
        Condition::SGe => Condition::Ge,
        other => other,
    }
}
