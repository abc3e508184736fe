//! Pointers into the plugin's memory, and functions as values.
//!
//! Both are 64-bit numbers, as in the kernel half. A pointer is an address in linear memory; a function value
//! is the function's position in the module's table. 0 is null.

use std::collections::BTreeSet;

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::cx::Lower;
use super::expr::mistake;
use super::func::FnCx;
use super::lvalue::Storage;
use super::memory::{PAGE, STACK_BOTTOM};
use super::runtime::Routine;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, FuncId, HirFunction, LocalId, Lvalue, LvalueKind};
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::{StructOrigin, TypeId, TypeKind};

/// Returns the locals whose address is taken; they are stored in memory.
pub fn with_address(function: &HirFunction) -> BTreeSet<LocalId> {
    struct Taken(BTreeSet<LocalId>);
    impl Visitor for Taken {
        fn expr(&mut self, expr: &Expr) {
            if let ExprKind::AddrOf(lvalue) = &expr.kind {
                self.0.extend(root(lvalue));
            }
        }
    }
    let mut taken = Taken(BTreeSet::new());
    visit::block(&mut taken, &function.body);
    taken.0
}

/// Returns the local that an lvalue is a part of.
fn root(lvalue: &Lvalue) -> Option<LocalId> {
    match &lvalue.kind {
        LvalueKind::Local(id) => Some(*id),
        LvalueKind::Field { base, .. } | LvalueKind::Index { base, .. } => root(base),
        _ => None,
    }
}

impl FnCx<'_, '_> {
    /// Returns the address of a pointee of type `ty`. A pointer outside the memory ends the plugin.
    pub fn pointee(&mut self, pointer: &Expr, ty: TypeId) -> Lower<Addr> {
        if let TypeKind::Struct(id) = self.cx.hir.types.kind(ty)
            && matches!(
                self.cx.hir.types.struct_def(*id).origin,
                StructOrigin::Context | StructOrigin::Kernel
            )
        {
            return Err(mistake(pointer.span, "a userspace function follows a pointer of the kernel half"));
        }
        let size = self.cx.hir.types.size(ty);
        let value = self.temp(ValType::I64);
        let base = self.temp(ValType::I32);
        self.scalar(pointer)?;
        let bottom = i64::from(STACK_BOTTOM);
        self.code.tee(value).i64(bottom).op(I::I64Sub);
        self.code.ops_of([I::MemorySize(0), I::I64ExtendI32U]).i64(i64::from(PAGE)).op(I::I64Mul);
        self.code.i64(bottom + size as i64).ops_of([I::I64Sub, I::I64GtU]).if_();
        let location = self.cx.text(self.cx.location_prefix(pointer.span));
        let abort = self.cx.routine(Routine::AbortPointer);
        self.code.get(value);
        self.push_text(location);
        self.code.call(abort).op(I::Unreachable).end();
        self.code.get(value).op(I::I32WrapI64).set(base);
        Ok(Addr::of(base))
    }

    /// Pushes the address of an lvalue.
    pub fn address_of(&mut self, lvalue: &Lvalue) -> Lower<()> {
        if let LvalueKind::Deref(pointer) = &lvalue.kind {
            return self.scalar(pointer);
        }
        match self.storage(lvalue)? {
            Storage::Memory(addr) | Storage::Bound { addr, .. } => self.push_addr(addr),
            Storage::Element { map, key, part: None } => {
                let key = self.key_addr(key);
                self.entry_address(map, key, lvalue.span);
            }
            Storage::Local(..)
            | Storage::Variable { .. }
            | Storage::Element { .. }
            | Storage::Object { .. } => {
                return Err(mistake(lvalue.span, "the address is taken of what has none"));
            }
        }
        self.code.op(I::I64ExtendI32U);
        Ok(())
    }

    /// Pushes a pointer advanced by `count` elements.
    pub fn offset(&mut self, pointer: &Expr, count: &Expr) -> Lower<()> {
        let TypeKind::Ptr(to) = *self.cx.hir.types.kind(pointer.ty) else {
            panic!("what is moved is a pointer")
        };
        let size = self.cx.hir.types.size(to).max(1);
        self.scalar(pointer)?;
        self.scalar(count)?;
        if size > 1 {
            self.code.i64(size as i64).op(I::I64Mul);
        }
        self.code.op(I::I64Add);
        Ok(())
    }

    /// Pushes the table position of a function.
    pub fn function_value(&mut self, func: FuncId) {
        let function = self.cx.function(func);
        let position = self.cx.module.table_position(function);
        self.code.i64(position.into());
    }

    /// Calls through a function value. The address of an aggregate result must be on the stack already.
    pub fn call_value(&mut self, callee: &Expr, args: &[Expr], span: Span) -> Lower<()> {
        let TypeKind::Fn(params, ret) = self.cx.hir.types.kind(callee.ty) else {
            panic!("what is called has a function's type")
        };
        let (params, results) = self.cx.core_signature(params, *ret);
        let call = self.cx.module.call_indirect(&params, &results);
        let value = self.temp(ValType::I64);
        self.scalar(callee)?;
        self.code.set(value);
        self.arguments(args)?;
        self.code.get(value).op(I::I64Eqz).if_();
        let text = self
            .cx
            .text(format!("{}KS-TRAP null: this function value is null", self.cx.location_prefix(span)));
        let abort = self.cx.host(import::console::ABORT);
        self.push_text(text);
        self.code.call(abort).op(I::Unreachable).end();
        self.code.get(value).op(I::I32WrapI64).op(call);
        self.check_thrown_value();
        Ok(())
    }

    /// Pushes a pointer to a new zeroed object.
    pub fn new_object(&mut self, ty: TypeId, span: Span) {
        let TypeKind::Ptr(to) = *self.cx.hir.types.kind(ty) else { panic!("`new` gives a pointer") };
        let size = self.cx.hir.types.size(to) as u32;
        self.allocate(size, span);
        self.code.op(I::I64ExtendI32U);
    }

    /// Lowers `delete p`.
    pub fn free(&mut self, pointer: &Expr) -> Lower<()> {
        let free = self.cx.routine(Routine::Free);
        let location = self.cx.text(self.cx.location_prefix(pointer.span));
        self.scalar(pointer)?;
        self.push_text(location);
        self.code.call(free);
        Ok(())
    }
}
