//! Precise constants: states are equal only if constants and ranges on which a branch depends are.
//!
//! - Rule: the verifier follows each path through a function, and stops where it was in the same state. A variable that
//!   starts as a constant and changes in some branches is another constant on each path, and counts as soon as it is
//!   compared: thirty branches are a thousand million paths. A number that some branches add to, such as the place of the
//!   next field in a packet, has another range on each. One that the verifier does not know is the same on all of them.
//!   Source: kernel/bpf/verifier.c, `is_state_visited` and `regsafe`.
//! - Kernels: all.
//! - Here: initial constants are hidden in functions with many branches, and many numbers that grow from merge to merge, in
//!   functions with few where each is computed from the one before. Where a check of an address depends on such a number and
//!   a mask says what the others are at most, it is masked: else the check would be a branch. Three kinds stay known. What
//!   decides whether a record of a ring buffer is released, and what may tell whether there is one: the verifier must see
//!   that it is released on each path. What an address is computed from without a check or a mask between: its bound is that
//!   of each number that reaches it. What ends an ordinary loop, of which the verifier follows each iteration: 6.1 does not
//!   see that an unknown counter on the stack changes ("infinite loop detected").
//! - Cases: `many_branches`; `sum_as_index`, whose twenty conditional additions were two to the twentieth paths;
//!   `unknown_offsets`; the parsers of `tests/src/growing_scripts.rs`, whose 60 fields were 251,744 instructions, and are
//!   8,319.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::iterator_loops::{headers, natural_blocks};
use crate::kernel::mir::{BinaryOp, Block, Callee, Helper, MirFunction, Op, Origin, Terminator, Type, Value};
use crate::kernel::pass::bounds::{self, greatest};
use crate::kernel::pass::origins::Origins;
use crate::kernel::pass::region::HiddenZeros;
use crate::kernel::verifier::code::{has_many_branches, may_know_grown, may_know_steps};
use crate::kernel::verifier::releases;

/// Runs the pass; returns whether anything changed. It must be the last, and run once.
pub fn run(function: &mut MirFunction) -> bool {
    let order = function.reverse_postorder();
    let params: usize = order.iter().map(|block| function.blocks[*block].params.len()).sum();
    let has_many_branches = has_many_branches(function);
    if !has_many_branches && may_know_steps(params) {
        return false;
    }
    let mut constant: IndexVec<Value, bool> = function.values.iter().map(|_| false).collect();
    for inst in function.blocks.iter().flat_map(|block| &block.insts).filter(|_| has_many_branches) {
        if let (Some(result), Op::Const(_)) = (inst.result, &inst.op) {
            constant[result] = true;
        }
    }
    let decides = Origins::new(function).deciding(function);
    let mut constants = Constants {
        function,
        has_many_branches,
        constant,
        decides,
        kept: IndexVec::new(),
        grown: BTreeSet::new(),
        most: IndexVec::new(),
        zeros: None,
    };
    constants.keep(&order);
    constants.grown = constants.grown(&order);
    constants.most = constants.most(&order);
    order.into_iter().for_each(|block| constants.hide(block));
    constants.zeros.is_some()
}

struct Constants<'a> {
    function: &'a mut MirFunction,
    has_many_branches: bool,
    /// The constants, in a function with many branches.
    constant: IndexVec<Value, bool>,
    /// A branch or an address depends on it.
    decides: IndexVec<Value, bool>,
    /// Whether a record is released depends on it, or an address without a check between.
    kept: IndexVec<Value, bool>,
    /// The parameters of blocks that are computed from earlier ones on some paths.
    grown: BTreeSet<Value>,
    /// The greatest number that the parameter of a block may be, if an address is checked that is computed from it.
    most: IndexVec<Value, Option<u64>>,
    zeros: Option<HiddenZeros>,
}

