//! Loops under iterators and walks through maps, and which blocks belong to them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::reachable_predecessors;
use crate::index::Id;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{
    Block, BlockData, Callee, Inst, IterStep, MapIter, MirFunction, Op, Predecessors, Slot, Target,
    Terminator, Value,
};

/// A loop under an iterator, or a walk.
pub struct Loop {
    /// Asks the iterator.
    pub header: Block,
    /// Where a turn starts; others may lead there, too, before `Iterator::give_entries`.
    pub entry: Block,
    /// The blocks of a turn.
    pub blocks: BTreeSet<Block>,
    /// What a turn is about.
    turn: Turn,
}

/// What a turn is about, as values of the function.
pub enum Turn {
    /// A number: the addresses of the counter inside the iterator.
    Number(BTreeSet<Value>),
    /// An entry of a map: pointers to it and to its key.
    Entry { entries: BTreeSet<Value>, keys: BTreeSet<Value> },
}

impl Loop {
    /// The loop of an iterator whose header is never come back to: from where the turn starts to where it has
    /// found out what it is about. What the block of the header does before that becomes a block of its own.
    pub fn once(function: &mut MirFunction, asking: Block) -> Option<Loop> {
        let asked = function.blocks[asking].insts.iter().position(asks)?;
        let header = split(function, asking, asked);
        let Terminator::Branch { otherwise, .. } = &function.blocks[header].term else { return None };
        let entry = otherwise.block;
        let order = function.reverse_postorder();
        let turn = turn(function, header, &order.iter().copied().collect())?;
        let mut one = Loop { header, entry, blocks: BTreeSet::from([entry]), turn };
        let last_read = |block: &Block| {
            let last = function.blocks[*block].insts.iter().rposition(|inst| one.reads_turn(inst));
            Some((*block, last?))
        };
        let reads: BTreeMap<Block, usize> = order.iter().filter_map(last_read).collect();
        let dominators = Dominators::new(function, &order);
        if !reads.keys().all(|block| dominators.dominates(entry, *block)) {
            return None;
        }
        let predecessors = reachable_predecessors(function);
        let mut open: Vec<Block> = reads.keys().copied().collect();
        while let Some(block) = open.pop() {
            if one.blocks.insert(block) {
                open.extend(&predecessors[block]);
            }
        }
        for (block, last) in reads {
            if !function.blocks[block].term.targets().iter().any(|to| one.blocks.contains(&to.block)) {
                split(function, block, last + 1);
            }
        }
        Some(one)
    }

    /// Whether its turns are about entries of a map.
    pub fn is_walk(&self) -> bool {
        matches!(self.turn, Turn::Entry { .. })
    }

    /// What a turn is about.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Whether a value is the address of the counter.
    pub fn is_counter(&self, value: Value) -> bool {
        matches!(&self.turn, Turn::Number(counters) if counters.contains(&value))
    }

    /// Whether a value is a pointer to the key of an entry.
    pub fn is_key(&self, value: Value) -> bool {
        matches!(&self.turn, Turn::Entry { keys, .. } if keys.contains(&value))
    }

    /// Whether an instruction can run before the body: it finds out what the turn is about, or reads the
    /// entry's key.
    pub fn runs_before(&self, inst: &Inst) -> bool {
        self.reads_turn(inst) || matches!(inst.op, Op::Load { base, .. } if self.is_key(base))
    }

    /// Whether an instruction finds out what the turn is about, which is known before the body is called.
    pub fn reads_turn(&self, inst: &Inst) -> bool {
        let makes_one_of =
            |values: &BTreeSet<Value>| inst.result.is_some_and(|result| values.contains(&result));
        match (&self.turn, &inst.op) {
            (Turn::Number(counters), Op::Load { base, .. }) => counters.contains(base),
            (Turn::Number(counters), _) => makes_one_of(counters),
            (Turn::Entry { entries, keys }, _) => makes_one_of(entries) || makes_one_of(keys),
        }
    }
}

