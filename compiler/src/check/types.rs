//! Resolves types: from the syntax tree to type ids.

use super::Checker;
use super::names::Symbol;
use crate::ast::{self, IntLit, Size, TypeExpr, TypeExprKind};
use crate::diag::Diagnostic;
use crate::hir::{Half, MapKind};
use crate::source::Span;
use crate::types::{StructOrigin, TypeId, TypeKind};

/// The use of a type, as far as it restricts the allowed types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// A variable, field, parameter, key or value.
    Value,
    /// The result of a function.
    Result,
    /// The pointee of `*`.
    Pointee,
}

/// Maximum number of parts of a type: far above any handwritten script, far below a stack overflow.
const MAX_PARTS: u32 = 500;

const OLD_SPELLINGS: &[(&str, &str)] = &[("PerfAttachment", "perf_attachment"), ("PerfRead", "perf_read")];

impl Checker<'_> {
    pub(super) fn type_expr(&mut self, written: &TypeExpr, position: Position) -> TypeId {
        let common = self.types.common();
        match &written.kind {
            TypeExprKind::Name(name) => self.named_type(name, written.span, position),
            TypeExprKind::Str(size) => self.str_type(*size),
            TypeExprKind::Array(element, len) => {
                let element = self.type_expr(element, Position::Value);
                match self.literal_size(len) {
                    Some(len) => self.array_type(element, len),
                    None => common.error,
                }
            }
            TypeExprKind::Ptr(to) => {
                let to = self.type_expr(to, Position::Pointee);
                if self.types.is_error(to) {
                    return common.error;
                }
                self.composite(TypeKind::Ptr(to), &[to], written.span)
            }
            TypeExprKind::Fn(params, ret) => self.function_type(params, ret, written.span),
            TypeExprKind::Qualified { module, name } => {
                self.strict(written.span, "types of modules");
                self.module_type(module, name)
            }
            TypeExprKind::LinearHist { low, step, slots } => {
                self.linear_hist([*low, *step, *slots], written.span)
            }
            TypeExprKind::Map { .. } | TypeExprKind::Ring(..) | TypeExprKind::Keyless { .. } => {
                self.report(
                    Diagnostic::error(605, written.span, "a map can only be declared at top level")
                        .help("move it out of here: `var name : hash<K, V>(size)`"),
                );
                common.error
            }
        }
    }

    fn function_type(&mut self, params: &[TypeExpr], ret: &TypeExpr, span: Span) -> TypeId {
        let params: Vec<_> = params.iter().map(|param| self.type_expr(param, Position::Value)).collect();
        let ret = self.type_expr(ret, Position::Result);
        let parts: Vec<_> = params.iter().copied().chain([ret]).collect();
        if parts.iter().any(|part| self.types.is_error(*part)) {
            return self.types.common().error;
        }
        self.composite(TypeKind::Fn(params, ret), &parts, span)
    }

    /// Creates a type from others, unless it has too many parts.
    fn composite(&mut self, kind: TypeKind, parts: &[TypeId], span: Span) -> TypeId {
        let weight = |part: &TypeId| self.weights.get(part).copied().unwrap_or(1);
        let total = parts.iter().map(weight).fold(1, u32::saturating_add);
        if total > MAX_PARTS {
            let text = format!("this type has more than {MAX_PARTS} parts");
            self.report(Diagnostic::error(419, span, text));
            return self.types.common().error;
        }
        let ty = self.types.intern(kind);
        self.weights.insert(ty, total);
        ty
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
            "void" => return self.void_type(span, position),
            _ => return self.declared_type(name, span, position),
        };
        // The names of scalars are reserved, so no declaration can hide them.
        scalar
    }

    fn void_type(&mut self, span: Span, position: Position) -> TypeId {
        if position == Position::Value {
            self.report(Diagnostic::error(401, span, "expected a type that has values, found `void`"));
            return self.types.common().error;
        }
        self.types.common().void
    }

    fn declared_type(&mut self, name: &str, span: Span, position: Position) -> TypeId {
        let error = self.types.common().error;
        match self.names.get(name) {
            Some(Symbol::Type(ty)) if position == Position::Pointee => self.pointee(name, ty),
            Some(Symbol::Type(ty)) => self.type_by_value(name, ty, span),
            Some(Symbol::Error) => error,
            Some(_) => {
                self.report(Diagnostic::error(303, span, format!("no type `{name}`")).label("not a type"));
                error
            }
            None if position == Position::Pointee && self.half == Half::Kernel && !is_old(name) => {
                self.kernel_struct(name)
            }
            None => {
                self.unknown_type(name, span);
                error
            }
        }
    }

    /// Returns the type behind a pointer. The enum `perf_event` hides a struct of the kernel by its name, and no
    /// pointer to it is of use in the kernel half.
    fn pointee(&mut self, name: &str, ty: TypeId) -> TypeId {
        let hides = ty == self.known.perf_event && self.half == Half::Kernel;
        if hides && self.kernel().has_structure(name) { self.kernel_struct(name) } else { ty }
    }

    /// Returns the type of a value. Rejects a context, which has no value, and records structs whose layout
    /// may be the kernel's.
    fn type_by_value(&mut self, name: &str, ty: TypeId, span: Span) -> TypeId {
        let &TypeKind::Struct(id) = self.types.kind(ty) else { return ty };
        if self.histograms.contains_key(&id) || self.types.stats(ty).is_some() {
            self.strict(span, &format!("type `{name}`"));
        }
        match self.types.struct_def(id).origin {
            StructOrigin::Context if !self.in_header(span) => {
                self.report(
                    Diagnostic::error(507, span, format!("`{name}` is a context and stands behind `*` only"))
                        .help(format!("write `*{name}`")),
                );
                self.types.common().error
            }
            StructOrigin::Kernel | StructOrigin::Script if !self.in_header(span) => {
                self.by_value.entry(id).or_insert(span);
                if !self.in_fields {
                    self.own_values.insert(id);
                }
                ty
            }
            _ => ty,
        }
    }

    fn unknown_type(&mut self, name: &str, span: Span) {
        if let Some((_, new)) = OLD_SPELLINGS.iter().find(|(old, _)| *old == name) {
            self.report(Diagnostic::error(902, span, format!("old spelling; write `{new}`")).suggest(
                span,
                *new,
                "the new spelling",
            ));
            return;
        }
        let mut error = Diagnostic::error(303, span, format!("no type `{name}`"));
        let names = self.names.all(|symbol| matches!(symbol, Symbol::Type(_)));
        error = error.suggest_near(span, "type", name, names.into_iter().chain(SCALARS.iter().copied()));
        if let Some((_, spelling)) = FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
            error = error.suggest(span, *spelling, "in this language");
        }
        self.report(error);
    }

    /// Returns the number of a size: a literal, or a constant at top level.
    pub(super) fn literal_size(&mut self, size: &Size) -> Option<IntLit> {
        let name = match size {
            Size::Int(literal) => return Some(*literal),
            Size::Const(name) => name,
            Size::Option { .. } => {
                let error = Diagnostic::error(204, size.span(), "only a map can have the size of an option");
                self.report(error.help("write a literal or a constant of the top level"));
                return None;
            }
        };
        match self.names.get(&name.name) {
            Some(Symbol::Const(value, _)) => {
                let magnitude = u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX);
                Some(IntLit { value: magnitude, negative: value < 0, span: name.span })
            }
            Some(Symbol::Error) => None,
            Some(symbol) => {
                let text = "a size is a literal or a constant of the top level";
                self.report(Diagnostic::error(204, name.span, text).label(format!(
                    "`{}` is {}",
                    name.name,
                    symbol.what()
                )));
                None
            }
            None => {
                let constants = self.names.all(|symbol| matches!(symbol, Symbol::Const(..)));
                let error = Diagnostic::error(301, name.span, format!("no constant `{}` here", name.name))
                    .suggest_near(name.span, "constant", &name.name, constants)
                    .note("a size is a literal or a constant of the top level");
                self.report(error);
                None
            }
        }
    }

    fn str_type(&mut self, size: IntLit) -> TypeId {
        match u32::try_from(size.value) {
            Ok(bytes) if (1..=65535).contains(&bytes) && !size.negative => self.types.str_type(bytes),
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
        if len.value == 0 || len.negative || len.value > u64::from(u32::MAX) {
            self.report(Diagnostic::error(606, len.span, format!("size must be 1 to {}", u32::MAX)));
            return self.types.common().error;
        }
        self.composite(TypeKind::Array(element, len.value), &[element], len.span)
    }

    /// Returns the map kind of a keyword.
    pub(super) fn map_kind(&mut self, keyword: &ast::Ident) -> Option<MapKind> {
        if let Some(kind) = MapKind::ALL.iter().copied().find(|kind| kind.name() == keyword.name) {
            const OF_011: &[MapKind] =
                &[MapKind::Hash, MapKind::Array, MapKind::PercpuHash, MapKind::PercpuArray, MapKind::LruHash];
            if !OF_011.contains(&kind) {
                self.strict(keyword.span, &format!("map kind `{}`", kind.name()));
            }
            return Some(kind);
        }
        let kinds = MapKind::ALL.iter().map(|kind| kind.name()).chain(["ringbuf"]);
        let error = Diagnostic::error(202, keyword.span, format!("there is no map kind `{}`", keyword.name))
            .suggest_near(keyword.span, "kind", &keyword.name, kinds);
        self.report(error);
        None
    }
}

const SCALARS: &[&str] = &["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "bool", "char"];

/// Type names of other languages, and their equivalents here.
const FOREIGN: &[(&str, &str)] = &[
    ("int", "i32"),
    ("long", "i64"),
    ("unsigned", "u32"),
    ("usize", "size_t"),
    ("string", "str(64)"),
    ("String", "str(64)"),
    ("uint8_t", "u8"),
    ("uint16_t", "u16"),
    ("uint32_t", "u32"),
    ("uint64_t", "u64"),
    ("__u8", "u8"),
    ("__u16", "u16"),
    ("__u32", "u32"),
    ("__u64", "u64"),
    ("boolean", "bool"),
];

fn is_old(name: &str) -> bool {
    OLD_SPELLINGS.iter().any(|(old, _)| *old == name)
}
