//! What branches of a turn show of pointers from outside, where code behind the loop relies on it.
//!
//! The verifier does not follow a way out of a called function into its caller: what was tested in there, the
//! caller tests again. No such test fails.

use std::collections::{BTreeMap, BTreeSet};

use super::loops::Loop;
use super::maker::Caller;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, MirFunction, Op, Target, Terminator, Type, Value};

/// A way out of a loop: from where, and which of the targets.
type Exit = (Block, usize);

/// What is known of pointers: those that are not null, and the bytes that are there before the end of a
/// packet.
type Facts = BTreeMap<(Value, Option<Value>), u32>;

/// What is tested again on each way out of a loop.
#[derive(Default)]
pub struct Shown {
    facts: BTreeMap<Exit, Facts>,
    /// Ends of packets that turns ask for: others ask again.
    ends: BTreeMap<Value, Op>,
}

impl Shown {
    /// Looks at a loop whose turns become calls.
    pub fn new(function: &MirFunction, one: &Loop, exits: &[Exit]) -> Shown {
        if !is_any_taken_for_tested(function, one) {
            return Shown::default();
        }
        let order = function.reverse_postorder();
        let predecessors = function.predecessors(&order);
        let dominators = Dominators::of(&order, &predecessors);
        let tested = tested_before(function, one, &order, &dominators);
        if tested.is_empty() {
            return Shown::default();
        }
        let ops = function.definitions();
        let ends = packet_ends(function, one);
        let one_of = |end: Value| {
            let same = ends.iter().find(|(_, op)| ops[end] == Some(op));
            same.map_or(end, |(first, _)| *first)
        };
        let learnt = |(block, number): Exit| {
            let Terminator::Branch { cond, .. } = function.blocks[block].term else { return None };
            match *ops[cond]? {
                Op::Within { pointer, bytes, end } if number == 0 => {
                    Some(((pointer, Some(one_of(end))), bytes))
                }
                Op::IsNull(pointer) if number == 1 => Some(((pointer, None), 0)),
                _ => None,
            }
        };
        let mut known: BTreeMap<Block, Facts> = BTreeMap::new();
        let at_end = |known: &BTreeMap<Block, Facts>, exit: Exit| {
            let mut facts = known.get(&exit.0)?.clone();
            if let Some((of, bytes)) = learnt(exit).filter(|((pointer, _), _)| tested.contains(pointer)) {
                let there = facts.entry(of).or_default();
                *there = bytes.max(*there);
            }
            Some(facts)
        };
        for block in order.iter().filter(|block| one.blocks.contains(block)) {
            // What comes back to a block has been there and knows no less.
            let before = predecessors[*block].iter().filter(|from| !dominators.dominates(*block, **from));
            let edges = before.flat_map(|from| {
                let targets = function.blocks[*from].term.targets().into_iter().enumerate();
                targets.filter(|(_, to)| to.block == *block).map(|(number, _)| (*from, number))
            });
            let edges: BTreeSet<Exit> = edges.collect();
            let ways = edges.into_iter().map(|edge| at_end(&known, edge).unwrap_or_default());
            let facts = ways.reduce(both).unwrap_or_default();
            known.insert(*block, facts);
        }
        let facts = exits.iter().filter_map(|exit| Some((*exit, at_end(&known, *exit)?))).collect();
        Shown { facts, ends }
    }

    /// Tests again what was tested on the way to an exit. Gives the block to go on in.
    pub fn test_again(&self, exit: Exit, way: Block, failed: Block, caller: &mut Caller<'_>) -> Block {
        let mut at = way;
        for ((pointer, end), bytes) in self.facts.get(&exit).into_iter().flatten() {
            let (pointer, there) = (*pointer, caller.block());
            let end = end.map(|end| match self.ends.get(&end) {
                Some(asks) => caller.make(at, caller.function.values[end], asks.clone()),
                None => end,
            });
            let (then, otherwise, test) = match end {
                Some(end) => (there, failed, Op::Within { pointer, bytes: *bytes, end }),
                None => (failed, there, Op::IsNull(pointer)),
            };
            let cond = caller.make(at, Type::I32, test);
            let (then, otherwise) = (Target::to(then), Target::to(otherwise));
            caller.function.blocks[at].term = Terminator::Branch { cond, then, otherwise };
            at = there;
        }
        at
    }
}

/// Whether code outside of the loop takes any pointer for tested, wherever it lies. Most functions have none.
fn is_any_taken_for_tested(function: &MirFunction, one: &Loop) -> bool {
    let outside = function.blocks.iter_enumerated().filter(|(block, _)| !one.blocks.contains(block));
    let mut insts = outside.flat_map(|(_, data)| &data.insts);
    insts.any(|inst| matches!(inst.op, Op::InPacket { .. } | Op::NonNull(_)))
}

/// The pointers that there are outside, and that code behind the loop takes for tested, where only turns
/// lead.
fn tested_before(
    function: &MirFunction,
    one: &Loop,
    order: &[Block],
    dominators: &Dominators,
) -> BTreeSet<Value> {
    let behind = order.iter().filter(|block| !one.blocks.contains(block) && **block != one.header);
    let behind = behind.filter(|block| dominators.dominates(one.entry, **block));
    let insts = behind.flat_map(|block| &function.blocks[*block].insts);
    let found = insts.filter_map(|inst| match inst.op {
        Op::InPacket { pointer, .. } | Op::NonNull(pointer) => Some(pointer),
        _ => None,
    });
    let mut found: BTreeSet<Value> = found.collect();
    let made = one.made_inside(function);
    let ops = function.definitions();
    // The bounds of a packet others ask for again.
    found.retain(|pointer| !made.contains(pointer) || matches!(ops[*pointer], Some(Op::PacketEdge { .. })));
    found
}

/// What turns compare addresses in packets with, as far as they ask for it themselves.
fn packet_ends(function: &MirFunction, one: &Loop) -> BTreeMap<Value, Op> {
    let insts = one.blocks.iter().flat_map(|block| &function.blocks[*block].insts);
    let asked = insts.filter(|inst| matches!(inst.op, Op::PacketEdge { .. }));
    asked.filter_map(|inst| Some((inst.result?, inst.op.clone()))).collect()
}

/// What two ways agree on.
fn both(one: Facts, other: Facts) -> Facts {
    let common = one.into_iter().filter_map(|(of, bytes)| Some((of, bytes.min(*other.get(&of)?))));
    common.collect()
}
