//! Instruction selection: MIR to machine instructions on virtual registers.
//!
//! A machine instruction is one BPF instruction or a fixed short sequence. Its operands are virtual registers
//! with the constraints that `regalloc` passes to the allocator; its branches name blocks. Not here: register
//! assignment and block order (`emit`).

pub mod legal;
mod patterns;
mod select;
mod uses;

use std::sync::Arc;

use regalloc2::VReg;

pub use select::select;

use super::mir::core::{CoreField, CoreQuestion};
use super::mir::{Count, Helper, Kfunc, MapSymbol, Size};
use crate::bpf::{AluOp, JmpOp, Narrow, SwapBits, Width};
use crate::hir::{ExternId, FuncId, GlobalId, KernelVariableId};
use crate::source::Span;

/// The second operand of an instruction: a register or a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rhs {
    /// A virtual register of the function.
    Reg(VReg),
    /// A constant, sign-extended to the width of the instruction.
    Imm(i32),
    /// The frame pointer `r10`, which is the top of the frame.
    Frame,
}

/// The base of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A pointer in a virtual register.
    Reg(VReg),
    /// The frame pointer `r10`, which is the top of the frame.
    Frame,
}

/// An address that the loader fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbol {
    /// A map of the script or of the compiler.
    Map(MapSymbol),
    /// A counter, or a constant that the host sets before the load.
    Count(Count),
    /// The byte at this offset of a global variable.
    Global(GlobalId, u32),
    /// The address of a function of the object, which the kernel calls back.
    Function(FuncId),
    /// A variable of the kernel.
    KernelVariable(KernelVariableId),
}

/// The callee of a call instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A kernel helper.
    Helper(Helper),
    /// A kernel function that the compiler itself uses.
    Kfunc(Kfunc),
    /// A helper or function of the kernel that the script names.
    External(ExternId),
    /// A function of this object.
    Function(FuncId),
}

/// The operation of a machine instruction, with its operands.
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
    /// `dst = src`; emits no instruction if both are in one register.
    Move { dst: VReg, src: VReg },
    /// `dst = src`, the upper half cleared.
    Mov32 { dst: VReg, src: VReg },
    /// `dst = lhs op rhs`
    Alu { op: AluOp, width: Width, dst: VReg, lhs: VReg, rhs: Rhs },
    /// `dst = lhs op` the loader's answer about a part of a kernel struct, of 64 bits
    AluCore { op: AluOp, dst: VReg, lhs: VReg, field: Arc<CoreField>, question: CoreQuestion },
    /// `dst = -src`
    Neg { width: Width, dst: VReg, src: VReg },
    /// `dst = src`, the low bits in big-endian order, zero-extended.
    Swap { bits: SwapBits, dst: VReg, src: VReg },
    /// `dst = lhs op rhs ? 1 : 0`
    SetIf { op: JmpOp, width: Width, dst: VReg, lhs: VReg, rhs: Rhs },
    /// `dst = src`, which is below `bound`. Emits no instruction where the verifier knows that of the
    /// register, else a clamp that never takes effect.
    Below { width: Width, dst: VReg, src: VReg, bound: i32 },
    /// `dst = *(base + offset)`
    Load { size: Size, dst: VReg, base: Base, offset: i16 },
    /// `dst = ` the loader's answer about a part of a kernel struct
    Core { dst: VReg, field: Arc<CoreField>, question: CoreQuestion },
    /// `dst = *(base + ` the offset of a context member `)`
    LoadField { size: Size, dst: VReg, base: VReg, field: Arc<CoreField> },
    /// `*(base + offset) = value`
    Store { size: Size, base: Base, offset: i16, value: Rhs },
    /// `lock *(base + offset) += value`
    AtomicAdd { width: Width, base: Base, offset: i16, value: VReg },
    /// `dst = xchg(base + offset, value)`, 8 bytes
    AtomicExchange { dst: VReg, base: Base, offset: i16, value: VReg },
    /// `result = target(args)`
    Call { target: Target, args: Vec<VReg>, result: Option<VReg> },
    /// Jumps to the block's only successor.
    Jump,
    /// Jumps to the block's first successor if the condition holds, else to the second.
    Branch { op: JmpOp, width: Width, lhs: VReg, rhs: Rhs },
    /// Returns `value` from the function.
    Return { value: VReg },
}

/// A machine instruction with its source span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inst {
    /// The operation and its operands.
    pub kind: InstKind,
    /// The source span of the statement or expression that it implements.
    pub span: Span,
}

/// A block of machine instructions; the last one is its terminator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// Block parameters; each jump to the block passes one argument for each.
    pub params: Vec<VReg>,
    /// Instructions in order of execution, the terminator last.
    pub insts: Vec<Inst>,
    /// Successor blocks, by position in [`IselFunction::blocks`].
    pub successors: Vec<usize>,
    /// For each successor, the arguments for its parameters. A branch passes none.
    pub args: Vec<Vec<VReg>>,
}

/// A function on virtual registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IselFunction {
    /// The id of the function in the typed tree.
    pub id: FuncId,
    /// The blocks; block 0 is the entry.
    pub blocks: Vec<Block>,
    /// The number of virtual registers.
    pub registers: usize,
    /// Bytes of the stack slots, which end at the top of the frame.
    pub slot_bytes: u32,
}

impl IselFunction {
    /// The predecessors of each block.
    pub fn predecessors(&self) -> Vec<Vec<usize>> {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for (at, block) in self.blocks.iter().enumerate() {
            block.successors.iter().for_each(|to| predecessors[*to].push(at));
        }
        predecessors
    }

    /// Whether the function calls other functions of the object.
    pub fn calls_functions(&self) -> bool {
        let mut insts = self.blocks.iter().flat_map(|block| &block.insts);
        insts.any(|inst| matches!(inst.kind, InstKind::Call { target: Target::Function(_), .. }))
    }
}
