//! Liveness of virtual registers, by block and by instruction.

use regalloc2::{Operand, OperandKind, VReg};

use super::isel::{Block, IselFunction};
use super::regalloc::operands;

/// A set of virtual registers.
pub struct RegisterSet(Vec<u64>);

impl RegisterSet {
    pub fn new(registers: usize) -> RegisterSet {
        RegisterSet(vec![0; registers.div_ceil(64)])
    }

    pub fn insert(&mut self, value: VReg) {
        insert(&mut self.0, value);
    }

    pub fn remove(&mut self, value: VReg) {
        remove(&mut self.0, value);
    }

    pub fn contains(&self, value: VReg) -> bool {
        contains(&self.0, value)
    }

    pub fn extend(&mut self, other: &RegisterSet) {
        extend(&mut self.0, &other.0);
    }

    /// Updates the values live after an instruction with these operands to those live before it.
    pub fn step(&mut self, operands: &[Operand]) {
        step(&mut self.0, operands);
    }
}

fn insert(set: &mut [u64], value: VReg) {
    set[value.vreg() / 64] |= 1 << (value.vreg() % 64);
}

fn remove(set: &mut [u64], value: VReg) {
    set[value.vreg() / 64] &= !(1 << (value.vreg() % 64));
}

fn contains(set: &[u64], value: VReg) -> bool {
    set[value.vreg() / 64] >> (value.vreg() % 64) & 1 == 1
}

fn extend(set: &mut [u64], other: &[u64]) {
    set.iter_mut().zip(other).for_each(|(word, other)| *word |= other);
}

/// One register set for each block.
struct RegisterSets {
    words: usize,
    bits: Vec<u64>,
}

impl RegisterSets {
    fn new(function: &IselFunction) -> RegisterSets {
        let words = function.registers.div_ceil(64);
        RegisterSets { words, bits: vec![0; words * function.blocks.len()] }
    }

    fn of(&self, block: usize) -> &[u64] {
        &self.bits[block * self.words..][..self.words]
    }

    fn of_mut(&mut self, block: usize) -> &mut [u64] {
        &mut self.bits[block * self.words..][..self.words]
    }
}

fn step(live: &mut [u64], operands: &[Operand]) {
    let is_def = |kind: OperandKind| kind == OperandKind::Def;
    operands.iter().filter(|one| is_def(one.kind())).for_each(|one| remove(live, one.vreg()));
    operands.iter().filter(|one| !is_def(one.kind())).for_each(|one| insert(live, one.vreg()));
}

/// The transfer function of each block: the registers that it reads before setting them, and those that it
/// sets.
fn effects(function: &IselFunction) -> (RegisterSets, RegisterSets) {
    let (mut reads, mut sets) = (RegisterSets::new(function), RegisterSets::new(function));
    for (at, block) in function.blocks.iter().enumerate() {
        let (reads, sets) = (reads.of_mut(at), sets.of_mut(at));
        block.args.iter().flatten().for_each(|arg| insert(reads, *arg));
        for inst in block.insts.iter().rev() {
            let operands = operands(&inst.kind);
            step(reads, &operands);
            let defs = operands.iter().filter(|one| one.kind() == OperandKind::Def);
            defs.for_each(|one| insert(sets, one.vreg()));
        }
        for param in &block.params {
            remove(reads, *param);
            insert(sets, *param);
        }
    }
    (reads, sets)
}

/// The values that are live at the start of each block.
pub struct Liveness(RegisterSets);

impl Liveness {
    pub fn new(function: &IselFunction) -> Liveness {
        let (mut live_in, sets) = effects(function);
        let mut live = RegisterSet::new(function.registers);
        let mut changed = true;
        while changed {
            changed = false;
            for (at, block) in function.blocks.iter().enumerate().rev() {
                live.0.fill(0);
                block.successors.iter().for_each(|successor| extend(&mut live.0, live_in.of(*successor)));
                let words = live.0.iter().zip(sets.of(at)).map(|(live, set)| live & !set);
                for (known, word) in live_in.of_mut(at).iter_mut().zip(words) {
                    changed |= word & !*known != 0;
                    *known |= word;
                }
            }
        }
        Liveness(live_in)
    }

    /// Whether the value is live at the start of a block.
    pub fn is_live_in(&self, block: usize, value: VReg) -> bool {
        contains(self.0.of(block), value)
    }

    /// Sets `live` to the values that are live at the end of a block.
    pub fn at_end(&self, block: &Block, live: &mut RegisterSet) {
        live.0.fill(0);
        block.successors.iter().for_each(|successor| extend(&mut live.0, self.0.of(*successor)));
        block.args.iter().flatten().for_each(|arg| live.insert(*arg));
    }
}
