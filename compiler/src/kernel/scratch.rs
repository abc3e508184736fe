//! Scratch memory: moves stack slots that exceed the stack to slots of a per-CPU map.
//!
//! ```text
//! frames too large -> Plan (which functions, from which size on) -> lowered again -> move_slots
//! ```
//!
//! A program in the plan claims one of [`SLOTS`] scratch slots of its CPU when it starts and releases it
//! where it ends (`lower::scratch`). The functions that it calls get the slot's address as a hidden
//! parameter. Each function has bytes of its own in the slot, like a frame on the stack; functions that are
//! never active together share bytes.
//!
//! Programs run with migration disabled, so a run stays on its CPU. It may be preempted, and a run in an
//! interrupt or an NMI may start between any two instructions. So several runs may be active on one CPU, and
//! each has its slot.

use std::collections::{BTreeMap, BTreeSet};

use super::mir::{
    Block, Callee, Helper, Inst, MirFunction, Op, Origin, Program, Size, Slot, SlotData, Terminator, Type,
    Value,
};
use crate::hir::{ExternId, FuncId};
use crate::index::IndexVec;

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

/// The functions that use scratch memory, and what they move there.
#[derive(Debug, Clone)]
pub struct Plan {
    users: BTreeSet<FuncId>,
    moves: BTreeMap<FuncId, Moves>,
}

/// The part of a frame that is moved to scratch memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// Slots of at least this many bytes.
    From(u32),
    /// All slots, and the values that passes move to functions outlined from this one.
    Whole,
    /// All slots, among them one for each local that is a number.
    Locals,
}

impl Moves {
    fn least(self) -> u32 {
        match self {
            Moves::From(bytes) => bytes,
            Moves::Whole | Moves::Locals => 1,
        }
    }
}

/// The values by which a function accesses its scratch slot.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    /// The address of the scratch slot.
    pub pointer: Value,
    /// A stack slot that is used before the address exists, and so cannot move; `None` in functions that get
    /// the address as a parameter.
    pub before: Option<Slot>,
}

impl Plan {
    /// Plans which functions need the address of a scratch slot: those that move slots, and their callers.
    /// `None` if no slot can move.
    pub fn new(program: &Program, moves: BTreeMap<FuncId, Moves>) -> Option<Plan> {
        let functions = &program.functions;
        let is_moved = |one: &&MirFunction| match moves.get(&one.id) {
            Some(Moves::Whole | Moves::Locals) => true,
            Some(Moves::From(least)) => !movable(one, *least, None, &program.need_stack).is_empty(),
            None => false,
        };
        let mut users: BTreeSet<_> = functions.iter().filter(is_moved).map(|one| one.id).collect();
        let calls_user =
            |one: &&MirFunction, users: &BTreeSet<FuncId>| callees(one).any(|id| users.contains(&id));
        while let Some(one) = functions.iter().find(|one| !users.contains(&one.id) && calls_user(one, &users))
        {
            users.insert(one.id);
        }
        (!users.is_empty()).then_some(Plan { users, moves })
    }

    /// Whether the locals of a function that are numbers are in memory.
    pub fn keeps_locals(&self, id: FuncId) -> bool {
        self.moves.get(&id) == Some(&Moves::Locals)
    }

    /// Whether the function uses the address of a scratch slot.
    pub fn uses(&self, id: FuncId) -> bool {
        self.users.contains(&id)
    }
}

