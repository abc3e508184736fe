//! Values that may share a scalar id in the verifier on some path: a branch on one of them refines all.

use crate::index::{FastMap, IndexVec};
use crate::kernel::mir::{MirFunction, Op, Slot, Value};

/// Union-find over values that may share a scalar id: each points to its representative.
pub struct ScalarIds(IndexVec<Value, Value>);

impl ScalarIds {
    pub fn new(function: &MirFunction) -> ScalarIds {
        let mut scalar_ids = ScalarIds(function.values.ids().collect());
        let mut in_slots: FastMap<(Slot, i64), Value> = FastMap::default();
        let ops = function.definitions();
        for inst in function.insts() {
            let (base, offset, kept) = match (&inst.op, inst.result) {
                (Op::ZeroExtend(value) | Op::Truncate(value) | Op::Below { value, .. }, Some(result)) => {
                    scalar_ids.join(*value, result);
                    continue;
                }
                (Op::Load { base, offset, .. }, Some(result)) => (*base, *offset, result),
                (Op::Store { base, offset, value, .. }, _) => (*base, *offset, *value),
                _ => continue,
            };
            if let Some(Op::StackAddr { slot, offset: start }) = ops[base] {
                let first = *in_slots.entry((*slot, i64::from(*start) + i64::from(offset))).or_insert(kept);
                scalar_ids.join(first, kept);
            }
        }
        for target in function.blocks.iter().flat_map(|data| data.term.targets()) {
            let params = function.blocks[target.block].params.iter();
            params.zip(&target.args).for_each(|(param, arg)| scalar_ids.join(*param, *arg));
        }
        scalar_ids
    }

    /// The representative of the values that share a scalar id with this one.
    pub fn number(&self, mut value: Value) -> Value {
        while self.0[value] != value {
            value = self.0[value];
        }
        value
    }

    fn join(&mut self, a: Value, b: Value) {
        let (a, b) = (self.number(a), self.number(b));
        self.0[a.max(b)] = a.min(b);
    }
}
