//! Operators (language reference, 3.3, 3.4 and 11.9).

use super::convert::{READ_IS_A_STRUCT, combine};
use super::expr::Typed;
use super::fold::typed_value;
use super::function::Body;
use super::prescan::is_null;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{BinaryOp, Expr, ExprKind, LogicOp, UnaryOp};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// Maximum size of a string in bytes (language reference, 3.6).
const MAX_STR_BYTES: u32 = 65535;

impl Body<'_, '_> {
    pub(super) fn unary(&mut self, op: ast::UnaryOp, operand: &ast::Expr, span: Span) -> Typed {
        match op {
            ast::UnaryOp::Deref => return self.deref(operand, span),
            ast::UnaryOp::AddrOf => return self.address_of(operand, span),
            ast::UnaryOp::BitNot => self.checker.strict(span, "`~`"),
            ast::UnaryOp::Neg | ast::UnaryOp::Not => {}
        }
        let common = self.checker.types.common();
        let value = self.unsettled(operand, None);
        if self.checker.types.is_error(value.expr.ty) {
            return value;
        }
        match (op, self.checker.types.int(value.expr.ty)) {
            (ast::UnaryOp::Not, _) if value.expr.ty == common.bool => {
                self.make(ExprKind::Unary(UnaryOp::Not, Box::new(value.expr)), common.bool, span)
            }
            (ast::UnaryOp::Neg, Some(int)) => match self.negated_literal(&value, int, span) {
                Some(folded) => folded,
                None if int == (IntType { bits: 64, signed: false }) => {
                    self.bad_unary(op, value.expr.ty, span)
                }
                None => self.negate(value, int, span),
            },
            (ast::UnaryOp::BitNot, Some(int)) => {
                if let Some(folded) = self.complemented_literal(&value, int, span) {
                    return folded;
                }
                let ty = value.expr.ty;
                match value.constant {
                    Some(constant) => {
                        let bits = int.truncate(!(constant as u64));
                        Typed { literal: value.literal, ..self.integer(int.value(bits), ty, span) }
                    }
                    None => self.make(ExprKind::Unary(UnaryOp::BitNot, Box::new(value.expr)), ty, span),
                }
            }
            _ => self.bad_unary(op, value.expr.ty, span),
        }
    }

    fn deref(&mut self, operand: &ast::Expr, span: Span) -> Typed {
        let Some(lvalue) = self.deref_lvalue(operand, span) else { return self.error_expr(span) };
        self.check_copy(&lvalue);
        let ty = lvalue.ty;
        self.make(ExprKind::Load(lvalue), ty, span)
    }

    /// Rejects operators that 0.1.1 does not have.
    pub(super) fn strict_operator(&mut self, op: ast::BinaryOp, span: Span) {
        use ast::BinaryOp::{And, Or, Shl, Shr, Xor};
        if matches!(op, And | Or | Xor | Shl | Shr) {
            self.checker.strict(span, &format!("operator `{}`", op.text()));
        }
    }

    fn bad_unary(&mut self, op: ast::UnaryOp, ty: TypeId, span: Span) -> Typed {
        let (sign, help) = match op {
            ast::UnaryOp::Not => ("!", "`!` takes a bool; compare a number: `x == 0`"),
            ast::UnaryOp::BitNot => ("~", "`~` takes an integer"),
            _ => ("-", "`-` takes an integer that has a wider signed type, so not a u64"),
        };
        let text = format!("`{sign}` and `{}` do not go together", self.type_name(ty));
        self.report(Diagnostic::error(402, span, text).help(help));
        self.error_expr(span)
    }

    /// Negates a value. The result is signed and one size wider: i16 for u8, i32 for u16, i64 for u32.
    fn negate(&mut self, value: Typed, int: IntType, span: Span) -> Typed {
        let result = if int.signed { int } else { IntType { bits: int.bits * 2, signed: true } };
        let ty = self.int_type(result);
        match value.constant {
            Some(constant) => self.fold(-constant, result, ty, span),
            None => {
                // Not an assignment: u8 and i16 do not combine, but a minus converts from one to the other.
                let operand = self.convert_int(value, ty);
                self.make(ExprKind::Unary(UnaryOp::Neg, Box::new(operand)), ty, span)
            }
        }
    }

