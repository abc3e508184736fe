//! Variables that are bound to a map: `var x = m[k]`, `if (var x = m[k])` (language reference, 5.4).

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::nested_maps::ElementKey;
use super::prescan::strip;
use crate::ast;
use crate::hir::{
    Block, Expr, ExprKind, KernelBuiltin, Local, LocalId, Lvalue, LvalueKind, MapId, Stmt, StmtKind, TakeOp,
};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::TypeId;

/// The expression that binds a variable to a map.
pub(super) enum Source<'e> {
    /// `m[k]`: an entry of a map.
    Element(MapId, ElementKey<'e>),
    /// `q.pop()` or `q.peek()` of a queue or stack.
    Take(MapId, TakeOp),
}

/// Whether a value is text or bytes that are read from memory, which may fail, or a copy of such a variable.
pub(super) fn is_read(value: &Expr, locals: &IndexVec<LocalId, Local>) -> bool {
    let builtin = match &value.kind {
        ExprKind::Kernel(builtin) => builtin,
        ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => return locals[*local].read,
        _ => return false,
    };
    matches!(
        builtin,
        KernelBuiltin::Text(_)
            | KernelBuiltin::Buffer { .. }
            | KernelBuiltin::Path(_)
            | KernelBuiltin::Join { .. }
    )
}

impl Body<'_, '_> {
    /// Returns the source of a binding if an expression is one.
    pub(super) fn source<'e>(&self, expr: &'e ast::Expr) -> Option<Source<'e>> {
        if let Some((map, key)) = self.map_element(expr) {
            return Some(Source::Element(map, key));
        }
        let ast::ExprKind::Call { callee, args } = &strip(expr).kind else { return None };
        let ast::ExprKind::Field { base, arrow: false, name } = &strip(callee).kind else { return None };
        let op = match (name.name.as_str(), args.is_empty()) {
            ("pop", true) => TakeOp::Pop,
            ("peek", true) => TakeOp::Peek,
            _ => return None,
        };
        let Some(Symbol::Map(map)) = self.named_symbol(base) else { return None };
        use crate::hir::MapKind::{Queue, Stack};
        matches!(self.checker.maps[map].kind, Queue | Stack).then_some(Source::Take(map, op))
    }

    /// Returns the statement that sets a variable of the map's value type from the map.
    pub(super) fn bind(&mut self, local: crate::hir::LocalId, source: Source<'_>) -> StmtKind {
        match source {
            Source::Element(map, key) => {
                let key = self.map_key(map, key);
                StmtKind::Bind { local, map, key }
            }
            Source::Take(map, op) => StmtKind::Take { local, map, op },
        }
    }

    pub(super) fn source_type(&mut self, source: &Source<'_>, span: Span) -> TypeId {
        let (Source::Element(map, _) | Source::Take(map, _)) = source;
        self.check_readable(*map, span);
        if let Source::Take(_, TakeOp::Pop) = source {
            self.check_writable_map(*map, span);
        }
        self.checker.maps[*map].value
    }

    /// Declares a variable that is bound to a map: `var name = m[k]`.
    pub(super) fn bind_new(&mut self, name: &ast::Ident, ty: TypeId, source: Source<'_>) -> StmtKind {
        match source {
            Source::Element(map, key) => {
                // The key is evaluated before the name is declared.
                let key = self.map_key(map, key);
                StmtKind::Bind { local: self.declare_local(name, ty), map, key }
            }
            Source::Take(map, op) => StmtKind::Take { local: self.declare_local(name, ty), map, op },
        }
    }

    /// Declares `var name: ty = m[k]` where the map's values have another type: a hidden variable has the
    /// presence bit.
    pub(super) fn bind_converted(
        &mut self,
        name: &ast::Ident,
        ty: TypeId,
        source: Source<'_>,
        span: Span,
        out: &mut Block,
    ) -> StmtKind {
        let (Source::Element(map, _) | Source::Take(map, _)) = source;
        let hidden = self.hidden_local(&name.name, self.checker.maps[map].value, name.span);
        self.locals[hidden].binding = true;
        let kind = self.bind(hidden, source);
        out.push(Stmt { kind, span });
        let loaded = Typed::of(self.load_local(hidden, span));
        let value = self.coerce(loaded, ty);
        let local = self.declare_local(name, ty);
        self.presence.insert(local, hidden);
        StmtKind::Let { local, init: Some(value) }
    }

    /// Lowers `if (var name = value)`: declares the variable before the `if` and tests it.
    pub(super) fn bound_condition(&mut self, name: &ast::Ident, value: &ast::Expr, out: &mut Block) -> Expr {
        let span = name.span;
        let bool = self.checker.types.common().bool;
        if let Some(source) = self.source(value) {
            let ty = self.source_type(&source, value.span);
            let kind = match source {
                Source::Element(map, key) => {
                    let key = self.map_key(map, key);
                    let local = self.declare_local(name, ty);
                    self.locals[local].binding = true;
                    StmtKind::Bind { local, map, key }
                }
                Source::Take(map, op) => StmtKind::Take { local: self.declare_local(name, ty), map, op },
            };
            let (StmtKind::Bind { local, .. } | StmtKind::Take { local, .. }) = kind else {
                unreachable!("made two lines above")
            };
            out.push(Stmt { kind, span });
            return Expr { kind: ExprKind::Bound(local), ty: bool, span };
        }
        let value = self.initialiser(name.span, None, value);
        let ty = self.variable_type(&value);
        let local = self.declare_local(name, ty);
        let read = is_read(&value, &self.locals);
        self.locals[local].read = read;
        out.push(Stmt { kind: StmtKind::Let { local, init: Some(value) }, span });
        if read {
            return Expr { kind: ExprKind::Bound(local), ty: bool, span };
        }
        let loaded = Typed::of(self.load_local(local, span));
        self.truth(loaded)
    }
}
