//! Maps: one set of routines for each map that the script uses, and for each config block.
//!
//! A map is opened at its first use. Opening creates the kernel's objects, which may need rights that a run
//! without map accesses does not need. A map that cannot be opened prints one line, reads as empty and
//! ignores writes.

mod cursor;
mod exchange;
mod inner;
mod per_cpu;
mod queue;
mod size;
mod table;

pub use cursor::{clear, count, cursor, next};
pub use inner::{create_inner, create_inner_maps, has_inner, remove_inner};
pub use queue::{has, push, take};
pub use size::set_sizes;
pub use table::Table;

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::code::{Label, Var, WasmCode, mem};
use super::cx::{Cx, KeptGlobal};
use super::runtime::{Routine, push_failed, reset_arena};
use super::shared;
use crate::plugin::contract::import;
use crate::split::Split;

/// Value of a map's handle before its first use. No handle is negative.
const UNOPENED: i32 = -1;
/// Value of the handle of a map that could not be opened.
pub const UNAVAILABLE: i32 = -2;

/// Size of a map's key in bytes, in the kernel.
pub fn key_size(cx: &Cx<'_>, map: Table) -> u32 {
    map.key_size(cx.hir)
}

/// Size of one CPU's value in bytes.
pub fn value_size(cx: &Cx<'_>, map: Table) -> u32 {
    cx.hir.types.size(map.value(cx.hir)) as u32
}

/// Emits the body of [`Routine::MapOpen`].
pub fn open(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    exchange::return_other(cx, code, map);
    let kept = cx.kept(KeptGlobal::Map(map), UNOPENED);
    let name = cx.text(map.name(cx.hir));
    let open = cx.host(import::maps::BPF_MAP_OPEN);
    let shape = cx.abi.result(import::maps::BPF_MAP_OPEN);
    let warn = cx.routine(Routine::WarnError);
    code.get_global(kept).i32(UNOPENED).op(I::I32Ne).if_();
    code.get_global(kept).op(I::Return).end();
    reset_arena(code);
    code.u32(name.address).u32(name.len).u32(cx.returned).call(open);
    push_failed(cx, code);
    code.if_();
    code.get(Var(0)).get(Var(1)).u32(cx.returned + shape.err().offset).call(warn);
    code.i32(UNAVAILABLE).set_global(kept).else_();
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set_global(kept);
    shared::ask_map(cx, code, map, kept);
    shared::ask_variables(cx, code);
    code.end();
    code.get_global(kept);
}

/// Opens a pinned map or variable, and with it the whole object: a pin of another shape ends the plugin at
/// its start. If the script checks the result of a `load`, that result reports why the object cannot be
/// loaded.
pub fn open_pinned(cx: &mut Cx<'_>, code: &mut WasmCode, split: &Split) {
    let maps = split.maps.iter().map(|id| &cx.hir.maps[*id]).filter(|map| map.pinned);
    let maps = maps.map(|map| (&map.name, map.span));
    let rings = split.rings.iter().map(|id| &cx.hir.rings[*id]).filter(|ring| ring.pinned);
    let Some((name, span)) = maps.chain(rings.map(|ring| (&ring.name, ring.span))).next() else { return };
    let location = cx.line_prefix(span);
    let (name, location) = (cx.text(name), cx.text(location));
    let open = cx.host(import::maps::BPF_MAP_OPEN);
    let shape = cx.abi.result(import::maps::BPF_MAP_OPEN);
    let abort = cx.routine(Routine::AbortError);
    reset_arena(code);
    code.u32(name.address).u32(name.len).u32(cx.returned).call(open);
    push_failed(cx, code);
    code.if_();
    if_fatal(cx, code, shape.err().offset, |code| {
        code.u32(location.address).u32(location.len).u32(cx.returned + shape.err().offset).call(abort);
        code.op(I::Unreachable);
    });
    code.else_();
    let drop = cx.drop_handle(import::maps::BPF_MAP);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).call(drop).end();
}