    /// Returns a constant with a type of its own.
    fn fold(&mut self, value: i128, int: IntType, ty: TypeId, span: Span) -> Typed {
        if int.value(value as u64) != value {
            let text = format!("constant arithmetic overflows `{}`", self.type_name(ty));
            self.report(Diagnostic::error(416, span, text).label(format!("this is {value}")));
            return self.error_expr(span);
        }
        self.integer(value, ty, span)
    }

    pub(super) fn binary(
        &mut self,
        op: ast::BinaryOp,
        left: &ast::Expr,
        right: &ast::Expr,
        span: Span,
    ) -> Typed {
        match op {
            ast::BinaryOp::AndAnd => self.logic(LogicOp::And, left, right, span),
            ast::BinaryOp::OrOr => self.logic(LogicOp::Or, left, right, span),
            ast::BinaryOp::Eq | ast::BinaryOp::Ne => {
                if is_null(right) {
                    return self.null_comparison(op, left, span);
                }
                if is_null(left) {
                    return self.null_comparison(op, right, span);
                }
                self.comparison(op, left, right, span)
            }
            ast::BinaryOp::Lt | ast::BinaryOp::Le | ast::BinaryOp::Gt | ast::BinaryOp::Ge => {
                self.comparison(op, left, right, span)
            }
            _ => {
                self.strict_operator(op, span);
                let left = self.unsettled(left, None);
                let right = self.unsettled(right, None);
                self.arithmetic(op, left, right, span)
            }
        }
    }

    fn logic(&mut self, op: LogicOp, left: &ast::Expr, right: &ast::Expr, span: Span) -> Typed {
        let bool = self.checker.types.common().bool;
        let checked = self.expr(left, None);
        let right = self.knowing(left, op == LogicOp::And, |body| body.expr(right, None));
        let left = checked;
        for side in [&left, &right] {
            if side.expr.ty != bool && !self.checker.types.is_error(side.expr.ty) {
                let sign = if op == LogicOp::And { "&&" } else { "||" };
                let text = format!("`{sign}` takes bools, not `{}`", self.type_name(side.expr.ty));
                self.report(Diagnostic::error(402, side.expr.span, text));
                return self.error_expr(span);
            }
        }
        self.make(ExprKind::Logic(op, Box::new(left.expr), Box::new(right.expr)), bool, span)
    }

    pub(super) fn arithmetic(&mut self, op: ast::BinaryOp, left: Typed, right: Typed, span: Span) -> Typed {
        let (left, right) = self.settle_unless_literals(left, right);
        if self.either_error(&left, &right) {
            return self.error_expr(span);
        }
        let types = &self.checker.types;
        if op == ast::BinaryOp::Add && is_str(types.kind(left.expr.ty)) && is_str(types.kind(right.expr.ty)) {
            return self.concat(left, right, span);
        }
        if let Some(moved) = self.pointer_arithmetic(op, &left, &right, span) {
            return moved;
        }
        let types = &self.checker.types;
        let ints = (types.int(left.expr.ty), types.int(right.expr.ty));
        let (Some(left_int), Some(right_int)) = ints else { return self.bad_pair(op, &left, &right, span) };
        let shift = matches!(op, ast::BinaryOp::Shl | ast::BinaryOp::Shr);
        let result =
            if shift { Some(left_int) } else { self.result_int(op, (&left, left_int), (&right, right_int)) };
        let hir_op = arithmetic_op(op);
        if right.constant == Some(0) && matches!(hir_op, BinaryOp::Div | BinaryOp::Rem) {
            self.report(
                Diagnostic::error(416, right.expr.span, "constant arithmetic divides by zero")
                    .help("at run time a division by zero gives 0, a remainder the left operand"),
            );
            return self.error_expr(span);
        }
        if let Some(folded) = self.folded_literals(hir_op, (&left, &right), result, span) {
            return folded;
        }
        let Some(int) = result else { return self.bad_pair(op, &left, &right, span) };
        let ty = self.int_type(int);
        let types = &self.checker.types;
        if let (Some(a), Some(b)) = (left.number(types), right.number(types))
            && let Some(value) = typed_value(hir_op, a, b, int)
        {
            return self.fold(value, int, ty, span);
        }
        let left = self.operand(left, ty, hir_op);
        let right = self.operand(right, ty, hir_op);
        self.make(ExprKind::Binary(hir_op, Box::new(left), Box::new(right)), ty, span)
    }

