//! Load forwarding: removes loads of memory whose content is known from an earlier store or load, and
//! repeated lookups of one key.
//!
//! Other CPUs and the userspace half may change shared memory at any time. The known content of global
//! variables and map entries ends at every call, because a call may read the time or synchronise with others.
//! So a script that waits, or reads before and after a call, sees the changes of others.
//!
//! The known content at the start of a block is what all predecessors agree on. It is empty at a loop header.

use std::rc::Rc;

use smallvec::SmallVec;

use super::alias_analysis::{AliasAnalysis, MemoryLocation, Root};
use super::changes::Changes;
use super::rewrite::{Replacements, constants};
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, Callee, Helper, Inst, Kfunc, MirFunction, Op, Size, Type, Value};

/// Runs load forwarding on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let aliases = AliasAnalysis::new(function, &flow.order);
    let mut ends: IndexVec<Block, BlockEnd> = function.blocks.iter().map(|_| BlockEnd::default()).collect();
    let varying = function.insts().any(|inst| {
        let store = matches!(inst.op, Op::Store { .. }).then(|| aliases.accessed(&inst.op)).flatten();
        store.is_some_and(|location| location.root == Root::Frame && !location.exact)
    });
    let mut finder = Finder {
        function,
        aliases,
        varying,
        replacements: Replacements::default(),
        constants: constants(function),
        changes: Vec::new(),
        useless: Vec::new(),
    };
    for block in flow.order.iter().copied() {
        let mut known = at_start(&mut ends, &flow.predecessors[block]);
        for (at, inst) in function.blocks[block].insts.iter().enumerate() {
            finder.inst(inst, (block, at), &mut known);
        }
        let exits = function.blocks[block].term.successors().count();
        ends[block] = BlockEnd { known: Some(known), exits };
    }
    let Finder { replacements, changes, useless, .. } = finder;
    let mut changed = !changes.is_empty() || !useless.is_empty();
    for ((block, at), op) in changes {
        function.blocks[block].insts[at].op = op;
    }
    // From the last to the first of each block, so that positions stay valid.
    for (block, at) in useless.into_iter().rev() {
        function.blocks[block].insts.remove(at);
    }
    changed |= replacements.apply(function);
    (Changes::VALUES | Changes::MEMORY).when(changed)
}

/// The known content of memory.
#[derive(Debug, Default)]
struct KnownMemory {
    contents: Vec<KnownContent>,
    entries: Vec<KnownLookup>,
}

impl KnownMemory {
    /// A copy with capacity for a few more facts.
    fn with_room(&self) -> KnownMemory {
        let mut contents = Vec::with_capacity(self.contents.len() + 8);
        contents.extend_from_slice(&self.contents);
        KnownMemory { contents, entries: self.entries.clone() }
    }
}

/// The known content of a memory location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownContent {
    location: MemoryLocation,
    held: Held,
    /// The byte range of the slot through which the content was seen. An overlapping slot must not rely on
    /// it, because the content of a slot may become an SSA value ([`super::mem2reg`]).
    slot: Option<(i64, i64)>,
}

/// A value, or constant bytes, of which a part is known, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Value(Value),
    Bytes(u64),
}

impl KnownContent {
    /// The known content of a part of the location.
    fn part(self, start: i64, end: i64) -> Option<KnownContent> {
        let location = MemoryLocation { start, end, ..self.location };
        match self.held {
            _ if location == self.location => Some(self),
            Held::Bytes(bits) if self.location.start <= start && end <= self.location.end && start < end => {
                let bits = bits >> (8 * (start - self.location.start));
                Some(KnownContent { location, held: Held::Bytes(cut(bits, end - start)), ..self })
            }
            _ => None,
        }
    }
}

