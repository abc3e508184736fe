//! Expressions of scalar type.

use wasm_encoder::{Instruction as I, ValType};

use super::arith::{self, Operands};
use super::code::mem;
use super::cx::Lower;
use super::func::FnCx;
use super::runtime::Routine;
use super::scalar::{convert, is_not_zero, is_wide, normalise, push_const, val_type};
use crate::builtins::perf::attachment;
use crate::diag::Diagnostic;
use crate::hir::{BinaryOp, Expr, ExprKind, FuncId, LogicOp, SharedBuiltin, UnaryOp};
use crate::source::Span;
use crate::types::{IntType, TypeKind};

impl FnCx<'_, '_> {
    /// Pushes the value of an expression; pushes nothing if it is void.
    pub fn scalar(&mut self, expr: &Expr) -> Lower<()> {
        let before = self.code.at(expr.span);
        self.scalar_value(expr)?;
        self.code.back_at(before);
        Ok(())
    }

    fn scalar_value(&mut self, expr: &Expr) -> Lower<()> {
        match &expr.kind {
            ExprKind::Const(bits) => {
                let int = self.int(expr.ty);
                push_const(&mut self.code, int, *bits);
            }
            ExprKind::Load(lvalue) => self.read_lvalue(lvalue)?,
            ExprKind::Unary(op, operand) => self.unary(*op, operand)?,
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right)?,
            ExprKind::Logic(op, left, right) => self.logic(*op, left, right)?,
            ExprKind::Convert(operand) => self.convert(expr, operand)?,
            ExprKind::Truth(operand) => self.truth(operand)?,
            ExprKind::Present { map, key } => self.present(*map, key, expr.span)?,
            ExprKind::Bound(local) => self.push_present(*local),
            ExprKind::IsNull(operand) => self.is_null(operand)?,
            ExprKind::Call { func, args } => self.call(*func, args)?,
            ExprKind::CallValue { callee, args } => self.call_value(callee, args, expr.span)?,
            ExprKind::Function(func) => self.function_value(*func),
            ExprKind::AddrOf(lvalue) => self.address_of(lvalue)?,
            ExprKind::Offset(pointer, count) => self.offset(pointer, count)?,
            ExprKind::Distance(left, right) => {
                self.scalar(left)?;
                self.scalar(right)?;
                self.code.op(I::I64Sub);
            }
            ExprKind::New => self.new_object(expr.ty, expr.span),
            ExprKind::Take { map, op } => self.take_scalar(*map, *op, expr.span),
            ExprKind::Taken { map, op } => self.taken(*map, *op, expr.span),
            ExprKind::Match(one) => self.match_scalar(one, expr)?,
            ExprKind::Shared(builtin) => self.shared(builtin, expr)?,
            ExprKind::User(builtin) => self.user_scalar(builtin, expr.span)?,
            ExprKind::Bytes(_) | ExprKind::Struct(_) | ExprKind::Array(_) | ExprKind::Repeat(_) => {
                return Err(mistake(expr.span, "a value in memory is wanted as a number"));
            }
            ExprKind::Context { .. }
            | ExprKind::Kernel(_)
            | ExprKind::CallExtern { .. }
            | ExprKind::TailCall(_) => {
                return Err(mistake(expr.span, "a userspace function uses what only the kernel half has"));
            }
            ExprKind::Concat(..) | ExprKind::Event(_) => {
                return Err(mistake(expr.span, "a value of several parts is wanted as a number"));
            }
        }
        Ok(())
    }

    fn shared(&mut self, builtin: &SharedBuiltin, expr: &Expr) -> Lower<()> {
        match builtin {
            SharedBuiltin::Print { format, args } => self.print(format, args),
            SharedBuiltin::Len(text) => self.len(text),
            SharedBuiltin::SwapBytes(value) => self.swap_bytes(value),
            SharedBuiltin::Ratio(args) => self.ratio(args),
            SharedBuiltin::Log2Slot(value) => self.log2_slot(value),
            SharedBuiltin::LinearSlot(args) => self.linear_slot(args),
            SharedBuiltin::Rate(args) => self.rate(args),
            SharedBuiltin::Push(map, value) | SharedBuiltin::Add(map, value) => {
                self.push_value(*map, value, expr.span)
            }
            SharedBuiltin::Has(map, value) => self.has_value(*map, value, expr.span),
            SharedBuiltin::Display { .. } => {
                Err(mistake(expr.span, "a value in memory is wanted as a number"))
            }
        }
    }

    /// Lowers `len(s)`: pushes the length in bytes.
    fn len(&mut self, text: &Expr) -> Lower<()> {
        let length = self.cx.routine(Routine::TextLength);
        let size = self.cx.hir.types.size(text.ty) as u32;
        let addr = self.aggregate_addr(text)?;
        self.push_addr(addr);
        self.code.u32(size).call(length);
        Ok(())
    }

    /// Pushes a condition as an i32 for a branch.
    pub fn condition(&mut self, expr: &Expr) -> Lower<()> {
        let mark = self.mark();
        self.scalar(expr)?;
        self.release(mark);
        Ok(())
    }

    /// Evaluates an expression for its side effects.
    pub fn discard(&mut self, expr: &Expr) -> Lower<()> {
        let types = &self.cx.hir.types;
        if expr.ty == types.common().void {
            return self.scalar(expr);
        }
        if types.scalar(expr.ty).is_some() {
            self.scalar(expr)?;
            self.code.op(I::Drop);
            return Ok(());
        }
        self.aggregate_addr(expr).map(|_| ())
    }

    /// Calls a function of the script with its arguments. The address of an aggregate result must be on the
    /// stack already.
    pub fn call(&mut self, func: FuncId, args: &[Expr]) -> Lower<()> {
        self.arguments(args)?;
        let callee = self.cx.function(func);
        self.code.call(callee);
        self.check_thrown(func);
        Ok(())
    }

    /// Pushes the arguments of a call, in order.
    pub fn arguments(&mut self, args: &[Expr]) -> Lower<()> {
        for arg in args {
            if self.cx.hir.types.scalar(arg.ty).is_some() {
                self.scalar(arg)?;
            } else {
                // The callee owns its parameters, so it gets a copy.
                let slot = self.slot(arg.ty);
                self.aggregate(arg, slot)?;
                self.push_addr(slot);
            }
        }
        Ok(())
    }

    fn unary(&mut self, op: UnaryOp, operand: &Expr) -> Lower<()> {
        let int = self.int(operand.ty);
        match op {
            UnaryOp::Not => {
                self.scalar(operand)?;
                self.code.op(I::I32Eqz);
            }
            UnaryOp::Neg => {
                push_const(&mut self.code, int, 0);
                self.scalar(operand)?;
                self.code.op(arith::instruction(BinaryOp::Sub, int));
                normalise(&mut self.code, int);
            }
            UnaryOp::BitNot => {
                self.scalar(operand)?;
                push_const(&mut self.code, int, u64::MAX);
                self.code.op(arith::instruction(BinaryOp::Xor, int));
                normalise(&mut self.code, int);
            }
        }
        Ok(())
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Lower<()> {
        let Some(int) = self.cx.hir.types.scalar(left.ty) else {
            return self.compare_texts(op, left, right);
        };
        self.scalar(left)?;
        self.scalar(right)?;
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) {
            self.amount_like(int, right);
        }
        let ty = val_type(int);
        let operands = matches!(op, BinaryOp::Div | BinaryOp::Rem)
            .then(|| Operands { left: self.temp(ty), right: self.temp(ty) });
        arith::binary(&mut self.code, op, int, operands);
        Ok(())
    }

    /// Converts a shift amount to the width of the shifted value. Only its low bits count, and each type has
    /// at least 8.
    fn amount_like(&mut self, int: IntType, amount: &Expr) {
        match (is_wide(self.int(amount.ty)), is_wide(int)) {
            (false, true) => self.code.op(I::I64ExtendI32U),
            (true, false) => self.code.op(I::I32WrapI64),
            _ => &mut self.code,
        };
    }

    fn compare_texts(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Lower<()> {
        let equal = self.cx.routine(Routine::TextEqual);
        let a = self.stable_addr(left, std::slice::from_ref(right))?;
        let b = self.aggregate_addr(right)?;
        let size = |expr: &Expr| self.cx.hir.types.size(expr.ty) as u32;
        let (a_size, b_size) = (size(left), size(right));
        self.push_addr(a);
        self.code.u32(a_size);
        self.push_addr(b);
        self.code.u32(b_size).call(equal);
        if op == BinaryOp::Ne {
            self.code.op(I::I32Eqz);
        }
        Ok(())
    }

    fn logic(&mut self, op: LogicOp, left: &Expr, right: &Expr) -> Lower<()> {
        self.scalar(left)?;
        self.code.if_value(ValType::I32);
        match op {
            LogicOp::And => {
                self.scalar(right)?;
                self.code.else_().i32(0).end();
            }
            LogicOp::Or => {
                self.code.i32(1).else_();
                self.scalar(right)?;
                self.code.end();
            }
        }
        Ok(())
    }

    fn convert(&mut self, expr: &Expr, operand: &Expr) -> Lower<()> {
        let Some(from) = self.cx.hir.types.scalar(operand.ty) else {
            return Err(mistake(expr.span, "a number is made of what is none"));
        };
        self.scalar(operand)?;
        let to = self.int(expr.ty);
        convert(&mut self.code, from, to);
        Ok(())
    }

    fn truth(&mut self, operand: &Expr) -> Lower<()> {
        match self.cx.hir.types.scalar(operand.ty) {
            Some(int) => {
                self.scalar(operand)?;
                is_not_zero(&mut self.code, int);
            }
            None => {
                let text = self.aggregate_addr(operand)?;
                self.load(IntType { bits: 8, signed: false }, text);
                self.code.i32(0).op(I::I32Ne);
            }
        }
        Ok(())
    }

    fn is_null(&mut self, operand: &Expr) -> Lower<()> {
        if let Some(int) = self.cx.hir.types.scalar(operand.ty) {
            self.scalar(operand)?;
            self.code.op(if is_wide(int) { I::I64Eqz } else { I::I32Eqz });
            return Ok(());
        }
        let TypeKind::Struct(id) = *self.cx.hir.types.kind(operand.ty) else {
            return Err(mistake(operand.span, "a value that is never null is compared with null"));
        };
        let offset = self.cx.hir.types.field_offset(id, attachment::PERF_FD) as u32;
        let addr = self.aggregate_addr(operand)?;
        self.push_addr(addr);
        self.code.op(I::I32Load(mem(offset))).i32(0).op(I::I32LtS);
        Ok(())
    }
}

/// Internal error: a construct that the front end rejects.
pub fn mistake(span: Span, what: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::mistake(span, what))
}
