//! What KernelScript 0.1.1 cannot read, refused if the options say so.

use super::Parser;
use crate::ast::{Expr, ExprKind};
use crate::diag::Diagnostic;
use crate::source::Span;

impl Parser<'_> {
    /// Refuses, in strict mode, what was read at `span`; reading goes on.
    pub(super) fn since_011(&mut self, span: Span, what: &str) {
        self.since_011_as(201, span, what);
    }

    /// The same under a code of its own.
    pub(super) fn since_011_as(&mut self, code: u16, span: Span, what: &str) {
        if self.options.strict_011 {
            self.report(
                Diagnostic::error(code, span, format!("KernelScript 0.1.1 has no {what}"))
                    .note("refused because only what 0.1.1 accepts is wanted"),
            );
        }
    }
}

/// Whether 0.1.1's grammar has this as `primary`.
pub(super) fn is_primary(expr: &Expr) -> bool {
    matches!(
        expr.kind,
        ExprKind::Int(_)
            | ExprKind::Str(_)
            | ExprKind::Char(_)
            | ExprKind::Bool(_)
            | ExprKind::Null
            | ExprKind::Array(_)
            | ExprKind::Name(_)
            | ExprKind::Paren(_)
            | ExprKind::Field { .. }
            | ExprKind::Call { .. }
            | ExprKind::New(..)
    )
}
