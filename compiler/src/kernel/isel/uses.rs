//! Uses of a function's values, as far as instruction selection needs them.

use crate::index::IndexVec;
use crate::kernel::machine::Cpu;
use crate::kernel::mir::{BinaryOp, Block, Callee, Kfunc, MirFunction, Op, Terminator, Type, Value};

/// Flags about the uses of each value.
pub(super) struct Uses {
    /// Whether the value is used other than as the condition of a branch.
    pub computed: IndexVec<Value, bool>,
    /// Whether all 64 bits of a 32-bit value are read: the upper half must then be zero.
    pub wide: IndexVec<Value, bool>,
    /// Whether the value is used other than as the address of an access.
    pub beyond_access: IndexVec<Value, bool>,
    /// Whether the value is used other than as the second operand of 64-bit arithmetic that [`takes_answer`].
    pub beyond_arithmetic: IndexVec<Value, bool>,
}

/// Whether an instruction of 64 bits with an immediate may have the loader's answer as that.
pub(super) fn takes_answer(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr)
}

impl Uses {
    pub(super) fn new(function: &MirFunction, order: &[Block], cpu: Cpu) -> Uses {
        let none = || function.values.iter().map(|_| false).collect();
        let mut uses =
            Uses { computed: none(), wide: none(), beyond_access: none(), beyond_arithmetic: none() };
        for block in order.iter().map(|block| &function.blocks[*block]) {
            for inst in &block.insts {
                uses.op(function, &inst.op);
            }
            let passed = block.term.targets().into_iter().flat_map(|target| target.args.clone());
            let returned = match block.term {
                Terminator::Return(value) => Some(value),
                _ => None,
            };
            for value in passed.chain(returned) {
                uses.computed[value] = true;
                uses.wide[value] = true;
                uses.beyond_access[value] = true;
                uses.beyond_arithmetic[value] = true;
            }
            if let Terminator::Branch { cond, .. } = block.term {
                uses.beyond_access[cond] = true;
                uses.beyond_arithmetic[cond] = true;
            }
        }
        // Without 32-bit instructions every operand is read with all 64 bits.
        if !cpu.has_32_bits() {
            uses.wide.iter_mut().for_each(|wide| *wide = true);
        }
        uses
    }

    fn op(&mut self, function: &MirFunction, op: &Op) {
        for value in op.operands() {
            self.computed[value] = true;
            self.wide[value] |= reads_upper_half(function, op);
        }
        let address = match op {
            Op::Load { base, .. }
            | Op::Store { base, .. }
            | Op::AtomicAdd { base, .. }
            | Op::AtomicExchange { base, .. } => Some(*base),
            _ => None,
        };
        let stored = match op {
            Op::Store { value, .. } | Op::AtomicAdd { value, .. } | Op::AtomicExchange { value, .. } => {
                Some(*value)
            }
            _ => None,
        };
        match op {
            Op::Binary(op, a, _) if takes_answer(*op) => self.beyond_arithmetic[*a] = true,
            op => op.each_operand(|value| self.beyond_arithmetic[value] = true),
        }
        for value in op.operands().into_iter().filter(|value| address != Some(*value)).chain(stored) {
            self.beyond_access[value] = true;
        }
    }
}

/// Whether the instructions selected for this operation read all 64 bits of a 32-bit operand.
fn reads_upper_half(function: &MirFunction, op: &Op) -> bool {
    match op {
        Op::Binary(_, a, _) | Op::Compare(_, a, _) => function.values[*a] != Type::I32,
        Op::Narrow { .. } | Op::SignExtend(_) | Op::Store { .. } | Op::AtomicAdd { .. } => false,
        Op::Opaque { value, .. } => function.values[*value] != Type::I32,
        Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNew) | Callee::MapIter(_), .. } => false,
        _ => true,
    }
}
