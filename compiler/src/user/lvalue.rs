//! Lvalues: locations that can be read and written.
//!
//! An lvalue is first lowered to a [`Storage`], which evaluates its keys and indices once, from left to
//! right. The storage is then read, written, or both.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::Var;
use super::cx::{GlobalHome, Lower};
use super::element::Key;
use super::func::{FnCx, Home};
use super::maps::Table;
use super::objects;
use super::runtime::Routine;
use super::scalar::{convert, is_wide, push_const, val_type};
use crate::hir::{Expr, ExprKind, GlobalId, LocalId, Lvalue, LvalueKind};
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::{IntType, TypeId, TypeKind};

/// Integer type of the contract's scalar variables.
const U64: IntType = IntType { bits: 64, signed: false };

/// An lvalue whose keys and indices are evaluated.
#[derive(Debug, Clone, Copy)]
pub enum Storage {
    /// A scalar local, in a Wasm local.
    Local(LocalId, Var),
    /// Private memory of the plugin, not bound to a map.
    Memory(Addr),
    /// The pointee, or a part of it, of a pointer that may point into a map. The pointer is in the local
    /// `base`.
    Object { base: Var, addr: Addr },
    /// A local in memory that may be bound to a map element, or a part of it.
    Bound { local: LocalId, addr: Addr, part: bool },
    /// A variable of the BPF object, or a part of it.
    Variable { id: GlobalId, part: Option<Part> },
    /// A map element, or a part of it.
    Element { map: Table, key: Key, part: Option<Part> },
}

/// A part of an object outside the plugin's memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    /// Constant offset from the start, in bytes.
    pub offset: u32,
    /// Local that holds a further offset in bytes.
    pub dynamic: Option<Var>,
}

/// Byte offset of an array element.
enum Bytes {
    Constant(u32),
    Dynamic(Var),
}

impl FnCx<'_, '_> {
    /// Evaluates the keys and indices of an lvalue.
    pub fn storage(&mut self, lvalue: &Lvalue) -> Lower<Storage> {
        Ok(match &lvalue.kind {
            LvalueKind::Local(id) => match self.homes[*id] {
                Home::Scalar(var, _) => Storage::Local(*id, var),
                Home::Memory(addr) if self.bindings[*id].is_some() => {
                    Storage::Bound { local: *id, addr, part: false }
                }
                Home::Memory(addr) => Storage::Memory(addr),
            },
            LvalueKind::Global(id) => match self.cx.global(*id) {
                GlobalHome::Memory(address) => Storage::Memory(Addr::fixed(address)),
                GlobalHome::Object => Storage::Variable { id: *id, part: None },
            },
            LvalueKind::Element { map, key } => {
                Storage::Element { map: (*map).into(), key: self.element_key(*map, key)?, part: None }
            }
            LvalueKind::Field { base, field } => {
                let storage = self.storage(base)?;
                let offset = self.field_offset(base.ty, *field);
                self.part(storage, Bytes::Constant(offset))
            }
            LvalueKind::Index { base, index } => {
                let storage = self.storage(base)?;
                let bytes = self.index(base.ty, index)?;
                self.part(storage, bytes)
            }
            LvalueKind::Config(id, field) => {
                let storage = Storage::Element { map: Table::Config(*id), key: self.zero_key(), part: None };
                let offset = self.field_offset(self.cx.hir.configs[*id].ty, *field);
                self.part(storage, Bytes::Constant(offset))
            }
            LvalueKind::Deref(pointer) if objects::may_be(self.cx, lvalue.ty) => {
                self.object_storage(pointer, lvalue)?
            }
            LvalueKind::Deref(pointer) => Storage::Memory(self.pointee(pointer, lvalue.ty)?),
            LvalueKind::Value(value) => Storage::Memory(self.aggregate_addr(value)?),
        })
    }

    fn field_offset(&self, ty: TypeId, field: usize) -> u32 {
        let TypeKind::Struct(id) = self.cx.hir.types.kind(ty) else { panic!("a field is of a struct") };
        self.cx.hir.types.field_offset(*id, field) as u32
    }

