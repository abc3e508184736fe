//! How control goes through a function: worked out once for all passes that leave its blocks and branches as they are.

use smallvec::SmallVec;

use super::callbacks::has_iterator_in;
use super::outline::loops_in;
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Function};

/// For each block, those that lead to it and can be reached themselves, once for each way.
pub type WaysIn = IndexVec<Block, SmallVec<[Block; 2]>>;

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
        let order = function.reverse_postorder();
        let ways_in = ways_in(function, &order);
        let dominators = Dominators::new(function, &order);
        let iterates = has_iterator_in(function, &order);
        let turns = iterates.then(|| turns(function, &order, &ways_in, &dominators));
        Flow { order, ways_in, dominators, turns }
    }

    /// Whether this is still how control goes through the function.
    pub fn is_of(&self, function: &Function) -> bool {
        let order = function.reverse_postorder();
        order == self.order && ways_in(function, &order) == self.ways_in
    }
}

/// The blocks that lead to each block, of those in the function's reverse postorder.
pub fn ways_in(function: &Function, order: &[Block]) -> WaysIn {
    let mut found: WaysIn = function.blocks.iter().map(|_| SmallVec::new()).collect();
    for from in order {
        for target in function.blocks[*from].term.targets() {
            found[target.block].push(*from);
        }
    }
    found
}

fn turns(
    function: &Function,
    order: &[Block],
    ways_in: &WaysIn,
    dominators: &Dominators,
) -> IndexVec<Block, Option<Block>> {
    let mut turns: IndexVec<Block, Option<Block>> = function.blocks.iter().map(|_| None).collect();
    let loops = loops_in(function, order, ways_in, dominators);
    loops.iter().for_each(|one| turns[one.entry] = Some(one.entry));
    for block in order {
        let around = dominators.immediate(*block).and_then(|above| turns[above]);
        turns[*block] = turns[*block].or(around);
    }
    turns
}
