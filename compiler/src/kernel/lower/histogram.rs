//! Lowers the slot functions of histograms.

use super::super::mir::{BinaryOp, Condition, Op, Type, Value};
use super::{Lower, Lowerer};
use crate::hir::Expr;

/// Masks for counting bits: every other bit, pair and group of four, and the lowest bit of each byte.
const BITS: u64 = 0x5555_5555_5555_5555;
const PAIRS: u64 = 0x3333_3333_3333_3333;
const FOURS: u64 = 0x0f0f_0f0f_0f0f_0f0f;
const BYTES: u64 = 0x0101_0101_0101_0101;

impl Lowerer<'_> {
    /// `log2_slot(value)`: the number of significant bits. Copies the highest bit to all lower positions and
    /// counts the bits (H. S. Warren, Hacker's Delight, 5-1 and 5-3). Without branches the verifier follows
    /// one path and not sixty-five.
    pub(super) fn log2_slot(&mut self, value: &Expr) -> Lower<Value> {
        let mut value = self.scalar(value)?;
        for distance in [1, 2, 4, 8, 16, 32] {
            let lower = self.builder.binary_const(BinaryOp::LShr, value, distance);
            value = self.builder.binary(BinaryOp::Or, value, lower);
        }
        let upper = self.masked(value, 1, BITS);
        let pairs = self.builder.binary(BinaryOp::Sub, value, upper);
        let (low, high) = (self.masked(pairs, 0, PAIRS), self.masked(pairs, 2, PAIRS));
        let fours = self.builder.binary(BinaryOp::Add, low, high);
        let upper = self.builder.binary_const(BinaryOp::LShr, fours, 4);
        let both = self.builder.binary(BinaryOp::Add, fours, upper);
        let bytes = self.masked(both, 0, FOURS);
        let sum = self.builder.binary_const(BinaryOp::Mul, bytes, BYTES);
        let bits = self.builder.binary_const(BinaryOp::LShr, sum, 56);
        Ok(self.builder.value(Type::I32, Op::Truncate(bits)))
    }

    fn masked(&mut self, value: Value, distance: u64, mask: u64) -> Value {
        let shifted = match distance {
            0 => value,
            _ => self.builder.binary_const(BinaryOp::LShr, value, distance),
        };
        self.builder.binary_const(BinaryOp::And, shifted, mask)
    }

    /// `linear_slot(value, low, step, slots)`: 0 below `low`, at most `slots - 1`. With a step of 0 all
    /// values from `low` on fall into one slot, because division by 0 returns 0.
    pub(super) fn linear_slot(&mut self, args: &[Expr; 4]) -> Lower<Value> {
        let mut numbers = Vec::with_capacity(args.len());
        for arg in args {
            numbers.push(self.scalar(arg)?);
        }
        let [value, low, step, slots] = numbers[..] else { unreachable!("as many as there are arguments") };
        let last = self.builder.binary_const(BinaryOp::Sub, slots, 1);
        let from_low = self.builder.binary(BinaryOp::Sub, value, low);
        let steps = self.builder.binary(BinaryOp::UDiv, from_low, step);
        let is_above = self.builder.compare(Condition::Ge, value, low);
        let is_before_last = self.builder.compare(Condition::Lt, steps, last);
        let next = self.builder.binary_const(BinaryOp::Add, steps, 1);
        let slot = self.choose(is_before_last, next, last);
        let zero = self.builder.constant(Type::I64, 0);
        let slot = self.choose(is_above, slot, zero);
        Ok(self.builder.value(Type::I32, Op::Truncate(slot)))
    }
}