    /// Returns the part of a storage that starts `offset` bytes after its start.
    pub fn part_at(&mut self, storage: Storage, offset: u32) -> Storage {
        self.part(storage, Bytes::Constant(offset))
    }

    /// Returns the element of an array whose byte offset is in a local.
    pub fn element_at(&mut self, array: Storage, bytes: Var) -> Storage {
        self.part(array, Bytes::Dynamic(bytes))
    }

    /// Pushes the scalar value of an lvalue.
    pub fn read_lvalue(&mut self, lvalue: &Lvalue) -> Lower<()> {
        if let LvalueKind::Index { base, index } = &lvalue.kind
            && let TypeKind::Str(size) = self.cx.hir.types.kind(base.ty)
        {
            return self.read_character(base, *size, index);
        }
        let storage = self.storage(lvalue)?;
        self.read_scalar(&storage, self.int(lvalue.ty), lvalue.span);
        Ok(())
    }

    /// Pushes the scalar value of a storage.
    pub fn read_scalar(&mut self, storage: &Storage, int: IntType, span: Span) {
        self.read_shared(storage, int, |fcx| fcx.read_scalar_by_call(storage, int, span));
    }

    fn read_scalar_by_call(&mut self, storage: &Storage, int: IntType, span: Span) {
        match *storage {
            Storage::Local(_, var) => {
                self.code.get(var);
            }
            Storage::Variable { id, part: None } => {
                let get = self.cx.host(import::globals::VARIABLE_GET);
                self.push_variable(id);
                self.code.call(get);
                convert(&mut self.code, U64, int);
            }
            _ => {
                let addr = self.read_aggregate(storage, span);
                self.load(int, addr);
            }
        }
    }

    /// Returns an address at which the storage's value can be read until it is changed.
    pub fn read_aggregate(&mut self, storage: &Storage, span: Span) -> Addr {
        match *storage {
            Storage::Local(..) => panic!("a scalar local has no address"),
            Storage::Memory(addr) | Storage::Bound { addr, .. } => addr,
            Storage::Object { base, addr } => {
                self.object_read(base, span);
                addr
            }
            Storage::Variable { id, part } => {
                let whole = self.slot(self.cx.hir.globals[id].ty);
                self.read_variable(id, whole);
                self.part_addr(whole, part)
            }
            Storage::Element { map, key, part } => {
                let whole = self.slot(map.value(self.cx.hir));
                let key = self.key_addr(key);
                self.lookup(map, key, whole, span);
                self.code.op(I::Drop);
                self.part_addr(whole, part)
            }
        }
    }

    /// Stores the scalar in a local to a storage.
    pub fn write_scalar(&mut self, storage: &Storage, int: IntType, value: Var, span: Span) -> Lower<()> {
        self.write_shared(storage, int, value, |fcx| fcx.write_scalar_by_call(storage, int, value, span));
        Ok(())
    }

    fn write_scalar_by_call(&mut self, storage: &Storage, int: IntType, value: Var, span: Span) {
        match *storage {
            Storage::Local(local, var) => {
                self.code.get(value).set(var);
                self.unbind(local);
            }
            Storage::Variable { id, part: None } => {
                let set = self.cx.routine(Routine::VariableSet);
                self.push_variable(id);
                self.code.get(value);
                convert(&mut self.code, int, U64);
                self.push_line(span);
                self.code.call(set);
            }
            _ => {
                let from = self.slot_bytes(int.bytes(), 8);
                self.store_var(int, from, value);
                self.write_bytes(storage, from, int.bytes(), span);
            }
        }
    }

    /// Stores the value at an address, which has the storage's type, to the storage.
    pub fn write_aggregate(&mut self, storage: &Storage, ty: TypeId, from: Addr, span: Span) -> Lower<()> {
        let bytes = self.cx.hir.types.size(ty);
        self.write_bytes(storage, from, bytes, span);
        Ok(())
    }

