//! Constant folding and removal of operations that have no effect.

use super::bounds;
use super::changes::Changes;
use super::iterations::Iterations;
use super::rewrite::{Replacements, note};
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{BinaryOp, Block, Condition, MirFunction, Op, Slot, SlotData, Type, Value};

/// Runs constant folding on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let mut ops: IndexVec<Value, Option<Op>> = IndexVec::filled(function.values.len(), None);
    let mut replacements = Replacements::default();
    let mut changed = false;
    let iterations = Iterations::new(function, flow);
    for block in flow.order.iter().copied() {
        for inst in &mut function.blocks[block].insts {
            let Some(result) = inst.result else { continue };
            inst.op.map_operands(&mut |value| replacements.resolve(value));
            let (types, slots) = (&function.values, &function.slots);
            let folder = Folder { ops: &ops, types, slots, iterations: &iterations, block };
            match folder.simplify(&inst.op, function.values[result]) {
                Simpler::Op(new) => {
                    changed = true;
                    inst.op = new;
                }
                Simpler::Value(value) => replacements.replace(result, value),
                Simpler::No => {}
            }
            note(&mut ops, result, &inst.op);
        }
    }
    changed |= replacements.apply(function);
    Changes::VALUES.when(changed)
}

enum Simpler {
    Op(Op),
    Value(Value),
    No,
}

/// The folding state: the instructions seen so far.
struct Folder<'a> {
    ops: &'a IndexVec<Value, Option<Op>>,
    types: &'a IndexVec<Value, Type>,
    slots: &'a IndexVec<Slot, SlotData>,
    iterations: &'a Iterations<'a>,
    /// The block of the current instruction.
    block: Block,
}

