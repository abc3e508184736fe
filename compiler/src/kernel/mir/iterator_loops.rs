//! Loops under an iterator, and natural loops.

use std::collections::{BTreeMap, BTreeSet};

use super::dominators::Dominators;
use super::{Block, Callee, Inst, IterStep, MapIter, MirFunction, Op, Predecessors, Slot, Terminator, Value};
use crate::index::Id;

/// A loop under a number iterator, or a map iteration.
pub struct IteratorLoop {
    /// Asks the iterator for the next item.
    pub header: Block,
    /// The first block of an iteration; others may jump to it before `LoopIterator::give_entries`.
    pub entry: Block,
    /// The blocks of the body.
    pub blocks: BTreeSet<Block>,
    iteration: Iteration,
}

/// The values by which an iteration reads its item.
pub enum Iteration {
    /// A number: the addresses of the counter inside the iterator.
    Number(BTreeSet<Value>),
    /// A map entry: pointers to it and to its key.
    MapEntry {
        /// Pointers to the entry.
        entries: BTreeSet<Value>,
        /// Pointers to the key.
        keys: BTreeSet<Value>,
    },
}

/// An edge that leaves a loop body, other than to the header: its block, and the index of the target.
pub type Exit = (Block, usize);

impl IteratorLoop {
    /// The loop of an iterator that is asked only once: from the start of the iteration to the last read of its
    /// item. The rest of the header's block before the `next` call becomes a block of its own.
    pub fn once(function: &mut MirFunction, asking: Block) -> Option<IteratorLoop> {
        let asked = function.blocks[asking].insts.iter().position(asks)?;
        let header = function.split(asking, asked);
        let Terminator::Branch { otherwise, .. } = &function.blocks[header].term else { return None };
        let entry = otherwise.block;
        let order = function.reverse_postorder();
        let iteration = iteration(function, header, &order.iter().copied().collect())?;
        let mut one = IteratorLoop { header, entry, blocks: BTreeSet::from([entry]), iteration };
        let last_read = |block: &Block| {
            let last = function.blocks[*block].insts.iter().rposition(|inst| one.reads_iteration(inst));
            Some((*block, last? + 1))
        };
        let reads: BTreeMap<Block, usize> = order.iter().filter_map(last_read).collect();
        one.absorb(function, &reads).then_some(one)
    }

    /// Whether it iterates over a map.
    pub fn is_map_iteration(&self) -> bool {
        matches!(self.iteration, Iteration::MapEntry { .. })
    }

    /// The values by which an iteration reads its item.
    pub fn iteration(&self) -> &Iteration {
        &self.iteration
    }

    /// Whether a value is the address of the counter.
    pub fn is_counter(&self, value: Value) -> bool {
        matches!(&self.iteration, Iteration::Number(counters) if counters.contains(&value))
    }

    /// Whether a value is a pointer to the key of an entry.
    pub fn is_key(&self, value: Value) -> bool {
        matches!(&self.iteration, Iteration::MapEntry { keys, .. } if keys.contains(&value))
    }

    /// Whether an instruction can run before the body: it reads the iteration's item or its key.
    pub fn runs_before(&self, inst: &Inst) -> bool {
        self.reads_iteration(inst) || matches!(inst.op, Op::Load { base, .. } if self.is_key(base))
    }

    /// Whether an instruction reads the iteration's item.
    pub fn reads_iteration(&self, inst: &Inst) -> bool {
        let defines = |values: &BTreeSet<Value>| inst.result.is_some_and(|result| values.contains(&result));
        match (&self.iteration, &inst.op) {
            (Iteration::Number(counters), Op::Load { base, .. }) => counters.contains(base),
            (Iteration::Number(counters), _) => defines(counters),
            (Iteration::MapEntry { entries, keys }, _) => defines(entries) || defines(keys),
        }
    }

