//! Replaces reads of task ids by what reads them in the PID namespace that the host runs in.
//!
//! The kernel's helper returns ids of the initial namespace. If the host runs in another one, it sets a
//! constant of the object ([`object::PID_NAMESPACE`]) before the load, and a function of the object reads the
//! id from the task itself:
//!
//! ```text
//! v = call pid()    ->    if words.number == 0 { v = bpf_get_current_pid_tgid() >> 32 }
//!                         else                 { v = task_id(words, 1, bpf_get_current_task()) }
//! ```
//!
//! Of another task, `v = call pid(task, initial)`, the id in the initial namespace is there already:
//!
//! ```text
//! if words.number == 0 { v = initial } else { v = task_id(words, 1, task) }
//! ```
//!
//! In the initial namespace the verifier removes the call. The pass runs once, after those that share values: an
//! id is the same in a whole run.

use ks_wit::object::{self, PidNamespaceWord as Word};

use crate::hir::FuncId;
use crate::index::{Id, IndexVec};
use crate::kernel::mir::builder::Builder;
use crate::kernel::mir::{
    BinaryOp, Block, BlockData, Callee, Condition, Count, FunctionOrigin, Helper, Inst, MirFunction, Op,
    Origin, Program, Size, Slot, Target, TaskId, Terminator, Type, Value,
};
use crate::source::Span;

/// Runs the pass on all functions; returns whether anything changed. The function that it adds is the first.
pub fn run(program: &mut Program) -> bool {
    let id = program.next_id;
    let mut span = None;
    for function in &mut program.functions {
        if replace(function, id) {
            span.get_or_insert(function.span);
        }
    }
    let Some(span) = span else { return false };
    program.use_id();
    program.functions.insert(0, reader(id, span));
    true
}

/// The read of an id.
#[derive(Clone, Copy)]
struct Read {
    id: TaskId,
    /// The address of the task and its id in the initial namespace; none: of the running task.
    of: Option<(Value, Value)>,
}

/// The id that an instruction reads.
fn read_by(inst: &Inst) -> Option<Read> {
    let Op::Call { callee: Callee::TaskId(id), args } = &inst.op else { return None };
    let of = args.first().copied().zip(args.get(1).copied());
    Some(Read { id: *id, of })
}

fn replace(function: &mut MirFunction, reader: FuncId) -> bool {
    let before = function.blocks.len();
    let mut at = 0;
    // What follows a read becomes a block at the end.
    while at < function.blocks.len() {
        let block = Block::new(at);
        let mut insts = function.blocks[block].insts.iter().enumerate();
        if let Some((index, found)) = insts.find_map(|(index, inst)| Some((index, read_by(inst)?))) {
            read(function, (block, index), found, reader);
        }
        at += 1;
    }
    function.blocks.len() > before
}

/// Replaces the read at this position.
fn read(function: &mut MirFunction, (block, index): (Block, usize), Read { id, of }: Read, reader: FuncId) {
    let data = &mut function.blocks[block];
    let rest = data.insts.split_off(index + 1);
    let Some(read) = data.insts.pop() else { return };
    let (outer_span, span) = (std::mem::replace(&mut data.span, read.span), read.span);
    let term = std::mem::replace(&mut data.term, Terminator::Jump(Target::to(block)));
    let params = read.result.into_iter().collect();
    let join = function.blocks.push(BlockData { params, insts: rest, term, span: outer_span });
    let empty = || BlockData {
        params: Vec::new(),
        insts: Vec::new(),
        term: Terminator::Jump(Target::to(join)),
        span,
    };
    let [first, inside] = std::array::from_fn(|_| function.blocks.push(empty()));

    let words = function.append(block, Type::Ptr(Origin::Global), Op::CountAddr(Count::PidNamespace));
    let own = function.append(block, Type::I64, word(words, Word::Number));
    let zero = function.append(block, Type::I64, Op::Const(0));
    let cond = function.append(block, Type::I32, Op::Compare(Condition::Eq, own, zero));
    let (then, otherwise) = (Target::to(first), Target::to(inside));
    function.blocks[block].term = Terminator::Branch { cond, then, otherwise };

    let number = match of {
        Some((_, initial)) => initial,
        None => running(function, first, id),
    };
    function.blocks[first].term = Terminator::Jump(Target { block: join, args: passed(read.result, number) });

    let is_process = function.append(inside, Type::I32, Op::Const(u64::from(id == TaskId::Process)));
    let current = || Op::Call { callee: Callee::Helper(Helper::GetCurrentTask), args: Vec::new() };
    let task = of.map(|(task, _)| task);
    let task = task.unwrap_or_else(|| function.append(inside, Type::I64, current()));
    let call = Op::Call { callee: Callee::Function(reader), args: vec![words, is_process, task] };
    let number = function.append(inside, Type::I32, call);
    function.blocks[inside].term =
        Terminator::Jump(Target { block: join, args: passed(read.result, number) });
}

