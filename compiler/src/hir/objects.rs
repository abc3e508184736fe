//! Lowers maps of pointers: the objects lie in the map itself.
//!
//! The checker's nodes are rewritten into maps whose values lie in them, which the back ends know. From here
//! on `map.value` is the object's type (`Map::objects` is set):
//!
//! ```text
//! m[k] as a value     -> &m[k]                     m[k]->f      -> m[k].f
//! var q = m[k]        -> q = &m[k]                 if (var q..) -> q is not null
//! m[k] = p            -> if (p == null) { delete m[k] } else { m[k] = *p; .. }, where the last step is
//!                        release p; p = &m[k]      (kernel)
//!                        transfer p to m[k]        (userspace)
//! for (k, q in m)     -> for (k, _ in m) { q = &m[k] .. }
//! delete q (kernel)   -> release q; if q came from m: delete m[the key it came with]
//! ```
//!
//! In the kernel half an address does not identify its entry. Where a function deletes through a variable,
//! hidden variables record the map and key that the pointer came from. In the kernel half, other copies of a
//! stored pointer behave like copies of a deleted pointer: reads return 0. In userspace they point to the
//! entry.

mod flow;

use std::collections::{BTreeMap, BTreeSet};

use self::flow::{Origin, hidden_local, origins, own, variable};
use super::visit_mut::{self, VisitorMut};
use super::{
    BinaryOp, Block, Expr, ExprKind, Half, Hir, HirFunction, LocalId, Lvalue, LvalueKind, MapId,
    MapIteration, MapKind, Stmt, StmtKind,
};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Rewrites all functions and the maps.
pub fn rewrite(hir: &mut Hir) {
    let maps: Maps = hir.maps.iter_enumerated().filter_map(|(id, _)| Some((id, owned(hir, id)?))).collect();
    if maps.is_empty() {
        return;
    }
    let (bool, u32) = (hir.types.common().bool, hir.types.common().u32);
    for function in hir.functions.iter_mut() {
        let (origins, own) = match function.kind.half() {
            Half::Kernel => (origins(function, &maps, u32), BTreeSet::new()),
            Half::User => (BTreeMap::new(), own(function, &maps)),
        };
        let mut body = std::mem::take(&mut function.body);
        visit_mut::block(&mut Rewriter { maps: &maps, function, origins, own, bool, u32 }, &mut body);
        function.body = body;
    }
    for (id, owned) in maps {
        hir.maps[id].value = owned.object;
        hir.maps[id].objects = true;
    }
}

/// A map that owns objects.
#[derive(Debug, Clone, Copy)]
struct Owned {
    key: TypeId,
    /// The value type as the script declares it.
    pointer: TypeId,
    object: TypeId,
}

type Maps = BTreeMap<MapId, Owned>;

/// Returns the key, pointer and object types if the map owns objects. In maps of other kinds a pointer would
/// be a copy, could not be null, or would not identify its entry.
fn owned(hir: &Hir, id: MapId) -> Option<Owned> {
    let map = &hir.maps[id];
    match *hir.types.kind(map.value) {
        TypeKind::Ptr(object) if matches!(map.kind, MapKind::Hash | MapKind::LruHash) => {
            Some(Owned { key: map.key, pointer: map.value, object })
        }
        _ => None,
    }
}

/// Whether an lvalue is a variable or a field of one.
fn is_variable(lvalue: &Lvalue) -> bool {
    match &lvalue.kind {
        LvalueKind::Local(_) | LvalueKind::Global(_) => true,
        LvalueKind::Field { base, .. } => is_variable(base),
        _ => false,
    }
}

struct Rewriter<'a> {
    maps: &'a Maps,
    function: &'a mut HirFunction,
    origins: BTreeMap<LocalId, Origin>,
    /// The locals whose pointers have no other copies.
    own: BTreeSet<LocalId>,
    bool: TypeId,
    u32: TypeId,
}

impl VisitorMut for Rewriter<'_> {
    fn block(&mut self, block: &mut Block) {
        for stmt in std::mem::take(block) {
            self.statement(stmt, block);
        }
    }

    fn lvalue(&mut self, lvalue: &mut Lvalue) {
        let LvalueKind::Deref(pointer) = &lvalue.kind else { return };
        if let Some((map, key)) = self.element(pointer) {
            *lvalue = Lvalue { kind: LvalueKind::Element { map, key: Box::new(key) }, ..*lvalue };
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        if let Some((map, key)) = self.element(expr) {
            *expr = self.address(map, key, expr.span);
        } else if let ExprKind::Bound(local) = expr.kind
            && self.maps.values().any(|owned| owned.pointer == self.function.locals[local].ty)
        {
            expr.kind = ExprKind::Truth(Box::new(self.load(local, expr.span)));
        }
    }
}

