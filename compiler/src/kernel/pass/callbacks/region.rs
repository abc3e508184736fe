//! Which blocks belong to a turn: those of the loop, and those behind it that use a pointer which the turn has made.

use std::collections::BTreeSet;

use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Function, Kept, Type, Value};
use crate::kernel::pass::outline::{Loop, split};
use crate::kernel::pass::predecessors;

/// Takes the blocks on the ways out of a loop into it as far as they use pointers that it makes, such as a record that is
/// given back there.
pub fn take_pointers(function: &mut Function, one: &mut Loop) -> Result<(), Kept> {
    let order = function.reverse_postorder();
    let ways_in = predecessors(function);
    let dominators = Dominators::new(function, &order);
    let mut taken = BTreeSet::new();
    loop {
        let pointers = pointers(function, one);
        let outside = |block: &&Block| !one.blocks.contains(block) && **block != one.header;
        let needs = |block: &&Block| last_use(function, **block, &pointers).is_some();
        let gets = |block: &&Block| receives(function, one, **block, &pointers);
        let wanted: Vec<Block> =
            order.iter().filter(outside).filter(|block| needs(block) || gets(block)).copied().collect();
        if wanted.is_empty() {
            break;
        }
        if !wanted.iter().all(|block| dominators.dominates(one.entry, *block)) {
            return Err(Kept::Pointer);
        }
        let mut open = wanted;
        while let Some(block) = open.pop() {
            if one.blocks.insert(block) {
                taken.insert(block);
                open.extend(&ways_in[block]);
            }
        }
    }
    let pointers = pointers(function, one);
    for block in taken {
        let goes_on = function.blocks[block].term.targets().iter().any(|to| one.blocks.contains(&to.block));
        if !goes_on {
            let behind = last_use(function, block, &pointers).map_or(0, |last| last + 1);
            split(function, block, behind);
        }
    }
    Ok(())
}

/// The pointers that a turn makes, but for those that can be made anywhere.
fn pointers(function: &Function, one: &Loop) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    for data in one.blocks.iter().map(|block| &function.blocks[*block]) {
        found.extend(&data.params);
        found.extend(data.insts.iter().filter(|inst| !inst.op.is_leaf()).filter_map(|inst| inst.result));
    }
    found.retain(|value| matches!(function.values[*value], Type::Ptr(_)));
    found
}

fn last_use(function: &Function, block: Block, pointers: &BTreeSet<Value>) -> Option<usize> {
    let insts = &function.blocks[block].insts;
    insts.iter().rposition(|inst| inst.op.operands().iter().any(|value| pointers.contains(value)))
}

/// Whether the loop passes one of its pointers to a block.
fn receives(function: &Function, one: &Loop, block: Block, pointers: &BTreeSet<Value>) -> bool {
    let targets = one.blocks.iter().flat_map(|from| function.blocks[*from].term.targets());
    let mut here = targets.filter(|target| target.block == block);
    here.any(|target| target.args.iter().any(|arg| pointers.contains(arg)))
}
