//! Alias analysis: the memory that accesses and calls may touch.
//!
//! A parameter of a block that is given pointers to known locations of the frame, or pointers that cannot point there, is such a
//! location itself: one of those ([`AliasAnalysis::merged`]). Every other use of a pointer but an access lets it escape.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::hir::GlobalId;
use crate::index::IndexVec;
use crate::kernel::mir::{
    Block, Callee, Helper, MirFunction, Op, Origin, Size, Slot, Target, Terminator, Type, Value,
};

/// The root of a pointer: where it was derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    /// The stack frame; offsets count from the frame's lowest byte, so that overlapping slots compare
    /// correctly.
    Frame,
    /// A global variable of the script.
    Global(GlobalId),
    /// The pointee of a pointer whose origin is unknown.
    Pointer(Value),
}

/// The bytes that an access may touch; with `exact`, exactly these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryLocation {
    pub root: Root,
    pub start: i64,
    pub end: i64,
    pub exact: bool,
}

/// The alias analysis of one function.
pub struct AliasAnalysis<'a> {
    function: &'a MirFunction,
    ops: IndexVec<Value, Option<&'a Op>>,
    /// For each frame byte, whether a pointer to it escapes the analysis.
    escaped: Vec<bool>,
    /// The parameters of blocks that can point to these locations of the frame only.
    merged: BTreeMap<Value, Pointees>,
}

/// Locations in the frame that a pointer may point to, each a slot with an offset.
type Pointees = SmallVec<[(Slot, u32); 2]>;

impl<'a> AliasAnalysis<'a> {
    pub fn new(function: &'a MirFunction, order: &[Block]) -> AliasAnalysis<'a> {
        let escaped = vec![false; function.slot_bytes as usize];
        let ops = function.definitions();
        let mut aliases = AliasAnalysis { function, ops, escaped, merged: BTreeMap::new() };
        aliases.merged = aliases.merge(order);
        for block in order.iter().map(|block| &function.blocks[*block]) {
            for inst in &block.insts {
                each_escaping(&inst.op, |value| aliases.escape(value));
            }
            for (param, value) in given(function, &block.term) {
                if !aliases.merged.contains_key(&param) {
                    aliases.escape(value);
                }
            }
            if let Terminator::Return(value) = block.term {
                aliases.escape(value);
            }
        }
        aliases
    }

    /// Finds the parameters of blocks that can point to known locations of the frame only.
    fn merge(&self, order: &[Block]) -> BTreeMap<Value, Pointees> {
        let terms = order.iter().map(|block| &self.function.blocks[*block].term);
        let edges: Vec<(Value, Value)> = terms
            .flat_map(|term| given(self.function, term))
            .filter(|(param, _)| self.may_lead_to_frame(*param))
            .collect();
        let mut merged: BTreeMap<Value, Pointees> =
            edges.iter().map(|(param, _)| (*param, Pointees::new())).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (param, value) in &edges {
                let Some(known) = merged.get(param) else { continue };
                let new = match self.ops[*value] {
                    Some(Op::StackAddr { slot, offset }) => Some(smallvec![(*slot, *offset)]),
                    _ if !self.may_lead_to_frame(*value) => Some(Pointees::new()),
                    Some(_) => None,
                    None => merged.get(value).cloned(),
                };
                let Some(new) = new else {
                    merged.remove(param);
                    changed = true;
                    continue;
                };
                let mut all = known.clone();
                all.extend(new.into_iter().filter(|pointee| !known.contains(pointee)));
                changed |= all.len() > known.len();
                merged.insert(*param, all);
            }
        }
        merged
    }

    fn escape(&mut self, value: Value) {
        let root = self.root_of(value);
        let slots: SmallVec<[Slot; 2]> = match (self.ops[root], self.merged.get(&root)) {
            (Some(Op::StackAddr { slot, .. }), _) => smallvec![*slot],
            (_, Some(pointees)) => pointees.iter().map(|(slot, _)| *slot).collect(),
            _ => return,
        };
        for slot in slots {
            let (start, end) = self.extent(slot);
            self.escaped[start as usize..end as usize].fill(true);
        }
    }

