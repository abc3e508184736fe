//! Forward data-flow analysis over the structured control flow of a body.
//!
//! A loop's body is visited once; before it, the state of every local that the loop mentions is dropped. So
//! rules find fewer facts than there are, never more. The time is linear in the length of the body times the
//! depth of its loops.

use std::collections::BTreeSet;

use super::Program;
use super::calls::Callee;
use crate::hir::flow;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    BinaryOp, Block, CatchPattern, Expr, ExprKind, FuncId, HirFunction, LocalId, LogicOp, Lvalue, LvalueKind,
    Match, Stmt, StmtKind, UnaryOp,
};
use crate::index::IndexVec;
use crate::source::Span;

/// The state and transfer functions of a rule.
pub(super) trait Rule {
    /// The facts that hold at one point.
    type FlowState: Clone + Default;

    /// Joins the states of two paths.
    fn join(known: &mut Self::FlowState, other: Self::FlowState);
    /// Drops all facts about a local, which may have any value from here on.
    fn forget(known: &mut Self::FlowState, local: LocalId);
    /// Records that a pointer was compared with null.
    fn tested(known: &mut Self::FlowState, local: LocalId, null: bool);
    /// Visits a statement without blocks, before its expressions are evaluated.
    fn begun(&mut self, _stmt: &Stmt) {}
    /// Visits an expression, before its parts are evaluated.
    fn expr(&mut self, _known: &mut Self::FlowState, _expr: &Expr) {}
    /// Visits an lvalue, before its parts are evaluated.
    fn lvalue(&mut self, known: &mut Self::FlowState, lvalue: &Lvalue);
    /// Applies the effects of an expression after its evaluation.
    fn evaluated(&mut self, _known: &mut Self::FlowState) {}
    /// Applies the effects of a statement without blocks, after its expressions are evaluated.
    fn executed(&mut self, known: &mut Self::FlowState, stmt: &Stmt);
    /// Ends the scopes of these variables: by a jump at this source range, or at the end of the block.
    fn left(&mut self, _known: &mut Self::FlowState, _locals: &[LocalId], _jump: Option<Span>) {}
}

/// Analyses the body of a function with a rule.
pub(super) fn function<R: Rule>(
    program: &Program<'_>,
    throwing: Option<&IndexVec<FuncId, bool>>,
    function: &HirFunction,
    rule: &mut R,
) {
    let mut analysis = Analysis {
        program,
        throwing,
        function,
        rule,
        known: Some(R::FlowState::default()),
        declared: Vec::new(),
        loops: Vec::new(),
        try_targets: Vec::new(),
    };
    analysis.block(&function.body);
}

struct Analysis<'a, R: Rule> {
    program: &'a Program<'a>,
    throwing: Option<&'a IndexVec<FuncId, bool>>,
    function: &'a HirFunction,
    rule: &'a mut R,
    /// The state at the current point; none if it is unreachable.
    known: Option<R::FlowState>,
    /// The variables in scope, except those that are bound to map entries.
    declared: Vec<LocalId>,
    loops: Vec<Target<R::FlowState>>,
    try_targets: Vec<Target<R::FlowState>>,
}

/// The target of jumps.
struct Target<K> {
    /// The number of variables in scope at the target.
    declared: usize,
    /// The joined state of all jumps to it; none if there is none yet.
    known: Option<K>,
}

fn join<R: Rule>(into: &mut Option<R::FlowState>, other: Option<R::FlowState>) {
    match (into.as_mut(), other) {
        (Some(known), Some(other)) => R::join(known, other),
        (None, other) => *into = other,
        (Some(_), None) => {}
    }
}

