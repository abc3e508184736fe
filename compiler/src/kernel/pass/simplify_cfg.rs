//! Simplifies control flow: branches on constants, jumps to jumps, and blocks with a single predecessor that
//! only jumps there.

use std::borrow::Cow;

use super::changes::Changes;
use super::rewrite::Replacements;
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, Condition, MirFunction, Op, Target, Terminator, Value};

/// Runs the simplification on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let mut order = Cow::Borrowed(&flow.order);
    let mut changes = Changes::NONE;
    for step in [constant_branches, forward_jumps, redundant_branches, merge_blocks] {
        let changed = step(function, &order);
        if changed.any() {
            changes = changes | changed;
            order = Cow::Owned(function.reverse_postorder());
        }
    }
    changes | Changes::JOINED.when(clear_unreachable(function, &order))
}

fn constant_branches(function: &mut MirFunction, _: &[Block]) -> Changes {
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
    Changes::CONTROL_FLOW.when(!found.is_empty())
}

/// The target of a block that contains nothing but a jump.
fn only_jumps(function: &MirFunction, block: Block) -> Option<&Target> {
    let block = &function.blocks[block];
    match &block.term {
        Terminator::Jump(next) if block.insts.is_empty() && block.params.is_empty() => Some(next),
        _ => None,
    }
}

/// The final target of a jump, through blocks that contain nothing but a jump.
fn destination<'a>(function: &'a MirFunction, target: &'a Target) -> Option<&'a Target> {
    let mut current = target;
    // A loop of empty blocks has no destination.
    for _ in 0..function.blocks.len() {
        match only_jumps(function, current.block) {
            Some(next) => current = next,
            None => return (current != target).then_some(current),
        }
    }
    None
}

fn forward_jumps(function: &mut MirFunction, order: &[Block]) -> Changes {
    let mut changes = Changes::NONE;
    for id in order.iter().copied() {
        let before = &function.blocks[id].term;
        let meet = matches!(before, Terminator::Branch { then, otherwise, .. } if then == otherwise);
        if !meet && before.targets().iter().all(|target| only_jumps(function, target.block).is_none()) {
            continue;
        }
        let mut term = before.clone();
        for target in term.targets_mut() {
            if let Some(new) = destination(function, target).cloned() {
                *target = new;
            }
        }
        term = match term {
            Terminator::Branch { then, otherwise, .. } if then == otherwise => Terminator::Jump(then),
            // Two edges into one block with different arguments need blocks of their own.
            Terminator::Branch { ref then, ref otherwise, .. } if then.block == otherwise.block => continue,
            other => other,
        };
        if term != *before {
            let asks = |term: &Terminator| matches!(term, Terminator::Branch { .. });
            let same_terminator = asks(before) == asks(&term);
            changes = changes | if same_terminator { Changes::JOINED } else { Changes::CONTROL_FLOW };
            function.blocks[id].term = term;
        }
    }
    changes
}

/// Replaces branches whose edges go to one block with the same arguments by jumps. A constant counts as the
/// same argument as a number that was just compared equal to it.
fn redundant_branches(function: &mut MirFunction, order: &[Block]) -> Changes {
    let mut found = Vec::new();
    let definitions = function.definitions();
    for id in order.iter().copied() {
        let Terminator::Branch { cond, then, otherwise } = &function.blocks[id].term else { continue };
        let (yes, no) = (beyond(function, then), beyond(function, otherwise));
        if yes.block != no.block {
            continue;
        }
        // The target where the compared values are equal, the other target, and the compared values.
        let equal = match definitions[*cond] {
            Some(Op::Compare(Condition::Eq, a, b)) => Some((yes, no, *a, *b)),
            Some(Op::Compare(Condition::Ne, a, b)) => Some((no, yes, *a, *b)),
            _ => None,
        };
        let target = match equal {
            _ if yes.args == no.args => yes.clone(),
            Some((constant, number, a, b)) => {
                let is_same = |(x, y): (&Value, &Value)| x == y || stands_for(&definitions, (*x, *y), (a, b));
                if !constant.args.iter().zip(&number.args).all(is_same) {
                    continue;
                }
                number.clone()
            }
            None => continue,
        };
        found.push((id, target));
    }
    for (id, target) in &found {
        function.blocks[*id].term = Terminator::Jump(target.clone());
    }
    Changes::CONTROL_FLOW.when(!found.is_empty())
}

/// The target of a block that only jumps, or the block itself.
fn beyond<'a>(function: &'a MirFunction, target: &'a Target) -> &'a Target {
    only_jumps(function, target.block).unwrap_or(target)
}

/// Whether a constant is the value that a number must have where it equals another constant.
fn stands_for(
    definitions: &IndexVec<Value, Option<&Op>>,
    (constant, number): (Value, Value),
    (compared, with): (Value, Value),
) -> bool {
    let bits = |value: Value| match definitions[value] {
        Some(Op::Const(bits)) => Some(*bits),
        _ => None,
    };
    let is_number = number == compared
        || matches!(definitions[number], Some(Op::ZeroExtend(inner)) if *inner == compared);
    is_number && bits(constant).is_some() && bits(constant) == bits(with)
}

/// Appends a block to its only predecessor if that only jumps there.
fn merge_blocks(function: &mut MirFunction, order: &[Block]) -> Changes {
    let mut predecessors: IndexVec<Block, usize> = function.blocks.iter().map(|_| 0).collect();
    for target in order.iter().flat_map(|block| function.blocks[*block].term.targets()) {
        predecessors[target.block] += 1;
    }
    let mut replacements = Replacements::default();
    let mut merged = false;
    let mut gone: IndexVec<Block, bool> = function.blocks.iter().map(|_| false).collect();
    for id in order.iter().copied() {
        if gone[id] {
            continue;
        }
        while let Terminator::Jump(target) = &function.blocks[id].term {
            if predecessors[target.block] != 1 || target.block == id || target.block == function.entry() {
                break;
            }
            let target = target.clone();
            let emptied = &mut function.blocks[target.block];
            let params = std::mem::take(&mut emptied.params);
            let insts = std::mem::take(&mut emptied.insts);
            let term = std::mem::replace(&mut emptied.term, Terminator::Jump(Target::to(target.block)));
            let span = emptied.span;
            for (param, arg) in params.iter().zip(&target.args) {
                replacements.replace(*param, *arg);
            }
            let block = &mut function.blocks[id];
            block.insts.extend(insts);
            block.term = term;
            block.span = span;
            gone[target.block] = true;
            merged = true;
        }
    }
    Changes::VALUES.when(replacements.apply(function)) | Changes::JOINED.when(merged)
}

/// Unreachable blocks keep no instructions, so that they keep no value alive.
fn clear_unreachable(function: &mut MirFunction, order: &[Block]) -> bool {
    let mut reached: IndexVec<Block, bool> = function.blocks.iter().map(|_| false).collect();
    for block in order {
        reached[*block] = true;
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
