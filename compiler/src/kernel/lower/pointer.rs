//! Lowers pointers into memory: the program's own stack, global variables, entries of maps.
//!
//! A pointer is the address of an object, an offset in bytes, and the extent: the number of bytes of the
//! object that may be reached. The address never moves away from the start of the object, because the
//! verifier would lose track of it. Every access checks the offset; an access that is null or out of range
//! reads 0 and writes nothing. A variable that is set once is the pointer itself, with everything known about
//! it at compile time. Every other variable may point into objects of several extents. It has an address for
//! each extent, so that every check is against a constant. In a loop the verifier forgets numbers that differ
//! between iterations, but not addresses. The set of extents is known only after the whole function was
//! lowered: lowering repeats until it finds no new ones.
//!
//! A record of a ring buffer (`ring`) is accessed through a variable of its own. It becomes null when the
//! record is released, and with it all pointers to the record.
//!
//! A pointer stored in memory of the frame also has variables of its own (`held`).
//!
//! A pointer into a packet is an offset from the start of the packet (`packet`).

mod access;
mod address;
mod held;
mod packet;
mod passed;

pub use held::{MAX_HELD, held_pointers};

use std::collections::{BTreeMap, BTreeSet};

use super::super::mir::builder::Variable;
use super::super::mir::{BinaryOp, Op, Origin, Slot, Type, Value};
use super::context::MemberUse;
use super::memory::{Addr, BASE_ALIGN, Base};
use super::ring::Site;
use super::sink::Sink;
use super::{Home, LocalHome, Lower, Lowerer, U64, arithmetic, impossible};
use crate::hir::{self, Expr, ExprKind, KernelBuiltin, Lvalue, LvalueKind};
use crate::source::Span;
use crate::types::{IntType, StructOrigin, TypeId, TypeKind};
pub(super) use held::Number;
use held::{HeldLocation, Holder};
pub(super) use passed::Passed;

/// A number of bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bytes {
    Known(u64),
    /// A 64-bit value known at run time.
    Value(Value),
}

/// A pointer into memory, or null.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pointer {
    /// The objects that the pointer may point into: an index into [`Pointers::objects`].
    objects: usize,
    /// The offset in bytes from the start of the object.
    pub offset: Bytes,
    /// A power of two that divides the objects' addresses, and the offset unless it is known.
    align: u32,
}

/// An object that a pointer may point into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object {
    /// The object's address; null if the pointer points elsewhere. For a record or packet: 1 if the pointer
    /// points there, else 0.
    pub base: Value,
    /// The object's size in bytes; [`ADDRESS`] for memory that is not the program's. `base` is then a number,
    /// 0 if the pointer points elsewhere.
    pub extent: u64,
    /// Whether the object is in this frame or a caller's, or not published yet: no other code can access it.
    pub is_own: bool,
    /// The site of the record that the object is, if any.
    pub record: Option<Site>,
    /// The part of a packet that the object is, if any.
    pub packet: Option<Part>,
    /// The location of a stored pointer that the object is or starts at, if any.
    pub held: Option<HeldLocation>,
}

/// The extent of the pointee of a kernel or user address.
pub(super) const ADDRESS: u64 = u64::MAX;

/// A part of a packet, named by the start of its offsets. Its end is known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// From `data` to `data_end`.
    Data,
    /// From `data_meta` to `data`.
    Meta,
}

/// The variables of a pointer that changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct PointerVariables {
    /// The position in [`Pointers::variables`].
    index: usize,
    pub offset: Variable,
    /// A power of two that divides every pointer assigned to it.
    align: u32,
    /// The scope that declares the pointer.
    pub scope: usize,
}

/// The pointers of a MIR function.
#[derive(Default)]
pub(super) struct Pointers {
    /// The objects of each pointer.
    objects: Vec<Vec<Object>>,
    /// The stack slots that hold pointers.
    holders: Vec<Holder>,
    /// The position in `holders` of each of these slots.
    by_slot: BTreeMap<Slot, usize>,
    /// For each pointer that changes, one variable per kind of object; all but one of them are null.
    variables: Vec<Vec<(ObjectKind, Variable)>>,
    /// The object kinds that the previous lowering of the function found.
    known: SeenKinds,
    /// The object kinds found so far, including new ones.
    pub found: SeenKinds,
}