    /// The pointer that a pointer was derived from.
    fn root_of(&self, value: Value) -> Value {
        match self.ops[value] {
            Some(Op::PtrAdd(base, _)) => self.root_of(*base),
            _ => value,
        }
    }

    /// The slot that a pointer was derived from.
    fn slot_of(&self, value: Value) -> Option<Slot> {
        match self.ops[self.root_of(value)]? {
            Op::StackAddr { slot, .. } => Some(*slot),
            _ => None,
        }
    }

    /// The byte range of the slot that a pointer was derived from.
    pub fn slot(&self, pointer: Value) -> Option<(i64, i64)> {
        self.slot_of(pointer).map(|slot| self.extent(slot))
    }

    /// The byte range of a slot.
    fn extent(&self, slot: Slot) -> (i64, i64) {
        let data = self.function.slots[slot];
        (i64::from(data.position), i64::from(data.position) + i64::from(data.size))
    }

    fn origin(&self, value: Value) -> Option<Origin> {
        match self.function.values[value] {
            Type::Ptr(origin) => Some(origin),
            _ => None,
        }
    }

    /// The location that an instruction other than a call accesses.
    pub fn accessed(&self, op: &Op) -> Option<MemoryLocation> {
        let (base, offset, size) = match op {
            Op::Load { size, base, offset }
            | Op::Store { size, base, offset, .. }
            | Op::AtomicAdd { size, base, offset, .. } => (*base, *offset, *size),
            Op::AtomicExchange { base, offset, .. } => (*base, *offset, Size::DW),
            _ => return None,
        };
        Some(self.access(base, offset, size.bytes().into()))
    }

    /// The location of a load, store or atomic access.
    pub fn access(&self, base: Value, offset: i16, bytes: u32) -> MemoryLocation {
        let exact =
            |root, start: i64| MemoryLocation { root, start, end: start + i64::from(bytes), exact: true };
        let offset = i64::from(offset);
        match self.ops[base] {
            Some(Op::StackAddr { slot, offset: at }) => {
                exact(Root::Frame, self.extent(*slot).0 + i64::from(*at) + offset)
            }
            Some(Op::GlobalAddr { global, offset: at }) => {
                exact(Root::Global(*global), i64::from(*at) + offset)
            }
            Some(Op::PtrAdd(inner, _)) => self.somewhere(*inner),
            _ => exact(Root::Pointer(base), offset),
        }
    }

    /// Any location that a pointer derived from this one may point to.
    fn somewhere(&self, base: Value) -> MemoryLocation {
        let all = |root| MemoryLocation { root, start: i64::MIN, end: i64::MAX, exact: false };
        match self.ops[base] {
            Some(Op::StackAddr { slot, .. }) => {
                let (start, end) = self.extent(*slot);
                MemoryLocation { root: Root::Frame, start, end, exact: false }
            }
            Some(Op::GlobalAddr { global, .. }) => all(Root::Global(*global)),
            Some(Op::PtrAdd(inner, _)) => self.somewhere(*inner),
            _ => all(Root::Pointer(base)),
        }
    }

    /// The location that a call may access through a pointer argument: its slot from the pointer on.
    pub fn argument(&self, pointer: Value) -> MemoryLocation {
        match self.ops[pointer] {
            Some(Op::StackAddr { slot, offset }) => {
                let (start, end) = self.extent(*slot);
                MemoryLocation { root: Root::Frame, start: start + i64::from(*offset), end, exact: true }
            }
            _ => self.somewhere(pointer),
        }
    }

    /// Whether two locations may share a byte.
    pub fn overlap(&self, a: MemoryLocation, b: MemoryLocation) -> bool {
        match (a.root, b.root) {
            (Root::Pointer(x), Root::Pointer(y)) if x != y => self.may_meet(x, y),
            (Root::Pointer(pointer), other) | (other, Root::Pointer(pointer)) if a.root != b.root => {
                let (access, location) = if other == a.root { (b, a) } else { (a, b) };
                self.may_lead_to(pointer, access, location)
            }
            (x, y) => x == y && a.start < b.end && b.start < a.end,
        }
    }

    /// Whether two pointers of unknown roots may alias.
    fn may_meet(&self, a: Value, b: Value) -> bool {
        match (self.origin(a), self.origin(b)) {
            (Some(Origin::Memory), Some(other)) | (Some(other), Some(Origin::Memory)) => other.is_memory(),
            (a, b) => a == b,
        }
    }

