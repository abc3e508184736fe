//! Lowers pointers as numbers. Pointers to kernel or user memory are only numbers: reads copy their pointee
//! into this frame, and writes are lost.

use super::super::super::mir::{BinaryOp, Condition, Op, Type, Value};
use super::super::kernel_memory::Source;
use super::super::memory::{Addr, BASE_ALIGN, Base};
use super::super::{Lower, Lowerer};
use super::{ADDRESS, Bytes, Object, Part, Pointer};
use crate::builtins::context_members::MemberType;

impl Lowerer<'_> {
    /// The pointer with this address.
    pub(in super::super) fn pointer_to_address(&mut self, address: Value) -> Pointer {
        let object =
            Object { base: address, extent: ADDRESS, is_own: false, record: None, packet: None, held: None };
        self.pointer_into(vec![object], Bytes::Known(0), BASE_ALIGN)
    }

    /// The objects of a pointer that are kernel or user addresses.
    pub(in super::super) fn addresses(&self, pointer: Pointer) -> Vec<Object> {
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
            let is_there = self.builder.compare_const(Condition::Ne, chosen, 0);
            self.choose(is_there, chosen, other)
        })
    }

    /// A copy of the bytes at an address: zeros if they cannot be read.
    pub(super) fn inside_address(&mut self, offset: Bytes, address: Value, bytes: u32) -> Addr {
        let offset = self.number(offset);
        let from_address = self.builder.binary(BinaryOp::Add, address, offset);
        let to = Addr::of(Base::Slot(self.builder.slot(bytes)));
        let bytes = self.builder.constant(Type::I64, bytes.into());
        self.probe_read(to, bytes, from_address, Source::Either);
        to
    }

    /// The pointer as a number. Null is 0 plus the offset that was added to it.
    pub(in super::super) fn address_value(&mut self, pointer: Pointer) -> Lower<Value> {
        let addresses = self.addresses(pointer);
        let (packets, memory) = self.packets_and_memory(pointer);
        let mut address = self.chosen_address(&addresses);
        if !memory.is_empty() {
            let base = self.chosen(memory);
            let here = self.builder.value(Type::I64, Op::Address(base));
            address = self.builder.binary(BinaryOp::Or, address, here);
        }
        for Object { base, packet, .. } in packets {
            let start = match packet {
                Some(Part::Meta) => MemberType::PacketMeta,
                _ => MemberType::PacketStart,
            };
            let start = self.edge(start, self.active.source.span)?;
            let start = self.builder.value(Type::I64, Op::Address(start));
            address = self.choose(base, start, address);
        }
        let offset = self.number(pointer.offset);
        Ok(self.builder.binary(BinaryOp::Add, address, offset))
    }
}
