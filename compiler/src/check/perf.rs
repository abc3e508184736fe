//! `attach` with options, `read`, and the other builtins that take an attachment (language reference, chapter
//! 10).

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, FunctionKind, Half, KernelBuiltin, ProgramKind, ReadForm, UserBuiltin};
use crate::source::Span;
use crate::types::TypeKind;

pub(super) const ATTACH_FORM: &str = "write `attach(handle, \
                                      perf_options { event: page_faults, pid: 0, cpu: -1 }, 0)`, or \
                                      `attach(perf_options { .. })` to count without a program";
const TARGET_FORM: &str = "write `attach(handle, \"eth0\", 0)` for a program with a target";

/// Reads of the old perf interface, each with the text after the argument in its replacement.
const OLD_CALLS: &[(&str, &str)] = &[("read_raw", ".raw"), ("read_details", ""), ("read_group", ".values")];

impl Body<'_, '_> {
    /// Reports a call of the old perf interface.
    pub(super) fn old_call(&mut self, name: &str, args: &[ast::Expr], name_span: Span, span: Span) -> bool {
        let Some((_, member)) = OLD_CALLS.iter().find(|(old, _)| *old == name) else { return false };
        let diagnostic = Diagnostic::error(902, name_span, format!("old spelling `{name}`"));
        self.report(match args {
            [arg] if let ast::ExprKind::Name(attachment) = &strip(arg).kind => {
                diagnostic.suggest(span, format!("read({attachment}){member}"), "now written")
            }
            _ => diagnostic.help(format!("write `read(attachment){member}`")),
        });
        true
    }

