//! The iterators of a function, and how they go away.

use std::collections::BTreeSet;

use crate::kernel::mir::{
    Block, BlockData, Callee, Condition, Function, Inst, Kept, Kfunc, Op, Slot, Target, Terminator, Type,
    Value,
};
use crate::kernel::pass::predecessors;
use crate::source::Span;

/// An iterator.
pub struct Iterator {
    /// Where the kernel keeps it.
    pub slot: Slot,
    /// How many turns: 32 bits.
    pub turns: Value,
    /// Where it is asked; nowhere, if not in one place.
    pub header: Option<Block>,
    /// The loop in the script.
    pub span: Span,
    /// What starting it gives.
    zero: Option<Value>,
}

/// What is done with an iterator, and which.
fn call(inst: &Inst, addresses: &[(Value, Slot)]) -> Option<(Kfunc, Slot)> {
    let Op::Call { callee: Callee::Kfunc(kfunc), args } = &inst.op else { return None };
    let slot = addresses.iter().find(|(value, _)| Some(value) == args.first())?.1;
    Some((*kfunc, slot))
}

/// The addresses of slots.
fn addresses(function: &Function) -> Vec<(Value, Slot)> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let found = insts.filter_map(|inst| match inst.op {
        Op::StackAddr { slot, .. } => Some((inst.result?, slot)),
        _ => None,
    });
    found.collect()
}

/// Whether a block does anything with an iterator.
pub fn has_iterator(block: &BlockData) -> bool {
    block.insts.iter().any(|inst| matches!(inst.op, Op::Call { callee: Callee::Kfunc(_), .. }))
}

impl Iterator {
    /// All of a function.
    pub fn all(function: &Function) -> Vec<Iterator> {
        let addresses = addresses(function);
        let order = function.reverse_postorder();
        let blocks_that = |wanted: Kfunc, slot: Slot| {
            let calls = |block: &&Block| {
                let insts = &function.blocks[**block].insts;
                insts.iter().any(|inst| call(inst, &addresses) == Some((wanted, slot)))
            };
            order.iter().filter(calls).copied().collect::<Vec<_>>()
        };
        let mut found = Vec::new();
        for inst in order.iter().flat_map(|block| &function.blocks[*block].insts) {
            let Some((Kfunc::IterNumNew, slot)) = call(inst, &addresses) else { continue };
            let Op::Call { args, .. } = &inst.op else { continue };
            let asked = blocks_that(Kfunc::IterNumNext, slot);
            let alone = asked.len() == 1 && blocks_that(Kfunc::IterNumNew, slot).len() == 1;
            let header = asked.first().copied().filter(|_| alone);
            found.push(Iterator { slot, turns: args[2], header, span: inst.span, zero: inst.result });
        }
        found
    }

    /// Gives each turn a block of its own to start in: an empty turn has none, and a turn may start where others go on.
    pub fn give_entries(function: &mut Function) {
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

    /// The values that are 0 because they are made of what starting it gives.
    pub fn zeros(&self, function: &Function) -> BTreeSet<Value> {
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
    pub fn remove(&self, function: &mut Function) -> Result<(), Kept> {
        self.header.ok_or(Kept::Shape)?;
        let addresses = addresses(function);
        for block in function.blocks.iter_mut() {
            block.insts.retain_mut(|inst| match (call(inst, &addresses), inst.result) {
                (Some((Kfunc::IterNumDestroy, slot)), _) if slot == self.slot => false,
                (Some((Kfunc::IterNumNew, slot)), None) if slot == self.slot => false,
                (Some((Kfunc::IterNumNew, slot)), Some(_)) if slot == self.slot => {
                    inst.op = Op::Const(0);
                    true
                }
                _ => true,
            });
        }
        Ok(())
    }

    /// Makes a branch of a loop that never comes back: there is one turn, or none.
    pub fn run_once(&self, function: &mut Function) -> Result<(), Kept> {
        let header = self.header.ok_or(Kept::Shape)?;
        let dominators =
            crate::kernel::mir::dominators::Dominators::new(function, &function.reverse_postorder());
        if predecessors(function)[header].iter().any(|from| dominators.dominates(header, *from)) {
            return Err(Kept::Shape);
        }
        self.remove(function)?;
        let addresses = addresses(function);
        let asks = |inst: &Inst| call(inst, &addresses) == Some((Kfunc::IterNumNext, self.slot));
        let insts = &mut function.blocks[header].insts;
        let at = insts.iter().position(asks).ok_or(Kept::Shape)?;
        let turn = insts[at].result.ok_or(Kept::Shape)?;
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
                        inst.op = Op::Compare(Condition::Eq, self.turns, none);
                    }
                    Op::Load { base, .. } if counters.contains(base) => inst.op = Op::Const(0),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
