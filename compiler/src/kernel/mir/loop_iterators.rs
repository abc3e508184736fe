//! The iterators of a function: number iterators and map iterations, and how they are removed.

use std::collections::BTreeSet;

use super::dominators::Dominators;
use super::{
    BinaryOp, Block, Callee, Condition, Inst, IterStep, KeptReason, Kfunc, MapIter, MirFunction, Op, Slot,
    Target, Terminator, Value,
};
use crate::source::Span;

/// An iterator.
pub struct LoopIterator {
    /// The stack slot of its state.
    pub slot: Slot,
    /// What it enumerates.
    pub over: Over,
    /// The block that asks for the next item; `None` if not exactly one does.
    pub header: Option<Block>,
    /// The loop in the script.
    pub span: Span,
    /// The result of starting it, which is 0.
    zero: Option<Value>,
}

/// What an iterator enumerates.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// Numbers from 0 on: how many, in 32 bits.
    Numbers(Value),
    /// The entries of a map.
    Map(Value),
}

/// The step of an iterator that an instruction is, and the slot of the iterator.
fn call(inst: &Inst, addresses: &[(Value, Slot)]) -> Option<(IterStep, Slot)> {
    let Op::Call { callee, args } = &inst.op else { return None };
    let step = callee.step()?;
    let slot = addresses.iter().find(|(value, _)| Some(value) == args.first())?.1;
    Some((step, slot))
}

/// The values that are addresses of stack slots.
fn addresses(function: &MirFunction) -> Vec<(Value, Slot)> {
    let found = function.insts().filter_map(|inst| match inst.op {
        Op::StackAddr { slot, .. } => Some((inst.result?, slot)),
        _ => None,
    });
    found.collect()
}

/// Whether an instruction is a step of an iterator.
pub fn is_step(inst: &Inst) -> bool {
    matches!(inst.op, Op::Call { callee, .. } if callee.step().is_some())
}

/// Whether a function has an iterator.
pub fn has_iterator(function: &MirFunction) -> bool {
    has_iterator_in(function, &function.reverse_postorder())
}

/// Whether one of the blocks has a step of an iterator.
pub fn has_iterator_in(function: &MirFunction, blocks: &[Block]) -> bool {
    blocks.iter().flat_map(|block| &function.blocks[*block].insts).any(is_step)
}

/// Whether a function iterates over a map.
pub fn has_map_iteration(function: &MirFunction) -> bool {
    let order = function.reverse_postorder();
    let is_of_map = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::MapIter(_), .. });
    order.iter().flat_map(|block| &function.blocks[*block].insts).any(is_of_map)
}

