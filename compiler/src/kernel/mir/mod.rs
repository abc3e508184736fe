//! MIR: the kernel half in SSA form, between the typed tree and BPF instructions.
//!
//! - A function is a graph of blocks. Blocks have parameters instead of phis; a jump passes one argument for each.
//! - A value is 32 or 64 bits or a pointer. The language's types below 32 bits are 32-bit values that are kept extended by
//!   the type's sign ([`Op::Narrow`] after whatever may leave the range), so that comparisons, divisions and conversions
//!   need no care. In a register a 32-bit value has zeros above, as BPF's 32-bit instructions leave it: extending an
//!   unsigned one costs nothing.
//! - A pointer has an [`Origin`], so that every access can be justified to the kernel's verifier. What a check
//!   establishes holds for the value that [`Op::Below`] or [`Op::NonNull`] makes, and for no other.
//! - Aggregates live in stack slots, global variables and map entries; scalars never do, unless they are shared.
//!
//! Not here: registers, the frame's layout, anything about the language's types.

pub mod builder;
pub mod core;
pub mod dominators;
pub mod interp;
pub mod print;
pub mod verify;

use std::sync::Arc;

use self::core::{CoreField, CoreQuestion};
use crate::hir::{ConfigId, FuncId, GlobalId, MapId, RingId};
use crate::id_type;
use crate::index::IndexVec;
use crate::source::Span;

id_type! {
    /// A value of one function.
    Value,
    /// A block of one function.
    Block,
    /// A range of the stack frame of one function.
    Slot,
}

/// What a pointer points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The stack frame of this function or of a caller.
    Stack,
    /// A global variable.
    Global,
    /// The value of a map's entry.
    Entry,
    /// The same, or null: to be tested before use.
    EntryOrNull,
    /// One of the stack, a global variable and an entry: a binding, or a parameter passed by reference.
    Memory,
    /// The same, or null: to be tested before use.
    MemoryOrNull,
    /// A map, as helpers take it.
    Map,
    /// The program's context: read and written at constant offsets only, each member in its own size.
    Context,
    /// The counter inside an iterator, or null: to be tested before use.
    TurnOrNull,
    /// The counter inside an iterator.
    Turn,
    /// A byte of the packet or of its metadata, there or not: to be tested by [`Op::Within`] before use.
    Packet,
    /// The end of the packet: only compared.
    PacketEnd,
    /// A byte of the packet or of its metadata with others behind it, all of which are there.
    InPacket,
}

impl Origin {
    /// Whether memory behind it can be read and written at any offset that was checked.
    pub fn is_memory(self) -> bool {
        matches!(self, Origin::Stack | Origin::Global | Origin::Entry | Origin::Memory | Origin::InPacket)
    }

    /// What it is once it is known not to be null.
    pub fn checked(self) -> Option<Origin> {
        match self {
            Origin::EntryOrNull => Some(Origin::Entry),
            Origin::MemoryOrNull => Some(Origin::Memory),
            Origin::TurnOrNull => Some(Origin::Turn),
            _ => None,
        }
    }
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// A pointer.
    Ptr(Origin),
}

impl Type {
    /// The width of a number; `None` for a pointer.
    pub fn bits(self) -> Option<u32> {
        match self {
            Type::I32 => Some(32),
            Type::I64 => Some(64),
            Type::Ptr(_) => None,
        }
    }
}

/// Arithmetic. Both operands and the result have one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Wrapping.
    Add,
    /// Wrapping.
    Sub,
    /// Wrapping.
    Mul,
    /// Unsigned; by zero gives 0.
    UDiv,
    /// Unsigned; by zero gives the left operand.
    URem,
    /// Signed, towards zero; by a constant that is neither 0 nor -1.
    SDiv,
    /// Signed, with the sign of the left operand; by a constant that is neither 0 nor -1.
    SRem,
    /// Bitwise.
    And,
    /// Bitwise.
    Or,
    /// Bitwise.
    Xor,
    /// The amount is taken modulo the width.
    Shl,
    /// Logical; the amount is taken modulo the width.
    LShr,
    /// Arithmetic; the amount is taken modulo the width.
    AShr,
}

