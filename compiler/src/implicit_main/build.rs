//! Syntax trees of statements and expressions that no script contains, at the source range of what they are
//! made for: diagnostics and run-time errors about them show that text.

use crate::ast::{
    BinaryOp, Block, Cond, Else, Expr, ExprKind, Ident, If, IntLit, Stmt, StmtKind, TypeExpr, TypeExprKind,
    UnaryOp,
};
use crate::source::Span;

/// Makes trees at one source range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub Span);

impl At {
    fn expr(self, kind: ExprKind) -> Expr {
        Expr { kind, span: self.0 }
    }

    fn stmt(self, kind: StmtKind) -> Stmt {
        Stmt { kind, span: self.0 }
    }

    pub(crate) fn ident(self, name: impl Into<String>) -> Ident {
        Ident { name: name.into(), span: self.0 }
    }

    pub(crate) fn name(self, name: impl Into<String>) -> Expr {
        self.expr(ExprKind::Name(name.into()))
    }

    pub(crate) fn int(self, value: u64) -> Expr {
        self.expr(ExprKind::Int(value))
    }

    pub(crate) fn negative(self, value: u64) -> Expr {
        self.expr(ExprKind::Unary(UnaryOp::Neg, Box::new(self.int(value))))
    }

    pub(crate) fn null(self) -> Expr {
        self.expr(ExprKind::Null)
    }

    pub(crate) fn text(self, text: impl Into<Vec<u8>>) -> Expr {
        self.expr(ExprKind::Str(text.into()))
    }

    pub(crate) fn call(self, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(ExprKind::Call { callee: Box::new(self.name(function)), args })
    }

    /// A call of a builtin, whatever the script declares under its name.
    pub(crate) fn builtin(self, name: &str, args: Vec<Expr>) -> Expr {
        self.call(&format!("({name})"), args)
    }

    pub(crate) fn binary(self, op: BinaryOp, left: Expr, right: Expr) -> Expr {
        self.expr(ExprKind::Binary(op, Box::new(left), Box::new(right)))
    }

    pub(crate) fn not(self, operand: Expr) -> Expr {
        self.expr(ExprKind::Unary(UnaryOp::Not, Box::new(operand)))
    }

    pub(crate) fn cast(self, value: Expr, ty: &str) -> Expr {
        self.expr(ExprKind::Cast(Box::new(value), self.ty(ty)))
    }

    pub(crate) fn structure(self, name: &str, fields: Vec<(Ident, Expr)>) -> Expr {
        self.expr(ExprKind::Struct { module: None, name: self.ident(name), fields })
    }

    pub(crate) fn ty(self, name: &str) -> TypeExpr {
        TypeExpr { kind: TypeExprKind::Name(name.to_owned()), span: self.0 }
    }

    pub(crate) fn pointer(self, to: &str) -> TypeExpr {
        TypeExpr { kind: TypeExprKind::Ptr(Box::new(self.ty(to))), span: self.0 }
    }

    pub(crate) fn block(self, stmts: Vec<Stmt>) -> Block {
        Block { stmts, span: self.0 }
    }

    pub(crate) fn run(self, call: Expr) -> Stmt {
        self.stmt(StmtKind::Expr(call))
    }

    pub(crate) fn defer(self, call: Expr) -> Stmt {
        self.stmt(StmtKind::Defer(call))
    }

    pub(crate) fn field(self, base: Expr, name: &str) -> Expr {
        self.expr(ExprKind::Field { base: Box::new(base), arrow: false, name: self.ident(name) })
    }

    pub(crate) fn index(self, base: Expr, index: Expr) -> Expr {
        self.expr(ExprKind::Index(Box::new(base), Box::new(index)))
    }

    pub(crate) fn increase(self, lvalue: Expr, by: Expr) -> Stmt {
        self.stmt(StmtKind::Assign { lvalue, op: Some(BinaryOp::Add), value: by })
    }

    pub(crate) fn choose(self, cond: Expr, then: Vec<Stmt>, otherwise: Vec<Stmt>) -> Stmt {
        let otherwise = Some(Else::Block(self.block(otherwise)));
        self.stmt(StmtKind::If(If { cond: Cond::Expr(cond), then: self.block(then), otherwise }))
    }

    pub(crate) fn var(self, name: &str, init: Expr) -> Stmt {
        self.stmt(StmtKind::Var { name: self.ident(name), ty: None, init: Some(init) })
    }

    pub(crate) fn assign(self, name: &str, op: Option<BinaryOp>, value: Expr) -> Stmt {
        self.stmt(StmtKind::Assign { lvalue: self.name(name), op, value })
    }

    pub(crate) fn when(self, cond: Expr, then: Vec<Stmt>) -> Stmt {
        let one = If { cond: Cond::Expr(cond), then: self.block(then), otherwise: None };
        self.stmt(StmtKind::If(one))
    }

    pub(crate) fn while_loop(self, cond: Expr, body: Vec<Stmt>) -> Stmt {
        self.stmt(StmtKind::While { cond, body: self.block(body) })
    }

    pub(crate) fn leave_loop(self) -> Stmt {
        self.stmt(StmtKind::Break)
    }

    pub(crate) fn returns(self, value: u64) -> Stmt {
        self.stmt(StmtKind::Return(Some(self.int(value))))
    }

    /// Moves a type, which was parsed from another text, to this source range.
    pub(crate) fn moved(self, ty: TypeExpr) -> TypeExpr {
        let literal = |literal: IntLit| IntLit { span: self.0, ..literal };
        let kind = match ty.kind {
            TypeExprKind::Ptr(to) => TypeExprKind::Ptr(Box::new(self.moved(*to))),
            TypeExprKind::Str(size) => TypeExprKind::Str(literal(size)),
            kind => kind,
        };
        TypeExpr { kind, span: self.0 }
    }
}

impl At {
    /// The end of this range, for declarations beside those that [`DeclarationSpans`] takes from its start.
    pub(super) fn last_part(self) -> At {
        /// As many names as the wait of `main` declares, and the shortest attribute leaves.
        const BYTES: u32 = 6;
        At(Span { start: self.0.end.saturating_sub(BYTES).max(self.0.start), ..self.0 })
    }
}

/// Source ranges for the names that are declared for one attribute. A declaration is known by the range of
/// its name, so each gets another part of the attribute's.
#[derive(Debug)]
pub(super) struct DeclarationSpans {
    whole: Span,
    next: Span,
}

impl DeclarationSpans {
    pub(super) fn of(whole: Span) -> DeclarationSpans {
        DeclarationSpans { whole, next: whole }
    }

    pub(super) fn whole(&self) -> At {
        At(self.whole)
    }

    pub(super) fn next(&mut self) -> At {
        let span = self.next;
        self.next = if span.start + 1 < span.end {
            Span { start: span.start + 1, ..span }
        } else {
            Span { end: span.end.saturating_sub(1).max(self.whole.start), ..self.whole }
        };
        At(span)
    }
}