/// Runs `end` if an error of opening a pin, at this offset of a result, ends the plugin: if the script does
/// not check the result of a `load`, or if the pin belongs to another script. The host refuses the latter
/// before it asks the kernel.
pub fn if_fatal(cx: &Cx<'_>, code: &mut WasmCode, err: u32, end: impl FnOnce(&mut WasmCode)) {
    if !cx.tests_a_load {
        return end(code);
    }
    let error = cx.abi.named("types", "error");
    let (kind, errno) = (error.field("kind"), error.field("errno"));
    let invalid = kind.case("invalid").0;
    code.u32(cx.returned).op(I::I32Load8U(mem(err + kind.offset))).u32(invalid).op(I::I32Eq);
    code.u32(cx.returned).op(I::I32Load8U(mem(err + errno.offset))).ops_of([I::I32Eqz, I::I32And]).if_();
    end(code);
    code.end();
}

/// Emits the body of [`Routine::MapLookup`].
pub fn lookup(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let to = Var(1);
    let size = value_size(cx, map);
    shared::look_up(cx, code, map, Var(0), to);
    let absent = code.block();
    let found = find(cx, code, Access { map, key: Var(0), location: Var(2), location_len: Var(3) }, absent);
    if map.is_per_cpu(cx.hir) {
        per_cpu::merge(cx, code, map, to, &found);
    } else {
        // A host that returns another length violates the contract.
        code.get(found.len).u32(map.stored_size(cx.hir)).op(I::I32Ne).if_();
        code.op(I::Unreachable).end();
        code.get(to).get(found.address).u32(size).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    }
    code.i32(1).op(I::Return).end();
    code.get(to).i32(0).u32(size).op(I::MemoryFill(0));
    code.i32(0);
}

/// Emits the body of [`Routine::MapStore`]. In the mode that replaces existing entries only, a missing entry
/// is not a failure.
pub fn store(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (key, value, mode, location, location_len) = (Var(0), Var(1), Var(2), Var(3), Var(4));
    let handle = code.local(ValType::I32);
    let size = value_size(cx, map);
    let done = code.block();
    push_open(cx, code, &Access { map, key, location, location_len });
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).br_if(done);
    reset_arena(code);
    code.get(handle).get(key).u32(key_size(cx, map));
    if map.is_locked(cx.hir) {
        let stored = push_stored(cx, code, map, value);
        code.u32(stored);
    } else {
        code.get(value).u32(size);
    }
    code.get(mode);
    let err = if map.is_locked(cx.hir) {
        let update = cx.host(import::maps::BPF_MAP_UPDATE_LOCKED);
        code.u32(cx.returned).call(update);
        cx.abi.result(import::maps::BPF_MAP_UPDATE_LOCKED).err().offset
    } else if map.is_per_cpu(cx.hir) {
        let update = cx.host(import::maps::BPF_MAP_UPDATE_SUM);
        code.u32(cx.returned).call(update);
        cx.abi.result(import::maps::BPF_MAP_UPDATE_SUM).err().offset
    } else {
        call_update(cx, code)
    };
    push_failed(cx, code);
    code.op(I::I32Eqz).br_if(done);
    let gone = cx.abi.named("types", "error").field("kind").case("not-found").0;
    code.u32(cx.returned).op(I::I32Load8U(mem(err))).u32(gone).op(I::I32Eq);
    code.get(mode).i32(update_mode(cx, "exist")).ops_of([I::I32Eq, I::I32And]).br_if(done);
    push_warn(cx, code, err, location, location_len);
    code.end();
}

/// Copies a value to where zeros follow it in the place of the lock, and pushes that address. Returns the size in bytes.
fn push_stored(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table, value: Var) -> u32 {
    let stored = map.stored_size(cx.hir);
    let copy = cx.module.statics.reserve(stored.into(), 8);
    code.u32(copy).get(value).u32(value_size(cx, map)).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.u32(copy);
    stored
}

/// Emits the body of [`Routine::MapAdd`]. The other CPUs' values are written back as they were read.
pub fn add(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (key, delta, location, location_len) = (Var(0), Var(1), Var(2), Var(3));
    let any = update_mode(cx, "any");
    let create = code.block();
    let found = find(cx, code, Access { map, key, location, location_len }, create);
    per_cpu::add_to_first(cx, code, map, found.address, delta);
    // The arena is not reset: the value is in it.
    code.get(found.handle).get(key).u32(key_size(cx, map)).get(found.address).get(found.len).i32(any);
    let err = call_update(cx, code);
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, err, location, location_len);
    code.end().op(I::Return).end();
    let first = cx.module.statics.reserve(8, 8);
    let store = cx.routine(Routine::MapStore(map));
    code.u32(first).get(delta).op(I::I64Store(mem(0)));
    code.get(key).u32(first).i32(any).get(location).get(location_len).call(store);
}