/// A comparison; the names starting with `S` compare as signed, the others with an order as unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Condition {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    SLt,
    SLe,
    SGt,
    SGe,
}

impl Condition {
    /// True exactly when `self` is false.
    pub fn negated(self) -> Condition {
        match self {
            Condition::Eq => Condition::Ne,
            Condition::Ne => Condition::Eq,
            Condition::Lt => Condition::Ge,
            Condition::Le => Condition::Gt,
            Condition::Gt => Condition::Le,
            Condition::Ge => Condition::Lt,
            Condition::SLt => Condition::SGe,
            Condition::SLe => Condition::SGt,
            Condition::SGt => Condition::SLe,
            Condition::SGe => Condition::SLt,
        }
    }

    /// Whether the sign counts.
    pub fn is_signed(self) -> bool {
        matches!(self, Condition::SLt | Condition::SLe | Condition::SGt | Condition::SGe)
    }

    /// The same with the operands exchanged.
    pub fn swapped(self) -> Condition {
        match self {
            Condition::Eq | Condition::Ne => self,
            Condition::Lt => Condition::Gt,
            Condition::Le => Condition::Ge,
            Condition::Gt => Condition::Lt,
            Condition::Ge => Condition::Le,
            Condition::SLt => Condition::SGt,
            Condition::SLe => Condition::SGe,
            Condition::SGt => Condition::SLt,
            Condition::SGe => Condition::SLe,
        }
    }
}

/// Bytes of a memory access: 1, 2, 4 or 8.
pub use crate::bpf::Size;

/// A kernel helper. Source of numbers and signatures: include/uapi/linux/bpf.h, v6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Helper {
    /// `(map, key) -> entry or null`
    MapLookup,
    /// `(map, key, value, flags) -> 0 or -errno`
    MapUpdate,
    /// `(map, key) -> 0 or -errno`
    MapDelete,
    /// `(map, value, flags) -> 0 or -errno`
    MapPush,
    /// `(map, value) -> 0 or -errno`; takes the value out
    MapPop,
    /// `(map, value) -> 0 or -errno`
    MapPeek,
    /// `(context, map, flags) -> id or -errno`
    GetStackId,
    /// `(ring, bytes, 0) -> record or null`; the record is to be given to one of the next two on every path
    RingReserve,
    /// `(record, 0)`
    RingSubmit,
    /// `(record, 0)`
    RingDiscard,
    /// `() -> ns`
    KtimeGetNs,
    /// `() -> number`
    GetPrandom,
    /// `() -> cpu`
    GetSmpProcessorId,
    /// `() -> tgid << 32 | tid`
    GetCurrentPidTgid,
    /// `() -> gid << 32 | uid`
    GetCurrentUidGid,
    /// `(buffer, bytes) -> 0 or -errno`
    GetCurrentComm,
    /// `(context, programs, index)`: does not come back but with an error.
    TailCall,
    /// `() -> id`
    GetCurrentCgroupId,
    /// `(to, bytes, kernel address) -> 0 or -errno`; all zero on failure
    ProbeReadKernel,
    /// `(to, bytes, user address) -> 0 or -errno`; all zero on failure
    ProbeReadUser,
}

