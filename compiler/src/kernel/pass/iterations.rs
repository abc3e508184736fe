//! Which values are made in which turn of an iterator.
//!
//! The verifier forgets at the start of each turn what a number from before is, if it has not needed it yet and another copy
//! of the number is gone by then (`widen_imprecise_scalars` in kernel/bpf/verifier.c, v6.12). So what shows it the bounds of
//! a number that an address depends on has to be in the same turn.

use super::flow::{Flow, IterationId};
use crate::index::IndexVec;
use crate::kernel::mir::{Block, MirFunction, Value};

/// The turns of a function's iterators. What is before a loop, and what is behind it, are turns of their own.
pub struct Iterations<'a>(Option<IterationTable<'a>>);

struct IterationTable<'a> {
    blocks: &'a IndexVec<Block, IterationId>,
    values: IndexVec<Value, IterationId>,
}

impl Iterations<'_> {
    /// Those of a function; block parameters count as made in the first turn.
    pub fn new<'a>(function: &MirFunction, flow: &'a Flow) -> Iterations<'a> {
        let table = flow.iterations(function).map(|blocks| {
            let mut values: IndexVec<Value, IterationId> =
                function.values.iter().map(|_| IterationId::FIRST).collect();
            for block in &flow.order {
                let results = function.blocks[*block].insts.iter().filter_map(|inst| inst.result);
                results.for_each(|value| values[value] = blocks[*block]);
            }
            IterationTable { blocks, values }
        });
        Iterations(table)
    }

    /// Notes a new value of a block; of the function's start, if there is none.
    pub fn add(&mut self, block: Option<Block>) {
        if let Some(IterationTable { blocks, values }) = &mut self.0 {
            values.push(block.map_or(IterationId::FIRST, |block| blocks[block]));
        }
    }

    /// Whether a value above a block is made in the same turn.
    pub fn defined_in_iteration_of(&self, block: Block, value: Value) -> bool {
        self.0.as_ref().is_none_or(|table| table.values[value] == table.blocks[block])
    }

    /// Whether two blocks, one above the other, are in the same turn.
    pub fn same_iteration(&self, above: Block, below: Block) -> bool {
        self.0.as_ref().is_none_or(|table| table.blocks[above] == table.blocks[below])
    }
}
