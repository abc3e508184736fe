//! Queues, stacks and bloom filters in functions of the script.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::cx::Lower;
use super::func::{FnCx, Home};
use super::runtime::Routine;
use crate::hir::{Expr, LocalId, MapId, TakeOp};
use crate::source::Span;

impl FnCx<'_, '_> {
    /// Lowers `q.push(v)` and `b.add(v)`: pushes 0 or errno.
    pub fn push_value(&mut self, map: MapId, value: &Expr, span: Span) -> Lower<()> {
        let push = self.cx.routine(Routine::MapPush(map.into()));
        self.with_value(value, span)?;
        self.code.call(push);
        Ok(())
    }

    /// Lowers `b.has(v)`: pushes a bool.
    pub fn has_value(&mut self, map: MapId, value: &Expr, span: Span) -> Lower<()> {
        let has = self.cx.routine(Routine::MapHas(map.into()));
        self.with_value(value, span)?;
        self.code.call(has);
        Ok(())
    }

    /// Pushes the address of a value and the source line.
    fn with_value(&mut self, value: &Expr, span: Span) -> Lower<()> {
        let slot = self.slot(value.ty);
        match self.cx.hir.types.scalar(value.ty) {
            Some(int) => self.store(int, slot, |fcx| fcx.scalar(value))?,
            None => self.aggregate(value, slot)?,
        }
        self.push_addr(slot);
        self.push_line(span);
        Ok(())
    }

    /// Takes a value of `q.pop()` or `q.peek()` into memory, zero if the map is empty; pushes whether there
    /// was one.
    pub fn take_into(&mut self, map: MapId, op: TakeOp, to: Addr, span: Span) {
        match op {
            TakeOp::Pop => {
                let take = self.cx.routine(Routine::MapTake(map.into()));
                self.push_addr(to);
                self.push_line(span);
                self.code.call(take);
            }
            TakeOp::Peek => self.lookup(map.into(), to, to, span),
        }
    }

    /// Pushes the scalar value of `q.pop()` or `q.peek()`.
    pub fn take_scalar(&mut self, map: MapId, op: TakeOp, span: Span) {
        let ty = self.cx.hir.maps[map].value;
        let slot = self.slot(ty);
        self.take_into(map, op, slot, span);
        self.code.op(I::Drop);
        self.load(self.int(ty), slot);
    }

    /// Pushes whether `q.pop()` or `q.peek()` returns a value.
    pub fn taken(&mut self, map: MapId, op: TakeOp, span: Span) {
        let slot = self.slot(self.cx.hir.maps[map].value);
        self.take_into(map, op, slot, span);
    }

    /// Lowers `local = q.pop()` with a presence bit.
    pub fn take(&mut self, local: LocalId, map: MapId, op: TakeOp, span: Span) {
        let present = self.temp(ValType::I32);
        match self.homes[local] {
            Home::Scalar(var, int) => {
                let slot = self.slot(self.function.locals[local].ty);
                self.take_into(map, op, slot, span);
                self.code.set(present);
                self.load(int, slot);
                self.code.set(var);
            }
            Home::Memory(addr) => {
                self.take_into(map, op, addr, span);
                self.code.set(present);
            }
        }
        self.unbind(local);
        self.code.get(present);
        self.set_present(local);
    }
}
