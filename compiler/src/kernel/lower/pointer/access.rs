//! Lowers accesses through pointers, null tests and comparisons.

use super::super::super::mir::{BinaryOp, Block, Condition, Op, Origin, Type, Value};
use super::super::memory::{Addr, Base};
use super::super::{Lower, Lowerer, U64, arithmetic};
use super::{ADDRESS, Bytes, Object, Pointer, known_align};
use crate::hir::{self, Expr};
use crate::types::IntType;

const I64: IntType = IntType { bits: 64, signed: true };

/// The operands of a comparison of two pointers.
enum Apart {
    /// The signed distance in bytes from the second to the first, compared with 0.
    Distance(Value),
    /// Both pointers as numbers.
    Addresses(Value, Value),
}

impl Lowerer<'_> {
    /// The address of the `bytes` bytes at a pointer; control goes to `miss` if they do not exist.
    pub(in super::super) fn dereference(&mut self, pointer: Pointer, bytes: u32, miss: Block) -> Addr {
        let mut objects = self.live_objects(pointer);
        let Some(last) = objects.pop() else {
            return self.nothing(miss);
        };
        if objects.is_empty() {
            return self.inside(pointer, last, bytes, miss);
        }
        let align = known_align(&pointer);
        let join = self.builder.block();
        let result = self.builder.param(join, Type::Ptr(Origin::Memory));
        for object in objects {
            let next = self.builder.block();
            let found = self.builder.block();
            let elsewhere = self.is_elsewhere(object);
            self.builder.branch(elsewhere, next, found);
            self.builder.switch_to_sealed(found);
            self.inside_or(pointer, object, bytes, miss, join);
            self.builder.switch_to_sealed(next);
        }
        self.inside_or(pointer, last, bytes, miss, join);
        self.builder.switch_to_sealed(join);
        Addr { base: Base::Pointer(result), offset: 0, align }
    }

    fn inside_or(&mut self, pointer: Pointer, object: Object, bytes: u32, miss: Block, join: Block) {
        let addr = self.inside(pointer, object, bytes, miss);
        let addr = self.pointer(addr);
        self.builder.jump_with(join, addr);
    }

    /// The address of `bytes` bytes in an object.
    fn inside(&mut self, pointer: Pointer, object: Object, bytes: u32, miss: Block) -> Addr {
        if let Some(part) = object.packet {
            return self.inside_packet(pointer.offset, object.base, part, bytes, miss);
        }
        if object.extent == ADDRESS {
            let there = self.builder.compare_const(Condition::Ne, object.base, 0);
            self.require(there, miss);
            return self.inside_address(pointer.offset, object.base, bytes);
        }
        let base = self.non_null(object.base, miss);
        let Some(last) = object.extent.checked_sub(u64::from(bytes)) else {
            return self.nothing(miss);
        };
        let offset = match pointer.offset {
            Bytes::Known(offset) => {
                return match u32::try_from(offset) {
                    Ok(at) if offset <= last => {
                        Addr { base: Base::Pointer(base), offset: at, align: pointer.align }
                    }
                    _ => self.nothing(miss),
                };
            }
            Bytes::Value(offset) => self.below(offset, last + 1, miss),
        };
        // The verifier may not know the alignment of the offset.
        let align = known_align(&pointer);
        let offset = match align {
            1 => offset,
            _ => self.builder.binary_const(BinaryOp::And, offset, !(u64::from(align) - 1)),
        };
        let moved = self.builder.value(self.builder.ty(base), Op::PtrAdd(base, offset));
        Addr { base: Base::Pointer(moved), offset: 0, align }
    }

    /// An address for an access that is never reached.
    pub(super) fn nothing(&mut self, miss: Block) -> Addr {
        let never = self.builder.constant(Type::I32, 0);
        let dead = self.builder.block();
        self.builder.branch(never, dead, miss);
        self.builder.switch_to_sealed(dead);
        let base = self.builder.constant(Type::Ptr(Origin::Memory), 0);
        Addr { base: Base::Pointer(base), offset: 0, align: 1 }
    }

    pub(in super::super) fn below(&mut self, value: Value, bound: u64, miss: Block) -> Value {
        let inside = self.builder.compare_const(Condition::Lt, value, bound);
        self.require(inside, miss);
        self.builder.value(Type::I64, Op::Below { value, bound })
    }

    pub(in super::super) fn require(&mut self, holds: Value, miss: Block) {
        let next = self.builder.block();
        self.builder.branch(holds, next, miss);
        self.builder.switch_to_sealed(next);
    }

    /// The address of the object; control goes to `miss` if it is null.
    pub(in super::super) fn non_null(&mut self, base: Value, miss: Block) -> Value {
        let Type::Ptr(origin) = self.builder.ty(base) else {
            return base;
        };
        let Some(checked) = origin.checked() else {
            return base;
        };
        let null = self.builder.value(Type::I32, Op::IsNull(base));
        let found = self.builder.block();
        self.builder.branch(null, miss, found);
        self.builder.switch_to_sealed(found);
        self.builder.value(Type::Ptr(checked), Op::NonNull(base))
    }

    /// Whether a pointer is null: 1 or 0.
    pub(in super::super) fn is_null(&mut self, pointer: Pointer) -> Value {
        let (packets, memory) = self.packets_and_memory(pointer);
        let base = self.chosen(memory);
        let mut null = self.is_null_base(base);
        let addresses = self.addresses(pointer);
        if !addresses.is_empty() {
            let address = self.chosen_address(&addresses);
            let none = self.builder.compare_const(Condition::Eq, address, 0);
            let elsewhere = self.builder.value(Type::I32, Op::IsNull(base));
            null = self.builder.binary(BinaryOp::And, elsewhere, none);
        }
        if packets.is_empty() {
            return null;
        }
        let there = self.any_of(packets);
        let elsewhere = self.builder.compare_const(Condition::Eq, there, 0);
        self.builder.binary(BinaryOp::And, null, elsewhere)
    }

    /// Whether an expression is null: 1 or 0. A context never is.
    pub(in super::super) fn is_no_pointer(&mut self, pointer: &Expr) -> Lower<Value> {
        if self.is_context(pointer.ty) {
            return Ok(self.builder.constant(Type::I32, 0));
        }
        let pointer = self.any_pointer(pointer)?;
        Ok(self.is_null(pointer))
    }

    /// Whether a pointer does not point to this object: 1 or 0.
    fn is_elsewhere(&mut self, object: Object) -> Value {
        match object.packet {
            Some(_) => self.builder.compare_const(Condition::Eq, object.base, 0),
            None if object.extent == ADDRESS => self.builder.compare_const(Condition::Eq, object.base, 0),
            None => self.builder.value(Type::I32, Op::IsNull(object.base)),
        }
    }

    fn is_null_base(&mut self, base: Value) -> Value {
        match self.builder.ty(base) {
            Type::Ptr(origin) if origin.checked().is_some() => {
                self.builder.value(Type::I32, Op::IsNull(base))
            }
            _ => self.builder.constant(Type::I32, 0),
        }
    }

    /// Replaces the null of a map lookup by a plain null pointer. The verifier distinguishes the two, and
    /// forgets the number that the null is where they merge in a loop.
    pub(super) fn with_plain_null(&mut self, base: Value) -> Value {
        if self.builder.ty(base) != Type::Ptr(Origin::EntryOrNull) {
            return base;
        }
        let (miss, join) = (self.builder.block(), self.builder.block());
        let result = self.builder.param(join, Type::Ptr(Origin::MemoryOrNull));
        let entry = self.non_null(base, miss);
        self.builder.jump_with(join, entry);
        self.builder.switch_to_sealed(miss);
        self.builder.jump_with(join, self.null);
        self.builder.switch_to_sealed(join);
        result
    }

    /// The address of the one object that is not null, or null.
    pub(super) fn chosen(&mut self, objects: Vec<Object>) -> Value {
        let mut objects = objects.into_iter();
        let Some(first) = objects.next() else {
            return self.null;
        };
        objects.fold(first.base, |chosen, object| {
            let (other, join) = (self.builder.block(), self.builder.block());
            let this = self.builder.block();
            let result = self.builder.param(join, Type::Ptr(Origin::MemoryOrNull));
            let elsewhere = self.builder.value(Type::I32, Op::IsNull(chosen));
            self.builder.branch(elsewhere, other, this);
            self.builder.switch_to_sealed(other);
            self.builder.jump_with(join, object.base);
            self.builder.switch_to_sealed(this);
            self.builder.jump_with(join, chosen);
            self.builder.switch_to_sealed(join);
            result
        })
    }

    /// The distance in bytes from `b` to `a`. If one is null, it counts as 0 and a non-null one as 1; only
    /// comparisons can get there.
    fn difference(&mut self, a: Pointer, b: Pointer) -> Value {
        let (a_offset, b_offset) = (self.number(a.offset), self.number(b.offset));
        let offsets = self.builder.binary(BinaryOp::Sub, a_offset, b_offset);
        let (a_objects, b_objects) = (self.live_objects(a), self.live_objects(b));
        let (a_base, b_base) = (self.chosen(a_objects), self.chosen(b_objects));
        if a_base == b_base {
            return offsets;
        }
        let (a_null, b_null) = (self.is_null_base(a_base), self.is_null_base(b_base));
        let any = self.builder.binary(BinaryOp::Or, a_null, b_null);
        let [some, none, join] = std::array::from_fn(|_| self.builder.block());
        let result = self.builder.param(join, Type::I64);
        self.builder.branch(any, some, none);
        self.builder.switch_to_sealed(some);
        let ordered = self.builder.binary(BinaryOp::Sub, b_null, a_null);
        let ordered = self.builder.value(Type::I64, Op::SignExtend(ordered));
        self.builder.jump_with(join, ordered);
        self.builder.switch_to_sealed(none);
        let never = self.builder.block();
        let (a_base, b_base) = (self.non_null(a_base, never), self.non_null(b_base, never));
        let bases = self.builder.value(Type::I64, Op::PtrDiff(a_base, b_base));
        let difference = self.builder.binary(BinaryOp::Add, bases, offsets);
        self.builder.jump_with(join, difference);
        self.builder.switch_to_sealed(never);
        let zero = self.builder.constant(Type::I64, 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        result
    }

    /// `a - b`, in bytes.
    pub(in super::super) fn distance(&mut self, a: &Expr, b: &Expr) -> Lower<Value> {
        match self.apart(a, b)? {
            Apart::Distance(distance) => Ok(distance),
            Apart::Addresses(a, b) => Ok(self.builder.binary(BinaryOp::Sub, a, b)),
        }
    }

    /// A comparison of two pointers.
    pub(in super::super) fn compare_pointers(
        &mut self,
        op: hir::BinaryOp,
        a: &Expr,
        b: &Expr,
    ) -> Lower<Value> {
        match self.apart(a, b)? {
            Apart::Distance(distance) => {
                let zero = self.builder.constant(Type::I64, 0);
                Ok(arithmetic::binary(&mut self.builder, op, I64, distance, zero))
            }
            Apart::Addresses(a, b) => Ok(arithmetic::binary(&mut self.builder, op, U64, a, b)),
        }
    }

    /// The operands of a comparison. Pointers become numbers only if they point to memory of several kinds:
    /// for others the verifier permits the subtraction.
    fn apart(&mut self, a: &Expr, b: &Expr) -> Lower<Apart> {
        let (a, b) = (self.any_pointer(a)?, self.any_pointer(b)?);
        let objects: Vec<Object> = [a, b].iter().flat_map(|pointer| self.objects(*pointer)).collect();
        let address = objects.iter().any(|object| object.extent == ADDRESS);
        let packet = objects.iter().any(|object| object.packet.is_some());
        let memory = objects.iter().any(|object| object.extent != ADDRESS && object.packet.is_none());
        Ok(match (address, packet, memory) {
            (false, false, _) => Apart::Distance(self.difference(a, b)),
            (false, true, false) => Apart::Distance(self.packet_difference(a, b)?),
            _ => Apart::Addresses(self.address_value(a)?, self.address_value(b)?),
        })
    }

    /// Evaluates a pointer and the size of its pointee for [`Lowerer::dereference`].
    pub(in super::super) fn target(&mut self, pointer: &Expr) -> Lower<(Pointer, u32)> {
        let to = self.pointee(pointer.ty, pointer.span)?;
        let bytes = self.size(to, pointer.span)?;
        Ok((self.pointer_value(pointer)?, bytes))
    }
}
