//! Lowers `lock`: the spin lock of the kernel behind the value of an entry.
//!
//! The verifier accepts no call between the helper that takes a lock and the one that releases it, and wants the
//! lock released on every path, through the pointer of the same lookup. The rule of locks has refused everything in
//! the block that would be a call. Source: kernel/bpf/verifier.c, `process_spin_lock`, v6.12.

use super::super::mir::{Callee, Helper, Op, Origin, Type, Value};
use super::memory::{Addr, Base};
use super::{Home, Lower, Lowerer, impossible};
use crate::hir::{LocalId, MapId, Stmt, lock_offset};
use crate::source::Span;

impl Lowerer<'_> {
    /// Runs a block under the lock of the entry that a local is bound to, if there is one.
    pub(super) fn lock(&mut self, local: LocalId, body: &[Stmt], span: Span) -> Lower<()> {
        let Home::Alias(alias) = self.declare(local)?.home else {
            return impossible(span, "a lock of this variable");
        };
        let offset = lock_offset(self.types(), self.active.source.locals[local].ty);
        let entry = self.builder.get(alias.entry);
        let (bound, join) = (self.builder.block(), self.builder.block());
        let is_unbound = self.builder.value(Type::I32, Op::IsNull(entry));
        self.builder.branch(is_unbound, join, bound);
        self.builder.switch_to_sealed(bound);
        let entry = self.builder.value(Type::Ptr(Origin::Memory), Op::NonNull(entry));
        self.builder.set(alias.pointer, entry);
        self.builder.set(alias.entry, entry);
        let lock = self.pointer(Addr::of(Base::Pointer(entry)).plus(offset));
        self.call_with_lock(Helper::SpinLock, lock);
        self.active.lock = Some(lock);
        self.block(body)?;
        if !self.builder.is_filled() {
            self.unlock();
            self.builder.jump(join);
        }
        self.active.lock = None;
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// Releases the lock that is held here, if one is, because control leaves its block.
    pub(super) fn unlock(&mut self) {
        if let Some(lock) = self.active.lock {
            self.call_with_lock(Helper::SpinUnlock, lock);
        }
    }

    /// The lock of an entry; none in a map without locks.
    pub(super) fn lock_of(&mut self, map: MapId, entry: Value) -> Option<Value> {
        let offset = self.hir.maps[map].stored_value(&self.hir.types).lock?;
        Some(self.pointer(Addr::of(Base::Pointer(entry)).plus(offset)))
    }

    /// Runs code without calls under a lock.
    pub(super) fn under_lock(&mut self, lock: Value, content: impl FnOnce(&mut Self)) {
        self.call_with_lock(Helper::SpinLock, lock);
        content(self);
        self.call_with_lock(Helper::SpinUnlock, lock);
    }

    /// The bytes of a value as the kernel stores them: with a lock behind, which it does not read.
    pub(super) fn stored_value(&mut self, map: MapId, value: Addr, bytes: u32) -> Addr {
        let stored = self.hir.maps[map].stored_value(&self.hir.types).bytes;
        let slot = Addr::of(Base::Slot(self.builder.slot(stored)));
        self.copy(slot, value, bytes);
        self.zero(slot.plus(bytes), stored - bytes);
        slot
    }

    fn call_with_lock(&mut self, helper: Helper, lock: Value) {
        self.builder.effect(Op::Call { callee: Callee::Helper(helper), args: vec![lock] });
    }
}
