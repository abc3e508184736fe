//! Detects recursion: functions that may be entered again before they return. A function value may refer to
//! every function that is used as a value.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, Hir, RingId, UserBuiltin};

/// Returns the functions among these that may call themselves, directly or indirectly.
pub fn recursive(hir: &Hir, functions: &[FuncId]) -> BTreeSet<FuncId> {
    let mut calls: BTreeMap<FuncId, Calls> = BTreeMap::new();
    for id in functions {
        let mut found = Calls::default();
        visit::block(&mut found, &hir.functions[*id].body);
        found.direct.extend(found.rings.iter().filter_map(|ring| hir.rings[*ring].default_handler));
        calls.insert(*id, found);
    }
    let values: BTreeSet<FuncId> = calls.values().flat_map(|one| one.values.iter().copied()).collect();
    for one in calls.values_mut().filter(|one| one.through_value) {
        one.direct.extend(&values);
    }
    functions.iter().copied().filter(|id| reaches(&calls, *id)).collect()
}

/// Outgoing calls of a function.
#[derive(Debug, Default)]
struct Calls {
    direct: BTreeSet<FuncId>,
    through_value: bool,
    /// Functions that it uses as values.
    values: BTreeSet<FuncId>,
    /// Rings that it dispatches.
    rings: BTreeSet<RingId>,
}

impl Visitor for Calls {
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Call { func, .. } => {
                self.direct.insert(*func);
            }
            ExprKind::CallValue { .. } => self.through_value = true,
            ExprKind::User(UserBuiltin::Dispatch { rings, .. }) => {
                self.through_value = true;
                self.rings.extend(rings);
            }
            ExprKind::User(UserBuiltin::OnEvent(_, handler)) => {
                self.values.insert(handler.0);
            }
            ExprKind::Function(func) => {
                self.values.insert(*func);
            }
            _ => {}
        }
    }
}

/// Returns whether a function reaches itself in the call graph.
fn reaches(calls: &BTreeMap<FuncId, Calls>, id: FuncId) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![id];
    while let Some(next) = open.pop() {
        let callees = calls.get(&next).map(|one| &one.direct);
        for callee in callees.into_iter().flatten() {
            if *callee == id {
                return true;
            }
            if seen.insert(*callee) {
                open.push(*callee);
            }
        }
    }
    false
}
