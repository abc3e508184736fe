//! Calls of builtin functions (language reference, chapter 6).

use super::count;
use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind, FunctionKind, Half, KernelBuiltin, UserBuiltin};
use crate::source::Span;
use crate::types::TypeKind;

/// A builtin function.
struct Builtin {
    name: &'static str,
    /// A call of this name always means the builtin.
    strong: bool,
    kernel: Option<KernelBuiltin>,
    user: Option<UserCall>,
}

#[derive(Debug, Clone, Copy)]
enum UserCall {
    Print,
    Load,
    Attach,
    Detach,
    Read,
    Enable,
    Disable,
    Reset,
    Sleep,
    TimeNs,
    Stopping,
    Exit,
}

const fn kernel(name: &'static str, builtin: KernelBuiltin) -> Builtin {
    Builtin { name, strong: false, kernel: Some(builtin), user: None }
}

const fn user(name: &'static str, strong: bool, call: UserCall) -> Builtin {
    Builtin { name, strong, kernel: None, user: Some(call) }
}

const BUILTINS: &[Builtin] = &[
    user("print", true, UserCall::Print),
    user("load", true, UserCall::Load),
    user("attach", true, UserCall::Attach),
    user("detach", true, UserCall::Detach),
    user("read", true, UserCall::Read),
    user("enable", false, UserCall::Enable),
    user("disable", false, UserCall::Disable),
    user("reset", false, UserCall::Reset),
    user("sleep", false, UserCall::Sleep),
    Builtin {
        name: "time_ns",
        strong: false,
        kernel: Some(KernelBuiltin::TimeNs),
        user: Some(UserCall::TimeNs),
    },
    user("stopping", false, UserCall::Stopping),
    user("exit", false, UserCall::Exit),
    kernel("pid", KernelBuiltin::Pid),
    kernel("tid", KernelBuiltin::Tid),
    kernel("uid", KernelBuiltin::Uid),
    kernel("cpu", KernelBuiltin::Cpu),
    kernel("comm", KernelBuiltin::Comm),
    kernel("cgroup_id", KernelBuiltin::CgroupId),
];

/// Builtins of the language that this version does not compile.
pub(super) const LATER: &[&str] = &[
    "register",
    "test",
    "dispatch",
    "exec",
    "daemon",
    "pid_of",
    "comm_of",
    "cpu_count",
    "per_cpu",
    "len",
    "events",
    "symbol",
    "raw_event",
    "hw_cache",
    "tracepoint",
    "breakpoint",
    "pmu",
    "kprobe_event",
    "uprobe_event",
    "read_cpu",
    "clear",
    "count",
    "rate",
    "ratio",
    "id",
    "attachment_id",
    "stack_id",
    "user_stack_id",
    "sizeof",
    "ntohs",
    "htons",
    "ntohl",
    "htonl",
    "ntohll",
    "htonll",
];

/// The builtins of a half.
pub(super) fn names(half: Half) -> impl Iterator<Item = &'static str> {
    BUILTINS
        .iter()
        .filter(move |builtin| match half {
            Half::Kernel => builtin.kernel.is_some(),
            Half::User => builtin.user.is_some(),
        })
        .map(|builtin| builtin.name)
}

impl Body<'_, '_> {
    /// A call of a builtin; `None` if `name` is not one here, or if the script's own function hides it.
    pub(super) fn builtin_call(
        &mut self,
        name: &str,
        hidden: bool,
        args: &[ast::Expr],
        place: Span,
        span: Span,
    ) -> Option<Typed> {
        let builtin = BUILTINS.iter().find(|builtin| builtin.name == name)?;
        if hidden && !builtin.strong {
            return None;
        }
        match (self.half(), builtin.kernel, builtin.user) {
            (Half::Kernel, Some(kernel), _) => Some(self.kernel_call(kernel, name, args, span)),
            (Half::User, _, Some(user)) => Some(self.user_call(user, args, span)),
            (Half::Kernel, None, Some(UserCall::Print)) => {
                Some(self.not_yet(place, "`print` in the kernel half is"))
            }
            (half, ..) => {
                let other = if half == Half::Kernel { "userspace" } else { "kernel" };
                self.report(Diagnostic::error(306, place, format!("`{name}` belongs to the {other} half")));
                Some(self.error_expr(span))
            }
        }
    }

    fn kernel_call(&mut self, builtin: KernelBuiltin, name: &str, args: &[ast::Expr], span: Span) -> Typed {
        if !self.arguments(&format!("{name}()"), 0, args, span) {
            return self.error_expr(span);
        }
        let common = self.checker.types.common();
        let ty = match builtin {
            KernelBuiltin::TimeNs | KernelBuiltin::CgroupId => common.u64,
            KernelBuiltin::Pid | KernelBuiltin::Tid | KernelBuiltin::Uid | KernelBuiltin::Cpu => common.u32,
            KernelBuiltin::Comm => self.checker.types.str_type(16),
        };
        self.make(ExprKind::Kernel(builtin), ty, span)
    }

    /// Checks the number of arguments against a form like `sleep(ms)`.
    pub(super) fn arguments(&mut self, form: &str, wanted: usize, args: &[ast::Expr], span: Span) -> bool {
        let fits = args.len() == wanted;
        if !fits {
            let text = format!("`{form}` takes {}, {} given", count(wanted), args.len());
            self.report(Diagnostic::error(404, span, text));
        }
        fits
    }