    /// Replaces the scalar in a storage by the value that `change` computes from it on the stack. `result` is
    /// a local of its type.
    pub fn update_scalar(
        &mut self,
        storage: &Storage,
        int: IntType,
        result: Var,
        span: Span,
        change: impl FnOnce(&mut Self),
    ) -> Lower<()> {
        let is_shared = self.may_be_shared(storage, int);
        let (Storage::Element { map, key, part: Some(part) }, false) = (*storage, is_shared) else {
            self.read_scalar(storage, int, span);
            change(self);
            self.code.set(result);
            return self.write_scalar(storage, int, result, span);
        };
        let whole = self.slot(map.value(self.cx.hir));
        let key = self.key_addr(key);
        // A missing entry is created from zero, like that of a whole `m[k]`.
        let found = self.temp(ValType::I32);
        self.lookup(map, key, whole, span);
        self.code.set(found);
        let addr = self.part_addr(whole, Some(part));
        self.load(int, addr);
        change(self);
        self.code.set(result);
        self.store_var(int, addr, result);
        self.code.get(found).if_();
        self.map_store(map, key, whole, "exist", span);
        self.code.else_();
        self.map_store(map, key, whole, "any", span);
        self.code.end();
        Ok(())
    }

    fn write_bytes(&mut self, storage: &Storage, from: Addr, bytes: u64, span: Span) {
        match *storage {
            Storage::Local(..) => panic!("a scalar local has no bytes"),
            Storage::Memory(addr) => self.copy(addr, from, bytes),
            Storage::Object { base, addr } => {
                self.object_read(base, span);
                self.copy(addr, from, bytes);
                self.object_written(base, span);
            }
            Storage::Bound { local, addr, part } => {
                self.copy(addr, from, bytes);
                if part {
                    self.write_back(local, span);
                } else {
                    self.unbind(local);
                }
            }
            Storage::Variable { id, part } => {
                self.write_variable(id, part.unwrap_or_default(), from, bytes, span)
            }
            Storage::Element { map, key, part: None } => {
                let key = self.key_addr(key);
                self.map_store(map, key, from, "any", span);
            }
            Storage::Element { map, key, part: Some(part) } => {
                let key = self.key_addr(key);
                let whole = self.slot(map.value(self.cx.hir));
                self.lookup(map, key, whole, span);
                self.code.if_();
                let to = self.part_addr(whole, Some(part));
                self.copy(to, from, bytes);
                self.map_store(map, key, whole, "exist", span);
                if map.is_array(self.cx.hir) {
                    // No such index: the kernel refuses it, and that is reported.
                    self.code.else_();
                    self.map_store(map, key, whole, "exist", span);
                }
                self.code.end();
            }
        }
    }

    fn read_variable(&mut self, id: GlobalId, to: Addr) {
        let read = self.cx.routine(Routine::VariableRead);
        let size = self.cx.hir.types.size(self.cx.hir.globals[id].ty) as u32;
        self.copy_shared_variable(id, to, |fcx| {
            fcx.push_variable(id);
            fcx.push_addr(to);
            fcx.code.u32(size).call(read);
        });
    }

    fn write_variable(&mut self, id: GlobalId, part: Part, from: Addr, bytes: u64, span: Span) {
        let write = self.cx.routine(Routine::VariableWrite);
        self.push_variable(id);
        self.code.u32(part.offset);
        if let Some(dynamic) = part.dynamic {
            self.code.get(dynamic).op(I::I32Add);
        }
        self.push_addr(from);
        self.code.u32(bytes as u32);
        self.push_line(span);
        self.code.call(write);
    }

    fn part(&mut self, storage: Storage, bytes: Bytes) -> Storage {
        match storage {
            Storage::Local(..) => panic!("a scalar has no parts"),
            Storage::Memory(addr) => Storage::Memory(self.moved(addr, bytes)),
            Storage::Object { base, addr } => Storage::Object { base, addr: self.moved(addr, bytes) },
            Storage::Bound { local, addr, .. } => {
                Storage::Bound { local, addr: self.moved(addr, bytes), part: true }
            }
            Storage::Variable { id, part } => Storage::Variable { id, part: Some(self.deeper(part, bytes)) },
            Storage::Element { map, key, part } => {
                Storage::Element { map, key, part: Some(self.deeper(part, bytes)) }
            }
        }
    }

