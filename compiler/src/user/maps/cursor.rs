//! Map iteration, `clear` and `count`.

use wasm_encoder::{Instruction as I, ValType};

use super::super::abi::LIST_LEN;
use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{Routine, push_failed, reset_arena};
use super::{Table, UNAVAILABLE, push_warn};
use crate::plugin::contract::import;

/// Opens a map; the routine returns 0 if it cannot be opened.
fn opened(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table, location: Var, location_len: Var) -> Var {
    let handle = code.local(ValType::I32);
    let open = cx.routine(Routine::MapOpen(map));
    code.get(location).get(location_len).call(open).tee(handle).i32(UNAVAILABLE).op(I::I32Eq).if_();
    code.i32(0).op(I::Return).end();
    reset_arena(code);
    handle
}

/// Makes the routine print a line and return 0 if the host refused.
fn return_if_failed(cx: &mut Cx<'_>, code: &mut WasmCode, err: u32, location: Var, location_len: Var) {
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, err, location, location_len);
    code.i32(0).op(I::Return).end();
}

/// Emits the body of [`Routine::MapCursor`].
pub fn cursor(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (location, location_len) = (Var(0), Var(1));
    let cursor = cx.host(import::maps::BPF_MAP_ITERATE);
    let shape = cx.abi.result(import::maps::BPF_MAP_ITERATE);
    let handle = opened(cx, code, map, location, location_len);
    let values = i32::from(!map.iterates_keys(cx.hir));
    code.get(handle).i32(values).u32(cx.returned).call(cursor);
    return_if_failed(cx, code, shape.err().offset, location, location_len);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset)));
}

/// Emits the body of [`Routine::MapNext`].
pub fn next(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (cursor, to, most, location, location_len) = (Var(0), Var(1), Var(2), Var(3), Var(4));
    let next = cx.host(import::maps::CURSOR_NEXT);
    let shape = cx.abi.result(import::maps::CURSOR_NEXT);
    let list = shape.ok().offset;
    code.get(cursor).op(I::I32Eqz).if_();
    code.i32(0).op(I::Return).end();
    reset_arena(code);
    code.get(cursor).get(most).u32(cx.returned).call(next);
    return_if_failed(cx, code, shape.err().offset, location, location_len);
    // A host that returns more violates the contract.
    code.u32(cx.returned).op(I::I32Load(mem(list + LIST_LEN))).get(most).op(I::I32GtU).if_();
    code.op(I::Unreachable).end();
    code.get(to).u32(cx.returned).op(I::I32Load(mem(list)));
    code.u32(cx.returned).op(I::I32Load(mem(list + LIST_LEN))).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.u32(cx.returned).op(I::I32Load(mem(list + LIST_LEN)));
}

/// Emits the body of [`Routine::MapCount`].
pub fn count(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (location, location_len) = (Var(0), Var(1));
    let count = cx.host(import::maps::BPF_MAP_COUNT);
    let shape = cx.abi.result(import::maps::BPF_MAP_COUNT);
    let handle = opened(cx, code, map, location, location_len);
    code.get(handle).u32(cx.returned).call(count);
    return_if_failed(cx, code, shape.err().offset, location, location_len);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset)));
}

/// Emits the body of [`Routine::MapClear`].
pub fn clear(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (location, location_len) = (Var(0), Var(1));
    let clear = cx.host(import::maps::BPF_MAP_CLEAR);
    let err = cx.abi.result(import::maps::BPF_MAP_CLEAR).err().offset;
    let handle = opened(cx, code, map, location, location_len);
    code.get(handle).u32(cx.returned).call(clear);
    return_if_failed(cx, code, err, location, location_len);
    code.i32(0);
}
