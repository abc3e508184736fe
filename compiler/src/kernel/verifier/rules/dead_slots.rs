//! Clears, at the start of each iteration, the stack slots that only the iteration uses.
//!
//! The verifier follows a loop under an iterator until a state repeats at the call that asks for the next item.
//! It compares all bytes of the frame then, those too that nobody reads any more: what the paths through the
//! body leave there would distinguish all later iterations. Source: kernel/bpf/verifier.c, `is_state_visited`
//! and `stacksafe`, 6.4 to 6.18. Words that the loop does not write are the same in all iterations. `emit::dead_slots` does the
//! same for spilled registers.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::loops;
use crate::kernel::mir::loop_iterators::LoopIterator;
use crate::kernel::mir::{Block, MirFunction, Op, Origin, Slot, Type};
use crate::kernel::pass::alias_analysis::{AliasAnalysis, MemoryLocation, Root};

/// Runs the pass. Returns whether it changed anything.
pub fn run(function: &mut MirFunction) -> bool {
    let iterators: BTreeSet<Slot> = LoopIterator::all(function).iter().map(|one| one.slot).collect();
    if iterators.is_empty() || function.slots.len() == iterators.len() {
        return false;
    }
    let order = function.reverse_postorder();
    let dominators = Dominators::of(&order, &function.predecessors(&order));
    let used = users(function, &order);
    let loops = loops(function);
    let aliases = AliasAnalysis::new(function, &order);
    let written: Vec<_> = loops
        .iter()
        .map(|one| {
            let blocks = one.blocks.iter().chain([&one.header]);
            written(function, &aliases, blocks)
        })
        .collect();
    let mut changed = false;
    for (one, written) in loops.iter().zip(&written) {
        let is_own = |users: &Vec<Block>| {
            users.iter().any(|block| one.blocks.contains(block))
                && users.iter().all(|block| dominators.dominates(one.entry, *block))
        };
        let own = used.iter_enumerated().filter(|(slot, users)| !iterators.contains(slot) && is_own(users));
        let own: Vec<Slot> = own.map(|(slot, _)| slot).collect();
        own.iter().for_each(|slot| clear(function, one.header, *slot, written));
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

/// For each byte of the frame, whether anything in these blocks may write there.
fn written<'b>(
    function: &MirFunction,
    aliases: &AliasAnalysis<'_>,
    blocks: impl Iterator<Item = &'b Block>,
) -> Vec<bool> {
    let mut written = aliases.escaped().to_vec();
    let mut note = |location: MemoryLocation| {
        let mut fill = |bytes: Range<i64>| {
            let byte = |at: i64| usize::try_from(at).unwrap_or(0).min(written.len());
            let range = byte(bytes.start)..byte(bytes.end);
            written[range].fill(true);
        };
        match location.root {
            Root::Frame => fill(location.start..location.end),
            Root::Global(_) => {}
            Root::Pointer(_) => aliases.frame(location).into_iter().flatten().for_each(fill),
        }
    };
    for inst in blocks.flat_map(|block| &function.blocks[*block].insts) {
        match &inst.op {
            Op::Load { .. } => {}
            Op::Call { args, .. } => aliases.arguments(args).for_each(&mut note),
            other => aliases.accessed(other).into_iter().for_each(&mut note),
        }
    }
    written
}

/// Stores zeros in the words of a slot that are written, at the start of a block. No other slot has bytes in its last
/// word.
fn clear(function: &mut MirFunction, block: Block, slot: Slot, written: &[bool]) {
    let rest = std::mem::take(&mut function.blocks[block].insts);
    let zero = function.append(block, Type::I64, Op::Const(0));
    let (position, size) = (function.slots[slot].position as usize, function.slots[slot].size);
    for offset in (0..size).step_by(8) {
        let start = position + offset as usize;
        if !written[start..(start + 8).min(written.len())].contains(&true) {
            continue;
        }
        let word = function.append(block, Type::Ptr(Origin::Stack), Op::StackAddr { slot, offset });
        function.append_store(block, zero, word, 0);
    }
    function.blocks[block].insts.extend(rest);
}
