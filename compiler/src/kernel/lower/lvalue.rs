//! Lowers lvalues: `x`, `g`, `m[k]` and their parts.
//!
//! An lvalue is used in two steps. [`Lowerer::prepare`] evaluates keys and indices, in source order.
//! [`Lowerer::resolve`] emits the lookups and bounds checks, after everything else that the statement
//! evaluates. So no pointer into a map is held while other code runs, and every check stands right before its
//! access.

use super::super::mir::{BinaryOp, Block, Condition, Op, Type, Value};
use super::map::Key;
use super::memory::{Addr, Base};
use super::pointer::{Bytes, Pointer};
use super::{Home, Lower, Lowerer, arithmetic, impossible, int_type};
use crate::defect::narrow;
use crate::hir::{ConfigId, Expr, ExprKind, GlobalId, LocalId, Lvalue, LvalueKind, MapId};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// The longest array: an index is compared with an immediate of 32 bits.
const MAX_LEN: u64 = i32::MAX as u64;

/// The start of an lvalue.
#[derive(Clone, Copy)]
pub(super) enum Root {
    Local(LocalId),
    Global(GlobalId),
    Element(MapId, Key),
    /// A pointer, and an offset from it in bytes.
    Pointer(Pointer, u32),
    Config(ConfigId),
    /// The memory that holds an expression's value.
    Value(Addr),
}

/// One step from the root to the lvalue.
#[derive(Clone, Copy)]
enum LvalueStep {
    /// A constant offset in bytes.
    Offset(u32),
    /// An element of an array of `len`.
    Index { index: Value, len: u64, element_bytes: u64 },
}

/// An lvalue whose keys and indices have been evaluated.
#[derive(Clone)]
pub(super) struct Prepared {
    pub root: Root,
    steps: Vec<LvalueStep>,
    /// The size of the lvalue in bytes.
    bytes: u32,
}

impl Prepared {
    /// The same steps from another root.
    pub(super) fn with_root(&self, root: Root) -> Prepared {
        Prepared { root, ..self.clone() }
    }

    /// The lvalue of an element of this array.
    pub(super) fn element_at(&self, index: Value, len: u64, element_bytes: u64) -> Prepared {
        let mut element = self.clone();
        element.steps.push(LvalueStep::Index { index, len, element_bytes });
        element.bytes = narrow(element_bytes);
        element
    }

    /// The lvalue at `distance` bytes from this one.
    pub(super) fn part(&self, distance: u32) -> Prepared {
        let mut part = self.clone();
        part.steps.push(LvalueStep::Offset(distance));
        part.bytes = 8;
        part
    }

    /// The offset from the root in bytes; `None` if it depends on an index.
    pub(super) fn distance(&self) -> Option<u32> {
        self.steps.iter().try_fold(0u32, |sum, step| match step {
            LvalueStep::Offset(bytes) => sum.checked_add(*bytes),
            LvalueStep::Index { .. } => None,
        })
    }

    /// Whether the address depends on an index that is known only at run time.
    pub(super) fn is_indexed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, LvalueStep::Index { .. }))
    }

    /// The map and key if the lvalue is a whole `m[k]`.
    pub(super) fn element(&self) -> Option<(MapId, Key)> {
        match (self.root, self.steps.as_slice()) {
            (Root::Element(map, key), []) => Some((map, key)),
            _ => None,
        }
    }
}

/// An address that is valid in the current block, and the block that control went to if the lvalue does not
/// exist.
pub(super) struct Access {
    pub addr: Addr,
    pub miss: Option<Block>,
}

