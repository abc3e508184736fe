//! `lock (v) { .. }`: a block that runs while the entry that `v` is bound to is locked.

use super::function::Body;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{ExprKind, Half, LocalId, Lvalue, LvalueKind, StmtKind};

impl Body<'_, '_> {
    /// Checks the statement as far as types decide; the rest is a rule of control flow.
    pub(super) fn lock(&mut self, name: &ast::Ident, body: &ast::Block) -> Option<StmtKind> {
        let local = self.locked(name);
        let body = self.inner_block(body);
        Some(StmtKind::Lock { local: local?, body })
    }

    fn locked(&mut self, name: &ast::Ident) -> Option<LocalId> {
        if self.half() == Half::User {
            self.report(
                Diagnostic::error(306, name.span, "`lock` belongs to the kernel half")
                    .note("userspace reads and writes a value with a lock as a whole, under the lock"),
            );
            return None;
        }
        let named = ast::Expr { kind: ast::ExprKind::Name(name.name.clone()), span: name.span };
        let value = self.expr(&named, None).expr;
        if self.checker.types.is_error(value.ty) {
            return None;
        }
        if let ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) = value.kind {
            return Some(local);
        }
        let text = format!("`{}` is not a variable that is bound to an entry of a map", name.name);
        self.report(
            Diagnostic::error(625, name.span, text).help("write `if (var v = m[key]) { lock (v) { .. } }`"),
        );
        None
    }
}
