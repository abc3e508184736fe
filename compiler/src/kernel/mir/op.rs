//! What an instruction of the MIR computes.

use std::sync::Arc;

use smallvec::SmallVec;

use super::core::{CoreField, CoreQuestion};
use super::{Callee, Size, Slot, Value};
use crate::hir::{ConfigId, CounterId, FuncId, GlobalId, MapId, RingId};
use crate::source::Span;

/// Values that an operation reads, in order: most calls have at most five.
pub type Operands = SmallVec<[Value; 5]>;

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

/// A map, as helpers take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MapSymbol {
    /// A map of the script.
    Map(MapId),
    /// The map of a config block.
    Config(ConfigId),
    /// A ring buffer.
    Ring(RingId),
    /// The ring buffer of printed lines.
    Prints,
    /// The scratch slots.
    Scratch,
    /// The array of events of a counter.
    Counter(CounterId),
    /// The array of programs that tail calls lead to in which this one comes first.
    Programs(FuncId),
}

/// What the object counts, a 64-bit variable each, and what the host tells it before the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Count {
    /// Runs of a program that ended by a fault.
    Faults(FuncId),
    /// Runs that ended because the loop of this statement reached its limit.
    CutLoop(Span),
    /// Something that was lost.
    Lost(Lost),
    /// The PID namespace of the host, which is a constant.
    PidNamespace,
}

/// What a run may lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lost {
    /// A record that the ring buffer had no room for.
    Record(RingId),
    /// A value that the map had no room for, or a stack that collided with another.
    Update(MapId),
    /// A line of `print`.
    Print,
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
    /// load of the pointer. It is the same until a call moves or cuts the packet.
    PacketEdge {
        /// The context.
        context: Value,
        /// The member's place.
        offset: i16,
        /// Which packet it is of: `pass::packet_generations` tells those before and after such a call apart.
        generation: u32,
    },
    /// `value`, about which the verifier knows nothing any more: `zero` is the result of `bpf_iter_num_new` or the upper
    /// half of a callback's index, 0 in fact and anything to the verifier. A number that a loop changes would otherwise be
    /// a new constant in each iteration, and the verifier would walk through all iterations.
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
    MapAddr(MapSymbol),
    /// A function of the object that the kernel calls.
    FunctionAddr(FuncId),
    /// 8 bytes of a global variable that the object counts in.
    CountAddr(Count),
    /// How many bytes the first of two pointers into memory lies behind the second: 64 bits.
    PtrDiff(Value, Value),
    /// What the loader says of a part of a struct of the kernel: 64 bits, below 2^31.
    Core(Arc<CoreField>, CoreQuestion),
    /// The number that a pointer is, 64 bits: the verifier does not follow it any more. Of a number, which may be a pointer of
    /// the kernel to the verifier, the number itself.
    Address(Value),
    /// Reads a member of the context or of an object of the kernel where the kernel that runs has it, extended by
    /// zeros.
    LoadField {
        /// Bytes; 8 exactly if the result has 64 bits or points to an object.
        size: Size,
        /// The context, or the object.
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
    /// A call with at most [`MAX_ARGS`](super::MAX_ARGS) arguments, or more for a function, until `pass::pack`.
    Call {
        /// What.
        callee: Callee,
        /// With.
        args: Vec<Value>,
    },
}

/// Does something with each value that an operation reads, in order; a reference to it is as that to the operation.
macro_rules! for_each_operand {
    ($op:expr, |$value:ident| $each:expr) => {
        match $op {
            Op::Const(_)
            | Op::StackAddr { .. }
            | Op::GlobalAddr { .. }
            | Op::MapAddr(_)
            | Op::FunctionAddr(_)
            | Op::CountAddr(_)
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
            | Op::AtomicAdd { base: a, value: b, .. } => {
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

    /// Whether it is made where it is used, wherever it stands.
    pub fn is_leaf(&self) -> bool {
        matches!(
            self,
            Op::Const(_)
                | Op::StackAddr { .. }
                | Op::GlobalAddr { .. }
                | Op::MapAddr(_)
                | Op::FunctionAddr(_)
                | Op::CountAddr(_)
        )
    }

    /// The values it reads.
    pub fn operands(&self) -> Operands {
        let mut found = Operands::new();
        for_each_operand!(self, |value| found.push(*value));
        found
    }

    /// Does something with each value that it reads, in order.
    pub fn each_operand(&self, mut each: impl FnMut(Value)) {
        for_each_operand!(self, |value| each(*value));
    }

    /// Whether it reads a value.
    pub fn reads(&self, wanted: Value) -> bool {
        let mut found = false;
        for_each_operand!(self, |value| found |= *value == wanted);
        found
    }

    /// Replaces the values it reads.
    pub fn map_operands(&mut self, map: &mut impl FnMut(Value) -> Value) {
        for_each_operand!(self, |value| *value = map(*value));
    }
}
