//! Types as written to types.

use super::Checker;
use super::names::Symbol;
use crate::ast::{IntLit, TypeExpr, TypeExprKind};
use crate::diag::{Diagnostic, near};
use crate::hir::MapKind;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Where a type stands, as far as it decides what may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// A variable, field, parameter, key or value.
    Value,
    /// A result.
    Result,
    /// Behind `*`.
    Pointee,
}

const OLD_SPELLINGS: &[(&str, &str)] = &[("PerfAttachment", "perf_attachment"), ("PerfRead", "perf_read")];

impl Checker<'_> {
    pub(super) fn type_expr(&mut self, written: &TypeExpr, position: Position) -> TypeId {
        let common = self.types.common();
        match &written.kind {
            TypeExprKind::Name(name) => self.named_type(name, written.span, position),
            TypeExprKind::Str(size) => self.str_type(*size),
            TypeExprKind::Array(element, len) => {
                let element = self.type_expr(element, Position::Value);
                self.array_type(element, *len)
            }
            TypeExprKind::Ptr(to) => {
                let to = self.type_expr(to, Position::Pointee);
                if to != self.known.perf_context && !self.types.is_error(to) {
                    self.report(Diagnostic::not_yet(written.span, "this pointer type is"));
                    return common.error;
                }
                self.types.intern(TypeKind::Ptr(to))
            }
            TypeExprKind::Fn(..) => {
                self.report(Diagnostic::not_yet(written.span, "function types are"));
                common.error
            }
            TypeExprKind::Map { .. } | TypeExprKind::Ring(..) => {
                self.report(
                    Diagnostic::error(605, written.span, "a map can only be declared at top level")
                        .help("move it out of here: `var name : hash<K, V>(size)`"),
                );
                common.error
            }
        }
    }

    fn named_type(&mut self, name: &str, span: Span, position: Position) -> TypeId {
        let common = self.types.common();
        let scalar = match name {
            "u8" => common.u8,
            "u16" => common.u16,
            "u32" => common.u32,
            "u64" => common.u64,
            "i8" => common.i8,
            "i16" => common.i16,
            "i32" => common.i32,
            "i64" => common.i64,
            "bool" => common.bool,
            "char" => common.char,
            "void" => return self.void(span, position),
            _ => return self.declared_type(name, span, position),
        };
        debug_assert!(self.types.scalar(scalar).is_some(), "these words are scalars");
        scalar
    }

    fn void(&mut self, span: Span, position: Position) -> TypeId {
        if position == Position::Value {
            self.report(Diagnostic::error(401, span, "expected a type that has values, found `void`"));
            return self.types.common().error;
        }
        self.types.common().void
    }

    fn declared_type(&mut self, name: &str, span: Span, position: Position) -> TypeId {
        let error = self.types.common().error;
        match self.names.get(name) {
            Some(Symbol::Type(ty)) if ty == self.known.perf_context && position != Position::Pointee => {
                self.report(
                    Diagnostic::error(507, span, format!("`{name}` is a context and stands behind `*` only"))
                        .help(format!("write `*{name}`")),
                );
                error
            }
            Some(Symbol::Type(ty)) => ty,
            Some(_) => {
                self.report(Diagnostic::error(303, span, format!("no type `{name}`")).label("not a type"));
                error
            }
            None => {
                self.unknown_type(name, span);
                error
            }
        }
    }

    fn unknown_type(&mut self, name: &str, span: Span) {
        if let Some((_, new)) = OLD_SPELLINGS.iter().find(|(old, _)| *old == name) {
            self.report(Diagnostic::error(902, span, format!("old spelling; write `{new}`")));
            return;
        }
        let names = self.names.all(|symbol| matches!(symbol, Symbol::Type(_)));
        let help = near(name, names).map(|near| format!("a similar type exists: `{near}`"));
        self.report(Diagnostic::error(303, span, format!("no type `{name}`")).maybe_help(help));
    }

    fn str_type(&mut self, size: IntLit) -> TypeId {
        match u32::try_from(size.value) {
            Ok(bytes) if (1..=65535).contains(&bytes) => self.types.str_type(bytes),
            _ => {
                self.report(Diagnostic::error(430, size.span, "string size must be 1 to 65535"));
                self.types.common().error
            }
        }
    }

    fn array_type(&mut self, element: TypeId, len: IntLit) -> TypeId {
        if self.types.is_error(element) {
            return element;
        }
        if len.value == 0 || len.value > u64::from(u32::MAX) {
            self.report(Diagnostic::error(606, len.span, format!("size must be 1 to {}", u32::MAX)));
            return self.types.common().error;
        }
        self.types.intern(TypeKind::Array(element, len.value))
    }

    /// A kind of map by its word.
    pub(super) fn map_kind(&mut self, name: &str, span: Span) -> Option<MapKind> {
        const KINDS: &[MapKind] =
            &[MapKind::Hash, MapKind::Array, MapKind::PercpuHash, MapKind::PercpuArray, MapKind::LruHash];
        let found = KINDS.iter().copied().find(|kind| kind.name() == name);
        if found.is_none() {
            let help = near(name, KINDS.iter().map(|kind| kind.name()))
                .map(|near| format!("a similar kind exists: `{near}`"));
            self.report(
                Diagnostic::error(202, span, format!("there is no map kind `{name}`")).maybe_help(help),
            );
        }
        found
    }
}
