//! MIR: the kernel half in SSA form, between the typed tree and BPF instructions.
//!
//! - A function is a graph of blocks. Blocks have parameters instead of phis; a jump passes one argument for
//!   each.
//! - A value is 32 or 64 bits or a pointer. The language's types below 32 bits are 32-bit values that are
//!   kept extended by the type's sign ([`Op::Narrow`] after whatever may leave the range), so that
//!   comparisons, divisions and conversions need no care. In a register a 32-bit value is zero-extended, as
//!   BPF's 32-bit instructions leave it: zero-extension to 64 bits costs nothing.
//! - A pointer has an [`Origin`], so that every access can be justified to the kernel's verifier. A check
//!   applies to the value that [`Op::Below`] or [`Op::NonNull`] defines, and to no other.
//! - Aggregates live in stack slots, global variables and map entries; scalars never do, unless they are
//!   shared.
//!
//! Not here: registers, the frame's layout, anything about the language's types.

pub mod builder;
mod callee;
mod cfg;
pub mod compact;
pub mod core;
pub mod dominators;
pub mod flow;
pub mod iterator_loops;
pub mod loop_iterators;
mod loops;
mod op;
pub mod print;
pub mod ssa_repair;
pub mod verify;

pub use self::callee::{Callee, Helper, IterStep, Kfunc, MapIter, Storage, TaskId};
pub use self::loops::{KeptReason, Loops};
pub use self::op::{BinaryOp, Condition, Count, Lost, MapSymbol, Op, Operands};
/// Bytes of a memory access: 1, 2, 4 or 8.
pub use crate::bpf::Size;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::{SmallVec, smallvec};

use crate::hir::{ExternId, FuncId, MapId};
use crate::id_type;
use crate::index::{IndexVec, Lists};
use crate::source::Span;

id_type! {
    /// An SSA value of one function.
    Value,
    /// A basic block of one function.
    Block,
    /// A stack slot of one function.
    Slot,
}

/// The kind of memory that a pointer points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The stack frame of this function or of a caller.
    Stack,
    /// A global variable of the script or of the object.
    Global,
    /// The value of a map entry.
    Entry,
    /// An entry or null: to be tested before use.
    EntryOrNull,
    /// One of the stack, a global variable and an entry: a binding, or a parameter passed by reference.
    Memory,
    /// Memory or null: to be tested before use.
    MemoryOrNull,
    /// A map, as helpers take it.
    Map,
    /// A function of the object, as helpers take it.
    Function,
    /// The program's context: accessed at constant offsets only, each member in its own size.
    Context,
    /// The counter inside an iterator, or null: to be tested before use.
    IterCounterOrNull,
    /// The counter inside an iterator.
    IterCounter,
    /// A byte in or after the packet or its metadata: to be tested by [`Op::Within`] before use.
    Packet,
    /// The end of the packet, which is only compared.
    PacketEnd,
    /// The first of a number of bytes of the packet or its metadata, all of which exist.
    InPacket,
    /// A kernel object that the verifier knows by its type.
    Object,
    /// An object or null: to be tested before use.
    ObjectOrNull,
}

impl Origin {
    /// Whether the pointee can be read and written at any checked offset.
    pub fn is_memory(self) -> bool {
        matches!(self, Origin::Stack | Origin::Global | Origin::Entry | Origin::Memory | Origin::InPacket)
    }

    /// Whether the pointer is into a packet, or marks the end of one.
    pub fn is_of_packet(self) -> bool {
        matches!(self, Origin::Packet | Origin::PacketEnd | Origin::InPacket)
    }

    /// The origin after a null check; `None` if the pointer is never null.
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

/// The number of argument registers. Source: include/uapi/linux/bpf.h, `BPF_REG_1` to `BPF_REG_5`, v6.12.
pub const MAX_ARGS: usize = 5;

/// The MIR type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A 32-bit number, zero-extended in a register.
    I32,
    /// A number of 64 bits.
    I64,
    /// A pointer of 64 bits.
    Ptr(Origin),
}

impl Type {
    /// The width of a number in bits; `None` for a pointer.
    pub fn bits(self) -> Option<u32> {
        match self {
            Type::I32 => Some(32),
            Type::I64 => Some(64),
            Type::Ptr(_) => None,
        }
    }
}

/// An instruction with its result and source span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inst {
    /// The value that it defines, if any.
    pub result: Option<Value>,
    /// The operation and its operands.
    pub op: Op,
    /// The source span of the statement or expression that it implements.
    pub span: Span,
}

