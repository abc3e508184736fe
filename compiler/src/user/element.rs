//! Map keys, presence tests, and additions to per-CPU elements.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::{DefinedId, Var};
use super::cx::Lower;
use super::func::FnCx;
use super::lvalue::Storage;
use super::runtime::Routine;
use super::scalar::convert;
use crate::hir::{BinaryOp, Expr, MapId};
use crate::source::Span;
use crate::types::IntType;

/// An index that is out of range for every array kind: the largest size is 2^32-1, so the largest index is
/// smaller.
const ABSENT_INDEX: i32 = -1;
const U32: IntType = IntType { bits: 32, signed: false };

/// An evaluated map key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Address of the key for host calls, in a temporary of this statement.
    addr: Addr,
    /// Local that holds the index of an array map. It is stored at `addr` only when a call needs it.
    pub index: Option<Var>,
}

impl FnCx<'_, '_> {
    /// Evaluates the key of a map element.
    pub fn element_key(&mut self, map: MapId, key: &Expr) -> Lower<Key> {
        if !self.cx.hir.maps[map].has_index() {
            return Ok(Key { addr: self.key(map, key)?, index: None });
        }
        self.array_index(map, key)?;
        Ok(self.index_key())
    }

    /// Returns the key of the only entry of a one-entry map.
    pub fn zero_key(&mut self) -> Key {
        self.code.i32(0);
        self.index_key()
    }

    /// Makes a key of the index on the stack.
    fn index_key(&mut self) -> Key {
        let index = self.temp(ValType::I32);
        self.code.set(index);
        Key { addr: self.slot_bytes(4, 4), index: Some(index) }
    }

    /// Returns the address of a key, for a host call.
    pub fn key_addr(&mut self, key: Key) -> Addr {
        if let Some(index) = key.index {
            self.store_var(U32, key.addr, index);
        }
        key.addr
    }

    /// Evaluates a key into a temporary of this statement, in the layout of the kernel's map.
    pub fn key(&mut self, map: MapId, key: &Expr) -> Lower<Addr> {
        if self.cx.hir.maps[map].has_index() {
            return self.array_key(map, key);
        }
        let slot = self.slot(key.ty);
        match self.cx.hir.types.scalar(key.ty) {
            Some(int) => self.store(int, slot, |fcx| fcx.scalar(key))?,
            None => self.aggregate(key, slot)?,
        }
        Ok(slot)
    }

    /// Evaluates the key of an array kind, which has 4 bytes whatever the script's type.
    fn array_key(&mut self, map: MapId, key: &Expr) -> Lower<Addr> {
        let slot = self.slot_bytes(4, 4);
        self.store(U32, slot, |fcx| fcx.array_index(map, key))?;
        Ok(slot)
    }

    /// Pushes the u32 index of an array kind; a value that does not fit becomes `ABSENT_INDEX`.
    fn array_index(&mut self, map: MapId, key: &Expr) -> Lower<()> {
        let int = self.int(key.ty);
        self.scalar(key)?;
        if int == U32 {
            return Ok(());
        }
        let wide = IntType { bits: 64, signed: int.signed };
        let index = self.temp(ValType::I64);
        convert(&mut self.code, int, wide);
        self.code.tee(index).op(I::I32WrapI64).i32(ABSENT_INDEX);
        // The kernel rounds the size of a stack-trace map up.
        let data = &self.cx.hir.maps[map];
        let end = if data.kind.is_array() { data.max_entries } else { u32::MAX };
        self.code.get(index).i64(end.into()).ops_of([I::I64LtU, I::Select]);
        Ok(())
    }

    /// Pushes whether an entry exists.
    pub fn present(&mut self, map: MapId, key: &Expr, span: Span) -> Lower<()> {
        if self.cx.hir.maps[map].is_of_inner_map(key) {
            let has = self.cx.routine(Routine::MapHasInner(map.into()));
            return self.call_with_key(has, map, key, span);
        }
        let key = self.key(map, key)?;
        let value = self.slot(self.cx.hir.maps[map].value);
        self.lookup(map.into(), key, value, span);
        Ok(())
    }

    /// Lowers `delete m[k]`.
    pub fn remove(&mut self, map: MapId, key: &Expr, span: Span) -> Lower<()> {
        let remove = match self.cx.hir.maps[map].is_of_inner_map(key) {
            true => Routine::MapRemoveInner(map.into()),
            false => Routine::MapRemove(map.into()),
        };
        let remove = self.cx.routine(remove);
        self.call_with_key(remove, map, key, span)
    }

    /// Lowers `m.create(k)`.
    pub fn create_inner(&mut self, map: MapId, key: &Expr, span: Span) -> Lower<()> {
        let create = self.cx.routine(Routine::MapCreateInner(map.into()));
        self.call_with_key(create, map, key, span)
    }

    /// Calls a routine whose operands are the address of a key and the start of a message.
    fn call_with_key(&mut self, routine: DefinedId, map: MapId, key: &Expr, span: Span) -> Lower<()> {
        let key = self.key(map, key)?;
        self.push_addr(key);
        self.push_line(span);
        self.code.call(routine);
        Ok(())
    }

    /// Copies the value of a CPU, a u32 in a local, to an address and pushes whether it exists.
    pub fn slot_of_cpu(&mut self, map: MapId, key: Addr, cpu: Var, to: Addr, span: Span) {
        let slot = self.cx.routine(Routine::MapSlot(map.into()));
        self.push_addr(key);
        self.code.get(cpu);
        self.push_addr(to);
        self.push_line(span);
        self.code.call(slot);
    }

    /// Lowers `m[k] += e` and `-=` of a per-CPU map, which change the value of CPU 0. Returns whether the
    /// statement was one of these. The arithmetic is modular, so its type does not matter as long as it is
    /// not narrower than the value.
    pub fn add_to_slot(
        &mut self,
        storage: &Storage,
        op: BinaryOp,
        (stored, arithmetic): (IntType, IntType),
        value: Var,
        span: Span,
    ) -> Lower<bool> {
        let Storage::Element { map, key, part: None } = *storage else { return Ok(false) };
        let per_cpu = map.is_per_cpu(self.cx.hir);
        let adds = matches!(op, BinaryOp::Add | BinaryOp::Sub) && arithmetic.bits >= stored.bits;
        if !per_cpu || !adds {
            return Ok(false);
        }
        let add = self.cx.routine(Routine::MapAdd(map));
        let key = self.key_addr(key);
        self.push_addr(key);
        if op == BinaryOp::Sub {
            self.code.i64(0);
        }
        self.code.get(value);
        convert(&mut self.code, arithmetic, IntType { bits: 64, signed: arithmetic.signed });
        if op == BinaryOp::Sub {
            self.code.op(I::I64Sub);
        }
        self.push_line(span);
        self.code.call(add);
        Ok(true)
    }
}
