//! Control flow facts of a function, computed once for all passes that leave its blocks and branches
//! unchanged.

use std::cell::OnceCell;

use smallvec::{SmallVec, smallvec};

use super::dominators::Dominators;
use super::iterator_loops::{headers, iteration_entries};
use super::loop_iterators::has_iterator_in;
use super::{Block, MirFunction, Predecessors};
use crate::index::IndexVec;

/// The control flow of a function.
pub struct Flow {
    /// The reachable blocks, in reverse postorder.
    pub order: Vec<Block>,
    /// The reachable predecessors of each block, once for each edge.
    pub predecessors: Predecessors,
    /// The dominator tree of the reachable blocks.
    pub dominators: Dominators,
    iterations: OnceCell<Option<IndexVec<Block, IterationId>>>,
}

/// A region of code in which the verifier passes no call of an iterator's `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IterationId {
    /// The first block of the innermost iteration that the code is in; `None` outside of loops.
    entry: Option<Block>,
    /// The number of `next` calls on paths to here: code after a loop is in another region than the code
    /// before it.
    asked: u32,
}

impl Flow {
    /// Computes the control flow of a function.
    pub fn new(function: &MirFunction) -> Flow {
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let dominators = Dominators::of(&order, &predecessors);
        Flow { order, predecessors, dominators, iterations: OnceCell::new() }
    }

    /// The iteration that each block is in; `None` if the function has no iterators.
    pub fn iterations(&self, function: &MirFunction) -> Option<&IndexVec<Block, IterationId>> {
        let find = || has_iterator_in(function, &self.order).then(|| iterations(function, self));
        self.iterations.get_or_init(find).as_ref()
    }

    /// Whether this is still the control flow of the function.
    pub fn is_of(&self, function: &MirFunction) -> bool {
        let order = function.reverse_postorder();
        order == self.order && function.predecessors(&order) == self.predecessors
    }
}

impl IterationId {
    /// The region of the function's start.
    pub const FIRST: IterationId = IterationId { entry: None, asked: 0 };
}

fn iterations(function: &MirFunction, flow: &Flow) -> IndexVec<Block, IterationId> {
    let asked = asked_before(function, flow);
    let iteration = |asked: &u32| IterationId { entry: None, asked: *asked };
    let mut iterations: IndexVec<Block, IterationId> = asked.iter().map(iteration).collect();
    let entries = iteration_entries(function, &flow.order, &flow.predecessors, &flow.dominators);
    entries.for_each(|entry| iterations[entry].entry = Some(entry));
    for block in &flow.order {
        let around = flow.dominators.immediate(*block).and_then(|above| iterations[above].entry);
        iterations[*block].entry = iterations[*block].entry.or(around);
    }
    iterations
}

/// For each block, the number of blocks with a `next` call from which it is reached, back edges left out. If
/// one of two blocks dominates the other, equal numbers mean that no `next` call is between them: every call
/// that reaches the upper block reaches the lower one, too.
fn asked_before(function: &MirFunction, flow: &Flow) -> IndexVec<Block, u32> {
    let mut numbers: IndexVec<Block, Option<usize>> = function.blocks.iter().map(|_| None).collect();
    for (number, header) in headers(function, &flow.order).enumerate() {
        numbers[header] = Some(number);
    }
    let words = flow.order.iter().filter(|block| numbers[**block].is_some()).count().div_ceil(64);
    let mut sets: IndexVec<Block, SmallVec<[u64; 1]>> =
        function.blocks.iter().map(|_| SmallVec::new()).collect();
    for block in &flow.order {
        let mut set = smallvec![0; words];
        for from in flow.predecessors[*block].iter().filter(|from| !flow.dominators.dominates(*block, **from))
        {
            set.iter_mut().zip(&sets[*from]).for_each(|(word, other)| *word |= other);
            if let Some(number) = numbers[*from] {
                set[number / 64] |= 1 << (number % 64);
            }
        }
        sets[*block] = set;
    }
    sets.iter().map(|set| set.iter().map(|word| word.count_ones()).sum()).collect()
}
