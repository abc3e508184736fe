//! Finds registers that the verifier already knows to be below a bound from the instructions just before.
//!
//! A helper's call keeps what is known of the registers that it keeps. Other calls discard all knowledge: at the
//! start of an iteration under an iterator or of a callback, the verifier forgets the value of a number in the
//! previous iteration, and a called function may have such loops. Source: kernel/bpf/verifier.c,
//! `widen_imprecise_scalars`, which goes through all frames, v6.12.

use regalloc2::OperandKind;
use smallvec::SmallVec;

use super::super::isel::{Block, InstKind, IselFunction, Rhs, Target};
use super::super::regalloc::{Move, Registers, ValueLocation, operands};
use super::negated;
use crate::bpf::{JmpOp, Reg, Width};

/// The numbers of the [`InstKind::Below`] instructions that add no information, ascending. `first_inst` holds
/// the number of each block's first instruction.
pub fn needless(function: &IselFunction, registers: &Registers, first_inst: &[usize]) -> Vec<usize> {
    let blocks = || function.blocks.iter().zip(first_inst);
    let any = |block: &Block| block.insts.iter().any(|inst| matches!(inst.kind, InstKind::Below { .. }));
    let mut needless = Vec::new();
    if !function.blocks.iter().any(any) {
        return needless;
    }
    for ((block, first), known) in blocks().zip(on_entry(function, registers, first_inst)) {
        known.through(block, *first, registers, |number, kind, known| {
            if let InstKind::Below { bound, .. } = kind
                && known.bound(registers.operands[number][0]).is_some_and(|known| known <= *bound)
            {
                needless.push(number);
            }
        });
    }
    needless
}

/// Registers with their exclusive upper bounds; unsigned, 64 bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KnownBounds(SmallVec<[(Reg, i32); 4]>);

impl KnownBounds {
    fn bound(&self, reg: Reg) -> Option<i32> {
        self.0.iter().find(|(known, _)| *known == reg).map(|(_, bound)| *bound)
    }

    fn set(&mut self, reg: Reg, bound: Option<i32>) {
        self.0.retain(|(known, _)| *known != reg);
        self.0.extend(bound.map(|bound| (reg, bound)));
    }

    /// Updates the bounds for a move between instructions.
    fn moved(&mut self, moved: Move) {
        match (moved.to, moved.from) {
            (ValueLocation::Reg(to), ValueLocation::Reg(from)) => self.set(to, self.bound(from)),
            (ValueLocation::Reg(to), ValueLocation::Spill(_)) => self.set(to, None),
            (ValueLocation::Spill(_), _) => {}
        }
    }

    /// Updates the bounds for an instruction with these registers.
    fn step(&mut self, kind: &InstKind, regs: &[Reg]) {
        let defined = operands(kind).iter().position(|operand| operand.kind() == OperandKind::Def);
        match (kind, defined.map(|at| regs[at])) {
            (InstKind::Call { target: Target::Helper(helper), .. }, _) if !helper.calls_back() => {
                self.0.retain(|(known, _)| known.is_kept_by_calls());
            }
            (InstKind::Call { .. } | InstKind::Params(_), _) => self.0.clear(),
            (InstKind::Const { value, .. }, Some(dst)) => {
                let bound = i32::try_from(*value).ok().and_then(|value| value.checked_add(1));
                self.set(dst, bound);
            }
            (InstKind::Move { .. }, Some(dst)) => self.set(dst, self.bound(regs[0])),
            (InstKind::Below { bound, .. }, Some(dst)) => {
                let known = self.bound(dst).map_or(*bound, |known| known.min(*bound));
                self.set(dst, Some(known));
            }
            (_, Some(dst)) => self.set(dst, None),
            (_, None) => {}
        }
    }

    /// The bounds at a block's end. `see` gets each instruction with its number and the bounds before it.
    fn through(
        mut self,
        block: &Block,
        first: usize,
        registers: &Registers,
        mut see: impl FnMut(usize, &InstKind, &KnownBounds),
    ) -> KnownBounds {
        for (number, inst) in (first..).zip(&block.insts) {
            registers.before[number].iter().for_each(|one| self.moved(*one));
            see(number, &inst.kind, &self);
            self.step(&inst.kind, &registers.operands[number]);
            registers.after[number].iter().for_each(|one| self.moved(*one));
        }
        self
    }

    /// Keeps the bounds that hold on both incoming paths.
    fn meet(&mut self, other: &KnownBounds) {
        self.0.retain(|(reg, bound)| match other.bound(*reg) {
            Some(also) => {
                *bound = also.max(*bound);
                true
            }
            None => false,
        });
    }
}

/// The bounds at the start of each block: the strongest that agree along all edges.
fn on_entry(function: &IselFunction, registers: &Registers, first_inst: &[usize]) -> Vec<KnownBounds> {
    let mut starts: Vec<Option<KnownBounds>> = vec![None; function.blocks.len()];
    starts[0] = Some(KnownBounds::default());
    let mut is_changed = true;
    // Ends: a bound only rises to another of the function's constants, or is lost.
    while std::mem::take(&mut is_changed) {
        for (from, block) in function.blocks.iter().enumerate() {
            let Some(start) = starts[from].clone() else { continue };
            let end = start.through(block, first_inst[from], registers, |_, _, _| ());
            for (edge, to) in block.successors.iter().enumerate() {
                let mut known = end.clone();
                if let Some((reg, bound)) = branched(function, registers, first_inst, from, edge) {
                    known.set(reg, Some(bound));
                }
                if let Some(before) = &starts[*to] {
                    let mut both = before.clone();
                    both.meet(&known);
                    known = both;
                }
                is_changed |= starts[*to].as_ref() != Some(&known);
                starts[*to] = Some(known);
            }
        }
    }
    starts.into_iter().map(Option::unwrap_or_default).collect()
}

/// The bound that the branch at a block's end proves for a register on one of its two edges. A 32-bit
/// comparison proves none: the verifier may have forgotten that the upper bits are zero.
fn branched(
    function: &IselFunction,
    registers: &Registers,
    first_inst: &[usize],
    from: usize,
    edge: usize,
) -> Option<(Reg, i32)> {
    let block = &function.blocks[from];
    let last = first_inst[from] + block.insts.len() - 1;
    let InstKind::Branch { op, width: Width::W64, rhs: Rhs::Imm(limit), .. } = block.insts.last()?.kind
    else {
        return None;
    };
    if block.successors[0] == block.successors[1] {
        return None;
    }
    let op = if edge == 0 { op } else { negated(op)? };
    let bound = match op {
        JmpOp::Lt => limit,
        JmpOp::Le | JmpOp::Eq => limit.checked_add(1)?,
        _ => return None,
    };
    (bound > 0).then_some((*registers.operands[last].first()?, bound))
}