impl Loop {
    /// The values that turns make.
    pub fn made_inside(&self, function: &MirFunction) -> BTreeSet<Value> {
        let blocks = self.blocks.iter().map(|block| &function.blocks[*block]);
        let made = blocks.flat_map(|data| {
            let results = data.insts.iter().filter_map(|inst| inst.result);
            data.params.iter().copied().chain(results)
        });
        made.collect()
    }

    /// Takes in what ends iterators that the body starts, on the ways out of this loop too: they are the
    /// body's own. Gives whether that could be done.
    pub fn take_ends(&mut self, function: &mut MirFunction) -> bool {
        let order = function.reverse_postorder();
        let predecessors = reachable_predecessors(function);
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
                open.extend(&predecessors[block]);
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

/// Makes a block of the instructions of another from one on, and gives it.
pub fn split(function: &mut MirFunction, block: Block, at: usize) -> Block {
    let data = &mut function.blocks[block];
    let (insts, span) = (data.insts.split_off(at), data.span);
    let behind = Terminator::Jump(Target::to(Block::new(0)));
    let term = std::mem::replace(&mut data.term, behind);
    let behind = function.blocks.push(BlockData { params: Vec::new(), insts, term, span });
    function.blocks[block].term = Terminator::Jump(Target::to(behind));
    behind
}

/// The loops of a function, inner ones before those around them.
pub fn loops(function: &MirFunction) -> Vec<Loop> {
    let order = function.reverse_postorder();
    let predecessors = function.predecessors(&order);
    let dominators = Dominators::of(&order, &predecessors);
    let headers = headers(function, &order);
    let mut found: Vec<Loop> =
        headers.filter_map(|header| natural_loop(function, &predecessors, &dominators, header)).collect();
    found.sort_by_key(|one| one.blocks.len());
    found
}

/// Where the turns of a function's loops start.
pub fn turn_entries(
    function: &MirFunction,
    order: &[Block],
    predecessors: &Predecessors,
    dominators: &Dominators,
) -> impl Iterator<Item = Block> {
    headers(function, order)
        .filter_map(|header| body(function, predecessors, dominators, header).map(|body| body.entry))
}

/// The blocks that ask for the next turn.
pub fn headers(function: &MirFunction, order: &[Block]) -> impl Iterator<Item = Block> {
    order.iter().copied().filter(|block| function.blocks[*block].insts.iter().any(asks))
}

/// What a header starts.
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
) -> Option<Loop> {
    let Body { entry, blocks } = body(function, predecessors, dominators, header)?;
    let blocks: BTreeSet<Block> = blocks.into_iter().collect();
    let turn = turn(function, header, &blocks)?;
    Some(Loop { header, entry, blocks, turn })
}

/// Whether an instruction asks for the next turn.
fn asks(inst: &Inst) -> bool {
    matches!(inst.op, Op::Call { callee, .. } if callee.step() == Some(IterStep::Next))
}

/// What the turns are about that a header asks for and blocks read.
fn turn(function: &MirFunction, header: Block, blocks: &BTreeSet<Block>) -> Option<Turn> {
    let ops = function.definitions();
    let next = function.blocks[header].insts.iter().find(|inst| asks(inst))?;
    let (asked, Op::Call { callee, args }) = (next.result?, &next.op) else { return None };
    let insts = || blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    let there = insts().filter(|inst| inst.op == Op::NonNull(asked)).filter_map(|inst| inst.result).collect();
    if *callee != Callee::MapIter(MapIter::Next) {
        return Some(Turn::Number(there));
    }
    let slot = |value: &Value| match ops[*value] {
        Some(Op::StackAddr { slot, .. }) => Some(*slot),
        _ => None,
    };
    let walk = args.first().and_then(slot)?;
    let of_walk = |inst: &&Inst| match &inst.op {
        Op::Call { callee: Callee::MapIter(MapIter::Key), args } => args.first().and_then(slot) == Some(walk),
        _ => false,
    };
    Some(Turn::Entry {
        entries: there,
        keys: insts().filter(of_walk).filter_map(|inst| inst.result).collect(),
    })
}
