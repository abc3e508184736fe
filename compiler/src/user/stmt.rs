//! Statements.

use wasm_encoder::Instruction as I;

use super::arith::{self, Operands};
use super::code::Label;
use super::cx::Lower;
use super::func::{Addr, FnCx, Home, LoopLabels};
use super::scalar::{convert, push_const, val_type};
use crate::hir::{BinaryOp, Block, Expr, LocalId, Place, Stmt, StmtKind};
use crate::types::{IntType, TypeId};

impl FnCx<'_, '_> {
    /// Lowers a statement; its temporaries are free afterwards.
    pub fn stmt(&mut self, stmt: &Stmt) -> Lower<()> {
        let mark = self.mark();
        match &stmt.kind {
            StmtKind::Let { local, init } => self.let_(*local, init.as_ref())?,
            StmtKind::Bind { local, map, key } => self.bind(*local, *map, key, stmt.span)?,
            StmtKind::Assign { place, value } => self.assign(place, value)?,
            StmtKind::Compound { place, op, value } => self.compound(place, *op, value)?,
            StmtKind::Expr(expr) => self.discard(expr)?,
            StmtKind::If { cond, then, otherwise } => self.if_(cond, then, otherwise)?,
            StmtKind::While { cond, body } => self.while_(cond, body)?,
            StmtKind::For { local, start, end, body } => self.for_(*local, start, end, body)?,
            StmtKind::Break => self.branch(stmt, |labels| labels.leave),
            StmtKind::Continue => self.branch(stmt, |labels| labels.next),
            StmtKind::Return(value) => self.return_(value.as_ref())?,
        }
        self.release(mark);
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Lower<()> {
        block.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn let_(&mut self, local: LocalId, init: Option<&Expr>) -> Lower<()> {
        match (self.homes[local], init) {
            (Home::Scalar(var, _), Some(init)) => {
                self.scalar(init)?;
                self.code.set(var);
            }
            (Home::Scalar(var, int), None) => {
                push_const(&mut self.code, int, 0);
                self.code.set(var);
            }
            // The initialiser cannot mention the variable, so it may be built in place.
            (Home::Memory(addr), Some(init)) => self.aggregate(init, addr)?,
            (Home::Memory(addr), None) => {
                let size = self.cx.hir.types.size(self.function.locals[local].ty);
                self.zero(addr, size);
            }
        }
        self.unbind(local);
        Ok(())
    }

    /// The place's parts are evaluated before the value.
    fn assign(&mut self, place: &Place, value: &Expr) -> Lower<()> {
        let spot = self.spot(place)?;
        if let Some(int) = self.cx.hir.types.scalar(place.ty) {
            let var = self.temp(val_type(int));
            self.scalar(value)?;
            self.code.set(var);
            return self.write_scalar(&spot, int, var, place.span);
        }
        let from = self.aggregate_addr(value)?;
        self.write_aggregate(&spot, place.ty, from, place.span)
    }

    /// The value is evaluated before the place is read, as an atomic addition in the kernel half does.
    fn compound(&mut self, place: &Place, op: BinaryOp, value: &Expr) -> Lower<()> {
        let (stored, int) = (self.int(place.ty), self.int(value.ty));
        let spot = self.spot(place)?;
        let right = self.temp(val_type(int));
        self.scalar(value)?;
        self.code.set(right);
        if self.add_to_slot(&spot, op, (stored, int), right, place.span)? {
            return Ok(());
        }
        let operands = Some(Operands { left: self.temp(val_type(int)), right });
        let result = self.temp(val_type(stored));
        self.update_scalar(&spot, stored, result, place.span, |fcx| {
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

    fn while_(&mut self, cond: &Expr, body: &Block) -> Lower<()> {
        let leave = self.code.block();
        let next = self.code.loop_();
        self.condition(cond)?;
        self.code.op(I::I32Eqz).br_if(leave);
        self.loops.push(LoopLabels { leave, next });
        self.block(body)?;
        self.loops.pop();
        self.code.br(next).end().end();
        Ok(())
    }

    fn for_(&mut self, local: LocalId, start: &Expr, end: &Expr, body: &Block) -> Lower<()> {
        let Home::Scalar(var, int) = self.homes[local] else { panic!("a loop variable is an integer") };
        let last = self.temp(val_type(int));
        self.scalar(start)?;
        self.code.set(var);
        self.scalar(end)?;
        self.code.set(last);
        let leave = self.code.block();
        let again = self.code.loop_();
        self.code.get(var).get(last).op(arith::instruction(BinaryOp::Ge, int)).br_if(leave);
        let next = self.code.block();
        self.loops.push(LoopLabels { leave, next });
        self.block(body)?;
        self.loops.pop();
        // The variable is below the end, so that this does not wrap.
        self.code.end().get(var);
        push_const(&mut self.code, int, 1);
        self.code.op(arith::instruction(BinaryOp::Add, int)).set(var).br(again).end().end();
        Ok(())
    }

    fn branch(&mut self, stmt: &Stmt, which: fn(&LoopLabels) -> Label) {
        let labels = self.loops.last().unwrap_or_else(|| panic!("{:?} stands in a loop", stmt.kind));
        let label = which(labels);
        self.code.br(label);
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
        self.code.leave();
        Ok(())
    }

    /// The integer behind a scalar type.
    pub fn int(&self, ty: TypeId) -> IntType {
        self.cx.hir.types.scalar(ty).expect("the checker lets only scalars here")
    }
}
