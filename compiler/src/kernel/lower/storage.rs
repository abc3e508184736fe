//! Lowers local storage: `s[p]` is the value that belongs to a kernel object.
//!
//! The helpers take no number, and neither do most functions of the kernel that are given a kernel struct. They take only a pointer that the verifier has tracked from its source in the
//! kernel: a parameter of a program that is described by the kernel's own types, the running task, the socket
//! of a context, and what members of these point to. Everywhere else a pointer to the kernel is a number. So
//! the value of such an expression is also kept as an object: from the declaration of a local that is set
//! once to its uses, and into inlined helpers.

use std::sync::Arc;

use super::super::mir::core::CoreQuestion;
use super::super::mir::{Block, Callee, Helper, Lost, Op, Origin, Size, Storage, Type, Value};
use super::context::MemberUse;
use super::kernel_memory::KernelPart;
use super::{Lower, Lowerer};
use crate::bpf::helper_number;
use crate::builtins::context_members::MemberType;
use crate::diag::Diagnostic;
use crate::hir::{
    Expr, ExprKind, ExternId, FunctionKind, LocalId, Lvalue, LvalueKind, Map, MapId, ProgramKind,
};
use crate::types::TypeKind;

/// A pointer to a kernel object, by its source.
#[derive(Debug, Clone, Copy)]
pub(super) enum KernelObject {
    /// Loaded from the context, 8 bytes at this offset, wherever it is used: the value is the same in the
    /// whole run.
    Word(Value, i16),
    /// The running task, returned by this helper, which is called wherever the pointer is used.
    CurrentTask(ExternId),
    /// An object or null that was read before.
    Read(Value),
}

/// BPF_LOCAL_STORAGE_GET_F_CREATE. Source: include/uapi/linux/bpf.h, v6.12.
const CREATE: u64 = 1;

