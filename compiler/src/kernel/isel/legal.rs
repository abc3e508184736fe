//! Expands instructions that older instruction sets lack.
//!
//! Without 32-bit arithmetic (v1, v2) every 32-bit value is kept zero-extended, and a result that may leave
//! the range is cut again by two shifts; signed operations sign-extend their operands first. Without `<` and
//! `<=` (v1) the operands or the targets of a branch are swapped.

use regalloc2::{RegClass, VReg};

use super::{Block, Inst, InstKind, IselFunction, Rhs};
use crate::bpf::{AluOp, JmpOp, Width};
use crate::kernel::machine::Cpu;
use crate::source::Span;

/// Rewrites a function so that it contains only instructions of the instruction set.
pub fn legalize(function: &mut IselFunction, cpu: Cpu) {
    if cpu.has_32_bits() {
        return;
    }
    for block in &mut function.blocks {
        let insts = std::mem::take(&mut block.insts);
        let mut legal = Legal { block, cpu, registers: &mut function.registers, span: function_span(&insts) };
        for inst in insts {
            legal.span = inst.span;
            legal.inst(inst.kind);
        }
    }
}

/// An initial span for the function; each instruction then sets its own.
fn function_span(insts: &[Inst]) -> Span {
    insts.first().expect("a block has an end").span
}

struct Legal<'a> {
    block: &'a mut Block,
    cpu: Cpu,
    registers: &'a mut usize,
    span: Span,
}

const WIDE: Width = Width::W64;