impl Lowerer<'_> {
    /// The variable of a scalar local; `None` if the lvalue is something else.
    pub(super) fn scalar_local(&mut self, lvalue: &Lvalue) -> Lower<Option<super::LocalHome>> {
        let LvalueKind::Local(id) = lvalue.kind else {
            return Ok(None);
        };
        let home = self.declare(id)?;
        Ok(matches!(home.home, Home::Scalar(_) | Home::Fixed(_)).then_some(home))
    }

    /// Evaluates the keys and indices of an lvalue.
    pub(super) fn prepare(&mut self, lvalue: &Lvalue) -> Lower<Prepared> {
        if let Some(part) = self.kernel_part(lvalue) {
            let addr = self.kernel_copy(&part, lvalue.span)?;
            return Ok(Prepared { root: Root::Value(addr), steps: Vec::new(), bytes: 0 });
        }
        let bytes = narrow(self.types().size(lvalue.ty));
        let whole = |root| Prepared { root, steps: Vec::new(), bytes };
        match &lvalue.kind {
            LvalueKind::Local(id) => Ok(whole(Root::Local(*id))),
            LvalueKind::Global(id) => Ok(whole(Root::Global(*id))),
            LvalueKind::Element { map, key } => Ok(whole(Root::Element(*map, self.key(*map, key)?))),
            LvalueKind::Deref(pointer) => {
                let (pointer, bytes) = self.target(pointer)?;
                Ok(whole(Root::Pointer(pointer, bytes)))
            }
            LvalueKind::Config(id, field) => {
                let TypeKind::Struct(fields) = self.types().kind(self.hir.configs[*id].ty) else {
                    return impossible(lvalue.span, "a field of this value");
                };
                let offset = narrow(self.types().field_offset(*fields, *field));
                Ok(Prepared { steps: vec![LvalueStep::Offset(offset)], ..whole(Root::Config(*id)) })
            }
            LvalueKind::Field { base, field } => {
                let TypeKind::Struct(id) = self.types().kind(base.ty) else {
                    return impossible(lvalue.span, "a field of this value");
                };
                let offset = narrow(self.types().field_offset(*id, *field));
                let mut prepared = self.prepare(base)?;
                prepared.steps.push(LvalueStep::Offset(offset));
                Ok(Prepared { bytes, ..prepared })
            }
            LvalueKind::Index { base, index } => {
                let mut prepared = self.prepare(base)?;
                let step = self.index(base.ty, index, lvalue.span)?;
                prepared.steps.push(step);
                Ok(Prepared { bytes, ..prepared })
            }
            LvalueKind::Value(value) => {
                let addr = self.temporary(value)?;
                Ok(whole(Root::Value(addr)))
            }
        }
    }

    fn index(&mut self, base: TypeId, index: &Expr, span: Span) -> Lower<LvalueStep> {
        let (element_bytes, len) = match self.types().kind(base) {
            TypeKind::Array(element, len) => (self.types().size(*element), *len),
            TypeKind::Str(size) => (1, u64::from(*size)),
            _ => return impossible(span, "an index into this value"),
        };
        if len > MAX_LEN {
            return impossible(span, "an array of this length");
        }
        let int = self.int(index.ty, index.span)?;
        if let ExprKind::Const(bits) = index.kind {
            let constant = u64::try_from(int.value(bits)).ok().filter(|constant| *constant < len);
            let offset = constant.and_then(|constant| u32::try_from(constant * element_bytes).ok());
            return offset
                .map_or_else(|| impossible(span, "an index out of range"), |at| Ok(LvalueStep::Offset(at)));
        }
        // A negative index becomes a large unsigned one, which is out of range like any other.
        let value = self.scalar(index)?;
        let index = arithmetic::convert(&mut self.builder, int, IntType { bits: 64, ..int }, value);
        Ok(LvalueStep::Index { index, len, element_bytes })
    }

    /// Emits the lookups and checks. Control continues where the lvalue exists.
    pub(super) fn resolve(&mut self, prepared: &Prepared) -> Lower<Access> {
        let mut miss = None;
        let mut addr = match prepared.root {
            Root::Local(id) => self.local_addr(id)?,
            Root::Global(id) => Addr::of(Base::Global(id)),
            Root::Value(addr) => addr,
            Root::Pointer(pointer, _) if self.may_be_packet(pointer) => {
                let block = *miss.get_or_insert_with(|| self.builder.block());
                let addr = self.packet_addr(pointer, prepared, block);
                return Ok(Access { addr, miss });
            }
            Root::Pointer(pointer, bytes) => {
                let block = *miss.get_or_insert_with(|| self.builder.block());
                self.dereference(pointer, bytes, block)
            }
            Root::Config(config) => {
                let block = *miss.get_or_insert_with(|| self.builder.block());
                Addr::of(Base::Pointer(self.lookup_config(config, block)))
            }
            Root::Element(map, key) => {
                let block = *miss.get_or_insert_with(|| self.builder.block());
                Addr::of(Base::Pointer(self.lookup(map, key, block)))
            }
        };
        for step in &prepared.steps {
            addr = match step {
                LvalueStep::Offset(bytes) => addr.plus(*bytes),
                LvalueStep::Index { index, len, element_bytes } => {
                    let block = *miss.get_or_insert_with(|| self.builder.block());
                    self.checked_element(addr, *index, *len, *element_bytes, block)
                }
            };
        }
        Ok(Access { addr, miss })
    }

    /// The offset of an lvalue in bytes, if its root is at offset `start`; control goes to `miss` if an index
    /// is out of range.
    pub(super) fn distance_within(&mut self, prepared: &Prepared, start: Bytes, miss: Block) -> Bytes {
        let mut sum = start;
        for step in &prepared.steps {
            let by = match *step {
                LvalueStep::Offset(bytes) => Bytes::Known(bytes.into()),
                LvalueStep::Index { index, len, element_bytes } => {
                    let index = self.below(index, len, miss);
                    Bytes::Value(self.builder.binary_const(BinaryOp::Mul, index, element_bytes))
                }
            };
            sum = self.sum(sum, by);
        }
        sum
    }

    /// In a packet only the accessed bytes must exist: the address is computed first and checked once.
    fn packet_addr(&mut self, pointer: Pointer, prepared: &Prepared, miss: Block) -> Addr {
        let mut pointer = pointer;
        for step in &prepared.steps {
            pointer = match *step {
                LvalueStep::Offset(bytes) => self.moved(pointer, Bytes::Known(bytes.into()), 1),
                LvalueStep::Index { index, len, element_bytes } => {
                    let index = self.below(index, len, miss);
                    let start = self.builder.binary_const(BinaryOp::Mul, index, element_bytes);
                    self.moved(pointer, Bytes::Value(start), 1)
                }
            };
        }
        self.dereference(pointer, prepared.bytes, miss)
    }

    fn local_addr(&mut self, id: LocalId) -> Lower<Addr> {
        let base = match self.declare(id)?.home {
            Home::Memory(base) => base,
            Home::Alias(alias) => Base::Pointer(self.builder.get(alias.pointer)),
            Home::Scalar(_) | Home::Fixed(_) | Home::Pointer(_) => {
                return impossible(self.active.source.locals[id].span, "a part of this value");
            }
        };
        Ok(Addr::of(base))
    }

    /// Jumps to `miss` unless the index is in range.
    pub(super) fn checked_element(
        &mut self,
        addr: Addr,
        index: Value,
        len: u64,
        element_bytes: u64,
        miss: Block,
    ) -> Addr {
        let in_range = self.builder.compare_const(Condition::Lt, index, len);
        let found = self.builder.block();
        self.builder.branch(in_range, found, miss);
        self.builder.switch_to_sealed(found);
        let checked = self.builder.value(Type::I64, Op::Below { value: index, bound: len });
        let bytes = self.builder.binary_const(BinaryOp::Mul, checked, element_bytes);
        let start = self.pointer(addr);
        let element = self.builder.value(self.builder.ty(start), Op::PtrAdd(start, bytes));
        let stride = 1u32 << element_bytes.trailing_zeros().min(3);
        let known = 1u32 << addr.offset.trailing_zeros().min(3);
        Addr { base: Base::Pointer(element), offset: 0, align: addr.align.min(stride).min(known) }
    }

    /// Joins the path of an access with its miss path, which runs `at_miss`.
    pub(super) fn join_miss(
        &mut self,
        miss: Option<Block>,
        at_miss: impl FnOnce(&mut Self) -> Lower<()>,
    ) -> Lower<()> {
        let Some(miss) = miss else {
            return Ok(());
        };
        let join = self.builder.block();
        self.builder.jump(join);
        self.builder.switch_to_sealed(miss);
        at_miss(self)?;
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// Reads the scalar of an lvalue; zero if the lvalue does not exist.
    pub(super) fn read_scalar(&mut self, lvalue: &Lvalue) -> Lower<Value> {
        if self.is_context(lvalue.ty) && !matches!(lvalue.kind, LvalueKind::Local(_)) {
            // There is only one context: a context pointer in a struct is the same.
            self.prepare(lvalue)?;
            return match self.given_context {
                Some(context) => Ok(context),
                None => impossible(lvalue.span, "a context where none was given"),
            };
        }
        if let Some(home) = self.scalar_local(lvalue)? {
            return match home.home {
                Home::Scalar(variable) => Ok(self.builder.get(variable)),
                Home::Fixed(value) => Ok(value),
                _ => impossible(lvalue.span, "this value"),
            };
        }
        if let Some(member) = self.context_lvalue(lvalue) {
            return self.read_context(member, lvalue);
        }
        if let Some(part) = self.kernel_part(lvalue) {
            return self.read_kernel_scalar(&part, lvalue.span);
        }
        if let Some(field) = self.reading_field(lvalue)? {
            return Ok(field);
        }
        if let Some(register) = self.read_register(lvalue)? {
            return Ok(register);
        }
        let int = self.int(lvalue.ty, lvalue.span)?;
        let prepared = self.prepare(lvalue)?;
        self.load_prepared(&prepared, int)
    }

    pub(super) fn load_prepared(&mut self, prepared: &Prepared, int: IntType) -> Lower<Value> {
        let mark = self.builder.mark_stack();
        let access = self.resolve(prepared)?;
        let value = self.load_scalar(access.addr, int);
        self.builder.release_stack(mark);
        let Some(miss) = access.miss else {
            return Ok(value);
        };
        Ok(self.or_zero(value, int, miss))
    }

    /// The value, or 0 on the path through `miss`.
    pub(super) fn or_zero(&mut self, value: Value, int: IntType, miss: Block) -> Value {
        let join = self.builder.block();
        let result = self.builder.param(join, int_type(int));
        self.builder.jump_with(join, value);
        self.builder.switch_to_sealed(miss);
        let zero = self.builder.constant(int_type(int), 0);
        self.builder.jump_with(join, zero);
        self.builder.switch_to_sealed(join);
        result
    }

    /// Copies the aggregate of an lvalue to an address; zeros if the lvalue does not exist.
    pub(super) fn read_aggregate(&mut self, lvalue: &Lvalue, to: Addr) -> Lower<()> {
        if let Some(member) = self.context_lvalue(lvalue) {
            return self.read_context_array(member, lvalue, to);
        }
        if let Some(part) = self.whole_kernel_struct(lvalue).or_else(|| self.kernel_part(lvalue)) {
            return self.read_kernel_bytes(&part, to, lvalue.span);
        }
        let bytes = self.size(lvalue.ty, lvalue.span)?;
        let prepared = self.prepare(lvalue)?;
        self.copy_prepared(&prepared, to, bytes)
    }

    fn copy_prepared(&mut self, prepared: &Prepared, to: Addr, bytes: u32) -> Lower<()> {
        let mark = self.builder.mark_stack();
        let access = self.resolve(prepared)?;
        self.copy(to, access.addr, bytes);
        self.builder.release_stack(mark);
        self.join_miss(access.miss, |this| {
            this.zero(to, bytes);
            Ok(())
        })?;
        self.pointers_from(prepared, to, bytes, self.active.source.span)
    }

    /// Sets a local to the value of an lvalue of its type.
    pub(super) fn load_local(&mut self, local: LocalId, from: &Prepared, span: Span) -> Lower<()> {
        let home = self.declare(local)?;
        let ty = self.active.source.locals[local].ty;
        let bytes = self.size(ty, span)?;
        match home.home {
            Home::Scalar(variable) => {
                let int = self.int(ty, span)?;
                let value = self.load_prepared(from, int)?;
                self.builder.set(variable, value);
            }
            Home::Fixed(_) => return impossible(span, "an array of these"),
            Home::Pointer(_) => {
                let pointer = self.load_pointer(from, ty, span)?;
                self.set_pointer_local(local, home, pointer, span)?;
            }
            Home::Memory(own) => self.copy_prepared(from, Addr::of(own), bytes)?,
            Home::Alias(alias) => {
                self.copy_prepared(from, Addr::of(alias.own), bytes)?;
                self.unbind(alias);
            }
        }
        self.set_present(home, true);
        Ok(())
    }
}
