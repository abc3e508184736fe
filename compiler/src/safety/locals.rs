//! What a body does with its locals.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, Function, LocalId, Place, PlaceKind, Stmt, StmtKind};

/// The local that a place is, or is a part of.
pub(super) fn root(place: &Place) -> Option<LocalId> {
    match &place.kind {
        PlaceKind::Local(local) => Some(*local),
        PlaceKind::Field { base, .. } | PlaceKind::Index { base, .. } => root(base),
        _ => None,
    }
}

/// Locals whose address is taken.
pub(super) fn addressed(function: &Function) -> BTreeSet<LocalId> {
    #[derive(Default)]
    struct Addressed(BTreeSet<LocalId>);
    impl Visitor for Addressed {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::AddrOf(place) = &expr.kind {
                self.0.extend(root(place));
            }
        }
    }
    let mut found = Addressed::default();
    visit::block(&mut found, &function.body);
    found.0
}

/// How often each local is set as a whole; parameters are set once by the caller.
pub(super) fn times_set(function: &Function) -> BTreeMap<LocalId, u32> {
    struct Set(BTreeMap<LocalId, u32>);
    impl Visitor for Set {
        fn stmt(&mut self, stmt: &Stmt) {
            let locals: [Option<LocalId>; 2] = match &stmt.kind {
                StmtKind::Let { local, .. }
                | StmtKind::Bind { local, .. }
                | StmtKind::Take { local, .. }
                | StmtKind::For { local, .. } => [Some(*local), None],
                StmtKind::ForEach { key, value, .. } => [Some(*key), Some(*value)],
                StmtKind::Assign { place, .. } | StmtKind::Compound { place, .. } => match place.kind {
                    PlaceKind::Local(local) => [Some(local), None],
                    _ => [None, None],
                },
                _ => [None, None],
            };
            for local in locals.into_iter().flatten() {
                *self.0.entry(local).or_default() += 1;
            }
        }
    }
    let mut set = Set(function.params.iter().map(|param| (*param, 1)).collect());
    visit::block(&mut set, &function.body);
    set.0
}
