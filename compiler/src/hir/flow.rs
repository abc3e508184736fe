//! Control flow of statements.

use super::visit::{self, Visitor};
use super::{ArmBody, Block, Expr, ExprKind, Match, Stmt, StmtKind, UserBuiltin};

/// Whether no path reaches the end of a block.
pub fn ends(block: &Block) -> bool {
    block.iter().any(stops)
}

/// Whether control never reaches the statement after this one: it jumps, leaves the function or loops
/// forever.
pub fn stops(stmt: &Stmt) -> bool {
    match &stmt.kind {
        StmtKind::Return(_) | StmtKind::Throw(_) | StmtKind::Break | StmtKind::Continue => true,
        StmtKind::If { then, otherwise, .. } => ends(then) && ends(otherwise),
        StmtKind::While { cond, body } => matches!(cond.kind, ExprKind::Const(1)) && !breaks(body),
        StmtKind::Try { body, catches } => ends(body) && catches.iter().all(|catch| ends(&catch.body)),
        StmtKind::Expr(expr) => diverges(expr),
        _ => false,
    }
}

/// Whether an expression statement never finishes.
fn diverges(expr: &Expr) -> bool {
    let arm = |body: &ArmBody| ends(&body.block) || body.value.as_ref().is_some_and(diverges);
    match &expr.kind {
        ExprKind::User(UserBuiltin::Exit(_) | UserBuiltin::Daemon) => true,
        ExprKind::Match(one) => one.otherwise.is_some() && one.bodies().all(arm),
        _ => false,
    }
}

/// Whether a `break` in a loop's body leaves that loop.
pub fn breaks(block: &Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break => true,
        StmtKind::While { .. } | StmtKind::For { .. } | StmtKind::ForEach { .. } => false,
        _ => {
            let mut arms = Arms(false);
            visit::own(&mut arms, stmt);
            arms.0 || stmt.blocks().any(breaks)
        }
    })
}

/// Whether an arm of a `match` breaks out of the loop around it.
struct Arms(bool);

impl Visitor for Arms {
    fn matched(&mut self, one: &Match) -> bool {
        visit::expr(self, &one.value);
        for body in one.bodies() {
            self.0 |= breaks(&body.block);
            body.value.iter().for_each(|value| visit::expr(self, value));
        }
        false
    }
}