impl Constants<'_> {
    /// Finds the values that stay known.
    fn keep(&mut self, order: &[Block]) {
        let origins = Origins::new(self.function);
        let mut known = releases::deciding(self.function, order, &origins);
        known.extend(self.exits_of_loops(order));
        known.extend(self.beside_records(&origins));
        self.kept = origins.of(known);
        let far = origins.until(self.distances(), |op| bounds_itself(&origins, op));
        far.iter_enumerated().filter(|(_, is_far)| **is_far).for_each(|(value, _)| self.kept[value] = true);
    }

    /// The parameters of blocks beside a record that may be null there: they may tell whether it is.
    fn beside_records(&self, origins: &Origins<'_>) -> Vec<Value> {
        let records = origins.of(self.function.insts().filter_map(releases::released).collect());
        let params = self.function.blocks.iter().map(|block| &block.params);
        params.filter(|params| params.iter().any(|param| records[*param])).flatten().copied().collect()
    }

    /// The exit conditions of ordinary loops.
    fn exits_of_loops(&self, order: &[Block]) -> Vec<Value> {
        let predecessors = self.function.predecessors(order);
        let dominators = Dominators::of(order, &predecessors);
        let iterated: BTreeSet<Block> = headers(self.function, order).collect();
        let mut found = Vec::new();
        for header in order.iter().copied().filter(|block| !iterated.contains(block)) {
            if !predecessors[header].iter().any(|from| dominators.dominates(header, *from)) {
                continue;
            }
            let mut inside = BTreeSet::from([header]);
            inside.extend(natural_blocks(&predecessors, &dominators, header));
            found.extend(inside.iter().filter_map(|block| match &self.function.blocks[*block].term {
                Terminator::Branch { cond, then, otherwise } => {
                    let leaves = [then, otherwise].iter().any(|to| !inside.contains(&to.block));
                    leaves.then_some(*cond)
                }
                _ => None,
            }));
        }
        found
    }

    /// The numbers that are added to pointers.
    fn distances(&self) -> Vec<Value> {
        let insts = self.function.blocks.iter().flat_map(|block| &block.insts);
        let distances = insts.filter_map(|inst| match inst.op {
            Op::PtrAdd(_, distance) => Some(distance),
            _ => None,
        });
        distances.collect()
    }

    /// The numbers that are kept on the stack, where they may be keys: of an array the verifier looks up which.
    fn stored(&self) -> Vec<Value> {
        let insts = self.function.blocks.iter().flat_map(|block| &block.insts);
        let stored = insts.filter_map(|inst| match inst.op {
            Op::Store { base, value, .. } => {
                (self.function.values[base] == Type::Ptr(Origin::Stack)).then_some(value)
            }
            _ => None,
        });
        stored.collect()
    }

    /// The parameters that get, on some path, a result computed from a parameter of an earlier block; none if they are few: in
    /// a function with few branches, if none is computed from many others.
    fn grown(&self, order: &[Block]) -> BTreeSet<Value> {
        let origins = Origins::new(self.function);
        let keys = origins.of(self.stored());
        let entry = self.function.entry();
        let mut merged = IndexVec::filled(self.function.values.len(), false);
        let mut found: BTreeMap<Value, usize> = BTreeMap::new();
        let inner = order.iter().filter(|block| **block != entry);
        for target in inner.flat_map(|block| self.function.blocks[*block].term.targets()) {
            for (arg, param) in target.args.iter().zip(&self.function.blocks[target.block].params) {
                merged[*param] = true;
                let decides = self.decides[*param] || keys[*param];
                let counts = decides && !self.kept[*param] && !found.contains_key(param);
                if counts && let Some(from) = grows(&origins, &merged, *arg, *param) {
                    let before =
                        found.iter().filter(|(value, _)| from[**value]).map(|(_, steps)| *steps).max();
                    found.insert(*param, before.unwrap_or(0) + 1);
                }
            }
        }
        let steps = found.values().copied().max().unwrap_or(0);
        let are_few =
            if self.has_many_branches { may_know_grown(found.len()) } else { may_know_steps(steps) };
        if are_few { BTreeSet::new() } else { found.into_keys().collect() }
    }

    /// What parameters are at most, of which checks of addresses depend, if a mask says the same: a check that is certain is
    /// no branch, and another bound another state.
    fn most(&self, order: &[Block]) -> IndexVec<Value, Option<u64>> {
        let function = &*self.function;
        let checked = function.insts().filter_map(|inst| match inst.op {
            Op::Below { value, .. } => Some(value),
            _ => None,
        });
        let origins = Origins::new(function);
        let checked = origins.until(checked.collect(), |op| matches!(op, Op::Call { .. } | Op::Load { .. }));
        let mut most = IndexVec::filled(function.values.len(), None);
        for target in order.iter().flat_map(|block| function.blocks[*block].term.targets()) {
            for (arg, param) in target.args.iter().zip(&function.blocks[target.block].params) {
                if checked[*param] {
                    let own = bounds::followed(&origins.definitions, &function.values, *arg, &|_| true).most;
                    most[*param] = most[*param].max(Some(own));
                }
            }
        }
        for value in function.values.ids() {
            let whole = greatest(function.values[value].bits().unwrap_or(u64::BITS));
            most[value] = most[value].filter(|most| *most <= whole >> 1 && most & (most + 1) == 0);
        }
        most
    }

    /// Hides the constants that a block passes on, and what it passes for numbers that grow.
    fn hide(&mut self, block: Block) {
        let mut term = self.function.blocks[block].term.clone();
        for target in term.targets_mut() {
            let params = self.function.blocks[target.block].params.clone();
            for (arg, param) in target.args.iter_mut().zip(params) {
                let counts = self.constant[*arg] && self.decides[param] && !self.kept[param];
                if counts || self.grown.contains(&param) {
                    *arg = self.hidden(block, *arg, self.most[param]);
                }
            }
        }
        self.function.blocks[block].term = term;
    }

    /// Hides a number of which the verifier is to know that it is at most `most`.
    fn hidden(&mut self, block: Block, value: Value, most: Option<u64>) -> Value {
        let ty = self.function.values[value];
        if let Type::Ptr(_) = ty {
            return value;
        }
        let function = &mut *self.function;
        let zero = self.zeros.get_or_insert_with(|| zeros(function)).of(ty);
        let hidden = function.append(block, ty, Op::Opaque { value, zero });
        let Some(most) = most else { return hidden };
        let mask = function.append(block, ty, Op::Const(most));
        function.append(block, ty, Op::Binary(BinaryOp::And, hidden, mask))
    }
}

