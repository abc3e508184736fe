//! Separates fixed-register operands of calls, parameters and results from values that are live across a
//! call.
//!
//! A call clobbers `r0` to `r5`, so a value that is live across one belongs in `r6` to `r9`. If the value is
//! also an argument, a result or a parameter, the allocator would split its live range and put a move around
//! most uses. So the value is copied once where the register is fixed, and stays in one register everywhere
//! else.

use regalloc2::{Operand, OperandConstraint, RegClass, VReg};

use super::isel::{Inst, InstKind, IselFunction};
use super::liveness::{Liveness, RegisterSet};
use super::regalloc::operands;

/// Inserts a copy at each fixed-register operand whose value is live across a call.
pub fn copy_at_fixed(function: &mut IselFunction, liveness: &Liveness) {
    let live_across = LiveAcrossCalls::new(function, liveness);
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

/// The values that are live across a call, or share a register with one that is.
struct LiveAcrossCalls {
    outlives: RegisterSet,
    /// Union-find over values that share a register: each points to its representative.
    same: Vec<usize>,
}

impl LiveAcrossCalls {
    fn new(function: &IselFunction, liveness: &Liveness) -> LiveAcrossCalls {
        let mut live_across = LiveAcrossCalls {
            outlives: RegisterSet::new(function.registers),
            same: (0..function.registers).collect(),
        };
        let mut outlives = RegisterSet::new(function.registers);
        let mut live = RegisterSet::new(function.registers);
        for block in &function.blocks {
            liveness.at_end(block, &mut live);
            for (successor, args) in block.successors.iter().zip(&block.args) {
                for (param, arg) in function.blocks[*successor].params.iter().zip(args) {
                    if !liveness.is_live_in(*successor, *arg) {
                        live_across.join(*param, *arg);
                    }
                }
            }
            for inst in block.insts.iter().rev() {
                if let InstKind::Call { result, .. } = &inst.kind {
                    let own = result.filter(|result| !outlives.contains(*result));
                    outlives.extend(&live);
                    own.into_iter().for_each(|result| outlives.remove(result));
                }
                let operands = operands(&inst.kind);
                if let Some((value, source)) = reused(&operands)
                    && !live.contains(source)
                {
                    live_across.join(value, source);
                }
                live.step(&operands);
            }
        }
        for value in 0..function.registers {
            if outlives.contains(VReg::new(value, RegClass::Int)) {
                let root = live_across.root(value);
                live_across.outlives.insert(VReg::new(root, RegClass::Int));
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
        self.outlives.contains(VReg::new(self.root(value.vreg()), RegClass::Int))
    }
}

/// The value that an instruction defines in the register of one of its operands, and that operand.
fn reused(operands: &[Operand]) -> Option<(VReg, VReg)> {
    operands.iter().find_map(|operand| match operand.constraint() {
        OperandConstraint::Reuse(index) => Some((operand.vreg(), operands[index].vreg())),
        _ => None,
    })
}
