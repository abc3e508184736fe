//! Lvalues: expressions that can be read or written.

use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::nested_maps::ElementKey;
use super::prescan::strip;
use crate::ast;
use crate::builtins::context_members::{self, MemberType};
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, GlobalId, Half, Lvalue, LvalueKind, MapId};
use crate::source::Span;
use crate::types::{StructOrigin, TypeKind};

const RDONLY: u32 = 8;
const WRONLY: u32 = 16;

impl Body<'_, '_> {
    /// Returns the value of a name, member or element.
    pub(super) fn load(&mut self, expr: &ast::Expr) -> Typed {
        if let Some(member) = self.context_member(expr) {
            return member;
        }
        let Some(lvalue) = self.lvalue(expr) else { return self.error_expr(expr.span) };
        if let Some(map) = element_map(&lvalue) {
            self.check_access(map, WRONLY, expr.span);
        }
        self.check_copy(&lvalue);
        let ty = lvalue.ty;
        self.make(ExprKind::Load(lvalue), ty, expr.span)
    }

    /// Returns the meaning of a name at top level; none if a variable hides it or the expression is not a
    /// name.
    pub(super) fn named_symbol(&self, expr: &ast::Expr) -> Option<Symbol> {
        let ast::ExprKind::Name(name) = &strip(expr).kind else { return None };
        if self.lookup(name).is_some() { None } else { self.checker.names.get(name) }
    }

    /// Like [`Body::named_symbol`], for an operand before a `.`: marks a module there as used.
    pub(super) fn owner_symbol(&mut self, expr: &ast::Expr) -> Option<Symbol> {
        let symbol = self.named_symbol(expr)?;
        if let (Symbol::Module(_) | Symbol::Python(_), ast::ExprKind::Name(name)) =
            (symbol, &strip(expr).kind)
        {
            self.checker.used_imports.insert(name.clone());
        }
        Some(symbol)
    }

    /// Returns the lvalue of an expression; `None` if an error was reported.
    pub(super) fn lvalue(&mut self, expr: &ast::Expr) -> Option<Lvalue> {
        let span = expr.span;
        match &strip(expr).kind {
            ast::ExprKind::Name(name) => self.named_lvalue(name, span),
            ast::ExprKind::Field { base, arrow, name } => match self.record_bytes(expr, None) {
                Some(found) => self.value_lvalue(found.expr, span),
                None => self.field_lvalue(base, *arrow, name, span),
            },
            ast::ExprKind::Index(base, index) => match self.map_element(expr) {
                Some((map, key)) => {
                    let key = Box::new(self.map_key(map, key));
                    let ty = self.checker.maps[map].value;
                    Some(Lvalue { kind: LvalueKind::Element { map, key }, ty, span })
                }
                None => self.index_lvalue(base, index, span),
            },
            ast::ExprKind::Unary(ast::UnaryOp::Deref, operand) => self.deref_lvalue(operand, span),
            _ => {
                let value = self.expr(expr, None).expr;
                self.value_lvalue(value, span)
            }
        }
    }

    fn value_lvalue(&mut self, value: Expr, span: Span) -> Option<Lvalue> {
        let ty = value.ty;
        (!self.checker.types.is_error(ty)).then(|| Lvalue {
            kind: LvalueKind::Value(Box::new(value)),
            ty,
            span,
        })
    }

    fn named_lvalue(&mut self, name: &str, span: Span) -> Option<Lvalue> {
        if let Some(Scoped::Local(local)) = self.lookup(name) {
            let ty = self.locals[local].ty;
            return (!self.checker.types.is_error(ty)).then_some(Lvalue {
                kind: LvalueKind::Local(local),
                ty,
                span,
            });
        }
        if let (None, Some(Symbol::Global(global))) = (self.lookup(name), self.checker.names.get(name)) {
            self.check_half(global, span);
            let ty = self.checker.globals[global].ty;
            return (!self.checker.types.is_error(ty)).then_some(Lvalue {
                kind: LvalueKind::Global(global),
                ty,
                span,
            });
        }
        if let (None, Some(Symbol::PerCpu(map))) = (self.lookup(name), self.checker.names.get(name)) {
            let ty = self.checker.maps[map].value;
            let key = Box::new(self.first_key(span));
            return Some(Lvalue { kind: LvalueKind::Element { map, key }, ty, span });
        }
        if let (None, Some(Symbol::KernelVariable(id))) = (self.lookup(name), self.checker.names.get(name)) {
            return self.kernel_variable(id, span);
        }
        let value = self.expr(&ast::Expr { kind: ast::ExprKind::Name(name.into()), span }, None).expr;
        self.value_lvalue(value, span)
    }

