//! The left side of an assignment.

use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Half, Lvalue, LvalueKind};
use crate::source::Span;
use crate::types::TypeKind;

impl Body<'_, '_> {
    /// Returns the lvalue that is assigned; `None` if it was reported.
    pub(super) fn target(&mut self, expr: &ast::Expr) -> Option<Lvalue> {
        if self.perf_member(expr) {
            self.report(
                Diagnostic::error(412, expr.span, "a context member cannot be assigned")
                    .label("a context member"),
            );
            return None;
        }
        match &strip(expr).kind {
            ast::ExprKind::Name(_) | ast::ExprKind::Field { .. } | ast::ExprKind::Index(..) => {}
            ast::ExprKind::Unary(ast::UnaryOp::Deref, _) => {
                self.checker.strict(expr.span, "store through a pointer");
            }
            _ => {
                self.report(
                    Diagnostic::error(212, expr.span, "cannot assign to this")
                        .help("a variable, a field, an element or a map entry stands on the left"),
                );
                return None;
            }
        }
        let lvalue = self.lvalue(expr)?;
        self.check_writable(&lvalue, expr.span).then_some(lvalue)
    }

    fn check_writable(&mut self, lvalue: &Lvalue, span: Span) -> bool {
        match &lvalue.kind {
            LvalueKind::Local(local) if self.fixed.contains(local) => {
                let text = format!("`{}` cannot be assigned", self.locals[*local].name);
                self.report(Diagnostic::error(412, span, text).label("a loop variable"));
                false
            }
            LvalueKind::Config(config, _) if self.half() == Half::Kernel => {
                let one = &self.checker.configs[*config];
                let (text, declared) =
                    (format!("config `{}` cannot be assigned in the kernel half", one.name), one.span);
                self.report(
                    Diagnostic::error(412, span, text)
                        .also(declared, "declared here")
                        .help("userspace sets it; the kernel half reads it"),
                );
                false
            }
            LvalueKind::Local(_) | LvalueKind::Global(_) | LvalueKind::Config(..) => true,
            LvalueKind::Element { map, .. } => {
                self.check_writable_map(*map, span);
                true
            }
            LvalueKind::Field { base, .. } if base.ty == self.checker.known.perf_attachment => {
                self.report(Diagnostic::error(412, span, "a member of an attachment cannot be assigned"));
                false
            }
            LvalueKind::Index { base, .. }
                if matches!(self.checker.types.kind(base.ty), TypeKind::Str(_)) =>
            {
                self.report(Diagnostic::error(212, span, "cannot assign to a byte of a string"));
                false
            }
            LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => {
                self.check_write_through(lvalue, span) && self.check_writable(base, span)
            }
            LvalueKind::Deref(pointer)
                if self.is_kernel_pointer(pointer) || self.is_kernels_struct(lvalue.ty) =>
            {
                self.report(
                    Diagnostic::error(612, span, "kernel memory cannot be written").note(
                        "the kernel lets programs read what its pointers lead to; a write could break it",
                    ),
                );
                false
            }
            LvalueKind::Deref(_) => true,
            LvalueKind::Value(_) => {
                self.report(Diagnostic::error(212, span, "cannot assign to this").label("this is a value"));
                false
            }
        }
    }
}
