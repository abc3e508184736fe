//! Dominator tree.
//!
//! The method is that of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001).

use super::{Block, MirFunction, Predecessors};
use crate::index::IndexVec;

/// The immediate dominators of the reachable blocks.
#[derive(Debug, Clone)]
pub struct Dominators {
    order: Vec<Block>,
    /// The position in reverse postorder; `None` if unreachable.
    position: IndexVec<Block, Option<usize>>,
    /// The immediate dominator of each position; the entry's is itself.
    immediate: Vec<usize>,
}

impl Dominators {
    /// Computes the dominators; `order` is the function's reverse postorder.
    pub fn new(function: &MirFunction, order: &[Block]) -> Dominators {
        Dominators::of(order, &function.predecessors(order))
    }

    /// Computes the dominators from known predecessors.
    pub fn of(order: &[Block], predecessors: &Predecessors) -> Dominators {
        let mut position: IndexVec<Block, Option<usize>> = (0..predecessors.len()).map(|_| None).collect();
        for (at, block) in order.iter().enumerate() {
            position[*block] = Some(at);
        }
        let mut immediate: Vec<Option<usize>> = vec![None; order.len()];
        immediate[0] = Some(0);
        let mut changed = true;
        while changed {
            changed = false;
            for at in 1..order.len() {
                let before = predecessors[order[at]].iter().filter_map(|from| position[*from]);
                let known = before.filter(|from| immediate[*from].is_some());
                let new = known.reduce(|a, b| common(&immediate, a, b));
                changed |= new != immediate[at];
                immediate[at] = new;
            }
        }
        let immediate = immediate.into_iter().map(Option::unwrap_or_default).collect();
        Dominators { order: order.to_vec(), position, immediate }
    }

    /// Whether every path to `below` goes through `above`; true if both are the same block. False for
    /// unreachable blocks.
    pub fn dominates(&self, above: Block, below: Block) -> bool {
        let (Some(above), Some(mut below)) = (self.position[above], self.position[below]) else {
            return false;
        };
        while below > above {
            below = self.immediate[below];
        }
        below == above
    }

    /// The immediate dominator of a block; `None` for the entry.
    pub fn immediate(&self, block: Block) -> Option<Block> {
        let at = self.position.get(block).copied().flatten()?;
        (at != 0).then(|| self.order[self.immediate[at]])
    }
}

fn common(immediate: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        if a > b {
            a = immediate[a].unwrap_or_default();
        } else {
            b = immediate[b].unwrap_or_default();
        }
    }
    a
}
