//! Operations of MIR instructions.

use std::sync::Arc;

use smallvec::SmallVec;

use super::core::{CoreField, CoreQuestion};
use super::{Callee, Size, Slot, Value};
use crate::hir::{ConfigId, CounterId, FuncId, GlobalId, KernelVariableId, MapId, RingId};
use crate::source::Span;

/// The operands of an operation, in order. Most calls have at most five.
pub type Operands = SmallVec<[Value; 5]>;

/// A binary operation. Both operands and the result have one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Addition, wrapping at the width.
    Add,
    /// Subtraction, wrapping at the width.
    Sub,
    /// Multiplication, wrapping at the width.
    Mul,
    /// Unsigned division; division by zero returns 0.
    UDiv,
    /// Unsigned remainder; by zero it returns the left operand.
    URem,
    /// Signed division, truncating; the divisor is a constant other than 0 and -1.
    SDiv,
    /// Signed remainder, with the sign of the left operand; the divisor is a constant other than 0 and -1.
    SRem,
    /// Bitwise and of both operands.
    And,
    /// Bitwise or of both operands.
    Or,
    /// Bitwise exclusive or of both operands.
    Xor,
    /// Left shift; the amount is taken modulo the width.
    Shl,
    /// Logical right shift; the amount is taken modulo the width.
    LShr,
    /// Arithmetic right shift; the amount is taken modulo the width.
    AShr,
}

/// A comparison. Names starting with `S` compare as signed; `Lt`, `Le`, `Gt` and `Ge` as unsigned.
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

    /// Whether the operands are compared as signed.
    pub fn is_signed(self) -> bool {
        matches!(self, Condition::SLt | Condition::SLe | Condition::SGt | Condition::SGe)
    }

    /// The equivalent condition with the operands swapped.
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

/// A map, as helpers take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MapSymbol {
    /// A map of the script.
    Map(MapId),
    /// The one-entry map of a config block.
    Config(ConfigId),
    /// A ring buffer of the script.
    Ring(RingId),
    /// The ring buffer of printed lines.
    Prints,
    /// The map of scratch slots.
    Scratch,
    /// The perf event array of a counter.
    Counter(CounterId),
    /// The program array of tail calls whose first program is this one.
    Programs(FuncId),
}

/// A 64-bit variable of the object: a counter, or a constant that the host sets before the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Count {
    /// Runs of a program that ended by a fault.
    Faults(FuncId),
    /// Runs that ended because the loop of this statement reached its limit.
    CutLoop(Span),
    /// Lists of the kernel that the loop of this source range left before their end.
    CutList(Span),
    /// Something that was lost.
    Lost(Lost),
    /// Texts that could not be read.
    Unread,
    /// Numbers that were to be kept as the least or the greatest.
    Unraised,
    /// The PID namespace of the host, which is a constant.
    PidNamespace,
}

/// A loss that a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lost {
    /// A record for which the ring buffer was full.
    Record(RingId),
    /// A value for which the map was full, or a stack that collided with another.
    Update(MapId),
    /// A line of `print` for which the ring buffer was full.
    Print,
}