impl Helper {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Helper::MapLookup => "bpf_map_lookup_elem",
            Helper::MapUpdate => "bpf_map_update_elem",
            Helper::MapDelete => "bpf_map_delete_elem",
            Helper::MapPush => "bpf_map_push_elem",
            Helper::MapPop => "bpf_map_pop_elem",
            Helper::MapPeek => "bpf_map_peek_elem",
            Helper::GetStackId => "bpf_get_stackid",
            Helper::RingReserve => "bpf_ringbuf_reserve",
            Helper::RingSubmit => "bpf_ringbuf_submit",
            Helper::RingDiscard => "bpf_ringbuf_discard",
            Helper::KtimeGetNs => "bpf_ktime_get_ns",
            Helper::GetPrandom => "bpf_get_prandom_u32",
            Helper::GetSmpProcessorId => "bpf_get_smp_processor_id",
            Helper::GetCurrentPidTgid => "bpf_get_current_pid_tgid",
            Helper::GetCurrentUidGid => "bpf_get_current_uid_gid",
            Helper::GetCurrentComm => "bpf_get_current_comm",
            Helper::TailCall => "bpf_tail_call",
            Helper::GetCurrentCgroupId => "bpf_get_current_cgroup_id",
            Helper::ProbeReadKernel => "bpf_probe_read_kernel",
            Helper::ProbeReadUser => "bpf_probe_read_user",
        }
    }

    /// The kernel's number.
    pub fn number(self) -> u32 {
        match self {
            Helper::MapLookup => 1,
            Helper::MapUpdate => 2,
            Helper::MapDelete => 3,
            Helper::MapPush => 87,
            Helper::MapPop => 88,
            Helper::MapPeek => 89,
            Helper::GetStackId => 27,
            Helper::RingReserve => 131,
            Helper::RingSubmit => 132,
            Helper::RingDiscard => 133,
            Helper::KtimeGetNs => 5,
            Helper::GetPrandom => 7,
            Helper::GetSmpProcessorId => 8,
            Helper::GetCurrentPidTgid => 14,
            Helper::GetCurrentUidGid => 15,
            Helper::GetCurrentComm => 16,
            Helper::TailCall => 12,
            Helper::GetCurrentCgroupId => 80,
            Helper::ProbeReadUser => 112,
            Helper::ProbeReadKernel => 113,
        }
    }

    /// The type of its result.
    pub fn result(self) -> Type {
        match self {
            Helper::MapLookup => Type::Ptr(Origin::EntryOrNull),
            Helper::RingReserve => Type::Ptr(Origin::MemoryOrNull),
            _ => Type::I64,
        }
    }

    /// Whether two calls with nothing in between are one.
    pub fn has_effects(self) -> bool {
        matches!(
            self,
            Helper::MapUpdate
                | Helper::MapDelete
                | Helper::MapPush
                | Helper::MapPop
                | Helper::MapPeek
                | Helper::GetStackId
                | Helper::RingReserve
                | Helper::RingSubmit
                | Helper::RingDiscard
                | Helper::GetCurrentComm
                | Helper::TailCall
                | Helper::ProbeReadKernel
                | Helper::ProbeReadUser
        )
    }
}

/// A kernel function by name: the open-coded number iterator (Linux 6.4). Source: kernel/bpf/bpf_iter.c, v6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kfunc {
    /// `(iterator, start: s32, end: s32) -> 0 or -errno`
    IterNumNew,
    /// `(iterator) -> counter or null`
    IterNumNext,
    /// `(iterator)`
    IterNumDestroy,
}

impl Kfunc {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Kfunc::IterNumNew => "bpf_iter_num_new",
            Kfunc::IterNumNext => "bpf_iter_num_next",
            Kfunc::IterNumDestroy => "bpf_iter_num_destroy",
        }
    }

    /// The type of its result, if it has one.
    pub fn result(self) -> Option<Type> {
        match self {
            Kfunc::IterNumNew => Some(Type::I32),
            Kfunc::IterNumNext => Some(Type::Ptr(Origin::TurnOrNull)),
            Kfunc::IterNumDestroy => None,
        }
    }
}

/// Something that the object counts because it was lost; the host tells how often. A 64-bit variable each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lost {
    /// A record that the ring buffer had no room for.
    Record(RingId),
    /// A value that the map had no room for, or a stack that collided with another.
    Update(MapId),
    /// A line of `print`.
    Print,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Callee {
    /// A kernel helper.
    Helper(Helper),
    /// A kernel function.
    Kfunc(Kfunc),
    /// A function of this object.
    Function(FuncId),
}

