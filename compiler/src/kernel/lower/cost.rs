//! Estimates the verifier's work for a loop of which it follows every iteration.

use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, LocalId, Lvalue, LvalueKind, Stmt, StmtKind};
use crate::types::Types;

/// The limits of an ordinary loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    iterations: u64,
    /// The limit of parts of statements and expressions over all iterations. The verifier processes at most a
    /// million instructions.
    parts: u64,
}

impl Limits {
    /// The limits where other loops are available too.
    pub(super) const USUAL: Limits = Limits { iterations: 64, parts: 2048 };
    /// The limits where ordinary loops are the only ones.
    pub(super) const ALONE: Limits = Limits { iterations: 4096, parts: 32_768 };
}

/// The limit of decisions on one path through all iterations: each may double the number of paths.
const MAX_DECISIONS: u64 = 6;

/// Whether a loop is small enough to be an ordinary one.
pub(super) fn is_small(
    types: &Types,
    variable: LocalId,
    iterations: u64,
    body: &[Stmt],
    limits: Limits,
) -> bool {
    let mut cost = Cost { types, variable, parts: 0, decisions: 0, has_loop: false };
    body.iter().for_each(|stmt| visit::stmt(&mut cost, stmt));
    !cost.has_loop
        && iterations <= limits.iterations
        && iterations.saturating_mul(cost.parts) <= limits.parts
        && iterations.saturating_mul(cost.decisions) <= MAX_DECISIONS
}

struct Cost<'a> {
    types: &'a Types,
    /// The loop variable, whose value the verifier knows in every iteration.
    variable: LocalId,
    parts: u64,
    decisions: u64,
    has_loop: bool,
}

impl Cost<'_> {
    fn is_known(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Const(_) => true,
            ExprKind::Load(lvalue) => {
                matches!(lvalue.kind, LvalueKind::Local(local) if local == self.variable)
            }
            ExprKind::Convert(from) => self.is_known(from),
            _ => false,
        }
    }

    fn index(&mut self, kind: &LvalueKind) {
        match kind {
            LvalueKind::Index { base, index } => {
                self.decisions += u64::from(!self.is_known(index));
                self.index(&base.kind);
            }
            LvalueKind::Field { base, .. } => self.index(&base.kind),
            _ => {}
        }
    }
}

impl Visitor for Cost<'_> {
    fn map(&mut self, _id: crate::hir::MapId) {
        self.decisions += 3;
    }

    fn function(&mut self, _id: crate::hir::FuncId) {
        // The verifier follows the body of a helper at each call, and the body may hold any number of
        // decisions.
        self.has_loop = true;
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let LvalueKind::Deref(_) = lvalue.kind {
            self.decisions += 2;
        }
    }

    fn expr(&mut self, expr: &Expr) {
        self.parts += 1 + self.types.size(expr.ty) / 8;
        match &expr.kind {
            ExprKind::Load(lvalue) => self.index(&lvalue.kind),
            ExprKind::Logic(..) => self.decisions += 1,
            ExprKind::Binary(op, ..) if op.is_comparison() => self.decisions += 1,
            ExprKind::CallValue { .. } => self.has_loop = true,
            ExprKind::Truth(_) => self.decisions += 1,
            ExprKind::Match(one) => self.decisions += one.arms.len() as u64,
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.parts += 2;
        match &stmt.kind {
            StmtKind::While { .. } | StmtKind::For { .. } | StmtKind::ForEach { .. } => self.has_loop = true,
            StmtKind::If { .. } => self.decisions += 1,
            StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } => self.index(&lvalue.kind),
            _ => {}
        }
    }
}