/// A jump target: a block and the arguments for its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The block that is jumped to.
    pub block: Block,
    /// One argument for each parameter of the block.
    pub args: Vec<Value>,
}

impl Target {
    /// A target for a block without parameters.
    pub fn to(block: Block) -> Target {
        Target { block, args: Vec::new() }
    }
}

/// The end of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminator {
    /// Jumps to one target.
    Jump(Target),
    /// Jumps to `then` if a 32-bit value is not zero, else to `otherwise`.
    Branch {
        /// The 32-bit value that is tested.
        cond: Value,
        /// The target if `cond` is not zero.
        then: Target,
        /// The target if `cond` is zero.
        otherwise: Target,
    },
    /// Returns the value from the function.
    Return(Value),
}

impl Terminator {
    /// The jump targets, in order.
    pub fn targets(&self) -> SmallVec<[&Target; 2]> {
        match self {
            Terminator::Jump(target) => smallvec![target],
            Terminator::Branch { then, otherwise, .. } => smallvec![then, otherwise],
            Terminator::Return(_) => SmallVec::new(),
        }
    }

    /// The jump targets, in order, mutable.
    pub fn targets_mut(&mut self) -> SmallVec<[&mut Target; 2]> {
        match self {
            Terminator::Jump(target) => smallvec![target],
            Terminator::Branch { then, otherwise, .. } => smallvec![then, otherwise],
            Terminator::Return(_) => SmallVec::new(),
        }
    }

    /// The successor blocks, in order.
    pub fn successors(&self) -> impl Iterator<Item = Block> + use<> {
        let (first, second) = match self {
            Terminator::Jump(target) => (Some(target.block), None),
            Terminator::Branch { then, otherwise, .. } => (Some(then.block), Some(otherwise.block)),
            Terminator::Return(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Replaces each operand by `map` of it.
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

    /// Whether the terminator reads a value.
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

    /// The operands, in order.
    pub fn operands(&self) -> Operands {
        let mut operands = Operands::new();
        self.each_operand(|value| operands.push(value));
        operands
    }

    /// Calls `each` with every operand, in order.
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

/// The contents of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockData {
    /// Block parameters; each jump to the block passes one argument for each.
    pub params: Vec<Value>,
    /// Instructions in order of execution, without the terminator.
    pub insts: Vec<Inst>,
    /// The terminator, which runs after the instructions.
    pub term: Terminator,
    /// The source span of the terminator.
    pub span: Span,
}

/// A range of the stack frame, its start a multiple of 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotData {
    /// The size in bytes.
    pub size: u32,
    /// The offset in bytes from the lowest address of the frame's slots. Slots that are never used at the
    /// same time may overlap.
    pub position: u32,
}

/// The reachable predecessors of each block, once for each edge.
pub type Predecessors = Lists<Block, Block>;

/// Where a function comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionOrigin {
    /// A function of the script.
    Script,
    /// A helper of the script, for pointers of certain kinds (`lower::specialize`).
    Specialization(FuncId),
    /// The function that reads task ids in the host's PID namespace (`pass::task_ids`).
    TaskId,
    /// The body of a loop, or of a large helper, which the verifier checks on its own (`pass::outline_loops`).
    Body,
    /// The body of a loop, which a function of the kernel calls for each iteration (`pass::loop_callbacks`).
    Callback,
}

/// A function in MIR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirFunction {
    /// The id of the function: that in the typed tree, if it is one of the script.
    pub id: FuncId,
    /// Where it comes from.
    pub origin: FunctionOrigin,
    /// The name of the function in listings and in the object.
    pub name: String,
    /// The span of its name in the script.
    pub span: Span,
    /// Whether the kernel enters it: the only parameter is then the context.
    pub is_program: bool,
    /// Whether it runs in a frame other than the first, because another function of the object calls it. The
    /// function of a timer is a program that is called.
    pub is_called: bool,
    /// Whether the verifier must see that the result is 0 or 1, as in cgroup programs.
    pub returns_bool: bool,
    /// Whether what a packet lacks the bytes for follows the test (`verifier::rules::missing_first`).
    pub missing_first: bool,
    /// The struct of its context, if the verifier permits that context as an argument of a global function.
    pub context: Option<&'static str>,
    /// The names of the parameters. Hidden parameters begin with `__`.
    pub params: Vec<String>,
    /// The type of the return value.
    pub ret: Type,
    /// The types of all values.
    pub values: IndexVec<Value, Type>,
    /// Block 0 is the entry; its parameters are the function's, at most [`MAX_ARGS`] from `pass::pack` on.
    pub blocks: IndexVec<Block, BlockData>,
    /// The stack slots by id; passes add further ones.
    pub slots: IndexVec<Slot, SlotData>,
    /// Bytes of the stack slots together, a multiple of 8.
    pub slot_bytes: u32,
}