/// What an instruction computes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// A number; of a 32-bit type the upper half is zero.
    Const(u64),
    /// Arithmetic.
    Binary(BinaryOp, Value, Value),
    /// 1 if it holds, else 0; 32 bits. The operands have one type; pointers are compared with 0 by [`Op::IsNull`].
    Compare(Condition, Value, Value),
    /// 1 for a null pointer, else 0; 32 bits.
    IsNull(Value),
    /// The low 8 or 16 bits of a 32-bit value, extended again to 32.
    Narrow {
        /// The value.
        value: Value,
        /// 8 or 16.
        bits: u8,
        /// By its sign, or by zeros.
        signed: bool,
    },
    /// The low 16 bits of a 32-bit value with zeros above, all of it, or a 64-bit value, with its bytes in the other order.
    SwapBytes {
        /// The value.
        value: Value,
        /// 16, 32 or 64.
        bits: u8,
    },
    /// 32 bits to 64, by the sign.
    SignExtend(Value),
    /// 32 bits to 64, by zeros.
    ZeroExtend(Value),
    /// 64 bits to 32.
    Truncate(Value),
    /// `value`, which is below `bound` (unsigned) because the block is only reached if it is. The instructions made of this
    /// keep that visible to the verifier wherever registers end up.
    Below {
        /// The number that was compared.
        value: Value,
        /// What it was compared with.
        bound: u64,
    },
    /// The pointer, which is not null because the block is only reached if it is not.
    NonNull(Value),
    /// 1 if so many bytes behind a pointer into the packet are before the end, else 0; 32 bits. The verifier learns it
    /// from a branch, for every pointer that was made of the same sum.
    Within {
        /// A pointer into the packet.
        pointer: Value,
        /// How many.
        bytes: u32,
        /// Where the packet ends, or starts if the pointer leads to its metadata.
        end: Value,
    },
    /// The pointer, behind which so many bytes are there because the block is only reached if they are.
    InPacket {
        /// What [`Op::Within`] tested.
        pointer: Value,
        /// How many bytes.
        bytes: u32,
    },
    /// Where the packet starts or ends, or its metadata starts: 4 bytes of the context, which the kernel replaces by a
    /// load of the pointer. It is the same at each point of the program.
    PacketEdge {
        /// The context.
        context: Value,
        /// The member's place.
        offset: i16,
    },
    /// `value`, about which the verifier knows nothing any more: `zero` is the result of [`Kfunc::IterNumNew`], 0 in fact
    /// and anything to the verifier. A number that a loop changes would otherwise be a new constant in each turn, and
    /// the verifier would walk through all turns.
    Opaque {
        /// The number.
        value: Value,
        /// Of the same type.
        zero: Value,
    },
    /// The address of a byte of a stack slot.
    StackAddr {
        /// The slot.
        slot: Slot,
        /// Bytes from its start.
        offset: u32,
    },
    /// The address of a byte of a global variable.
    GlobalAddr {
        /// The variable.
        global: GlobalId,
        /// Bytes from its start.
        offset: u32,
    },
    /// A map.
    MapAddr(MapId),
    /// The map of a config block.
    ConfigAddr(ConfigId),
    /// The map of scratch slots.
    ScratchMap,
    /// The array of programs that tail calls lead to in which this one comes first.
    ProgramArray(FuncId),
    /// How often runs of a program ended by a fault: 8 bytes, a global variable.
    FaultCount(FuncId),
    /// A ring buffer, as helpers take it.
    RingAddr(RingId),
    /// The ring buffer of printed lines.
    PrintsAddr,
    /// The count of something lost.
    LostAddr(Lost),
    /// How many bytes the first of two pointers into memory lies behind the second: 64 bits.
    PtrDiff(Value, Value),
    /// What the loader says of a part of a struct of the kernel: 64 bits, below 2^31.
    Core(Arc<CoreField>, CoreQuestion),
    /// Reads a member of the context where the kernel that runs has it, extended by zeros.
    LoadField {
        /// Bytes; 8 exactly if the result has 64 bits.
        size: Size,
        /// The context.
        base: Value,
        /// Which.
        field: Arc<CoreField>,
    },
    /// A pointer moved by a 64-bit number of bytes that was checked.
    PtrAdd(Value, Value),
    /// Reads memory, extended by zeros.
    Load {
        /// Bytes; 8 exactly if the result has 64 bits or is a pointer.
        size: Size,
        /// Where.
        base: Value,
        /// Bytes added.
        offset: i16,
    },
    /// Writes the low bytes of a value.
    Store {
        /// Bytes; 8 exactly if the value has 64 bits or is a pointer.
        size: Size,
        /// Where.
        base: Value,
        /// Bytes added.
        offset: i16,
        /// What.
        value: Value,
    },
    /// Adds to 4 or 8 bytes of memory, atomically.
    AtomicAdd {
        /// `W` or `DW`, as the value's type.
        size: Size,
        /// Where.
        base: Value,
        /// Bytes added to the address.
        offset: i16,
        /// How much.
        value: Value,
    },
    /// A call with at most five arguments.
    Call {
        /// What.
        callee: Callee,
        /// With.
        args: Vec<Value>,
    },
}

