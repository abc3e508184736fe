//! Pointers to objects stored in maps.
//!
//! The plugin cannot access the kernel's memory. Each entry that the script has had a pointer to is therefore
//! mirrored by its own `new` block, the same for every pointer to the entry. A record links the block to the
//! entry:
//!
//! ```text
//! block:  mark and class | address of the record (0: an object of `new`) | the object as it was read last
//! record: next of the list | object | MapLookup | MapStore | MapRemove | bytes | copy | key ..
//! ```
//!
//! Every access through a pointer to a mirrored object reads the entry again first, and a write stores it
//! back if the entry still exists. A block lives as long as the plugin: one for each key that the script has
//! looked up, and one for each object that was moved into a map and to which the script may still have a
//! pointer.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, Lower};
use super::expr::mistake;
use super::func::FnCx;
use super::heap::{CLASSES, HEADER, MARK, class};
use super::lvalue::Storage;
use super::maps::{self, Table};
use super::memory::STACK_TOP;
use super::module::HEAP;
use super::runtime::Routine;
use crate::hir::{Expr, ExprKind, LocalId, Lvalue, LvalueKind, MapId};
use crate::source::Span;
use crate::types::TypeId;

/// Offset of the record's address in a block's header.
pub const RECORD: u32 = 4;
/// Number of hash buckets for the records of one map.
const LISTS: u32 = 1024;
const NEXT: u32 = 0;
const OBJECT: u32 = 4;
const LOOKUP: u32 = 8;
const STORE: u32 = 12;
const REMOVE: u32 = 16;
const BYTES: u32 = 20;
/// Offset of the address of a buffer for lookups: the object is overwritten only if the entry exists.
const COPY: u32 = 24;
const KEY: u32 = 28;

/// Returns whether the script accesses objects of any map through pointers.
pub fn any(cx: &Cx<'_>) -> bool {
    cx.hir.maps.iter().any(|map| map.objects)
}

/// Returns whether a value of this type may be in a map and be accessed through a pointer.
pub fn may_be(cx: &Cx<'_>, ty: TypeId) -> bool {
    cx.hir.maps.iter().any(|map| map.objects && map.value == ty)
}

/// The pointer passed to [`Routine::Object`] together with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenPointer {
    /// No pointer, only a key.
    Nothing,
    /// An object moved into the map; no other pointer to it exists.
    Only,
    /// An object moved into the map, to which other pointers exist.
    Copied,
}

/// Emits the body of [`Routine::Object`]. The block of an object moved into the map mirrors the entry from
/// then on, so that every copy of the pointer refers to the entry.
pub fn object(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let [key, pointer, given, location, location_len] = [0, 1, 2, 3, 4].map(Var);
    let (size, key_size) = (maps::value_size(cx, map), maps::key_size(cx, map));
    let read = cx.module.statics.reserve(size.into(), 8);
    let lists = cx.module.statics.reserve(u64::from(LISTS) * 4, 4);
    let lookup = cx.routine(Routine::MapLookup(map));
    code.get(key).u32(read).get(location).get(location_len).call(lookup);
    code.op(I::I32Eqz).if_();
    code.get(pointer).ops_of([I::I32WrapI64, I::Return]).end();
    let [list, record, kept] = [(); 3].map(|()| code.local(ValType::I32));
    push_list(code, key, key_size, lists);
    code.set(list);
    search(code, key, key_size, list, record);
    let what = ObjectRecord { map, copy: read, kept };
    code.get(given).u32(GivenPointer::Nothing as u32).op(I::I32Ne).if_();
    let FoundObject { record: old, is_block } = find(code, pointer);
    code.get(is_block).get(old).ops_of([I::I32Eqz, I::I32And]).if_();
    code.get(record).op(I::I32Eqz).if_();
    code.get(pointer).op(I::I32WrapI64).set(kept);
    make(cx, code, &what, record);
    link(code, list, record);
    code.else_().get(given).u32(GivenPointer::Copied as u32).op(I::I32Eq).if_();
    code.get(pointer).op(I::I32WrapI64).set(kept);
    make(cx, code, &what, old);
    code.else_();
    let free = cx.routine(Routine::Free);
    code.get(pointer).get(location).get(location_len).call(free);
    code.end().end().end().end();
    code.get(record).op(I::I32Eqz).if_();
    let allocate = cx.routine(Routine::Allocate);
    let (class, bytes) = class(size);
    code.u32(class).u32(bytes).get(location).get(location_len).call(allocate).set(kept);
    make(cx, code, &what, record);
    link(code, list, record);
    code.end();
    code.get(record).op(I::I32Load(mem(OBJECT))).u32(read).u32(size);
    code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.get(record).op(I::I32Load(mem(OBJECT)));
}

