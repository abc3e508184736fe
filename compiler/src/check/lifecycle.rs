//! Programs from userspace: `load`, `attach` to a target, `detach`, `test` (language reference, 6.2 to 6.5,
//! 6.10).

use super::expr::Typed;
use super::function::{Body, Scoped};
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{
    Expr, ExprKind, FuncId, FunctionKind, LocalId, LvalueKind, ProgramKind, Target, UserBuiltin,
};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Members besides `data` of a struct that describes the input of a test run.
const TEST_NUMBERS: &[&str] = &["packet_size", "ingress_ifindex", "mark"];

impl Body<'_, '_> {
    /// Records the program whose handle a variable holds, after every assignment to it.
    pub(super) fn remember_handle(&mut self, local: LocalId, value: &Expr) {
        if self.locals[local].ty != self.common().program {
            return;
        }
        let program = self.program_of(value);
        self.handles.entry(local).and_modify(|known| *known = known.filter(|one| Some(*one) == program));
        self.handles.entry(local).or_insert(program);
    }

    /// Returns the program of a handle, if it can be determined.
    pub(super) fn program_of(&self, handle: &Expr) -> Option<FuncId> {
        match &handle.kind {
            ExprKind::User(UserBuiltin::Load { program, .. }) => Some(*program),
            ExprKind::Load(lvalue) => match lvalue.kind {
                LvalueKind::Local(local) => self.handles.get(&local).copied().flatten(),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn load_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        let Some(program) = self.program_arg("load", &args[0]) else { return self.error_expr(span) };
        let tested = self.target.is_some_and(|declared| self.prescan.uses(declared).null_tested);
        let builtin = UserBuiltin::Load { program, exit_on_failure: !tested };
        self.user_builtin(builtin, self.common().program, span)
    }

    /// Checks an argument that names a program, itself or through a variable; `None` if it was reported.
    fn program_arg(&mut self, call: &str, arg: &ast::Expr) -> Option<FuncId> {
        let span = arg.span;
        let name = match &strip(arg).kind {
            ast::ExprKind::Name(name) => name,
            ast::ExprKind::Field { .. } if matches!(self.top_symbol(arg), Some(Symbol::Function(_))) => {
                self.report(
                    Diagnostic::error(426, span, "this is not a program").label("a function of a module"),
                );
                return None;
            }
            _ => {
                self.report(
                    Diagnostic::error(426, span, "this is not a program")
                        .help(format!("`{call}` takes the name of a program")),
                );
                return None;
            }
        };
        match (self.lookup(name), self.checker.names.own(name)) {
            (Some(Scoped::Program(program)), _) => Some(program),
            (Some(_), _) => {
                self.report(
                    Diagnostic::error(426, span, format!("`{name}` is not a program"))
                        .note("which program it is must be plain from the text: `var p = watch`"),
                );
                None
            }
            (None, Some(Symbol::Function(program))) => self.program_named(name, program, span),
            (None, Some(Symbol::Error)) => None,
            (None, Some(symbol)) => {
                let text = format!("`{name}` is not a program");
                self.report(Diagnostic::error(426, span, text).label(symbol.what()));
                None
            }
            (None, None) if self.checker.names.get(name).is_some() => {
                self.report(Diagnostic::error(426, span, format!("`{name}` is not a program")));
                None
            }
            (None, None) => {
                let functions = self.checker.names.all(|symbol| matches!(symbol, Symbol::Function(_)));
                let diagnostic = Diagnostic::error(305, span, format!("no function `{name}`"))
                    .suggest_near(span, "function", name, functions);
                self.report(diagnostic);
                None
            }
        }
    }

    fn program_named(&mut self, name: &str, program: FuncId, span: Span) -> Option<FuncId> {
        let signature = &self.checker.signatures[program];
        if signature.kind.is_none_or(FunctionKind::is_program) {
            return Some(program);
        }
        let declared = signature.span;
        self.report(
            Diagnostic::error(426, span, format!("`{name}` is not a program"))
                .also(declared, "it has no attribute of a program kind, such as `@perf_event`"),
        );
        None
    }

    /// Checks `attach(handle, target, flags)` with a string as target.
    pub(super) fn attach_target(
        &mut self,
        program: Expr,
        target: Expr,
        flags: &ast::Expr,
        span: Span,
    ) -> Typed {
        let common = self.common();
        let known = self.program_of(&program);
        let kind = known.and_then(|program| self.checker.signatures[program].kind);
        if program.ty != common.program {
            let text = format!("expected a program handle, found `{}`", self.type_name(program.ty));
            self.report(Diagnostic::error(401, program.span, text).help("`load(program)` gives the handle"));
            return self.error_expr(span);
        }
        if let (Some(program), Some(FunctionKind::Program(ProgramKind::PerfEvent))) = (known, kind) {
            let declared = self.checker.signatures[program].span;
            self.report(
                Diagnostic::error(
                    901,
                    target.span,
                    "a perf program is attached with `perf_options`, not a string",
                )
                .also(declared, "a `@perf_event` program")
                .help(super::perf::ATTACH_FORM),
            );
            return self.error_expr(span);
        }
        if let Some(program) = known {
            self.check_target(program, &target);
        }
        let written = flags.span;
        let flags = self.number(flags, common.u64);
        if let (Some(FunctionKind::Program(kind)), ExprKind::Const(1..)) = (kind, &flags.kind)
            && matches!(kind, ProgramKind::Tc | ProgramKind::Tracepoint | ProgramKind::Probe)
        {
            let text = format!("flags have no effect on a `@{}` program", kind.name());
            self.report(Diagnostic::warning(213, written, text).help("write 0"));
        }
        let builtin = UserBuiltin::AttachTarget {
            program: Box::new(program),
            target: Box::new(target),
            flags: Box::new(flags),
        };
        self.user_builtin(builtin, common.u32, span)
    }

    /// Reports a target in the call other than the attribute's, which takes precedence. An empty string means
    /// the attribute's.
    fn check_target(&mut self, program: FuncId, target: &Expr) {
        let ExprKind::Bytes(given) = &target.kind else { return };
        if given.is_empty() {
            return;
        }
        if let Target::Period { .. } = self.checker.signatures[program].target {
            let declared = self.checker.signatures[program].span;
            self.report(
                Diagnostic::error(518, target.span, "a timer has no target")
                    .also(declared, "its attribute says all")
                    .suggest(target.span, "\"\"", "write an empty string"),
            );
            return;
        }
        let given = String::from_utf8_lossy(given).into_owned();
        let signature = &self.checker.signatures[program];
        let Some(own) = other_target(&signature.target, signature.kind, &given) else { return };
        let declared = signature.span;
        self.report(
            Diagnostic::error(518, target.span, format!("the program is for `{own}`, not for `{given}`"))
                .also(declared, "its attribute names the target")
                .suggest(target.span, format!("\"{own}\""), "write the target of the attribute"),
        );
    }

    pub(super) fn detach_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
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
        self.user_builtin(builtin, self.common().void, span)
    }

    pub(super) fn test_call(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        if self.kind != FunctionKind::Test {
            self.report(
                Diagnostic::error(306, span, "`test` belongs to `@test` functions")
                    .help("mark the function `@test`; `ks test` runs it"),
            );
            return self.error_expr(span);
        }
        let program = self.program_arg("test", &args[0]);
        // Every byte of a literal belongs to the packet: a text would end at the first zero.
        let byte = self.common().u8;
        let bytes = match &args[1].kind {
            ast::ExprKind::Str(bytes) => {
                Some(self.checker.types.intern(TypeKind::Array(byte, bytes.len() as u64)))
            }
            _ => None,
        };
        let input = self.expr(&args[1], bytes).expr;
        let described = self.check_input(&input);
        let Some(program) = program else { return self.error_expr(span) };
        if let Some(FunctionKind::Program(kind)) = self.checker.signatures[program].kind
            && !kind.has_test_run()
        {
            let declared = self.checker.signatures[program].span;
            let text = format!("a `@{}` program cannot be test-run", kind.name());
            self.report(
                Diagnostic::error(519, args[0].span, text)
                    .also(declared, "declared here")
                    .note("the kernel runs programs for packets on a packet of the test's own"),
            );
            return self.error_expr(span);
        }
        if !described {
            return self.error_expr(span);
        }
        self.user_builtin(UserBuiltin::Test { program, input: Box::new(input) }, self.common().u32, span)
    }

    /// Checks the input of a test run: a packet, or a struct that describes it.
    fn check_input(&mut self, input: &Expr) -> bool {
        let fields = match self.checker.types.kind(input.ty) {
            TypeKind::Error => return false,
            _ if self.is_packet(input.ty) => return true,
            TypeKind::Struct(id) => self.checker.types.struct_def(*id).fields.clone(),
            _ => {
                let text = format!(
                    "expected a struct that describes the input, or a string, found `{}`",
                    self.type_name(input.ty)
                );
                self.report(
                    Diagnostic::error(401, input.span, text)
                        .note("its members may be `packet_size`, `data`, `ingress_ifindex` and `mark`"),
                );
                return false;
            }
        };
        let mut fits = true;
        for field in fields {
            let (known, wanted) = match field.name.as_str() {
                "data" => (self.is_packet(field.ty), "`u8[N]` or `str(N)`"),
                name if TEST_NUMBERS.contains(&name) => {
                    (self.checker.types.int(field.ty).is_some(), "an integer")
                }
                name => {
                    let text = format!("`{name}` has no effect on a test run");
                    self.report(
                        Diagnostic::warning(213, input.span, text)
                            .note("used are `packet_size`, `data`, `ingress_ifindex` and `mark`"),
                    );
                    continue;
                }
            };
            if !known {
                let text = format!(
                    "`{}` of a test's input is {wanted}, found `{}`",
                    field.name,
                    self.type_name(field.ty)
                );
                self.report(Diagnostic::error(401, input.span, text));
                fits = false;
            }
        }
        fits
    }

    fn is_packet(&self, ty: TypeId) -> bool {
        match self.checker.types.kind(ty) {
            TypeKind::Str(_) => true,
            TypeKind::Array(element, _) => *element == self.common().u8,
            _ => false,
        }
    }
}

/// Returns the target of an attribute, if the string in `attach` names another one.
fn other_target(target: &Target, kind: Option<FunctionKind>, given: &str) -> Option<String> {
    let own = match target {
        Target::Function { name, offset: Some(0) } if given == name => return None,
        Target::Function { name, offset: None } => name.clone(),
        Target::Function { name, offset: Some(offset) } => format!("{name}+{offset:#x}"),
        Target::Tracepoint { event, .. } if given == event => return None,
        Target::Tracepoint { category, event } => format!("{category}/{event}"),
        // A cgroup program is attached to a cgroup: its attribute only names the hook.
        Target::Name(_) if kind == Some(FunctionKind::Program(ProgramKind::Cgroup)) => return None,
        // The kernel's tracepoints of a system call.
        Target::Name(name)
            if [format!("syscalls/sys_enter_{name}"), format!("syscalls/sys_exit_{name}")]
                .iter()
                .any(|event| event == given) =>
        {
            return None;
        }
        Target::Name(name) => name.clone(),
        Target::User { path, symbol: Some(symbol), offset: 0, .. } => {
            if given == path || given == symbol {
                return None;
            }
            format!("{path}:{symbol}")
        }
        Target::None | Target::Egress(_) | Target::User { .. } | Target::Period { .. } => return None,
    };
    let same = match target {
        Target::Function { name, offset: Some(offset) } => {
            given.split_once('+').is_some_and(|(base, by)| base == name && parse_offset(by) == Some(*offset))
        }
        _ => own == given,
    };
    (!same).then_some(own)
}

/// Parses an offset such as `16` or `0x10`.
fn parse_offset(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_may_repeat_the_attribute() {
        let probe = Target::Function { name: "vfs_read".into(), offset: Some(16) };
        assert_eq!(other_target(&probe, None, "vfs_read+0x10"), None);
        assert_eq!(other_target(&probe, None, "vfs_read+16"), None);
        assert_eq!(other_target(&probe, None, "vfs_read"), Some("vfs_read+0x10".into()));
        let event = Target::Tracepoint { category: "sched".into(), event: "sched_switch".into() };
        assert_eq!(other_target(&event, None, "sched_switch"), None);
        assert_eq!(other_target(&event, None, "sched/sched_switch"), None);
        assert_eq!(other_target(&event, None, "sched/sched_wakeup"), Some("sched/sched_switch".into()));
        assert_eq!(other_target(&Target::None, None, "eth0"), None);
    }
}
