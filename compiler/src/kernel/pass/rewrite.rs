//! Tools of several passes: replacements of values, insertion of instructions, known definitions.

use crate::index::IndexVec;
use crate::kernel::mir::{Inst, MirFunction, Op, Value};

/// Replacements of values by other values.
#[derive(Default)]
pub struct Replacements {
    /// Indexed by value, up to the last replaced one.
    by: IndexVec<Value, Option<Value>>,
}

impl Replacements {
    pub fn replace(&mut self, value: Value, by: Value) {
        self.by.grow_to(value, None);
        self.by[value] = Some(by);
    }

    /// Whether a value is to be replaced.
    pub fn is_replaced(&self, value: Value) -> bool {
        self.by.get(value).is_some_and(Option::is_some)
    }

    /// The final replacement of a value.
    pub fn resolve(&self, mut value: Value) -> Value {
        while let Some(by) = self.by.get(value).copied().flatten() {
            value = by;
        }
        value
    }

    /// Replaces every use. Returns whether there was anything to replace.
    pub fn apply(&self, function: &mut MirFunction) -> bool {
        if self.by.is_empty() {
            return false;
        }
        for block in function.blocks.iter_mut() {
            for inst in &mut block.insts {
                inst.op.map_operands(&mut |value| self.resolve(value));
            }
            block.term.map_operands(&mut |value| self.resolve(value));
        }
        true
    }
}

/// Inserts instructions before the ones at these positions, which are ascending.
pub fn insert(insts: &mut Vec<Inst>, added: Vec<(usize, Inst)>) {
    if added.is_empty() {
        return;
    }
    let mut added = added.into_iter().peekable();
    let mut all = Vec::with_capacity(insts.len() + added.len());
    for (at, inst) in std::mem::take(insts).into_iter().enumerate() {
        while let Some((_, before)) = added.next_if(|(before, _)| *before == at) {
            all.push(before);
        }
        all.push(inst);
    }
    *insts = all;
}

/// Records the operation that defines a value. Calls are not recorded, as no pass looks at them.
pub fn note(ops: &mut IndexVec<Value, Option<Op>>, result: Value, op: &Op) {
    if !matches!(op, Op::Call { .. }) {
        ops[result] = Some(op.clone());
    }
}

/// The values that are constants.
pub fn constants(function: &MirFunction) -> IndexVec<Value, Option<u64>> {
    let mut found: IndexVec<Value, Option<u64>> = function.values.iter().map(|_| None).collect();
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        if let (Op::Const(bits), Some(result)) = (&inst.op, inst.result) {
            found[result] = Some(*bits);
        }
    }
    found
}
