//! Calls of builtin functions: finds the builtin of a name, and checks the half and the number of arguments.

use super::builtin_table::{BUILTINS, Builtin, named, parameters};
use super::count;
use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, Half, KernelBuiltin, SharedBuiltin, UserBuiltin};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Returns the names of a half's builtins.
pub(super) fn names(half: Half) -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().filter(move |builtin| builtin.halves.contains(&half)).map(|builtin| builtin.name)
}

/// Returns the number of arguments of a form; none if it takes any number.
fn arity(form: &str) -> Option<usize> {
    let inner = parameters(form);
    match inner {
        _ if inner.contains("..") => None,
        "" => Some(0),
        _ => Some(inner.matches(',').count() + 1),
    }
}

impl Body<'_, '_> {
    /// Checks a call of a builtin; `None` if `name` is not a builtin of this half, or if the script's own
    /// function hides it.
    pub(super) fn builtin_call(
        &mut self,
        name: &str,
        hidden: bool,
        args: &[ast::Expr],
        name_span: Span,
        span: Span,
    ) -> Option<Typed> {
        if !hidden && self.old_call(name, args, name_span, span) {
            return Some(self.error_expr(span));
        }
        let builtin = named(name)?;
        if hidden && !builtin.in_011 {
            return None;
        }
        if !builtin.in_011 {
            self.checker.strict(name_span, &format!("builtin `{name}`"));
        }
        let half = self.half();
        if !builtin.halves.contains(&half) {
            let text = format!("`{name}` belongs to the {} half", half.other().name());
            self.report(Diagnostic::error(306, name_span, text));
            return Some(self.error_expr(span));
        }
        if !self.count_fits(builtin, positional(args), span) {
            return Some(self.error_expr(span));
        }
        if let Some(wrong) = args[positional(args).len()..].iter().find(|arg| !is_named(arg, builtin.named)) {
            let text = match &wrong.kind {
                ast::ExprKind::Named(name, _) => {
                    format!("`{}` has no argument `{}`", builtin.name, name.name)
                }
                _ => "arguments with names stand behind the others".to_owned(),
            };
            self.report(Diagnostic::error(404, wrong.span, text));
            return Some(self.error_expr(span));
        }
        Some(self.not_last(|body| (builtin.check)(body, args, span)))
    }

    /// Checks the number of arguments against the forms of a builtin.
    pub(super) fn count_fits(&mut self, builtin: &Builtin, args: &[ast::Expr], span: Span) -> bool {
        let mut counts: Vec<usize> = Vec::new();
        for form in builtin.forms {
            match arity(form) {
                None => return true,
                Some(wanted) if wanted == args.len() => return true,
                Some(wanted) => counts.push(wanted),
            }
        }
        counts.sort_unstable();
        counts.dedup();
        let calls = builtin.calls();
        let (head, takes) = match (calls.as_slice(), counts.as_slice()) {
            ([call], [wanted]) => (call.as_str(), count(*wanted)),
            (_, [wanted]) => (builtin.name, count(*wanted)),
            _ => {
                let counts: Vec<_> = counts.iter().map(usize::to_string).collect();
                (builtin.name, format!("{} arguments", counts.join(" or ")))
            }
        };
        let text = format!("`{head}` takes {takes}, {} given", args.len());
        let mut diagnostic = Diagnostic::error(404, span, text);
        if calls.len() > 1 {
            for call in &calls {
                diagnostic = diagnostic.help(format!("write `{call}`"));
            }
        }
        self.report(diagnostic);
        false
    }

    pub(super) fn common(&self) -> crate::types::Common {
        self.checker.types.common()
    }

    pub(super) fn user_builtin(&self, builtin: UserBuiltin, ty: TypeId, span: Span) -> Typed {
        self.make(ExprKind::User(builtin), ty, span)
    }

    pub(super) fn kernel_builtin(&self, builtin: KernelBuiltin, ty: TypeId, span: Span) -> Typed {
        self.make(ExprKind::Kernel(builtin), ty, span)
    }

