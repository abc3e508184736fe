//! Facts about a variable that are needed before its first use: whether it is set from map elements only, and
//! whether it is compared with `null`; and the types that a body names. One traversal of a body before it is
//! checked, with the language's scopes.

use std::collections::HashMap;

use super::take::TAKE;
use crate::ast::{
    ArmResult, BinaryOp, Block, CatchPattern, Cond, Else, Expr, ExprKind, Ident, If, Param, Stmt, StmtKind,
    TypeExpr, TypeExprKind, UnaryOp,
};
use crate::source::Span;

/// The uses of a variable.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Uses {
    /// Whether it is set from `x[k]`, or from a queue, at least once.
    pub(super) from_element: bool,
    /// Whether it is set from another expression at least once.
    pub(super) from_other: bool,
    /// Whether it is compared with `null` at least once.
    pub(super) null_tested: bool,
    /// Whether it is assigned at least once after its declaration.
    pub(super) assigned: bool,
}

/// The variables of one function, by the source range of their name in their declaration.
#[derive(Debug, Default)]
pub(super) struct Prescan {
    uses: HashMap<Span, Uses>,
    has_nulls: bool,
    named: Vec<NamedType>,
    asked: Vec<String>,
}

/// A type that a declaration, a cast or a literal names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedType {
    pub(super) name: String,
    /// Whether the name stands after `*`.
    pub(super) is_pointee: bool,
}

impl Prescan {
    /// Scans a body. `keys_of_map` returns the number of keys after which a name at top level is an entry of a map.
    pub(super) fn of(params: &[Param], body: &Block, keys_of_map: &dyn Fn(&str) -> Option<u32>) -> Prescan {
        let mut visitor = PrescanVisitor {
            uses: HashMap::new(),
            has_nulls: false,
            named: Vec::new(),
            asked: Vec::new(),
            scopes: vec![HashMap::new()],
            keys_of_map,
        };
        params.iter().for_each(|param| visitor.declare(&param.name.name, param.name.span));
        visitor.stmts(body);
        let PrescanVisitor { uses, has_nulls, named, asked, .. } = visitor;
        Prescan { uses, has_nulls, named, asked }
    }

    /// Returns the types that the body names.
    pub(super) fn named(&self) -> &[NamedType] {
        &self.named
    }

    /// Returns the members that an `exists` asks for.
    pub(super) fn asked(&self) -> &[String] {
        &self.asked
    }

    /// Whether a variable is declared by `null` alone.
    pub(super) fn has_nulls(&self) -> bool {
        self.has_nulls
    }

    /// Returns the uses of the variable declared at this source range.
    pub(super) fn uses(&self, declared: Span) -> Uses {
        self.uses.get(&declared).copied().unwrap_or_default()
    }
}

struct PrescanVisitor<'a> {
    uses: HashMap<Span, Uses>,
    has_nulls: bool,
    named: Vec<NamedType>,
    asked: Vec<String>,
    scopes: Vec<HashMap<&'a str, Span>>,
    keys_of_map: &'a dyn Fn(&str) -> Option<u32>,
}

