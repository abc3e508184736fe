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
mod callee;
pub mod core;
pub mod dominators;
mod loops;
mod op;
pub mod print;
pub mod verify;

pub use self::callee::{Callee, Helper, IterStep, Kfunc, MapIter, Storage};
pub use self::loops::{KeptReason, Loops};
pub use self::op::{BinaryOp, Condition, Count, Lost, MapSymbol, Op, Operands};
/// Bytes of a memory access: 1, 2, 4 or 8.
pub use crate::bpf::Size;
use std::collections::BTreeSet;

use smallvec::{SmallVec, smallvec};

use crate::hir::{ExternId, FuncId};
use crate::id_type;
use crate::index::{IndexVec, Lists};
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
    /// A function, as helpers take it.
    Function,
    /// The program's context: read and written at constant offsets only, each member in its own size.
    Context,
    /// The counter inside an iterator, or null: to be tested before use.
    IterCounterOrNull,
    /// The counter inside an iterator.
    IterCounter,
    /// A byte of the packet or of its metadata, there or not: to be tested by [`Op::Within`] before use.
    Packet,
    /// The end of the packet: only compared.
    PacketEnd,
    /// A byte of the packet or of its metadata with others behind it, all of which are there.
    InPacket,
    /// An object of the kernel that the verifier knows by its type.
    Object,
    /// The same, or null: to be tested before use.
    ObjectOrNull,
}

impl Origin {
    /// Whether memory behind it can be read and written at any offset that was checked.
    pub fn is_memory(self) -> bool {
        matches!(self, Origin::Stack | Origin::Global | Origin::Entry | Origin::Memory | Origin::InPacket)
    }

    /// Whether it lies in a packet, or says where one ends.
    pub fn is_of_packet(self) -> bool {
        matches!(self, Origin::Packet | Origin::PacketEnd | Origin::InPacket)
    }

    /// What it is once it is known not to be null.
    pub fn checked(self) -> Option<Origin> {
        match self {
            Origin::EntryOrNull => Some(Origin::Entry),
            Origin::MemoryOrNull => Some(Origin::Memory),
            Origin::IterCounterOrNull => Some(Origin::IterCounter),
            Origin::ObjectOrNull => Some(Origin::Object),
            _ => None,
        }
    }
}