    /// The edges that leave the body.
    pub fn exits(&self, function: &MirFunction) -> Vec<Exit> {
        let targets = |block: &Block| {
            let targets = function.blocks[*block].term.targets().into_iter().enumerate();
            let leaves =
                targets.filter(|(_, to)| to.block != self.header && !self.blocks.contains(&to.block));
            leaves.map(|(index, _)| (*block, index)).collect::<Vec<_>>()
        };
        self.blocks.iter().flat_map(targets).collect()
    }

    /// Extends the body by the code that ends iterators which the body starts, on the exits of this loop too.
    /// Returns whether that was possible.
    pub fn absorb_ends(&mut self, function: &mut MirFunction) -> bool {
        let order = function.reverse_postorder();
        let ops = function.definitions();
        let started = self.started(function);
        let is_started =
            |value: &Value| matches!(ops[*value], Some(Op::StackAddr { slot, .. }) if started.contains(slot));
        let last_use = |block: &Block| {
            let mut insts = function.blocks[*block].insts.iter();
            Some((*block, insts.rposition(|inst| inst.op.operands().iter().any(is_started))? + 1))
        };
        let outside = order.iter().filter(|block| !self.blocks.contains(block));
        let ends: BTreeMap<Block, usize> = outside.filter_map(last_use).collect();
        self.absorb(function, &ends)
    }

    /// Extends the body by the first instructions of blocks after it, so many of each, and by all blocks on the
    /// paths to them. Returns whether that was possible.
    fn absorb(&mut self, function: &mut MirFunction, ends: &BTreeMap<Block, usize>) -> bool {
        let is_possible = self.extend(function, ends.keys().copied().collect());
        if is_possible {
            ends.iter().for_each(|(block, end)| self.cut(function, *block, *end));
        }
        is_possible
    }

    /// Extends the body by blocks after it and by all blocks on the paths to them. Returns whether that was
    /// possible: all paths to them must start in the body.
    pub fn extend(&mut self, function: &MirFunction, mut blocks: Vec<Block>) -> bool {
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let dominators = Dominators::of(&order, &predecessors);
        if !blocks.iter().all(|block| dominators.dominates(self.entry, *block)) {
            return false;
        }
        while let Some(block) = blocks.pop() {
            if self.blocks.insert(block) {
                blocks.extend(&predecessors[block]);
            }
        }
        true
    }

    /// Removes the instructions of a block from `end` on from the body, if it is the last one of its path.
    pub fn cut(&self, function: &mut MirFunction, block: Block, end: usize) {
        if !function.blocks[block].term.successors().any(|to| self.blocks.contains(&to)) {
            function.split(block, end);
        }
    }

    /// The slots of the iterators that the body starts.
    fn started(&self, function: &MirFunction) -> BTreeSet<Slot> {
        let ops = function.definitions();
        let insts = self.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
        let slots = insts.filter_map(|inst| match &inst.op {
            Op::Call { callee, args } if callee.step() == Some(IterStep::New) => match ops[*args.first()?] {
                Some(Op::StackAddr { slot, .. }) => Some(*slot),
                _ => None,
            },
            _ => None,
        });
        slots.collect()
    }
}

/// The loops of a function, inner ones before those around them.
pub fn loops(function: &MirFunction) -> Vec<IteratorLoop> {
    let order = function.reverse_postorder();
    let predecessors = function.predecessors(&order);
    let dominators = Dominators::of(&order, &predecessors);
    let headers = headers(function, &order);
    let mut found: Vec<IteratorLoop> =
        headers.filter_map(|header| natural_loop(function, &predecessors, &dominators, header)).collect();
    found.sort_by_key(|one| one.blocks.len());
    found
}

/// The loop of this header, if it is one.
pub fn loop_of(function: &MirFunction, header: Block) -> Option<IteratorLoop> {
    let order = function.reverse_postorder();
    let predecessors = function.predecessors(&order);
    let dominators = Dominators::of(&order, &predecessors);
    natural_loop(function, &predecessors, &dominators, header)
}

