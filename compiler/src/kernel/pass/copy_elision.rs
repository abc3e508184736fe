//! Copy elision: a helper works on memory itself instead of on a copy of it in the frame.
//!
//! ```text
//! store b, load a; lookup(map, b)            lookup(map, a)
//! comm(t, 16); store r->name, load t   ->    comm(r->name, 16)
//! ```
//!
//! Missing compared with the standard algorithm: only copies whose loads, stores and call are in one block.

use std::collections::BTreeMap;
use std::ops::Range;

use super::alias_analysis::{AliasAnalysis, MemoryLocation, Root};
use super::changes::Changes;
use super::rewrite::constants;
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, Callee, Inst, MirFunction, Op, Origin, Slot, Type, Value};

/// Runs copy elision on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    if function.slot_bytes == 0 {
        return Changes::NONE;
    }
    let ops = |block: Block| function.blocks[block].insts.iter().map(|inst| &inst.op);
    let with = |wanted: fn(&Op) -> bool| -> Vec<Block> {
        flow.order.iter().copied().filter(|block| ops(*block).any(wanted)).collect()
    };
    let (reading, filling) = (with(reads_arguments), with(|op| filled(op).is_some()));
    let mut changed = false;
    if !reading.is_empty() {
        let copies = Copies::new(function, &flow.order);
        let originals: Vec<_> = reading.iter().flat_map(|block| copies.originals(*block)).collect();
        changed |= !originals.is_empty();
        originals.into_iter().for_each(|original| read_originals(function, original));
    }
    while !filling.is_empty() {
        // One for each block: the next is found in what is left.
        let copies = Copies::new(function, &flow.order);
        let destinations: Vec<Destination> =
            filling.iter().filter_map(|block| copies.destination(*block)).collect();
        if destinations.is_empty() {
            break;
        }
        destinations.into_iter().for_each(|destination| fill(function, destination));
        changed = true;
    }
    (Changes::VALUES | Changes::MEMORY | Changes::GONE).when(changed)
}

/// What the arguments of a call are copies of.
struct Originals {
    block: Block,
    /// Where the call stands.
    call: usize,
    /// The arguments that are copies, each with a slot and the offset in it.
    arguments: Vec<(usize, Slot, u32)>,
}

/// Makes a call read the slots that its arguments are copies of.
fn read_originals(function: &mut MirFunction, originals: Originals) {
    let Originals { block, call, arguments } = originals;
    let insts = &mut function.blocks[block].insts;
    let span = insts[call].span;
    let mut before = Vec::new();
    if let Op::Call { args, .. } = &mut insts[call].op {
        for (argument, slot, offset) in arguments {
            args[argument] = function.values.push(Type::Ptr(Origin::Stack));
            before.push(Inst { result: Some(args[argument]), op: Op::StackAddr { slot, offset }, span });
        }
    }
    insts.splice(call..call, before);
}

/// Whether a helper reads memory that an argument points to, and no more.
fn reads_arguments(op: &Op) -> bool {
    let Op::Call { callee: Callee::Helper(helper), args } = op else { return false };
    (0..args.len()).any(|argument| helper.only_reads(argument))
}

/// Memory that a call may fill directly.
struct Destination {
    block: Block,
    /// Where the call stands, and which argument is the memory that it fills.
    call: usize,
    argument: usize,
    base: Value,
    /// The offset from `base`.
    offset: i16,
    /// The stores that copy to it.
    stores: Vec<usize>,
}

/// Lets a call fill a destination itself.
fn fill(function: &mut MirFunction, destination: Destination) {
    let Destination { block, call, argument, base, offset, stores } = destination;
    let span = function.blocks[block].insts[call].span;
    let origin = function.values[base];
    let definition = function.definitions()[base].cloned();
    let moved = |at: u32| at.checked_add_signed(offset.into());
    let leaf = match definition {
        Some(Op::StackAddr { slot, offset }) => moved(offset).map(|offset| Op::StackAddr { slot, offset }),
        Some(Op::GlobalAddr { global, offset }) => {
            moved(offset).map(|offset| Op::GlobalAddr { global, offset })
        }
        _ => None,
    };
    let mut before = Vec::new();
    let mut make = |ty, op| {
        let result = function.values.push(ty);
        before.push(Inst { result: Some(result), op, span });
        result
    };
    let address = match leaf {
        Some(leaf) => make(origin, leaf),
        None if offset == 0 => base,
        None => {
            let distance = make(Type::I64, Op::Const(i64::from(offset) as u64));
            make(origin, Op::PtrAdd(base, distance))
        }
    };
    let insts = &mut function.blocks[block].insts;
    for store in stores.iter().rev() {
        insts.remove(*store);
    }
    if let Op::Call { args, .. } = &mut insts[call].op {
        args[argument] = address;
    }
    insts.splice(call..call, before);
}

