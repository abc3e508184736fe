//! Tail merging: replaces blocks with the same instructions and the same terminator by one block, and the same ends
//! of different blocks by one that both jump to. Blocks that differ in the address of one variable only, as those that
//! count, share one that gets the address.

use super::changes::Changes;
use crate::index::{FastMap, Id, IndexVec};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, MirFunction, Op, Origin, SlotData, Target, Terminator, Type, Value};

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
        let merged = merge_but_for_addresses(function, flow, &same) || merge_ends(function, flow, &same);
        return Changes::CONTROL_FLOW.when(merged);
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

/// Merges short jumps that differ in the address of a variable; returns whether there were any.
fn merge_but_for_addresses(function: &mut MirFunction, flow: &Flow, same: &FastMap<Value, Value>) -> bool {
    let mut groups: FastMap<(BlockContent, bool), Vec<(Block, Value)>> = FastMap::default();
    let definitions = function.definitions();
    let any = Value::new(function.values.len());
    for block in flow.order.iter().filter(|block| **block != function.entry()) {
        if !function.blocks[*block].params.is_empty() {
            continue;
        }
        let Some((mut ops, ends, next)) = short_jump(function, *block, same) else { continue };
        let is_address = |value: &Value| {
            definitions[*value].is_some_and(Op::is_leaf)
                && function.values[*value] == Type::Ptr(Origin::Global)
        };
        let Some(address) = ops.iter().flat_map(|op| op.operands()).find(is_address) else { continue };
        let but_for_it = |value: Value| if value == address { any } else { value };
        ops.iter_mut().for_each(|op| op.map_operands(&mut |value| but_for_it(value)));
        let ends = ends.into_iter().map(but_for_it).collect();
        // An edge into a loop stays apart from the edges back to its header.
        let is_back = next.iter().any(|header| flow.dominators.dominates(*header, *block));
        groups.entry(((ops, ends, next), is_back)).or_default().push((*block, address));
    }
    let mut groups: Vec<Vec<(Block, Value)>> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    for group in &groups {
        let (first, address) = group[0];
        let end = function.split(first, 0);
        let given = function.values.push(function.values[address]);
        let data = &mut function.blocks[end];
        data.params.push(given);
        let mut replace = |value: Value| if value == address { given } else { value };
        data.insts.iter_mut().for_each(|inst| inst.op.map_operands(&mut replace));
        data.term.map_operands(&mut replace);
        for (block, address) in group {
            let data = &mut function.blocks[*block];
            data.insts.clear();
            data.term = Terminator::Jump(Target { block: end, args: vec![*address] });
        }
    }
    !groups.is_empty()
}

/// The least number of instructions that two blocks share at their ends, if a jump follows: the blocks get another jump
/// for them. A return saves as much itself.
const MIN_BEFORE_JUMP: usize = 2;

/// Merges the same ends of blocks; returns whether there were any.
fn merge_ends(function: &mut MirFunction, flow: &Flow, same: &FastMap<Value, Value>) -> bool {
    let mut by_last: FastMap<EndKey, Vec<Block>> = FastMap::default();
    let mut by_result: FastMap<EndKey, Vec<Block>> = FastMap::default();
    for block in &flow.order {
        let data = &function.blocks[*block];
        let (successor, result) = match &data.term {
            Terminator::Branch { .. } => continue,
            Terminator::Jump(target) => (Some(target.block), None),
            Terminator::Return(value) => (None, Some(*value)),
        };
        if let Some(last) = data.insts.last() {
            let key = (Some(without_operands(&last.op)), successor, None);
            by_last.entry(key).or_default().push(*block);
        }
        if result.is_some() {
            by_result.entry((None, None, result)).or_default().push(*block);
        }
    }
    // Long ends first: blocks that only return the same would be split twice.
    merge_groups(function, flow, same, by_last) || merge_groups(function, flow, same, by_result)
}

/// The last instruction of a block, without its operands, the block that it jumps to, and the value that it returns.
type EndKey = (Option<Op>, Option<Block>, Option<Value>);

