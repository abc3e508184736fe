//! The iteration of an iterator in which each value is defined.
//!
//! At the start of each iteration the verifier forgets a number from before, if it has not needed it yet and
//! another copy of the number is gone by then (`widen_imprecise_scalars` in kernel/bpf/verifier.c, v6.12). So
//! whatever proves the bounds of a number that an address depends on has to be in the same iteration.

use crate::index::IndexVec;
use crate::kernel::mir::flow::{Flow, IterationId};
use crate::kernel::mir::{Block, MirFunction, Value};

/// The iterations of a function's iterators. The code before a loop and the code after it count as iterations
/// of their own.
pub struct Iterations<'a>(Option<IterationTable<'a>>);

struct IterationTable<'a> {
    blocks: &'a IndexVec<Block, IterationId>,
    values: IndexVec<Value, IterationId>,
}

impl Iterations<'_> {
    /// Computes the iterations of a function; block parameters count as defined in the first one.
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

    /// Adds a new value of a block; `None` means the function's start.
    pub fn add(&mut self, block: Option<Block>) {
        if let Some(IterationTable { blocks, values }) = &mut self.0 {
            values.push(block.map_or(IterationId::FIRST, |block| blocks[block]));
        }
    }

    /// Whether a value, defined in a dominator of a block, is defined in the same iteration.
    pub fn defined_in_iteration_of(&self, block: Block, value: Value) -> bool {
        self.0.as_ref().is_none_or(|table| table.values[value] == table.blocks[block])
    }

    /// Whether two blocks, one of which dominates the other, are in the same iteration.
    pub fn same_iteration(&self, above: Block, below: Block) -> bool {
        self.0.as_ref().is_none_or(|table| table.blocks[above] == table.blocks[below])
    }
}
