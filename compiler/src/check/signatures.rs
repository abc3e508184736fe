//! Signatures: the parameters and results of each kind of function (language reference, 4.2 to 4.12, 11.8).

use std::collections::HashSet;

use ks_wit::program_kind::Context;

use super::kernel_facts::KernelFact;
use super::names::Symbol;
use super::prescan::Prescan;
use super::types::Position;
use super::{Checker, Signature};
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::hooks::PACKET_HOOKS;
use crate::hir::{FuncId, FunctionKind, Half, ProgramKind, Target};
use crate::source::Span;
use crate::types::{StructOrigin, TypeId, TypeKind};

impl Checker<'_> {
    pub(super) fn declare_function(&mut self, function: &ast::AstFunction) -> FuncId {
        let found = self.attributes(function);
        let mut signature = self.signature(function, found);
        if signature.kind.is_some() {
            self.check_builtin_name(function);
            self.check_signature(function, &signature);
        }
        self.use_breakpoint(&mut signature);
        let id = self.signatures.push(signature);
        self.declare_name(&function.name, Symbol::Function(id));
        id
    }

    /// Resolves the signature as written.
    pub(super) fn signature(
        &mut self,
        function: &ast::AstFunction,
        found: Option<(FunctionKind, Target)>,
    ) -> Signature {
        let span = function.name.span;
        let name = self.full_name(&function.name);
        let Some((kind, target)) = found else {
            // Without a kind, its types may be ones that only a certain kind of program has.
            let ret = self.types.common().error;
            return Signature { name, params: Vec::new(), ret, kind: None, target: Target::None, span };
        };
        self.half = kind.half();
        let params = function.params.iter().map(|param| self.type_expr(&param.ty, Position::Value));
        let mut params: Vec<TypeId> = params.collect();
        self.find_passed_registers(kind, &target, &mut params);
        let ret = self.result_type(function);
        self.half = Half::Kernel;
        if kind.half() == Half::Kernel {
            self.pointed_to
                .extend(params.iter().chain([&ret]).filter_map(|ty| self.types.pointee_struct(*ty)));
            self.find_pointees(function);
        }
        Signature { name, params, ret, kind: Some(kind), target, span }
    }

    /// Records the structs that pointers in a body of the kernel half point to, as far as it names types.
    fn find_pointees(&mut self, function: &ast::AstFunction) {
        let prescan = Prescan::of(&function.params, &function.body, &|_| None);
        self.asked_members.extend(prescan.asked().iter().cloned());
        for named in prescan.named() {
            let Some(Symbol::Type(ty)) = self.names.get(&named.name) else { continue };
            let types = &self.types;
            match *types.kind(ty) {
                TypeKind::Struct(id) if named.is_pointee => _ = self.pointed_to.insert(id),
                TypeKind::Struct(id) => {
                    let fields = types.struct_def(id).fields.iter();
                    self.pointed_to.extend(fields.filter_map(|field| types.pointee_struct(field.ty)));
                }
                _ => self.pointed_to.extend(types.pointee_struct(ty)),
            }
        }
    }

    /// Returns the declared result. Without one, as in 0.1.1, a call has a value: 0 if the function returns
    /// none.
    fn result_type(&mut self, function: &ast::AstFunction) -> TypeId {
        match &function.ret {
            Some(returns) => self.type_expr(&returns.ty, Position::Result),
            None => self.types.common().u32,
        }
    }

    fn check_builtin_name(&mut self, function: &ast::AstFunction) {
        let name = function.name.name.as_str();
        let builtin = super::builtin_table::named(name).is_some_and(|builtin| builtin.in_011);
        if builtin {
            self.report(
                Diagnostic::warning(
                    311,
                    function.name.span,
                    format!("calls of `{name}` will mean the builtin"),
                )
                .help("choose another name"),
            );
        }
    }

    fn check_signature(&mut self, function: &ast::AstFunction, signature: &Signature) {
        let error = |ty: &TypeId| self.types.is_error(*ty);
        if signature.params.iter().any(error) || error(&signature.ret) {
            return;
        }
        match signature.kind {
            Some(FunctionKind::Program(kind)) => self.check_program(kind, function, signature),
            Some(FunctionKind::Kfunc | FunctionKind::Private) => self.check_kfunc(function, signature),
            Some(FunctionKind::Test) => self.check_test(function, signature),
            _ => {}
        }
    }

    fn check_program(&mut self, kind: ProgramKind, function: &ast::AstFunction, signature: &Signature) {
        let common = self.types.common();
        match kind.row().context {
            Context::Struct { name, result } => {
                let ret = match result {
                    "i32" => Some(common.i32),
                    name => self.predeclared_type(name),
                };
                let (Some(context), Some(ret)) = (self.predeclared_type(name), ret) else {
                    unreachable!("`@{}`: its context and its result are predeclared", kind.name());
                };
                self.check_context(function, signature, context, ret);
            }
            Context::Hook => {
                let is_packet =
                    matches!(&signature.target, Target::Name(hook) if PACKET_HOOKS.contains(&hook.as_str()));
                let address = self.predeclared_type("bpf_sock_addr").filter(|_| !is_packet);
                let context = address.unwrap_or(self.known.skb_context);
                self.check_context(function, signature, context, common.i32);
            }
            Context::Nothing => {
                let void = function.ret.is_none() || signature.ret == common.void;
                if !signature.params.is_empty() || !void {
                    self.report_signature(function, kind, "() -> void");
                }
            }
            Context::Record => self.check_tracepoint(function, signature),
            Context::Arguments => self.check_arguments(kind, function, signature),
        }
    }

    /// Returns a type that the language declares, also where a script's own name hides it.
    fn predeclared_type(&self, name: &str) -> Option<TypeId> {
        match self.names.predeclared(name)? {
            Symbol::Type(ty) => Some(ty),
            _ => None,
        }
    }

    /// Checks a program with one parameter that points to its context.
    fn check_context(
        &mut self,
        function: &ast::AstFunction,
        signature: &Signature,
        context: TypeId,
        ret: TypeId,
    ) {
        let Some(FunctionKind::Program(kind)) = signature.kind else { return };
        let pointer = self.types.intern(TypeKind::Ptr(context));
        let form = format!("(ctx: *{}) -> {}", self.types.name(context), self.types.name(ret));
        let stranger = signature.params.iter().enumerate().find(|(at, ty)| *at > 0 || **ty != pointer);
        if let Some((at, _)) = stranger {
            let param = &function.params[at];
            let text = format!("parameter `{}` is not the context of this kind", param.name.name);
            self.report(
                Diagnostic::error(507, param.ty.span, text)
                    .label(format!("this is `{}`", self.types.name(signature.params[at])))
                    .help(expected(kind, &form)),
            );
        } else if signature.params.is_empty() || signature.ret != ret {
            self.report_signature(function, kind, &form);
        }
    }

    pub(super) fn report_signature(&mut self, function: &ast::AstFunction, kind: ProgramKind, form: &str) {
        let ret = function.ret.as_ref().filter(|_| !function.params.is_empty() || form.starts_with("()"));
        let span = ret.map_or(function.name.span, |returns| returns.ty.span);
        self.report(Diagnostic::error(503, span, expected(kind, form)));
    }

    /// Checks `(ctx: *trace_event_raw_X)`, with an integer or no result.
    fn check_tracepoint(&mut self, function: &ast::AstFunction, signature: &Signature) {
        let Target::Tracepoint { category, event } = &signature.target else { return };
        let declared = match signature.params.as_slice() {
            [ty] => match self.types.kind(*ty) {
                TypeKind::Ptr(to) => self.struct_name(*to),
                _ => None,
            },
            _ => None,
        };
        let record = declared.filter(|name| name.starts_with("trace_event_raw_"));
        let found = self.kernel().tracepoint(category, event);
        let integer = self.types.int(signature.ret).is_some() || signature.ret == self.types.common().void;
        let Some(record) = record.filter(|_| integer) else {
            let likely = found.ok().and_then(|found| self.kernel().likely_record(&found, event));
            let likely = likely.unwrap_or_else(|| format!("trace_event_raw_{event}"));
            let form = format!("(ctx: *{likely}) -> i32");
            self.report_signature(function, ProgramKind::Tracepoint, &form);
            return;
        };
        match found {
            Ok(found) => {
                if let crate::kernel_types::Record::Struct(wanted) = &found.record
                    && *wanted != record
                {
                    let text = format!("`{category}/{event}` has the argument struct `{wanted}`");
                    let span = function.params[0].ty.span;
                    self.report(
                        Diagnostic::error(510, span, text).label(format!("this is `*{record}`")).suggest(
                            span,
                            format!("*{wanted}"),
                            "its argument",
                        ),
                    );
                }
            }
            Err(unfound) => {
                self.report_unfound(function, &format!("tracepoint `{category}/{event}`"), &unfound);
            }
        }
    }

    /// Returns the name of a struct.
    pub(super) fn struct_name(&self, ty: TypeId) -> Option<String> {
        match self.types.kind(ty) {
            TypeKind::Struct(id) => Some(self.types.struct_def(*id).name.clone()),
            _ => None,
        }
    }

    /// Whether a type is a pointer to the struct of this name.
    pub(super) fn points_to(&self, ty: TypeId, name: &str) -> bool {
        match self.types.kind(ty) {
            TypeKind::Ptr(to) => self.struct_name(*to).is_some_and(|found| found == name),
            _ => false,
        }
    }

    /// Checks a kfunc: it takes structs by pointer.
    fn check_kfunc(&mut self, function: &ast::AstFunction, signature: &Signature) {
        for (param, ty) in function.params.iter().zip(&signature.params) {
            if let TypeKind::Struct(_) = self.types.kind(*ty) {
                let name = self.types.name(*ty);
                self.report(
                    Diagnostic::error(516, param.ty.span, "a kfunc takes structs by pointer").suggest(
                        param.ty.span,
                        format!("*{name}"),
                        "a pointer to it",
                    ),
                );
            }
        }
        if let (TypeKind::Struct(_), Some(returns)) = (self.types.kind(signature.ret), &function.ret) {
            self.report(Diagnostic::error(516, returns.ty.span, "a kfunc gives no struct by value"));
        }
    }

    fn check_test(&mut self, function: &ast::AstFunction, signature: &Signature) {
        let result = self.types.int(signature.ret).is_some() || function.ret.is_none();
        if !signature.params.is_empty() || !result {
            let span = match (function.params.first(), &function.ret) {
                (Some(param), _) => param.name.span,
                (None, Some(returns)) => returns.ty.span,
                (None, None) => function.name.span,
            };
            self.report(
                Diagnostic::error(503, span, "a test must look like `fn name() -> i32`").note("0 is success"),
            );
        }
    }

    /// Marks a struct that a program's parameter points to: if the kernel has one of this name, it is that
    /// one.
    pub(super) fn point_to_kernel(&mut self, ty: TypeId, span: Span) {
        let TypeKind::Ptr(to) = self.types.kind(ty) else { return };
        let &TypeKind::Struct(id) = self.types.kind(*to) else { return };
        let def = self.types.struct_def(id);
        let foreign = self.kernel().has_btf() && !self.kernel().has_structure(&def.name);
        if def.origin != StructOrigin::Script || foreign {
            return;
        }
        let name = def.name.clone();
        let known = self.kernel().has_structure(&name);
        let strange = def
            .fields
            .iter()
            .filter(|_| known)
            .filter(|field| self.kernel().member(&name, &field.name).is_none())
            .map(|field| (id, field.name.clone(), span));
        self.strange_members.extend(strange.collect::<Vec<_>>());
        self.give_to_kernel(id);
    }

    /// Warns of members that a script declares and the kernel lacks, once for each struct. A script that asks
    /// whether the running kernel has a member knows.
    pub(super) fn check_strange_members(&mut self) {
        let mut warned = HashSet::new();
        for (id, member, span) in std::mem::take(&mut self.strange_members) {
            if self.tested_members.contains(&KernelFact::Member(id, member.clone())) || !warned.insert(id) {
                continue;
            }
            let text = format!(
                "`{}` is a kernel struct; its layout is the kernel's",
                self.types.struct_def(id).name
            );
            let note = format!("the kernel's has no member `{member}`");
            self.report(Diagnostic::warning(512, span, text).note(note));
        }
    }
}

pub(super) fn expected(kind: ProgramKind, form: &str) -> String {
    // These names are spelled letter by letter when spoken, so they take "an".
    let article = if matches!(kind, ProgramKind::Xdp | ProgramKind::Lsm) { "an" } else { "a" };
    format!("{article} {} program must look like `fn name{form}`", kind.name())
}
