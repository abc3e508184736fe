//! Calls of functions of the kernel: those that a script declares, and helpers that need no declaration.
//!
//! Numbers, addresses of the kernel and the context are passed as they are. Memory of the program's own is passed where it
//! is known at compile time which object it is, that it is there, and that a helper which is told its size stays inside.
//! The kernel sees where a function may be called, and what it may be given, when the program is loaded.

use super::super::mir::{BinaryOp, Callee, Condition, Op, Size, Type, Value};
use super::memory::{Addr, Base};
use super::pointer::{ADDRESS, Bytes, Pointer};
use super::{Lower, Lowerer, arithmetic, not_yet};
use crate::hir::{Expr, ExprKind, Extern, ExternId};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// Most arguments: one for each register of a call.
const MAX_ARGS: usize = 5;

/// What the kernel leaves in the register of a result.
const REGISTER: IntType = IntType { bits: 64, signed: false };

/// Arguments of helpers that may be null, by position: addresses that are only read or written if they can be, and memory
/// that need not be. Source: the `*_proto` of kernel/trace/bpf_trace.c and net/core/filter.c, v6.12.
const MAY_BE_NULL: &[(&str, usize)] = &[
    ("bpf_probe_read", 2),
    ("bpf_probe_read_str", 2),
    ("bpf_probe_read_kernel", 2),
    ("bpf_probe_read_kernel_str", 2),
    ("bpf_probe_read_user", 2),
    ("bpf_probe_read_user_str", 2),
    ("bpf_probe_write_user", 0),
    ("bpf_csum_diff", 0),
    ("bpf_csum_diff", 2),
    ("bpf_redirect_neigh", 1),
];

impl Lowerer<'_> {
    /// Calls a function of the kernel: its result as a scalar, 0 if it has none.
    pub(super) fn external_scalar(
        &mut self,
        id: ExternId,
        args: &[Expr],
        ret: TypeId,
        span: Span,
    ) -> Lower<Value> {
        let values = self.external_arguments(id, args, span)?;
        let callee = Callee::External(id);
        match self.types().kind(ret) {
            TypeKind::Void => {
                self.builder.effect(Op::Call { callee, args: values });
                Ok(self.builder.constant(Type::I32, 0))
            }
            TypeKind::Bool => {
                let result = self.builder.call(Type::I64, callee, values);
                // C's functions leave anything above the byte.
                let byte = self.builder.binary_const(BinaryOp::And, result, 0xff);
                Ok(self.builder.compare_const(Condition::Ne, byte, 0))
            }
            _ => {
                let int = self.int(ret, span)?;
                let result = self.builder.call(Type::I64, callee, values);
                Ok(arithmetic::convert(&mut self.builder, REGISTER, int, result))
            }
        }
    }

    /// The same where the result is a pointer: an address of the kernel.
    pub(super) fn external_pointer(&mut self, id: ExternId, args: &[Expr], span: Span) -> Lower<Pointer> {
        let values = self.external_arguments(id, args, span)?;
        let address = self.builder.call(Type::I64, Callee::External(id), values);
        Ok(self.pointer_to_address(address))
    }

    fn external_arguments(&mut self, id: ExternId, args: &[Expr], span: Span) -> Lower<Vec<Value>> {
        let hir = self.hir;
        let one = &hir.externs[id];
        if args.len() > MAX_ARGS {
            return not_yet(span, "a call of a function of the kernel with more than five arguments is");
        }
        let mut values = Vec::with_capacity(args.len());
        // Whether the argument before is memory that must be there: then its size cannot be 0.
        let mut sized = false;
        for (position, arg) in args.iter().enumerate() {
            let arg = self.unconverted(arg);
            let is_size_of_nothing = std::mem::take(&mut sized) && matches!(arg.kind, ExprKind::Const(0));
            values.push(if is_size_of_nothing {
                self.builder.constant(Type::I64, 1)
            } else if self.is_context(arg.ty) {
                self.context_argument(arg)?
            } else if self.is_pointer(arg.ty) {
                let pointer = self.pointer_value(arg)?;
                let is_null = self.objects(pointer).is_empty();
                sized = is_null && one.helper.is_some() && !may_be_null(one, position);
                match is_null {
                    true if sized => self.one_zero(),
                    true => self.builder.constant(Type::I64, 0),
                    false => {
                        let size = args.get(position + 1).filter(|_| one.helper.is_some());
                        self.external_memory(pointer, size, arg.span)?
                    }
                }
            } else {
                self.scalar(arg)?
            });
        }
        Ok(values)
    }

    /// The context that was converted to a pointer to anything, or the expression itself.
    fn unconverted<'e>(&self, arg: &'e Expr) -> &'e Expr {
        match &arg.kind {
            ExprKind::Convert(from) if self.is_context(from.ty) => from,
            _ => arg,
        }
    }

    /// The address of 8 bytes that are zero.
    fn one_zero(&mut self) -> Value {
        let to = Addr::of(Base::Slot(self.builder.slot(8)));
        let zero = self.builder.constant(Type::I64, 0);
        self.store(to, Size::DW, zero);
        self.pointer(to)
    }

    /// Memory as an argument; of a helper with the argument behind it, which may be its size.
    fn external_memory(&mut self, pointer: Pointer, next: Option<&Expr>, span: Span) -> Lower<Value> {
        if let Some(address) = self.plain_address(pointer, span)? {
            return Ok(address);
        }
        let objects = self.objects(pointer);
        let ([only], Bytes::Known(offset)) = (&objects[..], pointer.offset) else {
            return not_yet(span, "a pointer to one of several places, for a function of the kernel, is");
        };
        let is_there = matches!(self.builder.ty(only.base), Type::Ptr(origin) if origin.is_memory());
        if !is_there || only.record.is_some() || only.packet.is_some() || only.extent == ADDRESS {
            return not_yet(span, "a pointer that may be null, for a function of the kernel, is");
        }
        let left = only.extent.saturating_sub(offset);
        if let Some(size) = next.filter(|next| self.types().scalar(next.ty).is_some()) {
            match size.kind {
                ExprKind::Const(bytes) if bytes <= left => {}
                ExprKind::Const(bytes) => {
                    return not_yet(size.span, &format!("a size of {bytes}, where {left} bytes are, is"));
                }
                _ => return not_yet(size.span, "a size that is not constant, of memory for a helper, is"),
            }
        }
        let offset =
            u32::try_from(offset).or_else(|_| not_yet(span, "a pointer this far into an object is"))?;
        Ok(self.pointer(Addr::of(Base::Pointer(only.base)).plus(offset)))
    }
}

fn may_be_null(function: &Extern, position: usize) -> bool {
    MAY_BE_NULL.iter().any(|(name, at)| *name == function.name && *at == position)
}
