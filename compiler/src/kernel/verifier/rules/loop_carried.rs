//! Hides from the verifier the loop-carried numbers that a loop under an iterator computes from themselves.
//!
//! The verifier leaves such a loop when an iteration starts with nothing new: each number within its range in an
//! earlier iteration. A number that a loop counts down, and that a comparison in it has narrowed, has another range
//! in each iteration. Lowering hides the initial value ([`Op::Opaque`]); the first iteration may still differ from
//! the others, because it has not used all of the stack. So an argument for the header is hidden too, if it was
//! computed from the header's parameters and a branch or an address depends on it.

use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, Callee, Inst, Kfunc, MirFunction, Op, Predecessors, Value};
use crate::kernel::pass::origins::Origins;

/// Runs the pass; returns whether anything changed. It must run once, after all passes that change loops.
pub fn run(function: &mut MirFunction) -> bool {
    let order = function.reverse_postorder();
    let headers: Vec<_> = order.iter().copied().filter(|block| is_header(function, *block)).collect();
    if headers.is_empty() {
        return false;
    }
    let predecessors = function.predecessors(&order);
    let origins = Origins::new(function);
    let carried = LoopCarried {
        function,
        dominators: Dominators::of(&order, &predecessors),
        predecessors,
        decides: origins.deciding(function),
        origins,
    };
    let found: Vec<Drift> = headers.iter().flat_map(|header| carried.drifting(*header)).collect();
    for Drift { from, target, index, value, zero } in &found {
        let op = Op::Opaque { value: *value, zero: *zero };
        let hidden = function.append(*from, function.values[*value], op);
        if let Some(target) = function.blocks[*from].term.targets_mut().into_iter().nth(*target) {
            target.args[*index] = hidden;
        }
    }
    !found.is_empty()
}

/// A loop-carried number that changes in each iteration.
struct Drift {
    /// The block that passes it to the header.
    from: Block,
    /// The target of its terminator.
    target: usize,
    /// The argument.
    index: usize,
    value: Value,
    /// The zero that hides the initial value.
    zero: Value,
}

struct LoopCarried<'a> {
    function: &'a MirFunction,
    dominators: Dominators,
    predecessors: Predecessors,
    origins: Origins<'a>,
    decides: IndexVec<Value, bool>,
}

impl LoopCarried<'_> {
    fn drifting(&self, header: Block) -> Vec<Drift> {
        let mut sources = self.predecessors[header].to_vec();
        sources.sort_unstable();
        sources.dedup();
        let (back, entries): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|from| self.dominators.dominates(header, *from));
        let mut found = Vec::new();
        for (index, param) in self.function.blocks[header].params.iter().enumerate() {
            if !self.decides[*param] {
                continue;
            }
            let mut first = entries.iter().flat_map(|from| self.passed(*from, header, index));
            let Some(zero) = first.find_map(|(_, value)| self.hidden_by(value)) else { continue };
            for from in &back {
                let passed = self.passed(*from, header, index);
                let drifts = passed.filter(|(_, value)| value != param && self.comes_from(*value, header));
                found.extend(drifts.map(|(target, value)| Drift { from: *from, target, index, value, zero }));
            }
        }
        found
    }

    /// The arguments that a block passes for a parameter of another, each with the index of its target.
    fn passed(&self, from: Block, to: Block, index: usize) -> impl Iterator<Item = (usize, Value)> {
        let targets = self.function.blocks[from].term.targets().into_iter().enumerate();
        targets
            .filter(move |(_, target)| target.block == to)
            .map(move |(at, target)| (at, target.args[index]))
    }

    fn hidden_by(&self, value: Value) -> Option<Value> {
        match self.origins.definitions[value] {
            Some(Op::Opaque { zero, .. }) => Some(*zero),
            _ => None,
        }
    }

    /// Whether a value is computed from a parameter of the header, as far as the verifier knows.
    fn comes_from(&self, value: Value, header: Block) -> bool {
        let is_last = |op: &Op| {
            matches!(op, Op::Call { .. } | Op::Load { .. } | Op::LoadField { .. } | Op::Opaque { .. })
        };
        let origins = self.origins.until(vec![value], is_last);
        self.function.blocks[header].params.iter().any(|param| origins[*param])
    }
}

fn is_header(function: &MirFunction, block: Block) -> bool {
    let next = Callee::Kfunc(Kfunc::IterNumNext);
    let insts = &function.blocks[block].insts;
    insts.iter().any(|inst: &Inst| matches!(inst.op, Op::Call { callee, .. } if callee == next))
}