/// Whether the bound of a result is the same whatever is known of its operands.
fn bounds_itself(origins: &Origins<'_>, op: &Op) -> bool {
    let is_constant = |value: Value| matches!(origins.definitions[value], Some(Op::Const(_)));
    match op {
        Op::Call { .. } | Op::Load { .. } | Op::Below { .. } | Op::Narrow { signed: false, .. } => true,
        Op::Binary(BinaryOp::And, a, b) => is_constant(*a) || is_constant(*b),
        _ => false,
    }
}

/// Returns the origins of what is passed for a parameter, if that is a result computed from one of the others in `merged`.
fn grows(
    origins: &Origins<'_>,
    merged: &IndexVec<Value, bool>,
    arg: Value,
    param: Value,
) -> Option<IndexVec<Value, bool>> {
    if !matches!(origins.definitions[arg], Some(Op::Binary(..))) {
        return None;
    }
    let is_last =
        |op: &Op| matches!(op, Op::Call { .. } | Op::Load { .. } | Op::LoadField { .. } | Op::Below { .. });
    let from = origins.until(vec![arg], is_last);
    let grows =
        from.iter_enumerated().any(|(value, is_origin)| *is_origin && merged[value] && value != param);
    grows.then_some(from)
}

/// Computes hidden zeros at the function's start.
fn zeros(function: &mut MirFunction) -> HiddenZeros {
    let entry = function.entry();
    let rest = std::mem::take(&mut function.blocks[entry].insts);
    let random = Op::Call { callee: Callee::Helper(Helper::GetPrandom), args: Vec::new() };
    let number = function.append(entry, Type::I64, random);
    let zeros = HiddenZeros::new(function, entry, number);
    function.blocks[entry].insts.extend(rest);
    zeros
}
