//! Which blocks belong to a turn: those of the loop, and those behind it that use a pointer which the turn
//! has made, or give a helper of the kernel a size that it has checked: of neither the verifier would know
//! anything there.

use std::collections::BTreeSet;

use super::capture::is_checked;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Callee, KeptReason, MirFunction, Op, Type, Value};
use crate::kernel::pass::outline::{Loop, split};
use crate::kernel::pass::reachable_predecessors;

/// Whether an operation can be rematerialised after a loop. The context that a packet edge is loaded from is
/// defined before the loop.
pub fn can_be_anywhere(op: &Op) -> bool {
    op.is_leaf() || matches!(op, Op::PacketEdge { .. })
}

/// Takes the blocks on the ways out of a loop into it as far as they use pointers that it makes, such as a
/// record that is given back there, or sizes that it checks.
pub fn take_pointers(function: &mut MirFunction, one: &mut Loop) -> Result<(), KeptReason> {
    let order = function.reverse_postorder();
    let predecessors = reachable_predecessors(function);
    let dominators = Dominators::new(function, &order);
    let mut taken = BTreeSet::new();
    let sizes = sizes(function, &order);
    loop {
        let pointers = pointers(function, one, &sizes);
        let outside = |block: &&Block| !one.blocks.contains(block) && **block != one.header;
        let needs = |block: &&Block| last_use(function, **block, &pointers).is_some();
        let gets = |block: &&Block| receives(function, one, **block, &pointers);
        let wanted: Vec<Block> =
            order.iter().filter(outside).filter(|block| needs(block) || gets(block)).copied().collect();
        if wanted.is_empty() {
            break;
        }
        if !wanted.iter().all(|block| dominators.dominates(one.entry, *block)) {
            return Err(KeptReason::Pointer);
        }
        let mut open = wanted;
        while let Some(block) = open.pop() {
            if one.blocks.insert(block) {
                taken.insert(block);
                open.extend(&predecessors[block]);
            }
        }
    }
    let pointers = pointers(function, one, &sizes);
    for block in taken {
        let goes_on = function.blocks[block].term.targets().iter().any(|to| one.blocks.contains(&to.block));
        if !goes_on {
            let behind = last_use(function, block, &pointers).map_or(0, |last| last + 1);
            split(function, block, behind);
        }
    }
    Ok(())
}

/// The numbers made of checks that functions of the kernel are given: sizes, and others, which do no harm.
fn sizes(function: &MirFunction, order: &[Block]) -> BTreeSet<Value> {
    let ops = function.definitions();
    let calls = order.iter().flat_map(|block| &function.blocks[*block].insts);
    let given = calls.filter_map(|inst| match &inst.op {
        Op::Call { callee: Callee::External(_), args } => Some(args),
        _ => None,
    });
    given.flatten().copied().filter(|value| ops[*value].is_some_and(|op| is_checked(&ops, op))).collect()
}

/// The pointers that a turn makes, but for those that can be made anywhere, and the sizes.
fn pointers(function: &MirFunction, one: &Loop, sizes: &BTreeSet<Value>) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    for data in one.blocks.iter().map(|block| &function.blocks[*block]) {
        found.extend(&data.params);
        found.extend(
            data.insts.iter().filter(|inst| !can_be_anywhere(&inst.op)).filter_map(|inst| inst.result),
        );
    }
    found.retain(|value| matches!(function.values[*value], Type::Ptr(_)) || sizes.contains(value));
    found
}

fn last_use(function: &MirFunction, block: Block, pointers: &BTreeSet<Value>) -> Option<usize> {
    let insts = &function.blocks[block].insts;
    insts.iter().rposition(|inst| inst.op.operands().iter().any(|value| pointers.contains(value)))
}

/// Whether the loop passes one of its pointers to a block.
fn receives(function: &MirFunction, one: &Loop, block: Block, pointers: &BTreeSet<Value>) -> bool {
    let targets = one.blocks.iter().flat_map(|from| function.blocks[*from].term.targets());
    let mut here = targets.filter(|target| target.block == block);
    here.any(|target| target.args.iter().any(|arg| pointers.contains(arg)))
}
