//! Strict mode: rejects the syntax that KernelScript 0.1.1 cannot parse.

use super::Parser;
use crate::ast::{Expr, ExprKind};
use crate::diag::{Diagnostic, Diagnostics};
use crate::lex::{Punct, Token, TokenKind};
use crate::source::Span;

impl Parser<'_> {
    /// Rejects, in strict mode, the syntax at `span`; parsing continues.
    pub(super) fn since_011(&mut self, span: Span, what: &str) {
        self.since_011_as(201, span, what);
    }

    /// Rejects, in strict mode, the syntax at `span` with a diagnostic code of its own.
    pub(super) fn since_011_as(&mut self, code: u16, span: Span, what: &str) {
        if self.options.strict_011 {
            self.report(
                Diagnostic::error(code, span, format!("KernelScript 0.1.1 has no {what}"))
                    .note("refused because only what 0.1.1 accepts is wanted"),
            );
        }
    }
}

/// Reports each `;`, which 0.1.1 does not have.
pub(super) fn report_semicolons(tokens: &[Token], diagnostics: &mut Diagnostics) {
    for token in tokens.iter().filter(|token| token.kind == TokenKind::Punct(Punct::Semicolon)) {
        diagnostics.report(
            Diagnostic::error(101, token.span, "KernelScript 0.1.1 has no `;`")
                .note("rejected by --strict-011: not part of KernelScript 0.1.1")
                .suggest(token.span, "", "a statement ends by itself: remove it"),
        );
    }
}

/// Whether 0.1.1's grammar derives this expression from `primary`.
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
