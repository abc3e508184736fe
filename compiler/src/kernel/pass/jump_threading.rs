//! Jump threading: a predecessor that passes a constant to a block which only branches on it jumps to the
//! target directly.
//!
//! ```text
//! a: jump join(1)          a: jump yes
//! b: jump join(0)    ->    b: jump no
//! join(p): if p then yes else no
//! ```
//!
//! The pass does the same where an earlier branch has tested the condition, and where the block computes it
//! from constants. Values that the block defines and others use are duplicated on the new path and merged
//! where the paths meet.

use std::collections::{BTreeMap, BTreeSet};

use super::changes::Changes;
use super::const_fold::{evaluate, holds, narrowed, swapped};
use super::rewrite::constants;
use crate::index::{Id, IndexVec, Lists};
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::ssa_repair;
use crate::kernel::mir::{
    BinaryOp, Block, BlockData, Condition, Inst, MirFunction, Op, Origin, Target, Terminator, Type, Value,
};

/// The limit of blocks that one run of the pass bypasses; further ones wait for the next run, after other
/// passes have simplified the function.
const MAX_THREADS: usize = 32;

/// The limit of instructions in a bypassed block, which are duplicated.
const MAX_INSTS: usize = 3;

/// Runs jump threading on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let (mut threads, changed) = thread(function, flow, MAX_THREADS);
    let Some(mut flow) = changed else { return Changes::NONE };
    while threads < MAX_THREADS {
        let (more, changed) = thread(function, &flow, MAX_THREADS - threads);
        let Some(changed) = changed else { break };
        flow = changed;
        threads += more;
    }
    Changes::CONTROL_FLOW | Changes::VALUES
}

/// The control flow of a function, its constants, and where its values are used.
struct Threader<'a> {
    flow: &'a Flow,
    constants: IndexVec<Value, Option<u64>>,
    users: Lists<Value, Block>,
}

/// Bypasses blocks that are not adjacent: facts about the others stay true. A bypassed block dominates fewer
/// blocks, but its condition has the same value on the new paths. Returns the number of bypassed blocks, and the
/// new control flow if there are any.
fn thread(function: &mut MirFunction, flow: &Flow, most: usize) -> (usize, Option<Flow>) {
    let known = Threader { flow, constants: constants(function), users: users(function, &flow.order) };
    let (mut touched, mut merged) = (BTreeSet::new(), BTreeSet::new());
    let mut threads = 0;
    let entry = function.entry();
    for join in flow.order.iter().copied().filter(|block| *block != entry) {
        let data = &function.blocks[join];
        if !matches!(data.term, Terminator::Branch { .. }) || !only_asks(data) {
            continue;
        }
        let own = defined(function, join);
        // Its values have other uses than before, or some of them are new.
        if own.iter().any(|value| merged.contains(value) || value.index() >= known.users.len()) {
            continue;
        }
        let decided = known.decided(function, join);
        if decided.is_empty() {
            continue;
        }
        let next = function.blocks[join].term.successors();
        let around: Vec<Block> = next.chain(decided.iter().map(|(from, _)| *from)).chain([join]).collect();
        if around.iter().any(|block| touched.contains(block)) {
            continue;
        }
        let is_used_behind = own.iter().any(|value| known.outside(*value, join).next().is_some());
        let definitions = pass_by(function, join, &decided);
        threads += 1;
        touched.extend(around);
        if is_used_behind {
            let order = function.reverse_postorder();
            let predecessors = function.predecessors(&order);
            for (value, by_block) in definitions {
                ssa_repair::run(function, (&order, &predecessors), value, &by_block, Some(join));
                merged.extend(by_block.into_values());
            }
        }
        if threads == most {
            break;
        }
    }
    (threads, (threads > 0).then(|| Flow::new(function)))
}

/// The values that a block defines.
fn defined(function: &MirFunction, block: Block) -> Vec<Value> {
    let data = &function.blocks[block];
    let results = data.insts.iter().filter_map(|inst| inst.result);
    data.params.iter().copied().chain(results).collect()
}

/// The blocks that use each value, once for each use.
fn users(function: &MirFunction, order: &[Block]) -> Lists<Value, Block> {
    let mut uses = Vec::new();
    for block in order {
        let data = &function.blocks[*block];
        data.insts.iter().for_each(|inst| inst.op.each_operand(|value| uses.push((value, *block))));
        data.term.each_operand(|value| uses.push((value, *block)));
    }
    Lists::new(function.values.len(), &uses)
}

