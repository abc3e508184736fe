//! Alias analysis: the memory that accesses and calls may touch.

use crate::hir::GlobalId;
use crate::index::IndexVec;
use crate::kernel::mir::{Block, Callee, Helper, MirFunction, Op, Origin, Slot, Type, Value};

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
}

impl<'a> AliasAnalysis<'a> {
    pub fn new(function: &'a MirFunction, order: &[Block]) -> AliasAnalysis<'a> {
        let escaped = vec![false; function.slot_bytes as usize];
        let mut aliases = AliasAnalysis { function, ops: function.definitions(), escaped };
        for block in order.iter().map(|block| &function.blocks[*block]) {
            for inst in &block.insts {
                each_escaping(&inst.op, |value| aliases.escape(value));
            }
            block.term.each_operand(|value| aliases.escape(value));
        }
        aliases
    }

    fn escape(&mut self, value: Value) {
        if let Some(slot) = self.slot_of(value) {
            let (start, end) = self.extent(slot);
            self.escaped[start as usize..end as usize].fill(true);
        }
    }

    /// The slot that a pointer was derived from.
    fn slot_of(&self, value: Value) -> Option<Slot> {
        match self.ops[value]? {
            Op::StackAddr { slot, .. } => Some(*slot),
            Op::PtrAdd(base, _) => self.slot_of(*base),
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
                let location = if other == a.root { a } else { b };
                self.may_lead_to(pointer, location)
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

    fn may_lead_to(&self, pointer: Value, location: MemoryLocation) -> bool {
        match (self.origin(pointer), location.root) {
            (_, Root::Frame) => self.may_lead_to_frame(pointer) && self.is_escaped(location),
            (Some(Origin::Global | Origin::Memory), Root::Global(_)) => true,
            _ => false,
        }
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