    fn user_call(&mut self, call: UserCall, args: &[ast::Expr], span: Span) -> Typed {
        let common = self.checker.types.common();
        match call {
            UserCall::Print => self.print(args, span),
            UserCall::Load => self.load_call(args, span),
            UserCall::Attach => self.attach(args, span),
            UserCall::Detach => self.detach(args, span),
            UserCall::Read => self.read(args, span),
            UserCall::Enable => self.switch("enable(att)", UserBuiltin::Enable, args, span),
            UserCall::Disable => self.switch("disable(att)", UserBuiltin::Disable, args, span),
            UserCall::Reset => self.switch("reset(att)", UserBuiltin::Reset, args, span),
            UserCall::Sleep => {
                self.number_call("sleep(ms)", args, common.u64, span, UserBuiltin::Sleep, common.u32)
            }
            UserCall::Exit => {
                self.number_call("exit(code)", args, common.i32, span, UserBuiltin::Exit, common.void)
            }
            UserCall::TimeNs => self.plain_call("time_ns()", args, UserBuiltin::TimeNs, common.u64, span),
            UserCall::Stopping => {
                self.plain_call("stopping()", args, UserBuiltin::Stopping, common.bool, span)
            }
        }
    }

    fn plain_call(
        &mut self,
        form: &str,
        args: &[ast::Expr],
        builtin: UserBuiltin,
        ty: crate::types::TypeId,
        span: Span,
    ) -> Typed {
        if !self.arguments(form, 0, args, span) {
            return self.error_expr(span);
        }
        self.make(ExprKind::User(builtin), ty, span)
    }

    fn number_call(
        &mut self,
        form: &str,
        args: &[ast::Expr],
        param: crate::types::TypeId,
        span: Span,
        builtin: fn(Box<Expr>) -> UserBuiltin,
        ty: crate::types::TypeId,
    ) -> Typed {
        if !self.arguments(form, 1, args, span) {
            return self.error_expr(span);
        }
        let value = self.number(&args[0], param);
        self.make(ExprKind::User(builtin(Box::new(value))), ty, span)
    }

    /// An argument that takes any integer: a type that does not combine is widened by its own sign.
    fn number(&mut self, arg: &ast::Expr, to: crate::types::TypeId) -> Expr {
        let value = self.expr(arg, Some(to));
        if self.checker.types.int(value.expr.ty).is_none() || value.constant.is_some() {
            return self.coerce(value, to);
        }
        let span = value.expr.span;
        Expr { kind: ExprKind::Convert(Box::new(value.expr)), ty: to, span }
    }

    fn load_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        if !self.arguments("load(program)", 1, args, span) {
            return self.error_expr(span);
        }
        let arg = strip(&args[0]);
        let function = match &arg.kind {
            ast::ExprKind::Name(name) if self.lookup(name).is_none() => self.checker.names.own(name),
            ast::ExprKind::Name(_) => return self.not_yet(arg.span, "a program held in a variable is"),
            _ => None,
        };
        let Some(Symbol::Function(program)) = function else {
            if let ast::ExprKind::Name(name) = &arg.kind
                && self.checker.names.get(name).is_none()
            {
                self.unknown_program(name, arg.span);
            } else {
                self.report(Diagnostic::error(426, arg.span, "this is not a program"));
            }
            return self.error_expr(span);
        };
        if !self.checker.signatures[program].kind.is_none_or(FunctionKind::is_program) {
            let declared = self.checker.signatures[program].span;
            self.report(
                Diagnostic::error(426, arg.span, "this function is not a program")
                    .also(declared, "it has no attribute of a program kind, such as `@perf_event`"),
            );
            return self.error_expr(span);
        }
        let tested = self.target.as_ref().is_some_and(|name| self.prescan.null_tested.contains(name));
        let builtin = UserBuiltin::Load { program, exit_on_failure: !tested };
        self.make(ExprKind::User(builtin), self.checker.types.common().program, span)
    }

    fn unknown_program(&mut self, name: &str, span: Span) {
        let functions = self.checker.names.all(|symbol| matches!(symbol, Symbol::Function(_)));
        let help =
            crate::diag::near(name, functions).map(|near| format!("a similar function exists: `{near}`"));
        self.report(Diagnostic::error(305, span, format!("no function `{name}`")).maybe_help(help));
    }

    fn detach(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let common = self.checker.types.common();
        if !self.arguments("detach(attachment)", 1, args, span) {
            return self.error_expr(span);
        }
        let value = self.expr(&args[0], None).expr;
        let ty = value.ty;
        let builtin = match self.checker.types.kind(ty) {
            TypeKind::Error => return self.error_expr(span),
            TypeKind::Program => UserBuiltin::DetachProgram(Box::new(value)),
            _ if ty == self.checker.known.perf_attachment => UserBuiltin::Detach(Box::new(value)),
            _ => {
                let text =
                    format!("expected an attachment or a program handle, found `{}`", self.type_name(ty));
                self.report(Diagnostic::error(401, value.span, text));
                return self.error_expr(span);
            }
        };
        self.make(ExprKind::User(builtin), common.void, span)
    }
}
