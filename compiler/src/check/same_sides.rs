//! KS0431: comparisons of a variable with itself.

use std::cmp::Ordering;

use super::fold::holds_for;
use super::function::Body;
use super::operator::comparison_op;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Half, LocalId};
use crate::source::Span;

impl Body<'_, '_> {
    /// Warns about a comparison whose sides are the same variable, or the same member of one.
    pub(super) fn warn_same_sides(
        &mut self,
        op: ast::BinaryOp,
        left: &ast::Expr,
        right: &ast::Expr,
        span: Span,
    ) {
        let Some(name) = self.unshared_name(left) else { return };
        if self.unshared_name(right).as_ref() != Some(&name) {
            return;
        }
        let outcome = holds_for(comparison_op(op), Ordering::Equal);
        let text = format!("`{name} {} {name}` is always {outcome}", op.text());
        self.report(Diagnostic::warning(431, span, text).label("both sides are the same"));
    }

    /// Returns the name of a variable, or of a member of one, as a script writes it. None for other
    /// expressions, and for members that another CPU may change between two reads.
    fn unshared_name(&self, expr: &ast::Expr) -> Option<String> {
        match &strip(expr).kind {
            ast::ExprKind::Name(name) => self.named_local(expr).map(|_| name.clone()),
            ast::ExprKind::Field { base, arrow: false, name } => {
                if self.named_local(base).is_some_and(|local| self.may_alias_entry(local)) {
                    return None;
                }
                Some(format!("{}.{}", self.unshared_name(base)?, name.name))
            }
            _ => None,
        }
    }

    /// Whether a struct variable may be an alias of a map entry.
    fn may_alias_entry(&self, local: LocalId) -> bool {
        self.half() == Half::Kernel && (self.locals[local].binding || self.entry_values.contains(&local))
    }
}