/// The arguments of a call that are memory which the helper fills, and its size.
fn filled(op: &Op) -> Option<(usize, usize)> {
    match op {
        Op::Call { callee: Callee::Helper(helper), .. } => helper.fills(),
        _ => None,
    }
}

/// The copies of a function.
struct Copies<'a> {
    function: &'a MirFunction,
    aliases: AliasAnalysis<'a>,
    definitions: IndexVec<Value, Option<&'a Op>>,
    constants: IndexVec<Value, Option<u64>>,
}

/// The instructions of a block, with their positions by their results.
struct Insts<'a> {
    block: Block,
    insts: &'a [Inst],
    positions: BTreeMap<Value, usize>,
}

impl<'a> Copies<'a> {
    fn new(function: &'a MirFunction, order: &[Block]) -> Copies<'a> {
        Copies {
            function,
            aliases: AliasAnalysis::new(function, order),
            definitions: function.definitions(),
            constants: constants(function),
        }
    }

    fn insts(&self, block: Block) -> Insts<'a> {
        let insts = &self.function.blocks[block].insts;
        let results = insts.iter().enumerate().filter_map(|(at, inst)| Some((inst.result?, at)));
        Insts { block, insts, positions: results.collect() }
    }

    /// The originals for the calls of a block, the last call first, so that positions stay valid.
    fn originals(&self, block: Block) -> Vec<Originals> {
        let insts = self.insts(block);
        let mut found = Vec::new();
        for (call, inst) in insts.insts.iter().enumerate().rev() {
            let Op::Call { callee: Callee::Helper(helper), args } = &inst.op else { continue };
            let read = args.iter().enumerate().filter(|(number, _)| helper.only_reads(*number));
            let original = |(number, arg): (usize, &Value)| {
                self.original(&insts, call, *arg).map(|(slot, offset)| (number, slot, offset))
            };
            let arguments: Vec<_> = read.filter_map(original).collect();
            if !arguments.is_empty() {
                found.push(Originals { block, call, arguments });
            }
        }
        found
    }

    /// The first destination of a block that a call may fill directly.
    fn destination(&self, block: Block) -> Option<Destination> {
        let insts = self.insts(block);
        (0..insts.insts.len()).find_map(|call| self.destination_of(&insts, call))
    }

    /// The slot of the frame, with an offset, that the memory at `arg` is a copy of when a call is reached.
    fn original(&self, insts: &Insts, call: usize, arg: Value) -> Option<(Slot, u32)> {
        let copy = self.aliases.argument(arg);
        let bytes = Self::bytes(copy)?;
        let (mut left, mut first, mut source) = (vec![true; (bytes.end - bytes.start) as usize], call, None);
        for at in (0..call).rev() {
            if !left.contains(&true) {
                break;
            }
            let stored = self.stored(&insts.insts[at].op);
            let Some(stored) = stored.filter(|stored| copy.start <= stored.start && stored.end <= copy.end)
            else {
                if self.writes(&insts.insts[at].op, copy) {
                    return None;
                }
                continue;
            };
            let range = (stored.start - copy.start) as usize..(stored.end - copy.start) as usize;
            if left[range.clone()].iter().any(|left| !left) {
                return None;
            }
            let (load, slot, offset) = self.loaded_by(insts, at)?;
            let start = offset.checked_sub(range.start as u32)?;
            if *source.get_or_insert((slot, start)) != (slot, start) {
                return None;
            }
            left[range].fill(false);
            first = first.min(load);
        }
        let (slot, offset) = source.filter(|_| !left.contains(&true))?;
        let data = self.function.slots[slot];
        let start = i64::from(data.position) + i64::from(offset);
        let original = MemoryLocation { start, end: start + (bytes.end - bytes.start), ..copy };
        let is_inside = original.end <= i64::from(data.position) + i64::from(data.size);
        let mut meanwhile = insts.insts[first..call].iter();
        let is_same = !meanwhile.any(|inst| self.writes(&inst.op, original));
        (is_inside && is_same && !self.aliases.overlap(original, copy)).then_some((slot, offset))
    }

    /// The bytes of an exact location in the frame.
    fn bytes(location: MemoryLocation) -> Option<Range<i64>> {
        (location.root == Root::Frame && location.exact).then_some(location.start..location.end)
    }

    /// The location in the frame that a store writes.
    fn stored(&self, op: &Op) -> Option<MemoryLocation> {
        let Op::Store { size, base, offset, .. } = op else { return None };
        let location = self.aliases.access(*base, *offset, size.bytes().into());
        Self::bytes(location).map(|_| location)
    }

