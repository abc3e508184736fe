//! Simplifies control flow: branches on constants, jumps to jumps, blocks with one predecessor that only jumps there.

use super::Replacements;
use crate::index::IndexVec;
use crate::kernel::mir::{Block, Function, Op, Target, Terminator};

/// Runs the pass; gives whether anything changed.
pub fn run(function: &mut Function) -> bool {
    let mut changed = constant_branches(function);
    changed |= forward_jumps(function);
    changed |= merge_blocks(function);
    clear_unreachable(function) || changed
}

fn constant_branches(function: &mut Function) -> bool {
    let mut found = Vec::new();
    let definitions = function.definitions();
    for (id, block) in function.blocks.iter_enumerated() {
        if let Terminator::Branch { cond, then, otherwise } = &block.term
            && let Some(Op::Const(bits)) = definitions[*cond]
        {
            let target = if *bits != 0 { then } else { otherwise };
            found.push((id, target.clone()));
        }
    }
    for (id, target) in &found {
        function.blocks[*id].term = Terminator::Jump(target.clone());
    }
    !found.is_empty()
}

/// Where a jump to the block ends up, through blocks that hold nothing but a jump.
fn destination(function: &Function, target: &Target) -> Option<Target> {
    let mut current = target.clone();
    // A loop of empty blocks has no destination.
    for _ in 0..function.blocks.len() {
        let block = &function.blocks[current.block];
        match &block.term {
            Terminator::Jump(next) if block.insts.is_empty() && block.params.is_empty() => {
                current = next.clone();
            }
            _ => return (current != *target).then_some(current),
        }
    }
    None
}

fn forward_jumps(function: &mut Function) -> bool {
    let mut changed = false;
    for id in function.reverse_postorder() {
        let mut term = function.blocks[id].term.clone();
        let before = term.clone();
        for target in term.targets_mut() {
            if let Some(new) = destination(function, target) {
                *target = new;
            }
        }
        term = match term {
            Terminator::Branch { then, otherwise, .. } if then == otherwise => Terminator::Jump(then),
            // Two ways into one block with different arguments need their own blocks.
            Terminator::Branch { ref then, ref otherwise, .. } if then.block == otherwise.block => continue,
            other => other,
        };
        if term != before {
            function.blocks[id].term = term;
            changed = true;
        }
    }
    changed
}

/// Appends a block to its only predecessor if that only jumps there.
fn merge_blocks(function: &mut Function) -> bool {
    let order = function.reverse_postorder();
    let mut predecessors: IndexVec<Block, usize> = function.blocks.iter().map(|_| 0).collect();
    for target in order.iter().flat_map(|block| function.blocks[*block].term.targets()) {
        predecessors[target.block] += 1;
    }
    let mut replacements = Replacements::new(function);
    let mut merged = false;
    let mut gone: IndexVec<Block, bool> = function.blocks.iter().map(|_| false).collect();
    for id in order {
        if gone[id] {
            continue;
        }
        while let Terminator::Jump(target) = function.blocks[id].term.clone() {
            if predecessors[target.block] != 1 || target.block == id || target.block == function.entry() {
                break;
            }
            let next = function.blocks[target.block].clone();
            for (param, arg) in next.params.iter().zip(&target.args) {
                replacements.replace(*param, *arg);
            }
            let block = &mut function.blocks[id];
            block.insts.extend(next.insts);
            block.term = next.term;
            block.span = next.span;
            gone[target.block] = true;
            merged = true;
            let emptied = &mut function.blocks[target.block];
            emptied.insts.clear();
            emptied.params.clear();
            emptied.term = Terminator::Jump(Target::to(target.block));
        }
    }
    replacements.apply(function);
    merged
}

/// What cannot be reached keeps no instructions, so that it keeps no value alive either.
fn clear_unreachable(function: &mut Function) -> bool {
    let mut reached: IndexVec<Block, bool> = function.blocks.iter().map(|_| false).collect();
    for block in function.reverse_postorder() {
        reached[block] = true;
    }
    let mut changed = false;
    for id in function.blocks.ids().filter(|id| !reached[*id]) {
        let block = &mut function.blocks[id];
        changed |= !block.insts.is_empty() || !block.params.is_empty();
        block.insts.clear();
        block.params.clear();
        block.term = Terminator::Jump(Target::to(id));
    }
    changed
}
