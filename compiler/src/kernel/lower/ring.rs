//! Lowers records of ring buffers, and objects of `new`. Records are reserved, zeroed, and released on every
//! path.
//!
//! The kernel's verifier tracks each record from its reservation and requires exactly one release. So each
//! site in the script that reserves a record has two variables: the record's address, and whether it is held.
//! A held record is discarded at the end of the scope that it belongs to. That is the scope of the outermost
//! variable that ever holds the record. It is known only after the whole function was lowered, as with the
//! kinds of pointers.
//!
//! Objects of `new` are handled the same way. Each site that creates one has memory of the stack frame, which
//! is no longer held once the object is deleted; nothing needs to be released.
//!
//! Whether a record is held is never derived from its address: verifiers before Linux 6.4 would also track a
//! null record.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::mir::builder::Variable;
use super::super::mir::{
    BinaryOp, Block, Callee, Condition, Count, Helper, Lost, MapSymbol, Op, Origin, Size, Type, Value,
};
use super::memory::{Addr, BASE_ALIGN, Base};
use super::pointer::{Bytes, Object, Pointer};
use super::{Lower, Lowerer, impossible};
use crate::diag::Diagnostic;
use crate::hir::{Expr, RingId};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// A site that reserves records, by its position in the function.
pub(super) type Site = usize;

/// For each site, the scope that its record belongs to, as the number of enclosing blocks.
pub(super) type Scopes = Vec<usize>;

/// The sites whose pointers are used before the site in the source, as in `if (p == null) { p = r.reserve()
/// }`, or that are in a loop which their records outlive. Their variables exist from the start of the
/// function, and hold nothing. In the loop, an exit before the site releases the record of the previous
/// iteration.
pub(super) type Early = BTreeMap<Site, RecordKind>;

/// The kind of memory that a site creates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A record of a ring buffer.
    Ring,
    /// An object of `new`.
    Object,
}

/// The records of a MIR function.
#[derive(Default)]
pub(super) struct Records {
    /// The number of blocks around the current statement.
    pub depth: usize,
    all: BTreeMap<Site, Record>,
    /// The number of sites lowered so far.
    met: usize,
    /// Sites whose scope has not ended.
    open: Vec<Site>,
    known: Scopes,
    /// The scopes found so far.
    pub found: Scopes,
    /// Sites that were used before they were lowered.
    asked: BTreeSet<Site>,
}

/// The run-time state of a record.
#[derive(Clone, Copy)]
struct Record {
    /// The record's address while it is held, else null.
    address: Variable,
    /// 1 while it is held, else 0.
    held: Variable,
    kind: RecordKind,
}

impl Records {
    pub(super) fn new(known: Scopes) -> Records {
        Records { found: known.clone(), known, ..Records::default() }
    }

    /// The sites that were used before they were lowered, in this lowering or a previous one.
    pub(super) fn early(&self, known: &Early) -> Early {
        let asked = self.asked.iter().filter_map(|site| Some((*site, self.all.get(site)?.kind)));
        known.clone().into_iter().chain(asked).collect()
    }

    /// Notes that the record is stored in a variable that lives until `scope` ends.
    pub(super) fn outlives(&mut self, site: Site, scope: usize) {
        if let Some(found) = self.found.get_mut(site) {
            *found = scope.min(*found);
        }
    }

    fn scope(&self, site: Site) -> usize {
        self.known.get(site).or(self.found.get(site)).copied().unwrap_or(self.depth)
    }

    /// Ends a scope and those inside it.
    pub(super) fn end(&mut self, scope: usize) {
        // Sites not yet lowered belong to later scopes.
        let is_ended = |site: &Site| *site < self.met && self.scope(*site) >= scope;
        let ended: Vec<_> = self.open.iter().copied().filter(is_ended).collect();
        self.open.retain(|site| !ended.contains(site));
    }
}