impl MirFunction {
    /// All instructions, block by block.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        self.blocks.iter().flat_map(|block| &block.insts)
    }

    /// The entry block, which is block 0.
    pub fn entry(&self) -> Block {
        use crate::index::Id;
        Block::new(0)
    }

    /// The reachable blocks in reverse postorder: each before its successors, except for back edges.
    pub fn reverse_postorder(&self) -> Vec<Block> {
        use crate::index::Id;
        let mut seen = vec![false; self.blocks.len()];
        let mut order = Vec::with_capacity(self.blocks.len());
        let mut open = Vec::with_capacity(self.blocks.len());
        seen[self.entry().index()] = true;
        open.push((self.entry(), 0));
        while let Some((block, next)) = open.last_mut() {
            // The last successor is visited first, so that in the reversed order the first one follows its
            // branch.
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

    /// The predecessors of each block, among the blocks of the reverse postorder.
    pub fn predecessors(&self, order: &[Block]) -> Predecessors {
        let mut edges = Vec::with_capacity(2 * order.len());
        for from in order {
            edges.extend(self.blocks[*from].term.successors().map(|to| (to, *from)));
        }
        Lists::new(self.blocks.len(), &edges)
    }

    /// For each value, the operation that defines it; `None` for parameters.
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
    /// The functions, each after those that it calls.
    pub functions: Vec<MirFunction>,
    /// Bytes of each scratch slot; 0 if the stack holds everything.
    pub scratch_bytes: u32,
    /// The result of each program that ends by a fault.
    pub fault_results: BTreeMap<FuncId, u64>,
    /// The id of the next function that a pass adds.
    pub next_id: FuncId,
    /// How the large loops run.
    pub loops: Loops,
    /// The program arrays of tail calls; the programs of one array are of one kind.
    pub arrays: Vec<Vec<FuncId>>,
    /// Helpers named by the script that invalidate packet pointers.
    pub packet_changers: BTreeSet<ExternId>,
    /// Whether some function calls one of them, or pulls the packet into one piece.
    pub changes_packets: bool,
    /// Functions of the kernel that may require stack memory as an argument: all kfuncs, whose requirements
    /// are unknown, and some helpers.
    pub need_stack: BTreeSet<ExternId>,
    /// Functions of the kernel that return a pointer which the verifier tracks.
    pub given_pointers: BTreeSet<ExternId>,
    /// Whether some context has pointers that the verifier tracks.
    pub context_has_pointers: bool,
    /// Which programs sleep.
    pub sleeping: Sleeping,
    /// The bytes of the keys of the script's maps; 0 for local storage.
    pub keys: BTreeMap<MapId, u32>,
}

/// The programs that sleep, and what they may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sleeping {
    /// Those that the kernel would let sleep; after `pass::sleep` those that do.
    pub programs: BTreeSet<FuncId>,
    /// Maps that none of them may use.
    pub not_with_maps: BTreeSet<MapId>,
    /// Functions of the kernel that they may call.
    pub with_externs: BTreeSet<ExternId>,
}

impl Program {
    /// A program of these functions that uses nothing else; passes number further ones from `next_id` on.
    pub fn of(functions: Vec<MirFunction>, next_id: FuncId) -> Program {
        Program {
            functions,
            scratch_bytes: 0,
            fault_results: BTreeMap::new(),
            next_id,
            loops: Loops::default(),
            arrays: Vec::new(),
            packet_changers: BTreeSet::new(),
            changes_packets: false,
            need_stack: BTreeSet::new(),
            given_pointers: BTreeSet::new(),
            context_has_pointers: false,
            sleeping: Sleeping::default(),
            keys: BTreeMap::new(),
        }
    }

    /// Whether a function is an outlined body of a loop or a helper, which the verifier checks on its own.
    pub fn is_body(&self, id: FuncId) -> bool {
        self.functions.iter().any(|one| one.id == id && one.origin == FunctionOrigin::Body)
    }

    /// Marks the next id as used.
    pub fn use_id(&mut self) {
        use crate::index::Id;
        self.next_id = FuncId::new(self.next_id.index() + 1);
    }
}
