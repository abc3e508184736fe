//! Hides from the verifier what a loop under an iterator makes of its own numbers.
//!
//! The verifier leaves such a loop when it comes to a turn with nothing new: each number within what it knew
//! in an earlier turn. A number that a loop counts down, and that a comparison in it has narrowed, is another
//! range in each turn. Lowering hides what it starts as ([`Op::Opaque`]); the first turn alone may still be
//! unlike the others, because it has not used all of the stack. So what goes back to the loop's start is
//! hidden too, if it was made of what came from there and a branch or an address depends on it.

use std::collections::BTreeSet;

use super::decide::deciding;
use super::reachable_predecessors;
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Callee, Inst, Kfunc, MirFunction, Op, Predecessors, Value};

/// Runs the pass; gives whether anything changed. It must be run once, when nothing else changes loops any
/// more.
pub fn run(function: &mut MirFunction) -> bool {
    let found = Loops::new(function).map(|loops| loops.drifting()).unwrap_or_default();
    for Drift { from, target, index, value, zero } in &found {
        let result = function.values.push(function.values[*value]);
        let block = &mut function.blocks[*from];
        let op = Op::Opaque { value: *value, zero: *zero };
        block.insts.push(Inst { result: Some(result), op, span: block.span });
        if let Some(target) = block.term.targets_mut().into_iter().nth(*target) {
            target.args[*index] = result;
        }
    }
    !found.is_empty()
}

/// A number that goes back to a loop's start, another in each turn.
struct Drift {
    from: Block,
    /// Which of the targets of the block's end leads there.
    target: usize,
    /// Which of its arguments.
    index: usize,
    value: Value,
    /// What hides it.
    zero: Value,
}

struct Loops<'a> {
    function: &'a MirFunction,
    headers: Vec<Block>,
    dominators: Dominators,
    predecessors: Predecessors,
    definitions: IndexVec<Value, Option<&'a Op>>,
    /// The block whose parameter a value is, and which.
    params: IndexVec<Value, Option<(Block, usize)>>,
    decides: IndexVec<Value, bool>,
}

impl<'a> Loops<'a> {
    /// The loops of a function that has any.
    fn new(function: &'a MirFunction) -> Option<Loops<'a>> {
        let order = function.reverse_postorder();
        let headers: Vec<_> = order.iter().copied().filter(|block| is_header(function, *block)).collect();
        if headers.is_empty() {
            return None;
        }
        let mut params: IndexVec<_, _> = function.values.iter().map(|_| None).collect();
        for (block, data) in function.blocks.iter_enumerated() {
            data.params.iter().enumerate().for_each(|(at, param)| params[*param] = Some((block, at)));
        }
        Some(Loops {
            function,
            headers,
            dominators: Dominators::new(function, &order),
            predecessors: reachable_predecessors(function),
            definitions: function.definitions(),
            params,
            decides: deciding(function),
        })
    }

    fn drifting(&self) -> Vec<Drift> {
        self.headers.iter().flat_map(|header| self.drifting_in(*header)).collect()
    }

    fn drifting_in(&self, header: Block) -> Vec<Drift> {
        let sources: BTreeSet<Block> = self.predecessors[header].iter().copied().collect();
        let (back, entries): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|from| self.dominators.dominates(header, *from));
        let mut found = Vec::new();
        for (index, param) in self.function.blocks[header].params.iter().enumerate() {
            if !self.decides[*param] {
                continue;
            }
            let first = entries.iter().flat_map(|from| self.passed(*from, header, index));
            let Some(zero) = first.into_iter().find_map(|(_, value)| self.hidden_by(value)) else { continue };
            for from in &back {
                let passed = self.passed(*from, header, index);
                let drifts = passed.filter(|(_, value)| value != param && self.comes_from(*value, header));
                found.extend(drifts.map(|(target, value)| Drift { from: *from, target, index, value, zero }));
            }
        }
        found
    }

    /// What a block passes to another as one of its parameters, and by which of its targets.
    fn passed(&self, from: Block, to: Block, index: usize) -> impl Iterator<Item = (usize, Value)> {
        let targets = self.function.blocks[from].term.targets().into_iter().enumerate();
        targets
            .filter(move |(_, target)| target.block == to)
            .map(move |(at, target)| (at, target.args[index]))
    }

    fn hidden_by(&self, value: Value) -> Option<Value> {
        match self.definitions[value] {
            Some(Op::Opaque { zero, .. }) => Some(*zero),
            _ => None,
        }
    }

    /// Whether a value is made of what the loop's start was given.
    fn comes_from(&self, value: Value, header: Block) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if !seen.insert(value) {
                continue;
            }
            match (self.definitions[value], self.params[value]) {
                (_, Some((block, _))) if block == header => return true,
                (_, Some((block, index))) => {
                    let sources = self.predecessors[block].iter();
                    open.extend(
                        sources.flat_map(|from| self.passed(*from, block, index)).map(|(_, value)| value),
                    );
                }
                // What these give does not depend on the turn, as far as the verifier knows.
                (Some(Op::Call { .. } | Op::Load { .. } | Op::LoadField { .. } | Op::Opaque { .. }), _) => {}
                (Some(op), _) => open.extend(op.operands()),
                (None, None) => {}
            }
        }
        false
    }
}

fn is_header(function: &MirFunction, block: Block) -> bool {
    let next = Callee::Kfunc(Kfunc::IterNumNext);
    let insts = &function.blocks[block].insts;
    insts.iter().any(|inst| matches!(inst.op, Op::Call { callee, .. } if callee == next))
}
