//! Lowers text and bytes that are read from memory of the kernel, of user programs, and of tracepoints'
//! records.

use std::sync::Arc;

use super::super::mir::core::CoreQuestion;
use super::super::mir::{BinaryOp, Condition, Count, Helper, Op, Size, Type, Value};
use super::kernel_memory::Source;
use super::memory::{Addr, Base};
use super::{Lower, Lowerer, U64, arithmetic, impossible};
use crate::hir::{Expr, ExprKind, KernelBuiltin, Lvalue, LvalueKind, MAX_SEPARATOR};
use crate::types::{IntType, TypeKind};

/// Maximum number of texts that `join` takes.
const MAX_JOINED: u64 = 20;
/// What stands behind them if there are more, with the terminator.
const MORE: &[u8] = b"...\0";

/// What happens where text or bytes cannot be read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unread {
    /// They are empty, and the run says how often.
    Counted,
    /// The script asks.
    Asked,
}

impl Lowerer<'_> {
    /// Reads the text at an address, up to its zero byte. Text at null is empty; what cannot be read is, too, and is
    /// counted unless the script asks. Returns whether it was read.
    pub(super) fn text_at_into(
        &mut self,
        address: &Expr,
        to: Addr,
        expr: &Expr,
        unread: Unread,
    ) -> Lower<Value> {
        let size = self.size(expr.ty, expr.span)?;
        let bytes = self.builder.constant(Type::I64, size.into());
        let source = self.source_of(address);
        let read = |lowerer: &mut Self, address| lowerer.probe_text_length(to, bytes, address, source);
        self.read_into(address, (to, size), unread, read)
    }

    /// Reads bytes at an address, as many as the array has and the script asks for. Returns whether they were read.
    pub(super) fn buffer_into(
        &mut self,
        address: &Expr,
        length: &Expr,
        to: Addr,
        expr: &Expr,
        unread: Unread,
    ) -> Lower<Value> {
        let size = self.size(expr.ty, expr.span)?;
        let length = self.word(length)?;
        let source = self.source_of(address);
        // The verifier forgets the bound where the address comes from a call with a loop: it widens numbers of the caller, too.
        let read = |lowerer: &mut Self, address| {
            let bytes = lowerer.at_most(length, size.into());
            lowerer.probe_read(to, bytes, address, source)
        };
        self.read_into(address, (to, size), unread, read)
    }

    /// Zeroes the destination, and reads into it unless the address is null. Returns whether the helper did so.
    fn read_into(
        &mut self,
        address: &Expr,
        (to, size): (Addr, u32),
        unread: Unread,
        read: impl FnOnce(&mut Self, Value) -> Value,
    ) -> Lower<Value> {
        let address = self.word(address)?;
        self.zero(to, size);
        let [there, join] = std::array::from_fn(|_| self.builder.block());
        let is_read = self.builder.param(join, Type::I32);
        let is_there = self.builder.compare_const(Condition::Ne, address, 0);
        let no = self.builder.constant(Type::I32, 0);
        let absent = self.builder.block();
        self.builder.branch(is_there, there, absent);
        self.builder.switch_to_sealed(absent);
        self.builder.jump_with(join, no);
        self.builder.switch_to_sealed(there);
        let result = read(self, address);
        if let Unread::Counted = unread {
            self.count_unread(result);
        }
        let succeeded = self.builder.compare_const(Condition::SGe, result, 0);
        self.builder.jump_with(join, succeeded);
        self.builder.switch_to_sealed(join);
        Ok(is_read)
    }

    /// Whether text or bytes can be read, which the script asks without keeping them.
    pub(super) fn is_readable(&mut self, operand: &Expr) -> Lower<Value> {
        let size = self.size(operand.ty, operand.span)?;
        let slot = self.builder.slot(size);
        match self.asked_read(operand, Addr::of(Base::Slot(slot)))? {
            Some(is_read) => Ok(is_read),
            None => impossible(operand.span, "a question about this value"),
        }
    }

    /// Reads text or bytes of which the script asks whether they can be read; returns the answer, none for other values.
    pub(super) fn asked_read(&mut self, value: &Expr, to: Addr) -> Lower<Option<Value>> {
        let is_read = match &value.kind {
            ExprKind::Kernel(KernelBuiltin::Text(address)) => {
                self.text_at_into(address, to, value, Unread::Asked)?
            }
            ExprKind::Kernel(KernelBuiltin::Buffer { address, length }) => {
                self.buffer_into(address, length, to, value, Unread::Asked)?
            }
            ExprKind::Kernel(KernelBuiltin::Path(path)) => self.path_into(path, to, value, Unread::Asked)?,
            ExprKind::Kernel(KernelBuiltin::Join { pointers, separator }) => {
                self.join_into((pointers, separator), to, value, Unread::Asked)?
            }
            ExprKind::Load(Lvalue { kind: LvalueKind::Local(from), .. })
                if self.active.source.locals[*from].read =>
            {
                self.lower_into(value, to)?;
                self.bound(*from)?
            }
            _ => return Ok(None),
        };
        Ok(Some(is_read))
    }

    /// A number of 64 bits.
    pub(super) fn word(&mut self, number: &Expr) -> Lower<Value> {
        let int = self.int(number.ty, number.span)?;
        let value = self.scalar(number)?;
        Ok(arithmetic::convert(&mut self.builder, int, U64, value))
    }

    /// Joins the texts behind an array of pointers, until a null pointer, the end of the destination, or
    /// [`MAX_JOINED`] texts, where `...` says that there are more. Each text is read whole into twice the destination's
    /// space: so one bound holds for all of them. Returns whether the pointers were read.
    pub(super) fn join_into(
        &mut self,
        (pointers, separator): (&Expr, &[u8]),
        to: Addr,
        expr: &Expr,
        unread: Unread,
    ) -> Lower<Value> {
        let size = self.size(expr.ty, expr.span)?;
        let source = self.source_of(pointers);
        let pointers = self.word(pointers)?;
        let room = 2 * size + (MAX_SEPARATOR + MORE.len()) as u32;
        let joined = Addr::of(Base::Slot(self.builder.slot(room)));
        self.zero(joined, room);
        let start = self.pointer(joined);
        let [zero, bytes] = [0, u64::from(size)].map(|value| self.builder.constant(Type::I64, value));
        let [end, count, is_read] = [Type::I64, Type::I64, Type::I32].map(|ty| self.builder.variable(ty));
        let [no, yes] = [0, 1].map(|answer| self.builder.constant(Type::I32, answer));
        for (variable, value) in [(end, zero), (count, zero), (is_read, yes)] {
            self.builder.set(variable, value);
        }
        let word = Addr::of(Base::Slot(self.builder.slot(8)));
        let [head, body, full, done] = std::array::from_fn(|_| self.builder.block());
        self.builder.jump(head);
        self.builder.switch_to(head);
        let at = self.builder.get(count);
        let is_more = self.builder.compare_const(Condition::Lt, at, MAX_JOINED);
        self.builder.branch(is_more, body, full);
        self.builder.switch_to_sealed(body);
        let distance = self.builder.binary_const(BinaryOp::Mul, at, 8);
        let address = self.builder.binary(BinaryOp::Add, pointers, distance);
        let eight = self.builder.constant(Type::I64, 8);
        let result = self.probe_read(word, eight, address, source);
        let [there, absent] = std::array::from_fn(|_| self.builder.block());
        let succeeded = self.builder.compare_const(Condition::SGe, result, 0);
        self.builder.branch(succeeded, there, absent);
        self.builder.switch_to_sealed(absent);
        self.builder.set(is_read, no);
        if let Unread::Counted = unread {
            self.count_one(Count::Unread);
        }
        self.builder.jump(done);
        self.builder.switch_to_sealed(there);
        let pointer = self.load(word, Size::DW);
        let is_text = self.builder.compare_const(Condition::Ne, pointer, 0);
        self.require(is_text, done);
        // What was read before may end anywhere: the separator and the next text have space up to `size`.
        let before = self.builder.get(end);
        let before = self.below(before, size.into(), done);
        let address = self.address_plus(start, before);
        let is_first = self.builder.compare_const(Condition::Eq, at, 0);
        let gap = self.builder.constant(Type::I64, separator.len() as u64);
        let gap = self.choose(is_first, zero, gap);
        let (between, text) = (self.builder.block(), self.builder.block());
        self.builder.branch(is_first, text, between);
        self.builder.switch_to_sealed(between);
        self.store_bytes(Addr::of(Base::Pointer(address)), separator);
        self.builder.jump(text);
        self.builder.switch_to_sealed(text);
        let address = self.address_plus(address, gap);
        let length = self.probe_text_length(Addr::of(Base::Pointer(address)), bytes, pointer, source);
        // Without the terminator; a text that cannot be read is empty.
        let [unread, read] = std::array::from_fn(|_| self.builder.block());
        let known = self.builder.param(read, Type::I64);
        let length = self.builder.binary_const(BinaryOp::Sub, length, 1);
        let length = self.below(length, size.into(), unread);
        self.builder.jump_with(read, length);
        self.builder.switch_to_sealed(unread);
        self.count_one(Count::Unread);
        self.builder.jump_with(read, zero);
        self.builder.switch_to_sealed(read);
        let after = self.builder.binary(BinaryOp::Add, before, gap);
        let after = self.builder.binary(BinaryOp::Add, after, known);
        self.builder.set(end, after);
        let next = self.builder.binary_const(BinaryOp::Add, at, 1);
        self.builder.set(count, next);
        self.builder.jump(head);
        self.builder.seal(head);
        self.builder.switch_to_sealed(full);
        let next = self.builder.constant(Type::I64, 8 * MAX_JOINED);
        let next = self.builder.binary(BinaryOp::Add, pointers, next);
        let next = self.read_word(next, source);
        let is_text = self.builder.compare_const(Condition::Ne, next, 0);
        self.require(is_text, done);
        let before = self.builder.get(end);
        let before = self.below(before, size.into(), done);
        let address = self.address_plus(start, before);
        self.store_bytes(Addr::of(Base::Pointer(address)), &[separator, MORE].concat());
        self.builder.jump(done);
        self.builder.switch_to_sealed(done);
        self.copy(to, joined, size);
        let terminator = self.builder.constant(Type::I32, 0);
        self.store(to.plus(size - 1), Size::B, terminator);
        Ok(self.builder.get(is_read))
    }

    pub(super) fn store_bytes(&mut self, to: Addr, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            let byte = self.builder.constant(Type::I32, u64::from(*byte));
            self.store(to.plus(at as u32), Size::B, byte);
        }
    }

    /// Copies the bytes that a tracepoint's record has for a member: text with its terminator, or as many as
    /// there are. The other bytes are zero.
    pub(super) fn record_bytes_into(
        &mut self,
        locator: &Expr,
        relative: bool,
        to: Addr,
        expr: &Expr,
    ) -> Lower<()> {
        let ExprKind::Load(lvalue) = &locator.kind else {
            return impossible(expr.span, "a member of a record from here");
        };
        let Some(part) = self.kernel_part(lvalue) else {
            return impossible(expr.span, "a member of a record from here");
        };
        let size = self.size(expr.ty, expr.span)?;
        let record = self.scalar(part.pointer)?;
        let record = self.address_number(record);
        let word = self.scalar(locator)?;
        let u32 = IntType { bits: 32, signed: false };
        let word = arithmetic::convert(&mut self.builder, u32, U64, word);
        let offset = self.builder.binary_const(BinaryOp::And, word, 0xffff);
        let mut address = self.builder.binary(BinaryOp::Add, record, offset);
        if relative {
            let field = Op::Core(Arc::new(part.field.clone()), CoreQuestion::Offset);
            let field = self.builder.value(Type::I64, field);
            let end = self.builder.binary_const(BinaryOp::Add, field, u32.bytes());
            address = self.builder.binary(BinaryOp::Add, address, end);
        }
        self.zero(to, size);
        if let TypeKind::Str(_) = self.types().kind(expr.ty) {
            let all = self.builder.constant(Type::I64, size.into());
            self.probe(Helper::ProbeReadKernelStr, to, all, address);
            return Ok(());
        }
        let real = self.builder.binary_const(BinaryOp::LShr, word, 16);
        let bytes = self.at_most(real, size.into());
        self.probe_read(to, bytes, address, Source::Kernel);
        Ok(())
    }
}
