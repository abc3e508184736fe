//! Values that the turns of a loop make, and others read: where turns are calls, those make them again that can.

use std::collections::BTreeSet;

use crate::index::IndexVec;
use crate::kernel::mir::{Inst, MirFunction, Op, Value};

/// What the turns of a loop make.
pub struct Rematerializer<'a> {
    pub function: &'a MirFunction,
    pub ops: &'a IndexVec<Value, Option<&'a Op>>,
    pub defined: &'a BTreeSet<Value>,
}

impl Rematerializer<'_> {
    /// Whether others have a value, or can make it again.
    pub fn is_possible(&self, value: Value) -> bool {
        let can_be =
            |op: &Op| op.is_leaf() || is_test(op) || matches!(op, Op::PtrAdd(..) | Op::PacketEdge { .. });
        let of_such = |op: &Op| op.operands().iter().all(|operand| self.is_possible(*operand));
        !self.defined.contains(&value) || self.ops[value].is_some_and(|op| can_be(op) && of_such(op))
    }

    /// Appends what makes a value again, behind what it is made of.
    pub fn append(&self, value: Value, insts: &mut Vec<Inst>) {
        let Some(op) = self.ops[value].filter(|_| self.defined.contains(&value)) else { return };
        if insts.iter().all(|inst| inst.result != Some(value)) {
            op.operands().into_iter().for_each(|operand| self.append(operand, insts));
            insts.push(Inst { result: Some(value), op: op.clone(), span: self.function.span });
        }
    }
}

/// Whether this tests a pointer: as a number that was handed over it would say nothing about it to the verifier.
pub fn is_test(op: &Op) -> bool {
    matches!(op, Op::IsNull(_) | Op::Within { .. })
}
