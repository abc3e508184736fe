//! Uses of a body's locals.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, HirFunction, LocalId, Lvalue, LvalueKind, Stmt, StmtKind};

/// Returns the local if an lvalue is one or a part of one.
pub(super) fn root(lvalue: &Lvalue) -> Option<LocalId> {
    match &lvalue.kind {
        LvalueKind::Local(local) => Some(*local),
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => root(base),
        _ => None,
    }
}

/// Returns the locals whose address is taken.
pub(super) fn addressed(function: &HirFunction) -> BTreeSet<LocalId> {
    #[derive(Default)]
    struct Addressed(BTreeSet<LocalId>);
    impl Visitor for Addressed {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::AddrOf(lvalue) = &expr.kind {
                self.0.extend(root(lvalue));
            }
        }
    }
    let mut found = Addressed::default();
    visit::block(&mut found, &function.body);
    found.0
}

/// Returns how often each local is set as a whole; the caller sets parameters once.
pub(super) fn times_set(function: &HirFunction) -> BTreeMap<LocalId, u32> {
    struct Set(BTreeMap<LocalId, u32>);
    impl Visitor for Set {
        fn stmt(&mut self, stmt: &Stmt) {
            let locals: [Option<LocalId>; 2] = match &stmt.kind {
                StmtKind::Let { local, .. }
                | StmtKind::Bind { local, .. }
                | StmtKind::Take { local, .. }
                | StmtKind::For { local, .. } => [Some(*local), None],
                StmtKind::ForEach { key, value, .. } => [Some(*key), Some(*value)],
                StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } => match lvalue.kind {
                    LvalueKind::Local(local) => [Some(local), None],
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
