//! The iterators and walks of a function, and how they go away.

use std::collections::BTreeSet;

use crate::kernel::mir::{
    Block, BlockData, Callee, Condition, Inst, IterStep, KeptReason, Kfunc, MapIter, MirFunction, Op, Slot,
    Target, Terminator, Type, Value,
};
use crate::kernel::pass::reachable_predecessors;
use crate::source::Span;

/// An iterator, or a walk.
pub struct Iterator {
    /// Where the kernel keeps it.
    pub slot: Slot,
    /// What its turns are about.
    pub over: Over,
    /// Where it is asked; nowhere, if not in one place.
    pub header: Option<Block>,
    /// The loop in the script.
    pub span: Span,
    /// What starting it gives.
    zero: Option<Value>,
}

/// What turns are about.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// Numbers from 0 on: how many, in 32 bits.
    Numbers(Value),
    /// The entries of a map.
    Map(Value),
}

/// What is done with an iterator, and which.
fn call(inst: &Inst, addresses: &[(Value, Slot)]) -> Option<(IterStep, Slot)> {
    let Op::Call { callee, args } = &inst.op else { return None };
    let step = callee.step()?;
    let slot = addresses.iter().find(|(value, _)| Some(value) == args.first())?.1;
    Some((step, slot))
}

/// The addresses of slots.
fn addresses(function: &MirFunction) -> Vec<(Value, Slot)> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let found = insts.filter_map(|inst| match inst.op {
        Op::StackAddr { slot, .. } => Some((inst.result?, slot)),
        _ => None,
    });
    found.collect()
}

/// Whether an instruction does anything with an iterator or a walk.
pub fn is_step(inst: &Inst) -> bool {
    matches!(inst.op, Op::Call { callee, .. } if callee.step().is_some())
}

/// Whether an instruction does anything with a walk.
pub fn is_of_walk(inst: &Inst) -> bool {
    matches!(inst.op, Op::Call { callee: Callee::MapIter(_), .. })
}

impl Iterator {
    /// All of a function.
    pub fn all(function: &MirFunction) -> Vec<Iterator> {
        let addresses = addresses(function);
        let order = function.reverse_postorder();
        let blocks_that = |wanted: IterStep, slot: Slot| {
            let calls = |block: &&Block| {
                let insts = &function.blocks[**block].insts;
                insts.iter().any(|inst| call(inst, &addresses) == Some((wanted, slot)))
            };
            order.iter().filter(calls).copied().collect::<Vec<_>>()
        };
        let mut found = Vec::new();
        for inst in order.iter().flat_map(|block| &function.blocks[*block].insts) {
            let Some((IterStep::New, slot)) = call(inst, &addresses) else { continue };
            let over = match &inst.op {
                Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNew), args } => Over::Numbers(args[2]),
                Op::Call { callee: Callee::MapIter(MapIter::New), args } => Over::Map(args[1]),
                _ => continue,
            };
            let asked = blocks_that(IterStep::Next, slot);
            let alone = asked.len() == 1 && blocks_that(IterStep::New, slot).len() == 1;
            let header = asked.first().copied().filter(|_| alone);
            found.push(Iterator { slot, over, header, span: inst.span, zero: inst.result });
        }
        found
    }

    /// Gives each turn a block of its own to start in: an empty turn has none, and a turn may start where
    /// others go on.
    pub fn give_entries(function: &mut MirFunction) {
        for iterator in Iterator::all(function) {
            let Some(header) = iterator.header else { continue };
            let span = function.blocks[header].span;
            let Terminator::Branch { otherwise, .. } = &function.blocks[header].term else { continue };
            let term = Terminator::Jump(otherwise.clone());
            let entry = function.blocks.push(BlockData { params: Vec::new(), insts: Vec::new(), term, span });
            if let Terminator::Branch { otherwise, .. } = &mut function.blocks[header].term {
                *otherwise = Target::to(entry);
            }
        }
    }

    /// Whether it walks through a map.
    pub fn is_walk(&self) -> bool {
        matches!(self.over, Over::Map(_))
    }

    /// The values that are 0 because they are made of what starting it gives.
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
                    Op::Binary(crate::kernel::mir::BinaryOp::Shl, from, by) => {
                        zero(*from) && is_constant(*by)
                    }
                    Op::Binary(crate::kernel::mir::BinaryOp::Or, a, b) => zero(*a) && zero(*b),
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

    /// Takes its start and its end out of the function.
    pub fn remove(&self, function: &mut MirFunction) -> Result<(), KeptReason> {
        self.header.ok_or(KeptReason::Shape)?;
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
        Ok(())
    }

    /// Makes a branch of a loop over numbers that never comes back: there is one turn, or none.
    pub fn run_once(&self, function: &mut MirFunction) -> Result<(), KeptReason> {
        let (Some(header), Over::Numbers(turns)) = (self.header, self.over) else {
            return Err(KeptReason::Shape);
        };
        let dominators =
            crate::kernel::mir::dominators::Dominators::new(function, &function.reverse_postorder());
        if reachable_predecessors(function)[header].iter().any(|from| dominators.dominates(header, *from)) {
            return Err(KeptReason::Shape);
        }
        self.remove(function)?;
        let addresses = addresses(function);
        let asks = |inst: &Inst| call(inst, &addresses) == Some((IterStep::Next, self.slot));
        let insts = &mut function.blocks[header].insts;
        let at = insts.iter().position(asks).ok_or(KeptReason::Shape)?;
        let turn = insts[at].result.ok_or(KeptReason::Shape)?;
        let none = function.values.push(Type::I32);
        function.blocks[header].insts[at] = Inst { result: Some(none), op: Op::Const(0), span: self.span };
        let all = function.blocks.iter().flat_map(|block| &block.insts);
        let counters: BTreeSet<Value> =
            all.filter(|inst| inst.op == Op::NonNull(turn)).filter_map(|inst| inst.result).collect();
        for block in function.blocks.iter_mut() {
            block.insts.retain(|inst| inst.op != Op::NonNull(turn));
            for inst in &mut block.insts {
                match &inst.op {
                    Op::IsNull(value) if *value == turn => {
                        inst.op = Op::Compare(Condition::Eq, turns, none);
                    }
                    Op::Load { base, .. } if counters.contains(base) => inst.op = Op::Const(0),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
