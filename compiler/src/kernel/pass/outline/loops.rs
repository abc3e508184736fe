//! Loops under iterators, and which blocks belong to them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::flow::{WaysIn, ways_in};
use super::super::predecessors;
use crate::index::Id;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{
    Block, BlockData, Callee, Function, Inst, Kfunc, Op, Slot, Target, Terminator, Value,
};

/// A loop under an iterator.
pub struct Loop {
    /// Asks the iterator.
    pub header: Block,
    /// Where a turn starts; others may lead there, too, before `Iterator::give_entries`.
    pub entry: Block,
    /// The blocks of a turn.
    pub blocks: BTreeSet<Block>,
    /// The addresses of the counter inside the iterator.
    counters: BTreeSet<Value>,
}

impl Loop {
    /// Whether a value is the address of the counter.
    pub fn is_counter(&self, value: Value) -> bool {
        self.counters.contains(&value)
    }

    /// Whether an instruction is about the counter, which is read before the body is called.
    pub fn reads_counter(&self, inst: &Inst) -> bool {
        match inst.op {
            Op::Load { base, .. } => self.counters.contains(&base),
            _ => inst.result.is_some_and(|result| self.counters.contains(&result)),
        }
    }
}

impl Loop {
    /// Takes in what ends iterators that the body starts, on the ways out of this loop too: they are the body's own. Gives
    /// whether that could be done.
    pub fn take_ends(&mut self, function: &mut Function) -> bool {
        let order = function.reverse_postorder();
        let ways_in = predecessors(function);
        let dominators = Dominators::new(function, &order);
        let started = self.started(function);
        let last_use = |block: &BlockData| {
            let ops = function.definitions();
            let uses = |inst: &Inst| {
                inst.op.operands().iter().any(
                    |value| matches!(ops[*value], Some(Op::StackAddr { slot, .. }) if started.contains(slot)),
                )
            };
            block.insts.iter().rposition(uses)
        };
        let outside = order.iter().filter(|block| !self.blocks.contains(block));
        let ends: BTreeMap<Block, usize> =
            outside.filter_map(|block| Some((*block, last_use(&function.blocks[*block])?))).collect();
        if !ends.keys().all(|block| dominators.dominates(self.entry, *block)) {
            return false;
        }
        let mut open: Vec<Block> = ends.keys().copied().collect();
        let mut taken = BTreeSet::new();
        while let Some(block) = open.pop() {
            if !self.blocks.contains(&block) && taken.insert(block) {
                open.extend(&ways_in[block]);
            }
        }
        for (block, last) in ends {
            let goes_on = function.blocks[block].term.targets().iter().any(|to| taken.contains(&to.block));
            if !goes_on {
                split(function, block, last + 1);
            }
        }
        self.blocks.extend(taken);
        true
    }

    /// The slots of the iterators that the body starts.
    fn started(&self, function: &Function) -> BTreeSet<Slot> {
        let ops = function.definitions();
        let insts = self.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
        let slots = insts.filter_map(|inst| match &inst.op {
            Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNew), args } => match ops[*args.first()?] {
                Some(Op::StackAddr { slot, .. }) => Some(*slot),
                _ => None,
            },
            _ => None,
        });
        slots.collect()
    }
}

/// Makes a block of the instructions of another from one on.
pub fn split(function: &mut Function, block: Block, at: usize) {
    let data = &mut function.blocks[block];
    let (insts, span) = (data.insts.split_off(at), data.span);
    let behind = Terminator::Jump(Target::to(Block::new(0)));
    let term = std::mem::replace(&mut data.term, behind);
    let behind = function.blocks.push(BlockData { params: Vec::new(), insts, term, span });
    function.blocks[block].term = Terminator::Jump(Target::to(behind));
}

/// The loops of a function, inner ones before those around them.
pub fn loops(function: &Function) -> Vec<Loop> {
    let order = function.reverse_postorder();
    loops_in(function, &order, &ways_in(function, &order), &Dominators::new(function, &order))
}

/// The same, where the ways through the function are known.
pub fn loops_in(
    function: &Function,
    order: &[Block],
    ways_in: &WaysIn,
    dominators: &Dominators,
) -> Vec<Loop> {
    let is_next = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNext), .. });
    let headers = order.iter().filter(|block| function.blocks[**block].insts.iter().any(is_next));
    let mut found: Vec<Loop> =
        headers.filter_map(|header| natural_loop(function, ways_in, dominators, *header)).collect();
    found.sort_by_key(|one| one.blocks.len());
    found
}

fn natural_loop(
    function: &Function,
    ways_in: &WaysIn,
    dominators: &Dominators,
    header: Block,
) -> Option<Loop> {
    let mut seen = vec![false; function.blocks.len()];
    let mut found = Vec::new();
    let mut open: Vec<Block> =
        ways_in[header].iter().copied().filter(|from| dominators.dominates(header, *from)).collect();
    while let Some(block) = open.pop() {
        if block != header && !std::mem::replace(&mut seen[block.index()], true) {
            found.push(block);
            open.extend(&ways_in[block]);
        }
    }
    let blocks: BTreeSet<Block> = found.into_iter().collect();
    let targets = function.blocks[header].term.targets();
    let mut inside = targets.iter().filter(|target| blocks.contains(&target.block));
    let entry = inside.next()?.block;
    if inside.next().is_some() {
        return None;
    }
    let asks = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNext), .. });
    let turn = function.blocks[header].insts.iter().find(|inst| asks(inst))?.result?;
    let insts = blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    let counters = insts.filter(|inst| inst.op == Op::NonNull(turn)).filter_map(|inst| inst.result).collect();
    Some(Loop { header, entry, blocks, counters })
}
