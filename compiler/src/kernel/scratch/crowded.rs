//! Values for which registers do not suffice: those needed after a call, where more values are than registers that calls keep.
//! Numbers are kept in scratch memory; what memory of the caller's frame holds is loaded again. So neither is spilled to the
//! stack.
//!
//! ```text
//! a = ..                       a = ..; store a
//! b = load further + 8     ->
//! call                         call
//! .. uses a and b ..           a' = load; b' = load further + 8; .. uses a' and b' ..
//! ```
//!
//! The verifier knows nothing of a number in scratch memory. So what an address, a branch, an argument of the kernel's
//! functions or a result is computed from stays: the branch may depend on whether a pointer is there.

use std::collections::{BTreeMap, BTreeSet};

use super::{MAX_BYTES, scratch_slot};
use crate::bpf::Reg;
use crate::index::IndexVec;
use crate::kernel::mir::dominators::Dominators;
use crate::kernel::mir::{Block, BlockData, Callee, MirFunction, Op, Terminator, Type, Value};
use crate::kernel::pass::loop_callbacks::CAPTURED;
use crate::kernel::pass::new_insts::NewInsts;
use crate::kernel::pass::origins::Origins;
use crate::kernel::pass::pack::FURTHER;

/// How a value is read where it is needed.
struct Reading {
    load: Op,
    /// Where it is defined, the operation that makes it readable; `None` if it is, and need not be defined then.
    store: Option<Op>,
}

/// Relieves the registers of a function, whose numbers can be in its scratch slot from `start` bytes on. Returns the first
/// byte behind them.
pub fn relieve(function: &mut MirFunction, start: u32) -> u32 {
    let crowded = crowded(function);
    let mut readings: BTreeMap<Value, Reading> = BTreeMap::new();
    for (value, load) in constant_loads(function) {
        if crowded.contains(&value) {
            readings.insert(value, Reading { load, store: None });
        }
    }
    let mut end = start;
    if let Some(base) = scratch_slot(function) {
        let stays = staying(function, base);
        for value in crowded.into_iter().filter(|value| !stays[*value]) {
            if readings.contains_key(&value) || end + 8 > MAX_BYTES {
                continue;
            }
            let ty = function.values[value];
            let store = Some(Op::store_whole(ty, base, end, value));
            readings.insert(value, Reading { load: Op::load_whole(ty, base, end), store });
            end += 8;
        }
    }
    if !readings.is_empty() {
        for block in function.reverse_postorder() {
            through_memory(function, block, &readings);
        }
    }
    end
}

/// The values that are loaded from words of the caller's frame, which nothing writes while the function runs.
fn constant_loads(function: &MirFunction) -> Vec<(Value, Op)> {
    let params = &function.blocks[function.entry()].params;
    let names = function.params.iter().zip(params);
    let words = names.filter(|(name, _)| [FURTHER, CAPTURED].contains(&name.as_str())).map(|(_, base)| *base);
    let mut found = Vec::new();
    for words in words {
        let mut loads = Vec::new();
        let mut written = BTreeSet::new();
        let mut is_passed_on = false;
        for inst in function.insts().filter(|inst| inst.op.reads(words)) {
            match (&inst.op, inst.result) {
                (Op::Load { offset, .. }, Some(result)) => {
                    loads.push((*offset, result, inst.op.clone()));
                }
                (Op::Store { base, offset, value, .. }, _) if *base == words && *value != words => {
                    written.insert(offset & !7);
                }
                _ => is_passed_on = true,
            }
        }
        let constant = loads.into_iter().filter(|(offset, value, _)| {
            !is_passed_on && !written.contains(&(offset & !7)) && needs_no_test(function.values[*value])
        });
        found.extend(constant.map(|(_, value, load)| (value, load)));
    }
    found
}

/// Whether the verifier knows as much of a value of this type at each load.
fn needs_no_test(ty: Type) -> bool {
    match ty {
        Type::Ptr(origin) => origin.is_memory() && !origin.is_of_packet() && origin.checked().is_none(),
        _ => true,
    }
}