    pub(super) fn shared_builtin(&self, builtin: SharedBuiltin, ty: TypeId, span: Span) -> Typed {
        self.make(ExprKind::Shared(builtin), ty, span)
    }

    /// Checks an argument that may be any integer: a type that does not combine is widened by its own sign.
    pub(super) fn number(&mut self, arg: &ast::Expr, to: TypeId) -> Expr {
        let value = self.expr(arg, Some(to));
        self.as_number(value, to)
    }

    /// Checks a value as [`Body::number`] does.
    pub(super) fn as_number(&mut self, value: Typed, to: TypeId) -> Expr {
        match self.checker.types.kind(value.expr.ty) {
            TypeKind::Int(_) if value.constant.is_none() => {}
            TypeKind::Int(_) | TypeKind::Enum(_) | TypeKind::Error => return self.coerce(value, to),
            _ => {
                let text = format!("expected an integer, found `{}`", self.type_name(value.expr.ty));
                self.report(Diagnostic::error(401, value.expr.span, text));
                return self.error_expr(value.expr.span).expr;
            }
        }
        if value.expr.ty == to {
            return value.expr;
        }
        let span = value.expr.span;
        Expr { kind: ExprKind::Convert(Box::new(value.expr)), ty: to, span }
    }

    /// Checks an argument that is a string of any size; `None` if it was reported.
    pub(super) fn text_arg(&mut self, arg: &ast::Expr) -> Option<Expr> {
        let value = self.expr(arg, None).expr;
        match self.checker.types.kind(value.ty) {
            TypeKind::Str(_) => Some(value),
            TypeKind::Error => None,
            _ => {
                let text = format!("expected a string, found `{}`", self.type_name(value.ty));
                self.report(Diagnostic::error(401, value.span, text));
                None
            }
        }
    }

    /// Returns the meaning of a name at top level, or of `module.name`; `None` for every other expression.
    pub(super) fn top_symbol(&self, expr: &ast::Expr) -> Option<Symbol> {
        match &strip(expr).kind {
            ast::ExprKind::Name(name) if self.lookup(name).is_none() => self.checker.names.get(name),
            ast::ExprKind::Field { base, arrow: false, name } => match self.top_symbol(base)? {
                Symbol::Module(module) => self.checker.modules.get(module)?.own(&name.name),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Whether an argument is given by one of these names.
fn is_named(arg: &ast::Expr, names: &[&str]) -> bool {
    matches!(&arg.kind, ast::ExprKind::Named(name, _) if names.contains(&name.name.as_str()))
}

/// Returns the value of the argument with this name, the last one if it is given twice.
pub(super) fn named_argument<'e>(args: &'e [ast::Expr], wanted: &str) -> Option<&'e ast::Expr> {
    args.iter().rev().find_map(|arg| match &arg.kind {
        ast::ExprKind::Named(name, value) if name.name == wanted => Some(&**value),
        _ => None,
    })
}

/// Returns the arguments before those with names.
pub(super) fn positional(args: &[ast::Expr]) -> &[ast::Expr] {
    let end = args.iter().position(|arg| matches!(arg.kind, ast::ExprKind::Named(..)));
    &args[..end.unwrap_or(args.len())]
}

/// The bytes of a string literal.
pub(super) fn literal_text(expr: &ast::Expr) -> Option<&[u8]> {
    match &strip(expr).kind {
        ast::ExprKind::Str(bytes) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_say_how_many_arguments_there_are() {
        assert_eq!(arity("() -> u64"), Some(0));
        assert_eq!(arity("(ms: u32) -> u32"), Some(1));
        assert_eq!(arity("(a: u64, b: u64, scale: u64) -> u64"), Some(3));
        assert_eq!(arity("(pid: i32) -> str(16)"), Some(1));
        assert_eq!(arity("(format, values..) -> u32"), None);
    }
}