/// Reads the id of the running task in the initial namespace.
fn running(function: &mut MirFunction, block: Block, id: TaskId) -> Value {
    let both = Op::Call { callee: Callee::Helper(Helper::GetCurrentPidTgid), args: Vec::new() };
    let mut both = function.append(block, Type::I64, both);
    if id == TaskId::Process {
        let half = function.append(block, Type::I64, Op::Const(32));
        both = function.append(block, Type::I64, Op::Binary(BinaryOp::LShr, both, half));
    }
    function.append(block, Type::I32, Op::Truncate(both))
}

/// The argument for the block that has the result as its parameter.
fn passed(result: Option<Value>, number: Value) -> Vec<Value> {
    result.map(|_| number).into_iter().collect()
}

/// The load of a word that the host has set about its namespace.
fn word(words: Value, word: Word) -> Op {
    let offset = (word as usize * object::PID_NAMESPACE_WORD_BYTES) as i16;
    Op::Load { size: Size::DW, base: words, offset }
}

/// The function `task_id(words, is_process, thread)`: the id of a task in the namespace that the words describe.
///
/// Source: include/linux/sched.h, `struct task_struct`; include/linux/pid.h, `struct pid` and `struct upid`;
/// include/linux/pid_namespace.h, v6.18.
fn reader(id: FuncId, span: Span) -> MirFunction {
    let mut builder = Builder::new(MirFunction {
        id,
        origin: FunctionOrigin::TaskId,
        name: "task_id".into(),
        span,
        is_program: false,
        is_called: true,
        returns_bool: false,
        missing_first: false,
        context: None,
        params: Vec::new(),
        ret: Type::I32,
        values: IndexVec::new(),
        blocks: IndexVec::new(),
        slots: IndexVec::new(),
        slot_bytes: 0,
    });
    let words = builder.function_param("__words", Type::Ptr(Origin::Global));
    let is_process = builder.function_param("__is_process", Type::I32);
    let thread = builder.function_param("__thread", Type::I64);
    let mut reader = Reader { words, to: builder.slot(8), builder };
    let number = reader.number(is_process, thread);
    let number = reader.builder.value(Type::I32, Op::Truncate(number));
    reader.builder.ret(number);
    reader.builder.finish()
}

/// Reads members of the kernel's structs at the offsets that the host has set.
struct Reader {
    builder: Builder,
    words: Value,
    /// Receives what is read.
    to: Slot,
}

impl Reader {
    fn word(&mut self, wanted: Word) -> Value {
        self.builder.value(Type::I64, word(self.words, wanted))
    }

    /// A member of 64 bits.
    fn member(&mut self, base: Value, member: Word) -> Value {
        self.read(base, member, Size::DW)
    }

    /// A member of 32 bits, as 64.
    fn half(&mut self, base: Value, member: Word) -> Value {
        let number = self.read(base, member, Size::W);
        self.builder.value(Type::I64, Op::ZeroExtend(number))
    }

    fn read(&mut self, base: Value, member: Word, size: Size) -> Value {
        let offset = self.word(member);
        let address = self.builder.binary(BinaryOp::Add, base, offset);
        let to = self.builder.value(Type::Ptr(Origin::Stack), Op::StackAddr { slot: self.to, offset: 0 });
        let bytes = self.builder.constant(Type::I64, size.bytes().into());
        self.builder.call(Type::I64, Callee::Helper(Helper::ProbeReadKernel), vec![to, bytes, address]);
        let ty = if size == Size::DW { Type::I64 } else { Type::I32 };
        self.builder.value(ty, Op::Load { size, base: to, offset: 0 })
    }

    fn number(&mut self, is_process: Value, thread: Value) -> Value {
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
