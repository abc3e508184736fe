//! Lowering of `while` and `for`.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::arith;
use super::code::{Label, Var};
use super::cx::Lower;
use super::func::{FnCx, Home, LoopLabels};
use super::maps::{self, Table};
use super::runtime::Routine;
use super::scalar::{convert, push_const, val_type};
use crate::hir::{BinaryOp, Block, Expr, LocalId, Lvalue, MapId, MapIteration, Stmt};
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::{IntType, TypeKind};

/// Bytes of map entries fetched per call, unless one entry is larger.
const BATCH: u32 = 2048;
const U32: IntType = IntType { bits: 32, signed: false };

impl FnCx<'_, '_> {
    /// Lowers a `while` loop.
    pub fn while_(&mut self, cond: &Expr, body: &Block) -> Lower<()> {
        let leave = self.code.block();
        let next = self.code.loop_();
        for _ in 0..self.copies(body) {
            self.condition(cond)?;
            self.code.op(I::I32Eqz).br_if(leave);
            self.loop_body(LoopLabels { leave, next }, body)?;
        }
        self.code.br(next).end().end();
        Ok(())
    }

    /// Lowers `for (local in start..end)`.
    pub fn for_(&mut self, local: LocalId, start: &Expr, end: &Expr, body: &Block) -> Lower<()> {
        let int = self.int(self.function.locals[local].ty);
        let (var, memory) = match self.homes[local] {
            Home::Scalar(var, _) => (var, None),
            Home::Memory(addr) => (self.temp(val_type(int)), Some(addr)),
        };
        let last = self.temp(val_type(int));
        self.scalar(start)?;
        self.code.set(var);
        self.scalar(end)?;
        self.code.set(last);
        let leave = self.code.block();
        let again = self.code.loop_();
        for _ in 0..self.copies(body) {
            self.code.get(var).get(last).op(arith::instruction(BinaryOp::Ge, int)).br_if(leave);
            if let Some(addr) = memory {
                self.store_var(int, addr, var);
            }
            let next = self.code.block();
            self.loop_body(LoopLabels { leave, next }, body)?;
            // The variable is less than the end, so this does not wrap.
            self.code.end().get(var);
            push_const(&mut self.code, int, 1);
            self.code.op(arith::instruction(BinaryOp::Add, int)).set(var);
        }
        self.code.br(again).end().end();
        Ok(())
    }

    /// Lowers `for (key, value in ..)` over a map, an array or CPUs.
    pub fn for_each(
        &mut self,
        (key, value): (LocalId, LocalId),
        iteration: &MapIteration,
        body: &Block,
        span: Span,
    ) -> Lower<()> {
        match iteration {
            MapIteration::Array(array) => self.for_array(key, value, array, body),
            MapIteration::PerCpu { map, key: entry } => self.for_cpus((key, value), *map, entry, body, span),
            MapIteration::Map(map) => self.for_entries((key, value), *map, body, span),
        }
    }

    /// Each element is read at the start of its iteration.
    fn for_array(&mut self, key: LocalId, value: LocalId, array: &Lvalue, body: &Block) -> Lower<()> {
        let TypeKind::Array(element, len) = *self.cx.hir.types.kind(array.ty) else {
            panic!("what is walked is an array")
        };
        let size = self.cx.hir.types.size(element);
        let storage = self.storage(array)?;
        let bytes = self.temp(ValType::I32);
        self.counted(
            key,
            |fcx, at, leave| {
                fcx.code.get(at).u32(len as u32).op(I::I32GeU).br_if(leave);
                fcx.code.get(at).u32(size as u32).op(I::I32Mul).set(bytes);
                let element_storage = fcx.element_at(storage, bytes);
                match fcx.cx.hir.types.scalar(element) {
                    Some(int) => fcx.put(value, |fcx| {
                        fcx.read_scalar(&element_storage, int, array.span);
                        Ok(())
                    }),
                    None => {
                        let from = fcx.read_aggregate(&element_storage, array.span);
                        fcx.put_aggregate(value, from);
                        Ok(())
                    }
                }
            },
            body,
        )
    }