/// The operation of an instruction, with its operands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant; for a 32-bit type the upper half is zero.
    Const(u64),
    /// Arithmetic on two values of the result's type.
    Binary(BinaryOp, Value, Value),
    /// 1 if the comparison holds, else 0; 32 bits. The operands have one type; pointers are compared with
    /// null by [`Op::IsNull`].
    Compare(Condition, Value, Value),
    /// 1 for a null pointer, else 0; 32 bits.
    IsNull(Value),
    /// Truncates a 32-bit value to 8 or 16 bits and extends it to 32 bits again.
    Narrow {
        /// The value to truncate, of 32 bits.
        value: Value,
        /// The width in bits: 8 or 16.
        bits: u8,
        /// Whether to sign-extend; otherwise the value is zero-extended.
        signed: bool,
    },
    /// Reverses the byte order: of the low 16 bits of a 32-bit value, zero-extended, of all of it, or of a
    /// 64-bit value.
    SwapBytes {
        /// The value, of 32 bits for the widths 16 and 32.
        value: Value,
        /// The width in bits: 16, 32 or 64.
        bits: u8,
    },
    /// Sign-extends 32 bits to 64.
    SignExtend(Value),
    /// Zero-extends 32 bits to 64.
    ZeroExtend(Value),
    /// Truncates 64 bits to 32.
    Truncate(Value),
    /// `value`, which is below `bound` (unsigned) because the block is only reached if it is. The selected
    /// instructions keep the bound visible to the verifier, whatever registers are assigned.
    Below {
        /// The number that was compared.
        value: Value,
        /// The exclusive upper bound.
        bound: u64,
    },
    /// The pointer, which is not null because the block is only reached if it is not.
    NonNull(Value),
    /// 1 if the `bytes` bytes at a packet pointer end before `end`, else 0; 32 bits. A branch on it proves
    /// this to the verifier for every pointer derived from the same sum.
    Within {
        /// A pointer into the packet or its metadata.
        pointer: Value,
        /// The number of bytes.
        bytes: u32,
        /// The end of the packet; for a metadata pointer, the start of the packet.
        end: Value,
    },
    /// The packet pointer, at which `bytes` bytes exist because the block is only reached if they do.
    InPacket {
        /// The pointer that [`Op::Within`] tested.
        pointer: Value,
        /// The number of bytes that exist.
        bytes: u32,
    },
    /// The start or end of the packet, or the start of its metadata: 4 bytes of the context, which the kernel
    /// replaces by a load of the pointer. The pointer stays the same until a call moves or truncates the
    /// packet.
    PacketEdge {
        /// The program's context pointer.
        context: Value,
        /// The member's offset in bytes.
        offset: i16,
        /// The generation of packet pointers, which `pass::packet_generations` numbers: it differs before and
        /// after such a call.
        generation: u32,
    },
    /// `value`, hidden from the verifier. `zero` is the result of `bpf_iter_num_new` or the upper half of a
    /// callback's index: always 0, but unknown to the verifier. Otherwise a number that a loop changes would
    /// be a new constant in each iteration, and the verifier would follow all iterations.
    Opaque {
        /// The number to hide.
        value: Value,
        /// The unknown zero, of the same type.
        zero: Value,
    },
    /// The address of a byte of a stack slot.
    StackAddr {
        /// The stack slot of this function.
        slot: Slot,
        /// The offset in bytes from the slot's start.
        offset: u32,
    },
    /// The address of a byte of a global variable.
    GlobalAddr {
        /// The global variable that is addressed.
        global: GlobalId,
        /// The offset in bytes from the variable's start.
        offset: u32,
    },
    /// The address of a map.
    MapAddr(MapSymbol),
    /// The address of a function of the object, which the kernel calls back.
    FunctionAddr(FuncId),
    /// The address of a 64-bit variable of the object, such as a counter.
    CountAddr(Count),
    /// The address of a variable of the kernel: a number of 64 bits.
    KernelAddr(KernelVariableId),
    /// The difference in bytes of two pointers into memory, first minus second: 64 bits.
    PtrDiff(Value, Value),
    /// The loader's answer about a part of a kernel struct: 64 bits, below 2^31.
    Core(Arc<CoreField>, CoreQuestion),
    /// A pointer as a 64-bit number, which the verifier no longer tracks. The operand may also be a number,
    /// which the verifier may take for a kernel pointer; the result is the same number.
    Address(Value),
    /// Loads a member of the context or of a kernel object at its offset in the running kernel,
    /// zero-extended.
    LoadField {
        /// The size in bytes; 8 exactly if the result has 64 bits or points to an object.
        size: Size,
        /// The context pointer or the object pointer.
        base: Value,
        /// The member that is loaded.
        field: Arc<CoreField>,
    },
    /// A pointer plus a 64-bit offset in bytes that was checked.
    PtrAdd(Value, Value),
    /// Loads from memory, zero-extended.
    Load {
        /// The size in bytes; 8 exactly if the result has 64 bits or is a pointer.
        size: Size,
        /// The address to which `offset` is added.
        base: Value,
        /// The offset in bytes from the base.
        offset: i16,
    },
    /// Stores the low bytes of a value.
    Store {
        /// The size in bytes; 8 exactly if the value has 64 bits or is a pointer.
        size: Size,
        /// The address to which `offset` is added.
        base: Value,
        /// The offset in bytes from the base.
        offset: i16,
        /// The value that is stored.
        value: Value,
    },
    /// Atomically adds to 4 or 8 bytes of memory.
    AtomicAdd {
        /// The size: `W` for a 32-bit value, `DW` for 64 bits.
        size: Size,
        /// The address to which `offset` is added.
        base: Value,
        /// The offset in bytes from the base.
        offset: i16,
        /// The value that is added.
        value: Value,
    },
    /// Atomically replaces 8 bytes of memory. The result is what was there.
    AtomicExchange {
        /// The address to which `offset` is added.
        base: Value,
        /// The offset in bytes from the base.
        offset: i16,
        /// The value that is stored.
        value: Value,
    },
    /// A call with at most [`MAX_ARGS`](super::MAX_ARGS) arguments; calls of functions may have more until
    /// `pass::pack`.
    Call {
        /// The function that is called.
        callee: Callee,
        /// The arguments, in order.
        args: Vec<Value>,
    },
}

