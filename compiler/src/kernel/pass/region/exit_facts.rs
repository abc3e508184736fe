//! What the body of a loop proves of pointers from outside, where code after the loop relies on it.
//!
//! The verifier does not carry what a called function has tested over to its caller. So the caller repeats the
//! tests before an exit; none of them fails.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::{Exit, IteratorLoop};
use crate::kernel::mir::{Block, Inst, MirFunction, Op, Terminator, Type, Value};

/// Proven facts of pointers: that one is not null, or how many bytes are before the end of a packet.
type Facts = BTreeMap<(Value, Option<Value>), u32>;

/// The tests to repeat at each exit of a loop.
#[derive(Default)]
pub struct ExitFacts {
    facts: BTreeMap<Exit, Facts>,
    /// Ends of packets that the body loads: the caller loads them, too.
    ends: BTreeMap<Value, Op>,
}

impl ExitFacts {
    /// Finds what the body of a loop proves.
    pub fn new(function: &MirFunction, one: &IteratorLoop, exits: &[Exit]) -> ExitFacts {
        let is_tested = |inst: &&Inst| matches!(inst.op, Op::InPacket { .. } | Op::NonNull(_));
        let outside = function.blocks.iter_enumerated().filter(|(block, _)| !one.blocks.contains(block));
        // Most functions have no such instruction.
        if outside.flat_map(|(_, data)| &data.insts).find(is_tested).is_none() {
            return ExitFacts::default();
        }
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let dominators = Dominators::of(&order, &predecessors);
        let relied_on = relied_on_after(function, one, &order, &dominators);
        if relied_on.is_empty() {
            return ExitFacts::default();
        }
        let ops = function.definitions();
        let ends = packet_ends(function, one);
        let one_of = |end: Value| {
            let same = ends.iter().find(|(_, op)| ops[end] == Some(op));
            same.map_or(end, |(first, _)| *first)
        };
        let learnt = |(block, index): Exit| {
            let Terminator::Branch { cond, .. } = function.blocks[block].term else { return None };
            match *ops[cond]? {
                Op::Within { pointer, bytes, end } if index == 0 => {
                    Some(((pointer, Some(one_of(end))), bytes))
                }
                Op::IsNull(pointer) if index == 1 => Some(((pointer, None), 0)),
                _ => None,
            }
        };
        let mut known: BTreeMap<Block, Facts> = BTreeMap::new();
        let at_end = |known: &BTreeMap<Block, Facts>, exit: Exit| {
            let mut facts = known.get(&exit.0)?.clone();
            if let Some((of, bytes)) = learnt(exit).filter(|((pointer, _), _)| relied_on.contains(pointer)) {
                let proven = facts.entry(of).or_default();
                *proven = bytes.max(*proven);
            }
            Some(facts)
        };
        for block in order.iter().filter(|block| one.blocks.contains(block)) {
            // A back edge proves no less: it comes from a block that this one dominates.
            let before = predecessors[*block].iter().filter(|from| !dominators.dominates(*block, **from));
            let edges = before.flat_map(|from| {
                let targets = function.blocks[*from].term.targets().into_iter().enumerate();
                targets.filter(|(_, to)| to.block == *block).map(|(index, _)| (*from, index))
            });
            let edges: BTreeSet<Exit> = edges.collect();
            let on_edges = edges.into_iter().map(|edge| at_end(&known, edge).unwrap_or_default());
            let facts = on_edges.reduce(common).unwrap_or_default();
            known.insert(*block, facts);
        }
        let facts = exits.iter().filter_map(|exit| Some((*exit, at_end(&known, *exit)?))).collect();
        ExitFacts { facts, ends }
    }

    /// Appends the tests of an exit. Returns the block that goes on.
    pub fn test_again(&self, exit: Exit, mut at: Block, failed: Block, function: &mut MirFunction) -> Block {
        for ((pointer, end), bytes) in self.facts.get(&exit).into_iter().flatten() {
            let (pointer, passed) = (*pointer, function.push_block(function.blocks[at].span));
            match *end {
                Some(end) => {
                    let end = match self.ends.get(&end) {
                        Some(load) => function.append(at, function.values[end], load.clone()),
                        None => end,
                    };
                    let within = Op::Within { pointer, bytes: *bytes, end };
                    let is_within = function.append(at, Type::I32, within);
                    function.branch(at, is_within, passed, failed);
                }
                None => {
                    let is_null = function.append(at, Type::I32, Op::IsNull(pointer));
                    function.branch(at, is_null, failed, passed);
                }
            }
            at = passed;
        }
        at
    }
}

/// The pointers from outside that code after the loop accesses without a test of its own.
fn relied_on_after(
    function: &MirFunction,
    one: &IteratorLoop,
    order: &[Block],
    dominators: &Dominators,
) -> BTreeSet<Value> {
    let after = order.iter().filter(|block| !one.blocks.contains(block) && **block != one.header);
    let after = after.filter(|block| dominators.dominates(one.entry, **block));
    let insts = after.flat_map(|block| &function.blocks[*block].insts);
    let found = insts.filter_map(|inst| match inst.op {
        Op::InPacket { pointer, .. } | Op::NonNull(pointer) => Some(pointer),
        _ => None,
    });
    let mut found: BTreeSet<Value> = found.collect();
    // The edges of a packet are loaded again after the loop.
    let is_inside = |inst: &&Inst| !matches!(inst.op, Op::PacketEdge { .. });
    for data in one.blocks.iter().map(|block| &function.blocks[*block]) {
        let results = data.insts.iter().filter(is_inside).filter_map(|inst| inst.result);
        for value in data.params.iter().copied().chain(results) {
            found.remove(&value);
        }
    }
    found
}

/// The ends of packets that the body loads.
fn packet_ends(function: &MirFunction, one: &IteratorLoop) -> BTreeMap<Value, Op> {
    let insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    let loads = insts.filter(|inst| matches!(inst.op, Op::PacketEdge { .. }));
    loads.filter_map(|inst| Some((inst.result?, inst.op.clone()))).collect()
}

/// The facts that are in both.
fn common(one: Facts, other: Facts) -> Facts {
    let both = one.into_iter().filter_map(|(of, bytes)| Some((of, bytes.min(*other.get(&of)?))));
    both.collect()
}
