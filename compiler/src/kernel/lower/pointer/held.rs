//! Lowers pointers stored in memory of the frame: in structs, in arrays, and those whose address is taken.
//!
//! The pointee of a pointer is tracked from variable to variable. So a pointer stored in a slot has variables
//! of its own besides its 8 bytes, like a pointer that is a local. They hold its pointee, and accesses
//! through the pointer use them. The 8 bytes are a number, the address. A copy of the bytes to other memory
//! gets the number. A number that is copied into a slot, or that the kernel writes there, is the address of
//! memory that is not the program's.

use std::collections::BTreeMap;

use super::super::super::mir::{Condition, Slot, Type, Value};
use super::super::lvalue::{Prepared, Root};
use super::super::memory::{Addr, Base};
use super::super::{Home, Lower, Lowerer, U64};
use super::{Bytes, Object, Pointer, PointerVariables, Pointers};
use crate::defect::narrow;
use crate::source::Span;
use crate::types::{TypeId, TypeKind, Types};

/// The limit of pointers in a value in memory: a run-time index is compared with the location of each.
pub const MAX_HELD: usize = 32;

/// A slot that holds pointers.
pub(super) struct Holder {
    slot: Slot,
    /// The pointers by offset in the slot: their types and their variables.
    pointers: BTreeMap<u32, (TypeId, PointerVariables)>,
}

/// A location in a slot that holds pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLocation {
    /// The slot: an index into the list of slots that hold pointers.
    holder: usize,
    /// The offset in bytes from the slot's start.
    at: u32,
}

/// The number of a pointer in a slot whose address is passed to the kernel, before the call.
pub(in super::super) struct Number {
    /// The slot as an object of the pointer that is passed to the kernel.
    object: Object,
    addr: Addr,
    number: Value,
    variables: PointerVariables,
}

impl Pointers {
    /// Notes that a pointer to the slot is stored in a variable that lives until `scope` ends.
    pub(super) fn outlive(&mut self, location: HeldLocation, scope: usize) {
        for (_, variables) in self.holders[location.holder].pointers.values() {
            let seen = &mut self.found[variables.index];
            seen.scope = seen.scope.min(scope);
        }
    }
}

/// The offsets and types of the pointers in a value of the type, at most [`MAX_HELD`] plus one. Pointers to
/// kernel structs and contexts are not tracked.
pub fn held_pointers(types: &Types, ty: TypeId) -> Vec<(u64, TypeId)> {
    let mut found = Vec::new();
    collect(types, ty, 0, &mut found);
    found
}

fn collect(types: &Types, ty: TypeId, at: u64, found: &mut Vec<(u64, TypeId)>) {
    match types.kind(ty) {
        TypeKind::Ptr(to) if !types.is_kernels_own(*to) && found.len() <= MAX_HELD => found.push((at, ty)),
        TypeKind::Array(element, len) => {
            let (bytes, before) = (types.size(*element), found.len());
            for index in 0..*len {
                collect(types, *element, at.saturating_add(index.saturating_mul(bytes)), found);
                if found.len() == before || found.len() > MAX_HELD {
                    break;
                }
            }
        }
        TypeKind::Struct(id) => {
            for (index, field) in types.struct_def(*id).fields.iter().enumerate() {
                collect(types, field.ty, at.saturating_add(types.field_offset(*id, index)), found);
            }
        }
        _ => {}
    }
}

