//! What must be known of a variable before its first use: whether it is set from map elements, and whether it is
//! compared with `null`. By name, so a shadowed variable may count for its namesake: harmless, because the answer only
//! makes a variable carry a presence bit that is then always true, or keeps a failed `load` from ending the plugin.

use std::collections::HashSet;

use crate::ast::{BinaryOp, Block, Cond, Else, Expr, ExprKind, If, Stmt, StmtKind};

/// Names of the variables of one function.
#[derive(Debug, Default)]
pub(super) struct Prescan {
    /// Set from `x[k]` at least once.
    pub(super) from_element: HashSet<String>,
    /// Set from something else at least once.
    pub(super) from_other: HashSet<String>,
    /// Compared with `null` at least once.
    pub(super) null_tested: HashSet<String>,
}

impl Prescan {
    pub(super) fn of(body: &Block) -> Prescan {
        let mut found = Prescan::default();
        found.block(body);
        found
    }

    fn set(&mut self, name: &str, value: &Expr) {
        let names = if matches!(strip(value).kind, ExprKind::Index(..)) {
            &mut self.from_element
        } else {
            &mut self.from_other
        };
        names.insert(name.to_owned());
        self.expr(value);
    }

    fn block(&mut self, block: &Block) {
        block.stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Var { name, init: Some(init), .. } => self.set(&name.name, init),
            StmtKind::Assign { place, op: None, value } => match &strip(place).kind {
                ExprKind::Name(name) => self.set(name, value),
                _ => self.expr(value),
            },
            StmtKind::Assign { value, .. } | StmtKind::Const { value, .. } => self.expr(value),
            StmtKind::If(one) => self.conditional(one),
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.block(body);
            }
            StmtKind::For { body, .. } | StmtKind::ForEach { body, .. } => self.block(body),
            StmtKind::Try { body, catches } => {
                self.block(body);
                catches.iter().for_each(|catch| self.block(&catch.body));
            }
            StmtKind::Expr(one)
            | StmtKind::Return(Some(one))
            | StmtKind::Delete(one)
            | StmtKind::Throw(one)
            | StmtKind::Defer(one) => self.expr(one),
            StmtKind::Var { init: None, .. }
            | StmtKind::Return(None)
            | StmtKind::Break
            | StmtKind::Continue => {}
        }
    }

    fn conditional(&mut self, one: &If) {
        match &one.cond {
            Cond::Expr(cond) => self.expr(cond),
            Cond::Var { name, value } => self.set(&name.name, value),
        }
        self.block(&one.then);
        match &one.otherwise {
            Some(Else::Block(block)) => self.block(block),
            Some(Else::If(nested, _)) => self.conditional(nested),
            None => {}
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ne, left, right) => {
                self.null_test(left, right);
                self.null_test(right, left);
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Binary(_, left, right) | ExprKind::Index(left, right) => {
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Paren(inner) | ExprKind::Unary(_, inner) | ExprKind::Cast(inner, _) => self.expr(inner),
            ExprKind::Field { base, .. } => self.expr(base),
            ExprKind::Call { args, .. } => args.iter().for_each(|arg| self.expr(arg)),
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|(_, value)| self.expr(value)),
            _ => {}
        }
    }

    fn null_test(&mut self, value: &Expr, null: &Expr) {
        if let (ExprKind::Name(name), ExprKind::Null) = (&strip(value).kind, &strip(null).kind) {
            self.null_tested.insert(name.clone());
        }
    }
}

/// An expression without the parentheses around it.
pub(super) fn strip(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Paren(inner) => strip(inner),
        _ => expr,
    }
}
