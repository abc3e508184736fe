//! Scratch memory: moves stack slots that exceed the stack to slots of a per-CPU map.
//!
//! ```text
//! frames -> move_slots -> programs that claim a scratch slot, helpers that get its address
//! ```
//!
//! A program that uses scratch memory claims one of [`SLOTS`] scratch slots of its CPU when it starts and releases
//! it where it ends ([`claim`]). The functions that it calls get the slot's address as a hidden
//! parameter. Each function has bytes of its own in the slot, like a frame on the stack; functions that are
//! never active together share bytes.
//!
//! Programs run with migration disabled, so a run stays on its CPU. It may be preempted, and a run in an
//! interrupt or an NMI may start between any two instructions. So several runs may be active on one CPU, and
//! each has its slot.

mod claim;
mod crowded;
mod slots;

use std::collections::{BTreeMap, BTreeSet};

use super::frames::Frames;
use super::mir::{Callee, Helper, MapSymbol, MirFunction, Op, Origin, Program, Slot, Type, Value};
use crate::hir::FuncId;
pub use crowded::relieve;
pub use slots::Compact;
use slots::{Moved, movable};

/// The limit of runs of an object's programs that can use scratch memory on one CPU at the same time: an NMI
/// within an interrupt within a softirq within a task that preempted others.
pub const SLOTS: u32 = 8;

/// Bytes at the start of each slot: the mark, which says whether it is in use, and from [`NUMBER_OFFSET`] on
/// the slot's number.
pub const HEAD_BYTES: u32 = 16;

/// The offset in bytes of a slot's number: 32 bits, written only if loops are calls of `bpf_loop`.
pub const NUMBER_OFFSET: i16 = 8;

/// The limit of bytes in a slot. Source: include/linux/percpu.h, `PCPU_MIN_UNIT_SIZE`, v6.12, which bounds
/// the values of per-CPU maps.
pub const MAX_BYTES: u32 = 32 << 10;

/// The name of the first parameter, if it is the address of the scratch slot.
pub const PARAMETER: &str = "__scratch";

/// Moves slots of functions to scratch memory, as their frames say. Returns the functions that use it: those and
/// their callers. The bytes that a scratch slot needs (`Program::scratch_bytes`) may exceed [`MAX_BYTES`].
pub fn move_slots(program: &mut Program, frames: &BTreeMap<FuncId, Frames>) -> BTreeSet<FuncId> {
    let Program { functions, need_stack, .. } = program;
    let moved = functions.iter().filter_map(|function| {
        let least = frames.get(&function.id)?.moved_from()?;
        Some((function.id, movable(function, least, need_stack)))
    });
    let moved: BTreeMap<FuncId, BTreeSet<Slot>> = moved.collect();
    let mut users = BTreeSet::new();
    // Helpers precede their callers.
    for function in functions.iter() {
        let is_shared = matches!(frames.get(&function.id), Some(Frames::Shared | Frames::Small));
        let moves = moved.get(&function.id).is_some_and(|slots| !slots.is_empty());
        if is_shared || moves || callees(function).any(|callee| users.contains(&callee)) {
            users.insert(function.id);
        }
    }
    let mut starts: BTreeMap<FuncId, u32> = BTreeMap::new();
    for function in functions.iter_mut().rev().filter(|function| users.contains(&function.id)) {
        let slots = moved.get(&function.id).cloned().unwrap_or_default();
        let start = starts.get(&function.id).copied().unwrap_or(HEAD_BYTES);
        let positions = Compact::new(function, |slot| slots.contains(&slot));
        let end = start.saturating_add(positions.bytes);
        for callee in callees(function) {
            let other = starts.entry(callee).or_insert(end);
            *other = end.max(*other);
        }
        program.scratch_bytes = end.max(program.scratch_bytes);
        let base = function.values.push(Type::Ptr(Origin::Entry));
        Moved { start, slots, positions }.apply(function, base);
        pass_on(function, base, &users);
        if function.is_program {
            let faulted = program.fault_results.get(&function.id).copied().unwrap_or_default();
            let none_free = claim::claim(function, base, faulted, program.loops.called);
            claim::release(function, base, none_free);
        } else {
            let entry = function.entry();
            function.params.insert(0, PARAMETER.into());
            function.blocks[entry].params.insert(0, base);
        }
    }
    users
}

/// The address of the function's scratch slot: a parameter, or the result of claiming or looking one up.
pub fn scratch_slot(function: &MirFunction) -> Option<Value> {
    let is_given = function.params.first().is_some_and(|name| name == PARAMETER);
    let given = function.blocks[function.entry()].params.first().copied().filter(|_| is_given);
    if let Some(given) = given.filter(|given| function.values[*given] == Type::Ptr(Origin::Entry)) {
        return Some(given);
    }
    let ops = function.definitions();
    let is_looked_up = |value: Value| match ops[value] {
        Some(Op::Call { callee: Callee::Helper(Helper::MapLookup), args }) => {
            matches!(ops[args[0]], Some(Op::MapAddr(MapSymbol::Scratch)))
        }
        _ => given == Some(value),
    };
    let insts = function.reverse_postorder().into_iter().flat_map(|block| &function.blocks[block].insts);
    insts.into_iter().find_map(|inst| match inst.op {
        Op::NonNull(value) if is_looked_up(value) => inst.result,
        _ => None,
    })
}

/// Passes the address of the scratch slot to the functions that use it.
fn pass_on(function: &mut MirFunction, base: Value, users: &BTreeSet<FuncId>) {
    for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let Op::Call { callee: Callee::Function(id), args } = &mut inst.op
            && users.contains(id)
        {
            args.insert(0, base);
        }
    }
}

/// The functions of the object that a function calls, directly or as callbacks of a helper, in order.
pub fn callees(function: &MirFunction) -> impl Iterator<Item = FuncId> + '_ {
    function.blocks.iter().flat_map(|block| &block.insts).filter_map(|inst| match inst.op {
        Op::Call { callee: Callee::Function(id), .. } | Op::FunctionAddr(id) => Some(id),
        _ => None,
    })
}

/// The functions in `from` and all functions reachable from them by calls.
pub fn reached<'a>(
    functions: &[MirFunction],
    from: impl IntoIterator<Item = &'a FuncId>,
) -> BTreeSet<FuncId> {
    let functions: BTreeMap<FuncId, &MirFunction> = functions.iter().map(|one| (one.id, one)).collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<FuncId> = from.into_iter().copied().collect();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(functions.get(&id).into_iter().flat_map(|function| callees(function)));
        }
    }
    found
}
