//! Unrolls small loops where the verifier can follow all paths through them.
//!
//! An iteration under an iterator costs a call. Without the iterator the verifier follows every path, in the
//! worst case without ever finding two equal states. So a function stays as it is if that is too much work
//! (`kernel::verifier`).

use std::collections::{BTreeMap, BTreeSet};

use super::rewrite::constants;
use crate::kernel::mir::iterator_loops::{IteratorLoop, loops};
use crate::kernel::mir::loop_iterators::{LoopIterator, Over, is_step};
use crate::kernel::mir::ssa_repair;
use crate::kernel::mir::{
    Block, BlockData, Callee, Inst, IterStep, MirFunction, Op, Target, Terminator, Type, Value,
};
use crate::kernel::verifier::code::may_unroll;

/// Whether a function has a loop over numbers under an iterator.
pub fn has_loop(function: &MirFunction) -> bool {
    LoopIterator::all(function).iter().any(|one| !one.is_over_map())
}

/// Unrolls all loops that are small enough; returns whether there were any.
pub fn run(function: &mut MirFunction) -> bool {
    let mut changed = false;
    while let Some(plan) = loops(function).into_iter().find_map(|one| Plan::new(function, one)) {
        plan.apply(function);
        changed = true;
    }
    changed
}

/// Whether a function calls other functions of the object.
pub fn calls_others(function: &MirFunction) -> bool {
    let mut insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts.any(|inst| matches!(inst.op, Op::Call { callee: Callee::Function(_), .. }))
}

/// The condition of a block's branch, if it ends with one.
fn asked(term: &Terminator) -> Option<Value> {
    match term {
        Terminator::Branch { cond, .. } => Some(*cond),
        _ => None,
    }
}

/// A loop that can be unrolled.
struct Plan {
    of: IteratorLoop,
    iterator: LoopIterator,
    iterations: u64,
}

impl Plan {
    fn new(function: &MirFunction, of: IteratorLoop) -> Option<Plan> {
        let header = &function.blocks[of.header];
        let [next, null] = header.insts.as_slice() else { return None };
        let iterator = LoopIterator::all(function).into_iter().find(|one| one.header == Some(of.header))?;
        let (Over::Numbers(iterations), Some(item)) = (iterator.over, next.result) else { return None };
        if null.op != Op::IsNull(item) || null.result != asked(&header.term) {
            return None;
        }
        let ops = function.definitions();
        let is_unfit = |inst: &Inst| {
            let operands = inst.op.operands();
            let is_used = |value: &Value| match ops[*value] {
                Some(Op::StackAddr { slot, .. }) if *slot == iterator.slot => !is_step(inst),
                // An exit of the loop may serve another iterator in the same bytes.
                Some(Op::StackAddr { slot, .. }) => {
                    is_step(inst) && function.slots[*slot].position == function.slots[iterator.slot].position
                }
                _ => false,
            };
            operands.iter().any(is_used)
                || operands.contains(&item) && inst != null && !of.reads_iteration(inst)
        };
        if function.insts().any(is_unfit) {
            return None;
        }
        let iterations = constants(function)[iterations]?;
        let plan = Plan { of, iterator, iterations };
        plan.is_plain(function).then_some(plan)
    }

    /// Whether the body is short, contains no other loop and only reads the counter.
    fn is_plain(&self, function: &MirFunction) -> bool {
        let mut insts = 0;
        for block in &self.of.blocks {
            let data = &function.blocks[*block];
            insts += data.insts.len() + 1;
            for inst in &data.insts {
                let is_other = match &inst.op {
                    Op::Call { callee, .. } => matches!(callee.step(), Some(IterStep::New | IterStep::Next)),
                    _ => false,
                };
                let reads = matches!(inst.op, Op::Load { .. } | Op::NonNull(_));
                let of_counter = inst.op.operands().iter().any(|value| self.of.is_counter(*value));
                if is_other || (of_counter && !(reads && self.of.reads_iteration(inst))) {
                    return false;
                }
            }
            if data.term.operands().iter().any(|value| self.of.is_counter(*value)) {
                return false;
            }
        }
        may_unroll(self.iterations, insts)
    }