/// Emits the body of [`Routine::MapRemove`].
pub fn remove(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (key, location, location_len) = (Var(0), Var(1), Var(2));
    let handle = code.local(ValType::I32);
    let delete = cx.host(import::maps::BPF_MAP_DELETE);
    let err = cx.abi.result(import::maps::BPF_MAP_DELETE).err().offset;
    let done = code.block();
    push_open(cx, code, &Access { map, key, location, location_len });
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).br_if(done);
    reset_arena(code);
    code.get(handle).get(key).u32(key_size(cx, map)).u32(cx.returned).call(delete);
    push_failed(cx, code);
    code.op(I::I32Eqz).br_if(done);
    push_warn(cx, code, err, location, location_len);
    code.end();
}

/// Emits the body of [`Routine::MapSlot`].
pub fn slot(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (cpu, to, location, location_len) = (Var(1), Var(2), Var(3), Var(4));
    let size = value_size(cx, map);
    let absent = code.block();
    let found = find(cx, code, Access { map, key: Var(0), location, location_len }, absent);
    code.get(cpu).get(found.len).u32(size).ops_of([I::I32DivU, I::I32GeU]).br_if(absent);
    code.get(to).get(found.address).get(cpu).u32(size).ops_of([I::I32Mul, I::I32Add]);
    code.u32(size).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.i32(1).op(I::Return).end();
    code.get(to).i32(0).u32(size).op(I::MemoryFill(0));
    code.i32(0);
}

/// Returns the number of an update mode in the contract.
pub fn update_mode(cx: &Cx<'_>, name: &str) -> i32 {
    cx.abi.named("maps", "update-mode").enumerator(name).cast_signed()
}

/// Locals of an access to an entry: address of the key, and the start of a message.
struct Access {
    map: Table,
    key: Var,
    location: Var,
    location_len: Var,
}

/// An entry that was found; its value is in the arena.
struct FoundValue {
    handle: Var,
    address: Var,
    len: Var,
}

fn push_open(cx: &mut Cx<'_>, code: &mut WasmCode, access: &Access) {
    let open = cx.routine(Routine::MapOpen(access.map));
    code.get(access.location).get(access.location_len).call(open);
}

/// Looks an entry up. Branches to `absent` if there is none, or after reporting that the lookup failed.
fn find(cx: &mut Cx<'_>, code: &mut WasmCode, access: Access, absent: Label) -> FoundValue {
    let [handle, address, len] = [(); 3].map(|()| code.local(ValType::I32));
    let function = match access.map.is_locked(cx.hir) {
        true => import::maps::BPF_MAP_LOOKUP_LOCKED,
        false => import::maps::BPF_MAP_LOOKUP,
    };
    let lookup = cx.host(function);
    let shape = cx.abi.result(function);
    let value = shape.ok().some().offset;
    push_open(cx, code, &access);
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).br_if(absent);
    reset_arena(code);
    code.get(handle).get(access.key).u32(key_size(cx, access.map)).u32(cx.returned).call(lookup);
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, shape.err().offset, access.location, access.location_len);
    code.br(absent).end();
    code.u32(cx.returned).ops_of([I::I32Load8U(mem(shape.ok().offset)), I::I32Eqz]).br_if(absent);
    code.u32(cx.returned).op(I::I32Load(mem(value))).set(address);
    code.u32(cx.returned).op(I::I32Load(mem(value + LIST_LEN))).set(len);
    FoundValue { handle, address, len }
}

/// Calls `update` with the arguments on the stack and returns the offset of its error.
fn call_update(cx: &mut Cx<'_>, code: &mut WasmCode) -> u32 {
    let update = cx.host(import::maps::BPF_MAP_UPDATE);
    code.u32(cx.returned).call(update);
    cx.abi.result(import::maps::BPF_MAP_UPDATE).err().offset
}

fn push_warn(cx: &mut Cx<'_>, code: &mut WasmCode, err: u32, location: Var, location_len: Var) {
    let warn = cx.routine(Routine::WarnError);
    code.get(location).get(location_len).u32(cx.returned + err).call(warn);
}
