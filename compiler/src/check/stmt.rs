//! Statements.

use super::expr::Typed;
use super::function::{Body, Scoped};
use super::operator::arithmetic_op;
use super::prescan::strip;
use super::types::Position;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Block, Expr, ExprKind, Half, LocalId, Place, PlaceKind, Stmt, StmtKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Most elements of a local array (language reference, 3.8).
const MAX_LOCAL_ELEMENTS: u64 = 1000;

impl Body<'_, '_> {
    /// A block in a scope of its own.
    fn block(&mut self, block: &ast::Block) -> Block {
        self.scoped(|body| {
            let mut stmts = Vec::new();
            body.statements(block, &mut stmts);
            stmts
        })
    }

    pub(super) fn statements(&mut self, block: &ast::Block, out: &mut Block) {
        for stmt in &block.stmts {
            self.statement(stmt, out);
        }
    }

    fn statement(&mut self, stmt: &ast::Stmt, out: &mut Block) {
        let span = stmt.span;
        let kind = match &stmt.kind {
            ast::StmtKind::Var { name, ty, init } => self.variable(name, ty.as_ref(), init.as_ref()),
            ast::StmtKind::Const { name, ty, value } => {
                self.constant(name, ty.as_ref(), value);
                None
            }
            ast::StmtKind::Assign { place, op: None, value } => self.assign(place, value),
            ast::StmtKind::Assign { place, op: Some(op), value } => self.compound(place, *op, value, span),
            ast::StmtKind::Expr(expr) => self.expression(expr),
            ast::StmtKind::Return(value) => self.returns(value.as_ref(), span),
            ast::StmtKind::If(one) => {
                self.conditional(one, span, out);
                None
            }
            ast::StmtKind::While { cond, body } => self.while_loop(cond, body),
            ast::StmtKind::For { name, start, end, body } => self.for_loop(name, start, end, body),
            ast::StmtKind::Break => self.jump(StmtKind::Break, "break", span),
            ast::StmtKind::Continue => self.jump(StmtKind::Continue, "continue", span),
            ast::StmtKind::ForEach { over, .. } => self.later(over.span, "walking a map is"),
            ast::StmtKind::Delete(value) => self.later(value.span, "`delete` is"),
            ast::StmtKind::Try { body, .. } => self.later(Span { end: body.span.start, ..span }, "`try` is"),
            ast::StmtKind::Throw(_) => self.later(span, "`throw` is"),
            ast::StmtKind::Defer(_) => self.later(span, "`defer` is"),
        };
        out.extend(kind.map(|kind| Stmt { kind, span }));
    }

    fn later(&mut self, span: Span, what: &str) -> Option<StmtKind> {
        self.report(Diagnostic::not_yet(span, what));
        None
    }

    fn variable(
        &mut self,
        name: &ast::Ident,
        ty: Option<&ast::TypeExpr>,
        init: Option<&ast::Expr>,
    ) -> Option<StmtKind> {
        let declared = ty.map(|ty| self.checker.type_expr(ty, Position::Value));
        if let (Some(declared), Some(ty)) = (declared, ty) {
            self.check_local_type(declared, ty.span);
        }
        let binding = self.prescan.from_element.contains(&name.name);
        let Some(init) = init else {
            let declared = declared.expect("the parser demands a type or a value");
            let local = self.declare_local(name, declared, binding);
            return Some(StmtKind::Let { local, init: None });
        };
        if let Some((map, key)) = self.map_element(init) {
            let value_ty = self.checker.maps[map].value;
            if declared.is_none_or(|ty| ty == value_ty) {
                let key = self.map_key(map, key);
                let local = self.declare_local(name, value_ty, true);
                return Some(StmtKind::Bind { local, map, key });
            }
            self.check_lost_presence(name);
        }
        let value = self.initialiser(name, declared, init);
        let ty = declared.unwrap_or_else(|| self.variable_type(&value));
        let local = self.declare_local(name, ty, binding);
        Some(StmtKind::Let { local, init: Some(value) })
    }

    fn initialiser(&mut self, name: &ast::Ident, declared: Option<TypeId>, init: &ast::Expr) -> Expr {
        let outer = self.target.replace(name.name.clone());
        let value = match declared {
            Some(ty) => self.value(init, ty),
            None => self.expr(init, None).expr,
        };
        self.target = outer;
        value
    }

