//! Lowering of statements.

use super::addr::Addr;
use super::arith::{self, Operands};
use super::cx::Lower;
use super::expr::mistake;
use super::func::{FnCx, Home};
use super::objects::GivenPointer;
use super::scalar::{convert, push_const, val_type};
use crate::hir::{BinaryOp, Block, Expr, ExprKind, LocalId, Lvalue, Stmt, StmtKind};
use crate::types::{IntType, TypeId};

impl FnCx<'_, '_> {
    /// Lowers a statement and releases its temporaries.
    pub fn stmt(&mut self, stmt: &Stmt) -> Lower<()> {
        let mark = self.mark();
        let before = self.code.at(stmt.span);
        match &stmt.kind {
            StmtKind::Let { local, init } => self.let_(*local, init.as_ref())?,
            StmtKind::Bind { local, map, key } => self.bind(*local, *map, key, stmt.span)?,
            StmtKind::Assign { lvalue, value } => self.assign(lvalue, value)?,
            StmtKind::Compound { lvalue, op, value } => self.compound(lvalue, *op, value)?,
            StmtKind::Expr(expr) => self.discard(expr)?,
            StmtKind::If { cond, then, otherwise } => self.if_(cond, then, otherwise)?,
            StmtKind::While { cond, body } => self.unswitched(stmt, |fcx| fcx.while_(cond, body))?,
            StmtKind::For { local, start, end, body } => {
                self.unswitched(stmt, |fcx| fcx.for_(*local, start, end, body))?;
            }
            StmtKind::Break => self.branch(stmt, |labels| labels.leave),
            StmtKind::Continue => self.branch(stmt, |labels| labels.next),
            StmtKind::Return(value) => self.return_(value.as_ref())?,
            StmtKind::ForEach { key, value, iteration, body } => {
                self.unswitched(stmt, |fcx| fcx.for_each((*key, *value), iteration, body, stmt.span))?;
            }
            StmtKind::Remove { map, key } => self.remove(*map, key, stmt.span)?,
            StmtKind::Free(pointer) => self.free(pointer)?,
            StmtKind::Give { local, map, key, copied } => {
                let given = if *copied { GivenPointer::Copied } else { GivenPointer::Only };
                self.give(*local, *map, key, given)?;
            }
            StmtKind::Release(_) => return Err(mistake(stmt.span, "userspace gives nothing back to a map")),
            StmtKind::Lock { .. } => return Err(mistake(stmt.span, "userspace locks nothing")),
            StmtKind::Try { body, catches } => self.try_(body, catches)?,
            StmtKind::Throw(code) => self.throw(code, stmt.span)?,
            StmtKind::Defer(call) => self.defer(call)?,
            StmtKind::Take { local, map, op } => self.take(*local, *map, *op, stmt.span),
        }
        self.code.back_at(before);
        self.release(mark);
        Ok(())
    }

    /// Lowers the statements of a block.
    pub fn block(&mut self, block: &Block) -> Lower<()> {
        block.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn let_(&mut self, local: LocalId, init: Option<&Expr>) -> Lower<()> {
        let ty = self.function.locals[local].ty;
        if let Some(int) = self.cx.hir.types.scalar(ty) {
            return self.put(local, |fcx| match init {
                Some(init) => fcx.scalar(init),
                None => {
                    push_const(&mut fcx.code, int, 0);
                    Ok(())
                }
            });
        }
        let Home::Memory(addr) = self.homes[local] else {
            panic!("a local that is not a scalar is in memory")
        };
        match init {
            // A pointer from an earlier iteration may refer to the variable.
            Some(init) if self.addressed.contains(&local) => {
                let from = self.aggregate_addr(init)?;
                self.put_aggregate(local, from);
            }
            // Otherwise the initialiser cannot refer to the variable, so it may be built in place.
            Some(init) => self.aggregate(init, addr)?,
            None => {
                let size = self.cx.hir.types.size(ty);
                self.zero(addr, size);
            }
        }
        self.unbind(local);
        Ok(())
    }

    /// Evaluates the keys and indices of the lvalue before the value.
    fn assign(&mut self, lvalue: &Lvalue, value: &Expr) -> Lower<()> {
        if let ExprKind::Event(spec) = &value.kind {
            return self.assign_event(lvalue, spec);
        }
        let storage = self.storage(lvalue)?;
        if let Some(int) = self.cx.hir.types.scalar(lvalue.ty) {
            let var = self.temp(val_type(int));
            self.scalar(value)?;
            self.code.set(var);
            return self.write_scalar(&storage, int, var, lvalue.span);
        }
        let from = self.aggregate_addr(value)?;
        self.write_aggregate(&storage, lvalue.ty, from, lvalue.span)
    }

    /// Evaluates the value before the lvalue is read, as an atomic addition in the kernel half does.
    fn compound(&mut self, lvalue: &Lvalue, op: BinaryOp, value: &Expr) -> Lower<()> {
        let (stored, int) = (self.int(lvalue.ty), self.int(value.ty));
        let storage = self.storage(lvalue)?;
        let right = self.temp(val_type(int));
        self.scalar(value)?;
        self.code.set(right);
        if self.add_to_slot(&storage, op, (stored, int), right, lvalue.span)? {
            return Ok(());
        }
        let operands = Some(Operands { left: self.temp(val_type(int)), right });
        let result = self.temp(val_type(stored));
        self.update_scalar(&storage, stored, result, lvalue.span, |fcx| {
            convert(&mut fcx.code, stored, int);
            fcx.code.get(right);
            arith::binary(&mut fcx.code, op, int, operands);
            convert(&mut fcx.code, int, stored);
        })
    }

    fn if_(&mut self, cond: &Expr, then: &Block, otherwise: &Block) -> Lower<()> {
        self.condition(cond)?;
        self.code.if_();
        self.block(then)?;
        if !otherwise.is_empty() {
            self.code.else_();
            self.block(otherwise)?;
        }
        self.code.end();
        Ok(())
    }

    fn return_(&mut self, value: Option<&Expr>) -> Lower<()> {
        match (value, self.result) {
            (None, _) => {}
            (Some(value), None) => self.scalar(value)?,
            (Some(value), Some(result)) => {
                // The caller's memory is not reachable from here, so the result may be built in place.
                self.aggregate(value, Addr::of(result))?;
            }
        }
        self.leave();
        Ok(())
    }

    /// Returns the integer type that represents a scalar type.
    pub fn int(&self, ty: TypeId) -> IntType {
        self.cx.hir.types.scalar(ty).expect("the checker lets only scalars here")
    }
}
