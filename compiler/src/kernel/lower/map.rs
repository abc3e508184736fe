//! Lowers maps: lookups, updates, `m[k] op= v` and bindings. Maps whose keys are kernel objects: `storage`.

use super::super::mir::{Block, Callee, Condition, Helper, Lost, MapSymbol, Op, Origin, Slot, Type, Value};
use super::lvalue::{Access, Prepared, Root};
use super::memory::{Addr, Base};
use super::{Alias, Home, Lower, Lowerer, arithmetic, impossible, int_type};
use crate::defect::narrow;
use crate::hir::{self, ConfigId, Expr, LocalId, MapId};
use crate::source::Span;
use crate::types::{IntType, TypeKind};

/// The key of a map access after its evaluation.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// The bytes of a key.
    Bytes(KeyBytes),
    /// A kernel object, or null.
    Object(Value),
}

/// The bytes of a key in the stack frame.
#[derive(Clone, Copy)]
pub(super) struct KeyBytes {
    slot: Slot,
    /// The whole 64-bit key of an array map, if it has 64 bits: no entry has a key of 2^32 or more.
    wide: Option<Value>,
    /// Whether the key is below the size of an array, which has an entry at each of them.
    is_there: bool,
}

/// Flags of bpf_map_update_elem. Source: include/uapi/linux/bpf.h, v6.12.
const BPF_ANY: u64 = 0;
const BPF_NOEXIST: u64 = 1;
/// Changes an entry that exists under its lock.
const BPF_F_LOCK: u64 = 4;

/// Error number of an entry that is not there. Source: include/uapi/asm-generic/errno-base.h.
const ENOENT: u64 = 2;

const U32: IntType = IntType { bits: 32, signed: false };