/// Evaluates an expression for each operand of an operation, in order, by shared or mutable reference like
/// the operation itself.
macro_rules! for_each_operand {
    ($op:expr, |$value:ident| $each:expr) => {
        match $op {
            Op::Const(_)
            | Op::StackAddr { .. }
            | Op::GlobalAddr { .. }
            | Op::MapAddr(_)
            | Op::FunctionAddr(_)
            | Op::CountAddr(_)
            | Op::KernelAddr(_)
            | Op::Core(..) => {}
            Op::IsNull($value)
            | Op::Narrow { value: $value, .. }
            | Op::SwapBytes { value: $value, .. }
            | Op::SignExtend($value)
            | Op::ZeroExtend($value)
            | Op::Truncate($value)
            | Op::Below { value: $value, .. }
            | Op::NonNull($value)
            | Op::Address($value)
            | Op::InPacket { pointer: $value, .. }
            | Op::PacketEdge { context: $value, .. }
            | Op::LoadField { base: $value, .. }
            | Op::Load { base: $value, .. } => $each,
            Op::Binary(_, a, b)
            | Op::Compare(_, a, b)
            | Op::PtrAdd(a, b)
            | Op::PtrDiff(a, b)
            | Op::Opaque { value: a, zero: b }
            | Op::Within { pointer: a, end: b, .. }
            | Op::Store { base: a, value: b, .. }
            | Op::AtomicAdd { base: a, value: b, .. }
            | Op::AtomicExchange { base: a, value: b, .. } => {
                for $value in [a, b] {
                    $each
                }
            }
            Op::Call { args, .. } => {
                for $value in args {
                    $each
                }
            }
        }
    };
}

impl Op {
    /// Whether the operation may be removed if its result is unused.
    pub fn is_pure(&self) -> bool {
        match self {
            Op::Store { .. } | Op::AtomicAdd { .. } | Op::AtomicExchange { .. } => false,
            Op::Call { callee: Callee::Helper(helper), .. } => !helper.has_effects(),
            Op::Call { callee, .. } => matches!(callee, Callee::TaskId(_)),
            _ => true,
        }
    }

    /// Whether the result is 0 or 1, and is best computed right before the branch that tests it.
    pub fn is_test(&self) -> bool {
        matches!(self, Op::Compare(..) | Op::IsNull(_) | Op::Within { .. })
    }

    /// Whether instruction selection rematerialises the value at its uses.
    pub fn is_leaf(&self) -> bool {
        matches!(
            self,
            Op::Const(_)
                | Op::StackAddr { .. }
                | Op::GlobalAddr { .. }
                | Op::MapAddr(_)
                | Op::FunctionAddr(_)
                | Op::CountAddr(_)
                | Op::KernelAddr(_)
        )
    }

    /// Whether the verifier knows the value: the object has it, or the loader writes it there. From memory it would be
    /// any number.
    pub fn is_known_at_load(&self) -> bool {
        self.is_leaf() || matches!(self, Op::Core(..))
    }

    /// The operands, in order.
    pub fn operands(&self) -> Operands {
        let mut found = Operands::new();
        for_each_operand!(self, |value| found.push(*value));
        found
    }

    /// Calls `each` with every operand, in order.
    pub fn each_operand(&self, mut each: impl FnMut(Value)) {
        for_each_operand!(self, |value| each(*value));
    }

    /// Whether the operation reads a value.
    pub fn reads(&self, wanted: Value) -> bool {
        let mut found = false;
        for_each_operand!(self, |value| found |= *value == wanted);
        found
    }

    /// Replaces each operand by `map` of it.
    pub fn map_operands(&mut self, map: &mut impl FnMut(Value) -> Value) {
        for_each_operand!(self, |value| *value = map(*value));
    }
}