impl Legal<'_> {
    fn push(&mut self, kind: InstKind) {
        self.block.insts.push(Inst { kind, span: self.span });
    }

    fn fresh(&mut self) -> VReg {
        *self.registers += 1;
        VReg::new(*self.registers - 1, RegClass::Int)
    }

    fn inst(&mut self, kind: InstKind) {
        match kind {
            InstKind::Alu { op, width: Width::W32, dst, lhs, rhs } => self.alu(op, dst, lhs, rhs),
            InstKind::Neg { width: Width::W32, dst, src } => {
                let wide = self.fresh();
                self.push(InstKind::Neg { width: WIDE, dst: wide, src });
                self.cut(dst, wide);
            }
            InstKind::Mov32 { dst, src } => self.cut(dst, src),
            InstKind::SetIf { op, width, dst, lhs, rhs } => {
                let (op, lhs, rhs) = self.compared(op, width, lhs, rhs);
                let (op, lhs, rhs) = match self.exchanged(op, lhs, rhs) {
                    Exchange::Operands(op, lhs, rhs) => (op, lhs, rhs),
                    Exchange::Targets(_) => {
                        let right = self.constant(rhs);
                        (swapped(op), right, Rhs::Reg(lhs))
                    }
                };
                self.push(InstKind::SetIf { op, width: WIDE, dst, lhs, rhs });
            }
            InstKind::Below { dst, src, bound, .. } => {
                self.push(InstKind::Below { width: WIDE, dst, src, bound })
            }
            InstKind::Branch { op, width, lhs, rhs } => {
                let (op, lhs, rhs) = self.compared(op, width, lhs, rhs);
                let (op, lhs, rhs) = match self.exchanged(op, lhs, rhs) {
                    Exchange::Operands(op, lhs, rhs) => (op, lhs, rhs),
                    Exchange::Targets(op) => {
                        self.block.successors.swap(0, 1);
                        self.block.args.swap(0, 1);
                        (op, lhs, rhs)
                    }
                };
                self.push(InstKind::Branch { op, width: WIDE, lhs, rhs });
            }
            other => self.push(other),
        }
    }

    fn alu(&mut self, op: AluOp, dst: VReg, lhs: VReg, rhs: Rhs) {
        let lhs = if op == AluOp::Arsh { self.extended(lhs) } else { lhs };
        let rhs = match (op, rhs) {
            // A 32-bit shift uses the low 5 bits of its amount only.
            (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Rhs::Reg(amount)) => {
                let low = self.fresh();
                let rhs = Rhs::Imm(31);
                self.push(InstKind::Alu { op: AluOp::And, width: WIDE, dst: low, lhs: amount, rhs });
                Rhs::Reg(low)
            }
            // An unsigned 64-bit division reads the upper half of the divisor, too.
            (AluOp::Div | AluOp::Mod, Rhs::Imm(number)) if number < 0 => Rhs::Reg(self.unsigned(number)),
            _ => rhs,
        };
        // The verifier does not know that the upper half of a quotient is zero. After shifting the rest out
        // it does.
        if let (AluOp::Rsh, Rhs::Imm(amount)) = (op, rhs) {
            return self.shifts(AluOp::Rsh, 32 + (amount & 31), dst, lhs);
        }
        let negative = matches!(rhs, Rhs::Imm(number) if number < 0);
        let stays = match op {
            AluOp::And | AluOp::Div | AluOp::Mod | AluOp::Rsh => true,
            AluOp::Or | AluOp::Xor => !negative,
            _ => false,
        };
        if stays {
            return self.push(InstKind::Alu { op, width: WIDE, dst, lhs, rhs });
        }
        let wide = self.fresh();
        self.push(InstKind::Alu { op, width: WIDE, dst: wide, lhs, rhs });
        self.cut(dst, wide);
    }

    /// Zero-extends the low 32 bits.
    fn cut(&mut self, dst: VReg, src: VReg) {
        self.shifts(AluOp::Rsh, 32, dst, src);
    }

    /// Sign-extends the low 32 bits.
    fn extended(&mut self, src: VReg) -> VReg {
        let dst = self.fresh();
        self.shifts(AluOp::Arsh, 32, dst, src);
        dst
    }

    /// Shifts left by 32 bits, then right by `amount`.
    fn shifts(&mut self, down: AluOp, amount: i32, dst: VReg, src: VReg) {
        let up = self.fresh();
        self.push(InstKind::Alu { op: AluOp::Lsh, width: WIDE, dst: up, lhs: src, rhs: Rhs::Imm(32) });
        self.push(InstKind::Alu { op: down, width: WIDE, dst, lhs: up, rhs: Rhs::Imm(amount) });
    }

    /// A register with a 32-bit number, zero-extended.
    fn unsigned(&mut self, number: i32) -> VReg {
        let dst = self.fresh();
        self.push(InstKind::Const { dst, value: u64::from(number as u32) });
        dst
    }

    /// A register that holds the second operand.
    fn constant(&mut self, rhs: Rhs) -> VReg {
        match rhs {
            Rhs::Reg(register) => register,
            Rhs::Imm(number) => {
                let dst = self.fresh();
                self.push(InstKind::Const { dst, value: i64::from(number) as u64 });
                dst
            }
            Rhs::Frame => {
                let dst = self.fresh();
                self.push(InstKind::FrameAddr { dst, offset: 0 });
                dst
            }
        }
    }

    /// The 64-bit form of a comparison.
    fn compared(&mut self, op: JmpOp, width: Width, lhs: VReg, rhs: Rhs) -> (JmpOp, VReg, Rhs) {
        if width == WIDE {
            return (op, lhs, rhs);
        }
        if is_signed(op) {
            let lhs = self.extended(lhs);
            let rhs = match rhs {
                Rhs::Reg(right) => Rhs::Reg(self.extended(right)),
                other => other,
            };
            return (op, lhs, rhs);
        }
        match rhs {
            Rhs::Imm(number) if number < 0 => (op, lhs, Rhs::Reg(self.unsigned(number))),
            _ => (op, lhs, rhs),
        }
    }

    /// Replaces a comparison that the instruction set may lack by one that it has.
    fn exchanged(&self, op: JmpOp, lhs: VReg, rhs: Rhs) -> Exchange {
        if self.cpu > Cpu::V1 || !is_below(op) {
            return Exchange::Operands(op, lhs, rhs);
        }
        match rhs {
            Rhs::Reg(right) => Exchange::Operands(swapped(op), right, Rhs::Reg(lhs)),
            _ => Exchange::Targets(negated(op)),
        }
    }
}

/// The replacement of a comparison.
enum Exchange {
    /// This comparison, with these operands.
    Operands(JmpOp, VReg, Rhs),
    /// This comparison of the same operands, which is the negation: the branch targets are swapped.
    Targets(JmpOp),
}

/// Whether the comparison is one of `<` and `<=`, signed or unsigned, which v1 lacks.
pub fn is_below(op: JmpOp) -> bool {
    matches!(op, JmpOp::Lt | JmpOp::Le | JmpOp::Slt | JmpOp::Sle)
}

fn is_signed(op: JmpOp) -> bool {
    matches!(op, JmpOp::Sgt | JmpOp::Sge | JmpOp::Slt | JmpOp::Sle)
}

fn swapped(op: JmpOp) -> JmpOp {
    match op {
        JmpOp::Lt => JmpOp::Gt,
        JmpOp::Le => JmpOp::Ge,
        JmpOp::Slt => JmpOp::Sgt,
        JmpOp::Sle => JmpOp::Sge,
        other => other,
    }
}

fn negated(op: JmpOp) -> JmpOp {
    match op {
        JmpOp::Lt => JmpOp::Ge,
        JmpOp::Le => JmpOp::Gt,
        JmpOp::Slt => JmpOp::Sge,
        JmpOp::Sle => JmpOp::Sgt,
        other => other,
    }
}