    /// Entries are fetched in batches into the stack frame; the cursor is dropped at every exit of the loop.
    fn for_entries(
        &mut self,
        (key, value): (LocalId, LocalId),
        map: MapId,
        body: &Block,
        span: Span,
    ) -> Lower<()> {
        let table = Table::from(map);
        let key_bytes = maps::key_size(self.cx, table);
        let keys_alone = table.iterates_keys(self.cx.hir);
        let entry = key_bytes + if keys_alone { 0 } else { maps::value_size(self.cx, table) };
        let room = BATCH.max(entry);
        let buffer = self.slot_bytes(room.into(), 8);
        let (iteration, next) =
            (self.cx.routine(Routine::MapCursor(table)), self.cx.routine(Routine::MapNext));
        let drop_cursor = self.cx.drop_handle(import::maps::CURSOR);
        let [cursor, at, end] = [(); 3].map(|()| self.temp(ValType::I32));
        self.push_line(span);
        self.code.call(iteration).set(cursor);
        self.cursors.push(cursor);
        let leave = self.code.block();
        let batch = self.code.loop_();
        self.code.get(cursor);
        self.push_addr(buffer);
        self.code.u32(room);
        self.push_line(span);
        self.code.call(next).tee(end).op(I::I32Eqz).br_if(leave);
        self.push_addr(buffer);
        self.code.tee(at).get(end).op(I::I32Add).set(end);
        let empty = self.code.block();
        let again = self.code.loop_();
        self.code.get(at).get(end).op(I::I32GeU).br_if(empty);
        let found = self.set_entry((key, value), map, Addr::of(at), key_bytes, span)?;
        self.code.get_plus(at, entry).set(at);
        let next_iteration = self.code.block();
        if let Some(found) = found {
            self.code.get(found).op(I::I32Eqz).br_if(next_iteration);
        }
        self.loop_body(LoopLabels { leave, next: next_iteration }, body)?;
        self.code.end().br(again).end().end().br(batch).end().end();
        self.cursors.pop();
        self.code.get(cursor).if_();
        self.code.get(cursor).call(drop_cursor).end();
        Ok(())
    }

    /// Sets the loop's variables from an entry. If its value is looked up separately, returns whether it still exists.
    fn set_entry(
        &mut self,
        (key, value): (LocalId, LocalId),
        map: MapId,
        entry: Addr,
        key_bytes: u32,
        span: Span,
    ) -> Lower<Option<Var>> {
        let data = &self.cx.hir.maps[map];
        let index = data.has_index().then_some(U32);
        match self.cx.hir.types.scalar(data.key) {
            Some(int) => self.put(key, |fcx| {
                fcx.load(index.unwrap_or(int), entry);
                convert(&mut fcx.code, index.unwrap_or(int), int);
                Ok(())
            })?,
            None => self.put_aggregate(key, entry),
        }
        let mut from = entry.plus(key_bytes);
        let mut found = None;
        if Table::from(map).iterates_keys(self.cx.hir) {
            from = self.slot(data.value);
            let there = self.temp(ValType::I32);
            self.lookup(map.into(), entry, from, span);
            self.code.set(there);
            found = Some(there);
        }
        match self.cx.hir.types.scalar(data.value) {
            Some(int) => self.put(value, |fcx| {
                fcx.load(int, from);
                Ok(())
            })?,
            None => self.put_aggregate(value, from),
        }
        Ok(found)
    }

    /// Each CPU's value is read at the start of its iteration; the loop ends at the first CPU that has none.
    fn for_cpus(
        &mut self,
        (key, value): (LocalId, LocalId),
        map: MapId,
        entry: &Expr,
        body: &Block,
        span: Span,
    ) -> Lower<()> {
        let entry = self.key(map, entry)?;
        let ty = self.cx.hir.maps[map].value;
        let slot = self.slot(ty);
        self.counted(
            key,
            |fcx, at, leave| {
                fcx.slot_of_cpu(map, entry, at, slot, span);
                fcx.code.op(I::I32Eqz).br_if(leave);
                match fcx.cx.hir.types.scalar(ty) {
                    Some(int) => fcx.put(value, |fcx| {
                        fcx.load(int, slot);
                        Ok(())
                    }),
                    None => {
                        fcx.put_aggregate(value, slot);
                        Ok(())
                    }
                }
            },
            body,
        )
    }

    /// Lowers a loop that counts from 0. `begin` receives the counter and the exit label.
    fn counted(
        &mut self,
        key: LocalId,
        begin: impl FnOnce(&mut Self, Var, Label) -> Lower<()>,
        body: &Block,
    ) -> Lower<()> {
        let at = self.temp(ValType::I32);
        let key_int = self.int(self.function.locals[key].ty);
        self.code.i32(0).set(at);
        let leave = self.code.block();
        let again = self.code.loop_();
        begin(self, at, leave)?;
        self.put(key, |fcx| {
            fcx.code.get(at);
            convert(&mut fcx.code, U32, key_int);
            Ok(())
        })?;
        let next = self.code.block();
        self.loop_body(LoopLabels { leave, next }, body)?;
        self.code.end().get(at).i32(1).op(I::I32Add).set(at).br(again).end().end();
        Ok(())
    }

    fn loop_body(&mut self, labels: LoopLabels, body: &Block) -> Lower<()> {
        self.loops.push(labels);
        self.block(body)?;
        self.loops.pop();
        Ok(())
    }

    /// Lowers `break` or `continue`.
    pub fn branch(&mut self, stmt: &Stmt, which: fn(&LoopLabels) -> Label) {
        let labels = self.loops.last().unwrap_or_else(|| panic!("{:?} stands in a loop", stmt.kind));
        let label = which(labels);
        self.code.br(label);
    }
}