impl Op {
    /// Whether it may be left out if nobody uses the result.
    pub fn is_pure(&self) -> bool {
        match self {
            Op::Store { .. } | Op::AtomicAdd { .. } => false,
            Op::Call { callee, .. } => matches!(callee, Callee::Helper(helper) if !helper.has_effects()),
            _ => true,
        }
    }

    /// Whether the result is 0 or 1, which a branch tests best where it stands.
    pub fn is_test(&self) -> bool {
        matches!(self, Op::Compare(..) | Op::IsNull(_) | Op::Within { .. })
    }

    /// The values it reads.
    pub fn operands(&self) -> Vec<Value> {
        let mut operands = Vec::new();
        self.clone().map_operands(&mut |value| {
            operands.push(value);
            value
        });
        operands
    }

    /// Replaces the values it reads.
    pub fn map_operands(&mut self, map: &mut impl FnMut(Value) -> Value) {
        match self {
            Op::Const(_)
            | Op::StackAddr { .. }
            | Op::GlobalAddr { .. }
            | Op::Core(..)
            | Op::MapAddr(_)
            | Op::ConfigAddr(_)
            | Op::ScratchMap
            | Op::ProgramArray(_)
            | Op::FaultCount(_)
            | Op::RingAddr(_)
            | Op::PrintsAddr
            | Op::LostAddr(_) => {}
            Op::IsNull(value)
            | Op::Narrow { value, .. }
            | Op::SwapBytes { value, .. }
            | Op::SignExtend(value)
            | Op::ZeroExtend(value)
            | Op::Truncate(value)
            | Op::Below { value, .. }
            | Op::NonNull(value)
            | Op::InPacket { pointer: value, .. }
            | Op::PacketEdge { context: value, .. }
            | Op::LoadField { base: value, .. }
            | Op::Load { base: value, .. } => *value = map(*value),
            Op::Binary(_, a, b)
            | Op::Compare(_, a, b)
            | Op::PtrAdd(a, b)
            | Op::PtrDiff(a, b)
            | Op::Opaque { value: a, zero: b }
            | Op::Within { pointer: a, end: b, .. }
            | Op::Store { base: a, value: b, .. }
            | Op::AtomicAdd { base: a, value: b, .. } => {
                *a = map(*a);
                *b = map(*b);
            }
            Op::Call { args, .. } => args.iter_mut().for_each(|arg| *arg = map(*arg)),
        }
    }
}

/// An instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inst {
    /// The value it makes, if any.
    pub result: Option<Value>,
    /// What it does.
    pub op: Op,
    /// The part of the script it comes from.
    pub span: Span,
}

/// A block and the arguments for its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where to.
    pub block: Block,
    /// One for each parameter.
    pub args: Vec<Value>,
}

impl Target {
    /// A block without parameters.
    pub fn to(block: Block) -> Target {
        Target { block, args: Vec::new() }
    }
}

/// How a block ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminator {
    /// Goes on elsewhere.
    Jump(Target),
    /// Goes to `then` if a 32-bit value is not zero.
    Branch {
        /// The value.
        cond: Value,
        /// If not zero.
        then: Target,
        /// If zero.
        otherwise: Target,
    },
    /// Leaves the function.
    Return(Value),
}

