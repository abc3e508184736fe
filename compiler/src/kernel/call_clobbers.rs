//! Separates fixed-register operands of calls, parameters and results from values that are live across a
//! call.
//!
//! A call clobbers `r0` to `r5`, so a value that is live across one belongs in `r6` to `r9`. If the value is
//! also an argument, a result or a parameter, the allocator would split its live range and put a move around
//! most uses. So the value is copied once where the register is fixed, and stays in one register everywhere
//! else.

use regalloc2::{Operand, OperandConstraint, OperandKind, RegClass, VReg};

use super::isel::{Block, Inst, InstKind, IselFunction};
use super::regalloc::operands;

/// Inserts a copy at each fixed-register operand whose value is live across a call.
pub fn copy_at_fixed(function: &mut IselFunction) {
    let live_across = LiveAcrossCalls::new(function);
    let mut registers = function.registers;
    let mut copy_of = |value: &mut VReg| {
        let is_live_across = live_across.is_live_across(*value);
        is_live_across.then(|| {
            registers += 1;
            std::mem::replace(value, VReg::new(registers - 1, RegClass::Int))
        })
    };
    for block in &mut function.blocks {
        let mut insts = Vec::with_capacity(block.insts.len() + 4);
        for mut inst in std::mem::take(&mut block.insts) {
            let span = inst.span;
            let mut after = Vec::new();
            let push_before = |insts: &mut Vec<Inst>, dst: VReg, src: VReg| {
                insts.push(Inst { kind: InstKind::Move { dst, src }, span });
            };
            match &mut inst.kind {
                InstKind::Params(params) => {
                    for param in params {
                        after.extend(copy_of(param).map(|dst| InstKind::Move { dst, src: *param }));
                    }
                }
                InstKind::Call { args, result, .. } => {
                    for arg in args {
                        if let Some(src) = copy_of(arg) {
                            push_before(&mut insts, *arg, src);
                        }
                    }
                    if let Some(result) = result {
                        after.extend(copy_of(result).map(|dst| InstKind::Move { dst, src: *result }));
                    }
                }
                InstKind::Return { value } => {
                    if let Some(src) = copy_of(value) {
                        push_before(&mut insts, *value, src);
                    }
                }
                _ => {}
            }
            insts.push(inst);
            insts.extend(after.into_iter().map(|kind| Inst { kind, span }));
        }
        block.insts = insts;
    }
    function.registers = registers;
}

/// A set of virtual registers.
struct RegisterSet(Vec<u64>);

impl RegisterSet {
    fn new(registers: usize) -> RegisterSet {
        RegisterSet(vec![0; registers.div_ceil(64)])
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

/// The values that are live across a call, or share a register with one that is.
struct LiveAcrossCalls {
    outlives: RegisterSet,
    /// Union-find over values that share a register: each points to its representative.
    same: Vec<usize>,
}

impl LiveAcrossCalls {
    fn new(function: &IselFunction) -> LiveAcrossCalls {
        let live_in = live_in(function);
        let mut live_across = LiveAcrossCalls {
            outlives: RegisterSet::new(function.registers),
            same: (0..function.registers).collect(),
        };
        let mut outlives = RegisterSet::new(function.registers);
        let mut live = RegisterSet::new(function.registers);
        for block in &function.blocks {
            live_out(&live_in, block, &mut live.0);
            for (successor, args) in block.successors.iter().zip(&block.args) {
                for (param, arg) in function.blocks[*successor].params.iter().zip(args) {
                    if !contains(live_in.of(*successor), *arg) {
                        live_across.join(*param, *arg);
                    }
                }
            }
            for inst in block.insts.iter().rev() {
                if let InstKind::Call { result, .. } = &inst.kind {
                    let own = result.filter(|result| !contains(&outlives.0, *result));
                    extend(&mut outlives.0, &live.0);
                    own.into_iter().for_each(|result| remove(&mut outlives.0, result));
                }
                let operands = operands(&inst.kind);
                if let Some((value, source)) = reused(&operands)
                    && !contains(&live.0, source)
                {
                    live_across.join(value, source);
                }
                step(&mut live.0, &operands);
            }
        }
        for value in 0..function.registers {
            if contains(&outlives.0, VReg::new(value, RegClass::Int)) {
                let root = live_across.root(value);
                insert(&mut live_across.outlives.0, VReg::new(root, RegClass::Int));
            }
        }
        live_across
    }

    fn root(&self, mut value: usize) -> usize {
        while self.same[value] != value {
            value = self.same[value];
        }
        value
    }

    fn join(&mut self, a: VReg, b: VReg) {
        let (a, b) = (self.root(a.vreg()), self.root(b.vreg()));
        self.same[a.max(b)] = a.min(b);
    }

    fn is_live_across(&self, value: VReg) -> bool {
        contains(&self.outlives.0, VReg::new(self.root(value.vreg()), RegClass::Int))
    }
}

/// The value that an instruction defines in the register of one of its operands, and that operand.
fn reused(operands: &[Operand]) -> Option<(VReg, VReg)> {
    operands.iter().find_map(|operand| match operand.constraint() {
        OperandConstraint::Reuse(index) => Some((operand.vreg(), operands[index].vreg())),
        _ => None,
    })
}

/// Updates `live` from the values live after an instruction to those live before it.
fn step(live: &mut [u64], operands: &[Operand]) {
    let is_def = |kind: OperandKind| kind == OperandKind::Def;
    operands.iter().filter(|one| is_def(one.kind())).for_each(|one| remove(live, one.vreg()));
    operands.iter().filter(|one| !is_def(one.kind())).for_each(|one| insert(live, one.vreg()));
}

fn live_out(live_in: &RegisterSets, block: &Block, live: &mut [u64]) {
    live.fill(0);
    block.successors.iter().for_each(|successor| extend(live, live_in.of(*successor)));
    block.args.iter().flatten().for_each(|arg| insert(live, *arg));
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

fn live_in(function: &IselFunction) -> RegisterSets {
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
    live_in
}
