//! Shared memory: variables and array maps of the BPF object, which the host maps into the module's second
//! memory.
//!
//! ```text
//! memory 0: the plugin's own     memory 1: pages of the kernel's maps, each where the host has put it
//! ```
//!
//! Each mapped object has a wasm global with its address, which is 0 until the object is loaded and for
//! objects that the host does not map. Host calls with the same semantics then read and write the object.
//!
//! The kernel half and other plugins write this memory at any time. It is therefore accessed only by atomic
//! loads and stores of natural width, which engines neither merge nor move nor remove.

use wasm_encoder::{Instruction as I, MemArg, ValType};

use super::addr::Addr;
use super::code::{Var, WasmCode, WasmGlobal, mem};
use super::cx::{Cx, KeptGlobal};
use super::func::FnCx;
use super::lvalue::{Part, Storage};
use super::maps::Table;
use super::memory::PAGE;
use super::module::SHARED_MEMORY;
use super::runtime::{Routine, reset_arena};
use super::scalar::{self, push_const, val_type};
use crate::hir::{GlobalId, Hir, MapKind};
use crate::plugin::contract::{HostFunction, import};
use crate::types::IntType;

/// Maximum pages of a module for arrays, and the same for variables: half of the host's default memory limit
/// without the script's own memory.
const MOST_PAGES: u32 = (ks_wit::MEMORY_BYTES - ks_wit::OWN_MEMORY_BYTES) as u32 / PAGE / 2;
/// Number of sections of variables (`.data`, `.bss`, `.rodata`, the pinned ones), each a map of its own.
const SECTIONS: u32 = 4;
/// Pages left unused at the start, because address 0 means unmapped.
const FIRST_PAGES: u32 = 1;
/// Bytes for the counters of faults and losses that the compiler adds to the sections.
const ADDED_BYTES: u64 = 4096;
const U8: IntType = IntType { bits: 8, signed: false };
const U64: IntType = IntType { bits: 64, signed: false };

/// A scalar that may be in shared memory.
#[derive(Debug, Clone, Copy)]
struct Mapped {
    /// Global with the address of the variable or the map.
    start: WasmGlobal,
    /// Layout and index local of an array map; none for a variable.
    index: Option<(Array, Var)>,
    /// Part of the variable or of the map's value.
    part: Part,
}

/// Memory layout of an array map.
#[derive(Debug, Clone, Copy)]
pub struct Array {
    /// Distance in bytes between values. Source: kernel/bpf/arraymap.c, `array_map_alloc` (v6.12): rounded up
    /// to 8.
    pub stride: u32,
    /// Number of values.
    pub entries: u32,
}

impl Array {
    /// Returns none for maps that the kernel cannot map, and for maps too large to be worth the address
    /// space.
    fn of(hir: &Hir, map: Table) -> Option<Array> {
        let entries = match map {
            Table::Map(id) => {
                let map = &hir.maps[id];
                let is_mapped = map.kind == MapKind::Array && !map.locked && map.outer.is_none();
                is_mapped.then_some(map.max_entries)?
            }
            Table::Config(_) => 1,
        };
        let stride = u32::try_from(hir.types.size(map.value(hir))).ok()?.checked_next_multiple_of(8)?;
        stride.checked_mul(entries).is_some().then_some(Array { stride, entries })
    }

    fn pages(self) -> u32 {
        (self.stride * self.entries).div_ceil(PAGE)
    }
}

impl Cx<'_> {
    /// Returns the layout of an array that may be mapped, and the global of its address.
    pub fn shared_array(&mut self, map: Table) -> Option<(Array, WasmGlobal)> {
        let array = Array::of(self.hir, map)?;
        if !self.is_kept(KeptGlobal::MapStart(map)) {
            let pages = array.pages().checked_add(self.array_pages).filter(|pages| *pages <= MOST_PAGES)?;
            self.array_pages = pages;
        }
        Some((array, self.kept(KeptGlobal::MapStart(map), 0)))
    }
}

/// Returns the number of pages of the second memory; 0 if nothing is shared.
fn pages(cx: &Cx<'_>) -> u32 {
    let variables = if cx.shared_variables().is_empty() {
        0
    } else {
        let most = MOST_PAGES - SECTIONS - FIRST_PAGES;
        (cx.object_bytes() + ADDED_BYTES).div_ceil(PAGE.into()).min(most.into()) as u32 + SECTIONS
    };
    match variables + cx.array_pages {
        0 => 0,
        pages => pages + FIRST_PAGES,
    }
}