    /// Whether an access by a pointer of unknown root may meet a location with another root.
    fn may_lead_to(&self, pointer: Value, access: MemoryLocation, location: MemoryLocation) -> bool {
        match (self.origin(pointer), location.root) {
            (_, Root::Frame) => match self.frame(access) {
                Some(mut pointees) => {
                    pointees.any(|pointee| pointee.start < location.end && location.start < pointee.end)
                }
                None => self.may_lead_to_frame(pointer) && self.is_escaped(location),
            },
            (Some(Origin::Global | Origin::Memory), Root::Global(_)) => true,
            _ => false,
        }
    }

    /// The bytes of the frame that an access by a pointer may touch, if it points to known locations only.
    pub fn frame(&self, access: MemoryLocation) -> Option<impl Iterator<Item = Range<i64>> + '_> {
        let Root::Pointer(pointer) = access.root else { return None };
        let pointees = self.merged.get(&pointer)?.iter();
        Some(pointees.map(move |(slot, offset)| {
            let (start, end) = self.extent(*slot);
            let at = start + i64::from(*offset);
            if access.exact { at + access.start..at + access.end } else { start..end }
        }))
    }

    /// Whether a pointer of unknown root may point to frame bytes in [`AliasAnalysis::escaped`].
    pub fn may_lead_to_frame(&self, pointer: Value) -> bool {
        matches!(self.origin(pointer), Some(Origin::Stack | Origin::Memory))
    }

    /// Whether code outside of this analysis may touch these frame bytes.
    pub fn is_escaped(&self, location: MemoryLocation) -> bool {
        let start = usize::try_from(location.start).unwrap_or(0).min(self.escaped.len());
        let end = usize::try_from(location.end).unwrap_or(0).clamp(start, self.escaped.len());
        self.escaped[start..end].contains(&true)
    }

    /// Whether a call may write to this location of the frame.
    pub fn call_writes(&self, callee: Callee, args: &[Value], location: MemoryLocation) -> bool {
        match callee {
            Callee::Helper(Helper::MapUpdate) => false,
            Callee::Helper(helper) if !helper.has_effects() => false,
            _ => {
                let escaped = is_ours(callee) && self.is_escaped(location);
                escaped || args.iter().any(|arg| self.overlap(self.argument(*arg), location))
            }
        }
    }

    /// The locations that a call's arguments point to.
    pub fn arguments(&self, args: &[Value]) -> impl Iterator<Item = MemoryLocation> {
        let pointers = args.iter().filter(|arg| matches!(self.function.values[**arg], Type::Ptr(_)));
        pointers.map(|arg| self.argument(*arg))
    }

    /// For each byte of the frame, whether code outside of this analysis may touch it.
    pub fn escaped(&self) -> &[bool] {
        &self.escaped
    }
}

/// The parameters of the next blocks, each with what it is given.
fn given(function: &MirFunction, term: &Terminator) -> SmallVec<[(Value, Value); 4]> {
    let pairs = |target: &Target| {
        let params = function.blocks[target.block].params.iter().copied();
        params.zip(target.args.iter().copied()).collect::<SmallVec<[_; 4]>>()
    };
    term.targets().into_iter().flat_map(pairs).collect()
}

/// Whether the call runs code of the object.
fn is_ours(callee: Callee) -> bool {
    match callee {
        Callee::Function(_) => true,
        Callee::Helper(helper) => helper.calls_back(),
        Callee::Kfunc(_) | Callee::MapIter(_) | Callee::TaskId(_) | Callee::External(_) => false,
    }
}

/// Calls `each` with every pointer that escapes through an instruction.
fn each_escaping(op: &Op, mut each: impl FnMut(Value)) {
    match op {
        Op::Load { .. } | Op::AtomicAdd { .. } | Op::PtrAdd(..) => {}
        Op::Store { value, .. } | Op::AtomicExchange { value, .. } => each(*value),
        Op::Call { callee: Callee::Helper(_) | Callee::Kfunc(_) | Callee::MapIter(_), .. } => {}
        other => other.each_operand(each),
    }
}
