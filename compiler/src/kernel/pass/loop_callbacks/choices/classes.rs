//! Finds the pointers that are never live at the same time, and so share their words.

use std::collections::{BTreeMap, BTreeSet};

use super::{Choices, Number};
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::IteratorLoop;
use crate::kernel::mir::{Block, MirFunction, Op, Value};

impl Choices {
    /// Finds the classes: pointers that are passed for each other, no two of which are live at the start of one block.
    pub fn find_classes(&mut self, function: &MirFunction, one: &IteratorLoop, used: &BTreeSet<Value>) {
        let connected = self.connected();
        let live = self.live(function, one, used);
        let mut together: BTreeSet<(Value, Value)> = BTreeSet::new();
        for block in one.blocks.iter().chain([&one.header]) {
            let params = function.blocks[*block].params.iter().filter(|param| connected.contains_key(param));
            let there: Vec<Value> = params.copied().chain(live[block].iter().copied()).collect();
            together.extend(there.iter().flat_map(|a| there.iter().map(move |b| (*a, *b))));
        }
        let mut classes: Vec<Vec<Value>> = Vec::new();
        for (value, changing) in &mut self.changing {
            let fits = |class: &&mut Vec<Value>| {
                let mut others = class.iter();
                connected[value] == connected[&class[0]]
                    && others.all(|other| !together.contains(&(*value, *other)))
            };
            match classes.iter_mut().find(fits) {
                Some(class) => {
                    changing.class = class[0];
                    class.push(*value);
                }
                None => classes.push(vec![*value]),
            }
        }
    }

    /// For each pointer, the first of those that it is connected with.
    fn connected(&self) -> BTreeMap<Value, Value> {
        let mut classes: BTreeMap<Value, Value> =
            self.changing.keys().map(|value| (*value, *value)).collect();
        let mut changes = true;
        while changes {
            changes = false;
            for (to, changing) in &self.changing {
                for from in &changing.args {
                    let Some(Number::Of(from)) = self.passed.get(from) else { continue };
                    let class = classes[to].min(classes[from]);
                    changes |= classes.insert(*to, class) != Some(class);
                    changes |= classes.insert(*from, class) != Some(class);
                }
            }
        }
        classes
    }

    /// The pointer that changes which a value is, tested or not.
    fn pointer_of(&self, ops: &IndexVec<Value, Option<&Op>>, mut value: Value) -> Option<Value> {
        while let Some(Op::NonNull(of)) = ops[value] {
            value = *of;
        }
        self.changing.contains_key(&value).then_some(value)
    }

    /// The pointers that are live at the start of each block, other than its parameters.
    fn live(
        &self,
        function: &MirFunction,
        one: &IteratorLoop,
        used: &BTreeSet<Value>,
    ) -> BTreeMap<Block, BTreeSet<Value>> {
        let dominators = Dominators::new(function, &function.reverse_postorder());
        let ops = function.definitions();
        let mut live: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
        let inside = |block: Block| block == one.header || one.blocks.contains(&block);
        for block in one.blocks.iter().chain([&one.header]) {
            let data = &function.blocks[*block];
            let operands = data.insts.iter().flat_map(|inst| inst.op.operands()).chain(data.term.operands());
            let mut read: BTreeSet<Value> =
                operands.filter_map(|operand| self.pointer_of(&ops, operand)).collect();
            read.retain(|value| self.changing[value].block != *block);
            if data.term.successors().any(|to| !inside(to)) {
                let is_there = |value: &&Value| {
                    let own = self.changing[*value].block;
                    own != *block && dominators.dominates(own, *block)
                };
                read.extend(used.iter().filter(is_there));
            }
            live.insert(*block, read);
        }
        let mut changes = true;
        while changes {
            changes = false;
            for block in one.blocks.iter().chain([&one.header]) {
                let data = &function.blocks[*block];
                let after = data.term.successors().filter_map(|to| live.get(&to)).flatten().copied();
                let after: Vec<Value> = after.filter(|value| self.changing[value].block != *block).collect();
                let Some(before) = live.get_mut(block) else { continue };
                let count = before.len();
                before.extend(after);
                changes |= before.len() > count;
            }
        }
        live
    }
}