    /// The type of a variable that is declared by its value alone.
    fn variable_type(&mut self, value: &Expr) -> TypeId {
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

    /// A map element converted to another type cannot tell whether it was there.
    fn check_lost_presence(&mut self, name: &ast::Ident) {
        if self.prescan.null_tested.contains(&name.name) {
            self.report(Diagnostic::not_yet(
                name.span,
                "asking for the presence of an element converted to another type is",
            ));
        }
    }

    fn constant(&mut self, name: &ast::Ident, ty: Option<&ast::TypeExpr>, value: &ast::Expr) {
        let declared = ty.map(|ty| self.checker.type_expr(ty, Position::Value));
        let found = self.expr(value, declared);
        let Some(constant) = found.constant else {
            if !self.checker.types.is_error(found.expr.ty) {
                self.report(Diagnostic::error(619, value.span, "a constant needs a constant integer value"));
            }
            self.declare(name, Scoped::Const(0, self.checker.types.common().error));
            return;
        };
        let ty = declared.unwrap_or(found.expr.ty);
        let Some(int) = self.integer_of(ty) else {
            if let (Some(written), false) = (declared, self.checker.types.is_error(ty)) {
                let text = format!("a constant is an integer, not `{}`", self.type_name(written));
                self.report(Diagnostic::error(401, value.span, text));
            }
            return;
        };
        self.coerce(found, ty);
        self.declare(name, Scoped::Const(int.value(constant as u64), ty));
    }

    fn assign(&mut self, place: &ast::Expr, value: &ast::Expr) -> Option<StmtKind> {
        if let ast::ExprKind::Name(name) = &strip(place).kind
            && let Some(Scoped::Const(..)) = self.lookup(name)
        {
            self.report(
                Diagnostic::error(412, place.span, format!("`{name}` cannot be assigned"))
                    .label("a constant"),
            );
            return None;
        }
        let target = self.target(place);
        if let (Some(Place { kind: PlaceKind::Local(local), ty, .. }), Some((map, key))) =
            (&target, self.map_element(value))
            && self.checker.maps[map].value == *ty
        {
            let (local, key): (LocalId, _) = (*local, self.map_key(map, key));
            return Some(StmtKind::Bind { local, map, key });
        }
        let outer = std::mem::take(&mut self.target);
        if let ast::ExprKind::Name(name) = &strip(place).kind {
            self.target = Some(name.clone());
        }
        let value = match &target {
            Some(target) if target.ty == self.checker.known.perf_event => {
                self.option_value(crate::builtins::perf::options::EVENT, value, target.ty)
            }
            Some(target) => self.value(value, target.ty),
            None => self.expr(value, None).expr,
        };
        self.target = outer;
        target.map(|place| StmtKind::Assign { place, value })
    }

    fn compound(
        &mut self,
        place: &ast::Expr,
        op: ast::BinaryOp,
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        let target = self.target(place)?;
        let value = self.expr(value, None);
        let current = self.make(ExprKind::Load(target.clone()), target.ty, target.span);
        if let TypeKind::Str(_) = self.checker.types.kind(target.ty) {
            self.report(
                Diagnostic::error(402, span, "`+=` does not go with a string").help("write `s = s + t`"),
            );
            return None;
        }
        // The operator is checked as if it were written out; its right operand is what the statement keeps.
        let result = self.arithmetic(op, current, value, span);
        let result_span = result.expr.span;
        let ExprKind::Binary(_, _, value) = result.expr.kind else { return None };
        let fits = Expr { kind: ExprKind::Const(0), ty: result.expr.ty, span: result_span };
        self.coerce(Typed::of(fits), target.ty);
        Some(StmtKind::Compound { place: target, op: arithmetic_op(op), value: *value })
    }

    fn expression(&mut self, expr: &ast::Expr) -> Option<StmtKind> {
        let value = self.expr(expr, None);
        if self.checker.types.is_error(value.expr.ty) {
            return None;
        }
        let effect =
            matches!(value.expr.kind, ExprKind::Call { .. } | ExprKind::User(_) | ExprKind::Kernel(_));
        let tail = !effect && value.expr.ty != self.checker.types.common().void;
        if tail && self.ret == self.checker.types.common().void {
            self.report(Diagnostic::warning(213, expr.span, "this has no effect"));
        }
        // A constant keeps its value where a tail expression returns it.
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
        let value = self.value(value, self.ret);
        Some(StmtKind::Return(Some(value)))
    }

    fn conditional(&mut self, one: &ast::If, span: Span, out: &mut Block) {
        let stmt = match &one.cond {
            ast::Cond::Expr(cond) => {
                let cond = self.condition(cond);
                let then = self.block(&one.then);
                (cond, then)
            }
            ast::Cond::Var { name, value } => self.scoped(|body| {
                let cond = body.bound_condition(name, value, out);
                let then = body.block(&one.then);
                (cond, then)
            }),
        };
        let (cond, then) = stmt;
        let mut otherwise = Vec::new();
        match &one.otherwise {
            Some(ast::Else::Block(block)) => otherwise = self.block(block),
            Some(ast::Else::If(nested, span)) => self.conditional(nested, *span, &mut otherwise),
            None => {}
        }
        out.push(Stmt { kind: StmtKind::If { cond, then, otherwise }, span });
    }

    /// `if (var name = value)`: declares the variable before the `if` and asks for it.
    fn bound_condition(&mut self, name: &ast::Ident, value: &ast::Expr, out: &mut Block) -> Expr {
        let span = name.span;
        let bool = self.checker.types.common().bool;
        if let Some((map, key)) = self.map_element(value) {
            let key = self.map_key(map, key);
            let local = self.declare_local(name, self.checker.maps[map].value, true);
            out.push(Stmt { kind: StmtKind::Bind { local, map, key }, span });
            return Expr { kind: ExprKind::Bound(local), ty: bool, span };
        }
        let value = self.initialiser(name, None, value);
        let ty = self.variable_type(&value);
        let local = self.declare_local(name, ty, self.prescan.from_element.contains(&name.name));
        out.push(Stmt { kind: StmtKind::Let { local, init: Some(value) }, span });
        let loaded = Typed::of(self.load_local(local, span));
        self.truth(loaded)
    }

    fn while_loop(&mut self, cond: &ast::Expr, body: &ast::Block) -> Option<StmtKind> {
        let forever = matches!(strip(cond).kind, ast::ExprKind::Bool(true));
        if forever && self.half() == Half::Kernel {
            self.report(
                Diagnostic::error(703, cond.span, "loop never ends")
                    .note("the kernel accepts a program only if each loop in it ends"),
            );
        }
        let cond = self.condition(cond);
        let body = self.loop_body(body);
        Some(StmtKind::While { cond, body })
    }

    fn loop_body(&mut self, body: &ast::Block) -> Block {
        self.loops += 1;
        let block = self.block(body);
        self.loops -= 1;
        block
    }

    fn for_loop(
        &mut self,
        name: &ast::Ident,
        start: &ast::Expr,
        end: &ast::Expr,
        body: &ast::Block,
    ) -> Option<StmtKind> {
        let (first, last) = (self.expr(start, None), self.expr(end, None));
        let ty = self.range_type(&first, &last)?;
        if let (Some(a), Some(b)) = (first.constant, last.constant)
            && first.literal
            && last.literal
            && a >= b
        {
            self.report(
                Diagnostic::error(701, start.span.to(end.span), "range is empty")
                    .label("the end is exclusive"),
            );
        }
        let (start, end) = (self.coerce(first, ty), self.coerce(last, ty));
        self.scoped(|scope| {
            let local = scope.declare_local(name, ty, false);
            scope.fixed.push(local);
            let body = scope.loop_body(body);
            Some(StmtKind::For { local, start, end, body })
        })
    }

    /// The wider type of the two ends; a literal takes the other's.
    fn range_type(&mut self, first: &Typed, last: &Typed) -> Option<TypeId> {
        let (a, b) = (first.expr.ty, last.expr.ty);
        if self.checker.types.is_error(a) || self.checker.types.is_error(b) {
            return None;
        }
        if let (Some(int_a), Some(int_b)) = (self.checker.types.int(a), self.checker.types.int(b)) {
            let combined = match (first.literal, last.literal) {
                (true, false) => Some(int_b),
                (false, true) => Some(int_a),
                _ => super::convert::combine(int_a, int_b),
            };
            if let Some(int) = combined {
                return Some(self.int_type(int));
            }
        }
        let span = first.expr.span.to(last.expr.span);
        let text =
            format!("`{}` and `{}` do not go together in a range", self.type_name(a), self.type_name(b));
        self.report(Diagnostic::error(402, span, text));
        None
    }

    fn jump(&mut self, kind: StmtKind, word: &str, span: Span) -> Option<StmtKind> {
        if self.loops == 0 {
            self.report(Diagnostic::error(704, span, format!("`{word}` outside a loop")));
            return None;
        }
        Some(kind)
    }
}
