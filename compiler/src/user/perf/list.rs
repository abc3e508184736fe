//! The `events(wildcard)` builtin.

use wasm_encoder::{Instruction as I, ValType};

use super::super::abi::{LIST_LEN, Shape};
use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use crate::plugin::contract::import;

/// Emits the body of [`Routine::PerfEvents`].
pub fn code(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (text, size, location, location_len) = (Var(0), Var(1), Var(2), Var(3));
    let list = cx.host(import::perf::LIST_EVENTS);
    let shape = cx.abi.result(import::perf::LIST_EVENTS);
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
    code.else_();
    print_all(cx, code, shape.ok());
    code.end();
}

/// Prints a line for each event of the list that the host has returned, and pushes their number.
fn print_all(cx: &mut Cx<'_>, code: &mut WasmCode, list: Shape) {
    const TEXTS: [&str; 2] = ["name", "perf-name"];
    let print = cx.host(import::console::PRINT);
    let format = cx.text("%-42s %-42s %s");
    let answers = [cx.text("no"), cx.text("yes")];
    let event = list.element();
    let value = cx.abi.named("console", "value");
    let (text, payload) = value.case("text");
    let payload = payload.expect("a text has a payload").offset;
    // The values of a line replace the list's address and length, which are in locals.
    let values = cx.returned;
    assert!((TEXTS.len() as u32 + 1) * value.size() <= cx.abi.largest_result(), "the values have room");
    let [at, number, left] = [(); 3].map(|()| code.local(ValType::I32));
    code.u32(cx.returned).op(I::I32Load(mem(list.offset))).set(at);
    code.u32(cx.returned).op(I::I32Load(mem(list.offset + LIST_LEN))).tee(number).set(left);
    let done = code.block();
    let next = code.loop_();
    code.get(left).op(I::I32Eqz).br_if(done);
    for position in 0..=TEXTS.len() as u32 {
        code.u32(values).u32(text).op(I::I32Store8(mem(position * value.size())));
    }
    for (position, name) in TEXTS.into_iter().enumerate() {
        let (from, to) = (event.field(name).offset, position as u32 * value.size() + payload);
        for part in [0, LIST_LEN] {
            code.u32(values).get(at).op(I::I32Load(mem(from + part))).op(I::I32Store(mem(to + part)));
        }
    }
    let to = TEXTS.len() as u32 * value.size() + payload;
    for (part, [no, yes]) in [(0, answers.map(|text| text.address)), (LIST_LEN, answers.map(|text| text.len))]
    {
        code.u32(values).u32(yes).u32(no).get(at).op(I::I32Load8U(mem(event.field("countable").offset)));
        code.op(I::Select).op(I::I32Store(mem(to + part)));
    }
    code.u32(format.address).u32(format.len).u32(values).u32(TEXTS.len() as u32 + 1).call(print);
    code.get_plus(at, event.size()).set(at);
    code.get(left).i32(1).op(I::I32Sub).set(left).br(next).end().end();
    code.get(number);
}
