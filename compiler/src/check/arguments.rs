//! Checks programs whose parameters are those of a kernel function against the kernel's own types, where
//! these are known (language reference, 4.5, 4.9, 11.8).

use super::signatures::expected;
use super::{Checker, Signature};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{FunctionKind, ProgramKind, SystemCall, Target};
use crate::kernel_types::{ArgumentPassing, KernelLookupError, KernelType, Param, Pointee};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// The kernel's struct of registers, also the context of a probe that is a breakpoint.
const REGISTERS: &str = "pt_regs";
/// Number of registers that hold arguments on x86-64, the smaller one.
const REGISTER_PARAMS: usize = 6;
/// Maximum number of arguments of a tracepoint, each a 64-bit word of the context, and of a function. Source:
/// include/linux/bpf.h, `MAX_BPF_FUNC_ARGS`, v6.12.
const MAX_PARAMS: usize = 12;
/// Number of registers that hold arguments of Go's functions on x86-64, the smaller one.
const GO_PARAMS: usize = 9;

/// The parameters that a program may take.
struct Arguments {
    /// The traced function or event, for messages.
    what: String,
    /// The parameters of the traced function, as far as they are known.
    params: Vec<Param>,
    /// The number of them that a program may take.
    usable: usize,
    /// Whether each is a register of any scalar type: the arguments of a system call.
    any_scalar: bool,
}