impl Folder<'_> {
    fn constant(&self, value: Value) -> Option<u64> {
        match self.ops[value] {
            Some(Op::Const(bits)) => Some(bits),
            _ => None,
        }
    }

    fn simplify(&self, op: &Op, ty: Type) -> Simpler {
        match *op {
            Op::Binary(op, a, b) => self.binary(op, a, b, ty),
            Op::Compare(condition, a, b) => self.compare(condition, a, b),
            Op::Narrow { value, bits, signed } => self.narrow(value, bits, signed),
            Op::SignExtend(value) => self.map_constant(value, |bits| bits as u32 as i32 as i64 as u64),
            Op::ZeroExtend(value) if let Some(whole) = self.bounded_whole(value) => Simpler::Value(whole),
            Op::ZeroExtend(value) | Op::Address(value) => self.map_constant(value, |bits| bits),
            Op::Truncate(value) => match self.ops[value] {
                Some(Op::ZeroExtend(inner) | Op::SignExtend(inner)) => Simpler::Value(inner),
                Some(Op::Binary(operation, a, b)) => match self.low_half(operation, a, b) {
                    Some(inner) => Simpler::Op(Op::Truncate(inner)),
                    None => self.map_constant(value, |bits| bits & 0xffff_ffff),
                },
                _ => self.map_constant(value, |bits| bits & 0xffff_ffff),
            },
            Op::PtrAdd(base, offset) => self.moved(base, offset),
            Op::Below { value, bound } => match self.constant(value) {
                Some(bits) if bits < bound => Simpler::Value(value),
                _ => Simpler::No,
            },
            Op::SwapBytes { value, bits } => self.map_constant(value, |number| swapped(number, bits)),
            Op::Opaque { value, zero } if self.constant(zero) == Some(0) => Simpler::Value(value),
            Op::IsNull(value) if self.is_there(value) => Simpler::Op(Op::Const(0)),
            Op::IsNull(value) if self.constant(value) == Some(0) => Simpler::Op(Op::Const(1)),
            Op::NonNull(value) if self.is_there(value) => Simpler::Value(value),
            _ => Simpler::No,
        }
    }

    /// The number of 64 bits that was truncated to this one, if its upper half is zero.
    fn bounded_whole(&self, truncated: Value) -> Option<Value> {
        let Some(Op::Truncate(whole)) = self.ops[truncated] else { return None };
        matches!(self.ops[whole], Some(Op::Below { bound, .. }) if bound <= 1 << 32).then_some(whole)
    }

    /// The number that has the same low 32 bits as the result of an operation of 64 bits, which extends it.
    fn low_half(&self, op: BinaryOp, a: Value, b: Value) -> Option<Value> {
        let constant = self.constant(b)?;
        match (op, &self.ops[a]) {
            (BinaryOp::And, _) if constant & 0xffff_ffff == 0xffff_ffff => Some(a),
            (BinaryOp::LShr | BinaryOp::AShr, Some(Op::Binary(BinaryOp::Shl, inner, left)))
                if constant == 32 && self.constant(*left) == Some(32) =>
            {
                Some(*inner)
            }
            _ => None,
        }
    }

    /// Whether a pointer is never null.
    fn is_there(&self, pointer: Value) -> bool {
        matches!(self.types[pointer], Type::Ptr(origin) if origin.is_memory())
    }

    /// Simplifies an address plus a constant.
    fn moved(&self, base: Value, offset: Value) -> Simpler {
        let Some(bytes) = self.constant(offset) else { return Simpler::No };
        if bytes == 0 {
            return Simpler::Value(base);
        }
        let plus = |start: u32| u32::try_from(u64::from(start).wrapping_add(bytes)).ok();
        match self.ops[base] {
            Some(Op::StackAddr { slot, offset }) => {
                match plus(offset).filter(|at| *at <= self.slots[slot].size) {
                    Some(offset) => Simpler::Op(Op::StackAddr { slot, offset }),
                    None => Simpler::No,
                }
            }
            Some(Op::GlobalAddr { global, offset }) => {
                plus(offset).map_or(Simpler::No, |offset| Simpler::Op(Op::GlobalAddr { global, offset }))
            }
            _ => Simpler::No,
        }
    }

    fn map_constant(&self, value: Value, map: impl Fn(u64) -> u64) -> Simpler {
        self.constant(value).map_or(Simpler::No, |bits| Simpler::Op(Op::Const(map(bits))))
    }

    fn binary(&self, op: BinaryOp, a: Value, b: Value, ty: Type) -> Simpler {
        let width = ty.bits().unwrap_or(64);
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b)) {
            return Simpler::Op(Op::Const(evaluate(op, width, a, b)));
        }
        if let (Some(Op::Compare(condition, x, y)), Some(1), BinaryOp::Xor) =
            (&self.ops[a], self.constant(b), op)
        {
            return Simpler::Op(Op::Compare(condition.negated(), *x, *y));
        }
        if self.constant(b).is_some_and(|b| is_neutral(op, width, b)) {
            return Simpler::Value(a);
        }
        if a == b && matches!(op, BinaryOp::Sub | BinaryOp::Xor) {
            return Simpler::Op(Op::Const(0));
        }
        if a == b && matches!(op, BinaryOp::And | BinaryOp::Or) {
            return Simpler::Value(a);
        }
        if let Some(right) = self.constant(b) {
            if right == 0 && matches!(op, BinaryOp::And | BinaryOp::Mul) {
                return Simpler::Value(b);
            }
            let low = op == BinaryOp::And && (right & right.wrapping_add(1)) == 0;
            let is_fresh = |value: Value| self.iterations.defined_in_iteration_of(self.block, value);
            if low && bounds::followed(self.ops, self.types, a, &is_fresh).most <= right {
                return Simpler::Value(a);
            }
        }
        let commutes =
            matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        match self.constant(a) {
            Some(left) if commutes && is_neutral(op, width, left) => Simpler::Value(b),
            // A constant right operand fits the instruction.
            Some(_) if commutes => Simpler::Op(Op::Binary(op, b, a)),
            _ => Simpler::No,
        }
    }

    fn compare(&self, condition: Condition, a: Value, b: Value) -> Simpler {
        let width = self.types[a].bits().unwrap_or(64);
        // The verifier loses the bounds of a number that a branch compares with itself.
        if a == b {
            return Simpler::Op(Op::Const(u64::from(holds(condition, width, 0, 0))));
        }
        if let (true, Some(bits), None) = (self.is_bit(a), self.constant(b), self.constant(a)) {
            match (condition, bits) {
                (Condition::Eq, 1) | (Condition::Ne, 0) => return Simpler::Value(a),
                (Condition::Eq, 0) | (Condition::Ne, 1) => {
                    if let Some(Op::Compare(condition, x, y)) = &self.ops[a] {
                        return Simpler::Op(Op::Compare(condition.negated(), *x, *y));
                    }
                }
                _ => {}
            }
        }
        match (self.constant(a), self.constant(b)) {
            (Some(a), Some(b)) => Simpler::Op(Op::Const(u64::from(holds(condition, width, a, b)))),
            (Some(_), None) => Simpler::Op(Op::Compare(condition.swapped(), b, a)),
            (None, Some(0)) if condition == Condition::Gt => Simpler::Op(Op::Compare(Condition::Ne, a, b)),
            _ => Simpler::No,
        }
    }

    fn is_bit(&self, value: Value) -> bool {
        self.ops[value].as_ref().is_some_and(|op| op.is_test())
    }

    fn narrow(&self, value: Value, bits: u8, signed: bool) -> Simpler {
        match self.ops[value] {
            Some(Op::Const(constant)) => Simpler::Op(Op::Const(narrowed(constant, bits, signed))),
            // The result is already zero-extended. Its bounds are not proven to the verifier by this;
            // `bounds` knows that.
            Some(Op::SwapBytes { bits: 16, .. }) if bits == 16 && !signed => Simpler::Value(value),
            Some(Op::Narrow { bits: inner, signed: inner_signed, .. })
                if inner == bits && signed == inner_signed =>
            {
                Simpler::Value(value)
            }
            _ => Simpler::No,
        }
    }
}

