//! Conditions and presence (language reference, 3.5 and 3.9).

use super::binding::{Source, is_read};
use super::expr::Typed;
use super::function::Body;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, KernelBuiltin, LocalId, LogicOp, UnaryOp};
use crate::source::Span;
use crate::types::TypeKind;

impl Body<'_, '_> {
    /// Checks the condition of an `if` or `while`.
    pub(super) fn condition(&mut self, cond: &ast::Expr) -> Expr {
        if let Some(present) = self.presence(cond) {
            return present;
        }
        let value = self.expr(cond, None);
        self.warn_mixed_binding(cond);
        self.truth(value)
    }

    /// Returns the presence test that a bare map element or binding stands for.
    fn presence(&mut self, cond: &ast::Expr) -> Option<Expr> {
        let bool = self.checker.types.common().bool;
        if let Some((map, key)) = self.tested_element(cond) {
            self.check_readable(map, cond.span);
            let key = Box::new(key);
            return Some(Expr { kind: ExprKind::Present { map, key }, ty: bool, span: cond.span });
        }
        if let Some(Source::Take(map, op)) = self.source(cond) {
            return Some(Expr { kind: ExprKind::Taken { map, op }, ty: bool, span: cond.span });
        }
        let local = self.named_local(cond)?;
        let carrier = self.presence_carrier(local)?;
        let only_elements = !self.prescan.uses(self.locals[local].span).from_other;
        only_elements.then_some(Expr { kind: ExprKind::Bound(carrier), ty: bool, span: cond.span })
    }

    /// Returns the variable with the presence bit of a binding: whether the entry existed when the variable
    /// was set.
    fn presence_carrier(&self, local: LocalId) -> Option<LocalId> {
        match self.presence.get(&local) {
            Some(hidden) => Some(*hidden),
            None => self.locals[local].may_be_null().then_some(local),
        }
    }

    fn warn_mixed_binding(&mut self, cond: &ast::Expr) {
        let Some(local) = self.named_local(cond) else { return };
        let uses = self.prescan.uses(self.locals[local].span);
        let pointer = matches!(self.checker.types.kind(self.locals[local].ty), TypeKind::Ptr(_));
        if uses.from_element && uses.from_other && !pointer {
            self.report(
                Diagnostic::warning(423, cond.span, "this asks the value, not whether the entry exists")
                    .help("compare with `null` to ask for the entry, with 0 to ask for the value"),
            );
        }
    }

    /// Converts a value to a condition.
    pub(super) fn truth(&mut self, value: Typed) -> Expr {
        let common = self.checker.types.common();
        let Expr { ty, span, .. } = value.expr;
        match self.checker.types.kind(ty) {
            TypeKind::Bool | TypeKind::Error => value.expr,
            TypeKind::Enum(_) if ty == self.checker.known.xdp_action => {
                self.report(
                    Diagnostic::error(403, span, "`xdp_action` is not a condition")
                        .help("compare it: `action == XDP_PASS`"),
                );
                Expr { ty: common.error, ..value.expr }
            }
            TypeKind::Int(_) | TypeKind::Char | TypeKind::Str(_) | TypeKind::Enum(_) | TypeKind::Ptr(_) => {
                Expr { kind: ExprKind::Truth(Box::new(value.expr)), ty: common.bool, span }
            }
            TypeKind::Null => Expr { kind: ExprKind::Const(0), ty: common.bool, span },
            _ => {
                let help = (ty == common.program || ty == self.checker.known.perf_attachment)
                    .then(|| "compare it with `null`".to_owned());
                let text = format!("`{}` is not a condition", self.type_name(ty));
                self.report(Diagnostic::error(403, span, text).maybe_help(help));
                Expr { ty: common.error, ..value.expr }
            }
        }
    }

    /// Checks `x == null` or `x != null`.
    pub(super) fn null_comparison(&mut self, op: ast::BinaryOp, value: &ast::Expr, span: Span) -> Typed {
        let bool = self.checker.types.common().bool;
        let (asked, true_if_null) = self.null_test(value, span);
        if self.checker.types.is_error(asked.ty) || true_if_null == (op == ast::BinaryOp::Eq) {
            return Typed::of(asked);
        }
        self.make(ExprKind::Unary(UnaryOp::Not, Box::new(asked)), bool, span)
    }

    /// Returns false after evaluating the value for its side effects.
    fn evaluated_false(&mut self, value: Expr, span: Span) -> Expr {
        let bool = self.checker.types.common().bool;
        let no = Expr { kind: ExprKind::Const(0), ty: bool, span };
        let scalar = self.checker.types.scalar(value.ty).is_some();
        if !scalar && !matches!(self.checker.types.kind(value.ty), TypeKind::Str(_)) {
            return no;
        }
        let asked = if value.ty == bool {
            value
        } else {
            Expr { kind: ExprKind::Truth(Box::new(value)), ty: bool, span }
        };
        Expr { kind: ExprKind::Logic(LogicOp::And, Box::new(asked), Box::new(no)), ty: bool, span }
    }

    /// Returns a bool, and whether that bool is true for null (otherwise it is true for a present value).
    fn null_test(&mut self, value: &ast::Expr, span: Span) -> (Expr, bool) {
        let common = self.checker.types.common();
        let ask = |kind| Expr { kind, ty: common.bool, span };
        if let Some((map, key)) = self.tested_element(value) {
            let key = Box::new(key);
            return (ask(ExprKind::Present { map, key }), false);
        }
        if let Some(local) = self.named_local(value)
            && let Some(carrier) = self.presence_carrier(local)
        {
            return (ask(ExprKind::Bound(carrier)), false);
        }
        if let Some(Source::Take(map, op)) = self.source(value) {
            return (ask(ExprKind::Taken { map, op }), false);
        }
        let value = self.expr(value, None);
        match self.checker.types.kind(value.expr.ty) {
            TypeKind::Error => (value.expr, true),
            _ if is_read(&value.expr, &self.locals) => {
                (ask(ExprKind::Kernel(KernelBuiltin::IsRead(Box::new(value.expr)))), false)
            }
            TypeKind::Null => (ask(ExprKind::Const(1)), true),
            TypeKind::Program | TypeKind::Ptr(_) | TypeKind::Fn(..) => {
                (ask(ExprKind::IsNull(Box::new(value.expr))), true)
            }
            _ if value.expr.ty == self.checker.known.perf_attachment => {
                (ask(ExprKind::IsNull(Box::new(value.expr))), true)
            }
            _ => {
                let text = format!("a `{}` is never null", self.type_name(value.expr.ty));
                self.report(Diagnostic::warning(420, value.expr.span, text));
                (self.evaluated_false(value.expr, span), true)
            }
        }
    }
}
