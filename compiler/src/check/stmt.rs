//! Statements: declarations, assignments, branches, jumps.

use super::binding::is_read;
use super::convert::CONTEXT;
use super::expr::Typed;
use super::function::{Body, Scoped};
use super::matching::MatchPosition;
use super::names::Symbol;
use super::operator::arithmetic_op;
use super::prescan::{is_null, strip};
use super::types::Position;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Block, Expr, ExprKind, FunctionKind, Lvalue, LvalueKind, Stmt, StmtKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Maximum number of elements of a local array (language reference, 3.8).
const MAX_LOCAL_ELEMENTS: u64 = 1000;

impl Body<'_, '_> {
    /// Checks a block in a scope of its own.
    pub(super) fn block(&mut self, block: &ast::Block) -> Block {
        self.scoped(|body| {
            let mut stmts = Vec::new();
            body.statements(block, &mut stmts);
            stmts
        })
    }

    /// Checks a block that is not the end of the function.
    pub(super) fn inner_block(&mut self, block: &ast::Block) -> Block {
        self.not_last(|body| body.block(block))
    }

    /// Runs `inner` for code that is not the end of the function.
    pub(super) fn not_last<T>(&mut self, inner: impl FnOnce(&mut Self) -> T) -> T {
        let tail = std::mem::take(&mut self.tail);
        let result = inner(self);
        self.tail = tail;
        result
    }

    pub(super) fn statements(&mut self, block: &ast::Block, out: &mut Block) {
        let tail = std::mem::take(&mut self.tail);
        for (index, stmt) in block.stmts.iter().enumerate() {
            self.tail = tail && index + 1 == block.stmts.len();
            self.statement(stmt, out);
        }
        self.tail = tail;
    }

    pub(super) fn statement(&mut self, stmt: &ast::Stmt, out: &mut Block) {
        let span = stmt.span;
        if let Some(stmts) = self.taking_statements(stmt) {
            self.checker.strict(span, "method `take` of a map");
            stmts.iter().for_each(|stmt| self.statement(stmt, out));
            self.carry_presence(stmt);
            return;
        }
        let fits = self.imply_maps(stmt);
        if !fits && !has_more(&stmt.kind) {
            return;
        }
        if let ast::StmtKind::Expr(expr) = &stmt.kind
            && (self.add_to_histogram(expr, out) || self.add_to_stats(expr, out))
        {
            return;
        }
        let kind = match &stmt.kind {
            ast::StmtKind::Var { name, ty, init } => self.variable(name, ty.as_ref(), init.as_ref(), out),
            ast::StmtKind::Const { name, ty, value } => {
                self.constant(name, ty.as_ref(), value);
                None
            }
            ast::StmtKind::Assign { lvalue, op: None, value } => self.assign(lvalue, value),
            ast::StmtKind::Assign { lvalue, op: Some(op), value } => self.compound(lvalue, *op, value, span),
            ast::StmtKind::Expr(expr) => self.expression(expr),
            ast::StmtKind::Return(value) => self.returns(value.as_ref(), span),
            ast::StmtKind::If(one) => {
                self.conditional(one, span, out);
                None
            }
            ast::StmtKind::While { cond, body } => self.while_loop(cond, body),
            ast::StmtKind::For { name, start, end, body } => self.for_loop(name, start, end, body, span),
            ast::StmtKind::ForEach { key, value, over, body } => {
                self.for_each(key, value, over, body, span, out)
            }
            ast::StmtKind::Lock { name, body } => self.lock(name, body),
            ast::StmtKind::Break => self.jump(StmtKind::Break, "break", span),
            ast::StmtKind::Continue => self.jump(StmtKind::Continue, "continue", span),
            ast::StmtKind::Delete(value) => self.delete(value),
            ast::StmtKind::Try { body, catches } => Some(self.try_catch(body, catches)),
            ast::StmtKind::Throw(code) => self.throw(code),
            ast::StmtKind::Defer(call) => self.defer(call, span),
        };
        out.extend(kind.map(|kind| Stmt { kind, span }));
    }

