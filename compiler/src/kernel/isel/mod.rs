//! Instruction selection: MIR to machine instructions on virtual registers.
//!
//! A machine instruction is one BPF instruction or a fixed short sequence; its operands are virtual registers with the
//! constraints that `regalloc` hands to the allocator, its branches name blocks. Not here: which register, which order of
//! blocks (`emit`).

pub mod legal;
mod patterns;
mod select;
mod uses;

use std::sync::Arc;

use regalloc2::VReg;

pub use select::select;

use super::mir::core::{CoreField, CoreQuestion};
use super::mir::{Count, Kfunc, MapSymbol, Size};
use crate::bpf::{AluOp, JmpOp, Narrow, SwapBits, Width};
use crate::hir::{ExternId, FuncId, GlobalId};
use crate::source::Span;

/// A register or a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rhs {
    /// The register.
    Reg(VReg),
    /// The constant, sign-extended.
    Imm(i32),
    /// The top of the frame.
    Frame,
}

/// What an access starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A pointer.
    Reg(VReg),
    /// The top of the frame.
    Frame,
}

/// An address that the loader fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbol {
    /// A map.
    Map(MapSymbol),
    /// What the object counts.
    Count(Count),
    /// A byte of a global variable.
    Global(GlobalId, u32),
    /// A function that the kernel calls.
    Function(FuncId),
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A kernel helper by number.
    Helper(u32),
    /// A kernel function.
    Kfunc(Kfunc),
    /// A helper or function of the kernel that the script names.
    External(ExternId),
    /// A function of the object.
    Function(FuncId),
}

/// What a machine instruction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstKind {
    /// The function's parameters, in `r1` to `r5`.
    Params(Vec<VReg>),
    /// `dst = value`
    Const { dst: VReg, value: u64 },
    /// `dst = address`
    Address { dst: VReg, symbol: Symbol },
    /// `dst = r10 + offset`
    FrameAddr { dst: VReg, offset: i32 },
    /// `dst = src`, its low bytes extended by their sign (v4).
    Extend { width: Width, from: Narrow, dst: VReg, src: VReg },
    /// `dst = src`; nothing where both are one register.
    Move { dst: VReg, src: VReg },
    /// `dst = src`, the upper half cleared.
    Mov32 { dst: VReg, src: VReg },
    /// `dst = lhs op rhs`
    Alu { op: AluOp, width: Width, dst: VReg, lhs: VReg, rhs: Rhs },
    /// `dst = -src`
    Neg { width: Width, dst: VReg, src: VReg },
    /// `dst = src`, the low bits in big-endian order, zeros above.
    Swap { bits: SwapBits, dst: VReg, src: VReg },
    /// `dst = lhs op rhs ? 1 : 0`
    SetIf { op: JmpOp, width: Width, dst: VReg, lhs: VReg, rhs: Rhs },
    /// `dst = src`, which is below `bound`: nothing at all where the verifier knows that of the register, else a clamp
    /// that never has an effect.
    Below { width: Width, dst: VReg, src: VReg, bound: i32 },
    /// `dst = *(base + offset)`
    Load { size: Size, dst: VReg, base: Base, offset: i16 },
    /// `dst = ` what the loader says of a part of a struct of the kernel
    Core { dst: VReg, field: Arc<CoreField>, question: CoreQuestion },
    /// `dst = *(base + ` the place of a member of the context `)`
    LoadField { size: Size, dst: VReg, base: VReg, field: Arc<CoreField> },
    /// `*(base + offset) = value`
    Store { size: Size, base: Base, offset: i16, value: Rhs },
    /// `lock *(base + offset) += value`
    AtomicAdd { width: Width, base: Base, offset: i16, value: VReg },
    /// `result = target(args)`
    Call { target: Target, args: Vec<VReg>, result: Option<VReg> },
    /// Goes to the block's only successor.
    Jump,
    /// Goes to the block's first successor if the condition holds, else to the second.
    Branch { op: JmpOp, width: Width, lhs: VReg, rhs: Rhs },
    /// Ends the function.
    Return { value: VReg },
}

/// A machine instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inst {
    /// What it does.
    pub kind: InstKind,
    /// The part of the script it comes from.
    pub span: Span,
}

/// A block of machine instructions; the last one is its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// Values that the jumps to it provide.
    pub params: Vec<VReg>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
    /// Where it leads, by position.
    pub successors: Vec<usize>,
    /// For each successor, the arguments for its parameters. A branch passes none.
    pub args: Vec<Vec<VReg>>,
}

/// A function on virtual registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IselFunction {
    /// Which it was in the typed tree.
    pub id: FuncId,
    /// Block 0 is the entry.
    pub blocks: Vec<Block>,
    /// How many virtual registers there are.
    pub registers: usize,
    /// Bytes of the frame's slots, which end at the top of the frame.
    pub slot_bytes: u32,
}

impl IselFunction {
    /// Whether it calls functions of the object.
    pub fn calls_functions(&self) -> bool {
        let mut insts = self.blocks.iter().flat_map(|block| &block.insts);
        insts.any(|inst| matches!(inst.kind, InstKind::Call { target: Target::Function(_), .. }))
    }
}