/// Defines the routines that depend on the set of used variables, and sets the size of the memory.
pub fn finish(cx: &mut Cx<'_>) {
    cx.module.shared_pages = pages(cx);
    let Some(routine) = cx.share_variables else { return };
    let mut code = WasmCode::new(0);
    for (id, start) in cx.shared_variables() {
        let handle = cx.kept(KeptGlobal::Variable(id), 0);
        code.get_global(start).op(I::I32Eqz).if_();
        ask(cx, &mut code, import::globals::VARIABLE_SHARE, handle, start);
        code.end();
    }
    cx.module.define(routine, code, None);
}

/// Asks the host for the addresses of the variables, after the object may have been loaded.
pub fn ask_variables(cx: &mut Cx<'_>, code: &mut WasmCode) {
    if cx.object_bytes() == 0 {
        return;
    }
    let routine = cx.share_variables.unwrap_or_else(|| cx.module.declare("ks:share_variables", &[], &[]));
    cx.share_variables = Some(routine);
    code.call(routine);
}

/// Asks the host for the address of a map's values, after the map was opened.
pub fn ask_map(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table, handle: WasmGlobal) {
    if let Some((_, start)) = cx.shared_array(map) {
        ask(cx, code, import::maps::BPF_MAP_SHARE, handle, start);
    }
}

fn ask(cx: &mut Cx<'_>, code: &mut WasmCode, function: HostFunction, handle: WasmGlobal, start: WasmGlobal) {
    let share = cx.host(function);
    let some = cx.abi.result(function).some().offset;
    reset_arena(code);
    code.get_global(handle).u32(cx.returned).call(share);
    code.u32(cx.returned).op(I::I32Load8U(mem(0))).if_();
    code.u32(cx.returned).op(I::I32Load(mem(some))).set_global(start).end();
}

/// Emits the fast path of an array map's lookup: if the map is mapped, copies the value and returns 1.
pub fn look_up(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table, key: Var, to: Var) {
    let Some((array, start)) = cx.shared_array(map) else { return };
    let copy = cx.routine(Routine::SharedCopy);
    let index = code.local(ValType::I32);
    code.get(key).op(I::I32Load(mem(0))).tee(index).u32(array.entries).op(I::I32LtU);
    code.get_global(start).i32(0).ops_of([I::I32Ne, I::I32And]).if_();
    code.get(to).get_global(start).get(index).u32(array.stride).ops_of([I::I32Mul, I::I32Add]);
    code.u32(cx.hir.types.size(map.value(cx.hir)) as u32).call(copy);
    code.i32(1).op(I::Return).end();
}

/// Emits the body of [`Routine::SharedCopy`]: eight bytes at a time where the source is aligned to 8.
pub fn copy(code: &mut WasmCode) {
    let (to, from, size) = (Var(0), Var(1), Var(2));
    for (bytes, int) in [(8, U64), (1, U8)] {
        let done = code.block();
        let next = code.loop_();
        code.get(size)
            .u32(bytes)
            .op(I::I32LtU)
            .get(from)
            .u32(bytes - 1)
            .ops_of([I::I32And, I::I32Or])
            .br_if(done);
        code.get(to).get(from).op(load_op(int, 0)).op(scalar::store_op(int, 0));
        for at in [to, from] {
            code.get(at).u32(bytes).op(I::I32Add).set(at);
        }
        code.get(size).u32(bytes).op(I::I32Sub).set(size);
        code.br(next).end().end();
    }
}

impl FnCx<'_, '_> {
    /// Pushes a scalar: from shared memory if the storage is mapped, else as `call` pushes it.
    pub fn read_shared(&mut self, storage: &Storage, int: IntType, call: impl FnOnce(&mut Self)) {
        let Some(mapped) = self.mapped(storage, int) else { return call(self) };
        let known = self.shared_memory.start(mapped.start);
        if known.is_some() && mapped.index.is_none() {
            return self.load_mapped(mapped, int);
        }
        self.push_is_mapped(mapped);
        self.code.if_value(val_type(int));
        self.load_mapped(mapped, int);
        self.code.else_();
        match known {
            // An index out of range reads as zero, like the host call.
            Some(_) => push_const(&mut self.code, int, 0),
            None => call(self),
        }
        self.code.end();
    }

    fn load_mapped(&mut self, mapped: Mapped, int: IntType) {
        self.push_mapped(mapped);
        self.code.op(load_op(int, mapped.part.offset));
        match (int.bits, int.signed) {
            (8, true) => self.code.op(I::I32Extend8S),
            (16, true) => self.code.op(I::I32Extend16S),
            _ => &mut self.code,
        };
    }