impl LoopIterator {
    /// All iterators of a function.
    pub fn all(function: &MirFunction) -> Vec<LoopIterator> {
        let addresses = addresses(function);
        let mut steps: Vec<(IterStep, Slot, Block, &Inst)> = Vec::new();
        for block in function.reverse_postorder() {
            let of_block = function.blocks[block].insts.iter();
            steps.extend(of_block.filter_map(|inst| {
                let (step, slot) = call(inst, &addresses)?;
                Some((step, slot, block, inst))
            }));
        }
        let blocks_that = |wanted: IterStep, slot: Slot| {
            let calls = steps.iter().filter(|(step, of, ..)| (*step, *of) == (wanted, slot));
            let mut blocks: Vec<Block> = calls.map(|(_, _, block, _)| *block).collect();
            blocks.dedup();
            blocks
        };
        let mut found = Vec::new();
        for (_, slot, _, inst) in steps.iter().copied().filter(|(step, ..)| *step == IterStep::New) {
            let over = match &inst.op {
                Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNew), args } => Over::Numbers(args[2]),
                Op::Call { callee: Callee::MapIter(MapIter::New), args } => Over::Map(args[1]),
                _ => continue,
            };
            let asked = blocks_that(IterStep::Next, slot);
            let alone = asked.len() == 1 && blocks_that(IterStep::New, slot).len() == 1;
            let header = asked.first().copied().filter(|_| alone);
            found.push(LoopIterator { slot, over, header, span: inst.span, zero: inst.result });
        }
        found
    }

    /// Inserts a block of its own at the start of each iteration: an empty body has none, and other code may
    /// jump to the first block of a body.
    pub fn give_entries(function: &mut MirFunction) {
        for header in LoopIterator::all(function).into_iter().filter_map(|one| one.header) {
            let entry = function.push_block(function.blocks[header].span);
            if let Terminator::Branch { otherwise, .. } = &mut function.blocks[header].term {
                let first = std::mem::replace(otherwise, Target::to(entry));
                function.blocks[entry].term = Terminator::Jump(first);
            }
        }
    }

    /// Whether it enumerates the entries of a map.
    pub fn is_over_map(&self) -> bool {
        matches!(self.over, Over::Map(_))
    }

    /// The values that are 0 because they are computed from the result of starting it.
    pub fn zeros(&self, function: &MirFunction) -> BTreeSet<Value> {
        let mut zeros: BTreeSet<Value> = self.zero.into_iter().collect();
        let ops = function.definitions();
        let is_constant = |value: Value| matches!(ops[value], Some(Op::Const(_)));
        loop {
            let before = zeros.len();
            for (value, op) in ops.iter_enumerated() {
                let Some(op) = op else { continue };
                let zero = |value: Value| zeros.contains(&value);
                let more = match op {
                    Op::ZeroExtend(from) | Op::Truncate(from) => zero(*from),
                    Op::Binary(BinaryOp::Shl, from, by) => zero(*from) && is_constant(*by),
                    Op::Binary(BinaryOp::Or, a, b) => zero(*a) && zero(*b),
                    _ => false,
                };
                if more {
                    zeros.insert(value);
                }
            }
            if zeros.len() == before {
                return zeros;
            }
        }
    }

    /// Removes its start and its end from the function.
    pub fn remove(&self, function: &mut MirFunction) {
        let addresses = addresses(function);
        for block in function.blocks.iter_mut() {
            block.insts.retain_mut(|inst| match (call(inst, &addresses), inst.result) {
                (Some((IterStep::End, slot)), _) if slot == self.slot => false,
                (Some((IterStep::New, slot)), None) if slot == self.slot => false,
                (Some((IterStep::New, slot)), Some(_)) if slot == self.slot => {
                    inst.op = Op::Const(0);
                    true
                }
                _ => true,
            });
        }
    }

    /// Replaces a loop over numbers that is never repeated by a branch: there is one iteration, or none.
    pub fn run_once(&self, function: &mut MirFunction) -> Result<(), KeptReason> {
        let (Some(header), Over::Numbers(iterations)) = (self.header, self.over) else {
            return Err(KeptReason::Shape);
        };
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let dominators = Dominators::of(&order, &predecessors);
        if predecessors[header].iter().any(|from| dominators.dominates(header, *from)) {
            return Err(KeptReason::Shape);
        }
        self.remove(function);
        let addresses = addresses(function);
        let asks = |inst: &Inst| call(inst, &addresses) == Some((IterStep::Next, self.slot));
        let insts = &mut function.blocks[header].insts;
        let at = insts.iter().position(asks).ok_or(KeptReason::Shape)?;
        let item = insts[at].result.ok_or(KeptReason::Shape)?;
        let zero = function.values.push(super::Type::I32);
        insts[at] = Inst { result: Some(zero), op: Op::Const(0), span: self.span };
        let checks = function.insts().filter(|inst| inst.op == Op::NonNull(item));
        let counters: BTreeSet<Value> = checks.filter_map(|inst| inst.result).collect();
        for block in function.blocks.iter_mut() {
            block.insts.retain(|inst| inst.op != Op::NonNull(item));
            for inst in &mut block.insts {
                match &inst.op {
                    Op::IsNull(value) if *value == item => {
                        inst.op = Op::Compare(Condition::Eq, iterations, zero);
                    }
                    Op::Load { base, .. } if counters.contains(base) => inst.op = Op::Const(0),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
