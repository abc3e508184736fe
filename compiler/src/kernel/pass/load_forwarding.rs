//! Reads no memory whose content is known: what was stored or read before, and the entry of a key that was looked up.
//!
//! Other CPUs and the userspace half change what is shared at any time: of a global variable or an entry of a map, nothing
//! is known any more behind a call, which may tell the time or be answered elsewhere. So a script that waits, or reads
//! before and after, sees what the others wrote.
//!
//! What is known at the start of a block is what all blocks before it agree on; nothing, where a loop comes back.

use std::rc::Rc;

use smallvec::SmallVec;

use super::alias_analysis::{AliasAnalysis, MemoryLocation, Root};
use super::changes::Changes;
use super::flow::Flow;
use super::{Replacements, constants};
use crate::index::IndexVec;
use crate::kernel::mir::{Block, Callee, Helper, Inst, Kfunc, MirFunction, Op, Size, Type, Value};

/// Runs the pass.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let aliases = AliasAnalysis::new(function, &flow.order);
    let mut ends: IndexVec<Block, BlockEnd> = function.blocks.iter().map(|_| BlockEnd::default()).collect();
    let mut finder = Finder {
        function,
        aliases,
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
    // From the last to the first of each block.
    for (block, at) in useless.into_iter().rev() {
        function.blocks[block].insts.remove(at);
    }
    changed |= replacements.apply(function);
    (Changes::VALUES | Changes::MEMORY).when(changed)
}

/// The content of memory, as far as it is known.
#[derive(Debug, Default)]
struct KnownMemory {
    contents: Vec<KnownContent>,
    entries: Vec<KnownLookup>,
}

impl KnownMemory {
    /// The same, with room for a few facts more.
    fn with_room(&self) -> KnownMemory {
        let mut contents = Vec::with_capacity(self.contents.len() + 8);
        contents.extend_from_slice(&self.contents);
        KnownMemory { contents, entries: self.entries.clone() }
    }
}

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownContent {
    location: MemoryLocation,
    held: Held,
    /// The slot through which it was seen. Another slot of the same bytes may not rely on it being there: what is in a slot
    /// may become a value ([`super::mem2reg`]).
    slot: Option<(i64, i64)>,
}

/// A value, or bytes that are known: of those also a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Value(Value),
    Bytes(u64),
}

impl KnownContent {
    /// What is known of a part of the place.
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

/// The low bytes.
fn cut(bits: u64, bytes: i64) -> u64 {
    if bytes >= 8 { bits } else { bits & ((1 << (8 * bytes)) - 1) }
}

/// What a lookup gave.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KnownLookup {
    map: Value,
    /// The key's bytes: values with their offsets and ends.
    key: Rc<[(i64, i64, Held)]>,
    result: Value,
}

/// Facts that are kept at most: a bound on the work.
const MAX_FACTS: usize = 64;

/// What is known at the end of a block, until the last block behind it has seen it.
#[derive(Default)]
struct BlockEnd {
    known: Option<KnownMemory>,
    /// Ways out that were not taken yet.
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
    changes: Vec<((Block, usize), Op)>,
    /// Stores of what is there.
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
            (Op::AtomicAdd { size, base, offset, .. }, _) => {
                let location = self.aliases.access(*base, *offset, size.bytes().into());
                self.write(known, location);
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

    /// Forgets what may be written there, but for the other bytes of what is known byte by byte.
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
        if let Some(KnownContent { held: Held::Bytes(bits), .. }) = part_of(known, location)
            && ty.bits().is_some()
        {
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

    /// Contexts and counters of iterators are no memory that anything here describes.
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
            | Callee::Helper(Helper::GetCurrentComm | Helper::ReadEvent) => true,
            Callee::Helper(helper) => !helper.has_effects(),
            Callee::External(_) | Callee::Function(_) => false,
        };
        if !keeps_entries {
            known.entries.clear();
        }
    }

    /// Two lookups of one key in one map, with nothing in between that adds or removes entries, are one. Gives whether this
    /// one is not made.
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

    /// The values that a slot holds from a place on, if they are known for all of its bytes.
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

/// What is known of a place, if one content says all of it.
fn part_of(known: &KnownMemory, location: MemoryLocation) -> Option<KnownContent> {
    let same_root = known.contents.iter().filter(|one| location.exact && one.location.root == location.root);
    same_root.filter_map(|one| one.part(location.start, location.end)).next()
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
