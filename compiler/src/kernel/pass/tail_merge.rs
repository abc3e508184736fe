//! Tail merging: replaces blocks with the same instructions and the same terminator by one block.

use super::changes::Changes;
use crate::index::{FastMap, Id, IndexVec};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, MirFunction, Op, SlotData, Target, Terminator, Value};

/// Runs tail merging on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let mut firsts: FastMap<BlockContent, Block> = FastMap::default();
    let mut stands_for: IndexVec<Block, Option<Block>> = function.blocks.iter().map(|_| None).collect();
    let mut changed = false;
    let same = same_addresses(function);
    for block in &flow.order {
        let Some(content) = content(function, *block, &same) else { continue };
        match firsts.get(&content) {
            Some(first) => {
                stands_for[*block] = Some(*first);
                changed = true;
            }
            None => {
                firsts.insert(content, *block);
            }
        }
    }
    if !changed {
        return Changes::NONE;
    }
    for block in &flow.order {
        let term = &mut function.blocks[*block].term;
        for target in term.targets_mut() {
            if let Some(first) = stands_for[target.block] {
                *target = Target::to(first);
            }
        }
        if let Terminator::Branch { then, otherwise, .. } = term
            && then.block == otherwise.block
        {
            // The merged blocks have no parameters.
            *term = Terminator::Jump(then.clone());
        }
    }
    Changes::CONTROL_FLOW
}

/// The instructions, operands of the terminator and successors of a block, with its own values numbered from
/// the first.
type BlockContent = (Vec<Op>, Vec<Value>, Vec<Block>);

/// For each frame address, the first value with the same address: slots with disjoint lifetimes share bytes.
fn same_addresses(function: &MirFunction) -> FastMap<Value, Value> {
    let mut firsts = FastMap::default();
    let mut same = FastMap::default();
    for inst in &function.blocks[function.entry()].insts {
        if let (Op::StackAddr { slot, offset }, Some(result)) = (&inst.op, inst.result) {
            let SlotData { size, position } = function.slots[*slot];
            same.insert(result, *firsts.entry((position + offset, size, *offset)).or_insert(result));
        }
    }
    same
}

/// The content of a block without parameters whose values are not used elsewhere.
fn content(function: &MirFunction, block: Block, same: &FastMap<Value, Value>) -> Option<BlockContent> {
    let data = &function.blocks[block];
    if block == function.entry() || !data.params.is_empty() {
        return None;
    }
    let Terminator::Return(_) = data.term else {
        return short_jump(function, block, same);
    };
    let results: Vec<Value> = data.insts.iter().filter_map(|inst| inst.result).collect();
    let own = |value: Value| match results.iter().position(|result| *result == value) {
        Some(index) => Value::new(function.values.len() + index),
        None => same.get(&value).copied().unwrap_or(value),
    };
    let ops = data.insts.iter().map(|inst| {
        let mut op = inst.op.clone();
        op.map_operands(&mut |value| own(value));
        op
    });
    let ends = data.term.operands().into_iter().map(own).collect();
    Some((ops.collect(), ends, Vec::new()))
}

/// The content of a block that has only instructions without results, and then jumps.
fn short_jump(function: &MirFunction, block: Block, same: &FastMap<Value, Value>) -> Option<BlockContent> {
    let data = &function.blocks[block];
    let Terminator::Jump(target) = &data.term else { return None };
    if target.block == block || data.insts.is_empty() || data.insts.iter().any(|inst| inst.result.is_some()) {
        return None;
    }
    let ops = data.insts.iter().map(|inst| {
        let mut op = inst.op.clone();
        op.map_operands(&mut |value| same.get(&value).copied().unwrap_or(value));
        op
    });
    Some((ops.collect(), target.args.clone(), vec![target.block]))
}
