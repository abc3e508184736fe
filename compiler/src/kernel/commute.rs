//! Swaps the operands of commutative arithmetic whose first operand outlives it.
//!
//! The result takes the register of the first operand. If that is read again and the second one is not, the
//! second one's register is free for the result, and no copy is needed.

use super::isel::{InstKind, IselFunction, Rhs};
use super::liveness::{Liveness, RegisterSet};
use super::regalloc::operands;
use crate::bpf::AluOp;

/// Swaps operands where that saves a copy.
pub fn swap_operands(function: &mut IselFunction, liveness: &Liveness) {
    let mut live = RegisterSet::new(function.registers);
    for block in &mut function.blocks {
        liveness.at_end(block, &mut live);
        for inst in block.insts.iter_mut().rev() {
            let operands = operands(&inst.kind);
            if let InstKind::Alu { op, lhs, rhs: Rhs::Reg(rhs), .. } = &mut inst.kind
                && is_commutative(*op)
                && live.contains(*lhs)
                && !live.contains(*rhs)
            {
                std::mem::swap(lhs, rhs);
            }
            live.step(&operands);
        }
    }
}

fn is_commutative(op: AluOp) -> bool {
    matches!(op, AluOp::Add | AluOp::Mul | AluOp::And | AluOp::Or | AluOp::Xor)
}