/// Registers for arguments. Source: include/uapi/linux/bpf.h, `BPF_REG_1` to `BPF_REG_5`, v6.12.
pub const MAX_ARGS: usize = 5;

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
    pub fn targets(&self) -> SmallVec<[&Target; 2]> {
        match self {
            Terminator::Jump(target) => smallvec![target],
            Terminator::Branch { then, otherwise, .. } => smallvec![then, otherwise],
            Terminator::Return(_) => SmallVec::new(),
        }
    }

    /// The targets, in order, to change.
    pub fn targets_mut(&mut self) -> SmallVec<[&mut Target; 2]> {
        match self {
            Terminator::Jump(target) => smallvec![target],
            Terminator::Branch { then, otherwise, .. } => smallvec![then, otherwise],
            Terminator::Return(_) => SmallVec::new(),
        }
    }

    /// Where control goes from here, in order.
    pub fn successors(&self) -> impl Iterator<Item = Block> + use<> {
        let (first, second) = match self {
            Terminator::Jump(target) => (Some(target.block), None),
            Terminator::Branch { then, otherwise, .. } => (Some(then.block), Some(otherwise.block)),
            Terminator::Return(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Replaces the values it reads.
    pub fn map_operands(&mut self, map: &mut impl FnMut(Value) -> Value) {
        match self {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => *value = map(*value),
            Terminator::Jump(_) => {}
        }
        let targets = match self {
            Terminator::Jump(target) => [Some(target), None],
            Terminator::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
            Terminator::Return(_) => [None, None],
        };
        for target in targets.into_iter().flatten() {
            target.args.iter_mut().for_each(|arg| *arg = map(*arg));
        }
    }

    /// Whether it reads a value.
    pub fn reads(&self, wanted: Value) -> bool {
        let itself = match self {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => *value == wanted,
            Terminator::Jump(_) => false,
        };
        itself
            || match self {
                Terminator::Jump(target) => target.args.contains(&wanted),
                Terminator::Branch { then, otherwise, .. } => {
                    then.args.contains(&wanted) || otherwise.args.contains(&wanted)
                }
                Terminator::Return(_) => false,
            }
    }

    /// The values it reads.
    pub fn operands(&self) -> Operands {
        let mut operands = Operands::new();
        self.each_operand(|value| operands.push(value));
        operands
    }

    /// Does something with each value that it reads, in order.
    pub fn each_operand(&self, mut each: impl FnMut(Value)) {
        match self {
            Terminator::Jump(target) => target.args.iter().for_each(|arg| each(*arg)),
            Terminator::Branch { cond, then, otherwise } => {
                each(*cond);
                then.args.iter().chain(&otherwise.args).for_each(|arg| each(*arg));
            }
            Terminator::Return(value) => each(*value),
        }
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

/// For each block, those that lead to it and can be reached themselves, once for each way.
pub type Predecessors = Lists<Block, Block>;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirFunction {
    /// Which it was in the typed tree.
    pub id: FuncId,
    /// Its name.
    pub name: String,
    /// Its name in the script.
    pub span: Span,
    /// The kernel enters it: the only parameter is the context.
    pub is_program: bool,
    /// It runs in a frame that is not the first: another function of the object calls it. What a timer runs is a program
    /// that is called.
    pub is_called: bool,
    /// The verifier must see that the result is 0 or 1: a program on a cgroup.
    pub returns_bool: bool,
    /// The struct behind its context, if it has one that functions may be given which the verifier looks at on their own.
    pub context: Option<&'static str>,
    /// The names of the parameters. Those that the script does not have begin with `__`.
    pub params: Vec<String>,
    /// The type of the result.
    pub ret: Type,
    /// The types of all values.
    pub values: IndexVec<Value, Type>,
    /// Block 0 is the entry; its parameters are the function's, at most [`MAX_ARGS`] from `pass::pack` on.
    pub blocks: IndexVec<Block, BlockData>,
    /// Stack slots.
    pub slots: IndexVec<Slot, SlotData>,
    /// Bytes of the frame's slots, a multiple of 8.
    pub slot_bytes: u32,
}

impl MirFunction {
    /// All instructions, block by block.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        self.blocks.iter().flat_map(|block| &block.insts)
    }

    /// The entry.
    pub fn entry(&self) -> Block {
        use crate::index::Id;
        Block::new(0)
    }

    /// The blocks that can be reached, each before its successors but for jumps back.
    pub fn reverse_postorder(&self) -> Vec<Block> {
        use crate::index::Id;
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::with_capacity(self.blocks.len());
        let mut open = Vec::with_capacity(self.blocks.len());
        seen[self.entry().index()] = true;
        open.push((self.entry(), 0));
        while let Some((block, next)) = open.last_mut() {
            // The last successor is walked first, so that the first one follows its branch in the reversed order.
            let target = match (&self.blocks[*block].term, *next) {
                (Terminator::Jump(target), 0)
                | (Terminator::Branch { otherwise: target, .. }, 0)
                | (Terminator::Branch { then: target, .. }, 1) => target.block,
                _ => {
                    order.push(*block);
                    open.pop();
                    continue;
                }
            };
            *next += 1;
            if !std::mem::replace(&mut seen[target.index()], true) {
                open.push((target, 0));
            }
        }
        order.reverse();
        order
    }

    /// Who leads to each block, of the blocks in the reverse postorder.
    pub fn predecessors(&self, order: &[Block]) -> Predecessors {
        let mut edges = Vec::with_capacity(2 * order.len());
        for from in order {
            edges.extend(self.blocks[*from].term.successors().map(|to| (to, *from)));
        }
        Lists::new(self.blocks.len(), &edges)
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
    pub functions: Vec<MirFunction>,
    /// Bytes of each scratch slot; 0 if all values fit the stack.
    pub scratch_bytes: u32,
    /// How many functions the script has: those with ids from there on are bodies of loops and
    /// of large helpers (`pass::outline`).
    pub script_functions: usize,
    /// How many such bodies there are.
    pub bodies: usize,
    /// How loops run whose turns the verifier does not walk one by one.
    pub loops: Loops,
    /// The programs that tail calls lead to: those of one array are of one kind.
    pub arrays: Vec<Vec<FuncId>>,
    /// Helpers named by the script after which pointers into the packet are void.
    pub packet_changers: BTreeSet<ExternId>,
    /// Some function calls one of them, or brings the packet into one piece.
    pub changes_packets: bool,
    /// Functions of the kernel of which some want memory of the stack: kfuncs, of which only the kernel knows, and helpers.
    pub need_stack: BTreeSet<ExternId>,
    /// Functions of the kernel that return a pointer, which the verifier follows.
    pub given_pointers: BTreeSet<ExternId>,
    /// Some context has pointers that the verifier follows.
    pub context_has_pointers: bool,
}

impl Program {
    /// Whether a function is the body of a loop or of a helper, which the verifier looks at on its own.
    pub fn is_body(&self, id: FuncId) -> bool {
        use crate::index::Id;
        id.index() >= self.script_functions && !self.loops.callbacks.contains(&id)
    }
}