    fn apply(&self, function: &mut MirFunction) {
        let old: BTreeSet<Block> = self.of.blocks.iter().copied().chain([self.of.header]).collect();
        let outside: Vec<Block> = function.reachable_predecessors()[self.of.header]
            .iter()
            .copied()
            .filter(|from| !old.contains(from))
            .collect();
        let mut definitions: BTreeMap<Value, BTreeMap<Block, Value>> = BTreeMap::new();
        let headers: Vec<Block> = (0..=self.iterations).map(|_| function.push_block(function.span)).collect();
        for (iteration, header) in headers.iter().enumerate() {
            let mut copy = Copy { values: BTreeMap::new(), blocks: BTreeMap::new() };
            copy.blocks.insert(self.of.header, headers.get(iteration + 1).copied().unwrap_or(*header));
            let data = function.blocks[self.of.header].clone();
            let inside = |target: &&Target| self.of.blocks.contains(&target.block);
            let last = iteration as u64 == self.iterations;
            let next_target = data.term.targets().into_iter().find(|target| inside(target) != last).cloned();
            let Some(next_target) = next_target else { return };
            if !last {
                for block in &self.of.blocks {
                    copy.blocks.insert(*block, function.push_block(function.span));
                }
            }
            let bodies = if last { &BTreeSet::new() } else { &self.of.blocks };
            let params: Vec<Value> = data.params.iter().map(|param| copy.value(function, *param)).collect();
            for block in bodies {
                copy.make_values(function, *block);
            }
            let term = copy.term(&Terminator::Jump(next_target));
            function.blocks[*header] = BlockData { params, insts: Vec::new(), term, span: data.span };
            for block in bodies {
                let defined = copy.body(function, *block, iteration as u64, &self.of);
                function.blocks[copy.blocks[block]] = defined;
            }
            for block in bodies.iter().chain([&self.of.header]) {
                let at = if *block == self.of.header { *header } else { copy.blocks[block] };
                let data = &function.blocks[*block];
                let results = data.insts.iter().filter_map(|inst| inst.result);
                for value in data.params.iter().copied().chain(results) {
                    let copied = copy.values.get(&value).map(|copied| (at, *copied));
                    definitions.entry(value).or_default().extend(copied);
                }
            }
        }
        for from in outside {
            let targets = function.blocks[from].term.targets_mut();
            for target in targets.into_iter().filter(|target| target.block == self.of.header) {
                target.block = headers[0];
            }
        }
        for block in old {
            let data = &mut function.blocks[block];
            *data = BlockData {
                params: Vec::new(),
                insts: Vec::new(),
                term: Terminator::Jump(Target::to(block)),
                span: data.span,
            };
        }
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        for (value, by_block) in definitions {
            ssa_repair::run(function, (&order, &predecessors), value, &by_block, None);
        }
        self.iterator.remove(function);
    }
}

/// One unrolled iteration: the mapping of the loop's values and blocks.
struct Copy {
    values: BTreeMap<Value, Value>,
    blocks: BTreeMap<Block, Block>,
}

impl Copy {
    /// A new value for one that the iteration defines.
    fn value(&mut self, function: &mut MirFunction, value: Value) -> Value {
        let values = &mut function.values;
        *self.values.entry(value).or_insert_with(|| values.push(values[value]))
    }

    /// New values for all that a block defines.
    fn make_values(&mut self, function: &mut MirFunction, block: Block) {
        let data = &function.blocks[block];
        let results = data.insts.iter().filter_map(|inst| inst.result);
        let defined: Vec<Value> = data.params.iter().copied().chain(results).collect();
        for value in defined {
            self.value(function, value);
        }
    }

    fn stands_for(&self, value: Value) -> Value {
        self.values.get(&value).copied().unwrap_or(value)
    }

    fn term(&self, term: &Terminator) -> Terminator {
        let mut term = term.clone();
        term.map_operands(&mut |value| self.stands_for(value));
        for target in term.targets_mut() {
            target.block = self.blocks.get(&target.block).copied().unwrap_or(target.block);
        }
        term
    }

    fn body(&self, function: &MirFunction, block: Block, number: u64, of: &IteratorLoop) -> BlockData {
        let data = function.blocks[block].clone();
        let params = data.params.iter().map(|param| self.stands_for(*param)).collect();
        let mut insts = Vec::with_capacity(data.insts.len());
        for mut inst in data.insts {
            let result = inst.result;
            if of.reads_iteration(&inst) {
                if result.is_none_or(|result| function.values[result] != Type::I32) {
                    continue;
                }
                inst.op = Op::Const(number);
            }
            inst.op.map_operands(&mut |value| self.stands_for(value));
            inst.result = result.map(|result| self.stands_for(result));
            insts.push(inst);
        }
        BlockData { params, insts, term: self.term(&data.term), span: data.span }
    }
}
