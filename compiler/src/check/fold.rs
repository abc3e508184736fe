//! Constant folding. Expressions of literals are computed as whole numbers without a width, and must fit
//! their destination (language reference, 3.3 and 3.4). Constants with a type of their own, such as casts,
//! are computed in their type.
//!
//! `~` of a literal that is not negative has no single whole number as value: `~7` is all ones but the last
//! three bits, as wide as its destination. Such a *mask* is a constant below zero whose expression has an
//! unsigned type. `& | ^` and `<<` keep masks; other operators use the value of the mask in its own type.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::expr::Typed;
use super::function::Body;
use crate::diag::Diagnostic;
use crate::hir::{BinaryOp, Expr, ExprKind, LogicOp, UnaryOp};
use crate::source::Span;
use crate::types::{IntType, TypeKind, Types};

const U32: IntType = IntType { bits: 32, signed: false };
const U64: IntType = IntType { bits: 64, signed: false };
const I64: IntType = IntType { bits: 64, signed: true };

/// Returns the type of a literal with this value; `None` if no type holds it.
pub(super) fn literal_type(value: i128) -> Option<IntType> {
    [U32, U64, I64].into_iter().find(|int| holds(*int, value))
}

/// Whether a type can represent a value.
pub(super) fn holds(int: IntType, value: i128) -> bool {
    int.value(value as u64) == value
}

impl Typed {
    /// Whether this is a mask: the complement of a literal.
    pub(super) fn is_mask(&self, types: &Types) -> bool {
        let unsigned = types.scalar(self.expr.ty).is_some_and(|int| !int.signed);
        self.literal && unsigned && self.constant.is_some_and(|value| value < 0)
    }

    /// Returns the value if it is known; for a mask, its value in its own type.
    pub(super) fn number(&self, types: &Types) -> Option<i128> {
        match self.constant {
            Some(value) if self.is_mask(types) => Some(types.scalar(self.expr.ty)?.value(value as u64)),
            other => other,
        }
    }

    /// Returns the bits of this constant in a type, and whether they have the same value there.
    pub(super) fn bits_in(&self, int: IntType, types: &Types) -> Option<(u64, bool)> {
        let value = self.constant?;
        let same =
            holds(int, value) || self.is_mask(types) && holds(IntType { signed: false, ..int }, !value);
        Some((int.truncate(value as u64), same))
    }
}

impl Body<'_, '_> {
    /// Reports a constant that no type holds. During the evaluation of an expression its parts may be larger.
    pub(super) fn settle(&mut self, found: Typed) -> Typed {
        match found.constant {
            Some(value)
                if found.literal && literal_type(value).is_none() && !found.is_mask(&self.checker.types) =>
            {
                self.report(
                    Diagnostic::error(
                        416,
                        found.expr.span,
                        "constant arithmetic overflows every integer type",
                    )
                    .label(format!("this is {value}")),
                );
                self.error_expr(found.expr.span)
            }
            _ => found,
        }
    }

    /// Settles both operands of an operator, unless both are literals: those are computed exactly, whatever
    /// their size.
    pub(super) fn settle_unless_literals(&mut self, left: Typed, right: Typed) -> (Typed, Typed) {
        if left.literal && right.literal { (left, right) } else { (self.settle(left), self.settle(right)) }
    }

    /// Returns a constant computed from literals. Its type is `preferred` if that holds it, else that of a
    /// literal of this value.
    fn exact(&mut self, value: i128, preferred: Option<IntType>, span: Span) -> Typed {
        let int = preferred.filter(|int| holds(*int, value)).or_else(|| literal_type(value));
        // Too large at this point; see `settle`.
        let int = int.unwrap_or(if value < 0 { I64 } else { U64 });
        let ty = self.int_type(int);
        self.literal(value, ty, span)
    }

    /// Returns the complement of a literal that is not negative.
    fn mask(&mut self, value: i128, span: Span) -> Typed {
        let ty = self.int_type(if holds(U32, !value) { U32 } else { U64 });
        self.literal(value, ty, span)
    }

    /// Reports a constant that cannot be computed even without a width.
    fn too_large(&mut self, span: Span) -> Typed {
        self.report(Diagnostic::error(416, span, "constant arithmetic overflows every integer type"));
        self.error_expr(span)
    }

    /// Folds `-` before a literal; `None` if the operand is not a literal.
    pub(super) fn negated_literal(&mut self, value: &Typed, int: IntType, span: Span) -> Option<Typed> {
        let number = value.number(&self.checker.types).filter(|_| value.literal)?;
        let wide = IntType { bits: if int.signed { int.bits } else { (int.bits * 2).min(64) }, signed: true };
        Some(match number.checked_neg() {
            Some(negated) => self.exact(negated, Some(wide), span),
            None => self.too_large(span),
        })
    }

