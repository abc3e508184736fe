//! Maps of maps: `var m : hash<K, array<u32, V>(16)>(64)`, whose entries are `m[k][i]`.
//!
//! The rest of the compiler sees one map with the kind of the inner maps, whose keys are structs of both keys. The two back
//! ends find the inner map by the first of them.

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use super::types::Position;
use super::{Checker, count};
use crate::ast::{self, Size, TypeExpr, TypeExprKind};
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Half, MapId, MapKind, OuterMap, StmtKind, UserBuiltin};
use crate::source::Span;
use crate::types::{Field, StructDef, StructOrigin, TypeId, TypeKind};

/// The method that creates an inner map.
const CREATE: &str = "create";

/// The key of an entry of a map, as the script writes it.
#[derive(Clone, Copy)]
pub(super) enum ElementKey<'e> {
    /// `m[k]`
    One(&'e ast::Expr),
    /// `m[outer][inner]` of a map of maps.
    Nested { outer: &'e ast::Expr, inner: &'e ast::Expr },
}

impl Checker<'_> {
    /// Declares `kind<K, kind<K, V>(N)>(N)`.
    pub(super) fn declare_nested_map(
        &mut self,
        global: &ast::Global,
        keyword: &ast::Ident,
        (key, value): (&TypeExpr, &TypeExpr),
        size: Option<&Size>,
    ) {
        let TypeExprKind::Map { kind: inner, key: inner_key, value: inner_value, size: inner_size } =
            &value.kind
        else {
            let kind = match &value.kind {
                TypeExprKind::Keyless { kind, .. } => &kind.name,
                _ => "ringbuf",
            };
            self.report_inner_kind(kind, value.span);
            self.declare_name(&global.name, Symbol::Error);
            return;
        };
        self.strict(value.span, "maps of maps");
        let kinds = (self.outer_kind(keyword), self.inner_kind(inner, inner_value));
        let sizes = (self.nested_size(size, key.span), self.nested_size(inner_size.as_ref(), value.span));
        let keys = (self.type_expr(key, Position::Value), self.type_expr(inner_key, Position::Value));
        let value_ty = match inner_value.kind {
            // Reported as a wrong kind of inner maps.
            TypeExprKind::Map { .. } => self.types.common().error,
            _ => self.type_expr(inner_value, Position::Value),
        };
        self.check_nested_modifiers(global, kinds.0);
        let ((Some(outer), Some(inner)), (Some(outer_entries), Some(entries))) = (kinds, sizes) else {
            self.declare_name(&global.name, Symbol::Error);
            return;
        };
        self.check_nested_key(outer, keys.0, key.span);
        self.check_nested_key(inner, keys.1, inner_key.span);
        self.check_nested_value(inner, value_ty, inner_value.span);
        let is_wrong = [keys.0, keys.1, value_ty].iter().any(|ty| self.types.is_error(*ty));
        let key_ty = if is_wrong { self.types.common().error } else { self.nested_key_type(global, keys) };
        self.add_map(global, inner, (key_ty, value_ty), entries);
        if let (Some(Symbol::Map(map)), false) = (self.names.own(&global.name.name), is_wrong) {
            self.maps[map].outer = Some(OuterMap { kind: outer, max_entries: outer_entries });
        }
    }

    fn outer_kind(&mut self, keyword: &ast::Ident) -> Option<MapKind> {
        let kind = self.map_kind(keyword)?;
        if matches!(kind, MapKind::Array | MapKind::Hash) {
            return Some(kind);
        }
        let text = format!("a map cannot be the value of `{}`", kind.name());
        self.report(Diagnostic::error(602, keyword.span, text).help("`hash` and `array` can hold maps"));
        None
    }

    /// Returns the kind of the inner maps. The kernel would take others; none of them is worth its own rules.
    ///
    /// Source: kernel/bpf/map_in_map.c, `bpf_map_meta_alloc`, v6.12: an inner map holds no maps itself.
    fn inner_kind(&mut self, keyword: &ast::Ident, value: &TypeExpr) -> Option<MapKind> {
        if let TypeExprKind::Map { .. } = value.kind {
            self.report(
                Diagnostic::error(602, value.span, "the inner maps of a map of maps hold no maps")
                    .note("the kernel has two levels of maps")
                    .help("give the inner map a key of two parts: `hash<Key, V>(size)`"),
            );
            return None;
        }
        let kind = self.map_kind(keyword)?;
        if matches!(kind, MapKind::Array | MapKind::Hash | MapKind::LruHash) {
            return Some(kind);
        }
        self.report_inner_kind(kind.name(), keyword.span);
        None
    }

    fn report_inner_kind(&mut self, kind: &str, span: Span) {
        let text = format!("`{kind}` cannot be the kind of inner maps");
        self.report(
            Diagnostic::error(602, span, text).help("`array`, `hash` and `lru_hash` can be inner maps"),
        );
    }

    fn nested_size(&mut self, size: Option<&Size>, span: Span) -> Option<u32> {
        match size {
            Some(Size::Option { .. }) => {
                let text = "the sizes of a map of maps are known when the script is compiled";
                let span = size.map_or(span, Size::span);
                self.report(Diagnostic::error(606, span, text).help("write a literal or a constant"));
                None
            }
            Some(size) => self.entries(size),
            None => {
                self.report(
                    Diagnostic::error(204, span, "both maps of a map of maps have a size")
                        .help("write `var m : hash<u64, hash<u32, u64>(256)>(64)`: 64 maps of 256 entries"),
                );
                None
            }
        }
    }

    fn check_nested_modifiers(&mut self, global: &ast::Global, outer: Option<MapKind>) {
        if let Some(pin) = global.pin {
            self.report(
                Diagnostic::error(602, pin, "a map of maps cannot be pinned")
                    .note("the host knows the inner maps that it has created, not those of an earlier plugin")
                    .help("pin a `hash` whose key is a struct with both keys"),
            );
        }
        if let (Some(local), Some(MapKind::Hash)) = (global.local, outer) {
            self.report(
                Diagnostic::error(602, local, "a `local` hash of maps would stay empty")
                    .note("only userspace creates the inner maps of a hash")
                    .help("remove `local`, or use an `array` of maps"),
            );
        }
        if let Some(flags) = &global.flags {
            self.report(Diagnostic::error(602, flags.span, "a map of maps takes no flags"));
        }
    }

    /// Checks one of the two keys. That of an array has the four bytes that the kernel's has: both lie in one struct.
    fn check_nested_key(&mut self, kind: MapKind, ty: TypeId, span: Span) {
        let u32 = self.types.common().u32;
        if kind.is_array() && ty != u32 && !self.types.is_error(ty) {
            let text =
                format!("the key of an array in a map of maps is `u32`, not `{}`", self.types.name(ty));
            self.report(Diagnostic::error(602, span, text));
            return;
        }
        self.check_key(kind, ty, span);
    }

    fn check_nested_value(&mut self, kind: MapKind, ty: TypeId, span: Span) {
        if let TypeKind::Ptr(_) = self.types.kind(ty) {
            let text = format!("`{}` cannot be the value of an inner map", self.types.name(ty));
            self.report(
                Diagnostic::error(602, span, text).help("keep the struct itself, not a pointer to it"),
            );
            return;
        }
        self.check_value(kind, ty, span);
    }

    fn nested_key_type(&mut self, global: &ast::Global, (outer, inner): (TypeId, TypeId)) -> TypeId {
        let field = |name: &str, ty| Field {
            name: name.into(),
            ty,
            default: None,
            column: None,
            docs: String::new(),
        };
        let id = self.types.add_struct(StructDef {
            name: format!("{}_key", global.name.name),
            fields: vec![field("outer", outer), field("inner", inner)],
            origin: StructOrigin::NestedKey,
        });
        self.types.struct_type(id)
    }
}

