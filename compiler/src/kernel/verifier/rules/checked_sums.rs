//! Checked sums: offsets in an array or a packet that are one number and different constants, each with a check.
//!
//! - Rule: what a branch says of a number, the verifier knows of its copies and of its sums with constants. A check of
//!   `x + 1` leaves two ranges of `x` behind, one of `x + 2` two more, and with three such numbers the states are a product.
//!   Source: kernel/bpf/verifier.c, `sync_linked_regs` (v6.12) and `find_equal_scalars` (v6.1).
//! - Kernels: all for copies; 6.10 and later for sums, late 6.18 also for those of 32 bits.
//! - Here: the number is added to the constant, which links neither; nothing that is computed relies on the range of the
//!   number itself. It takes an instruction more where the constant is 0.
//! - Cases: `unknown_offsets`, whose nine lines were more than a million instructions.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::IndexVec;
use crate::kernel::mir::{BinaryOp, MirFunction, Op, Type, Value};
use crate::kernel::pass::new_insts::NewInsts;
use crate::kernel::pass::rewrite::constants;
use crate::kernel::pass::scalar_ids::ScalarIds;
use crate::kernel::verifier::code::may_link_checks;

/// Runs the pass; returns whether anything changed. It must run when nothing moves constants to the right any more.
pub fn run(function: &mut MirFunction) -> bool {
    let checked = linked(function);
    if checked.is_empty() {
        return false;
    }
    let constants = constants(function);
    let mut copies: BTreeMap<Value, Value> = BTreeMap::new();
    for data in function.blocks.iter_mut() {
        let mut new = NewInsts { insts: Vec::with_capacity(data.insts.len()), span: data.span };
        let params = data.params.iter().filter(|param| checked.contains_key(param)).copied();
        for param in params.collect::<Vec<_>>() {
            copies.insert(param, copy(&mut new, &mut function.values, param));
        }
        for mut inst in std::mem::take(&mut data.insts) {
            let own = inst.result.filter(|result| checked.contains_key(result));
            let is_sum = own.is_some() && swap(&mut inst.op, &constants);
            new.span = inst.span;
            new.insts.push(inst);
            if let Some(own) = own.filter(|_| !is_sum) {
                copies.insert(own, copy(&mut new, &mut function.values, own));
            }
        }
        data.insts = new.insts;
    }
    let is_bound = |value: &Value, limit: &Value| {
        let bounds = checked.get(value).zip(constants[*limit]);
        bounds.is_some_and(|(bounds, limit)| bounds.contains(&limit))
    };
    for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        match &mut inst.op {
            Op::Below { value, .. } => *value = copies.get(value).copied().unwrap_or(*value),
            Op::Compare(_, value, limit) if is_bound(value, limit) => {
                *value = copies.get(value).copied().unwrap_or(*value);
            }
            _ => {}
        }
    }
    true
}

/// The values that are checked, with their bounds, where more are than may be linked with each other.
fn linked(function: &MirFunction) -> BTreeMap<Value, BTreeSet<u64>> {
    let checks = || {
        function.insts().filter_map(|inst| match inst.op {
            Op::Below { value, bound } => Some((value, bound)),
            _ => None,
        })
    };
    if may_link_checks(checks().count()) {
        return BTreeMap::new();
    }
    let (ops, constants, ids) = (function.definitions(), constants(function), ScalarIds::new(function));
    let mut by_number: BTreeMap<Value, OfNumber> = BTreeMap::new();
    for (value, bound) in checks() {
        let sum = match ops[value] {
            Some(Op::ZeroExtend(inner)) if is_sum(ops[*inner], &constants) => *inner,
            _ => value,
        };
        let (number, added) = match ops[sum] {
            Some(Op::Binary(BinaryOp::Add, number, added)) if is_sum(ops[sum], &constants) => {
                (*number, constants[*added])
            }
            _ => (value, Some(0)),
        };
        let of_number = by_number.entry(ids.number(number)).or_default();
        of_number.added.extend(added);
        of_number.checked.entry(sum).or_default().insert(bound);
    }
    by_number.retain(|_, one| !may_link_checks(one.added.len()));
    by_number.into_values().flat_map(|one| one.checked).collect()
}

/// The checks of a number and its sums.
#[derive(Default)]
struct OfNumber {
    /// The constants that are added.
    added: BTreeSet<u64>,
    /// What is checked, with the bounds.
    checked: BTreeMap<Value, BTreeSet<u64>>,
}

fn is_sum(op: Option<&Op>, constants: &IndexVec<Value, Option<u64>>) -> bool {
    matches!(op, Some(Op::Binary(BinaryOp::Add, _, constant)) if constants[*constant].is_some())
}

/// Adds the number of a sum to its constant. Returns whether it is one.
fn swap(op: &mut Op, constants: &IndexVec<Value, Option<u64>>) -> bool {
    let is_sum = is_sum(Some(op), constants);
    if let Op::Binary(BinaryOp::Add, number, constant) = op
        && is_sum
    {
        std::mem::swap(number, constant);
    }
    is_sum
}

/// Appends a copy that is not linked.
fn copy(new: &mut NewInsts, values: &mut IndexVec<Value, Type>, value: Value) -> Value {
    let ty = values[value];
    let zero = new.make(values, ty, Op::Const(0));
    new.make(values, ty, Op::Binary(BinaryOp::Add, zero, value))
}