    /// Folds `~` before a literal; `None` if the operand is not a literal, or is narrower than a literal's
    /// type.
    pub(super) fn complemented_literal(&mut self, value: &Typed, int: IntType, span: Span) -> Option<Typed> {
        let constant = value.constant.filter(|_| value.literal)?;
        if int.signed || value.is_mask(&self.checker.types) {
            return Some(self.exact(!constant, Some(int), span));
        }
        if int.bits < 32 {
            return None;
        }
        if holds(U64, constant) { Some(self.mask(!constant, span)) } else { Some(self.too_large(span)) }
    }

    /// Folds an arithmetic operator on two literals; `None` if an operand is not a literal. A divisor of zero
    /// is reported elsewhere.
    pub(super) fn folded_literals(
        &mut self,
        op: BinaryOp,
        (left, right): (&Typed, &Typed),
        preferred: Option<IntType>,
        span: Span,
    ) -> Option<Typed> {
        if !left.literal || !right.literal {
            return None;
        }
        let types = &self.checker.types;
        let masks = left.is_mask(types) || right.is_mask(types);
        let (a, b) = match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => (left.constant?, right.constant?),
            BinaryOp::Shl => (left.constant?, right.number(types)?),
            _ => (left.number(types)?, right.number(types)?),
        };
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) && b < 0 {
            self.report(
                Diagnostic::error(416, span, "constant arithmetic shifts by a negative number")
                    .label(format!("by {b}")),
            );
            return Some(self.error_expr(span));
        }
        let Some(value) = exact_value(op, a, b) else { return Some(self.too_large(span)) };
        if !masks || value >= 0 {
            return Some(self.exact(value, preferred, span));
        }
        Some(if holds(U64, !value) { self.mask(value, span) } else { self.too_large(span) })
    }

    /// Folds a comparison of two literals; `None` if an operand is not a literal.
    pub(super) fn compared_literals(
        &self,
        op: BinaryOp,
        left: &Typed,
        right: &Typed,
        span: Span,
    ) -> Option<Typed> {
        let types = &self.checker.types;
        if !left.literal || !right.literal || types.int(left.expr.ty).is_none() {
            return None;
        }
        types.int(right.expr.ty)?;
        let (a, b) = (left.number(types)?, right.number(types)?);
        let known = ExprKind::Const(u64::from(holds_for(op, a.cmp(&b))));
        Some(self.make(known, types.common().bool, span))
    }
}

/// Returns the result in whole numbers; `None` if it is too large to compute with.
fn exact_value(op: BinaryOp, a: i128, b: i128) -> Option<i128> {
    match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div => a.checked_div(b),
        BinaryOp::Rem => a.checked_rem(b),
        BinaryOp::And => Some(a & b),
        BinaryOp::Or => Some(a | b),
        BinaryOp::Xor => Some(a ^ b),
        BinaryOp::Shl if a == 0 => Some(0),
        BinaryOp::Shl => {
            let by = u32::try_from(b).ok()?;
            a.checked_shl(by).filter(|shifted| shifted >> by == a)
        }
        BinaryOp::Shr => Some(a >> b.min(127)),
        _ => None,
    }
}

/// Returns the result of an operation on typed constants, not yet truncated to the type. `None` where it is
/// left to run time.
pub(super) fn typed_value(op: BinaryOp, a: i128, b: i128, int: IntType) -> Option<i128> {
    let (a, b) = match op {
        BinaryOp::Shl | BinaryOp::Shr => (a, b.rem_euclid(i128::from(int.bits))),
        // Operands are converted to the type of the result: -1 with a u64 is computed in i64.
        _ => (int.value(a as u64), int.value(b as u64)),
    };
    match op {
        BinaryOp::Shl => Some(int.value((a as u64) << b)),
        _ => exact_value(op, a, b),
    }
}

/// Whether a comparison holds for operands in this order.
pub(super) fn holds_for(op: BinaryOp, order: Ordering) -> bool {
    match op {
        BinaryOp::Ne => order.is_ne(),
        BinaryOp::Lt => order.is_lt(),
        BinaryOp::Le => order.is_le(),
        BinaryOp::Gt => order.is_gt(),
        BinaryOp::Ge => order.is_ge(),
        _ => order.is_eq(),
    }
}