fn merge_groups(
    function: &mut MirFunction,
    flow: &Flow,
    same: &FastMap<Value, Value>,
    groups: FastMap<EndKey, Vec<Block>>,
) -> bool {
    let mut groups: Vec<Vec<Block>> = groups.into_values().filter(|blocks| blocks.len() > 1).collect();
    groups.sort_unstable();
    if groups.is_empty() {
        return false;
    }
    let outliving = outliving(function, &flow.order);
    let mut changed = false;
    for group in groups {
        let (first, others) = (group[0], &group[1..]);
        let ends = Ends { function, flow, same, outliving: &outliving };
        let found: Vec<(Block, usize)> =
            others.iter().filter_map(|other| Some((*other, ends.shared(first, *other)?))).collect();
        let Some(shared) = found.iter().map(|(_, shared)| *shared).min() else { continue };
        let end = function.split(first, function.blocks[first].insts.len() - shared);
        for (other, _) in found {
            let data = &mut function.blocks[other];
            data.insts.truncate(data.insts.len() - shared);
            data.term = Terminator::Jump(Target::to(end));
        }
        changed = true;
    }
    changed
}

fn without_operands(op: &Op) -> Op {
    let mut op = op.clone();
    op.map_operands(&mut |_| Value::new(0));
    op
}

/// The values that other blocks use than the one that defines them.
fn outliving(function: &MirFunction, order: &[Block]) -> IndexVec<Value, bool> {
    let mut from = IndexVec::filled(function.values.len(), None);
    let mut found = IndexVec::filled(function.values.len(), false);
    for block in order {
        let results = function.blocks[*block].insts.iter().filter_map(|inst| inst.result);
        results.for_each(|result| from[result] = Some(*block));
    }
    for block in order {
        let data = &function.blocks[*block];
        let mut used = |value: Value| found[value] |= from[value] != Some(*block);
        data.insts.iter().for_each(|inst| inst.op.each_operand(&mut used));
        data.term.operands().into_iter().for_each(used);
    }
    found
}

/// What is compared of the ends of two blocks.
struct Ends<'a> {
    function: &'a MirFunction,
    flow: &'a Flow,
    same: &'a FastMap<Value, Value>,
    outliving: &'a IndexVec<Value, bool>,
}

impl Ends<'_> {
    /// The number of instructions with which both blocks end, if these and the terminator can be one block.
    fn shared(&self, first: Block, other: Block) -> Option<usize> {
        let (a, b) = (&self.function.blocks[first], &self.function.blocks[other]);
        // Values of both blocks that have to be results of the same instruction.
        let mut open = Vec::new();
        self.pair(&a.term.operands(), &b.term.operands(), &mut open);
        let is_return = matches!(a.term, Terminator::Return(_));
        // An edge into a loop stays apart from the edges back to its header.
        let is_back =
            |block: Block| a.term.successors().any(|header| self.flow.dominators.dominates(header, block));
        if is_back(first) != is_back(other) {
            return None;
        }
        let mut found = (is_return && open.is_empty()).then_some(0);
        for (length, (x, y)) in (1..).zip(a.insts.iter().rev().zip(b.insts.iter().rev())) {
            if !is_movable(&x.op) || without_operands(&x.op) != without_operands(&y.op) {
                break;
            }
            if let (Some(one), Some(two)) = (x.result, y.result) {
                let types = &self.function.values;
                if types[one] != types[two] || self.outliving[one] || self.outliving[two] {
                    break;
                }
                open.retain(|pair| *pair != (one, two));
                if open.iter().any(|(a, b)| *a == one || *b == two) {
                    break;
                }
            }
            self.pair(&x.op.operands(), &y.op.operands(), &mut open);
            if open.is_empty() && (is_return || length >= MIN_BEFORE_JUMP) {
                found = Some(length);
            }
        }
        found
    }

    fn pair(&self, a: &[Value], b: &[Value], open: &mut Vec<(Value, Value)>) {
        let resolved = |value: &Value| self.same.get(value).copied().unwrap_or(*value);
        let different = a.iter().zip(b).filter(|(a, b)| resolved(a) != resolved(b));
        open.extend(different.map(|(a, b)| (*a, *b)));
    }
}

/// Whether an instruction may be in a block after the one that a check dominates.
fn is_movable(op: &Op) -> bool {
    !op.is_leaf() && !matches!(op, Op::Below { .. } | Op::NonNull(_) | Op::InPacket { .. })
}