impl Terminator {
    /// The targets, in order.
    pub fn targets(&self) -> Vec<&Target> {
        match self {
            Terminator::Jump(target) => vec![target],
            Terminator::Branch { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
        }
    }

    /// The targets, in order, to change.
    pub fn targets_mut(&mut self) -> Vec<&mut Target> {
        match self {
            Terminator::Jump(target) => vec![target],
            Terminator::Branch { then, otherwise, .. } => vec![then, otherwise],
            Terminator::Return(_) => Vec::new(),
        }
    }

    /// Replaces the values it reads.
    pub fn map_operands(&mut self, map: &mut impl FnMut(Value) -> Value) {
        match self {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => *value = map(*value),
            Terminator::Jump(_) => {}
        }
        for target in self.targets_mut() {
            target.args.iter_mut().for_each(|arg| *arg = map(*arg));
        }
    }

    /// The values it reads.
    pub fn operands(&self) -> Vec<Value> {
        let mut operands = Vec::new();
        self.clone().map_operands(&mut |value| {
            operands.push(value);
            value
        });
        operands
    }
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockData {
    /// Values that the jumps to it provide.
    pub params: Vec<Value>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
    /// The end.
    pub term: Terminator,
    /// The part of the script that the end comes from.
    pub span: Span,
}

/// A range of the stack frame, its start a multiple of 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotData {
    /// Bytes.
    pub size: u32,
    /// Bytes from the lowest address of the frame's slots. Slots that are never used at the same time may overlap.
    pub position: u32,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Which it was in the typed tree.
    pub id: FuncId,
    /// Its name.
    pub name: String,
    /// Its name in the script.
    pub span: Span,
    /// The kernel enters it: the only parameter is the context.
    pub is_program: bool,
    /// The names of the parameters. Those that the script does not have begin with `__`.
    pub params: Vec<String>,
    /// The type of the result.
    pub ret: Type,
    /// The types of all values.
    pub values: IndexVec<Value, Type>,
    /// Block 0 is the entry; its parameters are the function's, at most five.
    pub blocks: IndexVec<Block, BlockData>,
    /// Stack slots.
    pub slots: IndexVec<Slot, SlotData>,
    /// Bytes of the frame's slots, a multiple of 8.
    pub slot_bytes: u32,
}

impl Function {
    /// The entry.
    pub fn entry(&self) -> Block {
        use crate::index::Id;
        Block::new(0)
    }

    /// The blocks that can be reached, each before its successors but for jumps back.
    pub fn reverse_postorder(&self) -> Vec<Block> {
        use crate::index::Id;
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::new();
        let mut open = vec![(self.entry(), 0)];
        seen[self.entry().index()] = true;
        while let Some((block, next)) = open.pop() {
            // The last successor is walked first, so that the first one follows its branch in the reversed order.
            let targets = self.blocks[block].term.targets();
            let Some(target) = targets.len().checked_sub(next + 1).map(|index| targets[index].block) else {
                order.push(block);
                continue;
            };
            open.push((block, next + 1));
            if !seen[target.index()] {
                seen[target.index()] = true;
                open.push((target, 0));
            }
        }
        order.reverse();
        order
    }

    /// For each value, the instruction that makes it; `None` for parameters.
    pub fn definitions(&self) -> IndexVec<Value, Option<&Op>> {
        let mut definitions: IndexVec<Value, Option<&Op>> = self.values.iter().map(|_| None).collect();
        for inst in self.blocks.iter().flat_map(|block| &block.insts) {
            if let Some(result) = inst.result {
                definitions[result] = Some(&inst.op);
            }
        }
        definitions
    }
}

/// All functions of an object, helpers before those that call them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The functions.
    pub functions: Vec<Function>,
    /// Bytes of each scratch slot; 0 if all values fit the stack.
    pub scratch_bytes: u32,
    /// How many functions the script has: those with ids from there on are bodies of loops (`pass::outline`).
    pub script_functions: usize,
    /// How many bodies of loops there are.
    pub bodies: usize,
    /// The context's type if it is the same for all programs, and one that a global function may be given.
    pub context: Option<&'static str>,
    /// The programs that tail calls lead to: those of one array are of one kind.
    pub arrays: Vec<Vec<FuncId>>,
}
