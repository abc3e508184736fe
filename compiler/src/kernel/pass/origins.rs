//! Origins of values: the values that they are computed from, or that are passed for a parameter.

use std::collections::BTreeMap;

use super::reachable_predecessors;
use crate::index::IndexVec;
use crate::kernel::mir::{Block, MirFunction, Op, Predecessors, Value};

/// The origins of a function's values.
pub struct Origins<'a> {
    function: &'a MirFunction,
    definitions: IndexVec<Value, Option<&'a Op>>,
    /// The block and position of each value that is a block parameter.
    params: BTreeMap<Value, (Block, usize)>,
    predecessors: Predecessors,
}

impl Origins<'_> {
    pub fn new(function: &MirFunction) -> Origins<'_> {
        let mut params = BTreeMap::new();
        for (block, data) in function.blocks.iter_enumerated() {
            params.extend(data.params.iter().enumerate().map(|(at, param)| (*param, (block, at))));
        }
        let (definitions, predecessors) = (function.definitions(), reachable_predecessors(function));
        Origins { function, definitions, params, predecessors }
    }

    /// For each value, whether it is in `open` or an origin of one of those. Calls, loads and checks have no
    /// origins, because the verifier knows their results afresh.
    pub fn of(&self, mut open: Vec<Value>) -> IndexVec<Value, bool> {
        let mut found = IndexVec::filled(self.definitions.len(), false);
        while let Some(value) = open.pop() {
            if !std::mem::replace(&mut found[value], true) {
                self.append(value, &mut open);
            }
        }
        found
    }

    /// Appends the operands that a value is computed from, or the arguments passed for it.
    fn append(&self, value: Value, to: &mut Vec<Value>) {
        if let Some(op) = self.definitions[value]
            && !matches!(op, Op::Call { .. } | Op::Load { .. } | Op::Below { .. })
        {
            to.extend(op.operands());
        }
        let Some((block, at)) = self.params.get(&value) else { return };
        for from in &self.predecessors[*block] {
            let targets = self.function.blocks[*from].term.targets();
            let to_here = targets.into_iter().filter(|target| target.block == *block);
            to.extend(to_here.filter_map(|target| target.args.get(*at)));
        }
    }
}
