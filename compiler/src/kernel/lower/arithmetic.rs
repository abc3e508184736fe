//! Lowers arithmetic of the language's integer types to 32- and 64-bit operations.
//!
//! A value of a type below 32 bits is kept extended by the type's sign. BPF v3 divides unsigned numbers only:
//! signed division works on magnitudes, without branches.

use super::super::mir::builder::Builder;
use super::super::mir::{BinaryOp, Condition, Op, Type, Value};
use super::int_type;
use crate::hir;
use crate::types::IntType;

/// The bits of a constant as a value of its type.
pub(super) fn constant(builder: &mut Builder, int: IntType, bits: u64) -> Value {
    builder.constant(int_type(int), int.value(bits) as u64)
}

/// Wraps the result of 32-bit arithmetic to the range of the type.
fn wrap(builder: &mut Builder, int: IntType, value: Value) -> Value {
    if int.bits >= 32 {
        return value;
    }
    builder.value(Type::I32, Op::Narrow { value, bits: int.bits, signed: int.signed })
}

/// The greater of two numbers, without a branch.
fn greater(builder: &mut Builder, int: IntType, left: Value, right: Value) -> Value {
    let is_left = builder.compare(condition(hir::BinaryOp::Gt, int), left, right);
    let is_left = convert(builder, IntType { bits: 32, signed: false }, int, is_left);
    let zero = constant(builder, int, 0);
    let mask = builder.binary(BinaryOp::Sub, zero, is_left);
    let differing = builder.binary(BinaryOp::Xor, left, right);
    let changed = builder.binary(BinaryOp::And, differing, mask);
    builder.binary(BinaryOp::Xor, right, changed)
}

/// `left op right`, where both operands and the result have type `int`.
pub(super) fn binary(
    builder: &mut Builder,
    op: hir::BinaryOp,
    int: IntType,
    left: Value,
    right: Value,
) -> Value {
    let signed = int.signed;
    match op {
        hir::BinaryOp::Add => wrapping(builder, BinaryOp::Add, int, left, right),
        hir::BinaryOp::Sub => wrapping(builder, BinaryOp::Sub, int, left, right),
        hir::BinaryOp::Mul => wrapping(builder, BinaryOp::Mul, int, left, right),
        hir::BinaryOp::Div if signed => signed_divide(builder, int, left, right),
        hir::BinaryOp::Rem if signed => signed_remainder(builder, int, left, right),
        hir::BinaryOp::Div => builder.binary(BinaryOp::UDiv, left, right),
        hir::BinaryOp::Rem => builder.binary(BinaryOp::URem, left, right),
        hir::BinaryOp::And => builder.binary(BinaryOp::And, left, right),
        hir::BinaryOp::Or => builder.binary(BinaryOp::Or, left, right),
        hir::BinaryOp::Xor => builder.binary(BinaryOp::Xor, left, right),
        hir::BinaryOp::Shl => {
            let amount = shift_amount(builder, int, right);
            wrapping(builder, BinaryOp::Shl, int, left, amount)
        }
        hir::BinaryOp::Shr => {
            let amount = shift_amount(builder, int, right);
            builder.binary(if signed { BinaryOp::AShr } else { BinaryOp::LShr }, left, amount)
        }
        hir::BinaryOp::Eq
        | hir::BinaryOp::Ne
        | hir::BinaryOp::Lt
        | hir::BinaryOp::Le
        | hir::BinaryOp::Gt
        | hir::BinaryOp::Ge => builder.compare(condition(op, int), left, right),
        hir::BinaryOp::Max => greater(builder, int, left, right),
    }
}

fn wrapping(builder: &mut Builder, op: BinaryOp, int: IntType, left: Value, right: Value) -> Value {
    let result = builder.binary(op, left, right);
    wrap(builder, int, result)
}

/// The shift amount modulo the width; 32- and 64-bit shifts take the modulo themselves.
fn shift_amount(builder: &mut Builder, int: IntType, amount: Value) -> Value {
    if int.bits >= 32 { amount } else { builder.binary_const(BinaryOp::And, amount, u64::from(int.bits) - 1) }
}

/// The condition of a comparison of integers of a type; equality if the operator is not a comparison.
fn condition(op: hir::BinaryOp, int: IntType) -> Condition {
    match (op, int.signed) {
        (hir::BinaryOp::Ne, _) => Condition::Ne,
        (hir::BinaryOp::Lt, false) => Condition::Lt,
        (hir::BinaryOp::Le, false) => Condition::Le,
        (hir::BinaryOp::Gt, false) => Condition::Gt,
        (hir::BinaryOp::Ge, false) => Condition::Ge,
        (hir::BinaryOp::Lt, true) => Condition::SLt,
        (hir::BinaryOp::Le, true) => Condition::SLe,
        (hir::BinaryOp::Gt, true) => Condition::SGt,
        (hir::BinaryOp::Ge, true) => Condition::SGe,
        _ => Condition::Eq,
    }
}