impl Lowerer<'_> {
    /// Evaluates a key expression for a map.
    pub(super) fn key(&mut self, map: MapId, key: &Expr) -> Lower<Key> {
        let map = &self.hir.maps[map];
        if map.kind.is_storage() {
            Ok(Key::Object(self.storage_key(map, key)?))
        } else {
            Ok(Key::Bytes(self.key_bytes(map, key)?))
        }
    }

    fn key_bytes(&mut self, map: &hir::Map, key: &Expr) -> Lower<KeyBytes> {
        if !map.kind.is_array() || map.outer.is_some() {
            let bytes = self.size(map.key, key.span)?;
            let slot = self.builder.slot(bytes);
            self.lower_into(key, Addr::of(Base::Slot(slot)))?;
            return Ok(KeyBytes { slot, wide: None, is_there: false });
        }
        let int = self.int(map.key, key.span)?;
        let value = self.scalar(key)?;
        let slot = self.builder.slot(4);
        let low = arithmetic::convert(&mut self.builder, int, U32, value);
        self.store_scalar(Addr::of(Base::Slot(slot)), U32, low);
        let is_below = self.builder.ceiling(value).is_some_and(|most| most < u64::from(map.max_entries));
        let has_size = map.size_option.is_none() && !map.pinned;
        let is_there = is_below && has_size;
        Ok(KeyBytes { slot, wide: (int.bits == 64 && !is_there).then_some(value), is_there })
    }

    /// The map that the object declares, and its key.
    fn declared_map_and_key(&mut self, map: MapId, key: KeyBytes) -> (Value, Value) {
        let map = self.map_addr(map);
        let key = self.pointer(Addr::of(Base::Slot(key.slot)));
        (map, key)
    }

    /// The map that has the entries, and the key there. Control goes to `absent` if a map of maps has no map for this
    /// key.
    fn map_and_key(&mut self, map: MapId, key: KeyBytes, absent: Block) -> (Value, Value) {
        let (declared, first) = self.declared_map_and_key(map, key);
        let Some(offset) = self.inner_key_offset(map) else { return (declared, first) };
        let inner = self.found(declared, first, absent);
        (inner, self.pointer(Addr::of(Base::Slot(key.slot)).plus(offset)))
    }

    /// Where the key of the inner map lies in the key of a map of maps.
    fn inner_key_offset(&self, map: MapId) -> Option<u32> {
        let map = &self.hir.maps[map];
        let (Some(_), TypeKind::Struct(key)) = (map.outer, self.types().kind(map.key)) else { return None };
        Some(narrow(self.types().field_offset(*key, 1)))
    }

    /// Returns the outcome of `call`, which gets the map and the key; -ENOENT if a map of maps has no map for this key.
    fn with_map_and_key(
        &mut self,
        map: MapId,
        key: KeyBytes,
        call: impl FnOnce(&mut Self, Value, Value) -> Value,
    ) -> Value {
        if self.inner_key_offset(map).is_none() {
            let (map, key) = self.declared_map_and_key(map, key);
            return call(self, map, key);
        }
        let (absent, join) = (self.builder.block(), self.builder.block());
        let outcome = self.builder.param(join, Type::I64);
        let (map, key) = self.map_and_key(map, key, absent);
        let found = call(self, map, key);
        self.builder.jump_with(join, found);
        self.builder.switch_to_sealed(absent);
        let none = self.builder.constant(Type::I64, ENOENT.wrapping_neg());
        self.builder.jump_with(join, none);
        self.builder.switch_to_sealed(join);
        outcome
    }

    /// A pointer to the entry; control goes to `miss` if there is none.
    pub(super) fn lookup(&mut self, map: MapId, key: Key, miss: Block) -> Value {
        let key = match key {
            Key::Bytes(key) => key,
            Key::Object(object) => return self.stored(map, object, miss),
        };
        if let Some(wide) = key.wide {
            let fits = self.builder.compare_const(Condition::Lt, wide, 1 << 32);
            let narrow = self.builder.block();
            self.builder.branch(fits, narrow, miss);
            self.builder.switch_to_sealed(narrow);
        }
        // A key may be evaluated before a loop that looks it up.
        let is_there = key.is_there && self.may_end_here();
        let (map, key) = self.map_and_key(map, key, miss);
        if is_there { self.always_found(map, key) } else { self.found(map, key, miss) }
    }

    /// Whether the function can end here: not in a loop, whose body may become a function, nor where something is held that
    /// has to be released.
    fn may_end_here(&self) -> bool {
        let has_kfuncs = self.hir.externs.iter().any(|one| one.helper.is_none());
        self.loops.is_empty() && !self.holds_records() && !has_kfuncs
    }

    /// A pointer to an entry that exists. The verifier wants to see what happens if it did not: the function ends, so that
    /// nothing has to be right both with the entry and without.
    ///
    /// Source: kernel/bpf/arraymap.c, `array_map_lookup_elem`, v6.18: null for an index beyond the size alone.
    fn always_found(&mut self, map: Value, key: Value) -> Value {
        let never = self.builder.block();
        let entry = self.found(map, key, never);
        let here = self.builder.current();
        self.builder.switch_to_sealed(never);
        let zero = self.builder.constant(self.builder.result_type(), 0);
        self.leave(zero);
        self.builder.switch_to(here);
        entry
    }

    /// A pointer to the entry, or null.
    pub(super) fn nullable_entry(&mut self, map: MapId, key: Key) -> Value {
        if let (Key::Bytes(key @ KeyBytes { wide: None, .. }), None) = (key, self.hir.maps[map].outer) {
            let (map, key) = self.declared_map_and_key(map, key);
            let callee = Callee::Helper(Helper::MapLookup);
            return self.builder.call(Type::Ptr(Origin::EntryOrNull), callee, vec![map, key]);
        }
        let (miss, join) = (self.builder.block(), self.builder.block());
        let result = self.builder.param(join, Type::Ptr(Origin::MemoryOrNull));
        let entry = self.lookup(map, key, miss);
        self.builder.jump_with(join, entry);
        self.builder.switch_to_sealed(miss);
        let null = self.builder.constant(Type::Ptr(Origin::MemoryOrNull), 0);
        self.builder.jump_with(join, null);
        self.builder.switch_to_sealed(join);
        result
    }

    /// A pointer to the fields of a config block.
    pub(super) fn lookup_config(&mut self, config: ConfigId, miss: Block) -> Value {
        let slot = self.builder.slot(4);
        let zero = self.builder.constant(Type::I32, 0);
        self.store_scalar(Addr::of(Base::Slot(slot)), U32, zero);
        let map = self.builder.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Config(config)));
        let key = self.pointer(Addr::of(Base::Slot(slot)));
        self.found(map, key, miss)
    }

    pub(super) fn found(&mut self, map: Value, key: Value, miss: Block) -> Value {
        let callee = Callee::Helper(Helper::MapLookup);
        let entry = self.builder.call(Type::Ptr(Origin::EntryOrNull), callee, vec![map, key]);
        let null = self.builder.value(Type::I32, Op::IsNull(entry));
        let found = self.builder.block();
        self.builder.branch(null, miss, found);
        self.builder.switch_to_sealed(found);
        self.builder.value(Type::Ptr(Origin::Entry), Op::NonNull(entry))
    }

    /// Whether there is an entry: 1 or 0.
    pub(super) fn present(&mut self, map: MapId, key: &Expr) -> Lower<Value> {
        let miss = self.builder.block();
        if self.hir.maps[map].is_of_inner_map(key) {
            self.lookup_inner_map(map, key, miss)?;
        } else {
            let key = self.key(map, key)?;
            self.lookup(map, key, miss);
        }
        let join = self.builder.block();
        let result = self.builder.param(join, Type::I32);
        let one = self.builder.constant(Type::I32, 1);
        self.builder.jump_with(join, one);
        self.builder.switch_to_sealed(miss);
        let zero = self.builder.constant(Type::I32, 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        Ok(result)
    }

    /// Looks for the inner map at the key of an outer map.
    fn lookup_inner_map(&mut self, map: MapId, key: &Expr, miss: Block) -> Lower<()> {
        let slot = Addr::of(Base::Slot(self.builder.slot(self.size(key.ty, key.span)?)));
        self.lower_into(key, slot)?;
        let (outer, key) = (self.map_addr(map), self.pointer(slot));
        self.found(outer, key, miss);
        Ok(())
    }

    fn update(&mut self, map: MapId, key: KeyBytes, value: Addr, flags: u64) -> Value {
        self.with_map_and_key(map, key, |this, map, key| {
            let value = this.pointer(value);
            let flags = this.builder.constant(Type::I64, flags);
            this.builder.call(Type::I64, Callee::Helper(Helper::MapUpdate), vec![map, key, value, flags])
        })
    }

    /// The entry that a value is written to in place; control goes to `miss` if there is none and none can be
    /// created.
    fn entry_to_write(&mut self, map: MapId, key: Key, miss: Block) -> Value {
        match key {
            Key::Object(object) => self.stored_or_new(map, object, miss),
            Key::Bytes(_) => self.lookup(map, key, miss),
        }
    }

    /// Lowers `m[k] = value`, where the bytes of the value are on the stack. Entries of arrays and values of
    /// objects are written in place.
    pub(super) fn assign_element(&mut self, map: MapId, key: Key, value: Addr, span: Span) -> Lower<()> {
        let data = &self.hir.maps[map];
        let bytes = self.size(data.value, span)?;
        if let Some(key) = replaced(data, key) {
            let outcome = match data.locked {
                true => {
                    let stored = self.stored_value(map, value, bytes);
                    self.update(map, key, stored, BPF_F_LOCK)
                }
                false => self.update(map, key, value, BPF_ANY),
            };
            self.count_if_failed(map, outcome);
            return Ok(());
        }
        let miss = self.builder.block();
        let entry = self.entry_to_write(map, key, miss);
        let to = Addr::of(Base::Pointer(entry));
        match self.lock_of(map, entry) {
            Some(lock) => self.under_lock(lock, |this| this.copy(to, value, bytes)),
            None => self.copy(to, value, bytes),
        }
        self.join_miss(Some(miss), |this| {
            this.count_if_of_maps(map);
            Ok(())
        })
    }

    /// Counts an update that found no entry of an inner array: none is ever created in the kernel half.
    fn count_if_of_maps(&mut self, map: MapId) {
        if self.hir.maps[map].outer.is_some() {
            self.count_lost(Lost::Update(map));
        }
    }

    /// `m[k] = value` of a scalar.
    pub(super) fn assign_scalar_element(
        &mut self,
        map: MapId,
        key: Key,
        value: Value,
        span: Span,
    ) -> Lower<()> {
        let int = self.int(self.hir.maps[map].value, span)?;
        if let Some(key) = replaced(&self.hir.maps[map], key) {
            let slot = Addr::of(Base::Slot(self.builder.slot(int.bytes() as u32)));
            self.store_scalar(slot, int, value);
            let outcome = self.update(map, key, slot, BPF_ANY);
            self.count_if_failed(map, outcome);
            return Ok(());
        }
        let miss = self.builder.block();
        let entry = self.entry_to_write(map, key, miss);
        self.store_scalar(Addr::of(Base::Pointer(entry)), int, value);
        self.join_miss(Some(miss), |this| {
            this.count_if_of_maps(map);
            Ok(())
        })
    }

    /// Lowers `m[k] op= value`. A missing entry is created from zero; if another CPU creates it first, that
    /// entry is changed instead.
    pub(super) fn compound_element(
        &mut self,
        map: MapId,
        key: Key,
        change: super::stmt::Change,
        span: Span,
    ) -> Lower<()> {
        let data = &self.hir.maps[map];
        let int = self.int(data.value, span)?;
        let change = super::stmt::Change { shared: !data.kind.is_per_cpu(), ..change };
        let miss = self.builder.block();
        let done = self.builder.block();
        let entry = self.entry_to_write(map, key, miss);
        self.apply_change(Addr::of(Base::Pointer(entry)), int, change);
        self.builder.jump(done);
        self.builder.switch_to_sealed(miss);
        match replaced(data, key) {
            Some(key) => self.create_element(map, key, int, change, done),
            None => self.count_if_of_maps(map),
        }
        self.builder.jump(done);
        self.builder.switch_to_sealed(done);
        Ok(())
    }

    /// Lowers `m[k].f op= value` for a part of the value: a missing entry is created with zeros, and changed
    /// like any other.
    pub(super) fn compound_part(
        &mut self,
        (map, key): (MapId, Key),
        part: &Prepared,
        int: IntType,
        change: super::stmt::Change,
        span: Span,
    ) -> Lower<()> {
        let data = &self.hir.maps[map];
        let change = super::stmt::Change { shared: !data.kind.is_per_cpu(), ..change };
        let (absent, present, done) = (self.builder.block(), self.builder.block(), self.builder.block());
        let entry = self.builder.param(present, Type::Ptr(Origin::Entry));
        let found = self.entry_to_write(map, key, absent);
        self.builder.jump_with(present, found);
        self.builder.switch_to_sealed(absent);
        match replaced(data, key) {
            Some(key) => self.create_zeros(map, key, part, (present, done), span)?,
            None => {
                self.count_if_of_maps(map);
                self.builder.jump(done);
            }
        }
        self.builder.switch_to_sealed(present);
        let base = Root::Value(Addr::of(Base::Pointer(entry)));
        let Access { addr, miss } = self.resolve(&part.with_root(base))?;
        self.apply_change(addr, int, change);
        self.join_miss(miss, |_| Ok(()))?;
        self.builder.jump(done);
        self.builder.switch_to_sealed(done);
        Ok(())
    }

    /// Creates an entry of zeros and jumps to `present` with it, or with the one that appeared meanwhile.
    /// Jumps to `done` if the map is full or there is no such part.
    fn create_zeros(
        &mut self,
        map: MapId,
        key: KeyBytes,
        part: &Prepared,
        (present, done): (Block, Block),
        span: Span,
    ) -> Lower<()> {
        let Some(zeros) = self.hir.zeros else { return impossible(span, "an entry that starts from zero") };
        let zeros = Addr::of(Base::Global(zeros));
        let outside = self.resolve(&part.with_root(Root::Value(zeros)))?.miss;
        // It does not matter whether another CPU was faster.
        self.update(map, key, zeros, BPF_NOEXIST);
        let full = self.builder.block();
        let created_entry = self.lookup(map, Key::Bytes(key), full);
        self.builder.jump_with(present, created_entry);
        self.builder.switch_to_sealed(full);
        self.count_lost(Lost::Update(map));
        self.builder.jump(done);
        if let Some(outside) = outside {
            self.builder.switch_to_sealed(outside);
            self.builder.jump(done);
        }
        Ok(())
    }

    /// Creates the entry from zero, or changes the one that appeared meanwhile.
    fn create_element(
        &mut self,
        map: MapId,
        key: KeyBytes,
        int: IntType,
        change: super::stmt::Change,
        done: Block,
    ) {
        let zero = self.builder.constant(int_type(int), 0);
        let value = self.changed(zero, int, change);
        let slot = Addr::of(Base::Slot(self.builder.slot(int.bytes() as u32)));
        self.store_scalar(slot, int, value);
        let outcome = self.update(map, key, slot, BPF_NOEXIST);
        let created = self.builder.compare_const(Condition::Eq, outcome, 0);
        let retry = self.builder.block();
        let created_block = self.builder.block();
        self.builder.branch(created, created_block, retry);
        self.builder.switch_to_sealed(created_block);
        self.builder.jump(done);
        self.builder.switch_to_sealed(retry);
        let full = self.builder.block();
        let entry = self.lookup(map, Key::Bytes(key), full);
        self.apply_change(Addr::of(Base::Pointer(entry)), int, change);
        self.builder.jump(done);
        self.builder.switch_to_sealed(full);
        self.count_lost(Lost::Update(map));
    }

    /// Counts an update that the kernel refused because the map is full.
    pub(super) fn count_if_failed(&mut self, map: MapId, outcome: Value) {
        let fine = self.builder.compare_const(Condition::SGe, outcome, 0);
        let (failed, join) = (self.builder.block(), self.builder.block());
        self.builder.branch(fine, join, failed);
        self.builder.switch_to_sealed(failed);
        self.count_lost(Lost::Update(map));
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
    }

    /// `delete m[k]`.
    pub(super) fn remove(&mut self, map: MapId, key: &Expr) -> Lower<()> {
        match self.key(map, key)? {
            Key::Bytes(key) => {
                self.with_map_and_key(map, key, |this, map, key| {
                    this.builder.call(Type::I64, Callee::Helper(Helper::MapDelete), vec![map, key])
                });
            }
            Key::Object(object) => self.remove_stored(map, object),
        }
        Ok(())
    }

    /// Lowers `x = m[k]` with a presence bit.
    pub(super) fn bind(&mut self, local: LocalId, map: MapId, key: &Expr, span: Span) -> Lower<()> {
        let home = self.declare(local)?;
        let key = self.key(map, key)?;
        let miss = self.builder.block();
        let entry = self.lookup(map, key, miss);
        self.bind_entry(local, entry, span)?;
        self.join_miss(Some(miss), |this| {
            this.clear_local(local, span)?;
            this.set_present(home, false);
            Ok(())
        })
    }

    /// Binds a local to an existing entry.
    pub(super) fn bind_entry(&mut self, local: LocalId, entry: Value, span: Span) -> Lower<()> {
        let home = self.declare(local)?;
        let from = Addr::of(Base::Pointer(entry));
        let ty = self.active.source.locals[local].ty;
        match home.home {
            Home::Scalar(variable) => {
                let int = self.int(ty, span)?;
                let value = self.load_scalar(from, int);
                self.builder.set(variable, value);
            }
            Home::Fixed(_) | Home::Pointer(_) => return impossible(span, "a map of pointers"),
            Home::Memory(base) => {
                let bytes = self.size(ty, span)?;
                self.copy(Addr::of(base), from, bytes);
            }
            Home::Alias(alias) => {
                self.builder.set(alias.pointer, entry);
                self.builder.set(alias.entry, entry);
            }
        }
        self.set_present(home, true);
        Ok(())
    }

    /// Sets a local to zero; an alias is unbound from its entry.
    pub(super) fn clear_local(&mut self, local: LocalId, span: Span) -> Lower<()> {
        let home = self.declare(local)?;
        let data: &hir::Local = &self.active.source.locals[local];
        match home.home {
            Home::Scalar(variable) => {
                if self.is_context(data.ty) {
                    return impossible(span, "a context without a value");
                }
                let int = self.int(data.ty, span)?;
                let zero = self.builder.constant(int_type(int), 0);
                self.builder.set(variable, zero);
            }
            Home::Fixed(_) => {}
            Home::Pointer(_) => {
                let null = self.null();
                self.set_pointer_local(local, home, null, span)?;
            }
            Home::Memory(base) => {
                let bytes = self.size(data.ty, span)?;
                self.zero(Addr::of(base), bytes);
            }
            Home::Alias(alias) => {
                let bytes = self.size(data.ty, span)?;
                self.zero(Addr::of(alias.own), bytes);
                self.unbind(alias);
            }
        }
        Ok(())
    }

    /// Points an alias at its private memory.
    pub(super) fn unbind(&mut self, alias: Alias) {
        let own = self.pointer(Addr::of(alias.own));
        self.builder.set(alias.pointer, own);
        self.builder.set(alias.entry, self.null);
    }
}

/// The key, if an update replaces the entry by another one.
fn replaced(map: &hir::Map, key: Key) -> Option<KeyBytes> {
    match key {
        Key::Bytes(key) if !map.kind.is_array() => Some(key),
        _ => None,
    }
}