/// The values that are needed after a call where more are than registers.
fn crowded(function: &MirFunction) -> BTreeSet<Value> {
    let order = function.reverse_postorder();
    let ops = function.definitions();
    let is_kept = |value: &Value| !ops[*value].is_some_and(Op::is_leaf);
    let mut starts: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
    let mut crowded = BTreeSet::new();
    let mut changes = true;
    while changes {
        changes = false;
        for block in order.iter().rev() {
            let data = &function.blocks[*block];
            let mut live: BTreeSet<Value> =
                data.term.successors().filter_map(|to| starts.get(&to)).flatten().copied().collect();
            live.extend(data.term.operands().into_iter().filter(is_kept));
            for inst in data.insts.iter().rev() {
                if let Some(result) = &inst.result {
                    live.remove(result);
                }
                if matches!(inst.op, Op::Call { .. }) && live.len() > Reg::KEPT_BY_CALLS {
                    crowded.extend(&live);
                }
                live.extend(inst.op.operands().into_iter().filter(is_kept));
            }
            live.retain(|value| !data.params.contains(value));
            changes |= starts.get(block) != Some(&live);
            starts.insert(*block, live);
        }
    }
    crowded
}

/// For each value, whether it cannot be moved: it is no number, is there before the scratch slot, or the verifier must know it.
fn staying(function: &MirFunction, base: Value) -> IndexVec<Value, bool> {
    let is_number = |value: &Value| function.values[*value].bits().is_some();
    let mut known = Vec::new();
    for data in function.blocks.iter() {
        for inst in &data.insts {
            match &inst.op {
                Op::Call { callee: Callee::Function(_), .. } => {}
                Op::Call { args, .. } => known.extend(args.iter().copied().filter(is_number)),
                _ => {}
            }
        }
        if let Terminator::Return(value) = data.term {
            known.push(value);
        }
    }
    let origins = Origins::new(function);
    let (mut stays, deciding) = (origins.of(known), origins.deciding(function));
    function.values.ids().filter(|value| deciding[*value]).for_each(|value| stays[value] = true);
    let order = function.reverse_postorder();
    let dominators = Dominators::new(function, &order);
    let home = order.iter().copied().find(|block| defines(&function.blocks[*block], base));
    for block in order {
        let data = &function.blocks[block];
        let is_before = home.is_none_or(|home| home == block || !dominators.dominates(home, block));
        let tests = data.insts.iter().filter(|inst| inst.op.is_test()).filter_map(|inst| inst.result);
        tests.for_each(|value| stays[value] = true);
        if is_before {
            defined(data).for_each(|value| stays[value] = true);
        }
    }
    function.values.ids().filter(|value| !is_number(value)).for_each(|value| stays[value] = true);
    stays
}

fn defined(data: &BlockData) -> impl Iterator<Item = Value> + '_ {
    data.params.iter().copied().chain(data.insts.iter().filter_map(|inst| inst.result))
}

fn defines(data: &BlockData, value: Value) -> bool {
    defined(data).any(|one| one == value)
}

/// Makes what a block defines readable, and reads it where it is needed, once after each call.
fn through_memory(function: &mut MirFunction, block: Block, readings: &BTreeMap<Value, Reading>) {
    let MirFunction { blocks, values, .. } = function;
    let data = &mut blocks[block];
    let mut new = NewInsts { insts: Vec::new(), span: data.span };
    let mut at_hand: BTreeMap<Value, Value> = BTreeMap::new();
    for param in &data.params {
        define(&mut new, &mut at_hand, *param, readings);
    }
    let read = |new: &mut NewInsts, values: &mut IndexVec<Value, _>, at_hand: &mut BTreeMap<_, _>, value| {
        let Some(Reading { load, .. }) = readings.get(&value) else { return value };
        *at_hand.entry(value).or_insert_with(|| new.make(values, values[value], load.clone()))
    };
    for mut inst in std::mem::take(&mut data.insts) {
        if inst.result.and_then(|result| readings.get(&result)).is_some_and(|one| one.store.is_none()) {
            continue;
        }
        new.span = inst.span;
        inst.op.map_operands(&mut |value| read(&mut new, values, &mut at_hand, value));
        if matches!(inst.op, Op::Call { .. }) {
            at_hand.clear();
        }
        let result = inst.result;
        new.insts.push(inst);
        if let Some(result) = result {
            define(&mut new, &mut at_hand, result, readings);
        }
    }
    let mut term = data.term.clone();
    term.map_operands(&mut |value| read(&mut new, values, &mut at_hand, value));
    let data = &mut blocks[block];
    data.insts = new.insts;
    data.term = term;
}

/// Makes a value readable that was defined just now.
fn define(
    new: &mut NewInsts,
    at_hand: &mut BTreeMap<Value, Value>,
    value: Value,
    readings: &BTreeMap<Value, Reading>,
) {
    if let Some(Reading { store: Some(store), .. }) = readings.get(&value) {
        new.push(None, store.clone());
        at_hand.insert(value, value);
    }
}