impl Body<'_, '_> {
    /// Returns the map and the key if an expression is `m[k]` of a map of maps: an inner map.
    pub(super) fn inner_map<'e>(&self, expr: &'e ast::Expr) -> Option<(MapId, &'e ast::Expr)> {
        let ast::ExprKind::Index(base, key) = &strip(expr).kind else { return None };
        match self.named_symbol(base) {
            Some(Symbol::Map(map)) if self.checker.maps[map].outer.is_some() => Some((map, key)),
            _ => None,
        }
    }

    /// Returns the map and the key of what a condition tests: an entry of a map, or an inner map.
    pub(super) fn tested_element(&mut self, expr: &ast::Expr) -> Option<(MapId, Expr)> {
        if let Some((map, key)) = self.inner_map(expr) {
            return Some((map, self.outer_key(map, key)));
        }
        let (map, key) = self.map_element(expr)?;
        Some((map, self.map_key(map, key)))
    }

    pub(super) fn nested_key(&mut self, map: MapId, outer: &ast::Expr, inner: &ast::Expr) -> Expr {
        let span = outer.span.to(inner.span);
        let one = &self.checker.maps[map];
        let Some((_, inner_ty)) = one.nested_keys(&self.checker.types) else {
            return self.error_expr(span).expr;
        };
        let (key, kind, entries) = (one.key, one.kind, one.max_entries);
        let outer = self.outer_key(map, outer);
        let inner = self.one_of_two_keys(map, inner, inner_ty, kind.is_array().then_some(entries));
        if [&outer, &inner].iter().any(|part| self.checker.types.is_error(part.ty)) {
            return self.error_expr(span).expr;
        }
        self.make(ExprKind::Struct(vec![outer, inner]), key, span).expr
    }

    /// Checks the key of an inner map.
    fn outer_key(&mut self, map: MapId, key: &ast::Expr) -> Expr {
        let one = &self.checker.maps[map];
        let (Some(outer), Some((ty, _))) = (one.outer, one.nested_keys(&self.checker.types)) else {
            return self.error_expr(key.span).expr;
        };
        self.one_of_two_keys(map, key, ty, outer.kind.is_array().then_some(outer.max_entries))
    }

    fn one_of_two_keys(&mut self, map: MapId, key: &ast::Expr, ty: TypeId, entries: Option<u32>) -> Expr {
        let found = self.not_last(|body| body.expr(key, Some(ty)));
        if let Some(entries) = entries {
            self.check_index(map, &found, entries, key.span);
        }
        self.coerce(found, ty)
    }

    /// Checks `delete m[k]` of a map of maps.
    pub(super) fn delete_inner_map(&mut self, map: MapId, key: &ast::Expr, span: Span) -> Option<StmtKind> {
        self.changes_inner_maps(map, "deletes", span).then_some(())?;
        let key = self.outer_key(map, key);
        Some(StmtKind::Remove { map, key })
    }

    /// Checks a method of a map of maps: `m.create(k)`.
    pub(super) fn nested_method(
        &mut self,
        map: MapId,
        method: &ast::Ident,
        args: &[ast::Expr],
        span: Span,
    ) -> Typed {
        let ([key], CREATE) = (args, method.name.as_str()) else {
            let text = format!("a map of maps has no method `{}` with {}", method.name, count(args.len()));
            self.report(
                Diagnostic::error(304, method.span, text).help("its method is `create(key)`, in userspace"),
            );
            return self.error_expr(span);
        };
        if !self.changes_inner_maps(map, "creates", span) {
            return self.error_expr(span);
        }
        let key = Box::new(self.outer_key(map, key));
        self.user_builtin(UserBuiltin::CreateInner { map, key }, self.common().void, span)
    }

    /// Whether this half can create and delete inner maps, which are all there from the start in an array.
    ///
    /// Source: kernel/bpf/verifier.c, `check_map_func_compatibility`, v6.12: programs look inner maps up, no more.
    fn changes_inner_maps(&mut self, map: MapId, verb: &str, span: Span) -> bool {
        let one = &self.checker.maps[map];
        let declared = one.span;
        let error = if one.outer.is_some_and(|outer| outer.kind.is_array()) {
            let text =
                format!("`{}` is an array: each of its maps is there from the start to the end", one.name);
            Diagnostic::error(607, span, text).help("a `hash` of maps gets them one by one")
        } else if self.half() == Half::Kernel {
            let text = format!("only userspace {verb} the inner maps of `{}`", one.name);
            Diagnostic::error(608, span, text)
                .note("the kernel lets programs look up inner maps, and no more")
        } else {
            return true;
        };
        self.report(error.also(declared, "declared here"));
        false
    }
}
