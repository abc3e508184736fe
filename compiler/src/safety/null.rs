//! KS1003: dereferences of pointers that are null on every path.

use std::collections::{BTreeMap, BTreeSet};

use super::dataflow::{self, Rule, is_null, loaded};
use super::{Program, locals};
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::{HirFunction, LocalId, Lvalue, LvalueKind, Stmt, StmtKind};
use crate::source::Span;
use crate::types::{TypeKind, Types};

pub(super) fn check(program: &Program<'_>, diagnostics: &mut Diagnostics) {
    for function in program.hir.functions.iter() {
        let elsewhere = locals::addressed(function);
        let mut rule = Null { types: &program.hir.types, function, elsewhere, diagnostics };
        dataflow::function(program, None, function, &mut rule);
    }
}

struct Null<'a> {
    types: &'a Types,
    function: &'a HirFunction,
    /// Locals that may be set through their address.
    elsewhere: BTreeSet<LocalId>,
    diagnostics: &'a mut Diagnostics,
}

/// Locals that are null, with the source range where they became null.
type FlowState = BTreeMap<LocalId, Span>;

impl Rule for Null<'_> {
    type FlowState = FlowState;

    fn join(known: &mut FlowState, other: FlowState) {
        known.retain(|local, _| other.contains_key(local));
    }

    fn forget(known: &mut FlowState, local: LocalId) {
        known.remove(&local);
    }

    fn tested(known: &mut FlowState, local: LocalId, _null: bool) {
        known.remove(&local);
    }

    fn lvalue(&mut self, known: &mut FlowState, lvalue: &Lvalue) {
        let LvalueKind::Deref(pointer) = &lvalue.kind else { return };
        // One report is enough: later ones would have the same reason.
        let Some(local) = loaded(pointer) else { return };
        let Some(since) = known.remove(&local) else { return };
        let name = &self.function.locals[local].name;
        self.diagnostics.report(
            Diagnostic::error(1003, pointer.span, "this pointer is null")
                .also(since, format!("`{name}` is null from here on"))
                .help(format!("let `{name}` point to something first")),
        );
    }

    fn executed(&mut self, known: &mut FlowState, stmt: &Stmt) {
        let (local, value) = match &stmt.kind {
            StmtKind::Let { local, init } => (*local, init.as_ref()),
            StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, value } => {
                (*local, Some(value))
            }
            StmtKind::Compound { lvalue: Lvalue { kind: LvalueKind::Local(local), .. }, .. }
            | StmtKind::Bind { local, .. }
            | StmtKind::Take { local, .. } => {
                known.remove(local);
                return;
            }
            _ => return,
        };
        known.remove(&local);
        let pointer = matches!(self.types.kind(self.function.locals[local].ty), TypeKind::Ptr(_));
        if pointer && value.is_none_or(is_null) && !self.elsewhere.contains(&local) {
            known.insert(local, stmt.span);
        }
    }
}
