//! The builtin functions: their names, halves and forms, and the function that checks a call of each
//! (language reference, chapters 6 and 11).

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

/// Checks the arguments of a call whose number of arguments fits one of the forms.
type Call = fn(&mut Body<'_, '_>, &[ast::Expr], Span) -> Typed;

/// A builtin function and its forms.
struct Builtin {
    name: &'static str,
    /// Whether KernelScript 0.1.1 has it: a call of this name then always means the builtin. The script's own
    /// names hide the others.
    strong: bool,
    halves: &'static [Half],
    /// The forms of a call, with a name for each argument.
    forms: &'static [&'static str],
    call: Call,
}

const USER: &[Half] = &[Half::User];
const KERNEL: &[Half] = &[Half::Kernel];
const BOTH: &[Half] = &[Half::User, Half::Kernel];

const fn strong(
    name: &'static str,
    halves: &'static [Half],
    forms: &'static [&'static str],
    call: Call,
) -> Builtin {
    Builtin { name, strong: true, halves, forms, call }
}

const fn weak(
    name: &'static str,
    halves: &'static [Half],
    forms: &'static [&'static str],
    call: Call,
) -> Builtin {
    Builtin { name, strong: false, halves, forms, call }
}

#[rustfmt::skip]
const BUILTINS: &[Builtin] = &[
    strong("print", BOTH, &["print(format, ..)"], |body, args, span| body.print_call(args, span)),
    strong("load", USER, &["load(program)"], |body, args, span| body.load_call(args, span)),
    strong("attach", USER, &["attach(handle, target, flags)", "attach(handle, perf_options, 0)", "attach(perf_options)"], |body, args, span| body.attach_call(args, span)),
    strong("detach", USER, &["detach(attachment)"], |body, args, span| body.detach_call(args, span)),
    strong("read", BOTH, &["read(attachment)"], |body, args, span| body.read_call(args, span)),
    strong("register", USER, &["register(impl)"], |body, args, span| body.register_call(args, span)),
    strong("test", USER, &["test(program, input)"], |body, args, span| body.test_call(args, span)),
    strong("dispatch", USER, &["dispatch(ring, ..)"], |body, args, span| body.dispatch_call(args, span)),
    strong("exec", USER, &["exec(\"script.py\")"], |body, args, span| body.exec_call(args, span)),
    strong("daemon", USER, &["daemon()"], |body, _, span| body.user_builtin(UserBuiltin::Daemon, body.common().void, span)),

    weak("sleep", USER, &["sleep(ms)"], |body, args, span| body.sleep_call(args, span)),
    weak("time_ns", BOTH, &["time_ns()"], |body, _, span| body.time_ns_call(span)),
    weak("exit", USER, &["exit(code)"], |body, args, span| body.exit_call(args, span)),
    weak("stopping", USER, &["stopping()"], |body, _, span| body.user_builtin(UserBuiltin::Stopping, body.common().bool, span)),
    weak("has_command", USER, &["has_command()"], |body, _, span| body.user_builtin(UserBuiltin::HasCommand, body.common().bool, span)),
    weak("pid_of", USER, &["pid_of(name)"], |body, args, span| body.pid_of_call(args, span)),
    weak("comm_of", USER, &["comm_of(pid)"], |body, args, span| body.comm_of_call(args, span)),
    weak("cpu_count", USER, &["cpu_count()"], |body, _, span| body.user_builtin(UserBuiltin::CpuCount, body.common().u32, span)),
    weak("len", BOTH, &["len(text)"], |body, args, span| body.len_call(args, span)),
    weak("events", USER, &["events(pattern)"], |body, args, span| body.events_call(args, span)),
    weak("symbol", USER, &["symbol(address)", "symbol(pid, address)"], |body, args, span| body.symbol_call(args, span)),
    weak("enable", USER, &["enable(attachment)"], |body, args, span| body.switch_call("enable", UserBuiltin::Enable, args, span)),
    weak("disable", USER, &["disable(attachment)"], |body, args, span| body.switch_call("disable", UserBuiltin::Disable, args, span)),
    weak("reset", USER, &["reset(attachment)"], |body, args, span| body.switch_call("reset", UserBuiltin::Reset, args, span)),
    weak("read_cpu", USER, &["read_cpu(attachment, cpu)"], |body, args, span| body.read_cpu_call(args, span)),
    weak("id", USER, &["id(attachment)"], |body, args, span| body.id_call(args, span)),
    weak("ratio", USER, &["ratio(a, b, scale)"], |body, args, span| body.ratio_call(args, span)),
    weak("log2_slot", BOTH, &["log2_slot(value)"], |body, args, span| body.log2_slot_call(args, span)),
    weak("linear_slot", BOTH, &["linear_slot(value, low, step, slots)"], |body, args, span| body.linear_slot_call(args, span)),
    weak("print_log2_hist", USER, &["print_log2_hist(title, counts)"], |body, args, span| body.print_log2_call(args, span)),
    weak("print_linear_hist", USER, &["print_linear_hist(title, counts, low, step)"], |body, args, span| body.print_linear_call(args, span)),
    weak("rate", USER, &["rate(before, now)"], |body, args, span| body.rate_call(args, span)),

    weak("per_cpu", USER, &["per_cpu(map, key, cpu)"], |body, args, span| body.per_cpu_call(args, span)),
    weak("clear", USER, &["clear(map)"], |body, args, span| body.clear_call(args, span)),
    weak("count", USER, &["count(map)"], |body, args, span| body.count_call(args, span)),

    weak("pid", KERNEL, &["pid()"], |body, _, span| body.kernel_builtin(KernelBuiltin::Pid, body.common().u32, span)),
    weak("tid", KERNEL, &["tid()"], |body, _, span| body.kernel_builtin(KernelBuiltin::Tid, body.common().u32, span)),
    weak("uid", KERNEL, &["uid()"], |body, _, span| body.kernel_builtin(KernelBuiltin::Uid, body.common().u32, span)),
    weak("cpu", KERNEL, &["cpu()"], |body, _, span| body.kernel_builtin(KernelBuiltin::Cpu, body.common().u32, span)),
    weak("comm", KERNEL, &["comm()"], |body, _, span| body.comm_call(span)),
    weak("cgroup_id", KERNEL, &["cgroup_id()"], |body, _, span| body.kernel_builtin(KernelBuiltin::CgroupId, body.common().u64, span)),
    weak("attachment_id", KERNEL, &["attachment_id(ctx)"], |body, args, span| body.attachment_id_call(args, span)),
    weak("stack_id", KERNEL, &["stack_id(ctx, stacks)"], |body, args, span| body.stack_id_call(false, args, span)),
    weak("user_stack_id", KERNEL, &["user_stack_id(ctx, stacks)"], |body, args, span| body.stack_id_call(true, args, span)),

    weak("sizeof", BOTH, &["sizeof(type)"], |body, args, span| body.size_of_call(args, span)),
    weak("ntohs", BOTH, &["ntohs(value)"], |body, args, span| body.swap_bytes_call(body.common().u16, args, span)),
    weak("htons", BOTH, &["htons(value)"], |body, args, span| body.swap_bytes_call(body.common().u16, args, span)),
    weak("ntohl", BOTH, &["ntohl(value)"], |body, args, span| body.swap_bytes_call(body.common().u32, args, span)),
    weak("htonl", BOTH, &["htonl(value)"], |body, args, span| body.swap_bytes_call(body.common().u32, args, span)),
    weak("ntohll", BOTH, &["ntohll(value)"], |body, args, span| body.swap_bytes_call(body.common().u64, args, span)),
    weak("htonll", BOTH, &["htonll(value)"], |body, args, span| body.swap_bytes_call(body.common().u64, args, span)),

    weak("raw_event", BOTH, &["raw_event(type, config)", "raw_event(type, config, config1, config2)"], |body, args, span| body.packed_event("raw_event", args, span)),
    weak("hw_cache", BOTH, &["hw_cache(cache, op, result)"], |body, args, span| body.packed_event("hw_cache", args, span)),
    weak("tracepoint", BOTH, &["tracepoint(\"category/event\")"], |body, args, span| body.packed_event("tracepoint", args, span)),
    weak("breakpoint", BOTH, &["breakpoint(address, len, access)"], |body, args, span| body.packed_event("breakpoint", args, span)),
    weak("pmu", BOTH, &["pmu(\"name/terms/\")"], |body, args, span| body.packed_event("pmu", args, span)),
    weak("kprobe_event", BOTH, &["kprobe_event(\"function\")"], |body, args, span| body.packed_event("kprobe_event", args, span)),
    weak("uprobe_event", BOTH, &["uprobe_event(\"path:function\")"], |body, args, span| body.packed_event("uprobe_event", args, span)),
];

