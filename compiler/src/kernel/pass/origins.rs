//! Origins of values: the values that they are computed from, or that are passed for a parameter.

use std::collections::BTreeSet;

use crate::index::{IndexVec, Lists};
use crate::kernel::mir::{MirFunction, Op, Terminator, Value};

/// The origins of a function's values.
pub struct Origins<'a> {
    pub definitions: IndexVec<Value, Option<&'a Op>>,
    /// The arguments of each block parameter.
    passed: Lists<Value, Value>,
}

impl Origins<'_> {
    pub fn new(function: &MirFunction) -> Origins<'_> {
        let order = function.reverse_postorder();
        let targets = order.iter().flat_map(|block| function.blocks[*block].term.targets());
        let passed = targets
            .flat_map(|to| function.blocks[to.block].params.iter().copied().zip(to.args.iter().copied()));
        let passed = Lists::new(function.values.len(), &passed.collect::<Vec<_>>());
        Origins { definitions: function.definitions(), passed }
    }

    /// For each value, whether it is in `open` or an origin of one of those. Calls, loads and checks have no
    /// origins, because the verifier knows their results afresh.
    pub fn of(&self, open: Vec<Value>) -> IndexVec<Value, bool> {
        self.until(open, |op| matches!(op, Op::Call { .. } | Op::Load { .. } | Op::Below { .. }))
    }

    /// For each value, whether a branch or an address depends on it, other than through memory or a call: the verifier
    /// keeps the bounds of these numbers precise.
    pub fn deciding(&self, function: &MirFunction) -> IndexVec<Value, bool> {
        let mut open = Vec::new();
        for data in function.reverse_postorder().iter().map(|block| &function.blocks[*block]) {
            if let Terminator::Branch { cond, .. } = data.term {
                open.push(cond);
            }
            let checks =
                data.insts.iter().filter(|inst| matches!(inst.op, Op::PtrAdd(..) | Op::Below { .. }));
            open.extend(checks.flat_map(|inst| inst.op.operands()));
        }
        self.until(open, |op| matches!(op, Op::Call { .. } | Op::Load { .. }))
    }

    /// The values of which the value is always one: itself, or what is passed for a block parameter.
    pub fn joined(&self, value: Value) -> Vec<Value> {
        let (mut seen, mut open, mut joined) = (BTreeSet::new(), vec![value], Vec::new());
        while let Some(value) = open.pop() {
            let passed = &self.passed[value];
            if !seen.insert(value) {
                continue;
            }
            match self.definitions[value] {
                None if !passed.is_empty() => open.extend(passed),
                _ => joined.push(value),
            }
        }
        joined
    }

    /// The values of which a pointer is always one, but for distances and null checks.
    pub fn of_pointer(&self, pointer: Value) -> Vec<Value> {
        let (mut seen, mut open, mut found) = (BTreeSet::new(), vec![pointer], Vec::new());
        while let Some(pointer) = open.pop() {
            for value in self.joined(pointer).into_iter().filter(|value| seen.insert(*value)) {
                match self.definitions[value] {
                    Some(Op::PtrAdd(base, _) | Op::NonNull(base)) => open.push(*base),
                    _ => found.push(value),
                }
            }
        }
        found
    }

    /// The same as [`Origins::of`], without the operands of other operations.
    pub fn until(&self, mut open: Vec<Value>, is_last: impl Fn(&Op) -> bool) -> IndexVec<Value, bool> {
        let mut found = IndexVec::filled(self.definitions.len(), false);
        while let Some(value) = open.pop() {
            if std::mem::replace(&mut found[value], true) {
                continue;
            }
            match self.definitions[value] {
                Some(op) if !is_last(op) => open.extend(op.operands()),
                Some(_) => {}
                None => open.extend(&self.passed[value]),
            }
        }
        found
    }
}
