//! The `events(wildcard)` builtin.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use crate::plugin::contract::import;

/// Emits the body of [`Routine::PerfEvents`].
pub fn code(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (text, size, location, location_len) = (Var(0), Var(1), Var(2), Var(3));
    let list = cx.host(import::perf::PRINT_EVENTS);
    let shape = cx.abi.result(import::perf::PRINT_EVENTS);
    let length = cx.routine(Routine::TextLength);
    let warn = cx.routine(Routine::WarnError);
    let is_utf8 = cx.routine(Routine::IsUtf8);
    let say = cx.host(import::console::WARN);
    code.get(text).get(text).get(size).call(length).call(is_utf8).op(I::I32Eqz).if_();
    let start = begin_message(code);
    append_vars(cx, code, location, location_len);
    append_text(cx, code, "cannot list events: the wildcard is not UTF-8");
    end_message(code, start);
    code.call(say).i32(0).op(I::Return).end();
    reset_arena(code);
    code.get(text).get(text).get(size).call(length).u32(cx.returned).call(list);
    push_failed(cx, code);
    code.if_value(ValType::I32);
    code.get(location).get(location_len).u32(cx.returned + shape.err().offset).call(warn).i32(0);
    code.else_().u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).end();
}
