//! How control goes through a function: worked out once for all passes that leave its blocks and branches as they are.

use super::callbacks::has_iterator_in;
use super::outline::turn_entries;
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Function, WaysIn};

/// The ways through a function.
pub struct Flow {
    /// The blocks that can be reached, in reverse postorder.
    pub order: Vec<Block>,
    /// Where they are reached from.
    pub ways_in: WaysIn,
    /// Which of them every way to another leads through.
    pub dominators: Dominators,
    /// For each block the turn of an iterator that it is in, which goes by the block that it starts with; the innermost
    /// counts. `None` if the function has no iterators.
    pub turns: Option<IndexVec<Block, Option<Block>>>,
}

impl Flow {
    /// Looks at a function.
    pub fn new(function: &Function) -> Flow {
        let flow = Flow::without_turns(function);
        let iterates = has_iterator_in(function, &flow.order);
        Flow { turns: iterates.then(|| turns(function, &flow)), ..flow }
    }

    /// Looks at a function, but not at its iterators.
    pub fn without_turns(function: &Function) -> Flow {
        let order = function.reverse_postorder();
        let ways_in = function.ways_in(&order);
        let dominators = Dominators::of(&order, &ways_in);
        Flow { order, ways_in, dominators, turns: None }
    }

    /// Whether this is still how control goes through the function.
    pub fn is_of(&self, function: &Function) -> bool {
        let order = function.reverse_postorder();
        order == self.order && function.ways_in(&order) == self.ways_in
    }
}

fn turns(function: &Function, flow: &Flow) -> IndexVec<Block, Option<Block>> {
    let mut turns: IndexVec<Block, Option<Block>> = function.blocks.iter().map(|_| None).collect();
    let entries = turn_entries(function, &flow.order, &flow.ways_in, &flow.dominators);
    entries.for_each(|entry| turns[entry] = Some(entry));
    for block in &flow.order {
        let around = flow.dominators.immediate(*block).and_then(|above| turns[above]);
        turns[*block] = turns[*block].or(around);
    }
    turns
}
