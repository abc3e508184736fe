//! Code sinking: moves an arithmetic instruction whose result only one successor of its block uses to the start
//! of that successor, so that the other paths do not execute it.
//!
//! Missing compared with the standard algorithm: only successors with one predecessor are considered (no loop
//! header is one), only arithmetic, and only if at most one operand is in a register, so that no more values
//! are live at the branch than before.

use crate::index::IndexVec;
use crate::kernel::mir::{Block, MirFunction, Op, Terminator, Value};

/// Runs code sinking; returns whether anything changed.
pub fn run(function: &mut MirFunction) -> bool {
    let predecessors = predecessors(function);
    let leaves = leaves(function);
    let mut uses = uses(function);
    let mut changed = false;
    for block in function.blocks.ids() {
        let Terminator::Branch { then, otherwise, .. } = &function.blocks[block].term else { continue };
        let targets = [then.block, otherwise.block];
        // Backwards, so that an instruction that only sunk ones read is sunk, too.
        for at in (0..function.blocks[block].insts.len()).rev() {
            let inst = &function.blocks[block].insts[at];
            let Some(result) = inst.result.filter(|_| is_arithmetic(&inst.op)) else { continue };
            let Some(to) = only_block(&uses[result]).filter(|to| targets.contains(to)) else { continue };
            let in_registers = inst.op.operands().iter().filter(|operand| !leaves[**operand]).count();
            if predecessors[to] != 1 || in_registers > 1 {
                continue;
            }
            let inst = function.blocks[block].insts.remove(at);
            inst.op.each_operand(|operand| {
                let here = uses[operand].iter_mut().find(|user| **user == block);
                here.into_iter().for_each(|user| *user = to);
            });
            function.blocks[to].insts.insert(0, inst);
            changed = true;
        }
    }
    changed
}

fn is_arithmetic(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary(..)
            | Op::Narrow { .. }
            | Op::SwapBytes { .. }
            | Op::SignExtend(_)
            | Op::ZeroExtend(_)
            | Op::Truncate(_)
    )
}

/// The number of edges that enter each block.
fn predecessors(function: &MirFunction) -> IndexVec<Block, usize> {
    let mut found: IndexVec<Block, usize> = function.blocks.iter().map(|_| 0).collect();
    for block in function.blocks.iter() {
        block.term.targets().into_iter().for_each(|target| found[target.block] += 1);
    }
    found
}

/// The values that instruction selection computes again at their uses, so that they need no register.
fn leaves(function: &MirFunction) -> IndexVec<Value, bool> {
    let mut found: IndexVec<Value, bool> = function.values.iter().map(|_| false).collect();
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        if let Some(result) = inst.result {
            found[result] = inst.op.is_leaf();
        }
    }
    found
}

/// For each value the block of each use.
fn uses(function: &MirFunction) -> IndexVec<Value, Vec<Block>> {
    let mut found: IndexVec<Value, Vec<Block>> = function.values.iter().map(|_| Vec::new()).collect();
    for (block, data) in function.blocks.iter_enumerated() {
        data.insts.iter().for_each(|inst| inst.op.each_operand(|operand| found[operand].push(block)));
        let passed = data.term.targets().into_iter().flat_map(|target| target.args.iter().copied());
        passed.for_each(|argument| found[argument].push(block));
        match data.term {
            Terminator::Branch { cond: value, .. } | Terminator::Return(value) => found[value].push(block),
            Terminator::Jump(_) => {}
        }
    }
    found
}

/// The block that has all uses; none if there is no use, or if several blocks have some.
fn only_block(uses: &[Block]) -> Option<Block> {
    let (first, others) = uses.split_first()?;
    others.iter().all(|other| other == first).then_some(*first)
}