impl Rewriter<'_> {
    /// Returns the map and the key if an expression is the value of an element.
    fn element(&self, expr: &Expr) -> Option<(MapId, Expr)> {
        match &expr.kind {
            ExprKind::Load(lvalue) => self.element_lvalue(lvalue),
            _ => None,
        }
    }

    fn element_lvalue(&self, lvalue: &Lvalue) -> Option<(MapId, Expr)> {
        match &lvalue.kind {
            LvalueKind::Element { map, key } if self.maps.get(map)?.pointer == lvalue.ty => {
                Some((*map, (**key).clone()))
            }
            _ => None,
        }
    }

    fn statement(&mut self, stmt: Stmt, out: &mut Block) {
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Bind { local, map, key } if self.maps.contains_key(map) => {
                self.bind(*local, *map, key.clone(), span, out);
            }
            StmtKind::Let { local, init: Some(value) }
            | StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value }
                if self.element(value).is_some() =>
            {
                if let Some((map, key)) = self.element(value) {
                    self.bind(*local, map, key, span, out);
                }
            }
            StmtKind::Assign { lvalue, value } if self.element_lvalue(lvalue).is_some() => {
                if let Some((map, key)) = self.element_lvalue(lvalue) {
                    self.store(map, key, value.clone(), span, out);
                }
            }
            StmtKind::Free(pointer) if self.function.kind.half() == Half::Kernel => {
                match variable(pointer).and_then(|local| self.origins.get(&local)).cloned() {
                    Some(origin) => self.free(pointer.clone(), &origin, span, out),
                    None => out.push(stmt),
                }
            }
            StmtKind::Let { local, init: Some(value) }
            | StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                self.set_origin(*local, value, span, out);
                out.push(stmt);
            }
            StmtKind::Let { local, init: None } => {
                let null = Expr { kind: ExprKind::Const(0), ty: self.u32, span };
                self.set_origin(*local, &null, span, out);
                out.push(stmt);
            }
            StmtKind::ForEach { iteration: MapIteration::Map(map), .. } if self.maps.contains_key(map) => {
                let map = *map;
                out.push(self.iteration(stmt, map));
            }
            _ => out.push(stmt),
        }
    }

    /// Lowers `local = m[key]`.
    fn bind(&mut self, local: LocalId, map: MapId, key: Expr, span: Span, out: &mut Block) {
        self.function.locals[local].binding = false;
        let key = self.remembered_key(local, map, key, span, out);
        let init = Some(self.address(map, key, span));
        out.push(Stmt { kind: StmtKind::Let { local, init }, span });
    }

    /// Returns the key. If the origin of the local is tracked, records map and key in its hidden variables.
    fn remembered_key(&self, local: LocalId, map: MapId, key: Expr, span: Span, out: &mut Block) -> Expr {
        let Some(origin) = self.origins.get(&local) else { return key };
        let Some(kept) = origin.keys.get(&map).copied() else { return key };
        out.push(Stmt { kind: StmtKind::Let { local: kept, init: Some(key) }, span });
        let number = self.number(map, span);
        out.push(Stmt { kind: StmtKind::Let { local: origin.map, init: Some(number) }, span });
        self.load(kept, span)
    }

    /// Lowers `m[key] = value`.
    fn store(&mut self, map: MapId, key: Expr, value: Expr, span: Span, out: &mut Block) {
        let owned = self.maps[&map];
        let kept = hidden_local(self.function, owned.key, span);
        out.push(Stmt { kind: StmtKind::Let { local: kept, init: Some(key) }, span });
        let key = self.load(kept, span);
        let remove = Stmt { kind: StmtKind::Remove { map, key: key.clone() }, span };
        if let ExprKind::Const(0) = value.kind {
            return out.push(remove);
        }
        // A global or a field that held the object holds the entry's address afterwards, as a local does.
        let holder = match &value.kind {
            ExprKind::Load(lvalue) if variable(&value).is_none() && is_variable(lvalue) => {
                Some(lvalue.clone())
            }
            _ => None,
        };
        let copied = match (&value.kind, variable(&value)) {
            (ExprKind::New, _) => false,
            (_, Some(local)) => !self.own.contains(&local),
            _ => true,
        };
        let local = variable(&value).unwrap_or_else(|| {
            let local = hidden_local(self.function, owned.pointer, span);
            out.push(Stmt { kind: StmtKind::Let { local, init: Some(value) }, span });
            local
        });
        let pointer = self.load(local, span);
        let target = Lvalue { kind: LvalueKind::Deref(Box::new(pointer.clone())), ty: owned.object, span };
        let object = Expr { kind: ExprKind::Load(target), ty: owned.object, span };
        let kind = LvalueKind::Element { map, key: Box::new(key.clone()) };
        let lvalue = Lvalue { kind, ty: owned.object, span };
        let mut some = vec![Stmt { kind: StmtKind::Assign { lvalue, value: object }, span }];
        match self.function.kind.half() {
            Half::Kernel => {
                some.push(Stmt { kind: StmtKind::Release(pointer.clone()), span });
                self.bind(local, map, key, span, &mut some);
            }
            Half::User => {
                self.function.locals[local].binding = false;
                some.push(Stmt { kind: StmtKind::Give { local, map, key, copied }, span });
            }
        }
        if let Some(lvalue) = holder {
            some.push(Stmt { kind: StmtKind::Assign { lvalue, value: pointer.clone() }, span });
        }
        let null = ExprKind::IsNull(Box::new(pointer));
        let cond = Expr { kind: null, ty: self.bool, span };
        out.push(Stmt { kind: StmtKind::If { cond, then: vec![remove], otherwise: some }, span });
    }

    /// Lowers `delete pointer` for a variable.
    fn free(&mut self, pointer: Expr, origin: &Origin, span: Span, out: &mut Block) {
        out.push(Stmt { kind: StmtKind::Release(pointer), span });
        for (map, key) in &origin.keys {
            let sides = [self.load(origin.map, span), self.number(*map, span)].map(Box::new);
            let [left, right] = sides;
            let cond = Expr { kind: ExprKind::Binary(BinaryOp::Eq, left, right), ty: self.bool, span };
            let remove = StmtKind::Remove { map: *map, key: self.load(*key, span) };
            let then = vec![Stmt { kind: remove, span }];
            out.push(Stmt { kind: StmtKind::If { cond, then, otherwise: Vec::new() }, span });
        }
        let none = Expr { kind: ExprKind::Const(0), ty: self.u32, span };
        out.push(Stmt { kind: StmtKind::Let { local: origin.map, init: Some(none) }, span });
    }

    /// Updates the origin of a local that is set to a value other than an element.
    fn set_origin(&self, local: LocalId, value: &Expr, span: Span, out: &mut Block) {
        let Some(origin) = self.origins.get(&local) else { return };
        if let ExprKind::AddrOf(Lvalue { kind: LvalueKind::Element { map, .. }, ty, .. }) = &value.kind
            && self.maps.get(map).is_some_and(|owned| owned.object == *ty)
        {
            // This assignment comes from `bind`, which has set the origin.
            return;
        }
        let from = variable(value).and_then(|from| self.origins.get(&from));
        let Some(from) = from else {
            let none = Expr { kind: ExprKind::Const(0), ty: self.u32, span };
            return out.push(Stmt { kind: StmtKind::Let { local: origin.map, init: Some(none) }, span });
        };
        let keys = origin.keys.iter().filter_map(|(map, key)| Some((*key, *from.keys.get(map)?)));
        for (to, from) in keys.chain([(origin.map, from.map)]).filter(|(to, from)| to != from) {
            let init = Some(self.load(from, span));
            out.push(Stmt { kind: StmtKind::Let { local: to, init }, span });
        }
    }

    /// Lowers an iteration: the value of each iteration is the entry's address.
    fn iteration(&mut self, stmt: Stmt, map: MapId) -> Stmt {
        let span = stmt.span;
        let StmtKind::ForEach { key, value, iteration, mut body } = stmt.kind else { return stmt };
        let copy = hidden_local(self.function, self.maps[&map].object, span);
        let entry = self.load(key, span);
        let mut first = Block::new();
        self.bind(value, map, entry, span, &mut first);
        body.splice(0..0, first);
        Stmt { kind: StmtKind::ForEach { key, value: copy, iteration, body }, span }
    }

    /// Returns the address `&m[key]` of an entry.
    fn address(&self, map: MapId, key: Expr, span: Span) -> Expr {
        let owned = self.maps[&map];
        let lvalue = Lvalue { kind: LvalueKind::Element { map, key: Box::new(key) }, ty: owned.object, span };
        Expr { kind: ExprKind::AddrOf(lvalue), ty: owned.pointer, span }
    }

    /// The number of the map in `Origin::map`, from 1.
    fn number(&self, map: MapId, span: Span) -> Expr {
        let number = self.maps.keys().position(|one| *one == map).map_or(0, |at| at as u64 + 1);
        Expr { kind: ExprKind::Const(number), ty: self.u32, span }
    }

    fn load(&self, local: LocalId, span: Span) -> Expr {
        let ty = self.function.locals[local].ty;
        Expr { kind: ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), ty, span }), ty, span }
    }
}
