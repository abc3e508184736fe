//! Objects that a program received, which the verifier lets it read by plain loads, and pointers that are reached from
//! there.

use std::sync::Arc;

use super::super::super::mir::core::CoreField;
use super::super::super::mir::{Block, Op, Origin, Size, Type, Value};
use super::super::storage::KernelObject;
use super::super::{Lowerer, U64, arithmetic};
use super::KernelPart;
use crate::hir::{Expr, ExprKind, LocalId, LvalueKind};
use crate::types::{IntType, TypeKind};

impl Lowerer<'_> {
    /// Keeps a parameter as an object as well as a number, if it is never assigned and its members can be
    /// read by plain loads.
    pub(in super::super) fn keep_given(&mut self, local: LocalId, context: Value, offset: i16) {
        if self.has_one_value(local) && self.active.source.objects.contains(&local) {
            let object = self.object_value(KernelObject::Word(context, offset));
            self.active.given.insert(local, object);
        }
    }

    /// Whether a local is set once, and nobody else can write to it.
    fn has_one_value(&self, local: LocalId) -> bool {
        self.active.fixed.contains(&local) && !self.active.exposed.contains(&local)
    }

    /// Reads a scalar part of an object that the program received: one load, or 0 if the pointer is null.
    ///
    /// Returns `None` in loops: a loop body that is outlined may receive the pointer as a number.
    pub(super) fn read_given(&mut self, part: &KernelPart<'_>, int: IntType) -> Option<Value> {
        if !part.is_typed() || !self.loops.is_empty() {
            return None;
        }
        let path = self.given_path(part.pointer)?;
        let miss = self.builder.block();
        let base = self.follow(path, miss);
        let value = if part.is_pointer {
            let pointer = self.load_object(base, part.field.clone());
            let address = self.builder.value(Type::I64, Op::Address(pointer));
            arithmetic::convert(&mut self.builder, U64, int, address)
        } else {
            self.record_scalar(base, part.field.clone(), part.real, int)
        };
        Some(self.or_zero(value, int, miss))
    }

    /// The object that the program received, and the members by which a pointer is reached from there, each of them a
    /// pointer to a struct that is in the kernel's memory only: the verifier lets loads follow those, and one of a user's
    /// address would be 0.
    fn given_path(&self, pointer: &Expr) -> Option<(Value, Vec<CoreField>)> {
        let ExprKind::Load(lvalue) = &pointer.kind else { return None };
        if let LvalueKind::Local(local) = lvalue.kind {
            return Some((*self.active.given.get(&local)?, Vec::new()));
        }
        let part = self.kernel_part(lvalue)?;
        let TypeKind::Ptr(to) = *self.types().kind(part.ty) else { return None };
        let is_internal = self.hir.kernel_structs.is_internal(self.types().kernel_struct(to)?);
        if !part.is_typed() || !part.is_pointer || !is_internal {
            return None;
        }
        let (object, mut members) = self.given_path(part.pointer)?;
        members.push(part.field);
        Some((object, members))
    }

    /// Keeps a local as an object as well as a number, if it is set once, to a pointer that is reached from an object that
    /// the program received. Returns the number.
    pub(in super::super) fn keep_path(&mut self, local: LocalId, init: &Expr) -> Option<Value> {
        if !self.has_one_value(local) || self.keeps_objects(local) || !self.loops.is_empty() {
            return None;
        }
        let (object, mut members) = self.given_path(init)?;
        let ty = Type::Ptr(Origin::ObjectOrNull);
        let pointer = match members.pop() {
            None => object,
            Some(last) => {
                let (miss, join) = (self.builder.block(), self.builder.block());
                let result = self.builder.param(join, ty);
                let base = self.follow((object, members), miss);
                let pointer = self.load_object(base, last);
                self.builder.jump_with(join, pointer);
                self.builder.switch_to_sealed(miss);
                let null = self.builder.constant(ty, 0);
                self.builder.jump_with(join, null);
                self.builder.switch_to_sealed(join);
                result
            }
        };
        self.active.given.insert(local, pointer);
        Some(self.builder.value(Type::I64, Op::Address(pointer)))
    }

    /// Loads one pointer after another. Control goes to `miss` where one is null.
    fn follow(&mut self, (object, members): (Value, Vec<CoreField>), miss: Block) -> Value {
        members.into_iter().fold(self.non_null(object, miss), |base, member| {
            let pointer = self.load_object(base, member);
            self.non_null(pointer, miss)
        })
    }

    fn load_object(&mut self, base: Value, field: CoreField) -> Value {
        let ty = Type::Ptr(Origin::ObjectOrNull);
        self.builder.value(ty, Op::LoadField { size: Size::DW, base, field: Arc::new(field) })
    }
}