    /// The load of a slot whose result a store writes: its position, and the slot with an offset.
    fn loaded_by(&self, insts: &Insts, store: usize) -> Option<(usize, Slot, u32)> {
        let Op::Store { size, value, .. } = &insts.insts[store].op else { return None };
        let load = *insts.positions.get(value)?;
        let Op::Load { size: loaded, base, offset } = &insts.insts[load].op else { return None };
        let Some(Op::StackAddr { slot, offset: at }) = self.definitions[*base] else { return None };
        let offset = at.checked_add_signed((*offset).into())?;
        (loaded == size).then_some((load, *slot, offset))
    }

    /// Whether an instruction may write to a location of the frame.
    fn writes(&self, op: &Op, location: MemoryLocation) -> bool {
        match op {
            Op::Load { .. } => false,
            Op::Call { callee, args } => self.aliases.call_writes(*callee, args, location),
            op => self.accesses(op, location),
        }
    }

    /// Whether a load, a store or an atomic access may meet a location.
    fn accesses(&self, op: &Op, location: MemoryLocation) -> bool {
        self.aliases.accessed(op).is_some_and(|accessed| self.aliases.overlap(accessed, location))
    }

    /// The destination to which all of the memory is copied that a call fills, and which nothing touches meanwhile.
    fn destination_of(&self, insts: &Insts, call: usize) -> Option<Destination> {
        let (argument, size) = filled(&insts.insts[call].op)?;
        let Op::Call { args, .. } = &insts.insts[call].op else { return None };
        let Some(Op::StackAddr { slot, offset: start }) = self.definitions[args[argument]] else {
            return None;
        };
        let mut left = vec![true; usize::try_from(self.constants[args[size]]?).ok()?];
        let (mut target, mut loads, mut stores) = (None, Vec::new(), Vec::new());
        for at in call + 1..insts.insts.len() {
            if !left.contains(&true) {
                break;
            }
            let Some((load, from, offset)) = self.loaded_by(insts, at) else { continue };
            let Op::Store { size, base, offset: to, .. } = &insts.insts[at].op else { continue };
            if from != *slot || load < call {
                continue;
            }
            let from = usize::try_from(offset.checked_sub(*start)?).ok()?;
            let range = from..from + usize::from(size.bytes());
            let to = to.checked_sub(i16::try_from(from).ok()?)?;
            let is_new = left.get(range.clone())?.iter().all(|left| *left);
            if *target.get_or_insert((*base, to)) != (*base, to) || !is_new {
                return None;
            }
            left[range].fill(false);
            loads.push(load);
            stores.push(at);
        }
        let (base, offset) = target.filter(|_| !left.contains(&true))?;
        let destination = self.aliases.access(base, offset, u32::try_from(left.len()).ok()?);
        let mut meanwhile =
            (call + 1..*stores.last()?).filter(|at| !loads.contains(at) && !stores.contains(at));
        let is_touched = meanwhile.any(|at| {
            let op = &insts.insts[at].op;
            matches!(op, Op::Call { .. }) || self.accesses(op, destination)
        });
        let is_there = insts.positions.get(&base).is_none_or(|at| *at < call) || self.is_leaf(base);
        let may_fill = !is_touched && is_there && self.is_memory(base);
        (may_fill && self.is_only_copied(*slot, (insts.block, call), &loads)).then_some(Destination {
            block: insts.block,
            call,
            argument,
            base,
            offset,
            stores,
        })
    }

    /// Whether helpers may write to what a pointer points to.
    fn is_memory(&self, base: Value) -> bool {
        let Type::Ptr(origin) = self.function.values[base] else { return false };
        matches!(origin, Origin::Stack | Origin::Global | Origin::Entry | Origin::Memory)
    }

    /// Whether an address can be made anywhere.
    fn is_leaf(&self, base: Value) -> bool {
        matches!(self.definitions[base], Some(Op::StackAddr { .. } | Op::GlobalAddr { .. }))
    }

    /// Whether nobody reads a slot but the loads of a call's block, whose results are used once each.
    fn is_only_copied(&self, slot: Slot, (own, call): (Block, usize), loads: &[usize]) -> bool {
        let is_of_slot = |value: Value| matches!(self.definitions[value], Some(Op::StackAddr { slot: of, .. }) if *of == slot);
        let own_insts = &self.function.blocks[own].insts;
        let results: Vec<Value> = loads.iter().filter_map(|at| own_insts[*at].result).collect();
        let mut uses = 0;
        for (block, data) in self.function.blocks.iter_enumerated() {
            for (at, inst) in data.insts.iter().enumerate() {
                let is_own = block == own && (at == call || loads.contains(&at));
                let reads = match &inst.op {
                    Op::Store { value, .. } => is_of_slot(*value),
                    op => op.operands().into_iter().any(is_of_slot),
                };
                if reads && !is_own {
                    return false;
                }
                inst.op.each_operand(|value| uses += usize::from(results.contains(&value)));
            }
            data.term
                .each_operand(|value| uses += usize::from(is_of_slot(value) || results.contains(&value)));
        }
        uses == results.len()
    }
}
