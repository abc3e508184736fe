//! Emits machine instructions with allocated registers as BPF, with branches resolved and source spans
//! attached.

mod dead_slots;
mod known_bounds;

use std::collections::BTreeSet;

use super::isel::legal::is_below;
use super::isel::{Base, Inst, InstKind, IselFunction, Rhs, Symbol, Target};
use super::machine::Cpu;
use super::mir::Size;
use super::mir::core::{CoreField, CoreQuestion};
use super::regalloc::{Move, Registers, ValueLocation};
use crate::bpf::{
    AluOp, Assembler, AtomicOp, ByteOrder, CallTarget, Imm64, Insn, InsnIndex, JmpOp, Label, LabelError,
    Operand, Reg, Width,
};
use crate::defect::narrow;
use crate::object::btf::CoreRelo;
use crate::source::Span;

/// Resolves the symbols of this back end to references of the object.
pub trait Symbols {
    /// The reference to a map or to a byte of a global variable.
    fn address(&mut self, symbol: Symbol) -> Imm64;
    /// The reference to a callee.
    fn callee(&mut self, target: Target) -> CallTarget;
    /// The answer of the object's own types about a part of a kernel struct, and the CO-RE relocation by
    /// which the loader corrects the instruction.
    fn core(&mut self, at: InsnIndex, field: &CoreField, question: CoreQuestion) -> (i32, CoreRelo);
}

/// The BPF instructions of one function, with the source spans and relocations for the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCode {
    /// BPF instructions, branches resolved; an `InsnIndex` counts from the first.
    pub insns: Vec<Insn>,
    /// The source span that starts at each instruction: ascending, the first at instruction 0.
    pub spans: Vec<(InsnIndex, Span)>,
    /// CO-RE relocations, ascending by instruction.
    pub relos: Vec<CoreRelo>,
    /// Bytes of the stack frame: stack slots and spilled registers.
    pub frame_bytes: u32,
}

/// Emits a function. `span` covers the instructions before the first statement.
///
/// # Errors
/// Reports a branch without a target, which is a bug of this compiler.
pub fn emit(
    function: &IselFunction,
    registers: &Registers,
    cpu: Cpu,
    span: Span,
    symbols: &mut dyn Symbols,
) -> Result<MachineCode, LabelError> {
    let mut asm = Assembler::new();
    let labels = function.blocks.iter().map(|_| asm.label()).collect();
    let first_inst = first_insts(function);
    let mut emitter = Emitter {
        function,
        registers,
        cpu,
        symbols,
        asm,
        labels,
        spans: vec![(InsnIndex(0), span)],
        relos: Vec::new(),
        needless: known_bounds::needless(function, registers, &first_inst),
        dead_slots: dead_slots::cleared(function, registers, &first_inst),
        first_inst,
    };
    let spill_bytes = 8 * registers.spill_slots as u32;
    let frame_bytes = function.slot_bytes.saturating_add(spill_bytes);
    if function.calls_functions() {
        emitter.touch_frame(frame_bytes);
    }
    let order = emitter.layout();
    for (at, block) in order.iter().enumerate() {
        emitter.block(*block, order.get(at + 1).copied());
    }
    Ok(MachineCode { insns: emitter.asm.finish()?, spans: emitter.spans, relos: emitter.relos, frame_bytes })
}

fn first_insts(function: &IselFunction) -> Vec<usize> {
    let mut next = 0;
    let starts = function.blocks.iter().map(|block| {
        next += block.insts.len();
        next - block.insts.len()
    });
    starts.collect()
}

struct Emitter<'a> {
    function: &'a IselFunction,
    registers: &'a Registers,
    cpu: Cpu,
    symbols: &'a mut dyn Symbols,
    asm: Assembler,
    labels: Vec<Label>,
    spans: Vec<(InsnIndex, Span)>,
    relos: Vec<CoreRelo>,
    /// The number of the first instruction of each block.
    first_inst: Vec<usize>,
    /// The numbers of the bounds that the verifier already knows, ascending.
    needless: Vec<usize>,
    /// The spill slots that each block clears first.
    dead_slots: Vec<BTreeSet<usize>>,
}

