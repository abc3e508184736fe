//! Lowers strings: text, followed by zeros up to the size of the type.

use super::super::mir::{BinaryOp, Condition, Helper, Op, Size, Type, Value};
use super::memory::{Addr, Base, access_type};
use super::{Lower, Lowerer, impossible};
use crate::hir::{Expr, ExprKind};
use crate::source::Span;
use crate::types::TypeKind;

/// The bytes of a text that is compared or copied.
pub(super) enum Bytes<'e> {
    Constant(&'e [u8]),
    At(Addr),
}

/// The lowest bit of each byte of a 64-bit word.
const LANES: u64 = 0x0101_0101_0101_0101;
/// The size in bytes up to which a text is processed byte by byte; a helper copies longer ones.
const MOST_BY_BYTES: u32 = 1024;
/// The number of words whose bytes can be counted together without a sum overflowing its byte.
const WORDS_AT_ONCE: usize = 31;

impl Lowerer<'_> {
    /// Converts a string to another size: cut so that the last byte stays zero, or padded with zeros.
    pub(super) fn string_into(&mut self, from: &Expr, expr: &Expr, to: Addr) -> Lower<()> {
        let TypeKind::Str(size) = *self.types().kind(expr.ty) else {
            return impossible(expr.span, "this conversion");
        };
        let from_size = match *self.types().kind(from.ty) {
            TypeKind::Str(from_size) => from_size,
            TypeKind::Array(element, _) if self.types().size(element) == 1 => {
                return self.text_into(from, size, to);
            }
            _ => return impossible(expr.span, "this conversion"),
        };
        let kept = from_size.min(size.saturating_sub(1));
        match &from.kind {
            ExprKind::Bytes(bytes) => {
                let cut = bytes.get(..kept as usize).unwrap_or(bytes);
                return self.bytes_into(cut, expr, to);
            }
            ExprKind::Concat(left, right) if from_size <= size => {
                self.joined_into(left, right, to, expr.span)?;
                self.zero(to.plus(from_size), size - from_size);
                return Ok(());
            }
            _ => {}
        }
        let source = self.address_of(from)?;
        self.copy(to, source, kept);
        self.zero(to.plus(kept), size - kept);
        Ok(())
    }

    /// Converts bytes to a string: those before the first zero, as many as fit.
    fn text_into(&mut self, from: &Expr, size: u32, to: Addr) -> Lower<()> {
        let bytes = self.size(from.ty, from.span)?;
        let kept = bytes.min(size.saturating_sub(1));
        if let ExprKind::Load(lvalue) = &from.kind
            && let Some(part) = self.kernel_part(lvalue).filter(|part| !self.is_context(part.pointer.ty))
        {
            self.zero(to, size);
            return self.text_of_part(&part, kept, to);
        }
        let source = self.address_of(from)?;
        if kept > MOST_BY_BYTES {
            self.zero(to, size);
            let room = self.builder.constant(Type::I64, u64::from(kept) + 1);
            let from = self.pointer(source);
            self.probe(Helper::ProbeReadKernelStr, to, room, from);
            return Ok(());
        }
        // All ones until a zero byte was found.
        let mut mask = self.builder.constant(Type::I64, u64::MAX);
        for at in 0..kept {
            let byte = self.byte(source.plus(at));
            let carry = self.builder.binary_const(BinaryOp::Add, byte, 0xff);
            let some = self.builder.binary_const(BinaryOp::LShr, carry, 8);
            let zero = self.builder.constant(Type::I64, 0);
            let all = self.builder.binary(BinaryOp::Sub, zero, some);
            mask = self.builder.binary(BinaryOp::And, mask, all);
            let value = self.builder.binary(BinaryOp::And, byte, mask);
            let value = self.builder.value(Type::I32, Op::Truncate(value));
            self.store(to.plus(at), Size::B, value);
        }
        self.zero(to.plus(kept), size - kept);
        Ok(())
    }

    /// A byte as a 64-bit number.
    fn byte(&mut self, addr: Addr) -> Value {
        let byte = self.load(addr, Size::B);
        let byte = self.make_opaque(byte);
        let byte = self.builder.binary_const(BinaryOp::And, byte, 0xff);
        self.builder.value(Type::I64, Op::ZeroExtend(byte))
    }

    /// `left + right`, with the size of both types together.
    pub(super) fn joined_into(&mut self, left: &Expr, right: &Expr, to: Addr, span: Span) -> Lower<()> {
        let (left_size, right_size) = (self.size(left.ty, span)?, self.size(right.ty, span)?);
        self.text_at_start(left, left_size, to, span)?;
        let right = self.comparable(right)?;
        self.zero(to.plus(left_size), right_size);
        if let ExprKind::Bytes(text) = &left.kind {
            self.append(to.plus(text.len() as u32), &right, right_size);
            return Ok(());
        }
        let length = self.length_at(to, left_size);
        let fits = self.builder.compare_const(Condition::Lt, length, u64::from(left_size));
        let (found, join) = (self.builder.block(), self.builder.block());
        self.builder.branch(fits, found, join);
        self.builder.switch_to_sealed(found);
        let bound = u64::from(left_size);
        let checked = self.builder.value(Type::I64, Op::Below { value: length, bound });
        let start = self.pointer(to);
        let end = self.builder.value(self.builder.ty(start), Op::PtrAdd(start, checked));
        self.append(Addr { base: Base::Pointer(end), offset: 0, align: 1 }, &right, right_size);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    fn text_at_start(&mut self, text: &Expr, size: u32, to: Addr, span: Span) -> Lower<()> {
        match &text.kind {
            ExprKind::Bytes(bytes) => self.bytes_into(bytes, text, to),
            ExprKind::Concat(left, right) => self.joined_into(left, right, to, span),
            _ => {
                let from = self.address_of(text)?;
                self.copy(to, from, size);
                Ok(())
            }
        }
    }

    /// Appends the text of a string of `size` bytes. Its terminator is not written.
    fn append(&mut self, to: Addr, text: &Bytes<'_>, size: u32) {
        match text {
            Bytes::Constant(text) => {
                for (at, width) in Self::chunks(&[to], text.len() as u32) {
                    let bits = constant_chunk(text, at, width.bytes());
                    let value = self.builder.constant(access_type(width), bits);
                    self.store(to.plus(at), width, value);
                }
            }
            Bytes::At(from) => self.copy(to, *from, size.saturating_sub(1)),
        }
    }

    /// `len(text)`.
    pub(super) fn length(&mut self, text: &Expr) -> Lower<Value> {
        if let ExprKind::Bytes(bytes) = &text.kind {
            return Ok(self.builder.constant(Type::I32, bytes.len() as u64));
        }
        let size = self.size(text.ty, text.span)?;
        let addr = self.address_of(text)?;
        let length = self.length_at(addr, size);
        Ok(self.builder.value(Type::I32, Op::Truncate(length)))
    }

    /// The length of the text in `size` bytes, without branches: the number of bytes that are not zero.
    fn length_at(&mut self, addr: Addr, size: u32) -> Value {
        let mut length = self.builder.constant(Type::I64, 0);
        for words in Self::chunks(&[addr], size).chunks(WORDS_AT_ONCE) {
            let mut lanes = self.builder.constant(Type::I64, 0);
            for (at, width) in words {
                let word = self.chunk(&Bytes::At(addr), *at, *width);
                // Sets the top bit of each byte if the byte is not zero.
                let low = self.builder.binary_const(BinaryOp::And, word, 0x7f * LANES);
                let with_carry = self.builder.binary_const(BinaryOp::Add, low, 0x7f * LANES);
                let some = self.builder.binary(BinaryOp::Or, with_carry, word);
                let top = self.builder.binary_const(BinaryOp::LShr, some, 7);
                let bits = self.builder.binary_const(BinaryOp::And, top, LANES);
                lanes = self.builder.binary(BinaryOp::Add, lanes, bits);
            }
            let sums = self.builder.binary_const(BinaryOp::Mul, lanes, LANES);
            let sum = self.builder.binary_const(BinaryOp::LShr, sums, 56);
            length = self.builder.binary(BinaryOp::Add, length, sum);
        }
        length
    }

    /// Whether two strings have the same text: 1 or 0. Strings are padded with zeros, so it is enough to
    /// compare the size of the shorter one: if all its bytes are equal, its terminator is among them.
    pub(super) fn strings_equal(&mut self, left: &Expr, right: &Expr, span: Span) -> Lower<Value> {
        let bytes = self.size(left.ty, span)?.min(self.size(right.ty, span)?);
        // The left operand's value is taken before the right one is evaluated.
        let right_is_plain = matches!(right.kind, ExprKind::Bytes(_) | ExprKind::Load(_));
        let left = match left.kind {
            ExprKind::Load(_) if !right_is_plain => Bytes::At(self.temporary(left)?),
            _ => self.comparable(left)?,
        };
        let right = self.comparable(right)?;
        Ok(self.bytes_equal(&left, &right, bytes))
    }

    /// Whether the first `bytes` bytes are equal: 1 or 0.
    pub(super) fn bytes_equal(&mut self, left: &Bytes<'_>, right: &Bytes<'_>, bytes: u32) -> Value {
        let addrs: Vec<Addr> = [left, right]
            .into_iter()
            .filter_map(|one| match one {
                Bytes::At(addr) => Some(*addr),
                Bytes::Constant(_) => None,
            })
            .collect();
        let mut different = self.builder.constant(Type::I64, 0);
        for (at, size) in Self::chunks(&addrs, bytes) {
            let a = self.chunk(left, at, size);
            let b = self.chunk(right, at, size);
            let bits = self.builder.binary(BinaryOp::Xor, a, b);
            different = self.builder.binary(BinaryOp::Or, different, bits);
        }
        self.builder.compare_const(Condition::Eq, different, 0)
    }

    fn comparable<'e>(&mut self, expr: &'e Expr) -> Lower<Bytes<'e>> {
        match &expr.kind {
            ExprKind::Bytes(bytes) => Ok(Bytes::Constant(bytes)),
            _ => Ok(Bytes::At(self.address_of(expr)?)),
        }
    }

    /// `size` bytes as a 64-bit number.
    fn chunk(&mut self, bytes: &Bytes<'_>, at: u32, size: Size) -> Value {
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
        let first = self.load(addr, Size::B);
        let first = self.make_opaque(first);
        Ok(self.builder.compare_const(Condition::Ne, first, 0))
    }
}

/// `size` bytes from `at`, little-endian; zeros after the end.
pub(super) fn constant_chunk(bytes: &[u8], at: u32, size: u8) -> u64 {
    let byte = |index: u32| u64::from(bytes.get((at + index) as usize).copied().unwrap_or(0));
    (0..u32::from(size)).fold(0, |bits, index| bits | byte(index) << (8 * index))
}
