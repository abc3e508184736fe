//! `pid(task)` and `tid(task)`: ids of tasks of the kernel.

use super::expr::Typed;
use super::function::Body;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, KernelBuiltin};
use crate::source::Span;

impl Body<'_, '_> {
    /// Checks `pid` or `tid`: of the running task, or of the one that the argument points to.
    pub(super) fn task_id_call(&mut self, args: &[ast::Expr], is_process: bool, span: Span) -> Typed {
        match args.first() {
            Some(task) => self.task_number(task, is_process, span),
            None => {
                let own = if is_process { KernelBuiltin::Pid } else { KernelBuiltin::Tid };
                self.kernel_builtin(own, self.common().u32, span)
            }
        }
    }

    /// Checks the id of a task by a pointer to it, which is read twice: for its address, and for the member that has the id
    /// in the initial PID namespace.
    fn task_number(&mut self, task: &ast::Expr, is_process: bool, span: Span) -> Typed {
        let name = if is_process { "pid" } else { "tid" };
        let pointer = self.not_last(|body| body.expr(task, None)).expr;
        if self.checker.types.is_error(pointer.ty) {
            return self.error_expr(span);
        }
        let is_task = self.checker.points_to(pointer.ty, "task_struct");
        if !is_task || calls(task) {
            let found = if is_task { "call".to_owned() } else { format!("`{}`", self.type_name(pointer.ty)) };
            let text =
                format!("`{name}` takes a variable or member that points to a `task_struct`, not a {found}");
            let help = format!("write `var task = ..` and `{name}(task)`");
            self.report(Diagnostic::error(401, pointer.span, text).help(help));
            return self.error_expr(span);
        }
        let member = if is_process { "tgid" } else { "pid" };
        let kind = ast::ExprKind::Field {
            base: Box::new(task.clone()),
            arrow: true,
            name: ast::Ident { name: member.to_owned(), span },
        };
        let initial = self.not_last(|body| body.expr(&ast::Expr { kind, span }, None)).expr;
        if self.checker.types.is_error(initial.ty) {
            return self.error_expr(span);
        }
        let ty = self.common().u32;
        let initial = Box::new(Expr { kind: ExprKind::Convert(Box::new(initial)), ty, span });
        let task = Box::new(self.address(pointer));
        self.kernel_builtin(KernelBuiltin::TaskNumber { task, initial, is_process }, ty, span)
    }
}

/// Whether an expression calls something.
fn calls(expr: &ast::Expr) -> bool {
    matches!(expr.kind, ast::ExprKind::Call { .. }) || expr.parts().into_iter().any(calls)
}
