//! Expressions.

use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::{Diagnostic, near};
use crate::hir::{Expr, ExprKind, FunctionKind};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// An expression and what is known of it at compile time.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    pub(super) expr: Expr,
    /// Its value, if it is an integer or enumerator that is known.
    pub(super) constant: Option<i128>,
    /// It is made of literals only: it fits every integer type.
    pub(super) literal: bool,
}

impl Typed {
    pub(super) fn of(expr: Expr) -> Typed {
        Typed { expr, constant: None, literal: false }
    }
}

impl Body<'_, '_> {
    /// An expression of type `to`.
    pub(super) fn value(&mut self, expr: &ast::Expr, to: TypeId) -> Expr {
        let found = self.expr(expr, Some(to));
        self.coerce(found, to)
    }

    /// An expression that has been reported.
    pub(super) fn error_expr(&self, span: Span) -> Typed {
        Typed::of(Expr { kind: ExprKind::Const(0), ty: self.checker.types.common().error, span })
    }

    pub(super) fn not_yet(&mut self, span: Span, what: &str) -> Typed {
        self.report(Diagnostic::not_yet(span, what));
        self.error_expr(span)
    }

    pub(super) fn make(&self, kind: ExprKind, ty: TypeId, span: Span) -> Typed {
        Typed::of(Expr { kind, ty, span })
    }

    /// Checks an expression. `wanted` is the type of its destination, if it has one: it gives literals their shape.
    pub(super) fn expr(&mut self, expr: &ast::Expr, wanted: Option<TypeId>) -> Typed {
        let common = self.checker.types.common();
        let span = expr.span;
        match &expr.kind {
            ast::ExprKind::Int(value) => {
                let ty = if *value > u64::from(u32::MAX) { common.u64 } else { common.u32 };
                self.integer(i128::from(*value), ty, true, span)
            }
            ast::ExprKind::Bool(value) => self.make(ExprKind::Const(u64::from(*value)), common.bool, span),
            ast::ExprKind::Char(value) => self.make(ExprKind::Const(u64::from(*value)), common.char, span),
            ast::ExprKind::Str(bytes) => self.string(bytes, span),
            ast::ExprKind::Null => self.make(ExprKind::Const(0), common.null, span),
            ast::ExprKind::Array(elements) => self.array_literal(elements, wanted, span),
            ast::ExprKind::Struct { name, fields } => self.struct_literal(name, fields, span),
            ast::ExprKind::Name(name) => self.name(name, span),
            ast::ExprKind::Paren(inner) => self.expr(inner, wanted),
            ast::ExprKind::Field { .. } | ast::ExprKind::Index(..) => self.load(expr),
            ast::ExprKind::Call { callee, args } => self.call(callee, args, span),
            ast::ExprKind::Unary(op, operand) => self.unary(*op, operand, span),
            ast::ExprKind::Binary(op, left, right) => self.binary(*op, left, right, span),
            ast::ExprKind::Cast(value, ty) => self.cast(value, ty, span),
            ast::ExprKind::New(..) => self.not_yet(span, "`new` is"),
            ast::ExprKind::Match { value, .. } => {
                let head = Span { end: value.span.start, ..span };
                self.not_yet(head, "`match` is")
            }
        }
    }

    /// A constant; it fits `ty`.
    pub(super) fn integer(&mut self, value: i128, ty: TypeId, literal: bool, span: Span) -> Typed {
        let int = self.checker.types.scalar(ty).expect("a constant is a scalar");
        let expr = Expr { kind: ExprKind::Const(int.truncate(value as u64)), ty, span };
        Typed { expr, constant: Some(value), literal }
    }

    fn string(&mut self, bytes: &[u8], span: Span) -> Typed {
        // The text ends at the first zero byte, wherever it is kept.
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let Ok(size) = u32::try_from(text.len() + 1) else {
            self.report(Diagnostic::error(430, span, "string size must be 1 to 65535"));
            return self.error_expr(span);
        };
        let ty = self.checker.types.str_type(size);
        self.make(ExprKind::Bytes(text.to_vec()), ty, span)
    }

