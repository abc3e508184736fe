//! Pointers to memory of the kernel or of a user program: numbers. What is behind them is read into this frame; what is
//! written there is lost.

use super::super::super::mir::{BinaryOp, Condition, Type, Value};
use super::super::kernel_memory::Source;
use super::super::memory::{Addr, BASE_ALIGN, Base};
use super::super::{Lower, Lowerer, not_yet};
use super::{ADDRESS, Bytes, Object, Pointer};
use crate::source::Span;

impl Lowerer<'_> {
    /// The pointer that an address is.
    pub(in super::super) fn pointer_to_address(&mut self, address: Value) -> Pointer {
        let object = Object { base: address, extent: ADDRESS, is_own: false, record: None, packet: None };
        self.pointer_into(vec![object], Bytes::Known(0), BASE_ALIGN)
    }

    /// The objects of a pointer that are addresses.
    pub(super) fn addresses(&self, pointer: Pointer) -> Vec<Object> {
        let is_address = |object: &Object| object.extent == ADDRESS;
        self.objects(pointer).into_iter().filter(is_address).collect()
    }

    /// The address that is not 0, or 0.
    pub(super) fn chosen_address(&mut self, objects: &[Object]) -> Value {
        let mut addresses = objects.iter().map(|object| object.base);
        let Some(first) = addresses.next() else {
            return self.builder.constant(Type::I64, 0);
        };
        addresses.fold(first, |chosen, other| {
            let (there, elsewhere, join) = (self.builder.block(), self.builder.block(), self.builder.block());
            let result = self.builder.param(join, Type::I64);
            let is_there = self.builder.compare_const(Condition::Ne, chosen, 0);
            self.builder.branch(is_there, there, elsewhere);
            for (block, value) in [(there, chosen), (elsewhere, other)] {
                self.builder.switch_to_sealed(block);
                self.builder.jump_with(join, value);
            }
            self.builder.switch_to_sealed(join);
            result
        })
    }

    /// A copy of bytes at an address: zeros if they cannot be read.
    pub(super) fn inside_address(&mut self, offset: Bytes, address: Value, bytes: u32) -> Addr {
        let offset = self.number(offset);
        let place = self.builder.binary(BinaryOp::Add, address, offset);
        let to = Addr::of(Base::Slot(self.builder.slot(bytes)));
        let bytes = self.builder.constant(Type::I64, bytes.into());
        self.probe_read(to, bytes, place, Source::Either);
        to
    }

    /// The pointer as a number, if it is an address or null; none if it points to memory of the program's own.
    pub(in super::super) fn plain_address(&mut self, pointer: Pointer, span: Span) -> Lower<Option<Value>> {
        let objects = self.objects(pointer);
        if objects.iter().all(|object| object.extent != ADDRESS) {
            return Ok(None);
        }
        if objects.iter().any(|object| object.extent != ADDRESS) {
            return not_yet(span, "an address of the kernel beside one of the program's own is");
        }
        let base = self.chosen_address(&objects);
        let offset = self.number(pointer.offset);
        Ok(Some(self.builder.binary(BinaryOp::Add, base, offset)))
    }
}