/// How many of these loops are nested in each, itself counted; by header. Inner loops come before those around them.
pub fn heights(loops: &[IteratorLoop]) -> BTreeMap<Block, u32> {
    let mut heights = BTreeMap::new();
    for one in loops {
        let inner = heights.iter().filter(|(header, _)| one.blocks.contains(header));
        let height = inner.map(|(_, height)| *height).max().unwrap_or(0) + 1;
        heights.insert(one.header, height);
    }
    heights
}

/// The first blocks of the iterations of a function's loops.
pub fn iteration_entries(
    function: &MirFunction,
    order: &[Block],
    predecessors: &Predecessors,
    dominators: &Dominators,
) -> impl Iterator<Item = Block> {
    headers(function, order)
        .filter_map(|header| body(function, predecessors, dominators, header).map(|body| body.entry))
}

/// The blocks that ask an iterator for the next item.
pub fn headers(function: &MirFunction, order: &[Block]) -> impl Iterator<Item = Block> {
    order.iter().copied().filter(|block| function.blocks[*block].insts.iter().any(asks))
}

/// The body of a natural loop.
struct Body {
    entry: Block,
    /// In no order.
    blocks: Vec<Block>,
}

fn body(
    function: &MirFunction,
    predecessors: &Predecessors,
    dominators: &Dominators,
    header: Block,
) -> Option<Body> {
    let blocks = natural_blocks(predecessors, dominators, header);
    let mut inside = function.blocks[header].term.successors().filter(|block| blocks.contains(block));
    let entry = inside.next()?;
    if inside.next().is_some() {
        return None;
    }
    Some(Body { entry, blocks })
}

/// The blocks of the natural loop of a header without the header, in no order; none if it is no header.
pub fn natural_blocks(predecessors: &Predecessors, dominators: &Dominators, header: Block) -> Vec<Block> {
    let mut seen = vec![false; predecessors.len()];
    let mut blocks = Vec::new();
    let mut open: Vec<Block> =
        predecessors[header].iter().copied().filter(|from| dominators.dominates(header, *from)).collect();
    while let Some(block) = open.pop() {
        if block != header && !std::mem::replace(&mut seen[block.index()], true) {
            blocks.push(block);
            open.extend(&predecessors[block]);
        }
    }
    blocks
}

fn natural_loop(
    function: &MirFunction,
    predecessors: &Predecessors,
    dominators: &Dominators,
    header: Block,
) -> Option<IteratorLoop> {
    let Body { entry, blocks } = body(function, predecessors, dominators, header)?;
    let blocks: BTreeSet<Block> = blocks.into_iter().collect();
    let iteration = iteration(function, header, &blocks)?;
    Some(IteratorLoop { header, entry, blocks, iteration })
}

/// Whether an instruction asks an iterator for the next item.
fn asks(inst: &Inst) -> bool {
    matches!(inst.op, Op::Call { callee, .. } if callee.step() == Some(IterStep::Next))
}

/// The values by which the iterations of a header read their item in some blocks.
fn iteration(function: &MirFunction, header: Block, blocks: &BTreeSet<Block>) -> Option<Iteration> {
    let next = function.blocks[header].insts.iter().find(|inst| asks(inst))?;
    let (item, Op::Call { callee, args }) = (next.result?, &next.op) else { return None };
    let insts = || blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    let checked =
        insts().filter(|inst| inst.op == Op::NonNull(item)).filter_map(|inst| inst.result).collect();
    if *callee != Callee::MapIter(MapIter::Next) {
        return Some(Iteration::Number(checked));
    }
    let ops = function.definitions();
    let slot = |value: &Value| match ops[*value] {
        Some(Op::StackAddr { slot, .. }) => Some(*slot),
        _ => None,
    };
    let iterator = args.first().and_then(slot)?;
    let is_key = |inst: &&Inst| match &inst.op {
        Op::Call { callee: Callee::MapIter(MapIter::Key), args } => {
            args.first().and_then(slot) == Some(iterator)
        }
        _ => false,
    };
    let keys = insts().filter(is_key).filter_map(|inst| inst.result).collect();
    Some(Iteration::MapEntry { entries: checked, keys })
}