/// Pushes the address of the key's bucket, chosen by FNV-1a of the key's bytes.
fn push_list(code: &mut WasmCode, key: Var, key_size: u32, lists: u32) {
    let [at, hash] = [(); 2].map(|()| code.local(ValType::I32));
    code.u32(0x811c_9dc5).set(hash);
    code.i32(0).set(at);
    let byte = code.loop_();
    code.get(key).get(at).ops_of([I::I32Add, I::I32Load8U(mem(0))]);
    code.get(hash).op(I::I32Xor).u32(0x0100_0193).op(I::I32Mul).set(hash);
    code.get(at).i32(1).op(I::I32Add).tee(at).u32(key_size).op(I::I32LtU).br_if(byte);
    code.end();
    code.get(hash).get(hash).i32(16).ops_of([I::I32ShrU, I::I32Xor]);
    code.u32(LISTS - 1).op(I::I32And).i32(4).op(I::I32Mul).u32(lists).op(I::I32Add);
}

/// Sets `record` to the record of the key, or to 0.
fn search(code: &mut WasmCode, key: Var, key_size: u32, list: Var, record: Var) {
    let at = code.local(ValType::I32);
    code.get(list).op(I::I32Load(mem(0))).set(record);
    let found = code.block();
    let next = code.loop_();
    code.get(record).op(I::I32Eqz).br_if(found);
    let other = code.block();
    code.i32(0).set(at);
    let byte = code.loop_();
    code.get(at).u32(key_size).op(I::I32GeU).br_if(found);
    code.get(record).get(at).ops_of([I::I32Add, I::I32Load8U(mem(KEY))]);
    code.get(key).get(at).ops_of([I::I32Add, I::I32Load8U(mem(0)), I::I32Ne]).br_if(other);
    code.get(at).i32(1).op(I::I32Add).set(at);
    code.br(byte).end().end();
    code.get(record).op(I::I32Load(mem(NEXT))).set(record);
    code.br(next).end().end();
}

/// Initial contents of a record.
struct ObjectRecord {
    map: Table,
    /// Size of the lookup buffer in bytes.
    copy: u32,
    /// Local that holds the block that mirrors the entry.
    kept: Var,
}

/// Creates a record of the key, and sets the local `record` to it.
fn make(cx: &mut Cx<'_>, code: &mut WasmCode, what: &ObjectRecord, record: Var) {
    let (key, location, location_len) = (Var(0), Var(3), Var(4));
    let &ObjectRecord { map, copy, kept } = what;
    let (size, key_size) = (maps::value_size(cx, map), maps::key_size(cx, map));
    let allocate = cx.routine(Routine::Allocate);
    let (class, bytes) = class(KEY + key_size);
    code.u32(class).u32(bytes).get(location).get(location_len).call(allocate).set(record);
    code.get(kept).u32(HEADER).op(I::I32Sub).get(record).op(I::I32Store(mem(RECORD)));
    code.get(record).get(kept).op(I::I32Store(mem(OBJECT)));
    let routines = [
        (LOOKUP, Routine::MapLookup(map)),
        (STORE, Routine::MapStore(map)),
        (REMOVE, Routine::MapRemove(map)),
    ];
    for (offset, routine) in routines {
        let function = cx.routine(routine);
        let position = cx.module.table_position(function);
        code.get(record).u32(position).op(I::I32Store(mem(offset)));
    }
    code.get(record).u32(size).op(I::I32Store(mem(BYTES)));
    code.get(record).u32(copy).op(I::I32Store(mem(COPY)));
    code.get(record).u32(KEY).op(I::I32Add).get(key).u32(key_size);
    code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
}

/// Prepends a record to its list.
fn link(code: &mut WasmCode, list: Var, record: Var) {
    code.get(record).get(list).ops_of([I::I32Load(mem(0)), I::I32Store(mem(NEXT))]);
    code.get(list).get(record).op(I::I32Store(mem(0)));
}

/// Classifies the pointee of a pointer.
fn find(code: &mut WasmCode, pointer: Var) -> FoundObject {
    let [at, record, is_block] = [(); 3].map(|()| code.local(ValType::I32));
    let done = code.block();
    code.get(pointer).i64((STACK_TOP + HEADER).into()).op(I::I64LtU).br_if(done);
    code.get(pointer).get_global(HEAP).ops_of([I::I64ExtendI32U, I::I64GeU]).br_if(done);
    code.get(pointer).op(I::I32WrapI64).u32(HEADER).op(I::I32Sub).set(at);
    code.get(at).op(I::I32Load(mem(0))).u32(MARK).op(I::I32Xor).u32(CLASSES).op(I::I32GtU).br_if(done);
    code.i32(1).set(is_block);
    code.get(at).op(I::I32Load(mem(RECORD))).tee(record).op(I::I32Eqz).br_if(done);
    let own = code.block();
    code.get(record).u32(STACK_TOP).op(I::I32LtU).br_if(own);
    code.get(record).u32(KEY).op(I::I32Add).get_global(HEAP).op(I::I32GtU).br_if(own);
    code.get(record).op(I::I32Load(mem(OBJECT))).get(pointer).ops_of([I::I32WrapI64, I::I32Eq]).br_if(done);
    code.end();
    code.i32(0).set(record);
    code.end();
    FoundObject { record, is_block }
}