    fn variable(
        &mut self,
        name: &ast::Ident,
        ty: Option<&ast::TypeExpr>,
        init: Option<&ast::Expr>,
        out: &mut Block,
    ) -> Option<StmtKind> {
        let declared = ty.map(|ty| self.checker.type_expr(ty, Position::Value));
        if let (Some(declared), Some(ty)) = (declared, ty) {
            self.check_local_type(declared, ty.span);
        }
        let Some(init) = init else {
            let declared = declared.unwrap_or(self.checker.types.common().error);
            if self.checker.types.is_context_pointer(declared) {
                let text = format!("a variable of type `{}` needs a value", self.type_name(declared));
                self.report(Diagnostic::error(401, name.span, text).note(CONTEXT));
            }
            let local = self.declare_local(name, declared);
            return Some(StmtKind::Let { local, init: None });
        };
        if declared.is_none() && self.program_alias(name, init) {
            return None;
        }
        if let Some(source) = self.source(init) {
            let value_ty = self.source_type(&source, init.span);
            if declared.is_none_or(|ty| ty == value_ty) {
                return Some(self.bind_new(name, value_ty, source));
            }
            return Some(self.bind_converted(name, declared.unwrap_or(value_ty), source, init.span, out));
        }
        let null = declared.is_none() && is_null(init);
        let declared = if null { Some(self.null_type(name.span)) } else { declared };
        let value = self.initialiser(name.span, declared, init);
        let ty = declared.unwrap_or_else(|| {
            let ty = self.variable_type(&value);
            self.check_local_type(ty, init.span);
            ty
        });
        let read = is_read(&value, &self.locals);
        let local = self.declare_local(name, ty);
        self.locals[local].read = read;
        if null {
            self.null_locals.insert(local, name.span);
        } else {
            self.remember_handle(local, &value);
        }
        Some(StmtKind::Let { local, init: Some(value) })
    }

    /// Checks `var p = watch` with a program: the name stands for the program from now on.
    fn program_alias(&mut self, name: &ast::Ident, init: &ast::Expr) -> bool {
        let Some(Symbol::Function(id)) = self.named_symbol(init) else { return false };
        if !self.checker.signatures[id].kind.is_some_and(FunctionKind::is_program) {
            return false;
        }
        self.declare(name, Scoped::Program(id));
        true
    }

    pub(super) fn initialiser(&mut self, target: Span, declared: Option<TypeId>, init: &ast::Expr) -> Expr {
        let outer = self.target.replace(target);
        let value = match declared {
            Some(ty) if ty == self.checker.known.perf_event => self.event_variable(init),
            Some(ty) => self.value(init, ty),
            None => self.expr(init, None).expr,
        };
        self.target = outer;
        value
    }

    /// Returns the type of a variable that is declared without a type.
    pub(super) fn variable_type(&mut self, value: &Expr) -> TypeId {
        let common = self.checker.types.common();
        match self.checker.types.kind(value.ty) {
            TypeKind::Void => {
                self.report(Diagnostic::error(413, value.span, "this gives no value"));
                common.error
            }
            TypeKind::Null => {
                self.report(
                    Diagnostic::error(401, value.span, "the type of this variable is not known")
                        .help("declare it: `var name: type = null`"),
                );
                common.error
            }
            _ => value.ty,
        }
    }

    fn check_local_type(&mut self, ty: TypeId, span: Span) {
        if let TypeKind::Array(_, len) = self.checker.types.kind(ty)
            && *len > MAX_LOCAL_ELEMENTS
        {
            let text = format!("size must be 1 to {MAX_LOCAL_ELEMENTS} for a local array");
            self.report(Diagnostic::error(606, span, text).help("move it to a global variable or a map"));
        }
    }