/// Moves slots from the frames of functions to scratch memory. Functions are ordered with helpers before
/// their callers. Returns the bytes that a scratch slot needs, which may exceed [`MAX_BYTES`].
pub fn move_slots(program: &mut Program, bases: &BTreeMap<FuncId, Base>, plan: &Plan) -> u32 {
    let Program { functions, need_stack, .. } = program;
    let mut moved = BTreeMap::new();
    let mut starts: BTreeMap<FuncId, u32> = BTreeMap::new();
    let mut total = HEAD_BYTES;
    // Callers come first, so that the start of a function's bytes is known when it is processed.
    for function in functions.iter().rev() {
        let Some(base) = bases.get(&function.id) else { continue };
        let moves = plan.moves.get(&function.id);
        let slots = moves.map(|moves| movable(function, moves.least(), base.before, need_stack));
        let slots = slots.unwrap_or_default();
        let start = starts.get(&function.id).copied().unwrap_or(HEAD_BYTES);
        let positions = Compact::new(function, |slot| slots.contains(&slot));
        let end = start.saturating_add(positions.bytes);
        for callee in callees(function) {
            let other = starts.entry(callee).or_insert(end);
            *other = end.max(*other);
        }
        total = total.max(end);
        moved.insert(function.id, Moved { base: base.pointer, start, slots, positions });
    }
    for function in functions {
        if let Some(moved) = moved.get(&function.id) {
            moved.apply(function);
        }
    }
    total
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

/// The slots of at least `least` bytes that may move. Pointers and the state of iterators stay, because the
/// verifier tracks them only on the stack.
fn movable(
    function: &MirFunction,
    least: u32,
    before: Option<Slot>,
    need_stack: &BTreeSet<ExternId>,
) -> BTreeSet<Slot> {
    let large = function.slots.iter_enumerated().filter(|(_, data)| data.size >= least);
    let mut slots: BTreeSet<_> = large.map(|(slot, _)| slot).filter(|slot| Some(*slot) != before).collect();
    let definitions = function.definitions();
    let slot_of = |value: Value| match definitions[value] {
        Some(Op::StackAddr { slot, .. }) => Some(*slot),
        _ => None,
    };
    for inst in function.blocks.iter().flat_map(|block| &block.insts) {
        if let Op::Call { callee: Callee::External(id), args } = &inst.op
            && need_stack.contains(id)
        {
            for slot in args.iter().filter_map(|arg| slot_of(*arg)) {
                slots.remove(&slot);
            }
        }
        let stays = match &inst.op {
            Op::Store { base, value, .. } if matches!(function.values[*value], Type::Ptr(_)) => {
                slot_of(*base)
            }
            Op::Call { callee: Callee::Kfunc(_) | Callee::MapIter(_), args } => {
                args.first().and_then(|arg| slot_of(*arg))
            }
            _ => None,
        };
        if let Some(slot) = stays {
            slots.remove(&slot);
        }
    }
    slots
}

/// Positions of some of a function's slots after removing the bytes that only other slots use. Slots overlap
/// exactly if they did before.
pub struct Compact {
    /// For each byte of the frame, how many bytes of these slots are below it.
    below: Vec<u32>,
    /// The bytes of these slots together.
    pub bytes: u32,
}

impl Compact {
    /// Computes the positions of the wanted slots.
    pub fn new(function: &MirFunction, wanted: impl Fn(Slot) -> bool) -> Compact {
        let mut used = vec![false; function.slot_bytes as usize];
        for (_, data) in function.slots.iter_enumerated().filter(|(slot, _)| wanted(*slot)) {
            let end = data.position.saturating_add(data.size.next_multiple_of(8));
            used[data.position as usize..end as usize].fill(true);
        }
        let mut bytes = 0;
        let mut below = Vec::with_capacity(used.len());
        for used in used {
            below.push(bytes);
            bytes += u32::from(used);
        }
        Compact { below, bytes }
    }

    /// The new position of one of these slots, in bytes.
    pub fn position(&self, data: SlotData) -> u32 {
        self.below.get(data.position as usize).copied().unwrap_or(self.bytes)
    }
}

/// The slots that leave a function's frame.
struct Moved {
    base: Value,
    /// The offset of the function's bytes in the scratch slot.
    start: u32,
    slots: BTreeSet<Slot>,
    positions: Compact,
}

impl Moved {
    fn apply(&self, function: &mut MirFunction) {
        let rest = Compact::new(function, |slot| !self.slots.contains(&slot));
        let mut scratch: IndexVec<Slot, u32> = IndexVec::new();
        for slot in function.slots.ids() {
            let data = function.slots[slot];
            scratch.push(self.start.saturating_add(self.positions.position(data)));
            function.slots[slot] = if self.slots.contains(&slot) {
                SlotData { size: 0, position: 0 }
            } else {
                SlotData { position: rest.position(data), ..data }
            };
        }
        function.slot_bytes = rest.bytes;
        for block in function.blocks.iter_mut() {
            let insts = std::mem::take(&mut block.insts);
            for mut inst in insts {
                if let Op::StackAddr { slot, offset } = inst.op
                    && self.slots.contains(&slot)
                {
                    let bytes = function.values.push(Type::I64);
                    let op = Op::Const(u64::from(scratch[slot]) + u64::from(offset));
                    block.insts.push(Inst { result: Some(bytes), op, span: inst.span });
                    inst.op = Op::PtrAdd(self.base, bytes);
                }
                block.insts.push(inst);
            }
        }
        retype(function);
    }
}

/// Changes the origin of pointers derived from moved slots to a map entry.
fn retype(function: &mut MirFunction) {
    let stack = Type::Ptr(Origin::Stack);
    loop {
        let mut changed = false;
        for block in function.blocks.ids() {
            let mut turned = Vec::new();
            for inst in &function.blocks[block].insts {
                if let (Some(result), Op::PtrAdd(from, _) | Op::NonNull(from)) = (inst.result, &inst.op)
                    && function.values[result] == stack
                    && function.values[*from] != stack
                {
                    turned.push((result, function.values[*from]));
                }
            }
            for target in function.blocks[block].term.targets() {
                for (arg, param) in target.args.iter().zip(&function.blocks[target.block].params) {
                    if function.values[*param] == stack && function.values[*arg] != stack {
                        turned.push((*param, Type::Ptr(Origin::Memory)));
                    }
                }
            }
            changed |= !turned.is_empty();
            for (value, ty) in turned {
                function.values[value] = ty;
            }
        }
        if !changed {
            return;
        }
    }
}

/// Releases a program's scratch slot at every exit, except in the block `without`, where the program ends
/// without one.
pub fn release(function: &mut MirFunction, base: Base, without: Block) {
    let span = function.span;
    for id in function.reverse_postorder() {
        if id == without || !matches!(function.blocks[id].term, Terminator::Return(_)) {
            continue;
        }
        let value = function.values.push(Type::I64);
        let block = &mut function.blocks[id];
        // A tail call returns only if it fails, and then the program ends.
        let ends = |inst: &Inst| matches!(inst.op, Op::Call { callee: Callee::Helper(Helper::TailCall), .. });
        let at = block.insts.iter().position(ends).unwrap_or(block.insts.len());
        let add = Op::AtomicAdd { size: Size::DW, base: base.pointer, offset: 0, value };
        let given_back = [
            Inst { result: Some(value), op: Op::Const(u64::MAX), span },
            Inst { result: None, op: add, span },
        ];
        block.insts.splice(at..at, given_back);
    }
}