/// Whether a builtin has this name.
pub(super) fn is_builtin(name: &str) -> bool {
    !forms(name).is_empty()
}

/// Returns the names of a half's builtins.
pub(super) fn names(half: Half) -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().filter(move |builtin| builtin.halves.contains(&half)).map(|builtin| builtin.name)
}

/// Whether no script may declare the builtin's name.
pub(super) fn is_strong(name: &str) -> bool {
    BUILTINS.iter().any(|builtin| builtin.strong && builtin.name == name)
}

/// Returns the forms of a call, with a name for each argument.
pub(super) fn forms(name: &str) -> &'static [&'static str] {
    BUILTINS.iter().find(|builtin| builtin.name == name).map_or(&[], |builtin| builtin.forms)
}

/// Returns the number of arguments of a form; none if it takes any number.
fn arity(form: &str) -> Option<usize> {
    let inner = form.split_once('(').map_or("", |(_, inner)| inner);
    match inner {
        _ if inner.contains("..") => None,
        ")" => Some(0),
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
        let builtin = BUILTINS.iter().find(|builtin| builtin.name == name)?;
        if hidden && !builtin.strong {
            return None;
        }
        if !builtin.strong {
            self.checker.strict(name_span, &format!("builtin `{name}`"));
        }
        let half = self.half();
        if !builtin.halves.contains(&half) {
            let text = format!("`{name}` belongs to the {} half", half.other().name());
            self.report(Diagnostic::error(306, name_span, text));
            return Some(self.error_expr(span));
        }
        if !self.count_fits(name, builtin.forms, args, span) {
            return Some(self.error_expr(span));
        }
        Some(self.not_last(|body| (builtin.call)(body, args, span)))
    }

    /// Checks the number of arguments against forms like `sleep(ms)`.
    pub(super) fn count_fits(&mut self, name: &str, forms: &[&str], args: &[ast::Expr], span: Span) -> bool {
        let mut counts: Vec<usize> = Vec::new();
        for form in forms {
            match arity(form) {
                None => return true,
                Some(wanted) if wanted == args.len() => return true,
                Some(wanted) if counts.contains(&wanted) => {}
                Some(wanted) => counts.push(wanted),
            }
        }
        counts.sort_unstable();
        let diagnostic = match (forms, counts.as_slice()) {
            ([form], [wanted]) => {
                let text = format!("`{form}` takes {}, {} given", count(*wanted), args.len());
                Diagnostic::error(404, span, text)
            }
            _ => {
                let counts: Vec<_> = counts.iter().map(usize::to_string).collect();
                let text = format!("`{name}` takes {} arguments, {} given", counts.join(" or "), args.len());
                forms.iter().fold(Diagnostic::error(404, span, text), |diagnostic, form| {
                    diagnostic.help(format!("write `{form}`"))
                })
            }
        };
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
        assert_eq!(arity("time_ns()"), Some(0));
        assert_eq!(arity("sleep(ms)"), Some(1));
        assert_eq!(arity("ratio(a, b, scale)"), Some(3));
        assert_eq!(arity("print(format, ..)"), None);
    }

    #[test]
    fn the_ten_of_kernelscript_0_1_1_are_strong() {
        let strong = BUILTINS.iter().filter(|builtin| builtin.strong).map(|builtin| builtin.name);
        let wanted =
            ["print", "load", "attach", "detach", "read", "register", "test", "dispatch", "exec", "daemon"];
        assert!(strong.eq(wanted));
    }
}
