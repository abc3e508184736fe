//! Lowers the claim of a scratch slot at a program's start; `kernel::scratch` says what it is for, and
//! releases it.

use super::super::mir::{BinaryOp, Block, Condition, MapSymbol, Op, Origin, Size, Type, Value};
use super::super::scratch::{Base, NUMBER_OFFSET, SLOTS};
use super::Lowerer;
use super::memory::{Addr, Base as Memory};

/// The scratch slot that a program has claimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub base: Base,
    /// The block where the program ends because all slots are in use.
    pub none_free: Block,
}

impl Lowerer<'_> {
    /// Claims a scratch slot; ends the program by a fault if none is free.
    ///
    /// The mark of a slot is the number of runs that want it. A run that adds one and then reads one owns the
    /// slot. Any other run, before or after, reads more, subtracts one again and tries the next slot. This
    /// needs no atomics that return a value, which older kernels and instruction sets lack.
    pub(super) fn claim_scratch(&mut self) -> Claim {
        let key = self.builder.dedicated_slot(4);
        let counter = self.builder.variable(Type::I32);
        let first = self.builder.constant(Type::I32, 0);
        self.builder.set(counter, first);
        let [head, taken, none_free, claimed] = std::array::from_fn(|_| self.builder.block());
        self.builder.jump(head);
        self.builder.switch_to(head);
        let index = self.builder.get(counter);
        let at = Addr::of(Memory::Slot(key));
        self.store(at, Size::W, index);
        let map = self.builder.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Scratch));
        let key_pointer = self.pointer(at);
        let pointer = self.found(map, key_pointer, none_free);
        let mark = Addr::of(Memory::Pointer(pointer));
        self.add_to_mark(mark, 1);
        let wanted_by = self.load(mark, Size::DW);
        let mine = self.builder.compare_const(Condition::Eq, wanted_by, 1);
        self.builder.branch(mine, claimed, taken);
        self.builder.switch_to_sealed(taken);
        self.add_to_mark(mark, u64::MAX);
        let next = self.builder.binary_const(BinaryOp::Add, index, 1);
        self.builder.set(counter, next);
        let more = self.builder.compare_const(Condition::Lt, next, u64::from(SLOTS));
        self.builder.branch(more, head, none_free);
        self.builder.seal(head);
        self.builder.switch_to_sealed(none_free);
        self.end_by_fault();
        self.builder.switch_to_sealed(claimed);
        if self.program.machine.calls_loops() {
            let op = Op::Store { size: Size::W, base: pointer, offset: NUMBER_OFFSET, value: index };
            self.builder.effect(op);
        }
        Claim { base: Base { pointer, before: Some(key) }, none_free }
    }

    fn add_to_mark(&mut self, mark: Addr, number: u64) {
        let number: Value = self.builder.constant(Type::I64, number);
        self.atomic_add(mark, Size::DW, number);
    }
}
