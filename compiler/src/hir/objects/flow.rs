//! Origins and copies of a function's pointers.

use std::collections::{BTreeMap, BTreeSet};

use super::Maps;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    BinaryOp, Expr, ExprKind, HirFunction, Local, LocalId, Lvalue, LvalueKind, MapId, Stmt, StmtKind,
};
use crate::source::Span;
use crate::types::TypeId;

/// Hidden variables that record the map entry a pointer came from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The number of the map, from 1; 0 for no map.
    pub(super) map: LocalId,
    /// For each map, the variable with the key.
    pub(super) keys: BTreeMap<MapId, LocalId>,
}

/// Creates hidden variables for each local through which a kernel function may have to delete an entry: the
/// locals that it deletes, and the locals that these are copied from.
pub(super) fn origins(function: &mut HirFunction, maps: &Maps, u32: TypeId) -> BTreeMap<LocalId, Origin> {
    let mut flow = Flow::default();
    visit::block(&mut flow, &function.body);
    let mut wanted = flow.deleted;
    loop {
        let sources: Vec<_> =
            flow.copies.iter().filter(|(to, _)| wanted.contains(to)).map(|(_, from)| *from).collect();
        let before = wanted.len();
        wanted.extend(sources);
        if wanted.len() == before {
            break;
        }
    }
    let mut found = BTreeMap::new();
    for id in wanted {
        let (ty, span, foreign) =
            (function.locals[id].ty, function.locals[id].span, function.params.contains(&id));
        let fitting: Vec<_> = maps.iter().filter(|(_, owned)| owned.pointer == ty).collect();
        if fitting.is_empty() || foreign || flow.unknown.contains(&id) {
            continue;
        }
        let mut hidden = |ty| hidden_local(function, ty, span);
        let map = hidden(u32);
        let keys = fitting.into_iter().map(|(map, owned)| (*map, hidden(owned.key))).collect();
        found.insert(id, Origin { map, keys });
    }
    // A local that is copied from one of unknown origin is of unknown origin itself.
    loop {
        let lost = flow.copies.iter().find(|(to, from)| found.contains_key(to) && !found.contains_key(from));
        let Some((to, _)) = lost else { return found };
        found.remove(to);
    }
}

pub(super) fn hidden_local(function: &mut HirFunction, ty: TypeId, span: Span) -> LocalId {
    function.locals.push(Local::hidden(ty, span))
}

/// Deletions and copies of a function's pointers.
#[derive(Default)]
struct Flow {
    deleted: BTreeSet<LocalId>,
    copies: BTreeSet<(LocalId, LocalId)>,
    /// Locals that are set from an expression of unknown origin.
    unknown: BTreeSet<LocalId>,
}

impl Visitor for Flow {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Free(value) => self.deleted.extend(variable(value)),
            StmtKind::Let { local, init: Some(value) }
            | StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                match (&value.kind, variable(value)) {
                    (_, Some(from)) => {
                        self.copies.insert((*local, from));
                    }
                    (ExprKind::New | ExprKind::Const(0), None) => {}
                    (ExprKind::Load(Lvalue { kind: LvalueKind::Element { .. }, .. }), None) => {}
                    _ => {
                        self.unknown.insert(*local);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the locals of a userspace function whose pointers to objects have no other copies: only `new`,
/// elements and null are assigned to them, and they are only dereferenced, compared, deleted and stored in
/// maps.
pub(super) fn own(function: &HirFunction, maps: &Maps) -> BTreeSet<LocalId> {
    let mut flow = Flow::default();
    visit::block(&mut flow, &function.body);
    let mut uses = Uses { maps, all: BTreeMap::new(), harmless: BTreeMap::new() };
    visit::block(&mut uses, &function.body);
    let given = flow.copies.iter().map(|(to, _)| *to).chain(function.params.iter().copied());
    let shared: BTreeSet<_> = given.chain(flow.unknown).collect();
    let (all, harmless) = (uses.all, uses.harmless);
    let own = all.into_iter().filter(|(local, number)| harmless.get(local) == Some(number));
    own.map(|(local, _)| local).filter(|local| !shared.contains(local)).collect()
}

/// Number of uses of each local, and number of those that make no copy of its value.
struct Uses<'a> {
    maps: &'a Maps,
    all: BTreeMap<LocalId, usize>,
    harmless: BTreeMap<LocalId, usize>,
}

impl Uses<'_> {
    fn harmless(&mut self, expr: &Expr) {
        if let Some(local) = variable(expr) {
            *self.harmless.entry(local).or_default() += 1;
        }
    }
}

impl Visitor for Uses<'_> {
    fn lvalue(&mut self, lvalue: &Lvalue) {
        match &lvalue.kind {
            LvalueKind::Local(local) => *self.all.entry(*local).or_default() += 1,
            LvalueKind::Deref(pointer) => self.harmless(pointer),
            _ => {}
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Truth(value) | ExprKind::IsNull(value) => self.harmless(value),
            ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ne, left, right) => {
                self.harmless(left);
                self.harmless(right);
            }
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Free(value) => self.harmless(value),
            StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, .. } => {
                *self.harmless.entry(*local).or_default() += 1;
            }
            StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Element { map, .. }, .. }, value }
                if self.maps.contains_key(map) =>
            {
                self.harmless(value);
            }
            _ => {}
        }
    }
}

/// Returns the local whose value an expression is.
pub(super) fn variable(expr: &Expr) -> Option<LocalId> {
    match expr.kind {
        ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => Some(local),
        _ => None,
    }
}
