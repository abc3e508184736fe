//! Lowers scalar expressions and conditions.

use super::super::mir::{BinaryOp, Block, Callee, Condition, Count, Helper, Op, Size, TaskId, Type, Value};
use super::{Lower, Lowerer, U64, arithmetic, impossible, int_type};
use crate::builtins::context::perf_event_offset;
use crate::hir::{
    self, ContextMember, Expr, ExprKind, KernelBuiltin, LocalId, LogicOp, Lvalue, LvalueKind, SharedBuiltin,
    StackOwner, UnaryOp,
};
use crate::source::Span;
use crate::types::TypeKind;

impl Lowerer<'_> {
    /// The value of a scalar expression.
    pub(super) fn scalar(&mut self, expr: &Expr) -> Lower<Value> {
        let span = self.builder.set_span(expr.span);
        let value = self.scalar_kind(expr)?;
        self.builder.set_span(span);
        Ok(value)
    }

    fn scalar_kind(&mut self, expr: &Expr) -> Lower<Value> {
        match &expr.kind {
            ExprKind::Const(bits) => {
                let int = self.int(expr.ty, expr.span)?;
                Ok(arithmetic::constant(&mut self.builder, int, *bits))
            }
            ExprKind::Load(lvalue) => self.read_scalar(lvalue),
            ExprKind::Unary(op, operand) => {
                let int = self.int(operand.ty, operand.span)?;
                let value = self.scalar(operand)?;
                Ok(arithmetic::unary(&mut self.builder, *op, int, value))
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right, expr),
            ExprKind::Logic(..) => self.logic(expr),
            ExprKind::Convert(from) if matches!(self.types().kind(from.ty), TypeKind::Ptr(_)) => {
                let to = self.int(expr.ty, expr.span)?;
                let pointer = self.any_pointer(from)?;
                let address = self.address_value(pointer)?;
                Ok(arithmetic::convert(&mut self.builder, U64, to, address))
            }
            ExprKind::Convert(from) => {
                let (from_int, to) = (self.int(from.ty, from.span)?, self.int(expr.ty, expr.span)?);
                let value = self.scalar(from)?;
                Ok(arithmetic::convert(&mut self.builder, from_int, to, value))
            }
            ExprKind::AddrOf(lvalue) => self.kernel_address_of(lvalue, expr.span),
            ExprKind::Truth(operand) => self.truth(operand),
            ExprKind::Present { map, key } => self.present(*map, key),
            ExprKind::Bound(local) => self.bound(*local),
            ExprKind::Call { .. } | ExprKind::CallValue { .. } if expr.ty == self.types().common().void => {
                self.effects(expr)?;
                Ok(self.builder.constant(Type::I32, 0))
            }
            ExprKind::Call { func, args } => {
                let (sink, result) = self.scalar_sink(expr.ty, expr.span)?;
                self.call(*func, args, sink, expr.span)?;
                Ok(self.builder.get(result))
            }
            ExprKind::CallValue { callee, args } => {
                let (sink, result) = self.scalar_sink(expr.ty, expr.span)?;
                self.call_value(callee, args, sink, expr.span)?;
                Ok(self.builder.get(result))
            }
            ExprKind::CallExtern { function, args } => {
                self.external_scalar(*function, args, expr.ty, expr.span)
            }
            ExprKind::TailCall(program) => self.tail_call(*program, expr),
            ExprKind::Function(id) => Ok(self.function_value(*id)),
            ExprKind::Distance(a, b) => self.distance(a, b),
            ExprKind::IsNull(pointer) => self.is_no_pointer(pointer),
            ExprKind::Context { ctx, member } => self.context(ctx, *member),
            ExprKind::Match(one) => {
                let (sink, result) = self.scalar_sink(expr.ty, expr.span)?;
                self.matched(one, expr.ty, sink, expr.span)?;
                Ok(self.builder.get(result))
            }
            ExprKind::Take { map, op } => self.take_scalar(*map, *op, expr.span),
            ExprKind::Taken { map, op } => self.taken(*map, *op, expr.span),
            ExprKind::Shared(SharedBuiltin::Push(map, value) | SharedBuiltin::Add(map, value)) => {
                self.push(*map, value)
            }
            ExprKind::Shared(SharedBuiltin::Has(map, value)) => self.has(*map, value),
            ExprKind::Shared(SharedBuiltin::Print { format, args }) => self.print(format, args, expr.span),
            ExprKind::Shared(SharedBuiltin::Len(text)) => self.length(text),
            ExprKind::Shared(SharedBuiltin::Log2Slot(value)) => self.log2_slot(value),
            ExprKind::Shared(SharedBuiltin::LinearSlot(args)) => self.linear_slot(args),
            ExprKind::Shared(SharedBuiltin::SwapBytes(value)) => {
                let int = self.int(value.ty, value.span)?;
                let value = self.scalar(value)?;
                Ok(arithmetic::swap_bytes(&mut self.builder, int, value))
            }
            ExprKind::Kernel(KernelBuiltin::Submit(_, record)) => self.give_back(record, Helper::RingSubmit),
            ExprKind::Kernel(KernelBuiltin::Discard(_, record)) => {
                self.give_back(record, Helper::RingDiscard)
            }
            ExprKind::Kernel(KernelBuiltin::StackId { ctx, map, of }) => self.stack_id(ctx, *map, *of),
            ExprKind::Kernel(KernelBuiltin::KernelStack(map)) => {
                self.own_stack(*map, StackOwner::Kernel, expr.span)
            }
            ExprKind::Kernel(KernelBuiltin::UserStack(map)) => {
                self.own_stack(*map, StackOwner::User, expr.span)
            }
            ExprKind::Kernel(KernelBuiltin::AttachmentId(ctx)) => self.attachment_id(ctx),
            ExprKind::Kernel(builtin) => self.builtin(builtin, expr),
            ExprKind::User(_) => impossible(expr.span, "a builtin of userspace"),
            ExprKind::Bytes(_) | ExprKind::Struct(_) | ExprKind::Array(_) | ExprKind::Repeat(_) => {
                impossible(expr.span, "this value here")
            }
            _ => impossible(expr.span, "an expression of userspace"),
        }
    }

    /// `&lvalue` of a part of a kernel struct.
    fn kernel_address_of(&mut self, lvalue: &Lvalue, span: Span) -> Lower<Value> {
        if let Some(part) = self.kernel_part(lvalue) {
            return self.kernel_address(&part);
        }
        match &lvalue.kind {
            LvalueKind::Deref(pointer) => self.scalar(pointer),
            _ => impossible(span, "the address of a copy of a struct of the kernel"),
        }
    }

    fn binary(&mut self, op: hir::BinaryOp, left: &Expr, right: &Expr, expr: &Expr) -> Lower<Value> {
        if let TypeKind::Str(_) = self.types().kind(left.ty) {
            let equal = self.strings_equal(left, right, expr.span)?;
            return Ok(match op {
                hir::BinaryOp::Ne => self.builder.binary_const(BinaryOp::Xor, equal, 1),
                _ => equal,
            });
        }
        if [left, right].iter().any(|side| matches!(self.types().kind(side.ty), TypeKind::Ptr(_))) {
            return self.compare_pointers(op, left, right);
        }
        let int = self.int(left.ty, left.span)?;
        let a = self.scalar(left)?;
        let b = self.scalar(right)?;
        Ok(arithmetic::binary(&mut self.builder, op, int, a, b))
    }

    /// `&&` and `||` as a value.
    fn logic(&mut self, expr: &Expr) -> Lower<Value> {
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let result = self.builder.param(join, Type::I32);
        self.condition(expr, yes, no)?;
        for (block, bit) in [(yes, 1), (no, 0)] {
            self.builder.switch_to_sealed(block);
            let bit = self.builder.constant(Type::I32, bit);
            self.builder.jump_with(join, bit);
        }
        self.builder.switch_to_sealed(join);
        Ok(result)
    }

    /// Ends the block: jumps to `yes` if the bool is true, else to `no`. The caller seals both.
    pub(super) fn condition(&mut self, expr: &Expr, yes: Block, no: Block) -> Lower<()> {
        match &expr.kind {
            ExprKind::Logic(op, left, right) => {
                let middle = self.builder.block();
                match op {
                    LogicOp::And => self.condition(left, middle, no)?,
                    LogicOp::Or => self.condition(left, yes, middle)?,
                }
                self.builder.switch_to_sealed(middle);
                self.condition(right, yes, no)
            }
            ExprKind::Unary(UnaryOp::Not, operand) => self.condition(operand, no, yes),
            _ => {
                let span = self.builder.set_span(expr.span);
                let value = self.scalar(expr)?;
                self.builder.branch(value, yes, no);
                self.builder.set_span(span);
                Ok(())
            }
        }
    }

    /// Selects one of two values without a branch; both are already computed.
    pub(super) fn choose(&mut self, cond: Value, then: Value, otherwise: Value) -> Value {
        if let Some(bit) = self.builder.known(cond) {
            return if bit == 1 { then } else { otherwise };
        }
        let (yes, no, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let result = self.builder.param(join, self.builder.ty(then));
        self.builder.branch(cond, yes, no);
        for (block, value) in [(yes, then), (no, otherwise)] {
            self.builder.switch_to_sealed(block);
            self.builder.jump_with(join, value);
        }
        self.builder.switch_to_sealed(join);
        result
    }

    fn truth(&mut self, operand: &Expr) -> Lower<Value> {
        if let TypeKind::Str(_) = self.types().kind(operand.ty) {
            return self.string_truth(operand);
        }
        if let TypeKind::Ptr(_) = self.types().kind(operand.ty) {
            let null = self.is_no_pointer(operand)?;
            return Ok(self.builder.binary_const(BinaryOp::Xor, null, 1));
        }
        self.int(operand.ty, operand.span)?;
        let value = self.scalar(operand)?;
        Ok(self.builder.compare_const(Condition::Ne, value, 0))
    }

    pub(super) fn bound(&mut self, local: LocalId) -> Lower<Value> {
        match self.declare(local)?.present {
            Some(variable) => Ok(self.builder.get(variable)),
            None => Ok(self.builder.constant(Type::I32, 1)),
        }
    }

    /// Reads a context member by one load of 8 bytes at its own offset from the context pointer, as the
    /// verifier requires.
    fn context(&mut self, ctx: &Expr, member: ContextMember) -> Lower<Value> {
        let base = match &ctx.kind {
            ExprKind::Load(lvalue) if self.is_context(ctx.ty) => self.read_scalar(lvalue)?,
            _ => return impossible(ctx.span, "a context from here"),
        };
        let offset =
            perf_event_offset(member, self.program.machine.arch).and_then(|at| i16::try_from(at).ok());
        Ok(match offset {
            Some(offset) => self.builder.value(Type::I64, Op::Load { size: Size::DW, base, offset }),
            None => self.builder.constant(Type::I64, 0),
        })
    }

    fn builtin(&mut self, builtin: &KernelBuiltin, expr: &Expr) -> Lower<Value> {
        let helper = match builtin {
            KernelBuiltin::TimeNs => Helper::KtimeGetNs,
            KernelBuiltin::Pid => {
                return Ok(self.builder.call(Type::I32, Callee::TaskId(TaskId::Process), Vec::new()));
            }
            KernelBuiltin::Tid => {
                return Ok(self.builder.call(Type::I32, Callee::TaskId(TaskId::Thread), Vec::new()));
            }
            KernelBuiltin::TaskNumber { task, initial, is_process } => {
                let args = vec![self.scalar(task)?, self.scalar(initial)?];
                let id = if *is_process { TaskId::Process } else { TaskId::Thread };
                return Ok(self.builder.call(Type::I32, Callee::TaskId(id), args));
            }
            KernelBuiltin::Uid => Helper::GetCurrentUidGid,
            KernelBuiltin::Gid => return Ok(self.group_id()),
            KernelBuiltin::Cpu => Helper::GetSmpProcessorId,
            KernelBuiltin::CgroupId => Helper::GetCurrentCgroupId,
            KernelBuiltin::Enumerator { owner, name, value } => {
                return self.enumerator(owner, name, *value, expr);
            }
            KernelBuiltin::VariableAddress { variable, of_cpu } => {
                return self.variable_address(*variable, of_cpu.as_deref());
            }
            KernelBuiltin::Exists(member) => return self.member_exists(member),
            KernelBuiltin::IsRead(operand) => return self.is_readable(operand),
            KernelBuiltin::ContainerOf(member) => return self.container(member),
            KernelBuiltin::CutList => {
                self.count_one(Count::CutList(expr.span));
                return Ok(self.builder.constant(Type::I32, 0));
            }
            KernelBuiltin::Element { pointer, index } => return self.kernel_element(pointer, index),
            _ => return impossible(expr.span, "a value that is not a number"),
        };
        let result = self.builder.call(Type::I64, Callee::Helper(helper), Vec::new());
        let ty = int_type(self.int(expr.ty, expr.span)?);
        Ok(if ty == Type::I32 { self.builder.value(Type::I32, Op::Truncate(result)) } else { result })
    }

    /// The group id of the running task: the upper half of the result of the helper for both ids.
    fn group_id(&mut self) -> Value {
        let both = self.builder.call(Type::I64, Callee::Helper(Helper::GetCurrentUidGid), Vec::new());
        let upper = self.builder.binary_const(BinaryOp::LShr, both, 32);
        self.builder.value(Type::I32, Op::Truncate(upper))
    }
}
