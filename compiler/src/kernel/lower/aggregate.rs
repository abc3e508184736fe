//! Lowers arrays and structs, and writes of any value to an address.

use super::super::mir::{Callee, Helper, Type};
use super::memory::{Addr, Base, access_type};
use super::sink::Sink;
use super::text::Unread;
use super::{Lower, Lowerer, arithmetic, impossible, strings};
use crate::defect::narrow;
use crate::hir::{Expr, ExprKind, KernelBuiltin, LvalueKind};
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Bytes of a task's name. Source: include/linux/sched.h, `TASK_COMM_LEN`, v6.12.
const COMM_BYTES: u64 = 16;

impl Lowerer<'_> {
    /// Writes the value of an expression to an address. Padding between fields becomes zero.
    pub(super) fn lower_into(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        let span = self.builder.set_span(expr.span);
        if self.is_pointer(expr.ty) {
            let pointer = self.pointer_value(expr)?;
            self.store_pointer_in(to, pointer)?;
        } else if self.is_scalar(expr.ty) {
            let (int, value) = self.stored_scalar(expr)?;
            self.store_scalar(to, int, value);
        } else {
            self.aggregate_into(expr, to)?;
        }
        self.builder.set_span(span);
        Ok(())
    }

    fn aggregate_into(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        match &expr.kind {
            ExprKind::Load(lvalue) => self.read_aggregate(lvalue, to),
            ExprKind::Bytes(bytes) => self.bytes_into(bytes, expr, to),
            ExprKind::Struct(values) => self.struct_into(values, expr, to),
            ExprKind::Array(values) => self.array_into(values, expr, to),
            ExprKind::Repeat(value) => self.repeat_into(value, expr, to),
            ExprKind::Convert(from) if matches!(self.types().kind(expr.ty), TypeKind::Struct(_)) => {
                let source = self.temporary(from)?;
                let bytes = self.size(expr.ty, expr.span)?;
                self.zero(to, bytes);
                self.convert_struct(from.ty, source, expr.ty, to, expr.span)
            }
            ExprKind::Convert(from) => self.string_into(from, expr, to),
            ExprKind::Concat(left, right) => self.joined_into(left, right, to, expr.span),
            ExprKind::Call { func, args } => self.call(*func, args, Sink::Memory(to), expr.span),
            ExprKind::CallValue { callee, args } => {
                self.call_value(callee, args, Sink::Memory(to), expr.span)
            }
            ExprKind::Match(one) => self.matched(one, expr.ty, Sink::Memory(to), expr.span),
            ExprKind::Take { map, op } => self.take_into(*map, *op, to, expr.span).map(drop),
            ExprKind::Kernel(KernelBuiltin::ReadCounter(id)) => self.reading_into(*id, to, expr),
            ExprKind::Kernel(KernelBuiltin::Comm) => {
                self.comm_into(to);
                Ok(())
            }
            ExprKind::Kernel(KernelBuiltin::Text(address)) => {
                self.text_at_into(address, to, expr, Unread::Counted).map(drop)
            }
            ExprKind::Kernel(KernelBuiltin::Buffer { address, length }) => {
                self.buffer_into(address, length, to, expr, Unread::Counted).map(drop)
            }
            ExprKind::Kernel(KernelBuiltin::Path(path)) => {
                self.path_into(path, to, expr, Unread::Counted).map(drop)
            }
            ExprKind::Kernel(KernelBuiltin::Join { pointers, separator }) => {
                self.join_into((pointers, separator), to, expr, Unread::Counted).map(drop)
            }
            ExprKind::Kernel(KernelBuiltin::RecordBytes { locator, relative }) => {
                self.record_bytes_into(locator, *relative, to, expr)
            }
            _ => impossible(expr.span, "this value"),
        }
    }

    /// Evaluates an expression into a stack slot of its own.
    pub(super) fn temporary(&mut self, expr: &Expr) -> Lower<Addr> {
        let bytes = self.size(expr.ty, expr.span)?;
        let slot = self.builder.slot(bytes);
        self.hold(slot, expr.ty, self.records.depth, expr.span)?;
        let addr = Addr::of(Base::Slot(slot));
        self.lower_into(expr, addr)?;
        Ok(addr)
    }

    /// The address of an expression's value: of the value itself if it surely exists, else of a copy.
    pub(super) fn address_of(&mut self, expr: &Expr) -> Lower<Addr> {
        if let ExprKind::Load(lvalue) = &expr.kind
            && let LvalueKind::Local(_) | LvalueKind::Global(_) = lvalue.kind
        {
            let prepared = self.prepare(lvalue)?;
            return Ok(self.resolve(&prepared)?.addr);
        }
        self.temporary(expr)
    }

    pub(super) fn bytes_into(&mut self, bytes: &[u8], expr: &Expr, to: Addr) -> Lower<()> {
        let size = self.size(expr.ty, expr.span)?;
        for (at, width) in Self::chunks(&[to], size) {
            let bits = strings::constant_chunk(bytes, at, width.bytes());
            let value = self.builder.constant(access_type(width), bits);
            self.store(to.plus(at), width, value);
        }
        Ok(())
    }

    fn struct_into(&mut self, values: &[Expr], expr: &Expr, to: Addr) -> Lower<()> {
        let TypeKind::Struct(id) = self.types().kind(expr.ty) else {
            return impossible(expr.span, "this value");
        };
        let size = self.size(expr.ty, expr.span)?;
        // A kernel struct may have gained fields after the literal was checked.
        if self.has_padding(expr.ty) || values.len() < self.types().struct_def(*id).fields.len() {
            self.zero(to, size);
        }
        for (index, value) in values.iter().enumerate() {
            let offset = narrow(self.types().field_offset(*id, index));
            self.lower_into(value, to.plus(offset))?;
        }
        Ok(())
    }

    /// Converts a kernel struct to the script's struct of the same name, field by field by name. The
    /// destination bytes are zero before.
    fn convert_struct(&mut self, from_ty: TypeId, from: Addr, ty: TypeId, to: Addr, span: Span) -> Lower<()> {
        if from_ty == ty {
            let bytes = self.size(ty, span)?;
            self.copy(to, from, bytes);
            return Ok(());
        }
        if self.is_pointer(from_ty) && self.is_pointer(ty) {
            let pointer = self.pointer_in(from);
            return self.store_pointer_in(to, pointer);
        }
        if let (Some(source), Some(target)) = (self.types().scalar(from_ty), self.types().scalar(ty)) {
            let value = self.load_scalar(from, source);
            let value = arithmetic::convert(&mut self.builder, source, target, value);
            self.store_scalar(to, target, value);
            return Ok(());
        }
        let (&TypeKind::Struct(source), &TypeKind::Struct(target)) =
            (self.types().kind(from_ty), self.types().kind(ty))
        else {
            return impossible(span, "a field of this type from a struct of the kernel");
        };
        let (kernels, scripts) = (self.types().struct_def(source), self.types().struct_def(target));
        for (index, field) in scripts.fields.iter().enumerate() {
            let Some(real) = kernels.field(&field.name) else {
                return impossible(span, "a field that a struct of the kernel lacks");
            };
            let offset = |id, index| narrow(self.types().field_offset(id, index));
            let (from, to) = (from.plus(offset(source, real)), to.plus(offset(target, index)));
            self.convert_struct(kernels.fields[real].ty, from, field.ty, to, span)?;
        }
        Ok(())
    }

    /// Whether a struct has padding. Padding inside a field belongs to the type of the field.
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
        self.zero(to.plus(at), size - at);
        Ok(())
    }

    fn element_size(&self, expr: &Expr) -> Lower<u32> {
        match self.types().kind(expr.ty) {
            TypeKind::Array(element, _) => self.size(*element, expr.span),
            _ => impossible(expr.span, "this value"),
        }
    }

    fn repeat_into(&mut self, value: &Expr, expr: &Expr, to: Addr) -> Lower<()> {
        let element = self.element_size(expr)?;
        let size = self.size(expr.ty, expr.span)?;
        if let ExprKind::Const(0) = value.kind {
            self.zero(to, size);
            return Ok(());
        }
        self.lower_into(value, to)?;
        let mut at = element;
        while element > 0 && at < size {
            let bytes = at.min(size - at);
            self.copy(to.plus(at), to, bytes);
            at += bytes;
        }
        Ok(())
    }

    fn comm_into(&mut self, to: Addr) {
        let buffer = self.pointer(to);
        let size = self.builder.constant(Type::I64, COMM_BYTES);
        self.builder.call(Type::I64, Callee::Helper(Helper::GetCurrentComm), vec![buffer, size]);
    }
}
