//! Lowers calls of kernel functions: those that a script declares, and helpers that need no declaration.
//!
//! Numbers, kernel addresses and the context are passed as they are, the program's own memory as `memory`
//! defines. The kernel checks at load time where a function may be called and with what arguments.

mod memory;

use super::super::mir::{BinaryOp, Block, Callee, Condition, MAX_ARGS, Op, Type, Value};
use super::kernel_memory::KernelPart;
use super::pointer::{Number, Pointer};
use super::{Lower, Lowerer, arithmetic, impossible};
use crate::hir::{Expr, ExprKind, ExternId};
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// A result register as the kernel leaves it.
const REGISTER: IntType = IntType { bits: 64, signed: false };

/// `-EINVAL`: the result of a call that is skipped. Source: include/uapi/asm-generic/errno-base.h, v6.12.
const INVALID: i64 = -22;

/// An argument after its evaluation, by what the kernel expects.
enum ExternalArg<'e> {
    Value(Value),
    /// A number, which may be the size of the memory argument before it.
    Number(Value, &'e Expr),
    Memory(Pointer, &'e Expr),
    /// A pointer to a kernel struct that the verifier tracks, or null.
    Object(Value),
    /// The address of a part of a kernel struct, as a pointer to the struct and the part.
    Part(Value, KernelPart<'e>),
}

impl Lowerer<'_> {
    /// Calls a kernel function; returns its result as a scalar, 0 if it has none.
    pub(super) fn external_scalar(
        &mut self,
        id: ExternId,
        args: &[Expr],
        ret: TypeId,
        span: Span,
    ) -> Lower<Value> {
        let result = self.external_call(id, args, span)?;
        match self.types().kind(ret) {
            TypeKind::Void => Ok(self.builder.constant(Type::I32, 0)),
            TypeKind::Bool => {
                // C functions leave the bits above a byte-sized result undefined.
                let byte = self.builder.binary_const(BinaryOp::And, result, 0xff);
                Ok(self.builder.compare_const(Condition::Ne, byte, 0))
            }
            _ => {
                let int = self.int(ret, span)?;
                Ok(arithmetic::convert(&mut self.builder, REGISTER, int, result))
            }
        }
    }

    /// Calls a kernel function whose result is a pointer: an address of the kernel.
    pub(super) fn external_pointer(&mut self, id: ExternId, args: &[Expr], span: Span) -> Lower<Pointer> {
        let address = self.external_call(id, args, span)?;
        Ok(self.pointer_to_address(address))
    }

    /// The result register of a call. If memory that the call needs is missing, the call is skipped: its
    /// result is an error, false or null.
    fn external_call(&mut self, id: ExternId, args: &[Expr], span: Span) -> Lower<Value> {
        let (mut refused, mut numbers) = (None, Vec::new());
        let args = self.external_arguments(id, args, &mut refused, &mut numbers, span)?;
        let (callee, ret) = (Callee::External(id), self.types().kind(self.hir.externs[id].ret));
        let result = match ret {
            TypeKind::Void => {
                self.builder.effect(Op::Call { callee, args });
                self.builder.constant(Type::I64, 0)
            }
            _ => self.builder.call(Type::I64, callee, args),
        };
        self.after_writes(&numbers);
        let Some(refused) = refused else { return Ok(result) };
        let without = match ret {
            TypeKind::Void | TypeKind::Bool | TypeKind::Ptr(_) => 0,
            _ => INVALID,
        };
        let join = self.builder.block();
        let whole = self.builder.param(join, Type::I64);
        self.builder.jump_with(join, result);
        self.builder.switch_to_sealed(refused);
        let without = self.builder.constant(Type::I64, without as u64);
        self.builder.jump_with(join, without);
        self.builder.switch_to_sealed(join);
        Ok(whole)
    }

    /// Evaluates all arguments, then checks memory arguments. If one is missing, control goes to `refused`,
    /// which is created on demand. `numbers` collects the pointers that lie in that memory.
    fn external_arguments(
        &mut self,
        id: ExternId,
        args: &[Expr],
        refused: &mut Option<Block>,
        numbers: &mut Vec<Number>,
        span: Span,
    ) -> Lower<Vec<Value>> {
        if args.len() > MAX_ARGS {
            return impossible(span, "a call of a function of the kernel with more than five arguments");
        }
        let given = args.iter().map(|arg| self.given(arg)).collect::<Lower<Vec<_>>>()?;
        let mut values = Vec::with_capacity(given.len());
        let mut given = given.into_iter().enumerate().peekable();
        while let Some((position, one)) = given.next() {
            match one {
                ExternalArg::Value(value) | ExternalArg::Number(value, _) => values.push(value),
                ExternalArg::Object(object) => {
                    let refused = *refused.get_or_insert_with(|| self.builder.block());
                    values.push(self.non_null(object, refused));
                }
                ExternalArg::Part(base, part) => {
                    let refused = *refused.get_or_insert_with(|| self.builder.block());
                    values.push(self.address_given(base, &part, refused)?);
                }
                ExternalArg::Memory(pointer, arg) => {
                    let memory_arg = memory::Argument { function: &self.hir.externs[id], position, arg };
                    let size = given.next_if(|(_, next)| {
                        memory_arg.has_size() && matches!(next, ExternalArg::Number(..))
                    });
                    let size = size.and_then(|(_, size)| match size {
                        ExternalArg::Number(value, size) => Some((value, size)),
                        _ => None,
                    });
                    values.extend(self.external_memory(&memory_arg, pointer, size, refused)?);
                    numbers.extend(self.before_writes(pointer));
                }
            }
        }
        Ok(values)
    }

    fn given<'e>(&mut self, arg: &'e Expr) -> Lower<ExternalArg<'e>> {
        // A context that was converted to a pointer to anything is passed as a context.
        let arg = match &arg.kind {
            ExprKind::Convert(from) if self.is_context(from.ty) => from,
            _ => arg,
        };
        if self.is_context(arg.ty) {
            return Ok(ExternalArg::Value(self.context_argument(arg)?));
        }
        if let Some((base, part)) = self.part_given(arg)? {
            return Ok(ExternalArg::Part(base, part));
        }
        if self.is_kernel_pointer(arg.ty)
            && !matches!(arg.kind, ExprKind::Const(0))
            && let Some(object) = self.kernel_object(arg)?
        {
            return Ok(ExternalArg::Object(self.object_value(object)));
        }
        if self.is_pointer(arg.ty) {
            return Ok(ExternalArg::Memory(self.pointer_value(arg)?, arg));
        }
        let value = self.scalar(arg)?;
        match self.types().kind(arg.ty) {
            TypeKind::Ptr(_) => Ok(ExternalArg::Value(value)),
            _ => Ok(ExternalArg::Number(value, arg)),
        }
    }
}
