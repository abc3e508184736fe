//! Lowers task ids: those of the PID namespace that the host runs in.
//!
//! The kernel's helper returns ids of the initial namespace. If the host runs in another one, it sets a
//! constant of the object ([`object::PID_NAMESPACE`]) before the load, and the id is read from the task
//! itself. In the initial namespace the verifier removes that branch.

use ks_wit::object::{self, PidNamespaceWord as Word};

use super::super::mir::{BinaryOp, Callee, Condition, Count, Helper, Op, Origin, Size, Type, Value};
use super::Lowerer;
use super::kernel_memory::Source;
use super::memory::{Addr, Base};

/// The kind of a task id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskIdKind {
    Thread,
    Process,
}

impl Lowerer<'_> {
    /// The id of the running thread or process; 0 for a task outside of the host's namespace.
    pub(super) fn task_id(&mut self, kind: TaskIdKind) -> Value {
        let number = self.task_number(kind);
        self.builder.value(Type::I32, Op::Truncate(number))
    }

    /// The id in 64 bits.
    pub(super) fn task_number(&mut self, kind: TaskIdKind) -> Value {
        let own = self.namespace_word(Word::Number);
        let [first, inside, join] = std::array::from_fn(|_| self.builder.block());
        let result = self.builder.param(join, Type::I64);
        let is_first = self.builder.compare_const(Condition::Eq, own, 0);
        self.builder.branch(is_first, first, inside);
        self.builder.switch_to_sealed(first);
        let both = self.builder.call(Type::I64, Callee::Helper(Helper::GetCurrentPidTgid), Vec::new());
        let number = match kind {
            TaskIdKind::Process => self.builder.binary_const(BinaryOp::LShr, both, 32),
            TaskIdKind::Thread => self.builder.binary_const(BinaryOp::And, both, u64::from(u32::MAX)),
        };
        self.builder.jump_with(join, number);
        self.builder.switch_to_sealed(inside);
        let number = self.number_inside(kind, own);
        self.builder.jump_with(join, number);
        self.builder.switch_to_sealed(join);
        result
    }

    /// The id in the namespace with the inode number `own`.
    ///
    /// Source: include/linux/sched.h, `struct task_struct`; include/linux/pid.h, `struct pid` and `struct
    /// upid`; include/linux/pid_namespace.h, v6.18.
    fn number_inside(&mut self, kind: TaskIdKind, own: Value) -> Value {
        let at = Addr::of(Base::Slot(self.builder.slot(8)));
        let read = |this: &mut Self, base: Value, word: Word| {
            let offset = this.namespace_word(word);
            let address = this.builder.binary(BinaryOp::Add, base, offset);
            let bytes = this.builder.constant(Type::I64, 8);
            this.probe_read(at, bytes, address, Source::Kernel);
            this.load(at, Size::DW)
        };
        let mut task = self.builder.call(Type::I64, Callee::Helper(Helper::GetCurrentTask), Vec::new());
        if kind == TaskIdKind::Process {
            task = read(self, task, Word::GroupLeader);
        }
        let pid = read(self, task, Word::ThreadPid);
        let level = read(self, pid, Word::PidLevel);
        let level = self.builder.binary_const(BinaryOp::And, level, u64::from(u32::MAX));
        let own_level = self.namespace_word(Word::Level);
        let [deep, outside, join] = std::array::from_fn(|_| self.builder.block());
        let result = self.builder.param(join, Type::I64);
        // The task has an entry for each namespace from the initial one to its own.
        let is_deep = self.builder.compare(Condition::Ge, level, own_level);
        self.builder.branch(is_deep, deep, outside);
        self.builder.switch_to_sealed(deep);
        let number = read(self, pid, Word::EntryNumber);
        let number = self.builder.binary_const(BinaryOp::And, number, u64::from(u32::MAX));
        let namespace = read(self, pid, Word::EntryNamespace);
        let inode = read(self, namespace, Word::NamespaceNumber);
        let inode = self.builder.binary_const(BinaryOp::And, inode, u64::from(u32::MAX));
        let is_own = self.builder.compare(Condition::Eq, inode, own);
        let zero = self.builder.constant(Type::I64, 0);
        let number = self.choose(is_own, number, zero);
        self.builder.jump_with(join, number);
        self.builder.switch_to_sealed(outside);
        let zero = self.builder.constant(Type::I64, 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        result
    }

    /// A word that the host has set about its namespace.
    fn namespace_word(&mut self, word: Word) -> Value {
        let base = self.builder.value(Type::Ptr(Origin::Global), Op::CountAddr(Count::PidNamespace));
        let offset = (word as usize * object::PID_NAMESPACE_WORD_BYTES) as i16;
        self.builder.value(Type::I64, Op::Load { size: Size::DW, base, offset })
    }
}
