//! Checked sums: offsets in an array or a packet that are one number and different constants, each with a check.
//!
//! - Rule: what a branch says of a number, the verifier knows of its copies and of its sums with constants. A check of
//!   `x + 1` leaves two ranges of `x` behind, one of `x + 2` two more, and with three such numbers the states are a product.
//!   Source: kernel/bpf/verifier.c, `sync_linked_regs` (v6.12) and `find_equal_scalars` (v6.1).
//! - Kernels: all for copies; 6.10 and later for sums, late 6.18 also for those of 32 bits.
//! - Here: the number is added to the constant, which links neither; nothing that is computed relies on the range of the
//!   number itself. It takes an instruction more where the constant is 0, and for each bound of a sum that is checked for
//!   several.
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
    let Linked { sums, checked } = linked(function);
    if sums.is_empty() && checked.is_empty() {
        return false;
    }
    let constants = constants(function);
    let mut copies: BTreeMap<(Value, u64), Value> = BTreeMap::new();
    for data in function.blocks.iter_mut() {
        let mut new = NewInsts { insts: Vec::with_capacity(data.insts.len()), span: data.span };
        let mut copy = |new: &mut NewInsts, value: Value, bounds: &BTreeSet<u64>| {
            for bound in bounds {
                copies.insert((value, *bound), unlinked(new, &mut function.values, value));
            }
        };
        for param in &data.params {
            checked.get(param).into_iter().for_each(|bounds| copy(&mut new, *param, bounds));
        }
        for mut inst in std::mem::take(&mut data.insts) {
            let result = inst.result;
            if result.is_some_and(|result| sums.contains(&result)) {
                swap(&mut inst.op);
            }
            new.span = inst.span;
            new.insts.push(inst);
            if let Some((value, bounds)) = result.and_then(|result| Some((result, checked.get(&result)?))) {
                copy(&mut new, value, bounds);
            }
        }
        data.insts = new.insts;
    }
    for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        let (value, bound) = match &mut inst.op {
            Op::Below { value, bound } => (value, Some(*bound)),
            Op::Compare(_, value, limit) => (value, constants[*limit]),
            _ => continue,
        };
        let own = bound.and_then(|bound| copies.get(&(*value, bound)));
        *value = own.copied().unwrap_or(*value);
    }
    true
}

/// Checks of numbers and their sums where more are than may be linked with each other.
#[derive(Default)]
struct Linked {
    /// The sums.
    sums: BTreeSet<Value>,
    /// The values of which each check needs a copy, with the bounds: numbers, and sums that are checked for several.
    checked: BTreeMap<Value, BTreeSet<u64>>,
}

fn linked(function: &MirFunction) -> Linked {
    let checks = || {
        function.insts().filter_map(|inst| match inst.op {
            Op::Below { value, bound } => Some((value, bound)),
            _ => None,
        })
    };
    if may_link_checks(checks().count()) {
        return Linked::default();
    }
    let (ops, constants, ids) = (function.definitions(), constants(function), ScalarIds::new(function));
    let mut by_number: BTreeMap<Value, BTreeMap<Option<Value>, OfSum>> = BTreeMap::new();
    for (value, bound) in checks() {
        let sum = match ops[value] {
            Some(Op::ZeroExtend(inner)) => *inner,
            _ => value,
        };
        let (number, sum) = match ops[sum] {
            Some(Op::Binary(BinaryOp::Add, number, _)) if is_sum(ops[sum], &constants) => {
                (*number, Some(sum))
            }
            _ => (value, None),
        };
        let of_sum = by_number.entry(ids.number(number)).or_default().entry(sum).or_default();
        of_sum.bounds.insert(bound);
        of_sum.checked.entry(value).or_default().insert(bound);
    }
    by_number.retain(|_, sums| !may_link_checks(sums.len()));
    let mut linked = Linked::default();
    for (sum, OfSum { checked, bounds }) in by_number.into_values().flatten() {
        if sum.is_none() || bounds.len() > 1 {
            linked.checked.extend(checked);
        }
        linked.sums.extend(sum);
    }
    linked
}

/// The checks of a sum, or of a number itself.
#[derive(Default)]
struct OfSum {
    /// The values that are checked: it, or it as a wider number.
    checked: BTreeMap<Value, BTreeSet<u64>>,
    bounds: BTreeSet<u64>,
}

fn is_sum(op: Option<&Op>, constants: &IndexVec<Value, Option<u64>>) -> bool {
    matches!(op, Some(Op::Binary(BinaryOp::Add, _, constant)) if constants[*constant].is_some())
}

/// Adds the number of a sum to its constant.
fn swap(op: &mut Op) {
    if let Op::Binary(BinaryOp::Add, number, constant) = op {
        std::mem::swap(number, constant);
    }
}

/// Appends a copy that is not linked.
fn unlinked(new: &mut NewInsts, values: &mut IndexVec<Value, Type>, value: Value) -> Value {
    let ty = values[value];
    let zero = new.make(values, ty, Op::Const(0));
    new.make(values, ty, Op::Binary(BinaryOp::Add, zero, value))
}