impl<'a> PrescanVisitor<'a> {
    fn declare(&mut self, name: &'a str, span: Span) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, span);
        }
    }

    /// Returns the uses of the variable that a name means in the current scope.
    fn variable(&mut self, name: &str) -> Option<&mut Uses> {
        let declared = self.scopes.iter().rev().find_map(|scope| scope.get(name))?;
        Some(self.uses.entry(*declared).or_default())
    }

    fn set(&mut self, name: &str, value: &Expr) {
        let element = self.is_element(value);
        if let Some(uses) = self.variable(name) {
            uses.from_element |= element;
            uses.from_other |= !element;
        }
    }

    fn scoped(&mut self, inner: impl FnOnce(&mut Self)) {
        self.scopes.push(HashMap::new());
        inner(self);
        self.scopes.pop();
    }

    fn block(&mut self, block: &'a Block) {
        self.scoped(|visitor| visitor.stmts(block));
    }

    fn stmts(&mut self, block: &'a Block) {
        block.stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Var { name, ty, init } => {
                init.iter().for_each(|init| self.expr(init));
                ty.iter().for_each(|ty| self.ty(ty));
                self.has_nulls |= ty.is_none() && init.as_ref().is_some_and(is_null);
                self.declare(&name.name, name.span);
                init.iter().for_each(|init| self.set(&name.name, init));
            }
            StmtKind::Const { name, value, .. } => {
                self.expr(value);
                self.declare(&name.name, name.span);
            }
            StmtKind::Assign { lvalue, op, value } => {
                self.expr(value);
                match (&strip(lvalue).kind, op) {
                    (ExprKind::Name(name), None) => {
                        self.set(name, value);
                        self.variable(name).into_iter().for_each(|uses| uses.assigned = true);
                    }
                    (ExprKind::Name(name), Some(_)) => {
                        self.variable(name).into_iter().for_each(|uses| {
                            uses.assigned = true;
                            uses.from_other = true;
                        });
                    }
                    _ => self.expr(lvalue),
                }
            }
            StmtKind::If(one) => self.conditional(one),
            StmtKind::While { cond, body } => {
                self.expr(cond);
                self.block(body);
            }
            StmtKind::For { name, start, end, body } => {
                self.expr(start);
                self.expr(end);
                self.scoped(|visitor| {
                    visitor.declare(&name.name, name.span);
                    visitor.block(body);
                });
            }
            StmtKind::ForEach { key, value, over, body } => {
                self.expr(over);
                self.scoped(|visitor| {
                    visitor.declare(&key.name, key.span);
                    visitor.declare(&value.name, value.span);
                    visitor.block(body);
                });
            }
            StmtKind::Lock { body, .. } => self.block(body),
            StmtKind::Try { body, catches } => {
                self.block(body);
                for catch in catches {
                    self.scoped(|visitor| {
                        if let CatchPattern::Name(name) = &catch.pattern {
                            visitor.declare(&name.name, name.span);
                        }
                        visitor.block(&catch.body);
                    });
                }
            }
            StmtKind::Expr(one)
            | StmtKind::Return(Some(one))
            | StmtKind::Delete(one)
            | StmtKind::Throw(one)
            | StmtKind::Defer(one) => self.expr(one),
            StmtKind::Return(None) | StmtKind::Break | StmtKind::Continue => {}
        }
    }

    fn conditional(&mut self, one: &'a If) {
        match &one.cond {
            Cond::Expr(cond) => {
                self.expr(cond);
                self.block(&one.then);
            }
            Cond::Var { name, value } => {
                self.expr(value);
                self.scoped(|visitor| {
                    visitor.declare(&name.name, name.span);
                    visitor.set(&name.name, value);
                    visitor.block(&one.then);
                });
            }
        }
        match &one.otherwise {
            Some(Else::Block(block)) => self.block(block),
            Some(Else::If(nested, _)) => self.conditional(nested),
            None => {}
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match &expr.kind {
            ExprKind::Binary(op, left, right) => {
                if matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
                    self.null_test(left, right);
                    self.null_test(right, left);
                }
                self.expr(left);
                self.expr(right);
            }
            ExprKind::Unary(UnaryOp::AddrOf, inner) => {
                // Any holder of the address may set the variable.
                if let ExprKind::Name(name) = &strip(inner).kind {
                    self.variable(name).into_iter().for_each(|uses| uses.assigned = true);
                }
                self.expr(inner);
            }
            ExprKind::Cast(inner, ty) => {
                self.expr(inner);
                self.ty(ty);
            }
            ExprKind::Struct { name, fields, .. } => {
                self.named.push(NamedType { name: name.name.clone(), is_pointee: false });
                fields.iter().for_each(|(_, value)| self.expr(value));
            }
            ExprKind::Match { value, arms } => {
                self.expr(value);
                for arm in arms {
                    match &arm.result {
                        ArmResult::Expr(result) => self.expr(result),
                        ArmResult::Block(block) => self.block(block),
                    }
                }
            }
            _ => {
                self.asked.extend(asked_member(expr).map(|member| member.name.clone()));
                expr.parts().into_iter().for_each(|part| self.expr(part));
            }
        }
    }

    fn ty(&mut self, ty: &TypeExpr) {
        let (mut ty, mut is_pointee) = (ty, false);
        loop {
            match &ty.kind {
                TypeExprKind::Ptr(to) => {
                    ty = to;
                    is_pointee = true;
                }
                TypeExprKind::Array(element, _) => ty = element,
                TypeExprKind::Name(name) => {
                    self.named.push(NamedType { name: name.clone(), is_pointee });
                    return;
                }
                _ => return,
            }
        }
    }

    /// Whether a value is a map element: `m[k]`, `q.pop()`, `m.take(k)`.
    fn is_element(&self, value: &Expr) -> bool {
        match &strip(value).kind {
            ExprKind::Index(base, _) => match &strip(base).kind {
                ExprKind::Index(outer, _) => self.keys_of(outer) == Some(2),
                _ => self.keys_of(base) == Some(1),
            },
            ExprKind::Call { callee, .. } => match &strip(callee).kind {
                ExprKind::Field { base, name, .. } => {
                    matches!(name.name.as_str(), "pop" | "peek" | TAKE) && self.keys_of(base).is_some()
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn keys_of(&self, base: &Expr) -> Option<u32> {
        let ExprKind::Name(name) = &strip(base).kind else { return None };
        let hidden = self.scopes.iter().any(|scope| scope.contains_key(name.as_str()));
        if hidden { None } else { (self.keys_of_map)(name) }
    }

    fn null_test(&mut self, value: &Expr, null: &Expr) {
        if let (ExprKind::Name(name), true) = (&strip(value).kind, is_null(null)) {
            self.variable(name).into_iter().for_each(|uses| uses.null_tested = true);
        }
    }
}

/// Returns the member that an `exists` asks for.
fn asked_member(expr: &Expr) -> Option<&Ident> {
    let ExprKind::Call { callee, args } = &expr.kind else { return None };
    let (ExprKind::Name(function), [asked]) = (&callee.kind, args.as_slice()) else { return None };
    match &strip(asked).kind {
        ExprKind::Field { name, .. } if function == "exists" => Some(name),
        _ => None,
    }
}

/// Whether an expression is `null`, with or without parentheses.
pub(super) fn is_null(expr: &Expr) -> bool {
    matches!(strip(expr).kind, ExprKind::Null)
}

/// Returns an expression without the parentheses around it.
pub(super) fn strip(expr: &Expr) -> &Expr {
    match &expr.kind {
        ExprKind::Paren(inner) => strip(inner),
        _ => expr,
    }
}