    /// Concatenates strings: the size is the sum of both.
    fn concat(&mut self, left: Typed, right: Typed, span: Span) -> Typed {
        let size = |ty| match self.checker.types.kind(ty) {
            TypeKind::Str(size) => *size,
            _ => 0,
        };
        let size = size(left.expr.ty) + size(right.expr.ty);
        if size > MAX_STR_BYTES {
            let text = format!("the joined string would have {size} bytes");
            self.report(Diagnostic::error(430, span, text).note("string size must be 1 to 65535"));
            return self.error_expr(span);
        }
        let ty = self.checker.types.str_type(size);
        if let (ExprKind::Bytes(first), ExprKind::Bytes(second)) = (&left.expr.kind, &right.expr.kind) {
            let bytes = [first.as_slice(), second.as_slice()].concat();
            return self.make(ExprKind::Bytes(bytes), ty, span);
        }
        self.make(ExprKind::Concat(Box::new(left.expr), Box::new(right.expr)), ty, span)
    }

    /// Converts an operand to the type of the arithmetic, into which it always fits or wraps by the
    /// language's rule. Reports a literal that does not fit where wrapping changes the result.
    fn operand(&mut self, value: Typed, ty: TypeId, op: BinaryOp) -> Expr {
        let int = self.checker.types.scalar(ty).expect("arithmetic is done in integers");
        let span = value.expr.span;
        let Some((bits, same)) = value.bits_in(int, &self.checker.types) else {
            return if value.expr.ty == ty {
                value.expr
            } else {
                Expr { kind: ExprKind::Convert(Box::new(value.expr)), ty, span }
            };
        };
        let wraps_alike = !op.is_comparison() && !matches!(op, BinaryOp::Div | BinaryOp::Rem);
        if !same && value.literal && !wraps_alike {
            self.warn_cut(&value, ty, int.value(bits));
        }
        Expr { kind: ExprKind::Const(bits), ty, span }
    }

    /// Returns the type of arithmetic on two operands. A literal that the common type does not hold widens
    /// it, unless the operator is bitwise.
    fn result_int(
        &self,
        op: ast::BinaryOp,
        (left, a): (&Typed, IntType),
        (right, b): (&Typed, IntType),
    ) -> Option<IntType> {
        use ast::BinaryOp::{And, Or, Xor};
        const I64: IntType = IntType { bits: 64, signed: true };
        const U64: IntType = IntType { bits: 64, signed: false };
        let long_literal = |value: &Typed, int: IntType, other: IntType| {
            value.literal && int == U64 && other.signed && other.bits < 64
        };
        let types = &self.checker.types;
        // A literal that is not negative combines with everything, whatever its parts were: `-1 * -1`.
        let plain = |value: &Typed, int: IntType| {
            let number = value.number(types).filter(|number| value.literal && *number >= 0);
            number.and_then(super::fold::literal_type).unwrap_or(int)
        };
        let is_long = long_literal(left, a, b) || long_literal(right, b, a);
        let (a, b) = match combine(a, b) {
            None if is_long => return Some(I64),
            None => (plain(left, a), plain(right, b)),
            Some(_) => (a, b),
        };
        let held =
            |value: &Typed, int| !value.literal || value.bits_in(int, types).is_none_or(|(_, same)| same);
        match combine(a, b) {
            Some(int) if !int.signed || int.bits == 64 || matches!(op, And | Or | Xor) => Some(int),
            Some(int) if held(left, int) && held(right, int) => Some(int),
            Some(_) => Some(I64),
            None => None,
        }
    }

    fn comparison(&mut self, op: ast::BinaryOp, left: &ast::Expr, right: &ast::Expr, span: Span) -> Typed {
        let compared = self.compared(op, left, right, span);
        if !self.checker.types.is_error(compared.expr.ty) {
            self.warn_same_sides(op, left, right, span);
        }
        compared
    }

    fn compared(&mut self, op: ast::BinaryOp, left: &ast::Expr, right: &ast::Expr, span: Span) -> Typed {
        let (left, right) = (self.unsettled(left, None), self.unsettled(right, None));
        let (left, right) = self.settle_unless_literals(left, right);
        if let Some(known) = self.compared_literals(comparison_op(op), &left, &right, span) {
            return known;
        }
        if self.either_error(&left, &right) {
            return self.error_expr(span);
        }
        if let Some(compared) = self.pointer_comparison(comparison_op(op), &left, &right, span) {
            return compared;
        }
        let Some(ty) = self.common_type(op, &left, &right) else {
            return self.bad_pair(op, &left, &right, span);
        };
        let bool = self.checker.types.common().bool;
        let op = comparison_op(op);
        let (left, right) = match ty {
            Some(ty) => (self.operand(left, ty, op), self.operand(right, ty, op)),
            None => (left.expr, right.expr),
        };
        self.make(ExprKind::Binary(op, Box::new(left), Box::new(right)), bool, span)
    }

