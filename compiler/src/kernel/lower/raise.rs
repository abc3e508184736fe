//! The greatest of the numbers that all CPUs store in one place. BPF has no such instruction: an exchange tells whether
//! another CPU has stored a greater one meanwhile, which is then put back.

use super::super::mir::{Condition, Count, Op, Size, Type, Value};
use super::Lowerer;
use super::memory::Addr;

/// How often a number is put in again. Each further time another CPU has raised the memory between a load and the
/// exchange after it, and was then seen by neither. What is given up then is counted.
const ATTEMPTS: usize = 6;

impl Lowerer<'_> {
    /// Raises 8 bytes of shared memory to an unsigned number, if they have less.
    pub(super) fn raise(&mut self, addr: Addr, number: Value) {
        let done = self.builder.block();
        let mut number = number;
        for _ in 0..ATTEMPTS {
            let (less, lost) = (self.builder.block(), self.builder.block());
            let found = self.load(addr, Size::DW);
            let is_less = self.builder.compare(Condition::Lt, found, number);
            self.builder.branch(is_less, less, done);
            self.builder.switch_to_sealed(less);
            let before = self.exchange(addr, number);
            let is_lost = self.builder.compare(Condition::Gt, before, number);
            self.builder.branch(is_lost, lost, done);
            self.builder.switch_to_sealed(lost);
            number = before;
        }
        self.count_one(Count::Unraised);
        self.builder.jump(done);
        self.builder.switch_to_sealed(done);
    }

    fn exchange(&mut self, addr: Addr, value: Value) -> Value {
        let (base, offset) = self.base_and_offset(addr);
        self.builder.value(Type::I64, Op::AtomicExchange { base, offset, value })
    }
}
