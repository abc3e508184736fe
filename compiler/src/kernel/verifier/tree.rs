//! The verifier's work for the typed tree.

use super::{MAX_DECISIONS_FOLLOWED, MAX_PARTS_ADDED};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, LocalId, Lvalue, LvalueKind, Stmt, StmtKind};
use crate::kernel::Inlining;
use crate::types::Types;

/// The limits of a loop of which the verifier follows each iteration.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    iterations: u64,
    /// The limit of parts of statements and expressions over all iterations.
    parts: u64,
}

impl Limits {
    /// The limits where other loops are available too.
    pub const USUAL: Limits = Limits { iterations: 64, parts: 2048 };
    /// The limits where such loops are the only ones.
    pub const ALONE: Limits = Limits { iterations: 4096, parts: 32_768 };
}

/// Whether the verifier may follow each iteration of a loop.
pub fn may_follow_iterations(
    types: &Types,
    variable: LocalId,
    iterations: u64,
    body: &[Stmt],
    limits: Limits,
) -> bool {
    let mut cost = Cost { types, variable, parts: 0, decisions: 0, is_unknown: false };
    body.iter().for_each(|stmt| visit::stmt(&mut cost, stmt));
    !cost.is_unknown
        && iterations <= limits.iterations
        && iterations.saturating_mul(cost.parts) <= limits.parts
        && iterations.saturating_mul(cost.decisions) <= MAX_DECISIONS_FOLLOWED
}

/// Whether a helper with pointers may be inlined at so many calls: its parts are added for each but the first.
pub fn may_inline_copies(parts: u64, calls: u64, inlining: Inlining) -> bool {
    let added = calls.saturating_sub(1).saturating_mul(parts);
    match inlining {
        Inlining::Always => true,
        Inlining::ByCost => added <= MAX_PARTS_ADDED,
        Inlining::Once => added == 0,
    }
}

struct Cost<'a> {
    types: &'a Types,
    /// The loop variable, whose value the verifier knows in every iteration.
    variable: LocalId,
    parts: u64,
    decisions: u64,
    /// Whether the body has a loop, or a call of code of unknown cost.
    is_unknown: bool,
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
        // The verifier follows a helper at each call.
        self.is_unknown = true;
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
            ExprKind::CallValue { .. } => self.is_unknown = true,
            ExprKind::Truth(_) => self.decisions += 1,
            ExprKind::Match(one) => self.decisions += one.arms.len() as u64,
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.parts += 2;
        match &stmt.kind {
            StmtKind::While { .. } | StmtKind::For { .. } | StmtKind::ForEach { .. } => {
                self.is_unknown = true
            }
            StmtKind::If { .. } | StmtKind::Lock { .. } => self.decisions += 1,
            StmtKind::Assign { lvalue, .. } | StmtKind::Compound { lvalue, .. } => self.index(&lvalue.kind),
            _ => {}
        }
    }
}