impl Lowerer<'_> {
    /// Lowers `r.reserve()`.
    pub(super) fn reserve(&mut self, ring: RingId, span: Span) -> Lower<Pointer> {
        let bytes = self.size(self.hir.rings[ring].record, span)?;
        let site = self.new_site(RecordKind::Ring);
        let Record { address, held, .. } = self.records.all[&site];
        if self.loops.last().is_some_and(|frame| self.records.scope(site) <= frame.scope()) {
            // The variable still holds the record of the previous iteration.
            self.discard(site);
            self.records.asked.insert(site);
        }
        let lost = Lost::Record(ring);
        let (record, join) = self.reserve_bytes(MapSymbol::Ring(ring), bytes, lost, |this| this.forget(site));
        self.zero(Addr::of(Base::Pointer(record)), bytes);
        let one = self.builder.constant(Type::I32, 1);
        self.builder.set(address, record);
        self.builder.set(held, one);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        let base = self.builder.constant(Type::I32, 1);
        let extent = u64::from(bytes);
        let object = Object { base, extent, is_own: true, record: Some(site), packet: None, held: None };
        Ok(self.pointer_into(vec![object], Bytes::Known(0), BASE_ALIGN))
    }

    /// Reserves a record and continues on the path that holds it. If the ring buffer is full, the loss is
    /// counted and `full` runs. Both paths meet in the returned block, which the caller seals after the use
    /// of the record.
    pub(super) fn reserve_bytes(
        &mut self,
        map: MapSymbol,
        bytes: u32,
        lost: Lost,
        full: impl FnOnce(&mut Self),
    ) -> (Value, Block) {
        let map = self.builder.value(Type::Ptr(Origin::Map), Op::MapAddr(map));
        let size = self.builder.constant(Type::I64, u64::from(bytes));
        let flags = self.builder.constant(Type::I64, 0);
        let callee = Callee::Helper(Helper::RingReserve);
        let record = self.builder.call(Type::Ptr(Origin::MemoryOrNull), callee, vec![map, size, flags]);
        let null = self.builder.value(Type::I32, Op::IsNull(record));
        let [none, got, join] = std::array::from_fn(|_| self.builder.block());
        self.builder.branch(null, none, got);
        self.builder.switch_to_sealed(none);
        self.count_lost(lost);
        full(self);
        self.builder.jump(join);
        self.builder.switch_to_sealed(got);
        (self.builder.value(Type::Ptr(Origin::Memory), Op::NonNull(record)), join)
    }

    /// Whether a record may be held.
    pub(super) fn holds_records(&self) -> bool {
        !self.records.open.is_empty()
    }

    /// Creates the variables of sites whose pointers are used before them.
    pub(super) fn start_records(&mut self, early: &Early) {
        for (site, kind) in early {
            self.make_record(*site, *kind);
            self.forget(*site);
            self.records.open.push(*site);
        }
    }

    fn make_record(&mut self, site: Site, kind: RecordKind) {
        let address = self.builder.variable(Type::Ptr(Origin::MemoryOrNull));
        let held = self.builder.variable(Type::I32);
        self.records.all.insert(site, Record { address, held, kind });
    }

    /// The state of a site's record; `None` if the site has none yet.
    fn record(&mut self, site: Site) -> Option<Record> {
        let record = self.records.all.get(&site).copied();
        if record.is_none() {
            self.records.asked.insert(site);
        }
        record
    }

    fn new_site(&mut self, kind: RecordKind) -> Site {
        let site = self.records.met;
        self.records.met += 1;
        if !self.records.all.contains_key(&site) {
            self.make_record(site, kind);
        }
        if self.records.found.len() == site {
            self.records.found.push(self.records.depth);
        }
        if !self.records.open.contains(&site) {
            self.records.open.push(site);
        }
        site
    }

    /// Increments the count of something that was lost.
    pub(super) fn count_lost(&mut self, lost: Lost) {
        let base = self.builder.value(Type::Ptr(Origin::Global), Op::CountAddr(Count::Lost(lost)));
        let value = self.builder.constant(Type::I64, 1);
        self.builder.effect(Op::AtomicAdd { size: Size::DW, base, offset: 0, value });
    }

    /// Marks the record as no longer held.
    fn forget(&mut self, site: Site) {
        let Record { address, held, .. } = self.records.all[&site];
        let null = self.builder.constant(Type::Ptr(Origin::MemoryOrNull), 0);
        let zero = self.builder.constant(Type::I32, 0);
        self.builder.set(address, null);
        self.builder.set(held, zero);
    }

    /// Lowers `r.submit(p)` and `r.discard(p)`: no effect unless the pointer points to a held record.
    pub(super) fn give_back(&mut self, record: &Expr, helper: Helper) -> Lower<Value> {
        let pointer = self.pointer_value(record)?;
        for (site, points) in self.records_of(pointer, RecordKind::Ring) {
            let held = self.builder.get(self.records.all[&site].held);
            let given = self.builder.binary(BinaryOp::And, held, points);
            self.give_if(site, given, helper);
        }
        Ok(self.builder.constant(Type::I32, 0))
    }

    /// Lowers `new T()`: a pointer to zeroed memory, never null.
    pub(super) fn new_object(&mut self, ty: TypeId, span: Span) -> Lower<Pointer> {
        let TypeKind::Ptr(to) = *self.types().kind(ty) else { return impossible(span, "this object") };
        let bytes = self.size(to, span)?;
        let site = self.new_site(RecordKind::Object);
        if self.loops.last().is_some_and(|frame| self.records.scope(site) <= frame.scope()) {
            return Err(Box::new(outlives_iteration(span)));
        }
        let Record { address, held, .. } = self.records.all[&site];
        let slot = self.builder.dedicated_slot(bytes);
        self.hold(slot, to, self.records.depth, span)?;
        let memory = Addr::of(Base::Slot(slot));
        self.zero(memory, bytes);
        let start = self.pointer(memory);
        let one = self.builder.constant(Type::I32, 1);
        self.builder.set(address, start);
        self.builder.set(held, one);
        let base = self.builder.constant(Type::I32, 1);
        let (extent, held) = (u64::from(bytes), self.held_location(memory));
        let object = Object { base, extent, is_own: true, record: Some(site), packet: None, held };
        Ok(self.pointer_into(vec![object], Bytes::Known(0), BASE_ALIGN))
    }

    /// Lowers `delete p`: no effect unless the pointer points to an object.
    pub(super) fn free(&mut self, pointer: &Expr) -> Lower<()> {
        let pointer = self.pointer_value(pointer)?;
        for (site, points) in self.records_of(pointer, RecordKind::Object) {
            let held = self.records.all[&site].held;
            let before = self.builder.get(held);
            let deleted = self.builder.binary(BinaryOp::And, before, points);
            let after = self.builder.binary(BinaryOp::Xor, before, deleted);
            self.builder.set(held, after);
        }
        Ok(())
    }

    /// The records of a kind whose start a pointer may point to, each with whether it does: 1 or 0.
    fn records_of(&mut self, pointer: Pointer, kind: RecordKind) -> Vec<(Site, Value)> {
        let sites = self.objects(pointer).into_iter().filter_map(|one| Some((one.record?, one.base)));
        let records: Vec<_> =
            sites.filter(|(site, _)| self.record(*site).is_some_and(|record| record.kind == kind)).collect();
        match pointer.offset {
            Bytes::Known(0) => records,
            Bytes::Known(_) => Vec::new(),
            Bytes::Value(offset) => {
                let start = self.builder.compare_const(Condition::Eq, offset, 0);
                let both = |(site, points)| (site, self.builder.binary(BinaryOp::And, points, start));
                records.into_iter().map(both).collect()
            }
        }
    }

    fn give_if(&mut self, site: Site, given: Value, helper: Helper) {
        let (give, next) = (self.builder.block(), self.builder.block());
        self.builder.branch(given, give, next);
        self.builder.switch_to_sealed(give);
        let record = self.builder.get(self.records.all[&site].address);
        let flags = self.builder.constant(Type::I64, 0);
        self.builder.effect(Op::Call { callee: Callee::Helper(helper), args: vec![record, flags] });
        self.forget(site);
        self.builder.jump(next);
        self.builder.switch_to_sealed(next);
    }

    fn discard(&mut self, site: Site) {
        let held = self.builder.get(self.records.all[&site].held);
        self.give_if(site, held, Helper::RingDiscard);
        // The other path holds no record either. Setting this on both avoids a loop-carried value.
        self.forget(site);
    }

    /// Discards the held records of this scope and of those inside it, because control leaves them.
    pub(super) fn discard_records(&mut self, scope: usize) {
        self.discard_between(scope..usize::MAX);
    }

    /// Discards the held records of these scopes, the newest first.
    pub(super) fn discard_between(&mut self, scopes: Range<usize>) {
        if self.builder.is_filled() {
            return;
        }
        let open = self.records.open.iter().rev().copied();
        let left = open.filter(|site| {
            scopes.contains(&self.records.scope(*site)) && self.records.all[site].kind == RecordKind::Ring
        });
        for site in left.collect::<Vec<_>>() {
            self.discard(site);
        }
    }

    /// The objects of a pointer with their addresses: null where the pointer does not point, and for records
    /// that are not held.
    pub(super) fn live_objects(&mut self, pointer: Pointer) -> Vec<Object> {
        let objects = self.objects(pointer).into_iter();
        objects
            .map(|object| match object.record {
                Some(site) => Object { base: self.record_or_null(site, object.base), ..object },
                None => object,
            })
            .collect()
    }

    fn record_or_null(&mut self, site: Site, points: Value) -> Value {
        let Some(Record { address, held, .. }) = self.record(site) else { return self.null };
        let held = self.builder.get(held);
        let there = self.builder.binary(BinaryOp::And, held, points);
        let [yes, no, join] = std::array::from_fn(|_| self.builder.block());
        let result = self.builder.param(join, Type::Ptr(Origin::MemoryOrNull));
        self.builder.branch(there, yes, no);
        self.builder.switch_to_sealed(yes);
        let address = self.builder.get(address);
        self.builder.jump_with(join, address);
        self.builder.switch_to_sealed(no);
        self.builder.jump_with(join, self.null);
        self.builder.switch_to_sealed(join);
        result
    }

    /// 1 if a pointer points to one of these objects, which all are the same record; else 0.
    pub(super) fn any_of(&mut self, objects: Vec<Object>) -> Value {
        let zero = self.builder.constant(Type::I32, 0);
        objects.iter().fold(zero, |any, object| self.builder.binary(BinaryOp::Or, any, object.base))
    }
}

/// KS0622: an object that outlives an iteration of its loop, although the next iteration would create it
/// again.
fn outlives_iteration(span: Span) -> Diagnostic {
    Diagnostic::error(622, span, "this object outlives the iteration that creates it")
        .note("each `new` has memory for one object, which the next iteration would reuse")
        .help("keep the pointer in a variable of the loop's body, or create the object before the loop")
}