impl Checker<'_> {
    pub(super) fn check_arguments(
        &mut self,
        kind: ProgramKind,
        function: &ast::AstFunction,
        signature: &Signature,
    ) {
        let traced = matches!(kind, ProgramKind::SyscallEnter | ProgramKind::SyscallExit);
        let common = self.types.common();
        let fits = signature.ret == common.i32
            || (traced && (signature.ret == common.void || self.types.int(signature.ret).is_some()));
        let found = self.arguments(kind, function, signature);
        if !fits {
            self.report_signature(function, kind, &form(found.as_ref()));
            return;
        }
        if !self.check_registers(kind, function, signature) {
            return;
        }
        if !matches!(kind, ProgramKind::Uprobe | ProgramKind::Uretprobe) {
            for (param, ty) in function.params.iter().zip(&signature.params) {
                self.point_to_kernel(*ty, param.ty.span);
            }
        }
        let Some(found) = found else { return };
        let typed = self.typed_parameters(function, signature);
        if let Some((param, _)) = typed.get(found.usable) {
            let text = format!("{} has {}", found.what, super::count_of(found.usable, "parameter"));
            self.report(
                Diagnostic::error(508, param.name.span, text).help(expected(kind, &form(Some(&found)))),
            );
            return;
        }
        for ((param, ty), real) in typed.into_iter().zip(&found.params) {
            let accepted =
                if found.any_scalar { self.types.scalar(ty).is_some() } else { self.accepts(ty, &real.ty) };
            if accepted {
                continue;
            }
            let text = format!("{} has other parameters: `{}` is `{}`", found.what, real.name, real.ty);
            self.report(
                Diagnostic::error(508, param.ty.span, text)
                    .label(format!("this is `{}`", self.types.name(ty)))
                    .help(expected(kind, &form(Some(&found)))),
            );
        }
    }

    /// Returns the parameters that are arguments or results: all but the registers.
    fn typed_parameters<'a>(
        &self,
        function: &'a ast::AstFunction,
        signature: &Signature,
    ) -> Vec<(&'a ast::Param, TypeId)> {
        let params = function.params.iter().zip(signature.params.iter().copied());
        params.filter(|(_, ty)| !self.is_registers(*ty)).collect()
    }

    /// Checks that each parameter fits a register, and that there are not too many.
    fn check_registers(
        &mut self,
        kind: ProgramKind,
        function: &ast::AstFunction,
        signature: &Signature,
    ) -> bool {
        if !self.check_passed_registers(kind, function, signature) {
            return false;
        }
        let typed = self.typed_parameters(function, signature);
        for (param, ty) in &typed {
            if self.types.scalar(*ty).is_none() {
                let text = format!("`{}` fits no register", self.types.name(*ty));
                self.report(
                    Diagnostic::error(508, param.ty.span, text).help("take integers and pointers only"),
                );
                return false;
            }
        }
        let limit = match kind {
            ProgramKind::RawTracepoint => MAX_PARAMS,
            ProgramKind::Retprobe | ProgramKind::Lsm => REGISTER_PARAMS + 1,
            ProgramKind::Uprobe if matches!(signature.target, Target::User { go: true, .. }) => GO_PARAMS,
            ProgramKind::Probe | ProgramKind::Uprobe if self.system_call(&signature.target).is_none() => {
                if let Some((param, _)) = typed.get(REGISTER_PARAMS) {
                    let span = param.name.span;
                    self.strict(span, "argument after the sixth");
                    if is_past_entry(&signature.target) {
                        let text =
                            "an argument after the sixth is on the stack only where the function begins";
                        let error = Diagnostic::error(508, span, text);
                        self.report(
                            error.note("the instructions before this place may have moved the stack"),
                        );
                        return false;
                    }
                }
                MAX_PARAMS
            }
            _ => REGISTER_PARAMS,
        };
        if let Some((param, _)) = typed.get(limit) {
            let text = format!("a {} program takes at most {limit} parameters", kind.name());
            self.report(Diagnostic::error(508, param.name.span, text));
        }
        typed.len() <= limit
    }

    /// Checks the parameter for the registers, if there is one.
    fn check_passed_registers(
        &mut self,
        kind: ProgramKind,
        function: &ast::AstFunction,
        signature: &Signature,
    ) -> bool {
        let types = signature.params.iter().enumerate();
        let found: Vec<_> = types.filter(|(_, ty)| self.is_registers(**ty)).map(|(at, _)| at).collect();
        let Some(last) = found.last().map(|at| &function.params[*at]) else { return true };
        let why = match (kind, &signature.target) {
            _ if found.len() > 1 => Some("the registers are one parameter"),
            (ProgramKind::Probe, Target::Function { name, offset: None })
                if matches!(self.kernel().function(name), Err(KernelLookupError::NoBtf)) =>
            {
                Some("without the kernel's types nobody knows whether the function takes a `pt_regs` itself")
            }
            (ProgramKind::Probe | ProgramKind::Uprobe | ProgramKind::Uretprobe, _) => None,
            _ => Some("only `@probe`, `@uprobe` and `@uretprobe` programs have the registers"),
        };
        let Some(why) = why else {
            self.strict(last.ty.span, "`pt_regs` in a probe");
            return true;
        };
        let text = format!("parameter `{}` is not the context of this kind", last.name.name);
        let error = Diagnostic::error(507, last.ty.span, text).note(why);
        self.report(match kind {
            ProgramKind::Probe => error.help("`@probe(\"function+0\")` takes `regs: *pt_regs` in any case"),
            _ => error,
        });
        false
    }

    /// Puts a probe that reads registers or the stack on its function as a breakpoint: a program that the
    /// kernel calls through a trampoline has neither.
    pub(super) fn use_breakpoint(&self, signature: &mut Signature) {
        let is_needed = signature.params.len() > REGISTER_PARAMS
            || signature.params.iter().any(|ty| self.is_registers(*ty));
        if let (Some(FunctionKind::Program(ProgramKind::Probe)), Target::Function { offset, .. }) =
            (signature.kind, &mut signature.target)
            && is_needed
        {
            offset.get_or_insert(0);
        }
    }

    /// Whether this is the `*pt_regs` that is the context of a probe.
    fn is_registers(&self, ty: TypeId) -> bool {
        let TypeKind::Ptr(to) = *self.types.kind(ty) else { return false };
        self.types.is_context_pointer(ty) && self.struct_name(to).is_some_and(|name| name == REGISTERS)
    }

    /// Converts `pt_regs` that the kernel passes as an argument, such as the registers of a system call, to a
    /// struct of the kernel like any other.
    pub(super) fn find_passed_registers(
        &mut self,
        kind: FunctionKind,
        target: &Target,
        params: &mut [TypeId],
    ) {
        let FunctionKind::Program(kind) = kind else { return };
        if !params.iter().any(|ty| self.is_registers(*ty)) {
            return;
        }
        let real = match (kind, target) {
            // In these programs `pt_regs` can only be an argument.
            (ProgramKind::RawTracepoint | ProgramKind::Lsm, _) => None,
            (ProgramKind::Probe | ProgramKind::Retprobe, Target::Function { name, offset: None }) => {
                match self.kernel().function(name) {
                    Ok(found) if !matches!(found.entry, ArgumentPassing::Syscall { .. }) => {
                        Some(found.proto.params)
                    }
                    _ => return,
                }
            }
            _ => return,
        };
        let passed = KernelType::Pointer(Pointee::Struct(REGISTERS.into()));
        for (at, ty) in params.iter_mut().enumerate() {
            let is_passed = real.as_ref().is_none_or(|real| real.get(at).is_some_and(|one| one.ty == passed));
            if is_passed && self.is_registers(*ty) {
                let registers = self.kernel_struct(REGISTERS);
                *ty = self.types.intern(TypeKind::Ptr(registers));
            }
        }
    }

    /// Returns the parameters that a program may take; `None` if they are unknown.
    fn arguments(
        &mut self,
        kind: ProgramKind,
        function: &ast::AstFunction,
        signature: &Signature,
    ) -> Option<Arguments> {
        match (&signature.target, kind) {
            (Target::Function { name, offset }, _) => self.function_arguments(kind, function, name, *offset),
            (Target::Name(event), ProgramKind::RawTracepoint) => {
                let what = format!("tracepoint `{event}`");
                match self.kernel().raw_tracepoint(event) {
                    Ok(params) => Some(Arguments { what, usable: params.len(), params, any_scalar: false }),
                    Err(unfound) => {
                        self.report_unfound(function, &what, &unfound);
                        None
                    }
                }
            }
            (Target::Name(hook), ProgramKind::Lsm) => {
                let what = format!("hook `{hook}`");
                match self.kernel().lsm_hook(hook) {
                    // The last argument is the result of the programs before this one.
                    Ok(mut proto) => {
                        proto.params.push(Param { name: "ret".into(), ty: KernelType::signed_int(4) });
                        let usable = proto.params.len();
                        Some(Arguments { what, params: proto.params, usable, any_scalar: false })
                    }
                    Err(unfound) => {
                        self.report_unfound(function, &what, &unfound);
                        None
                    }
                }
            }
            (Target::Name(call), ProgramKind::SyscallEnter | ProgramKind::SyscallExit) => {
                self.syscall_arguments(kind, function, call)
            }
            (_, ProgramKind::Uretprobe) => {
                let params = vec![Param { name: "ret".into(), ty: KernelType::signed_int(8) }];
                Some(Arguments { what: "a return".into(), params, usable: 1, any_scalar: true })
            }
            _ => None,
        }
    }

    fn function_arguments(
        &mut self,
        kind: ProgramKind,
        function: &ast::AstFunction,
        name: &str,
        offset: Option<u64>,
    ) -> Option<Arguments> {
        let what = format!("function `{name}`");
        let found = match self.kernel().function(name) {
            Ok(found) => found,
            Err(unfound) => {
                self.report_unfound(function, &what, &unfound);
                return None;
            }
        };
        // At an offset in a function the registers may hold anything.
        let any_scalar = offset.is_some() || matches!(found.entry, ArgumentPassing::Syscall { .. });
        if found.entry == (ArgumentPassing::Syscall { known: false }) {
            return None;
        }
        let (mut params, mut usable) = (found.proto.params, found.agreed);
        if kind == ProgramKind::Retprobe && usable == params.len() && found.proto.result != KernelType::Void {
            params.push(Param { name: "ret".into(), ty: found.proto.result });
            usable += 1;
        }
        Some(Arguments { what, params, usable, any_scalar })
    }

    /// Returns the kernel function that a probe attaches to if its target is a system call.
    pub(super) fn system_call(&self, target: &Target) -> Option<SystemCall> {
        let Target::Function { name, .. } = target else { return None };
        let found = self.kernel().function(name);
        let (target, arguments) = match found {
            Ok(found) => match found.entry {
                ArgumentPassing::Syscall { known } => {
                    (found.target, known.then_some(found.proto.params.len()))
                }
                ArgumentPassing::Direct => return None,
            },
            // Without the kernel's types only the name is known.
            Err(KernelLookupError::NoBtf) if name.starts_with("sys_") => (format!("__x64_{name}"), None),
            Err(_) => return None,
        };
        let wrapped = target.starts_with("__x64_") || target.starts_with("__arm64_");
        Some(SystemCall { target, wrapped, arguments })
    }

    /// Returns the number of arguments in the record of a tracepoint at the entry of a system call.
    pub(super) fn record_arguments(&self, target: &Target) -> Option<u32> {
        let Target::Tracepoint { category, event } = target else { return None };
        let call = event.strip_prefix("sys_enter_").filter(|_| category == "syscalls")?;
        u32::try_from(self.kernel().syscall(call)?.len()).ok()
    }

    fn syscall_arguments(
        &mut self,
        kind: ProgramKind,
        function: &ast::AstFunction,
        call: &str,
    ) -> Option<Arguments> {
        let what = format!("system call `{call}`");
        if let Err(unfound) = self.find_syscall(call) {
            self.report_unfound(function, &what, &unfound);
            return None;
        }
        let params = match kind {
            ProgramKind::SyscallExit => vec![Param { name: "ret".into(), ty: KernelType::signed_int(8) }],
            _ => self.kernel().syscall(call)?,
        };
        Some(Arguments { what, usable: params.len(), params, any_scalar: true })
    }

    /// Looks up a system call by its name.
    ///
    /// # Errors
    /// The kernel does not have it; or there is no BTF, and the compiler's own table does not have it.
    pub(super) fn find_syscall(&self, call: &str) -> Result<(), KernelLookupError> {
        let kernel = self.kernel();
        if kernel.has_syscall(call) {
            Ok(())
        } else if kernel.has_btf() {
            Err(KernelLookupError::Missing { near: kernel.near_syscalls(call) })
        } else {
            Err(KernelLookupError::NoBtf)
        }
    }

    /// Reports the target of a program that does not exist, or that cannot be checked.
    pub(super) fn report_unfound(
        &mut self,
        function: &ast::AstFunction,
        what: &str,
        unfound: &KernelLookupError,
    ) {
        let attribute = &function.attributes[0];
        let span = attribute.argument.as_ref().map_or(attribute.span, |argument| argument.span);
        self.report_unfound_at(span, what, unfound);
    }

    /// Reports the string literal at `span`, which names something that the kernel does not have, or that
    /// cannot be checked.
    pub(super) fn report_unfound_at(&mut self, span: Span, what: &str, unfound: &KernelLookupError) {
        let diagnostic = match unfound {
            KernelLookupError::Missing { near } => {
                let error = Diagnostic::error(509, span, format!("this kernel has no {what}"));
                near.iter()
                    .fold(error, |error, name| error.suggest(span, format!("\"{name}\""), "the kernel has"))
            }
            KernelLookupError::NoBtf => {
                let why = self.kernel().no_btf();
                Diagnostic::warning(806, span, format!("{what} could not be checked: {why}"))
                    .help("give the kernel's types with `--btf FILE`")
            }
            KernelLookupError::Unreadable => {
                Diagnostic::warning(806, span, format!("{what} could not be checked: its BTF is malformed"))
            }
        };
        self.report(diagnostic);
    }

    /// Whether a parameter of type `ty` accepts the kernel's argument.
    pub(super) fn accepts(&self, ty: TypeId, real: &KernelType) -> bool {
        let pointer = matches!(self.types.kind(ty), TypeKind::Ptr(_) | TypeKind::Fn(..));
        match real {
            KernelType::Pointer(_) => pointer,
            KernelType::Unknown => true,
            _ => match (real.scalar(), self.types.scalar(ty)) {
                (Some((bytes, _)), Some(int)) => !pointer && int.bytes() == u64::from(bytes),
                _ => false,
            },
        }
    }

    /// Returns the source range of a signature's parameters, or of the function's name if it has none.
    pub(super) fn params_span(function: &ast::AstFunction) -> Span {
        match (function.params.first(), function.params.last()) {
            (Some(first), Some(last)) => first.name.span.to(last.ty.span),
            _ => function.name.span,
        }
    }
}