impl Lowerer<'_> {
    /// Creates variables for the pointers in a slot that is about to receive a value of a type.
    /// They may be read until `scope` ends, and longer where a pointer to the slot is.
    pub(in super::super) fn hold(&mut self, slot: Slot, ty: TypeId, scope: usize, span: Span) -> Lower<()> {
        let held = held_pointers(self.types(), ty);
        if held.is_empty() || held.len() > MAX_HELD {
            return Ok(());
        }
        let mut pointers = BTreeMap::new();
        for (at, ty) in held {
            let variables = self.pointer_variables(ty, span)?;
            let variables = PointerVariables { scope: scope.min(variables.scope), ..variables };
            pointers.insert(narrow(at), (ty, variables));
        }
        self.pointers.by_slot.insert(slot, self.pointers.holders.len());
        self.pointers.holders.push(Holder { slot, pointers });
        Ok(())
    }

    /// The location of an address in a slot that holds pointers; `None` for any other address.
    pub(in super::super) fn held_location(&self, addr: Addr) -> Option<HeldLocation> {
        let (slot, at) = match addr.base {
            Base::Slot(slot) => (slot, 0),
            Base::Pointer(pointer) => self.builder.stack_location(pointer)?,
            Base::Global(_) => return None,
        };
        let holder = *self.pointers.by_slot.get(&slot)?;
        Some(HeldLocation { holder, at: at.saturating_add(addr.offset) })
    }

    /// The variables of the pointers in the `bytes` bytes from a location, with their offsets from it and
    /// their types.
    fn held_in(&self, location: HeldLocation, bytes: u32) -> Vec<(u32, TypeId, PointerVariables)> {
        let range = location.at..location.at.saturating_add(bytes);
        let held = self.pointers.holders[location.holder].pointers.range(range);
        held.map(|(at, (ty, variables))| (at - location.at, *ty, *variables)).collect()
    }

    fn held_at(&self, location: HeldLocation, distance: u64) -> Option<PointerVariables> {
        let at = u32::try_from(u64::from(location.at).checked_add(distance)?).ok()?;
        self.pointers.holders[location.holder].pointers.get(&at).map(|(_, variables)| *variables)
    }

    /// The offsets of all pointers stored in memory that are set: a loop may change each.
    pub(in super::super) fn held_offsets(&self) -> Vec<super::Variable> {
        let pointers = self.pointers.holders.iter().flat_map(|holder| holder.pointers.values());
        pointers.map(|(_, variables)| variables.offset).collect()
    }

    /// The pointer at an address.
    pub(in super::super) fn pointer_in(&mut self, addr: Addr) -> Pointer {
        let held = self.held_location(addr).and_then(|location| self.held_at(location, 0));
        match held {
            Some(variables) => self.current_pointer(variables),
            None => {
                let number = self.load_scalar(addr, U64);
                self.pointer_to_address(number)
            }
        }
    }

    /// Stores a pointer at an address.
    pub(in super::super) fn store_pointer_in(&mut self, addr: Addr, pointer: Pointer) -> Lower<()> {
        let number = self.address_value(pointer)?;
        self.store_scalar(addr, U64, number);
        if let Some(variables) = self.held_location(addr).and_then(|location| self.held_at(location, 0)) {
            self.set_pointer(variables, pointer);
        }
        Ok(())
    }

    /// Copies the variables of the pointers in bytes that were copied from one address to another.
    pub(in super::super) fn copied_pointers(&mut self, to: Addr, from: Addr, bytes: u32) {
        let Some(location) = self.held_location(to) else { return };
        for (distance, _, variables) in self.held_in(location, bytes) {
            let pointer = self.pointer_in(from.plus(distance));
            self.set_pointer(variables, pointer);
        }
    }

    /// Sets the pointers in bytes that were zeroed to null.
    pub(in super::super) fn cleared_pointers(&mut self, addr: Addr, bytes: u32) {
        let Some(location) = self.held_location(addr) else { return };
        for (_, _, variables) in self.held_in(location, bytes) {
            let null = self.null();
            self.set_pointer(variables, null);
        }
    }

    /// Marks the pointers in bytes that the kernel wrote as addresses.
    pub(in super::super) fn written_pointers(&mut self, addr: Addr, bytes: u32) {
        let Some(location) = self.held_location(addr) else { return };
        for (distance, _, variables) in self.held_in(location, bytes) {
            let number = self.load_scalar(addr.plus(distance), U64);
            let pointer = self.pointer_to_address(number);
            self.set_pointer(variables, pointer);
        }
    }

    /// The pointer at an lvalue; null if the lvalue does not exist.
    pub(in super::super) fn load_pointer(
        &mut self,
        from: &Prepared,
        ty: TypeId,
        span: Span,
    ) -> Lower<Pointer> {
        let Root::Pointer(root_pointer, bytes) = from.root else {
            let Some(location) = self.root_location(from.root) else { return self.load_number(from) };
            if let Some(distance) = from.distance() {
                return match self.held_at(location, distance.into()) {
                    Some(variables) => Ok(self.current_pointer(variables)),
                    None => self.load_number(from),
                };
            }
            let result = self.pointer_variables(ty, span)?;
            let null = self.null();
            self.set_pointer(result, null);
            self.load_held(from, location, Bytes::Known(0), result);
            return Ok(self.current_pointer(result));
        };
        // Created whatever the pointee is, which is known only after the whole function was lowered.
        let result = self.pointer_variables(ty, span)?;
        let objects = self.objects(root_pointer);
        if let ([only], Bytes::Known(start), Some(distance)) =
            (objects.as_slice(), root_pointer.offset, from.distance())
            && let Some(location) = only.held
            && !self.may_be_elsewhere(only)
            && let Some(variables) = self.held_at(location, start.saturating_add(distance.into()))
        {
            return Ok(self.current_pointer(variables));
        }
        let (held, others): (Vec<Object>, Vec<Object>) =
            objects.into_iter().partition(|object| object.held.is_some());
        let others = self.pointer_into(others, root_pointer.offset, root_pointer.align);
        let elsewhere = if self.objects(others).is_empty() {
            self.null()
        } else {
            self.load_number(&from.with_root(Root::Pointer(others, bytes)))?
        };
        self.set_pointer(result, elsewhere);
        let held = self.pointer_into(held, root_pointer.offset, root_pointer.align);
        for object in self.live_objects(held) {
            let Some(location) = object.held else { continue };
            self.where_it_points(&object, |this| this.load_held(from, location, root_pointer.offset, result));
        }
        Ok(self.current_pointer(result))
    }

    fn load_number(&mut self, from: &Prepared) -> Lower<Pointer> {
        let number = self.load_prepared(from, U64)?;
        Ok(self.pointer_to_address(number))
    }

    /// Sets `result` to the pointer at an lvalue in a slot, if there is one.
    fn load_held(&mut self, from: &Prepared, location: HeldLocation, start: Bytes, result: PointerVariables) {
        self.at_held(from, location, start, |this, variables| {
            let pointer = this.current_pointer(variables);
            this.set_pointer(result, pointer);
        });
    }

    /// Stores a pointer at an lvalue; does nothing if the lvalue does not exist.
    pub(in super::super) fn store_pointer(&mut self, to: &Prepared, pointer: Pointer) -> Lower<()> {
        let number = self.address_value(pointer)?;
        let access = self.resolve(to)?;
        self.store_scalar(access.addr, U64, number);
        self.join_miss(access.miss, |_| Ok(()))?;
        self.keep_pointer(to, pointer);
        Ok(())
    }

    /// Records the pointer that was stored at an lvalue, if the lvalue is in a slot.
    fn keep_pointer(&mut self, to: &Prepared, pointer: Pointer) {
        let Root::Pointer(root_pointer, _) = to.root else {
            if let Some(location) = self.root_location(to.root) {
                self.keep_held(to, location, Bytes::Known(0), pointer);
            }
            return;
        };
        for object in self.live_objects(root_pointer) {
            let Some(location) = object.held else { continue };
            self.where_it_points(&object, |this| this.keep_held(to, location, root_pointer.offset, pointer));
        }
    }

    fn keep_held(&mut self, to: &Prepared, location: HeldLocation, start: Bytes, pointer: Pointer) {
        self.at_held(to, location, start, |this, variables| this.set_pointer(variables, pointer));
    }

    /// Sets the pointers in a value that was copied from an lvalue into a slot, if their source is known only
    /// at run time.
    pub(in super::super) fn pointers_from(
        &mut self,
        from: &Prepared,
        to: Addr,
        bytes: u32,
        span: Span,
    ) -> Lower<()> {
        let Some(location) = self.held_location(to).filter(|_| is_found_at_run_time(from)) else {
            return Ok(());
        };
        for (distance, ty, variables) in self.held_in(location, bytes) {
            let pointer = self.load_pointer(&from.part(distance), ty, span)?;
            self.set_pointer(variables, pointer);
        }
        Ok(())
    }

    /// Sets the pointers at an lvalue to which a value was copied out of a slot.
    pub(in super::super) fn pointers_to(&mut self, to: &Prepared, from: Addr, bytes: u32) {
        let Some(location) = self.held_location(from).filter(|_| is_found_at_run_time(to)) else { return };
        for (distance, _, variables) in self.held_in(location, bytes) {
            let pointer = self.current_pointer(variables);
            self.keep_pointer(&to.part(distance), pointer);
        }
    }

    /// The location in a slot with pointers at which an lvalue starts.
    fn root_location(&self, root: Root) -> Option<HeldLocation> {
        match root {
            Root::Local(id) => match self.active.locals[id]?.home {
                Home::Memory(base) => self.held_location(Addr::of(base)),
                _ => None,
            },
            Root::Value(addr) => self.held_location(addr),
            _ => None,
        }
    }

    /// Runs code with the variables of the pointer at an lvalue, which is `start` bytes after a location in a
    /// slot, if there is one.
    fn at_held(
        &mut self,
        part: &Prepared,
        location: HeldLocation,
        start: Bytes,
        mut each: impl FnMut(&mut Self, PointerVariables),
    ) {
        let join = self.builder.block();
        match self.distance_within(part, start, join) {
            Bytes::Known(distance) => {
                if let Some(variables) = self.held_at(location, distance) {
                    each(self, variables);
                }
            }
            Bytes::Value(distance) => {
                for (at, _, variables) in self.held_in(location, u32::MAX) {
                    let same = self.builder.compare_const(Condition::Eq, distance, at.into());
                    let (here, next) = (self.builder.block(), self.builder.block());
                    self.builder.branch(same, here, next);
                    self.builder.switch_to_sealed(here);
                    each(self, variables);
                    self.builder.jump(join);
                    self.builder.switch_to_sealed(next);
                }
            }
        }
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
    }

    /// Runs code if a pointer points to this object.
    fn where_it_points(&mut self, object: &Object, there: impl FnOnce(&mut Self)) {
        if !self.may_be_elsewhere(object) {
            return there(self);
        }
        let join = self.builder.block();
        self.non_null(object.base, join);
        there(self);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
    }

    /// Whether it is known only at run time that a pointer points to this object.
    fn may_be_elsewhere(&self, object: &Object) -> bool {
        match self.builder.ty(object.base) {
            Type::Ptr(origin) => origin.checked().is_some(),
            _ => true,
        }
    }

    /// The numbers in the slots that a pointer may point to, before the pointer is passed to the kernel.
    pub(in super::super) fn before_writes(&mut self, pointer: Pointer) -> Vec<Number> {
        let mut numbers = Vec::new();
        for object in self.live_objects(pointer) {
            let Some(HeldLocation { holder, .. }) = object.held else { continue };
            let slot = Addr::of(Base::Slot(self.pointers.holders[holder].slot));
            for (at, _, variables) in self.held_in(HeldLocation { holder, at: 0 }, u32::MAX) {
                let (addr, number) = (slot.plus(at), self.builder.variable(Type::I64));
                let none = self.builder.constant(Type::I64, 0);
                self.builder.set(number, none);
                self.where_it_points(&object, |this| {
                    let now = this.load_scalar(addr, U64);
                    this.builder.set(number, now);
                });
                let number = self.builder.get(number);
                numbers.push(Number { object, addr, number, variables });
            }
        }
        numbers
    }

    /// Marks the pointers that the kernel has overwritten as addresses.
    pub(in super::super) fn after_writes(&mut self, before: &[Number]) {
        for Number { object, addr, number, variables } in before {
            self.where_it_points(object, |this| {
                let now = this.load_scalar(*addr, U64);
                let changed = this.builder.compare(Condition::Ne, now, *number);
                let (written, join) = (this.builder.block(), this.builder.block());
                this.builder.branch(changed, written, join);
                this.builder.switch_to_sealed(written);
                let pointer = this.pointer_to_address(now);
                this.set_pointer(*variables, pointer);
                this.builder.jump(join);
                this.builder.switch_to_sealed(join);
            });
        }
    }
}

fn is_found_at_run_time(lvalue: &Prepared) -> bool {
    matches!(lvalue.root, Root::Pointer(..)) || lvalue.is_indexed()
}