/// Classification of a pointee.
struct FoundObject {
    /// Address of the entry's record; 0 if the pointee is not in a map.
    record: Var,
    /// 1 if the pointee is a map entry or an object of `new`, else 0.
    is_block: Var,
}

/// Emits the body of [`Routine::ObjectRead`]. If the entry no longer exists, its last value is kept.
pub fn read(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (pointer, location, location_len) = (Var(0), Var(1), Var(2));
    let FoundObject { record, .. } = find(code, pointer);
    let copy = code.local(ValType::I32);
    code.get(record).op(I::I32Eqz).if_();
    code.op(I::Return).end();
    code.get(record).op(I::I32Load(mem(COPY))).set(copy);
    let lookup = cx.module.call_indirect(&[ValType::I32; 4], &[ValType::I32]);
    code.get(record).u32(KEY).op(I::I32Add).get(copy).get(location).get(location_len);
    code.get(record).op(I::I32Load(mem(LOOKUP))).op(lookup).if_();
    code.get(pointer).op(I::I32WrapI64).get(copy).get(record).op(I::I32Load(mem(BYTES)));
    code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 }).end();
}

/// Emits the body of [`Routine::ObjectWritten`].
pub fn written(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (pointer, location, location_len) = (Var(0), Var(1), Var(2));
    let FoundObject { record, .. } = find(code, pointer);
    let exist = maps::update_mode(cx, "exist");
    let store = cx.module.call_indirect(&[ValType::I32; 5], &[]);
    code.get(record).if_();
    code.get(record).u32(KEY).op(I::I32Add).get(pointer).op(I::I32WrapI64);
    code.i32(exist).get(location).get(location_len);
    code.get(record).op(I::I32Load(mem(STORE))).op(store).end();
}

/// Emits the first part of `Routine::Free`: for a map entry, removes it and returns.
pub fn free_entry(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (pointer, location, location_len) = (Var(0), Var(1), Var(2));
    let FoundObject { record, .. } = find(code, pointer);
    let remove = cx.module.call_indirect(&[ValType::I32; 3], &[]);
    code.get(record).if_();
    code.get(record).u32(KEY).op(I::I32Add).get(location).get(location_len);
    code.get(record).op(I::I32Load(mem(REMOVE))).op(remove).op(I::Return).end();
}

impl FnCx<'_, '_> {
    /// Pushes `&map[key]`: 0 if there is no entry.
    pub fn entry_address(&mut self, map: Table, key: super::addr::Addr, span: Span) {
        let object = self.cx.routine(Routine::Object(map));
        self.push_addr(key);
        self.code.i64(0).u32(GivenPointer::Nothing as u32);
        self.push_line(span);
        self.code.call(object);
    }

    /// Returns the storage of the pointee of a pointer that may point into a map.
    pub fn object_storage(&mut self, pointer: &Expr, lvalue: &Lvalue) -> Lower<Storage> {
        let addr = self.pointee(pointer, lvalue.ty)?;
        let Some(base) = addr.base else {
            return Err(mistake(lvalue.span, "a pointer leads to no address"));
        };
        Ok(Storage::Object { base, addr })
    }

    /// Refreshes the pointee before it is read or partly written.
    pub fn object_read(&mut self, base: Var, span: Span) {
        let read = self.cx.routine(Routine::ObjectRead);
        self.code.get(base).op(I::I64ExtendI32U);
        self.push_line(span);
        self.code.call(read);
    }

    /// Writes the pointee back after a change.
    pub fn object_written(&mut self, base: Var, span: Span) {
        let written = self.cx.routine(Routine::ObjectWritten);
        self.code.get(base).op(I::I64ExtendI32U);
        self.push_line(span);
        self.code.call(written);
    }

    /// Lowers `StmtKind::Give`: moves an object into a map.
    pub fn give(&mut self, local: LocalId, map: MapId, key: &Expr, given: GivenPointer) -> Lower<()> {
        let object = self.cx.routine(Routine::Object(map.into()));
        let span = key.span;
        let key = self.key(map, key)?;
        let ty = self.function.locals[local].ty;
        let pointer = ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), ty, span });
        self.put(local, |fcx| {
            fcx.push_addr(key);
            fcx.scalar(&Expr { kind: pointer, ty, span })?;
            fcx.code.u32(given as u32);
            fcx.push_line(span);
            fcx.code.call(object).op(I::I64ExtendI32U);
            Ok(())
        })
    }
}