    /// Returns the type in which two values are compared; `Some(None)` if they are compared without
    /// conversion.
    fn common_type(&mut self, op: ast::BinaryOp, left: &Typed, right: &Typed) -> Option<Option<TypeId>> {
        let types = &self.checker.types;
        let equality = matches!(op, ast::BinaryOp::Eq | ast::BinaryOp::Ne);
        let (a, b) = (left.expr.ty, right.expr.ty);
        match (types.kind(a), types.kind(b)) {
            (TypeKind::Str(_), TypeKind::Str(_)) if equality => Some(None),
            (TypeKind::Bool, TypeKind::Bool) | (TypeKind::Char, TypeKind::Char) => Some(None),
            (TypeKind::Enum(one), TypeKind::Enum(other)) => (one == other).then_some(None),
            (TypeKind::Int(_) | TypeKind::Enum(_), TypeKind::Int(_) | TypeKind::Enum(_)) => {
                let (int_a, int_b) = (types.scalar(a)?, types.scalar(b)?);
                let enumerator = types.int(a).is_none() || types.int(b).is_none();
                let int = match self.result_int(op, (left, int_a), (right, int_b)) {
                    // An enum is compared with any integer, in the widest type if necessary.
                    None if enumerator => IntType { bits: 64, signed: true },
                    other => other?,
                };
                Some(Some(self.int_type(int)))
            }
            _ => None,
        }
    }

    fn either_error(&self, left: &Typed, right: &Typed) -> bool {
        self.checker.types.is_error(left.expr.ty) || self.checker.types.is_error(right.expr.ty)
    }

    fn bad_pair(&mut self, op: ast::BinaryOp, left: &Typed, right: &Typed, span: Span) -> Typed {
        let (a, b) = (left.expr.ty, right.expr.ty);
        let program = self.checker.types.common().program;
        let diagnostic = if a == program || b == program {
            Diagnostic::error(422, span, "a program handle can only be attached, detached, tested for null")
        } else {
            let text = format!(
                "`{}` and `{}` do not go together in `{}`",
                self.type_name(a),
                self.type_name(b),
                op.text()
            );
            Diagnostic::error(402, span, text)
                .also(left.expr.span, format!("`{}`", self.type_name(a)))
                .also(right.expr.span, format!("`{}`", self.type_name(b)))
        };
        let char = self.checker.types.common().char;
        let help = if [a, b].contains(&self.checker.known.perf_read) {
            Some(READ_IS_A_STRUCT)
        } else if [a, b].contains(&char) && self.is_number(a) && self.is_number(b) {
            Some("a character is no number: write `as u8` behind it")
        } else {
            None
        };
        let diagnostic = diagnostic.maybe_help(help.map(Into::into));
        self.report(diagnostic);
        self.error_expr(span)
    }
}

fn is_str(kind: &TypeKind) -> bool {
    matches!(kind, TypeKind::Str(_))
}

pub(super) fn arithmetic_op(op: ast::BinaryOp) -> BinaryOp {
    match op {
        ast::BinaryOp::Sub => BinaryOp::Sub,
        ast::BinaryOp::Mul => BinaryOp::Mul,
        ast::BinaryOp::Div => BinaryOp::Div,
        ast::BinaryOp::Rem => BinaryOp::Rem,
        ast::BinaryOp::And => BinaryOp::And,
        ast::BinaryOp::Or => BinaryOp::Or,
        ast::BinaryOp::Xor => BinaryOp::Xor,
        ast::BinaryOp::Shl => BinaryOp::Shl,
        ast::BinaryOp::Shr => BinaryOp::Shr,
        _ => BinaryOp::Add,
    }
}

pub(super) fn comparison_op(op: ast::BinaryOp) -> BinaryOp {
    match op {
        ast::BinaryOp::Ne => BinaryOp::Ne,
        ast::BinaryOp::Lt => BinaryOp::Lt,
        ast::BinaryOp::Le => BinaryOp::Le,
        ast::BinaryOp::Gt => BinaryOp::Gt,
        ast::BinaryOp::Ge => BinaryOp::Ge,
        _ => BinaryOp::Eq,
    }
}