/// Whether a probe lies behind the first instruction of a function, as far as that is known.
fn is_past_entry(target: &Target) -> bool {
    match target {
        Target::Function { offset, .. } => offset.is_some_and(|offset| offset > 0),
        Target::User { symbol, offset, .. } => symbol.is_some() && *offset > 0,
        _ => false,
    }
}

/// The expected form of a program's signature, for messages.
fn form(found: Option<&Arguments>) -> String {
    match found {
        Some(found) => parameters(&found.params[..found.usable.min(found.params.len())], "i32"),
        None => "(...) -> i32".to_owned(),
    }
}

/// Parameters and result in the syntax of a script.
pub(super) fn parameters(params: &[Param], result: &str) -> String {
    let params: Vec<_> =
        params.iter().map(|param| format!("{}: {}", param.name, spelling(&param.ty))).collect();
    format!("({}) -> {result}", params.join(", "))
}

/// A type of the kernel in the syntax of a script.
pub(super) fn spelling(ty: &KernelType) -> String {
    match ty {
        KernelType::Enum { bytes, signed, .. } => format!("{}{}", if *signed { 'i' } else { 'u' }, bytes * 8),
        KernelType::Pointer(to) => pointer_spelling(to),
        other => other.to_string(),
    }
}

/// A pointer to integers, structs or further pointers; `*u8` stands for all others.
fn pointer_spelling(to: &Pointee) -> String {
    match to {
        Pointee::Struct(_) | Pointee::Int { .. } => format!("*{to}"),
        Pointee::Pointer(inner) => format!("*{}", pointer_spelling(inner)),
        _ => "*u8".to_owned(),
    }
}
