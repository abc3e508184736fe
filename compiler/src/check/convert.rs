//! Conversions: which types combine, and which values are accepted where (language reference, 3.3 and 3.4).

use super::expr::Typed;
use super::function::Body;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Lvalue, LvalueKind};
use crate::types::{IntType, TypeId, TypeKind};

/// Why a context cannot come from elsewhere; a note of several errors.
pub(super) const CONTEXT: &str =
    "a context is what the kernel gave the program: never null, and made of nothing else";

/// Returns the type of arithmetic on two integers; `None` where the language rejects the pair.
pub(super) fn combine(a: IntType, b: IntType) -> Option<IntType> {
    if a.signed == b.signed {
        return Some(if a.bits >= b.bits { a } else { b });
    }
    let (unsigned, signed) = if a.signed { (b, a) } else { (a, b) };
    match (unsigned.bits, signed.bits) {
        (8, 8) | (16, 16) | (64, 64) => Some(signed),
        (32, 8 | 16 | 32) => Some(IntType { bits: 32, signed: true }),
        (32, 64) => Some(signed),
        _ => None,
    }
}

/// The help where a number is wanted and the result of `read` stands.
pub(super) const READ_IS_A_STRUCT: &str = "`read` gives a struct: write `read(..).scaled` or `read(..).raw`";

impl Body<'_, '_> {
    pub(super) fn int_type(&mut self, int: IntType) -> TypeId {
        self.checker.types.intern(TypeKind::Int(int))
    }

