//! Inner maps of maps of maps: their creation, presence and removal.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Label, Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{Routine, push_failed, reset_arena};
use super::{Access, Table, UNAVAILABLE, push_open, push_warn};
use crate::hir::MapId;
use crate::plugin::contract::{HostFunction, import};
use crate::split::Split;

/// Creates the inner maps of arrays before anything else runs: every element has one from the start. Ends the plugin if
/// it cannot.
pub fn create_inner_maps(cx: &mut Cx<'_>, code: &mut WasmCode, split: &Split) {
    let is_array = |id: &MapId| cx.hir.maps[*id].outer.is_some_and(|outer| outer.kind.is_array());
    for id in split.maps.iter().copied().filter(is_array).collect::<Vec<_>>() {
        let location = cx.text(cx.line_prefix(cx.hir.maps[id].span));
        let open = cx.routine(Routine::MapOpen(id.into()));
        let create = cx.host(import::maps::BPF_MAP_CREATE_INNER);
        let err = cx.abi.result(import::maps::BPF_MAP_CREATE_INNER).err().offset;
        let abort = cx.routine(Routine::AbortError);
        let handle = code.local(ValType::I32);
        let done = code.block();
        code.u32(location.address).u32(location.len).call(open);
        code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).br_if(done);
        reset_arena(code);
        // No key at all means every element.
        code.get(handle).i32(0).i32(0).u32(cx.returned).call(create);
        push_failed(cx, code);
        code.op(I::I32Eqz).br_if(done);
        code.u32(location.address).u32(location.len).u32(cx.returned + err).call(abort);
        code.op(I::Unreachable).end();
    }
}

/// Emits the body of [`Routine::MapCreateInner`].
pub fn create_inner(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let done = code.block();
    call(cx, code, map, import::maps::BPF_MAP_CREATE_INNER, done);
    code.end();
}

/// Emits the body of [`Routine::MapHasInner`].
pub fn has_inner(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let has = import::maps::BPF_MAP_HAS_INNER;
    let shape = cx.abi.result(has);
    let absent = code.block();
    call(cx, code, map, has, absent);
    code.u32(cx.returned).op(I::I32Load8U(mem(shape.ok().offset))).op(I::Return).end();
    code.i32(0);
}

/// Emits the body of [`Routine::MapRemoveInner`].
pub fn remove_inner(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let done = code.block();
    call(cx, code, map, import::maps::BPF_MAP_DELETE_INNER, done);
    code.end();
}

/// Calls a host function of a map with the key of an inner map. Branches to `failed` after reporting an error.
fn call(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table, function: HostFunction, failed: Label) {
    let (key, location, location_len) = (Var(0), Var(1), Var(2));
    let size = outer_key_size(cx, map);
    let handle = code.local(ValType::I32);
    let host = cx.host(function);
    let err = cx.abi.result(function).err().offset;
    push_open(cx, code, &Access { map, key, location, location_len });
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).br_if(failed);
    reset_arena(code);
    code.get(handle).get(key).u32(size).u32(cx.returned).call(host);
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, err, location, location_len);
    code.br(failed).end();
}

/// Returns the size in bytes of the key of an inner map.
fn outer_key_size(cx: &Cx<'_>, map: Table) -> u32 {
    let Table::Map(id) = map else { return 0 };
    let keys = cx.hir.maps[id].nested_keys(&cx.hir.types);
    keys.map_or(0, |(outer, _)| cx.hir.types.size(outer) as u32)
}