/// The sign mask of a value: all ones if it is negative, else 0.
fn sign(builder: &mut Builder, value: Value) -> Value {
    let top = builder.ty(value).bits().unwrap_or(64) - 1;
    builder.binary_const(BinaryOp::AShr, value, u64::from(top))
}

/// Negates the value if `sign` is all ones, keeps it if `sign` is 0.
fn negate_if(builder: &mut Builder, value: Value, sign: Value) -> Value {
    let flipped = builder.binary(BinaryOp::Xor, value, sign);
    builder.binary(BinaryOp::Sub, flipped, sign)
}

/// Whether the signed division instruction is used for this divisor: a constant other than 0 and -1. Kernels
/// before 6.12 do not catch the overflow of the smallest number by -1, and a constant divisor needs no check
/// for zero. Source: commit 7dd34d7b7dcf, "bpf: Fix a sdiv overflow issue".
fn divides_signed(builder: &Builder, int: IntType, right: Value) -> bool {
    let constant = builder.known(right).map(|bits| int.value(bits));
    builder.divides_signed() && constant.is_some_and(|divisor| !matches!(divisor, 0 | -1))
}

/// Signed division, truncating. Division by zero returns 0, as the division of magnitudes does; the smallest
/// number by -1 wraps to itself.
fn signed_divide(builder: &mut Builder, int: IntType, left: Value, right: Value) -> Value {
    if divides_signed(builder, int, right) {
        return builder.binary(BinaryOp::SDiv, left, right);
    }
    let (left_sign, right_sign) = (sign(builder, left), sign(builder, right));
    let dividend = negate_if(builder, left, left_sign);
    let divisor = negate_if(builder, right, right_sign);
    let quotient = builder.binary(BinaryOp::UDiv, dividend, divisor);
    let negative = builder.binary(BinaryOp::Xor, left_sign, right_sign);
    let signed = negate_if(builder, quotient, negative);
    wrap(builder, int, signed)
}

/// Signed remainder, with the sign of the left operand; by zero it returns the left operand.
fn signed_remainder(builder: &mut Builder, int: IntType, left: Value, right: Value) -> Value {
    if divides_signed(builder, int, right) {
        return builder.binary(BinaryOp::SRem, left, right);
    }
    let (left_sign, right_sign) = (sign(builder, left), sign(builder, right));
    let dividend = negate_if(builder, left, left_sign);
    let divisor = negate_if(builder, right, right_sign);
    let remainder = builder.binary(BinaryOp::URem, dividend, divisor);
    negate_if(builder, remainder, left_sign)
}

/// `-value` or `~value` of an integer, `!value` of a bool.
pub(super) fn unary(builder: &mut Builder, op: hir::UnaryOp, int: IntType, value: Value) -> Value {
    match op {
        hir::UnaryOp::Neg => {
            let zero = builder.constant(int_type(int), 0);
            wrapping(builder, BinaryOp::Sub, int, zero, value)
        }
        hir::UnaryOp::BitNot => {
            let flipped = builder.binary_const(BinaryOp::Xor, value, u64::MAX);
            wrap(builder, int, flipped)
        }
        hir::UnaryOp::Not => builder.binary_const(BinaryOp::Xor, value, 1),
    }
}

/// Reverses the byte order.
pub(super) fn swap_bytes(builder: &mut Builder, int: IntType, value: Value) -> Value {
    if int.bits == 8 {
        return value;
    }
    let swapped = builder.value(int_type(int), Op::SwapBytes { value, bits: int.bits });
    wrap(builder, int, swapped)
}

/// Converts a value from type `from` to type `to`: truncated, or extended by the sign of `from`.
pub(super) fn convert(builder: &mut Builder, from: IntType, to: IntType, value: Value) -> Value {
    match (from.bits, to.bits) {
        (64, 64) => value,
        (_, 64) if from.signed => builder.value(Type::I64, Op::SignExtend(value)),
        (_, 64) => builder.value(Type::I64, Op::ZeroExtend(value)),
        (64, _) => {
            let low = builder.value(Type::I32, Op::Truncate(value));
            wrap(builder, to, low)
        }
        _ if contains(to, from) => value,
        _ => wrap(builder, to, value),
    }
}

/// Whether every number of type `part` is representable in `whole`.
fn contains(whole: IntType, part: IntType) -> bool {
    match (whole.signed, part.signed) {
        (false, true) => false,
        (true, false) => part.bits < whole.bits,
        _ => part.bits <= whole.bits,
    }
}
