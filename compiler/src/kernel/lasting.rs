//! Keeps what calls, parameters and results fix to a register apart from values that outlive a call.
//!
//! A call loses `r0` to `r5`, so a value that outlives one belongs to `r6` to `r9`. Where it is also an argument, a result
//! or a parameter, the allocator would have it in two registers and cut it into pieces, with a move around most of its
//! uses. So it is copied where the register is fixed, once, and is in one register everywhere else.

use regalloc2::{Operand, OperandConstraint, OperandKind, RegClass, VReg};

use super::isel::{Function, Inst, Kind};
use super::regalloc::operands;

/// Makes the copies.
pub fn copy_at_fixed(function: &mut Function) {
    let lasting = Lasting::new(function);
    let mut registers = function.registers;
    let mut copy_of = |value: &mut VReg| {
        let lasts = lasting.lasts(*value);
        lasts.then(|| {
            registers += 1;
            std::mem::replace(value, VReg::new(registers - 1, RegClass::Int))
        })
    };
    for block in &mut function.blocks {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            let span = inst.span;
            let mut after = Vec::new();
            let push_before = |insts: &mut Vec<Inst>, dst: VReg, src: VReg| {
                insts.push(Inst { kind: Kind::Move { dst, src }, span });
            };
            match &mut inst.kind {
                Kind::Params(params) => {
                    for param in params {
                        after.extend(copy_of(param).map(|dst| Kind::Move { dst, src: *param }));
                    }
                }
                Kind::Call { args, result, .. } => {
                    for arg in args {
                        if let Some(src) = copy_of(arg) {
                            push_before(&mut insts, *arg, src);
                        }
                    }
                    if let Some(result) = result {
                        after.extend(copy_of(result).map(|dst| Kind::Move { dst, src: *result }));
                    }
                }
                Kind::Return { value } => {
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
#[derive(Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn new(registers: usize) -> Set {
        Set(vec![0; registers.div_ceil(64)])
    }

    fn insert(&mut self, value: VReg) {
        self.0[value.vreg() / 64] |= 1 << (value.vreg() % 64);
    }

    fn remove(&mut self, value: VReg) {
        self.0[value.vreg() / 64] &= !(1 << (value.vreg() % 64));
    }

    fn contains(&self, value: VReg) -> bool {
        self.0[value.vreg() / 64] >> (value.vreg() % 64) & 1 == 1
    }

    fn extend(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }
}

/// Which values outlive a call, or share a register with one that does.
struct Lasting {
    outlives: Set,
    /// Values of one register: each leads to the one that stands for them.
    same: Vec<usize>,
}

impl Lasting {
    fn new(function: &Function) -> Lasting {
        let live_in = live_in(function);
        let mut lasting =
            Lasting { outlives: Set::new(function.registers), same: (0..function.registers).collect() };
        let mut outlives = Set::new(function.registers);
        for block in &function.blocks {
            let mut live = live_out(function, &live_in, block);
            for (successor, args) in block.successors.iter().zip(&block.args) {
                for (param, arg) in function.blocks[*successor].params.iter().zip(args) {
                    if !live_in[*successor].contains(*arg) {
                        lasting.join(*param, *arg);
                    }
                }
            }
            for inst in block.insts.iter().rev() {
                if let Kind::Call { result, .. } = &inst.kind {
                    let own = result.filter(|result| !outlives.contains(*result));
                    outlives.extend(&live);
                    own.into_iter().for_each(|result| outlives.remove(result));
                }
                let operands = operands(&inst.kind);
                if let Some((value, source)) = reused(&operands)
                    && !live.contains(source)
                {
                    lasting.join(value, source);
                }
                step(&mut live, &operands);
            }
        }
        for value in 0..function.registers {
            let register = VReg::new(value, RegClass::Int);
            if outlives.contains(register) {
                let root = lasting.root(value);
                lasting.outlives.insert(VReg::new(root, RegClass::Int));
            }
        }
        lasting
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

    fn lasts(&self, value: VReg) -> bool {
        self.outlives.contains(VReg::new(self.root(value.vreg()), RegClass::Int))
    }
}

/// What an instruction with these operands makes in the register of one of them, and that one.
fn reused(operands: &[Operand]) -> Option<(VReg, VReg)> {
    operands.iter().find_map(|operand| match operand.constraint() {
        OperandConstraint::Reuse(index) => Some((operand.vreg(), operands[index].vreg())),
        _ => None,
    })
}

/// From what is live behind an instruction with these operands to what is live before it.
fn step(live: &mut Set, operands: &[Operand]) {
    let is_def = |kind: OperandKind| kind == OperandKind::Def;
    operands.iter().filter(|one| is_def(one.kind())).for_each(|one| live.remove(one.vreg()));
    operands.iter().filter(|one| !is_def(one.kind())).for_each(|one| live.insert(one.vreg()));
}

fn live_out(function: &Function, live_in: &[Set], block: &super::isel::Block) -> Set {
    let mut live = Set::new(function.registers);
    block.successors.iter().for_each(|successor| live.extend(&live_in[*successor]));
    block.args.iter().flatten().for_each(|arg| live.insert(*arg));
    live
}

/// What a block does to what is live: before it, that is what it reads, and of what is live behind it all that it does
/// not set.
struct Effect {
    reads: Set,
    sets: Set,
}

impl Effect {
    fn of(function: &Function, block: &super::isel::Block) -> Effect {
        let mut effect = Effect { reads: Set::new(function.registers), sets: Set::new(function.registers) };
        block.args.iter().flatten().for_each(|arg| effect.reads.insert(*arg));
        for inst in block.insts.iter().rev() {
            let operands = operands(&inst.kind);
            step(&mut effect.reads, &operands);
            let defs = operands.iter().filter(|one| one.kind() == OperandKind::Def);
            defs.for_each(|one| effect.sets.insert(one.vreg()));
        }
        for param in &block.params {
            effect.reads.remove(*param);
            effect.sets.insert(*param);
        }
        effect
    }
}

fn live_in(function: &Function) -> Vec<Set> {
    let effects: Vec<Effect> = function.blocks.iter().map(|block| Effect::of(function, block)).collect();
    let mut live_in: Vec<Set> = effects.iter().map(|effect| effect.reads.clone()).collect();
    let mut live = Set::new(function.registers);
    let mut changed = true;
    while changed {
        changed = false;
        for (at, block) in function.blocks.iter().enumerate().rev() {
            live.0.fill(0);
            block.successors.iter().for_each(|successor| live.extend(&live_in[*successor]));
            let words = live.0.iter().zip(&effects[at].sets.0).map(|(live, set)| live & !set);
            for (known, word) in live_in[at].0.iter_mut().zip(words) {
                changed |= word & !*known != 0;
                *known |= word;
            }
        }
    }
    live_in
}
