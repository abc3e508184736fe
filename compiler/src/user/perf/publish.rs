//! Exposes an attachment to BPF programs, which read it as a counter.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Var, WasmCode};
use super::super::cx::Cx;
use super::super::runtime::{Routine, push_failed, reset_arena};
use super::push_handle;
use crate::plugin::contract::import;

/// Emits the body of [`Routine::PerfPublish`]. For an invalid attachment, `attach` has reported the failure.
pub fn code(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (attachment, name, name_len, location, location_len) = (Var(0), Var(1), Var(2), Var(3), Var(4));
    let publish = cx.host(import::perf::ATTACHMENT_PUBLISH);
    let err = cx.abi.result(import::perf::ATTACHMENT_PUBLISH).err().offset;
    let warn = cx.routine(Routine::WarnError);
    let handle = code.local(ValType::I32);
    push_handle(cx, code, attachment, handle);
    code.i32(0).op(I::I32GtS).if_();
    reset_arena(code);
    code.get(handle).get(name).get(name_len).u32(cx.returned).call(publish);
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len).u32(cx.returned + err).call(warn);
    code.end().end();
}
