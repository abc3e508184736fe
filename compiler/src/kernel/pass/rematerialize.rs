//! Rematerialises values of a loop's iterations that other code reads, for loops whose iterations become
//! calls.

use std::collections::BTreeSet;

use crate::index::IndexVec;
use crate::kernel::mir::{Inst, MirFunction, Op, Value};

/// The values that are defined in a loop.
pub struct Rematerializer<'a> {
    pub function: &'a MirFunction,
    pub ops: &'a IndexVec<Value, Option<&'a Op>>,
    pub defined: &'a BTreeSet<Value>,
}

impl Rematerializer<'_> {
    /// Whether other code has a value, or can rematerialise it.
    pub fn is_possible(&self, value: Value) -> bool {
        let can_be =
            |op: &Op| op.is_leaf() || is_test(op) || matches!(op, Op::PtrAdd(..) | Op::PacketEdge { .. });
        let of_such = |op: &Op| op.operands().iter().all(|operand| self.is_possible(*operand));
        !self.defined.contains(&value) || self.ops[value].is_some_and(|op| can_be(op) && of_such(op))
    }

    /// Appends the instructions that rematerialise a value, its operands first.
    pub fn append(&self, value: Value, insts: &mut Vec<Inst>) {
        let Some(op) = self.ops[value].filter(|_| self.defined.contains(&value)) else { return };
        if insts.iter().all(|inst| inst.result != Some(value)) {
            op.operands().into_iter().for_each(|operand| self.append(operand, insts));
            insts.push(Inst { result: Some(value), op: op.clone(), span: self.function.span });
        }
    }
}

/// Whether the operation tests a pointer. If its result were passed as a number, it would prove nothing to
/// the verifier.
pub fn is_test(op: &Op) -> bool {
    matches!(op, Op::IsNull(_) | Op::Within { .. })
}