    /// The key of a map that holds a variable.
    pub(super) fn first_key(&self, span: Span) -> Expr {
        Expr { kind: ExprKind::Const(0), ty: self.common().u32, span }
    }

    fn check_half(&mut self, global: GlobalId, span: Span) {
        let one = &self.checker.globals[global];
        if one.kernel_only && self.half() == Half::User {
            let (name, declared) = (one.name.clone(), one.span);
            self.report(
                Diagnostic::error(306, span, format!("`{name}` belongs to the kernel half"))
                    .also(declared, "declared `local` here"),
            );
        }
    }

    fn index_lvalue(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> Option<Lvalue> {
        let base = self.lvalue(base)?;
        let index = self.not_last(|body| body.expr(index, None));
        if let TypeKind::Ptr(_) = self.checker.types.kind(base.ty) {
            return self.pointer_element(base, index, span);
        }
        self.array_element(base, index, span)
    }

    /// Checks an element of an array or a text.
    pub(super) fn array_element(&mut self, base: Lvalue, index: Typed, span: Span) -> Option<Lvalue> {
        let (ty, len) = match self.checker.types.kind(base.ty) {
            TypeKind::Array(element, len) => (*element, *len),
            TypeKind::Str(size) => (self.checker.types.common().char, u64::from(*size)),
            _ => {
                let text = format!("`{}` has no elements", self.type_name(base.ty));
                self.report(Diagnostic::error(402, base.span, text));
                return None;
            }
        };
        if self.checker.types.is_error(index.expr.ty) {
            return None;
        }
        if self.integer_of(index.expr.ty).is_none() {
            let text = format!("expected an integer as index, found `{}`", self.type_name(index.expr.ty));
            self.report(Diagnostic::error(401, index.expr.span, text));
            return None;
        }
        if len == 0 && !is_memory(&base) {
            self.report(
                Diagnostic::error(511, base.span, "a copy has no elements of a flexible array")
                    .help("read them where they are: behind the pointer"),
            );
            return None;
        }
        // A flexible array of a kernel struct has as many elements as the kernel gave it.
        let end = if len == 0 { i128::MAX } else { i128::from(len) };
        if let Some(value) = index.constant
            && !(0..end).contains(&value)
        {
            let text = format!("index {value} is outside `{}`", self.type_name(base.ty));
            let last = if len == 0 { "from 0".to_owned() } else { format!("from 0 to {}", len - 1) };
            self.report(Diagnostic::error(406, index.expr.span, text).label(last));
            return None;
        }
        let index = Box::new(index.expr);
        Some(Lvalue { kind: LvalueKind::Index { base: Box::new(base), index }, ty, span })
    }

    /// Checks `p[i]`, which is `*(p + i)`.
    fn pointer_element(&mut self, base: Lvalue, index: Typed, span: Span) -> Option<Lvalue> {
        self.checker.strict(span, "indexing of a pointer");
        if self.checker.types.is_error(index.expr.ty) {
            return None;
        }
        let (ty, base_span) = (base.ty, base.span);
        let pointer = match base.kind {
            LvalueKind::Value(value) => *value,
            kind => {
                let lvalue = Lvalue { kind, ty, span: base_span };
                Expr { kind: ExprKind::Load(lvalue), ty, span: base_span }
            }
        };
        let Some(moved) = self.pointer_arithmetic(ast::BinaryOp::Add, &Typed::of(pointer), &index, span)
        else {
            let text = format!("expected an integer as index, found `{}`", self.type_name(index.expr.ty));
            self.report(Diagnostic::error(401, index.expr.span, text));
            return None;
        };
        self.follow(moved.expr, span)
    }

    /// Checks a key of a map. A constant beyond the end of an array is an error.
    pub(super) fn map_key(&mut self, map: MapId, key: ElementKey<'_>) -> Expr {
        match key {
            ElementKey::One(key) => self.key_of_map(map, key),
            ElementKey::Nested { outer, inner } => self.nested_key(map, outer, inner),
        }
    }

    fn key_of_map(&mut self, map: MapId, key: &ast::Expr) -> Expr {
        let ty = self.checker.maps[map].key;
        let found = self.not_last(|body| body.expr(key, Some(ty)));
        let one = &self.checker.maps[map];
        if ty == self.checker.types.common().void && !self.checker.types.is_error(found.expr.ty) {
            let text = format!("`{}`, a `{}`, has no keys", one.name, one.kind.name());
            self.report(Diagnostic::error(608, key.span, text));
            return self.error_expr(key.span).expr;
        }
        if let Some(owner) = one.kind.owner() {
            return self.object_key(map, owner, found);
        }
        if one.kind.is_array() {
            self.check_index(map, &found, one.max_entries, key.span);
        }
        self.coerce(found, ty)
    }

    /// Reports a constant index that no array of so many entries has.
    pub(super) fn check_index(&mut self, map: MapId, index: &Typed, entries: u32, span: Span) {
        let Some(index) = index.constant.filter(|index| !(0..i128::from(entries)).contains(index)) else {
            return;
        };
        let text = format!("index {index} is outside `{}`", self.checker.maps[map].name);
        let label = format!("from 0 to {}", entries.saturating_sub(1));
        self.report(Diagnostic::error(406, span, text).label(label));
    }

    /// Checks a key of local storage: a pointer to a struct of this name, whoever declares it, or a socket
    /// from a context.
    fn object_key(&mut self, map: MapId, owner: &str, key: Typed) -> Expr {
        let one = &self.checker.maps[map];
        let (wanted, declared) = (one.key, one.span);
        if self.half() == Half::User && !self.checker.types.is_error(key.expr.ty) {
            let text = format!("`{}` belongs to the kernel half", one.name);
            self.report(
                Diagnostic::error(306, key.expr.span, text)
                    .also(declared, "its values belong to objects of the kernel")
                    .note("there are no pointers to objects of the kernel in userspace")
                    .help("let the kernel half write what userspace needs to another map or a variable"),
            );
            return self.error_expr(key.expr.span).expr;
        }
        let is_owner = match self.checker.types.kind(key.expr.ty) {
            TypeKind::Ptr(to) => match self.checker.types.kind(*to) {
                TypeKind::Struct(id) => self.checker.types.struct_def(*id).name == owner,
                _ => owner == "sock" && self.is_socket_of_context(&key.expr),
            },
            _ => false,
        };
        if is_owner { key.expr } else { self.coerce(key, wanted) }
    }

    fn is_socket_of_context(&self, expr: &Expr) -> bool {
        let ExprKind::Load(Lvalue { kind: LvalueKind::Field { base, field }, .. }) = &expr.kind else {
            return false;
        };
        let TypeKind::Struct(id) = self.checker.types.kind(base.ty) else { return false };
        let def = self.checker.types.struct_def(*id);
        let member = context_members::find(&def.name)
            .filter(|_| def.origin == StructOrigin::Context)
            .and_then(|context| context.field(&def.fields.get(*field)?.name));
        member.is_some_and(|member| member.ty == MemberType::Pointer("bpf_sock"))
    }

    /// Reports a read of a map that userspace may only write.
    pub(super) fn check_readable(&mut self, map: MapId, span: Span) {
        self.check_access(map, WRONLY, span);
    }

    /// Reports a write to a map that userspace may only read.
    pub(super) fn check_writable_map(&mut self, map: MapId, span: Span) {
        self.check_access(map, RDONLY, span);
    }

    fn check_access(&mut self, map: MapId, forbidding: u32, span: Span) {
        let one = &self.checker.maps[map];
        if self.half() == Half::User && one.flags & forbidding != 0 {
            let what = if forbidding == RDONLY { "read-only" } else { "write-only" };
            let text = format!("map `{}` is {what} for userspace", one.name);
            let declared = one.span;
            self.report(Diagnostic::error(603, span, text).also(declared, "its flags say so"));
        }
    }
}

/// Whether an lvalue lies behind a pointer.
fn is_memory(lvalue: &Lvalue) -> bool {
    match &lvalue.kind {
        LvalueKind::Deref(_) => true,
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => is_memory(base),
        _ => false,
    }
}

/// Returns the map if an lvalue is its element or a part of one.
fn element_map(lvalue: &Lvalue) -> Option<MapId> {
    match &lvalue.kind {
        LvalueKind::Element { map, .. } => Some(*map),
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => element_map(base),
        _ => None,
    }
}
