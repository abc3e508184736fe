//! Maps without keys: queues, stacks and bloom filters.

use wasm_encoder::{Instruction as I, ValType};

use super::super::abi::LIST_LEN;
use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::errno::EINVAL;
use super::super::runtime::{Routine, push_failed, reset_arena};
use super::{Access, Table, UNAVAILABLE, call_update, push_open, push_warn, update_mode, value_size};
use crate::plugin::contract::import;

fn access(map: Table, location: Var, location_len: Var) -> Access {
    // There is no key, so any address serves.
    Access { map, key: location, location, location_len }
}

/// Emits the body of [`Routine::MapPush`].
pub fn push(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (value, location, location_len) = (Var(0), Var(1), Var(2));
    let handle = code.local(ValType::I32);
    let size = value_size(cx, map);
    let any = update_mode(cx, "any");
    let errno = cx.routine(Routine::Errno);
    push_open(cx, code, &access(map, location, location_len));
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).if_();
    code.i32(EINVAL).op(I::Return).end();
    reset_arena(code);
    code.get(handle).i32(0).i32(0).get(value).u32(size).i32(any);
    let err = call_update(cx, code);
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, err, location, location_len);
    code.u32(cx.returned + err).call(errno).op(I::Return).end();
    code.i32(0);
}

/// Emits the body of [`Routine::MapTake`].
pub fn take(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (to, location, location_len) = (Var(0), Var(1), Var(2));
    let handle = code.local(ValType::I32);
    let size = value_size(cx, map);
    let take = cx.host(import::maps::BPF_MAP_LOOKUP_AND_DELETE);
    let shape = cx.abi.result(import::maps::BPF_MAP_LOOKUP_AND_DELETE);
    let value = shape.ok().some().offset;
    let absent = code.block();
    push_open(cx, code, &access(map, location, location_len));
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).br_if(absent);
    reset_arena(code);
    code.get(handle).i32(0).i32(0).u32(cx.returned).call(take);
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, shape.err().offset, location, location_len);
    code.br(absent).end();
    code.u32(cx.returned).ops_of([I::I32Load8U(mem(shape.ok().offset)), I::I32Eqz]).br_if(absent);
    // A host that returns another length violates the contract.
    code.u32(cx.returned).op(I::I32Load(mem(value + LIST_LEN))).u32(size).op(I::I32Ne).if_();
    code.op(I::Unreachable).end();
    code.get(to).u32(cx.returned).op(I::I32Load(mem(value))).u32(size);
    code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.i32(1).op(I::Return).end();
    code.get(to).i32(0).u32(size).op(I::MemoryFill(0));
    code.i32(0);
}

/// Emits the body of [`Routine::MapHas`].
pub fn has(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let (value, location, location_len) = (Var(0), Var(1), Var(2));
    let handle = code.local(ValType::I32);
    let size = value_size(cx, map);
    let contains = cx.host(import::maps::BPF_MAP_CONTAINS);
    let shape = cx.abi.result(import::maps::BPF_MAP_CONTAINS);
    push_open(cx, code, &access(map, location, location_len));
    code.tee(handle).i32(UNAVAILABLE).op(I::I32Eq).if_();
    code.i32(0).op(I::Return).end();
    reset_arena(code);
    code.get(handle).get(value).u32(size).u32(cx.returned).call(contains);
    push_failed(cx, code);
    code.if_();
    push_warn(cx, code, shape.err().offset, location, location_len);
    code.i32(0).op(I::Return).end();
    code.u32(cx.returned).op(I::I32Load8U(mem(shape.ok().offset)));
}