    fn moved(&mut self, addr: Addr, bytes: Bytes) -> Addr {
        match bytes {
            Bytes::Constant(offset) => addr.plus(offset),
            Bytes::Dynamic(var) => {
                let base = self.temp(ValType::I32);
                self.push_addr(addr);
                self.code.get(var).op(I::I32Add).set(base);
                Addr::of(base)
            }
        }
    }

    fn deeper(&mut self, part: Option<Part>, bytes: Bytes) -> Part {
        let part = part.unwrap_or_default();
        match (bytes, part.dynamic) {
            (Bytes::Constant(offset), _) => Part { offset: part.offset + offset, ..part },
            (Bytes::Dynamic(var), None) => Part { dynamic: Some(var), ..part },
            (Bytes::Dynamic(var), Some(outer)) => {
                let sum = self.temp(ValType::I32);
                self.code.get(outer).get(var).op(I::I32Add).set(sum);
                Part { dynamic: Some(sum), ..part }
            }
        }
    }

    fn part_addr(&mut self, whole: Addr, part: Option<Part>) -> Addr {
        let part = part.unwrap_or_default();
        let addr = whole.plus(part.offset);
        part.dynamic.map_or(addr, |var| self.moved(addr, Bytes::Dynamic(var)))
    }

    /// Evaluates an array index; an index out of range ends the plugin.
    fn index(&mut self, array: TypeId, index: &Expr) -> Lower<Bytes> {
        let TypeKind::Array(element, len) = *self.cx.hir.types.kind(array) else {
            panic!("an index that is written is of an array")
        };
        let size = self.cx.hir.types.size(element) as u32;
        if let ExprKind::Const(value) = index.kind
            && value < len
        {
            return Ok(Bytes::Constant(value as u32 * size));
        }
        let int = self.int(index.ty);
        let var = self.temp(val_type(int));
        self.scalar(index)?;
        self.code.set(var);
        self.push_outside(int, var, len);
        self.code.if_();
        self.abort_index(int, var, len, index.span);
        self.code.end();
        let bytes = self.temp(ValType::I32);
        self.code.get(var);
        convert(&mut self.code, int, IntType { bits: 32, signed: false });
        self.code.u32(size).op(I::I32Mul).set(bytes);
        Ok(Bytes::Dynamic(bytes))
    }

    /// Pushes whether an index is out of range: a negative one is a large unsigned number.
    fn push_outside(&mut self, int: IntType, index: Var, len: u64) {
        self.code.get(index);
        push_const(&mut self.code, IntType { bits: if is_wide(int) { 64 } else { 32 }, signed: false }, len);
        self.code.op(if is_wide(int) { I::I64GeU } else { I::I32GeU });
    }

    fn abort_index(&mut self, int: IntType, index: Var, len: u64, span: Span) {
        let abort = self.cx.routine(Routine::AbortIndex);
        let before = self.cx.text(format!("{}KS-TRAP index: ", self.cx.location_prefix(span)));
        let after = self.cx.text(format!(" is outside the array of {len} elements"));
        self.push_text(before);
        self.code.get(index);
        convert(&mut self.code, int, IntType { bits: 64, signed: int.signed });
        self.code.i32(int.signed.into());
        self.push_text(after);
        self.code.call(abort).op(I::Unreachable);
    }

    /// Pushes a byte of a string; zero at or after its end.
    fn read_character(&mut self, base: &Lvalue, size: u32, index: &Expr) -> Lower<()> {
        let storage = self.storage(base)?;
        let int = self.int(index.ty);
        let var = self.temp(val_type(int));
        self.scalar(index)?;
        self.code.set(var);
        let text = self.read_aggregate(&storage, base.span);
        self.push_outside(int, var, u64::from(size));
        self.code.if_value(ValType::I32);
        self.code.i32(0).else_();
        self.push_addr(text);
        self.code.get(var);
        convert(&mut self.code, int, IntType { bits: 32, signed: false });
        self.code.op(I::I32Add).op(I::I32Load8U(super::code::mem(0))).end();
        Ok(())
    }
}
