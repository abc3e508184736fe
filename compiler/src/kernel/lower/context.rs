//! Lowers contexts: their members, and the results that programs return to the kernel.
//!
//! The verifier wants a member read and written by one instruction of its own size at its own offset from the
//! context pointer. An element of an array whose index is known only at run time is accessed by one of
//! several such instructions.

use super::super::mir::{Condition, Op, Type, Value};
use super::lvalue::{Prepared, Root};
use super::memory::{Addr, access_size, access_type};
use super::{Lower, Lowerer, impossible, int_type};
use crate::builtins::context_members::{self, Access, ContextField, ContextStruct, MemberType, SkbProgram};
use crate::diag::Diagnostic;
use crate::hir::hooks::PACKET_HOOKS;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, FuncId, FunctionKind, Hir, LocalId, Lvalue, LvalueKind, ProgramKind, Target};
use crate::source::Span;
use crate::types::{IntType, StructOrigin, TypeId, TypeKind};

/// A member of a context, or an element of one.
#[derive(Clone, Copy)]
pub(super) struct ContextLvalue<'a> {
    pub field: &'static ContextField,
    pub context: &'a Expr,
    index: Option<&'a Expr>,
}

/// The use that a script makes of a context member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberUse {
    Read,
    Write,
}

/// TC_ACT_SHOT. Source: include/uapi/linux/pkt_cls.h, v6.12.
const TC_ACT_SHOT: u64 = 2;

