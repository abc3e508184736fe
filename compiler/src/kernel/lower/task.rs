//! Lowers task ids: those of the PID namespace that the host runs in.
//!
//! The kernel's helper returns ids of the initial namespace. If the host runs in another one, it sets a
//! constant of the object ([`object::PID_NAMESPACE`]) before the load, and a function of the object reads the
//! id from the task itself. In the initial namespace the verifier removes the call.

use ks_wit::object::{self, PidNamespaceWord as Word};

use super::super::mir::builder::Builder;
use super::super::mir::{
    BinaryOp, Block, Callee, Condition, Count, FunctionOrigin, Helper, MirFunction, Op, Origin, Size, Slot,
    Type, Value,
};
use super::Lowerer;
use crate::hir::FuncId;
use crate::index::IndexVec;
use crate::source::Span;

/// The kind of a task id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskIdKind {
    Thread,
    Process,
}

impl Lowerer<'_> {
    /// The id of the running thread or process; 0 for a task outside of the host's namespace.
    pub(super) fn task_id(&mut self, kind: TaskIdKind) -> Value {
        let words = self.builder.value(Type::Ptr(Origin::Global), Op::CountAddr(Count::PidNamespace));
        let own = word(&mut self.builder, words, Word::Number);
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
        let is_process = self.builder.constant(Type::I32, u64::from(kind == TaskIdKind::Process));
        let function = *self.program.task_id.get_or_init(|| self.program.new_id());
        let args = vec![words, is_process];
        let number = self.builder.call(Type::I64, Callee::Function(function), args);
        self.builder.jump_with(join, number);
        self.builder.switch_to_sealed(join);
        self.builder.value(Type::I32, Op::Truncate(result))
    }
}

/// The function `task_id(words, is_process)`: the id of the running task in the namespace that the words
/// describe, in 64 bits.
///
/// Source: include/linux/sched.h, `struct task_struct`; include/linux/pid.h, `struct pid` and `struct upid`;
/// include/linux/pid_namespace.h, v6.18.
pub(super) fn function(id: FuncId, span: Span) -> MirFunction {
    let mut builder = Builder::new(MirFunction {
        id,
        origin: FunctionOrigin::TaskId,
        name: "task_id".into(),
        span,
        is_program: false,
        is_called: true,
        returns_bool: false,
        context: None,
        params: Vec::new(),
        ret: Type::I64,
        values: IndexVec::new(),
        blocks: IndexVec::new(),
        slots: IndexVec::new(),
        slot_bytes: 0,
    });
    let words = builder.function_param("__words", Type::Ptr(Origin::Global));
    let is_process = builder.function_param("__is_process", Type::I32);
    let mut reader = Reader { words, read: builder.slot(8), builder };
    let number = reader.number(is_process);
    reader.builder.ret(number);
    reader.builder.finish()
}

/// A word that the host has set about its namespace.
fn word(builder: &mut Builder, words: Value, word: Word) -> Value {
    let offset = (word as usize * object::PID_NAMESPACE_WORD_BYTES) as i16;
    builder.value(Type::I64, Op::Load { size: Size::DW, base: words, offset })
}

/// Reads members of the kernel's structs at the offsets that the host has set.
struct Reader {
    builder: Builder,
    words: Value,
    /// Receives what is read.
    read: Slot,
}

impl Reader {
    fn word(&mut self, wanted: Word) -> Value {
        word(&mut self.builder, self.words, wanted)
    }

    /// The 8 bytes of a member.
    fn member(&mut self, base: Value, member: Word) -> Value {
        let offset = self.word(member);
        let address = self.builder.binary(BinaryOp::Add, base, offset);
        let to = self.builder.value(Type::Ptr(Origin::Stack), Op::StackAddr { slot: self.read, offset: 0 });
        let bytes = self.builder.constant(Type::I64, 8);
        self.builder.call(Type::I64, Callee::Helper(Helper::ProbeReadKernel), vec![to, bytes, address]);
        self.builder.value(Type::I64, Op::Load { size: Size::DW, base: to, offset: 0 })
    }

    /// A member of 32 bits.
    fn half(&mut self, base: Value, member: Word) -> Value {
        let both = self.member(base, member);
        self.builder.binary_const(BinaryOp::And, both, u64::from(u32::MAX))
    }

    fn number(&mut self, is_process: Value) -> Value {
        let thread = self.builder.call(Type::I64, Callee::Helper(Helper::GetCurrentTask), Vec::new());
        let [leader, known] = std::array::from_fn(|_| self.builder.block());
        let task = self.builder.param(known, Type::I64);
        self.branch(is_process, leader, (known, thread));
        let group_leader = self.member(thread, Word::GroupLeader);
        self.builder.jump_with(known, group_leader);
        self.builder.switch_to_sealed(known);
        let pid = self.member(task, Word::ThreadPid);
        let level = self.half(pid, Word::PidLevel);
        let own_level = self.word(Word::Level);
        let zero = self.builder.constant(Type::I64, 0);
        let [deep, own, join] = std::array::from_fn(|_| self.builder.block());
        let result = self.builder.param(join, Type::I64);
        // The task has an entry for each namespace from the initial one to its own.
        let is_deep = self.builder.compare(Condition::Ge, level, own_level);
        self.branch(is_deep, deep, (join, zero));
        let number = self.half(pid, Word::EntryNumber);
        let namespace = self.member(pid, Word::EntryNamespace);
        let inode = self.half(namespace, Word::NamespaceNumber);
        let own_inode = self.word(Word::Number);
        let is_own = self.builder.compare(Condition::Eq, inode, own_inode);
        self.branch(is_own, own, (join, zero));
        self.builder.jump_with(join, number);
        self.builder.switch_to_sealed(join);
        result
    }

    /// Goes on in `then` if a condition holds, else with a value in another block.
    fn branch(&mut self, condition: Value, then: Block, (to, value): (Block, Value)) {
        let otherwise = self.builder.block();
        self.builder.branch(condition, then, otherwise);
        self.builder.switch_to_sealed(otherwise);
        self.builder.jump_with(to, value);
        self.builder.switch_to_sealed(then);
    }
}
