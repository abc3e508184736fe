//! Instructions that a pass puts in the place of a block's.

use crate::index::IndexVec;
use crate::kernel::mir::{Inst, Op, Type, Value};
use crate::source::Span;

/// The instructions so far, and what those that are made belong to.
pub struct NewInsts {
    pub insts: Vec<Inst>,
    pub span: Span,
}

impl NewInsts {
    pub fn push(&mut self, result: Option<Value>, op: Op) {
        self.insts.push(Inst { result, op, span: self.span });
    }

    /// Appends an instruction with a result, one of these values from now on.
    pub fn make(&mut self, values: &mut IndexVec<Value, Type>, ty: Type, op: Op) -> Value {
        let result = values.push(ty);
        self.push(Some(result), op);
        result
    }
}