/// The low `bytes` bytes.
fn cut(bits: u64, bytes: i64) -> u64 {
    if bytes >= 8 { bits } else { bits & ((1 << (8 * bytes)) - 1) }
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownLookup {
    map: Value,
    /// The key's bytes: values with the start and end offset of each.
    key: Rc<[(i64, i64, Held)]>,
    result: Value,
}

/// The limit of facts that are kept, which bounds the work.
const MAX_FACTS: usize = 64;

/// The known memory at the end of a block, kept until its last successor has used it.
#[derive(Default)]
struct BlockEnd {
    known: Option<KnownMemory>,
    /// The number of successors that have not used it yet.
    exits: usize,
}

fn at_start(ends: &mut IndexVec<Block, BlockEnd>, predecessors: &[Block]) -> KnownMemory {
    let Some((first, others)) = predecessors.split_first() else { return KnownMemory::default() };
    if predecessors.iter().any(|from| ends[*from].known.is_none()) {
        return KnownMemory::default();
    }
    ends[*first].exits -= 1;
    let last = ends[*first].exits == 0 && !others.contains(first);
    let mut start = match &mut ends[*first].known {
        known if last => known.take().unwrap_or_default(),
        known => known.as_ref().map(KnownMemory::with_room).unwrap_or_default(),
    };
    for from in others {
        let end = &mut ends[*from];
        if let Some(other) = &end.known {
            start.contents.retain(|one| other.contents.contains(one));
            start.entries.retain(|one| other.entries.contains(one));
        }
        end.exits -= 1;
        if end.exits == 0 {
            end.known = None;
        }
    }
    start
}

struct Finder<'a> {
    function: &'a MirFunction,
    aliases: AliasAnalysis<'a>,
    replacements: Replacements,
    constants: IndexVec<Value, Option<u64>>,
    /// Whether a store to the frame varies in its offset. Linux 6.1 takes a constant in the frame for one value: where
    /// such a store overwrites a part of it, the other part cannot be read any more. A constant that is put together
    /// from several would be copied as one. Source: kernel/bpf/verifier.c, `check_stack_write_var_off`, v6.1.
    varying: bool,
    changes: Vec<((Block, usize), Op)>,
    /// Stores of content that is already there.
    useless: Vec<(Block, usize)>,
}