/// Returns the bits of a scalar initial value: of literals, casts and comparisons of constants. `None` if it
/// is only known at run time.
pub(super) fn constant_scalar(types: &Types, expr: &Expr) -> Option<u64> {
    let truth = |expr: &Expr| constant_scalar(types, expr).map(|bits| bits != 0);
    Some(match &expr.kind {
        ExprKind::Const(bits) => *bits,
        ExprKind::Unary(UnaryOp::Not, operand) => u64::from(!truth(operand)?),
        ExprKind::Truth(operand) => u64::from(truth(operand)?),
        ExprKind::IsNull(operand) => u64::from(constant_scalar(types, operand)? == 0),
        ExprKind::Logic(LogicOp::And, left, right) => u64::from(truth(left)? && truth(right)?),
        ExprKind::Logic(LogicOp::Or, left, right) => u64::from(truth(left)? || truth(right)?),
        ExprKind::Binary(op, left, right) if op.is_comparison() => {
            let order = match (constant_text(types, left), constant_text(types, right)) {
                (Some(left), Some(right)) => left.cmp(&right),
                _ => {
                    let int = types.scalar(left.ty)?;
                    let value = |operand| Some(int.value(constant_scalar(types, operand)?));
                    value(left)?.cmp(&value(right)?)
                }
            };
            u64::from(holds_for(*op, order))
        }
        ExprKind::Convert(operand) => {
            let (from, to) = (types.scalar(operand.ty)?, types.scalar(expr.ty)?);
            to.truncate(from.value(constant_scalar(types, operand)?) as u64)
        }
        _ => return None,
    })
}

/// Returns the text of a constant string, without the bytes that cannot fit its type.
pub(super) fn constant_text<'e>(types: &Types, expr: &'e Expr) -> Option<Cow<'e, [u8]>> {
    let TypeKind::Str(size) = *types.kind(expr.ty) else { return None };
    let mut text = match &expr.kind {
        ExprKind::Bytes(bytes) => Cow::Borrowed(bytes.as_slice()),
        ExprKind::Concat(left, right) => {
            Cow::Owned([constant_text(types, left)?, constant_text(types, right)?].concat())
        }
        ExprKind::Convert(operand) => constant_text(types, operand)?,
        _ => return None,
    };
    if text.len() >= size as usize {
        text.to_mut().truncate(size as usize - 1);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_has_the_first_type_that_holds_it() {
        let name = |value| literal_type(value).map_or("none".to_owned(), |int| int.to_string());
        for (value, wanted) in [
            (0, "u32"),
            (0xffff_ffff, "u32"),
            (0x1_0000_0000, "u64"),
            (i128::from(u64::MAX), "u64"),
            (i128::from(u64::MAX) + 1, "none"),
            (-1, "i64"),
            (i128::from(i64::MIN), "i64"),
            (i128::from(i64::MIN) - 1, "none"),
        ] {
            assert_eq!(name(value), wanted, "{value}");
        }
    }

    #[test]
    fn whole_numbers_have_no_width() {
        let max = i128::from(u64::MAX);
        assert_eq!(exact_value(BinaryOp::Mul, max, 1 << 62), Some(max << 62));
        assert_eq!(exact_value(BinaryOp::Mul, max, max), None);
        assert_eq!(exact_value(BinaryOp::Shl, 1, 40), Some(1 << 40));
        assert_eq!(exact_value(BinaryOp::Shl, -1, 40), Some(-1 << 40));
        assert_eq!(exact_value(BinaryOp::Shl, 1, 126), Some(1 << 126));
        assert_eq!(exact_value(BinaryOp::Shl, 1, 127), None);
        assert_eq!(exact_value(BinaryOp::Shl, -1, 127), Some(i128::MIN));
        assert_eq!(exact_value(BinaryOp::Shl, -3, 127), None);
        assert_eq!(exact_value(BinaryOp::Shl, 1, 1 << 40), None);
        assert_eq!(exact_value(BinaryOp::Shl, 0, 1 << 40), Some(0));
        assert_eq!(exact_value(BinaryOp::Shr, -5, 1 << 40), Some(-1));
        assert_eq!(exact_value(BinaryOp::Shr, max, 64), Some(0));
        assert_eq!(exact_value(BinaryOp::Div, -7, 2), Some(-3));
        assert_eq!(exact_value(BinaryOp::Rem, -7, 2), Some(-1));
        assert_eq!(exact_value(BinaryOp::Div, 7, 0), None);
    }

    #[test]
    fn constants_with_a_type_are_worked_out_in_it() {
        let u8 = IntType { bits: 8, signed: false };
        assert_eq!(typed_value(BinaryOp::Shl, 1, 9, u8), Some(2));
        assert_eq!(typed_value(BinaryOp::Sub, 1, 2, u8), Some(-1));
        assert_eq!(typed_value(BinaryOp::Add, -1, 1, u8), Some(256));
        assert_eq!(typed_value(BinaryOp::Shr, 255, 12, u8), Some(15));
    }
}