impl Emitter<'_> {
    /// Writes to the end of the frame. If two paths meet in a called function and only one of them has used
    /// the caller's frame that far, Linux 6.18 rejects the program with "verifier bug: stack slot 5, total
    /// slots 0".
    fn touch_frame(&mut self, bytes: u32) {
        if let Ok(end @ 1..) = i16::try_from(bytes) {
            self.push(Insn::store(Size::DW, Reg::R10, -end, 0));
        }
    }

    /// The emission order of blocks: the order of the function without blocks that only jump elsewhere.
    fn layout(&self) -> Vec<usize> {
        let blocks = 0..self.function.blocks.len();
        blocks.filter(|block| *block == 0 || self.forward(*block) == *block).collect()
    }

    /// The block where a jump to `block` ends after following blocks that only jump.
    fn forward(&self, mut block: usize) -> usize {
        for _ in 0..self.function.blocks.len() {
            let data = &self.function.blocks[block];
            let moves =
                |at: usize| !self.registers.before[at].is_empty() || !self.registers.after[at].is_empty();
            match (data.insts.as_slice(), data.successors.as_slice()) {
                ([Inst { kind: InstKind::Jump, .. }], [next]) if !moves(self.first_inst[block]) => {
                    block = *next
                }
                _ => break,
            }
        }
        block
    }

    fn block(&mut self, block: usize, next: Option<usize>) {
        self.asm.bind(self.labels[block]);
        let (function, registers) = (self.function, self.registers);
        self.clear_dead_slots(block);
        for (at, inst) in function.blocks[block].insts.iter().enumerate() {
            let number = self.first_inst[block] + at;
            self.line(inst.span);
            self.moves(&registers.before[number]);
            self.inst(&inst.kind, number, block, next);
            self.moves(&registers.after[number]);
        }
    }

    fn clear_dead_slots(&mut self, block: usize) {
        for slot in std::mem::take(&mut self.dead_slots[block]) {
            let offset = self.spill_offset(slot);
            self.push(Insn::store(Size::DW, Reg::R10, offset, 0));
        }
    }

    fn line(&mut self, span: Span) {
        let at = self.asm.next_index();
        match self.spans.last_mut() {
            Some((_, last)) if *last == span => {}
            Some((index, last)) if *index == at && at != InsnIndex(0) => *last = span,
            _ if at == InsnIndex(0) => {}
            _ => self.spans.push((at, span)),
        }
    }

    fn push(&mut self, insn: Insn) {
        self.asm.push(insn);
    }

    fn spill_offset(&self, slot: usize) -> i16 {
        let offset = i64::from(self.function.slot_bytes) + 8 * (slot as i64 + 1);
        i16::try_from(-offset).unwrap_or(i16::MIN)
    }

    fn moves(&mut self, moves: &[Move]) {
        for moved in moves {
            match (moved.to, moved.from) {
                (ValueLocation::Reg(to), ValueLocation::Reg(from)) => self.push(Insn::mov(to, from)),
                (ValueLocation::Reg(to), ValueLocation::Spill(slot)) => {
                    let offset = self.spill_offset(slot);
                    self.push(Insn::load(Size::DW, to, Reg::R10, offset));
                }
                (ValueLocation::Spill(slot), ValueLocation::Reg(from)) => {
                    let offset = self.spill_offset(slot);
                    self.push(Insn::store(Size::DW, Reg::R10, offset, from));
                }
                (ValueLocation::Spill(_), ValueLocation::Spill(_)) => {
                    unreachable!("the allocator moves through a register")
                }
            }
        }
    }

    fn inst(&mut self, kind: &InstKind, number: usize, block: usize, next: Option<usize>) {
        let registers = self.registers;
        let mut regs = Operands { regs: &registers.operands[number], next: 0 };
        match kind {
            InstKind::Params(_) => {}
            InstKind::Const { value, .. } => self.constant(regs.reg(), *value),
            InstKind::Address { symbol, .. } => {
                let value = self.symbols.address(*symbol);
                let dst = regs.reg();
                self.push(Insn::load_imm64(dst, value));
            }
            InstKind::FrameAddr { offset, .. } => {
                let dst = regs.reg();
                self.push(Insn::mov(dst, Reg::R10));
                if *offset != 0 {
                    self.push(Insn::alu(AluOp::Add, dst, *offset));
                }
            }
            InstKind::Move { .. } => {
                let (from, to) = (regs.reg(), regs.reg());
                if from != to {
                    self.push(Insn::mov(to, from));
                }
            }
            InstKind::Mov32 { .. } => {
                let (src, dst) = (regs.reg(), regs.reg());
                self.push(Insn::mov32(dst, src));
            }
            InstKind::Extend { width, from, .. } => {
                let (src, dst) = (regs.reg(), regs.reg());
                self.push(Insn::MovSx { width: *width, from: *from, dst, src });
            }
            InstKind::Alu { op, width, rhs, .. } => {
                let (_, dst) = (regs.reg(), regs.reg());
                let src = regs.rhs(rhs);
                self.push(Insn::Alu { op: *op, width: *width, dst, src });
            }
            InstKind::AluCore { op, field, question, .. } => {
                let (_, dst) = (regs.reg(), regs.reg());
                let at = self.asm.next_index();
                let (value, relo) = self.symbols.core(at, field, *question);
                self.relos.push(relo);
                self.push(Insn::alu(*op, dst, value));
            }
            InstKind::Neg { width, .. } => {
                let (_, dst) = (regs.reg(), regs.reg());
                self.push(Insn::Neg { width: *width, dst });
            }
            InstKind::SetIf { op, width, rhs, .. } => {
                let (lhs, dst) = (regs.reg(), regs.reg());
                let src = regs.rhs(rhs);
                self.set_if(*op, *width, lhs, src, dst);
            }
            InstKind::Below { width, bound, .. } => {
                let (_, dst) = (regs.reg(), regs.reg());
                if self.needless.binary_search(&number).is_err() {
                    self.below(*width, dst, *bound);
                }
            }
            InstKind::Swap { bits, .. } => {
                let (_, dst) = (regs.reg(), regs.reg());
                self.push(Insn::Endian { order: ByteOrder::Big, bits: *bits, dst });
            }
            InstKind::Core { field, question, .. } => {
                let dst = regs.reg();
                let at = self.asm.next_index();
                let (value, relo) = self.symbols.core(at, field, *question);
                self.relos.push(relo);
                self.push(Insn::mov(dst, value));
            }
            InstKind::LoadField { size, field, .. } => {
                let (dst, base) = (regs.reg(), regs.reg());
                let at = self.asm.next_index();
                let (offset, relo) = self.symbols.core(at, field, CoreQuestion::Offset);
                self.relos.push(relo);
                self.push(Insn::load(*size, dst, base, narrow(offset)));
            }
            InstKind::Load { size, base, offset, .. } => {
                let dst = regs.reg();
                let base = regs.base(base);
                self.push(Insn::load(*size, dst, base, *offset));
            }
            InstKind::Store { size, base, offset, value } => {
                let src = regs.rhs(value);
                let base = regs.base(base);
                self.push(Insn::Store { size: *size, base, offset: *offset, src });
            }
            InstKind::AtomicAdd { width, base, offset, .. } => {
                let src = regs.reg();
                let base = regs.base(base);
                self.push(Insn::atomic(AtomicOp::Add, *width, base, *offset, src));
            }
            InstKind::AtomicExchange { base, offset, .. } => {
                // The value that is stored and the one that was there share a register.
                let (_, src) = (regs.reg(), regs.reg());
                let base = regs.base(base);
                self.push(Insn::atomic(AtomicOp::Xchg, Width::W64, base, *offset, src));
            }
            InstKind::Call { target, .. } => {
                let target = self.symbols.callee(*target);
                self.push(Insn::Call { target });
            }
            InstKind::Jump => self.jump(self.function.blocks[block].successors[0], next),
            InstKind::Branch { op, width, rhs, .. } => {
                let lhs = regs.reg();
                let src = regs.rhs(rhs);
                self.branch(*op, *width, lhs, src, block, next);
            }
            InstKind::Return { .. } => self.push(Insn::Exit),
        }
    }

    fn constant(&mut self, dst: Reg, value: u64) {
        match (i32::try_from(value as i64), u32::try_from(value)) {
            (Ok(immediate), _) => self.push(Insn::mov(dst, immediate)),
            (Err(_), Ok(low)) if self.cpu.has_32_bits() => self.push(Insn::mov32(dst, low as i32)),
            _ => self.push(Insn::load_imm64(dst, Imm64::Value(value))),
        }
    }

    /// Whether the instruction set lacks this comparison in a branch.
    fn lacks(&self, op: JmpOp) -> bool {
        self.cpu < Cpu::V2 && is_below(op)
    }

    fn set_if(&mut self, op: JmpOp, width: Width, lhs: Reg, src: Operand, dst: Reg) {
        let done = self.asm.label();
        self.push(Insn::mov(dst, 1));
        self.asm.jump_if(op, width, lhs, src, done);
        self.push(Insn::mov(dst, 0));
        self.asm.bind(done);
    }

    fn below(&mut self, width: Width, reg: Reg, bound: i32) {
        let done = self.asm.label();
        if self.lacks(JmpOp::Lt) {
            let above = self.asm.label();
            self.asm.jump_if(JmpOp::Ge, width, reg, bound, above);
            self.asm.jump(done);
            self.asm.bind(above);
        } else {
            self.asm.jump_if(JmpOp::Lt, width, reg, bound, done);
        }
        self.push(Insn::mov(reg, 0));
        self.asm.bind(done);
    }

    fn jump(&mut self, to: usize, next: Option<usize>) {
        let to = self.forward(to);
        if next != Some(to) {
            self.asm.jump(self.labels[to]);
        }
    }

    fn branch(&mut self, op: JmpOp, width: Width, lhs: Reg, src: Operand, block: usize, next: Option<usize>) {
        let successors = &self.function.blocks[block].successors;
        let (then, otherwise) = (self.forward(successors[0]), self.forward(successors[1]));
        match negated(op) {
            Some(op) if next == Some(then) && !self.lacks(op) => {
                self.asm.jump_if(op, width, lhs, src, self.labels[otherwise]);
            }
            _ => {
                self.asm.jump_if(op, width, lhs, src, self.labels[then]);
                self.jump(otherwise, next);
            }
        }
    }
}