impl Finder<'_> {
    fn inst(&mut self, inst: &Inst, at: (Block, usize), known: &mut KnownMemory) {
        match (&inst.op, inst.result) {
            (Op::Load { size, base, offset }, Some(result)) => {
                self.load(*size, *base, *offset, result, at, known)
            }
            (Op::Store { size, base, offset, value }, _) => {
                let location = self.aliases.access(*base, *offset, size.bytes().into());
                let content =
                    KnownContent { location, held: self.held(*value, *size), slot: self.aliases.slot(*base) };
                if location.root == Root::Frame && part_of(known, location) == Some(content) {
                    return self.useless.push(at);
                }
                self.write(known, location);
                remember(known, content);
            }
            (atomic @ (Op::AtomicAdd { .. } | Op::AtomicExchange { .. }), _) => {
                self.aliases.accessed(atomic).into_iter().for_each(|location| self.write(known, location));
            }
            (Op::Call { callee, args }, result) => self.call(*callee, args, result, known),
            _ => {}
        }
    }

    fn held(&self, value: Value, size: Size) -> Held {
        let value = self.replacements.resolve(value);
        match self.constants[value] {
            Some(bits) => Held::Bytes(cut(bits, i64::from(size.bytes()))),
            None => Held::Value(value),
        }
    }

    /// Forgets content that a write may change; constant bytes next to the written ones stay known.
    fn write(&self, known: &mut KnownMemory, location: MemoryLocation) {
        let mut rest = Vec::new();
        known.contents.retain(|one| {
            if !self.aliases.overlap(one.location, location) {
                return true;
            }
            if location.exact && location.root == one.location.root && matches!(one.held, Held::Bytes(_)) {
                rest.extend(one.part(one.location.start, location.start));
                rest.extend(one.part(location.end, one.location.end));
            }
            false
        });
        rest.into_iter().for_each(|one| remember(known, one));
    }

    fn load(
        &mut self,
        size: Size,
        base: Value,
        offset: i16,
        result: Value,
        at: (Block, usize),
        known: &mut KnownMemory,
    ) {
        let location = self.aliases.access(base, offset, size.bytes().into());
        if !location.exact || !self.is_memory(base) {
            return;
        }
        let ty = self.function.values[result];
        let whole = match part_of(known, location) {
            Some(KnownContent { held: Held::Bytes(bits), .. }) => Some(bits),
            _ if self.varying => None,
            _ => bytes_of(known, location),
        };
        if let (Some(bits), Some(_)) = (whole, ty.bits()) {
            return self.changes.push((at, Op::Const(bits)));
        }
        let there = known.contents.iter().find(|one| {
            one.location.root == location.root
                && one.location.start == location.start
                && matches!(one.held, Held::Value(_))
        });
        if let Some(KnownContent { location: stored, held: Held::Value(value), .. }) = there.copied() {
            let have = self.function.values[value];
            let whole = stored.end == location.end;
            if have == ty && whole && matches!(size, Size::W | Size::DW) {
                return self.replacements.replace(result, value);
            }
            let zeros_follow = || {
                let rest = part_of(known, MemoryLocation { start: stored.end, ..location });
                matches!(rest, Some(KnownContent { held: Held::Bytes(0), .. }))
            };
            let op = match (have, size) {
                (Type::I64, Size::W) if stored.end >= location.end => Some(Op::Truncate(value)),
                (Type::I32, Size::B | Size::H) if stored.end >= location.end => {
                    Some(Op::Narrow { value, bits: 8 * size.bytes(), signed: false })
                }
                (Type::I32, Size::DW) if stored.end == location.start + 4 && zeros_follow() => {
                    Some(Op::ZeroExtend(value))
                }
                _ => None,
            };
            if let Some(op) = op {
                self.changes.push((at, op));
                return;
            }
        }
        remember(known, KnownContent { location, held: Held::Value(result), slot: self.aliases.slot(base) });
    }

    /// Whether a pointer is to tracked memory: contexts and iterator counters are not tracked.
    fn is_memory(&self, base: Value) -> bool {
        matches!(self.function.values[base], Type::Ptr(origin) if origin.is_memory())
    }

    fn call(&mut self, callee: Callee, args: &[Value], result: Option<Value>, known: &mut KnownMemory) {
        if let (Callee::Helper(Helper::MapLookup), [map, key], Some(result)) = (callee, args, result)
            && self.lookup(*map, *key, result, known)
        {
            return;
        }
        let is_kept = |one: &KnownContent| {
            one.location.root == Root::Frame && !self.aliases.call_writes(callee, args, one.location)
        };
        known.contents.retain(is_kept);
        let keeps_entries = match callee {
            Callee::Kfunc(Kfunc::IterNumNew | Kfunc::IterNumNext | Kfunc::IterNumDestroy)
            | Callee::MapIter(_)
            | Callee::TaskId(_)
            | Callee::Helper(Helper::GetCurrentComm | Helper::ReadEvent) => true,
            Callee::Helper(helper) => !helper.has_effects(),
            Callee::External(_) | Callee::Function(_) => false,
        };
        if !keeps_entries {
            known.entries.clear();
        }
    }

    /// Merges a lookup with an earlier one of the same key in the same map, if nothing between them adds or
    /// removes entries. Returns whether the lookup was removed.
    fn lookup(&mut self, map: Value, key: Value, result: Value, known: &mut KnownMemory) -> bool {
        let map = self.replacements.resolve(map);
        let Some(key) = self.key(self.aliases.argument(key), known) else { return false };
        if let Some(entry) = known.entries.iter().find(|one| one.map == map && one.key == key) {
            self.replacements.replace(result, entry.result);
            return true;
        }
        if known.entries.len() < MAX_FACTS {
            known.entries.push(KnownLookup { map, key, result });
        }
        false
    }

    /// The values in a slot from a location on, if all of its bytes are known.
    fn key(&self, location: MemoryLocation, known: &KnownMemory) -> Option<Rc<[(i64, i64, Held)]>> {
        if location.root != Root::Frame || !location.exact {
            return None;
        }
        let mut key: SmallVec<[(i64, i64, Held); 4]> = SmallVec::new();
        let mut at = location.start;
        while at < location.end {
            let next = known
                .contents
                .iter()
                .find(|one| one.location.root == Root::Frame && one.location.start == at)?;
            key.push((at - location.start, next.location.end - location.start, next.held));
            at = next.location.end;
        }
        (at == location.end).then(|| Rc::from(key.as_slice()))
    }
}

/// The known content of a location, if a single fact covers it.
fn part_of(known: &KnownMemory, location: MemoryLocation) -> Option<KnownContent> {
    let same_root = known.contents.iter().filter(|one| location.exact && one.location.root == location.root);
    same_root.filter_map(|one| one.part(location.start, location.end)).next()
}

/// The constant bytes of a location, whichever stores they are of.
fn bytes_of(known: &KnownMemory, location: MemoryLocation) -> Option<u64> {
    let (mut bits, mut start) = (0, location.start);
    while start < location.end {
        let is_there = |one: &&KnownContent| {
            let MemoryLocation { root, start: first, end, .. } = one.location;
            root == location.root && first <= start && start < end && matches!(one.held, Held::Bytes(_))
        };
        let one = known.contents.iter().find(is_there)?;
        let end = one.location.end.min(location.end);
        let Held::Bytes(part) = one.part(start, end)?.held else { return None };
        bits |= part << (8 * (start - location.start));
        start = end;
    }
    Some(bits)
}

fn remember(known: &mut KnownMemory, content: KnownContent) {
    if !content.location.exact {
        return;
    }
    if known.contents.len() >= MAX_FACTS {
        known.contents.remove(0);
    }
    known.contents.push(content);
}
