//! Calls of the script's own functions.

use super::count;
use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::{Diagnostic, near};
use crate::hir::{ExprKind, FuncId, FunctionKind, Half};
use crate::source::Span;

impl Body<'_, '_> {
    pub(super) fn call(&mut self, callee: &ast::Expr, args: &[ast::Expr], span: Span) -> Typed {
        let ast::ExprKind::Name(name) = &strip(callee).kind else {
            return match &strip(callee).kind {
                ast::ExprKind::Field { base, .. } => self.method(base, callee.span),
                _ => self.not_yet(callee.span, "a call of a computed function is"),
            };
        };
        if let Some(Scoped::Local(_) | Scoped::Const(..)) = self.lookup(name) {
            return self.not_yet(callee.span, "a call through a variable is");
        }
        let own = self.checker.names.own(name);
        if let Some(call) = self.builtin_call(name, own.is_some(), args, callee.span, span) {
            return call;
        }
        match own {
            Some(Symbol::Function(id)) => self.function_call(name, id, args, callee.span, span),
            Some(_) => {
                self.report(Diagnostic::error(305, callee.span, format!("`{name}` is no function")));
                self.error_expr(span)
            }
            None => {
                self.unknown_function(name, callee.span);
                self.error_expr(span)
            }
        }
    }

    fn method(&mut self, base: &ast::Expr, span: Span) -> Typed {
        if let ast::ExprKind::Name(name) = &strip(base).kind
            && matches!(self.checker.names.get(name), Some(Symbol::Map(_)))
        {
            self.report(
                Diagnostic::error(304, span, "a map has no methods")
                    .help(format!("`{name}[key]` looks up, `{name}[key] = value` updates")),
            );
            return self.error_expr(span);
        }
        self.not_yet(span, "a call of a member is")
    }

    fn function_call(
        &mut self,
        name: &str,
        id: FuncId,
        args: &[ast::Expr],
        place: Span,
        span: Span,
    ) -> Typed {
        let signature = &self.checker.signatures[id];
        let (kind, ret, declared) = (signature.kind, signature.ret, signature.span);
        let params = signature.params.clone();
        let Some(kind) = kind else { return self.error_expr(span) };
        if kind.is_program() {
            self.report(
                Diagnostic::error(716, place, "a program can only be entered by the kernel")
                    .also(declared, format!("`{name}` is one"))
                    .help("move the shared part into a `@helper`"),
            );
            return self.error_expr(span);
        }
        if kind.half() != self.half() {
            let (half, help) = match kind {
                FunctionKind::Plain => ("userspace", "mark it `@helper` to call it from the kernel half"),
                _ => ("kernel", "share the result through a map or a global variable"),
            };
            self.report(
                Diagnostic::error(306, place, format!("`{name}` belongs to the {half} half"))
                    .also(declared, "declared here")
                    .help(help),
            );
            return self.error_expr(span);
        }
        if args.len() != params.len() {
            let text = format!("`{name}` takes {}, {} given", count(params.len()), args.len());
            self.report(Diagnostic::error(404, span, text).also(declared, "declared here"));
            return self.error_expr(span);
        }
        let args = args.iter().zip(params).map(|(arg, ty)| self.value(arg, ty)).collect();
        self.make(ExprKind::Call { func: id, args }, ret, span)
    }

    fn unknown_function(&mut self, name: &str, span: Span) {
        if let Some(help) = super::perf::old_call(name) {
            self.report(Diagnostic::error(902, span, format!("old spelling `{name}`")).help(help));
            return;
        }
        let other = match self.half() {
            Half::Kernel => Half::User,
            Half::User => Half::Kernel,
        };
        if super::builtin::names(other).any(|builtin| builtin == name) {
            let half = if other == Half::User { "userspace" } else { "kernel" };
            self.report(Diagnostic::error(306, span, format!("`{name}` belongs to the {half} half")));
            return;
        }
        if super::builtin::LATER.contains(&name) {
            self.report(Diagnostic::not_yet(span, &format!("`{name}` is")));
            return;
        }
        let mut known = self.checker.names.all(|symbol| matches!(symbol, Symbol::Function(_)));
        super::builtin::names(self.half()).for_each(|builtin| known.push(builtin));
        let help = near(name, known).map(|near| format!("a similar function exists: `{near}`"));
        self.report(Diagnostic::error(305, span, format!("no function `{name}`")).maybe_help(help));
    }
}