/// The registers of an instruction, taken in the order of `regalloc::operands`.
struct Operands<'a> {
    regs: &'a [Reg],
    next: usize,
}

impl Operands<'_> {
    fn reg(&mut self) -> Reg {
        self.next += 1;
        self.regs[self.next - 1]
    }

    fn rhs(&mut self, rhs: &Rhs) -> Operand {
        match rhs {
            Rhs::Reg(_) => Operand::Reg(self.reg()),
            Rhs::Imm(immediate) => Operand::Imm(*immediate),
            Rhs::Frame => Operand::Reg(Reg::R10),
        }
    }

    fn base(&mut self, base: &Base) -> Reg {
        match base {
            Base::Reg(_) => self.reg(),
            Base::Frame => Reg::R10,
        }
    }
}

fn negated(op: JmpOp) -> Option<JmpOp> {
    Some(match op {
        JmpOp::Eq => JmpOp::Ne,
        JmpOp::Ne => JmpOp::Eq,
        JmpOp::Gt => JmpOp::Le,
        JmpOp::Ge => JmpOp::Lt,
        JmpOp::Lt => JmpOp::Ge,
        JmpOp::Le => JmpOp::Gt,
        JmpOp::Sgt => JmpOp::Sle,
        JmpOp::Sge => JmpOp::Slt,
        JmpOp::Slt => JmpOp::Sge,
        JmpOp::Sle => JmpOp::Sgt,
        JmpOp::Set => return None,
    })
}
