//! Which ways lead through a body.

use crate::ast;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Block, ExprKind, FuncId, Function, StmtKind};
use crate::index::{Id, IndexVec};

/// Whether no path reaches the end of a block.
pub(super) fn ends(block: &Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return(_) => true,
        StmtKind::If { then, otherwise, .. } => ends(then) && ends(otherwise),
        StmtKind::While { cond, body } => matches!(cond.kind, ExprKind::Const(1)) && !breaks(body),
        StmtKind::Expr(expr) => {
            matches!(&expr.kind, ExprKind::User(crate::hir::UserBuiltin::Exit(_)))
        }
        _ => false,
    })
}

/// Whether a loop's body leaves that loop by `break`.
fn breaks(block: &Block) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break => true,
        StmtKind::If { then, otherwise, .. } => breaks(then) || breaks(otherwise),
        _ => false,
    })
}

/// Whether a function as written returns a value somewhere.
pub(super) fn returns_value(block: &ast::Block) -> bool {
    use ast::{Else, StmtKind};
    fn conditional(one: &ast::If) -> bool {
        returns_value(&one.then)
            || match &one.otherwise {
                Some(Else::Block(block)) => returns_value(block),
                Some(Else::If(nested, _)) => conditional(nested),
                None => false,
            }
    }
    block.stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::Return(value) => value.is_some(),
        StmtKind::If(one) => conditional(one),
        StmtKind::While { body, .. } | StmtKind::For { body, .. } | StmtKind::ForEach { body, .. } => {
            returns_value(body)
        }
        StmtKind::Try { body, catches } => {
            returns_value(body) || catches.iter().any(|catch| returns_value(&catch.body))
        }
        _ => false,
    })
}

/// Whether calls lead from one function to another.
pub(super) fn reaches(functions: &IndexVec<FuncId, Function>, from: FuncId, to: FuncId) -> bool {
    let mut seen = vec![false; functions.len()];
    let mut open = callees(&functions[from]);
    while let Some(id) = open.pop() {
        if id == to {
            return true;
        }
        if !std::mem::replace(&mut seen[id.index()], true) {
            open.extend(callees(&functions[id]));
        }
    }
    false
}

fn callees(function: &Function) -> Vec<FuncId> {
    #[derive(Default)]
    struct Callees(Vec<FuncId>);
    impl Visitor for Callees {
        fn function(&mut self, id: FuncId) {
            self.0.push(id);
        }
    }
    let mut found = Callees::default();
    visit::block(&mut found, &function.body);
    found.0
}