    pub(super) fn attach_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match args {
            [options] => self.attach_counting(options, span),
            [handle, second, flags] => {
                let program = self.expr(handle, None).expr;
                let second = self.expr(second, None).expr;
                let error = |value: &Expr| self.checker.types.is_error(value.ty);
                if error(&program) || error(&second) {
                    return self.error_expr(span);
                }
                match self.checker.types.kind(second.ty) {
                    _ if second.ty == self.checker.known.perf_options => {
                        self.attach_event(program, second, flags, span)
                    }
                    TypeKind::Str(_) => self.attach_target(program, second, flags, span),
                    _ => {
                        let text = format!(
                            "expected a target or `perf_options`, found `{}`",
                            self.type_name(second.ty)
                        );
                        self.report(
                            Diagnostic::error(401, second.span, text).help(TARGET_FORM).help(ATTACH_FORM),
                        );
                        self.error_expr(span)
                    }
                }
            }
            _ => self.error_expr(span),
        }
    }

    /// Checks `attach(options)`: the event is only counted.
    fn attach_counting(&mut self, options: &ast::Expr, span: Span) -> Typed {
        let known = self.checker.known;
        let options = self.expr(options, None).expr;
        if self.checker.types.is_error(options.ty) {
            return self.error_expr(span);
        }
        if options.ty != known.perf_options {
            self.report(
                Diagnostic::error(404, span, "`attach` with one argument takes `perf_options`")
                    .help(TARGET_FORM)
                    .help(ATTACH_FORM),
            );
            return self.error_expr(span);
        }
        self.checker.strict(span, "`attach` without a program");
        let builtin = UserBuiltin::Attach { program: None, options: Box::new(options), flags: None };
        self.user_builtin(builtin, known.perf_attachment, span)
    }

    /// Checks `attach(handle, options, flags)`.
    fn attach_event(&mut self, program: Expr, options: Expr, flags: &ast::Expr, span: Span) -> Typed {
        if program.ty != self.common().program {
            let text = format!("expected a program handle, found `{}`", self.type_name(program.ty));
            self.report(Diagnostic::error(906, program.span, text).help("`load(program)` gives the handle"));
            return self.error_expr(span);
        }
        if let Some(known) = self.program_of(&program) {
            let signature = &self.checker.signatures[known];
            let (kind, declared) = (signature.kind, signature.span);
            if kind.is_some_and(|kind| kind != FunctionKind::Program(ProgramKind::PerfEvent)) {
                self.report(
                    Diagnostic::error(906, options.span, "`perf_options` need a `@perf_event` program")
                        .also(declared, "the handle is of this program")
                        .help(TARGET_FORM),
                );
                return self.error_expr(span);
            }
        }
        let written = flags.span;
        let flags = self.number(flags, self.common().u64);
        if let ExprKind::Const(1..) = flags.kind {
            self.report(Diagnostic::error(907, written, "perf attach flags must be 0").suggest(
                written,
                "0",
                "the only value",
            ));
        }
        let builtin = UserBuiltin::Attach {
            program: Some(Box::new(program)),
            options: Box::new(options),
            flags: Some(Box::new(flags)),
        };
        self.user_builtin(builtin, self.checker.known.perf_attachment, span)
    }

    pub(super) fn read_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let reading = self.checker.known.perf_read;
        if let Some(Symbol::Counter(counter)) = self.top_symbol(&args[0]) {
            return match self.half() {
                Half::Kernel => self.kernel_builtin(KernelBuiltin::ReadCounter(counter), reading, span),
                Half::User => self.user_builtin(UserBuiltin::ReadCounter(counter, None), reading, span),
            };
        }
        let Some(attachment) = self.attachment_arg(&args[0], "read") else { return self.error_expr(span) };
        if self.half() == Half::Kernel {
            self.report(
                Diagnostic::error(306, span, "`read` of an attachment belongs to the userspace half")
                    .help("a program reads a `counter`: `counter cycles : cpu_cycles` at top level"),
            );
            return self.error_expr(span);
        }
        let builtin = UserBuiltin::Read { attachment: Box::new(attachment), form: ReadForm::Snapshot };
        self.user_builtin(builtin, reading, span)
    }

    pub(super) fn read_cpu_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let reading = self.checker.known.perf_read;
        let counter = match self.top_symbol(&args[0]) {
            Some(Symbol::Counter(counter)) => Ok(counter),
            _ => Err(self.attachment_arg(&args[0], "read_cpu")),
        };
        let cpu = self.number(&args[1], self.common().u32);
        match counter {
            Ok(counter) => {
                self.user_builtin(UserBuiltin::ReadCounter(counter, Some(Box::new(cpu))), reading, span)
            }
            Err(Some(attachment)) => {
                self.user_builtin(UserBuiltin::ReadCpu(Box::new([attachment, cpu])), reading, span)
            }
            Err(None) => self.error_expr(span),
        }
    }

    pub(super) fn id_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        match self.attachment_arg(&args[0], "id") {
            Some(attachment) => {
                self.user_builtin(UserBuiltin::Id(Box::new(attachment)), self.common().u64, span)
            }
            None => self.error_expr(span),
        }
    }

    /// Checks `enable`, `disable` and `reset`.
    pub(super) fn switch_call(
        &mut self,
        name: &str,
        builtin: fn(Box<Expr>) -> UserBuiltin,
        args: &[ast::Expr],
        span: Span,
    ) -> Typed {
        match self.attachment_arg(&args[0], name) {
            Some(attachment) => self.user_builtin(builtin(Box::new(attachment)), self.common().u32, span),
            None => self.error_expr(span),
        }
    }

    fn attachment_arg(&mut self, arg: &ast::Expr, name: &str) -> Option<Expr> {
        let (found, help) = match self.top_symbol(arg) {
            Some(Symbol::Map(_)) => ("a map".to_owned(), "an element of a map is `name[key]`"),
            Some(Symbol::Ring(_)) => ("a ring buffer".to_owned(), "`dispatch(ring)` runs its handler"),
            Some(Symbol::Config(_)) => ("a config block".to_owned(), "a field of it is `name.field`"),
            Some(Symbol::Counter(_)) => ("a counter".to_owned(), "`read(counter)` reads it"),
            _ => {
                let value = self.expr(arg, None).expr;
                if value.ty == self.checker.known.perf_attachment {
                    return Some(value);
                }
                let help = match self.checker.types.kind(value.ty) {
                    TypeKind::Error => return None,
                    TypeKind::Program => "`attach` gives the attachment; this is the program's handle",
                    _ => "`attach` gives an attachment",
                };
                (format!("`{}`", self.type_name(value.ty)), help)
            }
        };
        let text = format!("`{name}` takes a perf attachment, not {found}");
        self.report(Diagnostic::error(908, arg.span, text).help(help));
        None
    }
}
