//! Which values are made in which turn of an iterator.
//!
//! The verifier forgets at the start of each turn what a number from before is, if it has not needed it yet and another copy
//! of the number is gone by then (`widen_imprecise_scalars` in kernel/bpf/verifier.c, v6.12). So what shows it the bounds of
//! a number that an address depends on has to be in the same turn.

use super::{has_iterator, outline};
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Function, Value};

/// The turns of a function's iterators. A turn goes by the block that it starts with, the innermost counts, and what is in
/// none is in one of its own.
pub struct Turns {
    blocks: IndexVec<Block, Option<Block>>,
    values: IndexVec<Value, Option<Block>>,
}

impl Turns {
    /// Those of a function; block parameters count as made in no turn.
    pub fn new(function: &Function) -> Turns {
        let mut blocks: IndexVec<Block, Option<Block>> = function.blocks.iter().map(|_| None).collect();
        let mut values: IndexVec<Value, Option<Block>> = function.values.iter().map(|_| None).collect();
        if !has_iterator(function) {
            return Turns { blocks, values };
        }
        outline::loops(function).iter().for_each(|one| blocks[one.entry] = Some(one.entry));
        let order = function.reverse_postorder();
        let dominators = Dominators::new(function, &order);
        for block in order {
            let around = dominators.immediate(block).and_then(|above| blocks[above]);
            blocks[block] = blocks[block].or(around);
            let results = function.blocks[block].insts.iter().filter_map(|inst| inst.result);
            results.for_each(|value| values[value] = blocks[block]);
        }
        Turns { blocks, values }
    }

    /// Notes a new value of a block; of the function's start, if there is none.
    pub fn add(&mut self, block: Option<Block>) {
        self.values.push(block.and_then(|block| self.blocks[block]));
    }

    /// Whether a value above a block is made in the same turn.
    pub fn made_in_that_of(&self, block: Block, value: Value) -> bool {
        self.values[value] == self.blocks[block]
    }

    /// Whether two blocks, one above the other, are in the same turn.
    pub fn are_one(&self, above: Block, below: Block) -> bool {
        self.blocks[above] == self.blocks[below]
    }
}