impl Threader<'_> {
    /// The number that a value is. None of one that was made since.
    fn constant(&self, value: Value) -> Option<u64> {
        self.constants.get(value).copied().flatten()
    }

    /// The other blocks that use a value.
    fn outside(&self, value: Value, own: Block) -> impl Iterator<Item = Block> {
        self.users[value].iter().copied().filter(move |block| *block != own)
    }

    /// The predecessors of a block that only tests a condition, each with the condition's value, as far as
    /// known.
    fn decided(&self, function: &MirFunction, join: Block) -> Vec<(Block, bool)> {
        let data = &function.blocks[join];
        let Terminator::Branch { cond, then, otherwise } = &data.term else { return Vec::new() };
        // A branch on a constant is left to `simplify_cfg`.
        if self.constant(*cond).is_some() {
            return Vec::new();
        }
        let defined_here =
            data.params.contains(cond) || data.insts.iter().any(|inst| inst.result == Some(*cond));
        // Another branch on it would prove it.
        let is_new = cond.index() >= self.users.len();
        if !defined_here && !is_new && self.outside(*cond, join).next().is_none() {
            return Vec::new();
        }
        let predecessors = self.flow.predecessors[join].iter();
        let answers = predecessors.filter_map(|from| {
            let answer = if defined_here {
                self.evaluated(function, *from, join, *cond)
            } else {
                self.answer(function, *cond, (*from, join))
            };
            Some((*from, answer?))
        });
        let goes_on = |answer: bool| if answer { then.block != join } else { otherwise.block != join };
        let decided: Vec<_> = answers.filter(|(_, answer)| goes_on(*answer)).collect();
        if decided.is_empty() || self.is_header(join) && !self.may_skip_header(function, join) {
            return Vec::new();
        }
        // A condition that is used after the branch would have to be kept.
        let mut tests = data.insts.iter().filter(|inst| inst.op.is_test()).filter_map(|inst| inst.result);
        if tests.any(|test| self.outside(test, join).next().is_some()) {
            return Vec::new();
        }
        decided
    }

    fn is_header(&self, block: Block) -> bool {
        self.flow.predecessors[block].iter().any(|from| self.flow.dominators.dominates(block, *from))
    }

    /// Whether a loop may be entered after its header: no instruction is duplicated, and values of the header
    /// are used after one of its exits only.
    fn may_skip_header(&self, function: &MirFunction, header: Block) -> bool {
        let data = &function.blocks[header];
        let results = data.insts.iter().filter_map(|inst| inst.result);
        let outside = |value: Value| self.outside(value, header);
        if results.clone().count() > 1 || results.into_iter().any(|result| outside(result).next().is_some()) {
            return false;
        }
        let next = data.term.targets().into_iter().map(|target| target.block);
        let own: Vec<Block> = next.filter(|block| self.flow.predecessors[*block] == [header]).collect();
        let covered = |block: Block| own.iter().any(|above| self.flow.dominators.dominates(*above, block));
        data.params.iter().all(|param| outside(*param).all(covered))
    }

    /// The condition that a block computes from the arguments of one of its predecessors.
    fn evaluated(&self, function: &MirFunction, from: Block, join: Block, cond: Value) -> Option<bool> {
        let data = &function.blocks[join];
        let targets = function.blocks[from].term.targets();
        let args = &targets.into_iter().find(|target| target.block == join)?.args;
        let mut known: BTreeMap<Value, u64> = BTreeMap::new();
        let mut passed: BTreeMap<Value, Value> = BTreeMap::new();
        for (param, arg) in data.params.iter().zip(args) {
            passed.insert(*param, *arg);
            known.extend(self.constant(*arg).map(|bits| (*param, bits)));
        }
        for inst in &data.insts {
            let constant = |value: &Value| known.get(value).copied().or(self.constant(*value));
            let width = |value: &Value| function.values[*value].bits().unwrap_or(64);
            let bits = match &inst.op {
                Op::Binary(op, a, b) => match (constant(a), constant(b)) {
                    (Some(left), Some(right)) => Some(evaluate(*op, width(a), left, right)),
                    _ => None,
                },
                Op::Compare(condition, a, b) => match (constant(a), constant(b)) {
                    (Some(left), Some(right)) => Some(u64::from(holds(*condition, width(a), left, right))),
                    (Some(0), None) => beside_zero(*condition),
                    (None, Some(0)) => beside_zero(condition.swapped()),
                    _ => None,
                },
                Op::Narrow { value, bits, signed } => {
                    constant(value).map(|number| narrowed(number, *bits, *signed))
                }
                Op::ZeroExtend(value) => constant(value),
                Op::Truncate(value) => constant(value).map(|number| number & 0xffff_ffff),
                Op::SwapBytes { value, bits } => constant(value).map(|number| swapped(number, *bits)),
                Op::IsNull(pointer) => {
                    let pointer = passed.get(pointer).unwrap_or(pointer);
                    let origin = function.values[*pointer];
                    if matches!(origin, Type::Ptr(origin) if Origin::is_memory(origin)) {
                        Some(0)
                    } else {
                        self.constant(*pointer).map(|bits| u64::from(bits == 0))
                    }
                }
                _ => None,
            };
            if let (Some(result), Some(bits)) = (inst.result, bits) {
                known.insert(result, bits);
            }
        }
        known.get(&cond).map(|bits| *bits != 0)
    }

    /// The value of a condition on the edge between two blocks, if a dominating branch proves it.
    fn answer(&self, function: &MirFunction, cond: Value, (from, to): (Block, Block)) -> Option<bool> {
        let (mut from, mut to, mut alone) = (from, to, true);
        loop {
            if let Terminator::Branch { cond: asked, then, otherwise } = &function.blocks[from].term
                && *asked == cond
                && alone
                && then.block != otherwise.block
            {
                return Some(then.block == to);
            }
            to = from;
            from = self.flow.dominators.immediate(from)?;
            alone = self.flow.predecessors[to] == [from];
        }
    }
}