/// The kind of an object: its extent, whether it is the frame's own, its record, its part of a packet, and
/// its location in a slot with pointers.
type ObjectKind = (u64, bool, Option<Site>, Option<Part>, Option<HeldLocation>);

/// The possible values of a pointer that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// The kinds of objects that it may point into.
    kinds: BTreeSet<ObjectKind>,
    /// A power of two that divides every pointer assigned to it.
    align: u32,
    /// If it is stored in memory, the outermost scope that declares a pointer to that memory: it can be read until
    /// that scope ends.
    scope: usize,
}

/// The possible values of each pointer that changes.
pub(super) type SeenKinds = Vec<Seen>;

impl Object {
    fn kind(&self) -> ObjectKind {
        (self.extent, self.is_own, self.record, self.packet, self.held)
    }
}

impl Pointers {
    pub(super) fn new(known: SeenKinds) -> Pointers {
        Pointers { found: known.clone(), known, ..Pointers::default() }
    }
}

/// The home of a local of a pointer type.
#[derive(Debug, Clone, Copy)]
pub(super) enum PointerHome {
    /// The only value of a pointer that is set once.
    Fixed(Pointer),
    Variables(PointerVariables),
}

impl Lowerer<'_> {
    /// Whether values of the type are [`Pointer`]s.
    pub(super) fn is_pointer(&self, ty: TypeId) -> bool {
        matches!(self.types().kind(ty), TypeKind::Ptr(_))
            && !self.is_context(ty)
            && !self.is_kernel_pointer(ty)
    }

    /// The pointee type of a pointer type; an error for kernel structs and contexts.
    fn pointee(&self, ty: TypeId, span: Span) -> Lower<TypeId> {
        let TypeKind::Ptr(to) = *self.types().kind(ty) else {
            return impossible(span, "access through this value");
        };
        if let TypeKind::Struct(id) = self.types().kind(to)
            && matches!(self.types().struct_def(*id).origin, StructOrigin::Context | StructOrigin::Kernel)
        {
            return impossible(span, "access through a pointer to a structure of the kernel");
        }
        Ok(to)
    }

    pub(super) fn pointer_variables(&mut self, ty: TypeId, span: Span) -> Lower<PointerVariables> {
        let to = self.pointee(ty, span)?;
        let index = self.pointers.variables.len();
        if self.pointers.found.len() == index {
            let align = self.types().align(to).clamp(1, u64::from(BASE_ALIGN)) as u32;
            self.pointers.found.push(Seen { kinds: BTreeSet::new(), align, scope: self.records.depth });
        }
        let Seen { align, scope, .. } = self.pointers.found[index];
        let kinds = self.pointers.known.get(index).map(|seen| seen.kinds.clone()).unwrap_or_default();
        let variable = |kind: ObjectKind| {
            let is_flag = kind.2.is_some() || kind.3.is_some();
            let ty = match kind.0 {
                _ if is_flag => Type::I32,
                ADDRESS => Type::I64,
                _ => Type::Ptr(Origin::MemoryOrNull),
            };
            (kind, self.builder.variable(ty))
        };
        let variables = kinds.into_iter().map(variable).collect();
        self.pointers.variables.push(variables);
        Ok(PointerVariables { index, offset: self.builder.variable(Type::I64), align, scope })
    }

    pub(super) fn pointer_into(&mut self, objects: Vec<Object>, offset: Bytes, align: u32) -> Pointer {
        self.pointers.objects.push(objects);
        Pointer { objects: self.pointers.objects.len() - 1, offset, align }
    }

    pub(super) fn objects(&self, pointer: Pointer) -> Vec<Object> {
        self.pointers.objects[pointer.objects].clone()
    }

    pub(super) fn null(&mut self) -> Pointer {
        self.pointer_into(Vec::new(), Bytes::Known(0), BASE_ALIGN)
    }

    /// Splits a pointer into the one to shared objects and the one to own objects; each is null where the
    /// other one applies.
    pub(super) fn shared_and_own(&mut self, pointer: Pointer) -> [(Pointer, bool); 2] {
        [true, false].map(|shared| {
            let objects =
                self.objects(pointer).into_iter().filter(|object| object.is_own != shared).collect();
            (self.pointer_into(objects, pointer.offset, pointer.align), shared)
        })
    }

    /// Whether the address of a whole object is in a frame. The pointee of a parameter is a copy in the
    /// caller's frame.
    fn is_own(&self, base: Value) -> bool {
        !matches!(
            self.builder.ty(base),
            Type::Ptr(Origin::Entry | Origin::EntryOrNull | Origin::Global | Origin::MemoryOrNull)
        )
    }

    /// The value of an expression of a pointer type.
    pub(super) fn pointer_value(&mut self, expr: &Expr) -> Lower<Pointer> {
        let span = self.builder.set_span(expr.span);
        let pointer = self.pointer_kind(expr)?;
        self.builder.set_span(span);
        Ok(pointer)
    }

    /// The value of an expression of any pointer type, including pointers to kernel structs and contexts.
    pub(super) fn any_pointer(&mut self, expr: &Expr) -> Lower<Pointer> {
        if self.is_pointer(expr.ty) {
            return self.pointer_value(expr);
        }
        let address = self.scalar(expr)?;
        let address = self.address_number(address);
        Ok(self.pointer_to_address(address))
    }

    fn pointer_kind(&mut self, expr: &Expr) -> Lower<Pointer> {
        match &expr.kind {
            ExprKind::Const(0) => Ok(self.null()),
            ExprKind::Const(number) => {
                let address = self.builder.constant(Type::I64, *number);
                Ok(self.pointer_to_address(address))
            }
            ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. }) => match self.declare(*local)?.home
            {
                Home::Pointer(PointerHome::Fixed(pointer)) => Ok(pointer),
                Home::Pointer(PointerHome::Variables(variables)) => Ok(self.current_pointer(variables)),
                Home::Memory(base) => Ok(self.pointer_in(Addr::of(base))),
                _ => impossible(expr.span, "a pointer from here"),
            },
            ExprKind::Load(lvalue) => match (self.packet_member(lvalue), self.kernel_part(lvalue)) {
                (Some(field), _) => {
                    self.check_access(field, lvalue, MemberUse::Read)?;
                    self.packet_pointer(field.ty, expr.span)
                }
                (None, Some(part)) => {
                    let address = self.read_kernel_scalar(&part, expr.span)?;
                    Ok(self.pointer_to_address(address))
                }
                (None, None) => match self.context_object(lvalue)? {
                    Some(object) => {
                        let object = self.object_value(object);
                        let address = self.builder.value(Type::I64, Op::Address(object));
                        Ok(self.pointer_to_address(address))
                    }
                    None => {
                        let prepared = self.prepare(lvalue)?;
                        self.load_pointer(&prepared, lvalue.ty, expr.span)
                    }
                },
            },
            ExprKind::AddrOf(lvalue) => self.address_of_lvalue(lvalue),
            ExprKind::Offset(pointer, distance) => self.moved_pointer(pointer, distance),
            ExprKind::CallExtern { function, args } => self.external_pointer(*function, args, expr.span),
            ExprKind::New => self.new_object(expr.ty, expr.span),
            ExprKind::Kernel(KernelBuiltin::Reserve(ring)) => self.reserve(*ring, expr.span),
            ExprKind::Kernel(KernelBuiltin::Element { pointer, index }) => {
                let address = self.kernel_element(pointer, index)?;
                Ok(self.pointer_to_address(address))
            }
            ExprKind::Kernel(KernelBuiltin::ContainerOf(member)) => {
                let address = self.container(member)?;
                Ok(self.pointer_to_address(address))
            }
            ExprKind::Convert(from) if self.types().int(from.ty).is_some() => {
                let int = self.int(from.ty, from.span)?;
                let number = self.scalar(from)?;
                let address = arithmetic::convert(&mut self.builder, int, U64, number);
                Ok(self.pointer_to_address(address))
            }
            ExprKind::Convert(from) => self.any_pointer(from),
            ExprKind::Call { .. } | ExprKind::CallValue { .. } | ExprKind::Match(_) => {
                let variables = self.pointer_variables(expr.ty, expr.span)?;
                self.deliver(expr, Sink::Pointer(variables))?;
                Ok(self.current_pointer(variables))
            }
            _ => impossible(expr.span, "a pointer from here"),
        }
    }

    fn current_pointer(&mut self, variables: PointerVariables) -> Pointer {
        let offset = self.builder.get(variables.offset);
        let offset = self.builder.known(offset).map_or(Bytes::Value(offset), Bytes::Known);
        let bases = self.pointers.variables[variables.index].clone();
        let object = |((extent, is_own, record, packet, held), base)| {
            let base = self.builder.get(base);
            Object { base, extent, is_own, record, packet, held }
        };
        let objects = bases.into_iter().map(object).collect();
        self.pointer_into(objects, offset, variables.align)
    }

    pub(super) fn set_pointer(&mut self, variables: PointerVariables, pointer: Pointer) {
        let objects = self.objects(pointer);
        let in_memory = objects.iter().any(|object| object.packet.is_none() && object.extent != ADDRESS);
        let seen = &mut self.pointers.found[variables.index];
        if in_memory {
            seen.align = known_align(&pointer).min(seen.align);
        }
        seen.kinds.extend(objects.iter().map(Object::kind));
        let offset = self.number(pointer.offset);
        self.builder.set(variables.offset, offset);
        objects.iter().filter_map(|object| object.record).for_each(|site| {
            self.records.outlives(site, variables.scope);
        });
        objects.iter().filter_map(|object| object.held).for_each(|held| {
            self.pointers.outlive(held, variables.scope);
        });
        for (kind, variable) in self.pointers.variables[variables.index].clone() {
            let fitting: Vec<_> = objects.iter().copied().filter(|object| object.kind() == kind).collect();
            let is_flag = kind.2.is_some() || kind.3.is_some();
            let base = match kind.0 {
                _ if is_flag => self.any_of(fitting),
                ADDRESS => self.chosen_address(&fitting),
                _ => self.chosen(fitting),
            };
            let base = self.with_plain_null(base);
            self.builder.set(variable, base);
        }
    }

    /// Sets a local of a pointer type to a value.
    pub(super) fn set_pointer_local(
        &mut self,
        id: hir::LocalId,
        home: LocalHome,
        pointer: Pointer,
        span: Span,
    ) -> Lower<()> {
        match home.home {
            Home::Pointer(PointerHome::Variables(variables)) => {
                self.set_pointer(variables, pointer);
                Ok(())
            }
            Home::Pointer(PointerHome::Fixed(_)) => {
                self.set_home(id, Home::Pointer(PointerHome::Fixed(pointer)));
                Ok(())
            }
            Home::Memory(base) => self.store_pointer_in(Addr::of(base), pointer),
            _ => impossible(span, "a pointer here"),
        }
    }

    /// The address of an lvalue.
    pub(super) fn address_of_lvalue(&mut self, lvalue: &Lvalue) -> Lower<Pointer> {
        if let Some(part) = self.kernel_part(lvalue) {
            let address = self.kernel_address(&part)?;
            return Ok(self.pointer_to_address(address));
        }
        match &lvalue.kind {
            LvalueKind::Local(_) | LvalueKind::Global(_) => {
                let prepared = self.prepare(lvalue)?;
                let addr = self.resolve(&prepared)?.addr;
                let base = self.pointer(addr);
                Ok(self.whole(base, lvalue.ty))
            }
            LvalueKind::Element { map, key } => {
                let key = self.key(*map, key)?;
                let base = self.nullable_entry(*map, key);
                Ok(self.whole(base, lvalue.ty))
            }
            LvalueKind::Field { base, field } => {
                let TypeKind::Struct(id) = self.types().kind(base.ty) else {
                    return impossible(lvalue.span, "a field of this value");
                };
                let start = self.types().field_offset(*id, *field);
                let bytes = self.types().size(lvalue.ty);
                let pointer = self.address_of_lvalue(base)?;
                Ok(self.part(pointer, Bytes::Known(start), start.saturating_add(bytes), stride(start)))
            }
            LvalueKind::Index { base, index } => {
                let TypeKind::Array(element, len) = *self.types().kind(base.ty) else {
                    return impossible(lvalue.span, "the address of a part of this value");
                };
                let element_bytes = self.types().size(element);
                let pointer = self.address_of_lvalue(base)?;
                let start = self.scaled(index, element_bytes)?;
                Ok(self.part(pointer, start, element_bytes.saturating_mul(len), stride(element_bytes)))
            }
            LvalueKind::Deref(pointer) => self.pointer_value(pointer),
            LvalueKind::Config(..) | LvalueKind::Value(_) => impossible(lvalue.span, "the address of this"),
        }
    }

    /// A pointer to the whole of a value.
    fn whole(&mut self, base: Value, ty: TypeId) -> Pointer {
        let is_own = self.is_own(base);
        let held = self.held_location(Addr::of(Base::Pointer(base)));
        let object = Object { base, extent: self.types().size(ty), is_own, record: None, packet: None, held };
        self.pointer_into(vec![object], Bytes::Known(0), BASE_ALIGN)
    }

    /// A pointer to the part of an object that begins at `start`; the object ends at `end`.
    fn part(&mut self, pointer: Pointer, start: Bytes, end: u64, stride: u32) -> Pointer {
        let moved = self.moved(pointer, start, stride);
        let Bytes::Known(offset) = pointer.offset else {
            return moved;
        };
        let end = offset.saturating_add(end);
        let within = |object: Object| match object.extent {
            ADDRESS => object,
            extent => Object { extent: extent.min(end), ..object },
        };
        let objects = self.objects(pointer).into_iter().map(within).collect();
        self.pointer_into(objects, moved.offset, moved.align)
    }

    pub(super) fn moved(&mut self, pointer: Pointer, by: Bytes, stride: u32) -> Pointer {
        let offset = self.sum(pointer.offset, by);
        let align = match offset {
            Bytes::Known(_) => pointer.align,
            Bytes::Value(_) => known_align(&pointer).min(stride),
        };
        Pointer { offset, align, ..pointer }
    }

    pub(super) fn sum(&mut self, a: Bytes, b: Bytes) -> Bytes {
        match (a, b) {
            (Bytes::Known(a), Bytes::Known(b)) => Bytes::Known(a.wrapping_add(b)),
            (Bytes::Value(a), Bytes::Known(b)) => {
                Bytes::Value(self.builder.binary_const(BinaryOp::Add, a, b))
            }
            (a, b) => {
                let (a, b) = (self.number(a), self.number(b));
                Bytes::Value(self.builder.binary(BinaryOp::Add, a, b))
            }
        }
    }

    fn number(&mut self, bytes: Bytes) -> Value {
        match bytes {
            Bytes::Known(bytes) => self.builder.constant(Type::I64, bytes),
            Bytes::Value(value) => value,
        }
    }

    fn moved_pointer(&mut self, pointer: &Expr, distance: &Expr) -> Lower<Pointer> {
        let TypeKind::Ptr(to) = *self.types().kind(pointer.ty) else {
            return impossible(pointer.span, "pointer arithmetic");
        };
        let unit = self.types().size(to).max(1);
        let pointer = self.pointer_value(pointer)?;
        let by = self.scaled(distance, unit)?;
        Ok(self.moved(pointer, by, stride(unit)))
    }

    /// `count` units of `unit` bytes each, in bytes.
    fn scaled(&mut self, count: &Expr, unit: u64) -> Lower<Bytes> {
        let int = self.int(count.ty, count.span)?;
        if let ExprKind::Const(bits) = count.kind {
            return Ok(Bytes::Known((int.value(bits) as u64).wrapping_mul(unit)));
        }
        let value = self.scalar(count)?;
        let wide = arithmetic::convert(&mut self.builder, int, IntType { bits: 64, ..int }, value);
        if let Some(count) = self.builder.known(wide) {
            return Ok(Bytes::Known(count.wrapping_mul(unit)));
        }
        Ok(Bytes::Value(self.builder.binary_const(BinaryOp::Mul, wide, unit)))
    }
}

/// The power of two that divides address plus offset.
fn known_align(pointer: &Pointer) -> u32 {
    match pointer.offset {
        Bytes::Known(offset) => pointer.align.min(stride(offset)),
        Bytes::Value(_) => pointer.align,
    }
}

/// The largest power of two, up to 8, that divides a number of bytes.
fn stride(bytes: u64) -> u32 {
    1 << bytes.trailing_zeros().min(3)
}