    fn constant(&mut self, name: &ast::Ident, ty: Option<&ast::TypeExpr>, value: &ast::Expr) {
        let declared = ty.map(|ty| self.checker.type_expr(ty, Position::Value));
        self.in_constant = true;
        let found = self.expr(value, declared);
        self.in_constant = false;
        let common = self.checker.types.common();
        let unknown = Scoped::Const(0, common.error);
        let Some(constant) = found.constant else {
            if !self.checker.types.is_error(found.expr.ty) {
                self.report(
                    Diagnostic::error(619, value.span, "a constant needs a constant integer value")
                        .help("write `var` for a value that is no integer, or is known at run time only"),
                );
            }
            self.declare(name, unknown);
            return;
        };
        let ty = declared.unwrap_or(found.expr.ty);
        let Some(int) = self.integer_of(ty) else {
            if let (Some(written), false) = (declared, self.checker.types.is_error(ty)) {
                let text = format!("a constant is an integer, not `{}`", self.type_name(written));
                self.report(Diagnostic::error(401, value.span, text));
            }
            self.declare(name, unknown);
            return;
        };
        self.coerce(found, ty);
        // Without a declared type, a complement takes the width of its destination.
        let value = if declared.is_some() { int.value(constant as u64) } else { constant };
        self.declare(name, Scoped::Const(value, ty));
    }

    fn assign(&mut self, lvalue: &ast::Expr, value: &ast::Expr) -> Option<StmtKind> {
        if !self.assignable_name(lvalue) {
            self.expr(value, None);
            return None;
        }
        let target = self.target(lvalue);
        if let Some(Lvalue { kind: LvalueKind::Local(local), ty, .. }) = &target
            && let Some(source) = self.source(value)
            && self.source_type(&source, value.span) == *ty
        {
            return Some(self.bind(*local, source));
        }
        let outer = self.target.take();
        if let Some(Lvalue { kind: LvalueKind::Local(local), .. }) = &target {
            self.target = Some(self.locals[*local].span);
        }
        let value = match &target {
            Some(target) if target.ty == self.checker.known.perf_event => self.assigned_event(target, value),
            Some(target) => {
                let found = self.expr(value, Some(target.ty));
                if let LvalueKind::Local(local) = target.kind {
                    self.find_null_type(local, found.expr.ty);
                }
                self.coerce(found, target.ty)
            }
            None => self.expr(value, None).expr,
        };
        self.target = outer;
        let lvalue = target?;
        if let LvalueKind::Local(local) = lvalue.kind {
            self.remember_handle(local, &value);
        }
        Some(StmtKind::Assign { lvalue, value })
    }

    /// Rejects constants and names of programs on the left side.
    fn assignable_name(&mut self, lvalue: &ast::Expr) -> bool {
        let ast::ExprKind::Name(name) = &strip(lvalue).kind else { return true };
        let what = match (self.lookup(name), self.named_symbol(lvalue)) {
            (Some(Scoped::Const(..)), _) | (None, Some(Symbol::Const(..))) => "a constant",
            (None, Some(Symbol::Enumerator(..))) => "an enumerator",
            (Some(Scoped::Program(_)), _) => {
                self.report(
                    Diagnostic::error(426, lvalue.span, "which program this stands for must be known")
                        .label("it is set again here")
                        .help("declare another variable for the other program"),
                );
                return false;
            }
            _ => return true,
        };
        self.report(Diagnostic::error(412, lvalue.span, format!("`{name}` cannot be assigned")).label(what));
        false
    }

    fn compound(
        &mut self,
        lvalue: &ast::Expr,
        op: ast::BinaryOp,
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        if !self.assignable_name(lvalue) {
            self.expr(value, None);
            return None;
        }
        self.strict_operator(op, span);
        let target = self.target(lvalue);
        let value = self.expr(value, None);
        let target = target?;
        let current = self.make(ExprKind::Load(target.clone()), target.ty, target.span);
        if let TypeKind::Str(_) = self.checker.types.kind(target.ty) {
            self.report(
                Diagnostic::error(402, span, format!("`{}=` does not go with a string", op.text()))
                    .help("write `s = s + t`"),
            );
            return None;
        }
        if let (TypeKind::Ptr(_), ast::BinaryOp::Add | ast::BinaryOp::Sub) =
            (self.checker.types.kind(target.ty), op)
        {
            let moved = self.arithmetic(op, current, value, span);
            let value = self.coerce(moved, target.ty);
            return Some(StmtKind::Assign { lvalue: target, value });
        }
        // The operator is checked as if it were written out; the statement keeps the right operand.
        let result = self.arithmetic(op, current, value, span);
        let result_span = result.expr.span;
        let ExprKind::Binary(_, _, value) = result.expr.kind else { return None };
        let fits = Expr { kind: ExprKind::Const(0), ty: result.expr.ty, span: result_span };
        self.coerce(Typed::of(fits), target.ty);
        Some(StmtKind::Compound { lvalue: target, op: arithmetic_op(op), value: *value })
    }

