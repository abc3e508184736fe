//! Clears, at the start of each iteration, the stack slots that only the iteration uses.
//!
//! The verifier follows a loop under an iterator until a state repeats at the call that asks for the next item.
//! It compares all bytes of the frame then, those too that nobody reads any more: what the paths through the
//! body leave there would distinguish all later iterations. Source: kernel/bpf/verifier.c, `is_state_visited`
//! and `stacksafe`, 6.4 to 6.18. `emit::dead_slots` does the same for spilled registers.

use std::collections::BTreeSet;

use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::loops;
use crate::kernel::mir::loop_iterators::LoopIterator;
use crate::kernel::mir::{Block, MirFunction, Op, Origin, Slot, Type};

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut MirFunction) -> bool {
    let iterators: BTreeSet<Slot> = LoopIterator::all(function).iter().map(|one| one.slot).collect();
    if iterators.is_empty() || function.slots.len() == iterators.len() {
        return false;
    }
    let order = function.reverse_postorder();
    let dominators = Dominators::of(&order, &function.predecessors(&order));
    let used = users(function, &order);
    let mut changed = false;
    for one in loops(function) {
        let is_own = |users: &Vec<Block>| {
            users.iter().any(|block| one.blocks.contains(block))
                && users.iter().all(|block| dominators.dominates(one.entry, *block))
        };
        let own = used.iter_enumerated().filter(|(slot, users)| !iterators.contains(slot) && is_own(users));
        let own: Vec<Slot> = own.map(|(slot, _)| slot).collect();
        own.iter().for_each(|slot| clear(function, one.header, *slot));
        changed |= !own.is_empty();
    }
    changed
}

/// The blocks that use each slot.
fn users(function: &MirFunction, order: &[Block]) -> IndexVec<Slot, Vec<Block>> {
    let ops = function.definitions();
    let mut users: IndexVec<Slot, Vec<Block>> = function.slots.iter().map(|_| Vec::new()).collect();
    for block in order {
        let data = &function.blocks[*block];
        let operands = data.insts.iter().flat_map(|inst| inst.op.operands()).chain(data.term.operands());
        for value in operands {
            if let Some(Op::StackAddr { slot, .. }) = ops[value] {
                users[*slot].push(*block);
            }
        }
    }
    users
}

/// Stores zeros in the words of a slot, at the start of a block. No other slot has bytes in its last word.
fn clear(function: &mut MirFunction, block: Block, slot: Slot) {
    let rest = std::mem::take(&mut function.blocks[block].insts);
    let zero = function.append(block, Type::I64, Op::Const(0));
    for offset in (0..function.slots[slot].size).step_by(8) {
        let word = function.append(block, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset });
        function.append_store(block, zero, word, 0);
    }
    function.blocks[block].insts.extend(rest);
}