impl<R: Rule> Analysis<'_, R> {
    fn block(&mut self, block: &Block) {
        let start = self.declared.len();
        block.iter().for_each(|stmt| self.statement(stmt));
        self.leave(start, None);
        self.declared.truncate(start);
    }

    fn leave(&mut self, from: usize, jump: Option<Span>) {
        if let Some(known) = &mut self.known {
            self.rule.left(known, &self.declared[from..], jump);
        }
    }

    fn evaluate(&mut self, expr: &Expr) {
        visit::expr(self, expr);
        self.evaluated();
    }

    fn evaluated(&mut self) {
        if let Some(known) = &mut self.known {
            self.rule.evaluated(known);
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        if self.known.is_none() {
            return;
        }
        match &stmt.kind {
            StmtKind::If { cond, then, otherwise } => self.conditional(cond, then, otherwise),
            StmtKind::While { cond, body } => {
                self.repeated(stmt, |analysis| {
                    analysis.evaluate(cond);
                    let before = analysis.known.clone();
                    analysis.assume(cond, true);
                    analysis.block(body);
                    analysis.known = before;
                    analysis.assume(cond, false);
                });
            }
            StmtKind::For { body, .. } | StmtKind::ForEach { body, .. } => {
                visit::own(self, stmt);
                self.evaluated();
                self.repeated(stmt, |analysis| {
                    let before = analysis.known.clone();
                    analysis.block(body);
                    analysis.known = before;
                });
            }
            // Where there is no entry, the block does not run.
            StmtKind::Lock { body, .. } => {
                let before = self.known.clone();
                self.block(body);
                join::<R>(&mut self.known, before);
            }
            StmtKind::Try { body, catches } => {
                self.try_targets.push(Target { declared: self.declared.len(), known: None });
                self.block(body);
                let thrown = self.try_targets.pop().and_then(|target| target.known);
                for catch in catches {
                    let done = std::mem::replace(&mut self.known, thrown.clone());
                    self.declared.extend(match catch.pattern {
                        CatchPattern::Bind(local) => Some(local),
                        _ => None,
                    });
                    self.block(&catch.body);
                    join::<R>(&mut self.known, done);
                }
            }
            _ => self.plain(stmt),
        }
        if flow::stops(stmt) {
            self.known = None;
        }
    }

    fn conditional(&mut self, cond: &Expr, then: &Block, otherwise: &Block) {
        self.evaluate(cond);
        let before = self.known.clone();
        self.assume(cond, true);
        self.block(then);
        let after_then = std::mem::replace(&mut self.known, before);
        self.assume(cond, false);
        self.block(otherwise);
        join::<R>(&mut self.known, after_then);
    }

    /// Visits a loop: `iteration` visits one iteration and leaves the state for zero iterations.
    fn repeated(&mut self, stmt: &Stmt, iteration: impl FnOnce(&mut Self)) {
        let mut mentioned = Mentioned::default();
        visit::stmt(&mut mentioned, stmt);
        if let Some(known) = &mut self.known {
            mentioned.0.iter().for_each(|local| R::forget(known, *local));
        }
        self.loops.push(Target { declared: self.declared.len(), known: None });
        iteration(self);
        let left = self.loops.pop().and_then(|target| target.known);
        let endless =
            matches!(&stmt.kind, StmtKind::While { cond: Expr { kind: ExprKind::Const(1), .. }, .. });
        if endless {
            self.known = None;
        }
        join::<R>(&mut self.known, left);
    }

    fn plain(&mut self, stmt: &Stmt) {
        self.rule.begun(stmt);
        visit::own(self, stmt);
        self.evaluated();
        if let Some(known) = &mut self.known {
            self.rule.executed(known, stmt);
        }
        match &stmt.kind {
            StmtKind::Let { local, .. } => self.declared.push(*local),
            StmtKind::Return(_) => self.leave(0, Some(stmt.span)),
            StmtKind::Throw(_) => {
                self.leave(self.try_targets.last().map_or(0, |target| target.declared), Some(stmt.span));
                self.thrown();
            }
            StmtKind::Break => {
                self.leave(self.loops.last().map_or(0, |target| target.declared), Some(stmt.span));
                if let Some(target) = self.loops.last_mut() {
                    join::<R>(&mut target.known, self.known.take());
                }
            }
            StmtKind::Continue => {
                self.leave(self.loops.last().map_or(0, |target| target.declared), Some(stmt.span));
            }
            _ => {}
        }
    }

    /// Adds an edge to the clauses of the innermost `try`.
    fn thrown(&mut self) {
        if let Some(target) = self.try_targets.last_mut() {
            join::<R>(&mut target.known, self.known.clone());
        }
    }

    fn may_throw(&self, expr: &Expr) -> bool {
        let (Some(throwing), Some(callee)) = (self.throwing, Callee::of(expr)) else { return false };
        let half = self.function.kind.half();
        self.program.calls.targets(half, &callee).into_iter().any(|target| throwing[target])
    }

    /// Applies the facts about pointers that follow from a condition.
    fn assume(&mut self, cond: &Expr, holds: bool) {
        let Some(known) = &mut self.known else { return };
        null_tests(cond, holds, &mut |local, null| R::tested(known, local, null));
    }
}

impl<R: Rule> Visitor for Analysis<'_, R> {
    fn expr(&mut self, expr: &Expr) {
        if self.may_throw(expr) {
            self.thrown();
        }
        if let Some(known) = &mut self.known {
            self.rule.expr(known, expr);
        }
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let Some(known) = &mut self.known {
            self.rule.lvalue(known, lvalue);
        }
    }

    fn matched(&mut self, one: &Match) -> bool {
        self.evaluate(&one.value);
        let before = self.known.take();
        let mut after = if one.otherwise.is_some() { None } else { before.clone() };
        for body in one.bodies() {
            self.known = before.clone();
            let start = self.declared.len();
            body.block.iter().for_each(|stmt| self.statement(stmt));
            if self.known.is_some() {
                body.value.iter().for_each(|value| self.evaluate(value));
            }
            self.leave(start, None);
            self.declared.truncate(start);
            join::<R>(&mut after, self.known.take());
        }
        self.known = after;
        false
    }
}

/// Returns the comparisons with null that certainly hold or fail if a condition holds or fails.
fn null_tests(cond: &Expr, holds: bool, found: &mut impl FnMut(LocalId, bool)) {
    match &cond.kind {
        ExprKind::Truth(value) => loaded(value).into_iter().for_each(|local| found(local, !holds)),
        ExprKind::IsNull(value) => loaded(value).into_iter().for_each(|local| found(local, holds)),
        ExprKind::Binary(op @ (BinaryOp::Eq | BinaryOp::Ne), left, right) => {
            let equal = holds == (*op == BinaryOp::Eq);
            for (value, other) in [(left, right), (right, left)] {
                if is_null(other) {
                    loaded(value).into_iter().for_each(|local| found(local, equal));
                }
            }
        }
        ExprKind::Unary(UnaryOp::Not, inner) => null_tests(inner, !holds, found),
        ExprKind::Logic(op, left, right) if holds == (*op == LogicOp::And) => {
            null_tests(left, holds, found);
            null_tests(right, holds, found);
        }
        _ => {}
    }
}

/// Returns the local whose value an expression is.
pub(super) fn loaded(expr: &Expr) -> Option<LocalId> {
    match &expr.kind {
        ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => Some(*local),
        _ => None,
    }
}

/// Whether an expression is `null`.
pub(super) fn is_null(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Const(0) => true,
        ExprKind::Convert(inner) => is_null(inner),
        _ => false,
    }
}

#[derive(Default)]
struct Mentioned(BTreeSet<LocalId>);

impl Visitor for Mentioned {
    fn local(&mut self, id: LocalId) {
        self.0.insert(id);
    }
}
