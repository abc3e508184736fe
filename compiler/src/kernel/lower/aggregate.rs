//! Strings, arrays and structs: values that are written to an address.

use super::super::mir::{BinaryOp, Callee, Condition, Helper, Op, Type, Value};
use super::memory::{Addr, Base, access_type};
use super::{Lower, Lowerer, not_yet};
use crate::hir::{Expr, ExprKind, KernelBuiltin, PlaceKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Something whose bytes can be compared.
enum Bytes<'e> {
    Constant(&'e [u8]),
    At(Addr),
}

/// Bytes of the name of a task. Source: include/linux/sched.h, `TASK_COMM_LEN`, v6.12.
const COMM_BYTES: u64 = 16;

impl Lowerer<'_> {
    /// Writes the value of an expression to an address. The bytes between fields become zero.
    pub(super) fn lower_into(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        let span = self.builder.set_span(expr.span);
        if self.is_scalar(expr.ty) {
            let int = self.int(expr.ty, expr.span)?;
            let value = self.scalar(expr)?;
            self.store_scalar(to, int, value);
        } else {
            self.aggregate_into(expr, to)?;
        }
        self.builder.set_span(span);
        Ok(())
    }

    fn aggregate_into(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        match &expr.kind {
            ExprKind::Load(place) => self.read_aggregate(place, to),
            ExprKind::Bytes(bytes) => self.bytes_into(bytes, expr, to),
            ExprKind::Struct(values) => self.struct_into(values, expr, to),
            ExprKind::Array(values) => self.array_into(values, expr, to),
            ExprKind::Repeat(value) => self.repeat_into(value, expr, to),
            ExprKind::Convert(from) => self.string_into(from, expr, to),
            ExprKind::Call { func, args } => {
                self.call(*func, args, Some(to), expr.span)?;
                Ok(())
            }
            ExprKind::Kernel(KernelBuiltin::Comm) => {
                self.comm_into(to);
                Ok(())
            }
            _ => not_yet(expr.span, "this value in the kernel half is"),
        }
    }

    /// The value of an expression in a slot of its own.
    pub(super) fn temporary(&mut self, expr: &Expr) -> Lower<Addr> {
        let bytes = self.size(expr.ty, expr.span)?;
        let addr = Addr::of(Base::Slot(self.builder.slot(bytes)));
        self.lower_into(expr, addr)?;
        Ok(addr)
    }

    /// The address of an expression's value: where it is, if that is sure to be there, else a copy.
    fn address_of(&mut self, expr: &Expr) -> Lower<Addr> {
        if let ExprKind::Load(place) = &expr.kind
            && let PlaceKind::Local(_) | PlaceKind::Global(_) = place.kind
        {
            let prepared = self.prepare(place)?;
            return Ok(self.resolve(&prepared)?.addr);
        }
        self.temporary(expr)
    }

    fn bytes_into(&mut self, bytes: &[u8], expr: &Expr, to: Addr) -> Lower<()> {
        let size = self.size(expr.ty, expr.span)?;
        for (at, width) in Self::chunks(&[to], size) {
            let bits = constant_chunk(bytes, at, width.bytes());
            let value = self.builder.constant(access_type(width), bits);
            self.store(to.plus(at), width, value);
        }
        Ok(())
    }

    fn struct_into(&mut self, values: &[Expr], expr: &Expr, to: Addr) -> Lower<()> {
        let TypeKind::Struct(id) = self.types().kind(expr.ty) else {
            return not_yet(expr.span, "this value is");
        };
        let size = self.size(expr.ty, expr.span)?;
        if self.has_padding(expr.ty) {
            self.zero(to, size, expr.span)?;
        }
        for (index, value) in values.iter().enumerate() {
            let offset = u32::try_from(self.types().field_offset(*id, index)).unwrap_or(u32::MAX);
            self.lower_into(value, to.plus(offset))?;
        }
        Ok(())
    }

    /// Whether a struct has bytes that belong to no field. Those inside a field are the field's business.
    fn has_padding(&self, ty: TypeId) -> bool {
        let TypeKind::Struct(id) = self.types().kind(ty) else {
            return false;
        };
        let fields = &self.types().struct_def(*id).fields;
        let used: u64 = fields.iter().map(|field| self.types().size(field.ty)).sum();
        used != self.types().size(ty)
    }

    fn array_into(&mut self, values: &[Expr], expr: &Expr, to: Addr) -> Lower<()> {
        let element = self.element_size(expr)?;
        let size = self.size(expr.ty, expr.span)?;
        let mut at = 0;
        for value in values {
            self.lower_into(value, to.plus(at))?;
            at += element;
        }
        self.zero(to.plus(at), size - at, expr.span)
    }

    fn element_size(&self, expr: &Expr) -> Lower<u32> {
        match self.types().kind(expr.ty) {
            TypeKind::Array(element, _) => self.size(*element, expr.span),
            _ => not_yet(expr.span, "this value is"),
        }
    }

    fn repeat_into(&mut self, value: &Expr, expr: &Expr, to: Addr) -> Lower<()> {
        let element = self.element_size(expr)?;
        let size = self.size(expr.ty, expr.span)?;
        if let ExprKind::Const(0) = value.kind {
            return self.zero(to, size, expr.span);
        }
        self.lower_into(value, to)?;
        let mut at = element;
        while element > 0 && at < size {
            let bytes = at.min(size - at);
            self.copy(to.plus(at), to, bytes, expr.span)?;
            at += bytes;
        }
        Ok(())
    }

    /// A string as one of another size: cut so that the last byte stays zero, or with more zeros.
    fn string_into(&mut self, from: &Expr, expr: &Expr, to: Addr) -> Lower<()> {
        let (TypeKind::Str(from_size), TypeKind::Str(size)) =
            (self.types().kind(from.ty), self.types().kind(expr.ty))
        else {
            return not_yet(expr.span, "this conversion in the kernel half is");
        };
        let kept = (*from_size).min(size.saturating_sub(1));
        if let ExprKind::Bytes(bytes) = &from.kind {
            let cut = bytes.get(..kept as usize).unwrap_or(bytes);
            return self.bytes_into(cut, expr, to);
        }
        let source = self.address_of(from)?;
        self.copy(to, source, kept, expr.span)?;
        self.zero(to.plus(kept), size - kept, expr.span)
    }

    fn comm_into(&mut self, to: Addr) {
        let buffer = self.pointer(to);
        let size = self.builder.constant(Type::I64, COMM_BYTES);
        self.builder.call(Type::I64, Callee::Helper(Helper::GetCurrentComm), vec![buffer, size]);
    }

    /// Whether two strings have the same text: 1 or 0. What follows the text is zeros, so that it is enough to compare as
    /// many bytes as the shorter one has: if they are equal, its terminator is among them.
    pub(super) fn strings_equal(&mut self, left: &Expr, right: &Expr, span: Span) -> Lower<Value> {
        let bytes = self.size(left.ty, span)?.min(self.size(right.ty, span)?);
        // The left operand's value is taken before the right one is evaluated.
        let right_is_plain = matches!(right.kind, ExprKind::Bytes(_) | ExprKind::Load(_));
        let left = match left.kind {
            ExprKind::Load(_) if !right_is_plain => Bytes::At(self.temporary(left)?),
            _ => self.comparable(left)?,
        };
        let right = self.comparable(right)?;
        let addrs: Vec<Addr> = [&left, &right]
            .into_iter()
            .filter_map(|one| match one {
                Bytes::At(addr) => Some(*addr),
                Bytes::Constant(_) => None,
            })
            .collect();
        let mut different = self.builder.constant(Type::I64, 0);
        for (at, size) in Self::chunks(&addrs, bytes) {
            let a = self.chunk(&left, at, size);
            let b = self.chunk(&right, at, size);
            let bits = self.builder.binary(BinaryOp::Xor, a, b);
            different = self.builder.binary(BinaryOp::Or, different, bits);
        }
        Ok(self.builder.compare_const(Condition::Eq, different, 0))
    }

    fn comparable<'e>(&mut self, expr: &'e Expr) -> Lower<Bytes<'e>> {
        match &expr.kind {
            ExprKind::Bytes(bytes) => Ok(Bytes::Constant(bytes)),
            _ => Ok(Bytes::At(self.address_of(expr)?)),
        }
    }

    /// Some bytes as a 64-bit number.
    fn chunk(&mut self, bytes: &Bytes<'_>, at: u32, size: super::super::mir::Size) -> Value {
        match bytes {
            Bytes::Constant(bytes) => {
                self.builder.constant(Type::I64, constant_chunk(bytes, at, size.bytes()))
            }
            Bytes::At(addr) => {
                let loaded = self.load(addr.plus(at), size);
                let loaded = self.make_opaque(loaded);
                match self.builder.ty(loaded) {
                    Type::I32 => self.builder.value(Type::I64, Op::ZeroExtend(loaded)),
                    _ => loaded,
                }
            }
        }
    }

    /// Whether a string is not empty: 1 or 0.
    pub(super) fn string_truth(&mut self, expr: &Expr) -> Lower<Value> {
        let addr = self.address_of(expr)?;
        let first = self.load(addr, super::super::mir::Size::B);
        let first = self.make_opaque(first);
        Ok(self.builder.compare_const(Condition::Ne, first, 0))
    }
}

/// `size` bytes from `at`, little-endian; zeros behind the end.
fn constant_chunk(bytes: &[u8], at: u32, size: u8) -> u64 {
    let byte = |index: u32| u64::from(bytes.get((at + index) as usize).copied().unwrap_or(0));
    (0..u32::from(size)).fold(0, |bits, index| bits | byte(index) << (8 * index))
}
