//! The context of a perf program (language reference, 4.8).

use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::builtins::context::REGISTERS;
use crate::diag::{Diagnostic, near};
use crate::hir::{ContextMember, Expr, ExprKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

impl Body<'_, '_> {
    /// Whether an expression is a member of a perf program's context.
    pub(super) fn perf_member(&mut self, expr: &ast::Expr) -> bool {
        let ast::ExprKind::Field { base, .. } = &strip(expr).kind else { return false };
        if let ast::ExprKind::Field { base: ctx, .. } = &strip(base).kind
            && self.context_pointer(ctx).is_some()
        {
            return true;
        }
        self.context_pointer(base).is_some()
    }

    /// Checks `ctx->member` or `ctx->regs.register`; `None` if the expression is something else.
    pub(super) fn context_member(&mut self, expr: &ast::Expr) -> Option<Typed> {
        let ast::ExprKind::Field { base, arrow, name } = &strip(expr).kind else { return None };
        if let ast::ExprKind::Field { base: ctx, arrow: true, name: regs } = &strip(base).kind
            && regs.name == "regs"
            && let Some(ctx) = self.context_pointer(ctx)
        {
            return Some(self.register(ctx, *arrow, name, expr.span));
        }
        let ctx = self.context_pointer(base)?;
        if !*arrow {
            self.report(
                Diagnostic::error(410, expr.span, "use `->` on a pointer")
                    .help(format!("write `->{}`", name.name)),
            );
            return Some(self.error_expr(expr.span));
        }
        let member = match name.name.as_str() {
            "sample_period" => ContextMember::SamplePeriod,
            "addr" => ContextMember::Addr,
            "regs" => {
                self.report(
                    Diagnostic::error(304, name.span, "`regs` is not a value")
                        .help("name a register: `ctx->regs.ip`"),
                );
                return Some(self.error_expr(expr.span));
            }
            other => {
                let help = near(other, ["sample_period", "addr", "regs"])
                    .map_or("its members are `regs`, `sample_period`, `addr`".to_owned(), |near| {
                        format!("a similar member exists: `{near}`")
                    });
                let text = format!("`bpf_perf_event_data` has no member `{other}`");
                self.report(Diagnostic::error(304, name.span, text).help(help));
                return Some(self.error_expr(expr.span));
            }
        };
        Some(self.context_load(ctx, member, expr.span))
    }

    fn register(&mut self, ctx: Expr, arrow: bool, name: &ast::Ident, span: Span) -> Typed {
        if arrow {
            self.report(
                Diagnostic::error(410, span, "use `.` on a value").help("`regs` is a struct, no pointer"),
            );
            return self.error_expr(span);
        }
        let Some(index) = REGISTERS.iter().position(|register| register.name == name.name) else {
            let help = near(&name.name, REGISTERS.iter().map(|register| register.name))
                .map(|near| format!("a similar register exists: `{near}`"));
            let text = format!("no register `{}`", name.name);
            self.report(
                Diagnostic::error(304, name.span, text)
                    .maybe_help(help)
                    .note("`ip`, `sp` and `fp` exist on every architecture"),
            );
            return self.error_expr(span);
        };
        self.context_load(ctx, ContextMember::Register(index), span)
    }

    fn context_load(&mut self, ctx: Expr, member: ContextMember, span: Span) -> Typed {
        let u64 = self.checker.types.common().u64;
        self.make(ExprKind::Context { ctx: Box::new(ctx), member }, u64, span)
    }

    /// Returns the value of a variable that points to a context.
    fn context_pointer(&mut self, expr: &ast::Expr) -> Option<Expr> {
        let local = self.named_local(expr)?;
        let pointer: TypeId = self.checker.types.intern(TypeKind::Ptr(self.checker.known.perf_context));
        (self.locals[local].ty == pointer).then(|| self.load_local(local, expr.span))
    }
}