    fn expression(&mut self, expr: &ast::Expr) -> Option<StmtKind> {
        if let ast::ExprKind::Match { value, arms } = &strip(expr).kind {
            let value = self.match_statement(value, arms, MatchPosition::Statement, expr.span);
            return Some(StmtKind::Expr(value));
        }
        let tail = self.tail;
        let value = self.expr(expr, tail.then_some(self.ret));
        if self.checker.types.is_error(value.expr.ty) {
            return None;
        }
        let idle = match &value.expr.kind {
            ExprKind::Call { .. }
            | ExprKind::CallValue { .. }
            | ExprKind::CallExtern { .. }
            | ExprKind::Take { .. }
            | ExprKind::Shared(_)
            | ExprKind::Kernel(_)
            | ExprKind::User(_) => false,
            _ => !tail,
        };
        if idle {
            self.report(Diagnostic::warning(213, expr.span, "this has no effect"));
        }
        if tail && value.constant.is_some() {
            // A constant keeps its value where the function returns it.
            let ret = self.ret;
            return Some(StmtKind::Return(Some(self.coerce(value, ret))));
        }
        Some(StmtKind::Expr(value.expr))
    }

    fn returns(&mut self, value: Option<&ast::Expr>, span: Span) -> Option<StmtKind> {
        let Some(value) = value else { return Some(StmtKind::Return(self.bare_return(span))) };
        if self.ret == self.checker.types.common().void {
            self.report(
                Diagnostic::error(413, value.span, "this function returns nothing").help("remove the value"),
            );
            return None;
        }
        self.tail_call = self.kind.is_program() && may_be_tail_call(value);
        let value = self.not_last(|body| body.value(value, body.ret));
        self.tail_call = false;
        Some(StmtKind::Return(Some(value)))
    }

    fn conditional(&mut self, one: &ast::If, span: Span, out: &mut Block) {
        let (cond, then) = match &one.cond {
            ast::Cond::Expr(cond) => {
                let checked = self.not_last(|body| body.condition(cond));
                (checked, self.knowing(cond, true, |body| body.block(&one.then)))
            }
            ast::Cond::Var { name, value } => self.scoped(|body| {
                let cond = body.not_last(|body| body.bound_condition(name, value, out));
                (cond, body.block(&one.then))
            }),
        };
        let otherwise = self.knowing_otherwise(&one.cond, |body| body.otherwise(one));
        out.push(Stmt { kind: StmtKind::If { cond, then, otherwise }, span });
    }

    fn otherwise(&mut self, one: &ast::If) -> Block {
        let mut otherwise = Vec::new();
        match &one.otherwise {
            Some(ast::Else::Block(block)) => otherwise = self.block(block),
            Some(ast::Else::If(nested, span)) if self.is_taking(nested) => {
                let stmt = ast::Stmt { kind: ast::StmtKind::If((**nested).clone()), span: *span };
                self.statement(&stmt, &mut otherwise);
            }
            Some(ast::Else::If(nested, span)) => self.conditional(nested, *span, &mut otherwise),
            None => {}
        }
        otherwise
    }

    fn jump(&mut self, kind: StmtKind, keyword: &str, span: Span) -> Option<StmtKind> {
        if self.loops == 0 {
            self.report(Diagnostic::error(704, span, format!("`{keyword}` outside a loop")));
            return None;
        }
        Some(kind)
    }
}

/// Whether an expression has the form of a tail call, or of a `match` whose arms may be tail calls.
pub(super) fn may_be_tail_call(expr: &ast::Expr) -> bool {
    matches!(strip(expr).kind, ast::ExprKind::Call { .. } | ast::ExprKind::Match { .. })
}

/// Whether a statement declares a variable or contains others: it is checked whatever is wrong with it.
fn has_more(kind: &ast::StmtKind) -> bool {
    use ast::StmtKind::{For, ForEach, If, Lock, Try, Var, While};
    matches!(kind, Var { .. } | If(_) | While { .. } | For { .. } | ForEach { .. } | Lock { .. } | Try { .. })
}
