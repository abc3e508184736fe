//! Builder of the instructions that replace those of a block.

use crate::index::IndexVec;
use crate::kernel::mir::{Inst, Op, Type, Value};
use crate::source::Span;

/// The new instructions so far, with the source span for new ones.
pub struct NewInsts {
    pub insts: Vec<Inst>,
    pub span: Span,
}

impl NewInsts {
    pub fn push(&mut self, result: Option<Value>, op: Op) {
        self.insts.push(Inst { result, op, span: self.span });
    }

    /// Appends an instruction and returns its result, a new value of `values`.
    pub fn make(&mut self, values: &mut IndexVec<Value, Type>, ty: Type, op: Op) -> Value {
        let result = values.push(ty);
        self.push(Some(result), op);
        result
    }
}