impl Lowerer<'_> {
    /// The key of a local storage map: an object or null.
    pub(super) fn storage_key(&mut self, map: &Map, key: &Expr) -> Lower<Value> {
        match self.kernel_object(key)? {
            Some(object) => Ok(self.object_value(object)),
            None => Err(Box::new(unknown_object(map, key))),
        }
    }

    /// The object that an expression points to, if the verifier tracks it.
    pub(super) fn kernel_object(&mut self, expr: &Expr) -> Lower<Option<KernelObject>> {
        match &expr.kind {
            ExprKind::Const(0) => {
                let null = self.builder.constant(Type::Ptr(Origin::ObjectOrNull), 0);
                Ok(Some(KernelObject::Read(null)))
            }
            ExprKind::CallExtern { function, .. } => {
                let current = helper_number("bpf_get_current_task_btf");
                let is_current = current.is_some() && self.hir.externs[*function].helper == current;
                Ok(is_current.then_some(KernelObject::CurrentTask(*function)))
            }
            ExprKind::Load(lvalue) => {
                if let LvalueKind::Local(local) = lvalue.kind {
                    // Not in loops: a loop body that is outlined may receive the pointer as a number.
                    let given = self.active.given.get(&local).filter(|_| self.loops.is_empty());
                    let object = self.active.objects.get(&local).copied();
                    return Ok(object.or(given.map(|given| KernelObject::Read(*given))));
                }
                if self.context_lvalue(lvalue).is_some() {
                    return self.context_object(lvalue);
                }
                match self.kernel_part(lvalue) {
                    Some(part) => self.member_object(&part),
                    None => Ok(None),
                }
            }
            ExprKind::AddrOf(lvalue) => match self.kernel_part(lvalue) {
                Some(part) => self.part_object(&part),
                None => Ok(None),
            },
            // One struct for another: the verifier compares the types where the pointer is used.
            ExprKind::Convert(from) if self.is_kernel_pointer(from.ty) && self.is_kernel_pointer(expr.ty) => {
                self.kernel_object(from)
            }
            _ => Ok(None),
        }
    }

    /// The object that a member of a context points to, if it is such a member.
    pub(super) fn context_object(&mut self, lvalue: &Lvalue) -> Lower<Option<KernelObject>> {
        let Some(member) = self.context_lvalue(lvalue) else { return Ok(None) };
        if !matches!(member.field.ty, MemberType::Pointer(_)) {
            return Ok(None);
        }
        self.check_access(member.field, lvalue, MemberUse::Read)?;
        let offset = i16::try_from(member.field.offset).ok();
        let context = self.scalar(member.context)?;
        Ok(offset.map(|offset| KernelObject::Word(context, offset)))
    }

    /// The object that a member of an object points to.
    fn member_object(&mut self, part: &KernelPart<'_>) -> Lower<Option<KernelObject>> {
        if !part.indices.is_empty() || !self.is_kernel_pointer(part.ty) {
            return Ok(None);
        }
        self.object_from(part, |lowerer, base| {
            let field = Arc::new(part.field.clone());
            let ty = Type::Ptr(Origin::ObjectOrNull);
            lowerer.builder.value(ty, Op::LoadField { size: Size::DW, base, field })
        })
    }

    /// The object that a struct inside an object is.
    fn part_object(&mut self, part: &KernelPart<'_>) -> Lower<Option<KernelObject>> {
        if !part.indices.is_empty() || !matches!(self.types().kind(part.ty), TypeKind::Struct(_)) {
            return Ok(None);
        }
        self.object_from(part, |lowerer, base| {
            let offset = Op::Core(Arc::new(part.field.clone()), CoreQuestion::Offset);
            let offset = lowerer.builder.value(Type::I64, offset);
            lowerer.builder.value(Type::Ptr(Origin::ObjectOrNull), Op::PtrAdd(base, offset))
        })
    }

    /// What `find` makes of the object that contains a part, or null if that is null. `None` if the verifier
    /// does not track it.
    fn object_from(
        &mut self,
        part: &KernelPart<'_>,
        find: impl FnOnce(&mut Self, Value) -> Value,
    ) -> Lower<Option<KernelObject>> {
        let Some(owner) = self.kernel_object(part.pointer)? else { return Ok(None) };
        let owner = self.object_value(owner);
        let (miss, join) = (self.builder.block(), self.builder.block());
        let ty = Type::Ptr(Origin::ObjectOrNull);
        let result = self.builder.param(join, ty);
        let base = self.non_null(owner, miss);
        let object = find(self, base);
        self.builder.jump_with(join, object);
        self.builder.switch_to_sealed(miss);
        let null = self.builder.constant(ty, 0);
        self.builder.jump_with(join, null);
        self.builder.switch_to_sealed(join);
        Ok(Some(KernelObject::Read(result)))
    }

    pub(super) fn object_value(&mut self, object: KernelObject) -> Value {
        let ty = Type::Ptr(Origin::ObjectOrNull);
        match object {
            KernelObject::Word(base, offset) => {
                self.builder.value(ty, Op::Load { size: Size::DW, base, offset })
            }
            KernelObject::CurrentTask(helper) => self.builder.call(ty, Callee::External(helper), Vec::new()),
            KernelObject::Read(value) => value,
        }
    }

    /// A pointer to the object's value; control goes to `miss` if it has none, or the object is null.
    pub(super) fn stored(&mut self, map: MapId, object: Value, miss: Block) -> Value {
        let object = self.non_null(object, miss);
        let entry = self.storage_get(map, object, 0);
        self.non_null(entry, miss)
    }

    /// A pointer to the object's value, created with zeros if there is none. If the kernel has no memory for
    /// one, that is counted.
    pub(super) fn stored_or_new(&mut self, map: MapId, object: Value, miss: Block) -> Value {
        let object = self.non_null(object, miss);
        let entry = self.storage_get(map, object, CREATE);
        let (full, exists) = (self.builder.block(), self.builder.block());
        let null = self.builder.value(Type::I32, Op::IsNull(entry));
        self.builder.branch(null, full, exists);
        self.builder.switch_to_sealed(full);
        self.count_lost(Lost::Update(map));
        self.builder.jump(miss);
        self.builder.switch_to_sealed(exists);
        self.builder.value(Type::Ptr(Origin::Entry), Op::NonNull(entry))
    }

    fn storage_get(&mut self, map: MapId, object: Value, flags: u64) -> Value {
        let ty = Type::Ptr(Origin::EntryOrNull);
        let Some(storage) = Storage::of(self.hir.maps[map].kind) else {
            return self.builder.constant(ty, 0);
        };
        let map = self.map_addr(map);
        let initial = self.builder.constant(Type::I64, 0);
        let flags = self.builder.constant(Type::I64, flags);
        let callee = Callee::Helper(Helper::StorageGet(storage));
        self.builder.call(ty, callee, vec![map, object, initial, flags])
    }

    /// `delete s[p]`.
    pub(super) fn remove_stored(&mut self, map: MapId, object: Value) {
        let Some(storage) = Storage::of(self.hir.maps[map].kind) else { return };
        let join = self.builder.block();
        let object = self.non_null(object, join);
        let map = self.map_addr(map);
        self.builder.call(Type::I64, Callee::Helper(Helper::StorageDelete(storage)), vec![map, object]);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
    }

    /// Whether to keep the object that a local points to: only keys of local storage and arguments of functions
    /// of the kernel need it. A local that is
    /// set once always points to the same object. So does an argument of a deferred call, but it may be used
    /// where it was never set.
    pub(super) fn keeps_objects(&self, local: LocalId) -> bool {
        let active = &self.active;
        let ty = active.source.locals[local].ty;
        matches!(self.types().kind(ty), TypeKind::Ptr(_))
            && (active.fixed.contains(&local) || active.escaping.contains(&local))
            && !active.exposed.contains(&local)
            && self.program.needs_objects
    }

    /// Keeps the object that a local points to.
    pub(super) fn keep_object(&mut self, local: LocalId, object: KernelObject) {
        let is_everywhere = !matches!(object, KernelObject::Read(_)) || self.active.fixed.contains(&local);
        if self.keeps_objects(local) && is_everywhere {
            self.active.objects.insert(local, object);
        }
    }

    /// The object that a local is declared with. The address is included if a second read of the expression
    /// could return another object.
    pub(super) fn declared_object(
        &mut self,
        local: LocalId,
        init: &Expr,
    ) -> Lower<Option<(KernelObject, Option<Value>)>> {
        if !self.keeps_objects(local) {
            return Ok(None);
        }
        Ok(self.kernel_object(init)?.map(|object| (object, self.object_address(init, object))))
    }

    /// The object of an argument, with its address under the same condition as in `declared_object`.
    pub(super) fn passed_object(&mut self, arg: &Expr) -> Lower<Option<(KernelObject, Option<Value>)>> {
        if !self.program.needs_objects || !self.is_kernel_pointer(arg.ty) {
            return Ok(None);
        }
        Ok(self.kernel_object(arg)?.map(|object| (object, self.object_address(arg, object))))
    }

    fn object_address(&mut self, expr: &Expr, object: KernelObject) -> Option<Value> {
        match object {
            KernelObject::Read(value) if self.is_kernel_pointer(expr.ty) => {
                Some(self.builder.value(Type::I64, Op::Address(value)))
            }
            _ => None,
        }
    }

    /// Whether the kernel passes the program's parameters as pointers whose types the verifier knows.
    pub(super) fn is_given_objects(&self) -> bool {
        match self.active.source.kind {
            FunctionKind::Method(_) => true,
            FunctionKind::Program(kind) => matches!(
                kind,
                ProgramKind::Probe | ProgramKind::Retprobe | ProgramKind::RawTracepoint | ProgramKind::Lsm
            ),
            _ => false,
        }
    }
}

/// KS0620: a pointer that the verifier only knows as a number.
fn unknown_object(map: &Map, key: &Expr) -> Diagnostic {
    let text = format!("the kernel cannot tell that this is a `{}`", map.kind.owner().unwrap_or_default());
    Diagnostic::error(620, key.span, text)
        .also(
            map.span,
            format!("`{}` is local storage: its values belong to objects of the kernel", map.name),
        )
        .note(
            "the verifier takes only pointers that it followed from where the kernel gave them to the \
               program",
        )
        .help(
            "use a parameter of an `@raw_tracepoint`, `@probe`, `@retprobe` or `@lsm` program, \
             `bpf_get_current_task_btf()`, a member of these, or a variable that is set once to one of them",
        )
}
