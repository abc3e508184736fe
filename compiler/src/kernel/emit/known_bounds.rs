//! Finds registers that the verifier already knows to be below a bound from the instructions just before.
//!
//! Calls discard all knowledge: at the start of an iteration under an iterator, the verifier forgets the
//! value of a number in the previous iteration.

use regalloc2::OperandKind;
use smallvec::SmallVec;

use super::super::isel::{Block, InstKind, IselFunction, Rhs};
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

/// The bounds at the start of each block.
fn on_entry(function: &IselFunction, registers: &Registers, first_inst: &[usize]) -> Vec<KnownBounds> {
    let mut edges: Vec<Vec<(usize, usize)>> = vec![Vec::new(); function.blocks.len()];
    for (from, block) in function.blocks.iter().enumerate() {
        for (edge, to) in block.successors.iter().enumerate() {
            edges[*to].push((from, edge));
        }
    }
    let branched = |(from, edge): (usize, usize)| branched(function, registers, first_inst, from, edge);
    // One pass, not a fixed point: blocks start from the branch on their only incoming edge. That is enough
    // for blocks with several predecessors.
    let of_branch = |edges: &[(usize, usize)]| match edges {
        [edge] => KnownBounds(branched(*edge).into_iter().collect()),
        _ => KnownBounds::default(),
    };
    let ends: Vec<KnownBounds> = function
        .blocks
        .iter()
        .enumerate()
        .map(|(at, block)| of_branch(&edges[at]).through(block, first_inst[at], registers, |_, _, _| ()))
        .collect();
    let on_edge = |edge: &(usize, usize)| {
        let mut known = ends[edge.0].clone();
        if let Some((reg, bound)) = branched(*edge) {
            known.set(reg, Some(bound));
        }
        known
    };
    let meet = |mut known: KnownBounds, edge: &(usize, usize)| {
        known.meet(&on_edge(edge));
        known
    };
    edges
        .iter()
        .map(|edges| match edges.split_first() {
            None => KnownBounds::default(),
            Some((first, rest)) => rest.iter().fold(on_edge(first), meet),
        })
        .collect()
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