/// The value of a comparison of zero with any number, if all numbers give the same.
fn beside_zero(condition: Condition) -> Option<u64> {
    match condition {
        Condition::Gt => Some(0),
        Condition::Le => Some(1),
        _ => None,
    }
}

/// Whether a block only computes a condition.
fn only_asks(data: &BlockData) -> bool {
    let is_question = |inst: &Inst| {
        let is_bits = matches!(inst.op, Op::Binary(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor, ..));
        let is_width = matches!(inst.op, Op::Narrow { .. } | Op::ZeroExtend(_) | Op::Truncate(_));
        let is_form = is_width || matches!(inst.op, Op::SwapBytes { .. });
        let is_test = matches!(inst.op, Op::Compare(..) | Op::IsNull(_));
        is_bits || is_form || is_test || matches!(inst.op, Op::Load { .. })
    };
    data.insts.len() <= MAX_INSTS && data.insts.iter().all(is_question)
}

/// Redirects blocks to the targets that the condition selects, each through a new block with copies of the
/// bypassed instructions. Returns the values that stand for those of the bypassed block, by block.
fn pass_by(
    function: &mut MirFunction,
    join: Block,
    decided: &[(Block, bool)],
) -> BTreeMap<Value, BTreeMap<Block, Value>> {
    let data = function.blocks[join].clone();
    let Terminator::Branch { then, otherwise, .. } = &data.term else { return BTreeMap::new() };
    let results = data.insts.iter().filter_map(|inst| inst.result);
    let defined: Vec<Value> = data.params.iter().copied().chain(results).collect();
    let mut definitions: BTreeMap<Value, BTreeMap<Block, Value>> =
        defined.iter().map(|value| (*value, BTreeMap::from([(join, *value)]))).collect();
    for (from, answer) in decided {
        let beyond = if *answer { then } else { otherwise };
        let targets = function.blocks[*from].term.targets();
        let Some(args) = targets.into_iter().find(|target| target.block == join).map(|one| one.args.clone())
        else {
            continue;
        };
        let mut stands_for: BTreeMap<Value, Value> = data.params.iter().copied().zip(args).collect();
        let mut insts = data.insts.clone();
        for inst in &mut insts {
            inst.op.map_operands(&mut |value| stands_for.get(&value).copied().unwrap_or(value));
            if let Some(result) = inst.result {
                let again = function.values.push(function.values[result]);
                stands_for.insert(result, again);
                inst.result = Some(again);
            }
        }
        let args = beyond.args.iter().map(|arg| stands_for.get(arg).copied().unwrap_or(*arg)).collect();
        let term = Terminator::Jump(Target { block: beyond.block, args });
        let bypass = function.blocks.push(BlockData { params: Vec::new(), insts, term, span: data.span });
        for target in function.blocks[*from].term.targets_mut() {
            if target.block == join {
                *target = Target::to(bypass);
            }
        }
        for (value, by_block) in &mut definitions {
            // A header that passes a value back to itself adds no definition.
            let stands = stands_for.get(value).filter(|stands| *stands != value);
            by_block.extend(stands.map(|stands| (bypass, *stands)));
        }
    }
    definitions
}