/// Reverses the byte order of a number of `bits` bits.
pub(in crate::kernel) fn swapped(number: u64, bits: u8) -> u64 {
    number.swap_bytes() >> (64 - u32::from(bits))
}

/// Extends the low `bits` bits to 32 bits.
pub fn narrowed(value: u64, bits: u8, signed: bool) -> u64 {
    let shift = 32 - u32::from(bits);
    let top = (value as u32) << shift;
    u64::from(if signed { ((top as i32) >> shift) as u32 } else { top >> shift })
}

/// Whether the right operand is the neutral element of the operation.
fn is_neutral(op: BinaryOp, width: u32, right: u64) -> bool {
    match op {
        BinaryOp::Mul | BinaryOp::UDiv | BinaryOp::SDiv => right == 1,
        BinaryOp::And => right == ones(width),
        BinaryOp::URem => right == 0,
        BinaryOp::SRem => false,
        BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr => right & u64::from(width - 1) == 0,
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::Xor => right == 0,
    }
}

fn ones(width: u32) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The signed value of a number of `width` bits.
fn signed(width: u32, bits: u64) -> i64 {
    if width == 64 { bits as i64 } else { i64::from(bits as u32 as i32) }
}

/// Evaluates an operation on numbers of 32 or 64 bits.
pub fn evaluate(op: BinaryOp, width: u32, a: u64, b: u64) -> u64 {
    let amount = (b & u64::from(width - 1)) as u32;
    let result = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::UDiv => a.checked_div(b).unwrap_or(0),
        BinaryOp::URem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::SDiv => signed(width, a).checked_div(signed(width, b)).unwrap_or(0) as u64,
        BinaryOp::SRem => signed(width, a).checked_rem(signed(width, b)).unwrap_or(0) as u64,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << amount,
        BinaryOp::LShr => a >> amount,
        BinaryOp::AShr => (signed(width, a) >> amount) as u64,
    };
    result & ones(width)
}

/// Evaluates a comparison of numbers of 32 or 64 bits.
pub fn holds(condition: Condition, width: u32, a: u64, b: u64) -> bool {
    let (x, y) = (signed(width, a), signed(width, b));
    match condition {
        Condition::Eq => a == b,
        Condition::Ne => a != b,
        Condition::Lt => a < b,
        Condition::Le => a <= b,
        Condition::Gt => a > b,
        Condition::Ge => a >= b,
        Condition::SLt => x < y,
        Condition::SLe => x <= y,
        Condition::SGt => x > y,
        Condition::SGe => x >= y,
    }
}

#[cfg(test)]
mod tests;