    /// Converts a value to type `to`, or reports that this is impossible.
    pub(super) fn coerce(&mut self, from: Typed, to: TypeId) -> Expr {
        let types = &self.checker.types;
        let error = types.is_error(from.expr.ty) || types.is_error(to);
        let is_pointer = matches!(types.kind(to), TypeKind::Ptr(_));
        if error || (from.expr.ty == to && (from.constant.is_none() || is_pointer)) {
            return from.expr;
        }
        if let ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) = from.expr.kind {
            self.find_null_type(local, to);
        }
        let types = &self.checker.types;
        let span = from.expr.span;
        match (types.kind(from.expr.ty).clone(), types.kind(to).clone()) {
            (TypeKind::Int(source), TypeKind::Int(target)) => self.coerce_int(from, source, to, target),
            (TypeKind::Int(_), TypeKind::Enum(_)) | (TypeKind::Enum(_), TypeKind::Int(_)) => {
                self.convert_int(from, to)
            }
            (TypeKind::Enum(one), TypeKind::Enum(other)) if one == other => self.convert_int(from, to),
            (TypeKind::Str(_), TypeKind::Str(size)) => self.coerce_str(from, to, size),
            (TypeKind::Array(element, _), TypeKind::Str(_)) if self.is_byte(element) => {
                Expr { kind: ExprKind::Convert(Box::new(from.expr)), ty: to, span }
            }
            (TypeKind::Null, TypeKind::Ptr(_)) if types.is_context_pointer(to) => self.mismatch(&from, to),
            (TypeKind::Null, TypeKind::Ptr(_) | TypeKind::Fn(..) | TypeKind::Program) => {
                Expr { kind: ExprKind::Const(0), ty: to, span }
            }
            // In tc programs 0.1.1 types packet pointers as numbers (4.4).
            (TypeKind::Ptr(_), TypeKind::Int(IntType { bits: 64, signed: false }))
                if self.packet_numbers() =>
            {
                self.address(from.expr)
            }
            (TypeKind::Void, _) => {
                self.report(Diagnostic::error(413, span, "this gives no value"));
                Expr { ty: self.checker.types.common().error, ..from.expr }
            }
            (TypeKind::Struct(_), TypeKind::Struct(_)) => {
                self.convert_kernels(&from, to).unwrap_or_else(|| self.mismatch(&from, to))
            }
            _ => self.mismatch(&from, to),
        }
    }

    pub(super) fn is_byte(&self, ty: TypeId) -> bool {
        let common = self.checker.types.common();
        ty == common.u8 || ty == common.char
    }

    /// Whether a cast converts to this type and from it.
    pub(super) fn is_number(&self, ty: TypeId) -> bool {
        self.checker.types.int(ty).is_some() || ty == self.checker.types.common().char
    }

    /// Reports a value of another type than `to`.
    pub(super) fn mismatch(&mut self, from: &Typed, to: TypeId) -> Expr {
        let (wanted, found) = (self.type_name(to), self.type_name(from.expr.ty));
        let mut diagnostic =
            Diagnostic::error(401, from.expr.span, format!("expected `{wanted}`, found `{found}`"));
        if from.expr.ty == self.checker.known.perf_read && self.checker.types.int(to).is_some() {
            diagnostic = diagnostic.help(READ_IS_A_STRUCT);
        }
        if self.checker.types.is_context_pointer(to) {
            diagnostic = diagnostic.note(CONTEXT);
        } else if wanted == format!("*{found}") {
            diagnostic = diagnostic.help("its address is meant: write `&` before it");
        } else if self.is_number(to) && self.is_number(from.expr.ty) {
            diagnostic = diagnostic.help(format!("write `as {wanted}` behind it"));
        }
        if wanted == found && from.expr.ty != to {
            diagnostic = diagnostic
                .note("one is a struct of the kernel, the other the script's own struct of this name")
                .help("give the script's struct another name, or only members that the kernel's has");
        }
        self.report(diagnostic);
        Expr { ty: self.checker.types.common().error, ..from.expr.clone() }
    }

    fn coerce_int(&mut self, from: Typed, source: IntType, to: TypeId, target: IntType) -> Expr {
        let negative_literal = from.number(&self.checker.types).is_some_and(|value| value < 0);
        let pair_fits = combine(source, target).is_some() || (from.literal && !negative_literal);
        if !pair_fits {
            return self.mismatch(&from, to);
        }
        if from.constant.is_none() && source.bits == 64 && target.bits < 32 {
            let name = self.type_name(to);
            self.report(
                Diagnostic::warning(415, from.expr.span, format!("64-bit value narrowed to `{name}`"))
                    .label("the high bits are dropped"),
            );
        }
        self.convert_int(from, to)
    }

    /// Converts between integers and enums; a constant that does not fit is truncated, with a warning.
    pub(super) fn convert_int(&mut self, from: Typed, to: TypeId) -> Expr {
        let int = self.checker.types.scalar(to).expect("integers and enums are scalars");
        let span = from.expr.span;
        let Some((bits, same)) = from.bits_in(int, &self.checker.types) else {
            return Expr { kind: ExprKind::Convert(Box::new(from.expr)), ty: to, span };
        };
        if !same {
            self.warn_cut(&from, to, int.value(bits));
        }
        Expr { kind: ExprKind::Const(bits), ty: to, span }
    }

    /// Warns of a constant that does not fit another type.
    pub(super) fn warn_cut(&mut self, from: &Typed, to: TypeId, becomes: i128) {
        let text = format!("value is cut to fit `{}`", self.type_name(to));
        let value = from.number(&self.checker.types).unwrap_or_default();
        let label = format!("{value} becomes {becomes}");
        self.report(Diagnostic::warning(414, from.expr.span, text).label(label));
    }

    fn coerce_str(&mut self, from: Typed, to: TypeId, size: u32) -> Expr {
        let span = from.expr.span;
        match from.expr.kind {
            ExprKind::Bytes(mut bytes) => {
                let room = size as usize - 1;
                if bytes.len() > room {
                    let text = format!("value is cut to fit `{}`", self.type_name(to));
                    let label = format!("{} bytes, {room} fit", bytes.len());
                    self.report(Diagnostic::warning(414, span, text).label(label));
                    bytes.truncate(room);
                }
                Expr { kind: ExprKind::Bytes(bytes), ty: to, span }
            }
            _ if from.expr.ty == to => from.expr,
            _ => Expr { kind: ExprKind::Convert(Box::new(from.expr)), ty: to, span },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the language reference, 3.4, with `-` where a pair is refused.
    const TABLE: &[(&str, &str)] = &[
        ("u8", "u8 u16 u32 u64 i8 - - -"),
        ("u16", "u16 u16 u32 u64 - i16 - -"),
        ("u32", "u32 u32 u32 u64 i32 i32 i32 i64"),
        ("u64", "u64 u64 u64 u64 - - - i64"),
        ("i8", "i8 - i32 - i8 i16 i32 i64"),
        ("i16", "- i16 i32 - i16 i16 i32 i64"),
        ("i32", "- - i32 - i32 i32 i32 i64"),
        ("i64", "- - i64 i64 i64 i64 i64 i64"),
    ];

    #[test]
    fn lf_033_every_pair_combines_as_listed() {
        let int =
            |name: &str| IntType { bits: name[1..].parse().expect("bits"), signed: name.starts_with('i') };
        for (left, row) in TABLE {
            for ((right, _), wanted) in TABLE.iter().zip(row.split(' ')) {
                let found = combine(int(left), int(right)).map_or("-".to_owned(), |int| int.to_string());
                assert_eq!(found, wanted, "{left} with {right}");
            }
        }
    }
}
