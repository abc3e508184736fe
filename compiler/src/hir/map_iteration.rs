//! Lowers `for (k, v in m)` in the kernel half: `v` is bound to the entry. In an array every index is
//! present, so iterating one is a loop over numbers.
//!
//! ```text
//! for (k, v in m) { .. }  ->  for (i in 0..entries) { k = i as its type; v = m[k]; .. }
//! ```

use ks_wit::object::MAX_ITERATIONS;

use super::visit_mut::{self, VisitorMut};
use super::{
    Block, Expr, ExprKind, Half, Hir, Local, LocalId, Lvalue, LvalueKind, Map, MapId, MapIteration, Stmt,
    StmtKind,
};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::TypeId;

/// Rewrites the functions of the kernel half.
pub fn rewrite(hir: &mut Hir) {
    let u32 = hir.types.common().u32;
    for function in hir.functions.iter_mut().filter(|one| one.kind.half() == Half::Kernel) {
        let mut body = std::mem::take(&mut function.body);
        visit_mut::block(&mut Rewriter { maps: &hir.maps, locals: &mut function.locals, u32 }, &mut body);
        function.body = body;
    }
}

struct Rewriter<'a> {
    maps: &'a IndexVec<MapId, Map>,
    locals: &'a mut IndexVec<LocalId, Local>,
    u32: TypeId,
}

impl VisitorMut for Rewriter<'_> {
    fn stmt(&mut self, stmt: &mut Stmt) {
        let span = stmt.span;
        let StmtKind::ForEach { key, value, iteration: MapIteration::Map(map), body } = &mut stmt.kind else {
            return;
        };
        // The pointer to an object is not a binding: it is a copy of the entry's address.
        self.locals[*value].binding = !self.maps[*map].objects;
        let entries = self.maps[*map].max_entries;
        if !self.maps[*map].kind.is_array() || u64::from(entries) > MAX_ITERATIONS {
            return;
        }
        let (key, value, map, body) = (*key, *value, *map, std::mem::take(body));
        stmt.kind = self.over_indices(key, value, map, entries, body, span);
    }
}

impl Rewriter<'_> {
    fn over_indices(
        &mut self,
        key: LocalId,
        value: LocalId,
        map: MapId,
        entries: u32,
        body: Block,
        span: Span,
    ) -> StmtKind {
        let key_type = self.locals[key].ty;
        let mut stmts = Vec::with_capacity(body.len() + 2);
        let index = if key_type == self.u32 {
            key
        } else {
            let index = Local { ty: self.u32, binding: false, ..self.locals[key].clone() };
            let index = self.locals.push(index);
            let number = Box::new(self.read(index, span));
            let init = Expr { kind: ExprKind::Convert(number), ty: key_type, span };
            stmts.push(Stmt { kind: StmtKind::Let { local: key, init: Some(init) }, span });
            index
        };
        let at = self.read(key, span);
        let at = if self.maps[map].key == key_type {
            at
        } else {
            Expr { kind: ExprKind::Convert(Box::new(at)), ty: self.maps[map].key, span }
        };
        stmts.push(Stmt { kind: StmtKind::Bind { local: value, map, key: at }, span });
        stmts.extend(body);
        let constant = |bits: u32| Expr { kind: ExprKind::Const(bits.into()), ty: self.u32, span };
        StmtKind::For { local: index, start: constant(0), end: constant(entries), body: stmts }
    }

    fn read(&self, local: LocalId, span: Span) -> Expr {
        let ty = self.locals[local].ty;
        Expr { kind: ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), ty, span }), ty, span }
    }
}
