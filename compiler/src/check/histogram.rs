//! Histograms: the slot of a value, and printing the counts of slots.

use super::aggregates::LOG2_SLOTS;
use super::expr::Typed;
use super::function::Body;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, SharedBuiltin, UserBuiltin};
use crate::source::Span;
use crate::types::TypeKind;

/// Maximum number of slots that the contract's `console.histogram` accepts.
const MAX_SLOTS: u64 = 4096;

impl Body<'_, '_> {
    pub(super) fn log2_slot_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let value = self.number(&args[0], self.common().u64);
        self.shared_builtin(SharedBuiltin::Log2Slot(Box::new(value)), self.common().u32, span)
    }

    pub(super) fn linear_slot_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let u64 = self.common().u64;
        let numbers = [0, 1, 2, 3].map(|index: usize| self.number(&args[index], u64));
        self.shared_builtin(SharedBuiltin::LinearSlot(Box::new(numbers)), self.common().u32, span)
    }

    pub(super) fn print_log2_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        self.print_histogram(&args[0], &args[1], LOG2_SLOTS, span, |_| None)
    }

    pub(super) fn print_linear_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        self.print_histogram(&args[0], &args[1], MAX_SLOTS, span, |body| {
            let u64 = body.common().u64;
            Some(Box::new([2, 3].map(|index: usize| body.number(&args[index], u64))))
        })
    }

    fn print_histogram(
        &mut self,
        title: &ast::Expr,
        counts: &ast::Expr,
        most: u64,
        span: Span,
        linear: impl FnOnce(&mut Self) -> Option<Box<[Expr; 2]>>,
    ) -> Typed {
        let title = self.text_arg(title);
        let counts = self.counts_arg(counts, most);
        let linear = linear(self);
        let (Some(title), Some(counts)) = (title, counts) else { return self.error_expr(span) };
        let (title, counts) = (Box::new(title), Box::new(counts));
        self.user_builtin(UserBuiltin::Histogram { title, counts, linear }, self.common().void, span)
    }

    /// Checks an argument that is an array of at most `most` counts; `None` if it was reported.
    fn counts_arg(&mut self, arg: &ast::Expr, most: u64) -> Option<Expr> {
        let u64 = self.common().u64;
        let value = self.expr(arg, None).expr;
        match *self.checker.types.kind(value.ty) {
            TypeKind::Array(element, slots) if element == u64 && slots <= most => Some(value),
            TypeKind::Error => None,
            _ => {
                let found = self.type_name(value.ty);
                let text = format!("expected `u64[N]` with at most {most} slots, found `{found}`");
                let help = "count in a variable `counts : u64[65]`: `counts[log2_slot(value)] += 1`; what a \
                            map has is copied into one first";
                self.report(Diagnostic::error(401, value.span, text).help(help));
                None
            }
        }
    }
}