impl Lowerer<'_> {
    /// Keeps the context if this parameter is one.
    pub(super) fn find_context(&mut self, param: LocalId, value: Value) {
        let ty = self.active.source.locals[param].ty;
        if let TypeKind::Ptr(to) = self.types().kind(ty)
            && let Some(structure) = self.context_struct(*to)
        {
            self.context = Some((value, structure));
        }
    }

    /// The members of a context. The context of a perf program depends on the architecture and has its own
    /// expression.
    fn context_struct(&self, ty: TypeId) -> Option<&'static ContextStruct> {
        let TypeKind::Struct(id) = self.types().kind(ty) else { return None };
        let def = self.types().struct_def(*id);
        (def.origin == StructOrigin::Context).then(|| context_members::find(&def.name))?
    }

    /// The context member that an lvalue denotes; `None` for any other lvalue.
    pub(super) fn context_lvalue<'p>(&self, lvalue: &'p Lvalue) -> Option<ContextLvalue<'p>> {
        let (member, index) = match &lvalue.kind {
            LvalueKind::Index { base, index } => (&**base, Some(&**index)),
            _ => (lvalue, None),
        };
        let LvalueKind::Field { base, field } = &member.kind else { return None };
        let LvalueKind::Deref(context) = &base.kind else { return None };
        let TypeKind::Struct(id) = self.types().kind(base.ty) else { return None };
        let name = &self.types().struct_def(*id).fields.get(*field)?.name;
        let field = self.context_struct(base.ty)?.field(name)?;
        Some(ContextLvalue { field, context, index: index.map(|index| index as &Expr) })
    }

    /// Reads a scalar member or element.
    pub(super) fn read_context(&mut self, member: ContextLvalue<'_>, lvalue: &Lvalue) -> Lower<Value> {
        self.check_access(member.field, lvalue, MemberUse::Read)?;
        let int = self.int(lvalue.ty, lvalue.span)?;
        let base = self.scalar(member.context)?;
        // Only a device map redirects a program to another interface, and no program here is in one.
        if member.field.name == "egress_ifindex" {
            return Ok(self.builder.constant(int_type(int), 0));
        }
        let Some(index) = member.index else {
            return self.load_member(base, member.field.offset, int, lvalue.span);
        };
        let (len, bytes) = self.elements(member.field, int, lvalue.span)?;
        let join = self.builder.block();
        let result = self.builder.param(join, int_type(int));
        self.choose_element(index, len, |this, at| {
            let value = this.load_member(base, member.field.offset + at * bytes, int, lvalue.span)?;
            this.builder.jump_with(join, value);
            Ok(())
        })?;
        let zero = self.builder.constant(int_type(int), 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        Ok(result)
    }

    /// Copies an array member.
    pub(super) fn read_context_array(
        &mut self,
        member: ContextLvalue<'_>,
        lvalue: &Lvalue,
        to: Addr,
    ) -> Lower<()> {
        self.check_access(member.field, lvalue, MemberUse::Read)?;
        let TypeKind::Array(element, _) = *self.types().kind(lvalue.ty) else {
            return impossible(lvalue.span, "a copy of this member");
        };
        let int = self.int(element, lvalue.span)?;
        let (len, bytes) = self.elements(member.field, int, lvalue.span)?;
        let base = self.scalar(member.context)?;
        for at in 0..len {
            let value = self.load_member(base, member.field.offset + at * bytes, int, lvalue.span)?;
            self.store_scalar(to.plus(at * bytes), int, value);
        }
        Ok(())
    }

    /// Writes a scalar member or element.
    pub(super) fn write_context(
        &mut self,
        member: ContextLvalue<'_>,
        lvalue: &Lvalue,
        value: Value,
    ) -> Lower<()> {
        self.check_access(member.field, lvalue, MemberUse::Write)?;
        let int = self.int(lvalue.ty, lvalue.span)?;
        let base = self.scalar(member.context)?;
        let Some(index) = member.index else {
            return self.store_member(base, member.field.offset, int, value, lvalue.span);
        };
        let (len, bytes) = self.elements(member.field, int, lvalue.span)?;
        let join = self.builder.block();
        self.choose_element(index, len, |this, at| {
            this.store_member(base, member.field.offset + at * bytes, int, value, lvalue.span)?;
            this.builder.jump(join);
            Ok(())
        })?;
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// The number of elements of an array member, and the bytes of one.
    fn elements(&self, field: &ContextField, int: IntType, span: Span) -> Lower<(u32, u32)> {
        let bytes = int.bytes() as u32;
        match field.ty {
            MemberType::ArrayU32(len) if bytes == 4 => Ok((len, bytes)),
            MemberType::ArrayU64(len) if bytes == 8 => Ok((len, bytes)),
            _ => impossible(span, "this part of a context"),
        }
    }

    /// Runs code for the element that an index selects; an index out of range selects none, and control
    /// continues.
    fn choose_element(
        &mut self,
        index: &Expr,
        len: u32,
        mut at_element: impl FnMut(&mut Self, u32) -> Lower<()>,
    ) -> Lower<()> {
        let index = self.scalar(index)?;
        for at in 0..len {
            let same = self.builder.compare_const(Condition::Eq, index, at.into());
            let (here, next) = (self.builder.block(), self.builder.block());
            self.builder.branch(same, here, next);
            self.builder.switch_to_sealed(here);
            at_element(self, at)?;
            self.builder.switch_to_sealed(next);
        }
        Ok(())
    }

    fn load_member(&mut self, base: Value, offset: u32, int: IntType, span: Span) -> Lower<Value> {
        let Ok(offset) = i16::try_from(offset) else {
            return impossible(span, "a context of this size");
        };
        let size = access_size(int.bytes());
        let value = self.builder.value(access_type(size), Op::Load { size, base, offset });
        if int.signed && int.bits < 32 {
            return Ok(self.builder.value(Type::I32, Op::Narrow { value, bits: int.bits, signed: true }));
        }
        Ok(value)
    }

    fn store_member(
        &mut self,
        base: Value,
        offset: u32,
        int: IntType,
        value: Value,
        span: Span,
    ) -> Lower<()> {
        let Ok(offset) = i16::try_from(offset) else {
            return impossible(span, "a context of this size");
        };
        self.builder.effect(Op::Store { size: access_size(int.bytes()), base, offset, value });
        Ok(())
    }

    /// Refuses a member that the kernel forbids in the programs that reach this function. The checker knows
    /// the hook, but inside a helper it does not know the kinds of the calling programs.
    pub(super) fn check_access(
        &self,
        field: &ContextField,
        lvalue: &Lvalue,
        member_use: MemberUse,
    ) -> Lower<()> {
        for program in self.programs_here() {
            let (kind, hook) = match (Self::program_kind(program.kind), &program.target) {
                (Some(ProgramKind::Cgroup), Target::Name(hook)) if !PACKET_HOOKS.contains(&hook.as_str()) => {
                    (ProgramKind::Cgroup, Some(hook))
                }
                (Some(kind), _) => (kind, None),
                (None, _) => continue,
            };
            let access = match (kind, hook) {
                (_, Some(hook)) => context_members::sock_addr_access(hook, field.name),
                (ProgramKind::Tc, _) => context_members::skb_access(SkbProgram::Tc, field.name),
                (ProgramKind::Cgroup, _) => context_members::skb_access(SkbProgram::Cgroup, field.name),
                (ProgramKind::SocketFilter, _) => {
                    context_members::skb_access(SkbProgram::SocketFilter, field.name)
                }
                _ => None,
            };
            let (code, text, note) = match access {
                Some(Access::Refused(reason)) => (304, "cannot be used here", reason),
                Some(Access::Read) if member_use == MemberUse::Write => {
                    (412, "cannot be assigned here", "programs of this kind may only read it")
                }
                _ => continue,
            };
            let what = format!("`{}` {text}", field.name);
            return Err(Box::new(
                Diagnostic::error(code, lvalue.span, what)
                    .note(note)
                    .also(program.span, "the program that comes here"),
            ));
        }
        Ok(())
    }

    /// The programs that the MIR function belongs to: itself, or all programs that call the helper.
    pub(super) fn programs_here(&self) -> Vec<&crate::hir::HirFunction> {
        let here = self.within();
        let is_helper = Self::program_kind(self.hir.functions[here].kind).is_none();
        let programs = self.hir.functions.ids().filter(|id| self.hir.is_entry(*id));
        let reaches = |id: &FuncId| *id == here || is_helper && reaches(self.hir, *id, here);
        programs.filter(reaches).map(|id| &self.hir.functions[id]).collect()
    }

    /// Refuses a write to a packet where the kernel only permits reads.
    pub(super) fn check_writable(&self, prepared: &Prepared, span: Span) -> Lower<()> {
        let Root::Pointer(pointer, _) = prepared.root else { return Ok(()) };
        match Self::program_kind(self.hir.functions[self.within()].kind) {
            Some(ProgramKind::Cgroup | ProgramKind::SocketFilter) if self.may_be_packet(pointer) => {
                Err(Box::new(
                    Diagnostic::error(612, span, "the packet cannot be written here")
                        .note("the kernel lets only `@xdp` and `@tc` programs write packets"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The kind of the program that the MIR function implements; `None` for a helper.
    pub(super) fn program_kind(kind: FunctionKind) -> Option<ProgramKind> {
        match kind {
            FunctionKind::Program(kind) => Some(kind),
            _ => None,
        }
    }

    /// The return value of a program that ends by a fault (language reference, 8.7).
    pub(super) fn fault_result(&self) -> u64 {
        let own = if self.kind == Some(ProgramKind::Tc) { TC_ACT_SHOT } else { 0 };
        self.fixed_result().unwrap_or(own)
    }

    /// The return value that the kernel always gets from a program of this kind, whatever the script returns;
    /// `None` if the script decides.
    ///
    /// An even result of a program at a tracepoint hides the hit from every counter of the tracepoint, also
    /// from those of other processes.
    ///
    /// Source: include/linux/bpf.h, `bpf_prog_run_array` (`ret &= run_prog(..)`); kernel/events/core.c,
    /// `perf_trace_run_bpf_submit`; kernel/trace/trace_syscalls.c, `perf_syscall_enter` and
    /// `perf_syscall_exit`, v6.18.
    pub(super) fn fixed_result(&self) -> Option<u64> {
        let at_tracepoint = matches!(
            self.kind,
            Some(ProgramKind::Tracepoint | ProgramKind::SyscallEnter | ProgramKind::SyscallExit)
        );
        at_tracepoint.then_some(1)
    }

    /// Whether the kernel requires the program to allow everything. Source: kernel/bpf/verifier.c,
    /// `check_return_code`, v6.12.
    fn must_allow(&self) -> bool {
        let Target::Name(hook) = &self.hir.functions[self.within()].target else { return false };
        ["recvmsg", "getpeername", "getsockname"].iter().any(|one| hook.starts_with(one))
    }

    /// Returns from the MIR function. The verifier wants 0 or 1 from cgroup programs.
    pub(super) fn leave(&mut self, result: Value) {
        if let Some(fixed) = self.fixed_result() {
            let fixed = self.builder.constant(self.builder.result_type(), fixed);
            return self.builder.ret(fixed);
        }
        let result = match (self.kind, self.builder.ty(result)) {
            (Some(ProgramKind::Cgroup), Type::I32 | Type::I64) if self.must_allow() => {
                self.builder.constant(self.builder.result_type(), 1)
            }
            (Some(ProgramKind::Cgroup), Type::I32 | Type::I64) => {
                let allowed = self.builder.compare_const(Condition::Ne, result, 0);
                match self.builder.result_type() {
                    Type::I64 => self.builder.value(Type::I64, Op::ZeroExtend(allowed)),
                    _ => allowed,
                }
            }
            _ => self.allowed_result(result),
        };
        self.builder.ret(result);
    }
}

/// Whether a function calls another, directly or indirectly. A tail call leaves the function and does not
/// count.
fn reaches(hir: &Hir, from: FuncId, to: FuncId) -> bool {
    let mut found = Called(vec![from]);
    let mut next = 0;
    while let Some(id) = found.0.get(next).copied() {
        if id == to {
            return true;
        }
        visit::block(&mut found, &hir.functions[id].body);
        next += 1;
    }
    false
}

struct Called(Vec<FuncId>);

impl Visitor for Called {
    fn function(&mut self, id: FuncId) {
        if !self.0.contains(&id) {
            self.0.push(id);
        }
    }
}
