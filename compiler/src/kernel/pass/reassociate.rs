//! Reassociation: replaces two operations by one, and comparisons of converted or shifted values by
//! comparisons of the originals.
//!
//! Each rewrite yields one instruction on existing values, or on one more constant: [`Rewritten`].

use super::bounds::{greatest, proven};
use super::changes::Changes;
use super::const_fold::{evaluate, swapped};
use super::rewrite::{insert, note};
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{BinaryOp, Condition, Inst, MirFunction, Op, Type, Value};

/// A replacement operation whose right operand is a value, or a constant yet to be created.
enum Rewritten {
    Binary(BinaryOp, Value, u64),
    Compare(Condition, Value, u64),
    Op(Op),
}

/// Runs reassociation on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let mut changed = false;
    let mut ops: IndexVec<Value, Option<Op>> = IndexVec::filled(function.values.len(), None);
    for block in flow.order.iter().copied() {
        let insts = &mut function.blocks[block].insts;
        let mut added = Vec::new();
        for (at, inst) in insts.iter_mut().enumerate() {
            let rewritten = Rewriter { ops: &ops, types: &function.values }.rewrite(&inst.op);
            changed |= rewritten.is_some();
            let mut with_constant = |left: Value, bits: u64, make: &dyn Fn(Value) -> Op| {
                let ty = function.values[left];
                let constant = function.values.push(ty);
                ops.push(Some(Op::Const(bits)));
                added.push((at, Inst { result: Some(constant), op: Op::Const(bits), span: inst.span }));
                make(constant)
            };
            match rewritten {
                Some(Rewritten::Binary(op, left, right)) => {
                    inst.op = with_constant(left, right, &|right| Op::Binary(op, left, right));
                }
                Some(Rewritten::Compare(condition, left, right)) => {
                    inst.op = with_constant(left, right, &|right| Op::Compare(condition, left, right));
                }
                Some(Rewritten::Op(op)) => inst.op = op,
                None => {}
            }
            if let Some(result) = inst.result {
                note(&mut ops, result, &inst.op);
            }
        }
        insert(insts, added);
    }
    Changes::VALUES.when(changed)
}

struct Rewriter<'a> {
    ops: &'a IndexVec<Value, Option<Op>>,
    types: &'a IndexVec<Value, Type>,
}

impl Rewriter<'_> {
    fn constant(&self, value: Value) -> Option<u64> {
        match self.ops[value] {
            Some(Op::Const(bits)) => Some(bits),
            _ => None,
        }
    }

    fn rewrite(&self, op: &Op) -> Option<Rewritten> {
        match *op {
            Op::Binary(op, a, b) => self.binary(op, a, self.constant(b)?),
            Op::Compare(condition, a, b) => self.compare(condition, a, b),
            _ => None,
        }
    }

    fn binary(&self, op: BinaryOp, a: Value, right: u64) -> Option<Rewritten> {
        let width = self.types[a].bits()?;
        let cut = |bits: u64| if width == 32 { bits & 0xffff_ffff } else { bits };
        if right.is_power_of_two() && right > 1 {
            let log = u64::from(right.trailing_zeros());
            match op {
                BinaryOp::Mul => return Some(Rewritten::Binary(BinaryOp::Shl, a, log)),
                BinaryOp::UDiv => return Some(Rewritten::Binary(BinaryOp::LShr, a, log)),
                BinaryOp::URem => return Some(Rewritten::Binary(BinaryOp::And, a, right - 1)),
                _ => {}
            }
        }
        if op == BinaryOp::Sub {
            return Some(Rewritten::Binary(BinaryOp::Add, a, cut(right.wrapping_neg())));
        }
        let Some(Op::Binary(inner, x, c)) = &self.ops[a] else { return None };
        let c = self.constant(*c)?;
        let joins =
            *inner == op && matches!(op, BinaryOp::Add | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        joins.then(|| Rewritten::Binary(op, *x, evaluate(op, width, c, right)))
    }

    fn compare(&self, condition: Condition, a: Value, b: Value) -> Option<Rewritten> {
        let is_equality = matches!(condition, Condition::Eq | Condition::Ne);
        let is_signed = condition.is_signed();
        match (&self.ops[a], self.constant(b)) {
            (Some(Op::ZeroExtend(x)), Some(limit)) if !is_signed => {
                // For a limit beyond 32 bits the result is constant, which `gvn` derives from the bounds.
                (limit >> 32 == 0).then_some(Rewritten::Compare(condition, *x, limit))
            }
            (Some(Op::ZeroExtend(x)), None) if !is_signed => match self.ops[b] {
                Some(Op::ZeroExtend(y)) => Some(Rewritten::Op(Op::Compare(condition, *x, y))),
                _ => None,
            },
            (Some(Op::Binary(BinaryOp::Xor, x, c)), Some(limit)) if is_equality => match self.constant(*c) {
                Some(c) => Some(Rewritten::Compare(condition, *x, c ^ limit)),
                None => (limit == 0).then_some(Rewritten::Op(Op::Compare(condition, *x, *c))),
            },
            (Some(Op::SwapBytes { value, bits }), Some(limit)) if is_equality => {
                let whole = greatest(u32::from(*bits));
                let same = limit <= whole && proven(self.ops, self.types, *value).most <= whole;
                same.then(|| Rewritten::Compare(condition, *value, swapped(limit, *bits)))
            }
            (Some(Op::Binary(BinaryOp::Sub, x, y)), Some(0)) if is_equality => {
                Some(Rewritten::Op(Op::Compare(condition, *x, *y)))
            }
            _ => None,
        }
    }
}
