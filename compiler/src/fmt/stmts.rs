//! Formats statements and their blocks.

use super::writer::Writer;
use crate::ast::{BinaryOp, Catch, CatchPattern, Cond, Else, Expr, Ident, If, Stmt, StmtKind, TypeExpr};

impl Writer<'_> {
    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Var { name, ty, init } => self.binding("var", name, ty.as_ref(), init.as_ref()),
            StmtKind::Const { name, ty, value } => self.binding("const", name, ty.as_ref(), Some(value)),
            StmtKind::Assign { lvalue, op, value } => {
                self.expr(lvalue);
                self.space();
                self.assign_op(*op);
                self.space();
                self.expr(value);
            }
            StmtKind::Expr(expr) => self.expr(expr),
            StmtKind::Return(None) => self.token("return"),
            StmtKind::Return(Some(value)) => self.with_keyword("return", value),
            StmtKind::Delete(expr) => self.with_keyword("delete", expr),
            StmtKind::Throw(expr) => self.with_keyword("throw", expr),
            StmtKind::Defer(expr) => self.with_keyword("defer", expr),
            StmtKind::Break => self.token("break"),
            StmtKind::Continue => self.token("continue"),
            StmtKind::If(branch) => self.branch(branch),
            StmtKind::While { cond, body } => {
                self.head("while", |writer| writer.expr(cond));
                self.block(body);
            }
            StmtKind::For { name, start, end, body } => {
                self.head("for", |writer| {
                    writer.name(&name.name);
                    writer.space();
                    writer.same_line("in");
                    writer.space();
                    writer.expr(start);
                    writer.same_line(".");
                    writer.same_line(".");
                    writer.expr(end);
                });
                self.block(body);
            }
            StmtKind::ForEach { key, value, over, body } => {
                self.head("for", |writer| {
                    writer.name(&key.name);
                    writer.same_line(",");
                    writer.space();
                    writer.name(&value.name);
                    writer.space();
                    writer.same_line("in");
                    writer.space();
                    writer.expr(over);
                });
                self.block(body);
            }
            StmtKind::Lock { name, body } => {
                self.head("lock", |writer| writer.name(&name.name));
                self.block(body);
            }
            StmtKind::Try { body, catches } => {
                self.token("try");
                self.space();
                self.block(body);
                catches.iter().for_each(|catch| self.catch(catch));
            }
        }
    }

    /// Writes `var name: type = value`.
    pub(super) fn binding(
        &mut self,
        keyword: &'static str,
        name: &Ident,
        ty: Option<&TypeExpr>,
        value: Option<&Expr>,
    ) {
        self.token(keyword);
        self.space();
        self.name(&name.name);
        ty.into_iter().for_each(|ty| self.of_type(ty));
        value.into_iter().for_each(|value| self.value(value));
    }

    /// Writes ` = value`.
    pub(super) fn value(&mut self, value: &Expr) {
        self.space();
        self.same_line("=");
        self.space();
        self.expr(value);
    }

    /// Writes an assignment operator. Some are several tokens, which must stay together.
    fn assign_op(&mut self, op: Option<BinaryOp>) {
        let tokens: &[&'static str] = match op {
            None => &["="],
            Some(BinaryOp::Add) => &["+="],
            Some(BinaryOp::Sub) => &["-="],
            Some(BinaryOp::Mul) => &["*="],
            Some(BinaryOp::Div) => &["/="],
            Some(BinaryOp::Rem) => &["%="],
            Some(BinaryOp::Shl) => &["<", "<="],
            Some(BinaryOp::Shr) => &[">", ">="],
            Some(other) => &[other.text(), "="],
        };
        tokens.iter().for_each(|token| self.same_line(token));
    }

    fn with_keyword(&mut self, keyword: &'static str, expr: &Expr) {
        self.token(keyword);
        self.space();
        self.expr(expr);
    }

    /// Writes `keyword (inner) `.
    fn head(&mut self, keyword: &'static str, inner: impl FnOnce(&mut Self)) {
        self.token(keyword);
        self.space();
        self.same_line("(");
        self.indent();
        inner(self);
        self.dedent();
        self.same_line(")");
        self.space();
    }

    fn branch(&mut self, mut branch: &If) {
        loop {
            self.head("if", |writer| match &branch.cond {
                Cond::Expr(cond) => writer.expr(cond),
                Cond::Var { name, value } => writer.binding("var", name, None, Some(value)),
            });
            self.block(&branch.then);
            let Some(otherwise) = &branch.otherwise else { return };
            self.space();
            self.same_line("else");
            self.space();
            match otherwise {
                Else::Block(block) => return self.block(block),
                Else::If(next, _) => branch = next,
            }
        }
    }

    fn catch(&mut self, catch: &Catch) {
        self.space();
        self.same_line("catch");
        self.space();
        match &catch.pattern {
            CatchPattern::Int(code) => self.int(code),
            CatchPattern::Name(name) => self.name(&name.name),
        }
        self.space();
        self.block(&catch.body);
    }
}