    fn name(&mut self, name: &str, span: Span) -> Typed {
        match self.lookup(name) {
            Some(Scoped::Local(local)) => return Typed::of(self.load_local(local, span)),
            Some(Scoped::Const(value, ty)) => return self.integer(value, ty, true, span),
            None => {}
        }
        match self.checker.names.get(name) {
            Some(Symbol::Enumerator(ty, bits)) => {
                let repr = self.checker.types.scalar(ty).expect("an enum is a scalar");
                self.integer(repr.value(bits), ty, false, span)
            }
            Some(Symbol::Global(_)) => self.load(&ast::Expr { kind: ast::ExprKind::Name(name.into()), span }),
            Some(Symbol::Map(_)) => {
                self.report(
                    Diagnostic::error(608, span, format!("map `{name}` is not a value"))
                        .help(format!("an element is: `{name}[key]`")),
                );
                self.error_expr(span)
            }
            Some(Symbol::Function(id))
                if self.checker.signatures[id].kind.is_some_and(FunctionKind::is_program) =>
            {
                self.not_yet(span, "a program as a value is")
            }
            Some(Symbol::Function(_)) => self.not_yet(span, "a function as a value is"),
            Some(Symbol::Type(_)) => {
                self.report(Diagnostic::error(301, span, format!("`{name}` is a type, not a value")));
                self.error_expr(span)
            }
            None => {
                self.unknown_name(name, span);
                self.error_expr(span)
            }
        }
    }

    pub(super) fn unknown_name(&mut self, name: &str, span: Span) {
        let values =
            self.checker.names.all(|symbol| !matches!(symbol, Symbol::Type(_) | Symbol::Function(_)));
        let near = near(name, self.scoped_names().into_iter().chain(values));
        let help = near.map(|near| format!("a similar name exists: `{near}`"));
        self.report(Diagnostic::error(301, span, format!("no name `{name}` here")).maybe_help(help));
    }

    fn cast(&mut self, value: &ast::Expr, ty: &ast::TypeExpr, span: Span) -> Typed {
        let to = self.checker.type_expr(ty, super::types::Position::Value);
        let from = self.expr(value, None);
        let types = &self.checker.types;
        if types.is_error(to) || types.is_error(from.expr.ty) {
            return self.error_expr(span);
        }
        let castable = |ty: TypeId| {
            matches!(types.kind(ty), TypeKind::Int(_) | TypeKind::Bool | TypeKind::Char | TypeKind::Enum(_))
        };
        if !castable(from.expr.ty) || !castable(to) {
            let (source, target) = (self.type_name(from.expr.ty), self.type_name(to));
            self.report(Diagnostic::error(401, span, format!("`{source}` cannot be cast to `{target}`")));
            return self.error_expr(span);
        }
        if to == types.common().bool {
            return self.make(ExprKind::Truth(Box::new(from.expr)), to, span);
        }
        match (from.constant, self.checker.types.scalar(to)) {
            (Some(value), Some(int)) => {
                let value = int.value(int.truncate(value as u64));
                self.integer(value, to, false, span)
            }
            _ => self.make(ExprKind::Convert(Box::new(from.expr)), to, span),
        }
    }

    /// An integer type's id, from an enum its underlying integer.
    pub(super) fn integer_of(&self, ty: TypeId) -> Option<IntType> {
        match self.checker.types.kind(ty) {
            TypeKind::Int(int) => Some(*int),
            TypeKind::Enum(_) => self.checker.types.scalar(ty),
            _ => None,
        }
    }

    /// The map behind `m[k]`, if this is an element of one.
    pub(super) fn map_element<'e>(&self, expr: &'e ast::Expr) -> Option<(crate::hir::MapId, &'e ast::Expr)> {
        let ast::ExprKind::Index(base, key) = &strip(expr).kind else { return None };
        let ast::ExprKind::Name(name) = &strip(base).kind else { return None };
        match (self.lookup(name), self.checker.names.get(name)) {
            (None, Some(Symbol::Map(map))) => Some((map, key)),
            _ => None,
        }
    }

    /// The variable behind a name, if this is one.
    pub(super) fn named_local(&self, expr: &ast::Expr) -> Option<crate::hir::LocalId> {
        let ast::ExprKind::Name(name) = &strip(expr).kind else { return None };
        match self.lookup(name) {
            Some(Scoped::Local(local)) => Some(local),
            _ => None,
        }
    }
}
