//! The BPF instruction set: typed instructions, their encoding, decoding and text.
//!
//! ```text
//! code generator -> Assembler (labels) -> Vec<Insn> -> encode -> bytes
//!                                              ^                    |
//!                                   disasm <---+------- decode <----+
//! ```
//!
//! In: instructions with typed operands. Branches name their target instruction, never a distance; maps,
//! global variables, functions and kernel functions are identified by the references that
//! [`crate::object::build::ObjectBuilder`] returns. Out: the eight-byte slots that the kernel loads.
//!
//! The default instruction set is v3 (32-bit arithmetic and jumps, atomics with fetch). The additions of v4
//! (sign-extending moves and loads, signed division, unconditional byte swaps, long jumps) can be
//! represented; the code generator decides whether to use them. Not here: the packet loads of classic BPF,
//! arena address casts, and any rule of the verifier.
//!
//! Sources: include/uapi/linux/bpf.h; Documentation/bpf/standardization/instruction-set.rst (v6.12).

mod asm;
mod decode;
mod disasm;
mod encode;
mod helper;
mod insn;

pub use asm::{Assembler, Label, LabelError};
pub use decode::{DecodeError, decode};
pub use disasm::{Symbol, disasm};
pub use encode::{EncodeError, encode, slot_offsets};
pub use helper::{changes_packet, helper_name, helper_number, needs_stack};
pub use insn::{
    AluOp, AtomicOp, ByteOrder, CallTarget, FunctionRef, GlobalRef, Imm64, Insn, InsnIndex, JmpOp,
    KernelVariableRef, KfuncRef, MapRef, Narrow, Operand, Reg, Size, SwapBits, Width,
};

/// Size in bytes of one instruction slot; `ld_imm64` takes two slots.
///
/// Source: include/uapi/linux/bpf.h, `struct bpf_insn`.
pub const SLOT_BYTES: usize = 8;
