//! Finds spill slots that nobody reads any more, and that would distinguish paths through a loop.
//!
//! The verifier follows a loop under an iterator until a state repeats at the call that asks for the next item.
//! It compares all stack slots then, those too that nobody reads any more, and one that was not yet written in the
//! first iteration differs from one that was. So what each path through the body leaves there is a state of its
//! own, and each is followed from there. Cleared slots are the same in all of them. The same holds where paths meet
//! in the body, but a few of them do no harm. Source: kernel/bpf/verifier.c, `is_state_visited` and `stacksafe`, 6.4
//! to 6.18. `pass::dead_slots` does the same for slots of the script.

use std::collections::BTreeSet;

use super::super::isel::{InstKind, IselFunction, Target};
use super::super::mir::Kfunc;
use super::super::regalloc::{Move, Registers, ValueLocation};
use super::super::verifier::code::may_iterate;

/// The slots to clear at the start of each block. `first_inst` holds the number of each block's first instruction.
pub fn cleared(function: &IselFunction, registers: &Registers, first_inst: &[usize]) -> Vec<BTreeSet<usize>> {
    let blocks = 0..function.blocks.len();
    let none = vec![BTreeSet::new(); blocks.len()];
    let headers: Vec<usize> = blocks.clone().filter(|at| asks(function, *at)).collect();
    if headers.is_empty() || registers.spill_slots == 0 {
        return none;
    }
    let predecessors = function.predecessors();
    let (mut in_loops, mut meetings) = (BTreeSet::new(), BTreeSet::from_iter(headers.iter().copied()));
    for header in headers {
        let iteration = iteration(function, &predecessors, header);
        let branches = iteration.iter().filter(|block| function.blocks[**block].successors.len() > 1);
        if !may_iterate(branches.count()) {
            meetings.extend(iteration.iter().filter(|block| predecessors[**block].len() > 1));
        }
        in_loops.extend(iteration);
    }
    let uses: Vec<Uses> = blocks.map(|at| Uses::new(function, registers, first_inst, at)).collect();
    let live = live_at_start(function, &uses);
    // What the paths of a loop have written and not cleared since, at the start of each block.
    let (mut dirty, mut changed) = (none, true);
    while changed {
        changed = false;
        for block in &in_loops {
            let kept =
                dirty[*block].iter().filter(|slot| !meetings.contains(block) || live[*block].contains(slot));
            let left: BTreeSet<usize> = kept.chain(&uses[*block].written).copied().collect();
            for successor in function.blocks[*block].successors.iter().filter(|to| in_loops.contains(to)) {
                for slot in &left {
                    changed |= dirty[*successor].insert(*slot);
                }
            }
        }
    }
    for (block, slots) in dirty.iter_mut().enumerate() {
        slots.retain(|slot| meetings.contains(&block) && !live[block].contains(slot));
    }
    dirty
}

fn asks(function: &IselFunction, block: usize) -> bool {
    let next = Target::Kfunc(Kfunc::IterNumNext);
    let mut insts = function.blocks[block].insts.iter();
    insts.any(|inst| matches!(inst.kind, InstKind::Call { target, .. } if target == next))
}

/// The spill slots that a block uses.
#[derive(Default)]
struct Uses {
    /// Read before the block writes them.
    read: BTreeSet<usize>,
    written: BTreeSet<usize>,
}

impl Uses {
    fn new(function: &IselFunction, registers: &Registers, first_inst: &[usize], block: usize) -> Uses {
        let mut uses = Uses::default();
        for number in (first_inst[block]..).take(function.blocks[block].insts.len()) {
            registers.before[number].iter().chain(&registers.after[number]).for_each(|one| uses.moved(*one));
        }
        uses
    }

    fn moved(&mut self, moved: Move) {
        if let ValueLocation::Spill(slot) = moved.from
            && !self.written.contains(&slot)
        {
            self.read.insert(slot);
        }
        if let ValueLocation::Spill(slot) = moved.to {
            self.written.insert(slot);
        }
    }
}

/// The slots that hold a value at the start of each block which is read later.
fn live_at_start(function: &IselFunction, uses: &[Uses]) -> Vec<BTreeSet<usize>> {
    let mut live: Vec<BTreeSet<usize>> = uses.iter().map(|uses| uses.read.clone()).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for (at, block) in function.blocks.iter().enumerate().rev() {
            for successor in &block.successors {
                let passed: Vec<usize> = live[*successor].difference(&uses[at].written).copied().collect();
                for slot in passed {
                    changed |= live[at].insert(slot);
                }
            }
        }
    }
    live
}

/// The blocks from which the next iteration is reached, and that are reached from its start.
fn iteration(function: &IselFunction, predecessors: &[Vec<usize>], header: usize) -> BTreeSet<usize> {
    let closure = |next: &dyn Fn(usize) -> Vec<usize>| {
        let (mut found, mut open) = (BTreeSet::from([header]), vec![header]);
        while let Some(block) = open.pop() {
            open.extend(next(block).into_iter().filter(|one| found.insert(*one)));
        }
        found
    };
    let after = closure(&|block| function.blocks[block].successors.clone());
    let before = closure(&|block| predecessors[block].clone());
    after.intersection(&before).copied().collect()
}