    /// Stores the scalar in a local: to shared memory if the storage is mapped, else as `call` does.
    pub fn write_shared(
        &mut self,
        storage: &Storage,
        int: IntType,
        value: Var,
        call: impl FnOnce(&mut Self),
    ) {
        let Some(mapped) = self.mapped(storage, int) else { return call(self) };
        let store = |fcx: &mut Self| {
            fcx.push_mapped(mapped);
            fcx.code.get(value).op(store_op(int, mapped.part.offset));
        };
        if self.shared_memory.start(mapped.start).is_some() && mapped.index.is_none() {
            return store(self);
        }
        self.push_is_mapped(mapped);
        self.code.if_();
        store(self);
        self.code.else_();
        call(self);
        self.code.end();
    }

    /// Copies a whole variable to an address: from shared memory if it is mapped, else as `call` does.
    pub fn copy_shared_variable(&mut self, id: GlobalId, to: Addr, call: impl FnOnce(&mut Self)) {
        let start = self.cx.kept(KeptGlobal::VariableStart(id), 0);
        let copy = self.cx.routine(Routine::SharedCopy);
        self.code.get_global(start).if_();
        self.push_addr(to);
        self.code.get_global(start).u32(self.cx.hir.types.size(self.cx.hir.globals[id].ty) as u32).call(copy);
        self.code.else_();
        call(self);
        self.code.end();
    }

    /// Returns whether the scalar in a storage may be in shared memory.
    pub fn may_be_shared(&mut self, storage: &Storage, int: IntType) -> bool {
        self.mapped(storage, int).is_some()
    }

    fn mapped(&mut self, storage: &Storage, int: IntType) -> Option<Mapped> {
        let hir = self.cx.hir;
        let (ty, part) = match *storage {
            Storage::Variable { id, part } => (hir.globals[id].ty, part),
            Storage::Element { map, part, .. } => (map.value(hir), part),
            _ => return None,
        };
        let part = part.unwrap_or_default();
        // Packed structs have unaligned fields, which no atomic access can reach.
        let bytes = int.bytes();
        if hir.types.align(ty) < bytes || !u64::from(part.offset).is_multiple_of(bytes) {
            return None;
        }
        match *storage {
            Storage::Variable { id, .. } => {
                Some(Mapped { start: self.cx.kept(KeptGlobal::VariableStart(id), 0), index: None, part })
            }
            Storage::Element { map, key, .. } => {
                let (array, start) = self.cx.shared_array(map)?;
                Some(Mapped { start, index: Some((array, key.index?)), part })
            }
            _ => None,
        }
    }

    /// Pushes whether the scalar is in shared memory, unless that is known at compile time.
    fn push_is_mapped(&mut self, mapped: Mapped) {
        let known = self.shared_memory.start(mapped.start).is_some();
        let Some((array, index)) = mapped.index else {
            self.code.get_global(mapped.start);
            return;
        };
        self.code.get(index).u32(array.entries).op(I::I32LtU);
        if !known {
            self.code.get_global(mapped.start).i32(0).ops_of([I::I32Ne, I::I32And]);
        }
    }

    /// Pushes the address, without the constant offset of the part.
    fn push_mapped(&mut self, mapped: Mapped) {
        match self.shared_memory.start(mapped.start) {
            Some(start) => self.code.get(start),
            None => self.code.get_global(mapped.start),
        };
        if let Some((array, index)) = mapped.index {
            self.code.get(index).u32(array.stride).ops_of([I::I32Mul, I::I32Add]);
        }
        if let Some(dynamic) = mapped.part.dynamic {
            self.code.get(dynamic).op(I::I32Add);
        }
    }
}

/// Returns the atomic load from the address on the stack, zero-extended.
fn load_op(int: IntType, offset: u32) -> I<'static> {
    let at = shared(int, offset);
    match int.bits {
        8 => I::I32AtomicLoad8U(at),
        16 => I::I32AtomicLoad16U(at),
        32 => I::I32AtomicLoad(at),
        _ => I::I64AtomicLoad(at),
    }
}

/// Returns the atomic store of the low bits of a value.
fn store_op(int: IntType, offset: u32) -> I<'static> {
    let at = shared(int, offset);
    match int.bits {
        8 => I::I32AtomicStore8(at),
        16 => I::I32AtomicStore16(at),
        32 => I::I32AtomicStore(at),
        _ => I::I64AtomicStore(at),
    }
}

/// Returns an operand in the second memory. Atomic accesses require the exact alignment.
fn shared(int: IntType, offset: u32) -> MemArg {
    MemArg { offset: offset.into(), align: int.bytes().trailing_zeros(), memory_index: SHARED_MEMORY }
}
