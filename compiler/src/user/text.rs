//! Strings: N bytes, text up to the first zero.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmCode, mem};
use super::cx::Cx;
use super::runtime::Routine;

/// Emits the body of [`Routine::TextLength`].
pub fn length(code: &mut WasmCode) {
    let (address, size) = (Var(0), Var(1));
    let len = code.local(ValType::I32);
    let done = code.block();
    let next = code.loop_();
    code.get(len).get(size).op(I::I32GeU).br_if(done);
    code.get(address).get(len).ops_of([I::I32Add, I::I32Load8U(mem(0)), I::I32Eqz]).br_if(done);
    code.get(len).i32(1).op(I::I32Add).set(len).br(next).end().end();
    code.get(len);
}

/// Emits the body of [`Routine::TextCopy`].
pub fn copy(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (to, to_size, from, from_size) = (Var(0), Var(1), Var(2), Var(3));
    let length = cx.routine(Routine::TextLength);
    let len = code.local(ValType::I32);
    let room = code.local(ValType::I32);
    code.get(to_size).i32(1).op(I::I32Sub).tee(room);
    code.get(from).get(from_size).call(length).tee(len);
    code.get(room).get(len).ops_of([I::I32LtU, I::Select]).set(len);
    code.get(to).get(from).get(len).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.get(to).get(len).op(I::I32Add).i32(0).get(to_size).get(len).op(I::I32Sub).op(I::MemoryFill(0));
}

/// Emits the body of [`Routine::IsUtf8`]. It determines for each character the number of continuation bytes
/// and the range of the second byte, which alone excludes overlong forms, surrogates and values beyond the
/// last character (The Unicode Standard, table 3-7).
pub fn is_utf8(code: &mut WasmCode) {
    let (at, len) = (Var(0), Var(1));
    let [end, first, rest, low, high] = [(); 5].map(|()| code.local(ValType::I32));
    let byte = |code: &mut WasmCode| {
        code.get(at).op(I::I32Load8U(mem(0)));
        code.get(at).i32(1).op(I::I32Add).set(at);
    };
    // Pushes `then` if the first byte is `special`, else `other`.
    let unless = |code: &mut WasmCode, special: i32, then: i32, other: i32| {
        code.i32(then).i32(other).get(first).i32(special).ops_of([I::I32Eq, I::Select]);
    };
    code.get(at).get(len).op(I::I32Add).set(end);
    let wrong = code.block();
    let right = code.block();
    let next = code.loop_();
    code.get(at).get(end).op(I::I32GeU).br_if(right);
    byte(code);
    code.tee(first).i32(0x80).op(I::I32LtU).br_if(next);
    code.get(first).i32(0xc2).op(I::I32LtU).get(first).i32(0xf4).op(I::I32GtU);
    code.op(I::I32Or).br_if(wrong);
    code.get(first).i32(0xe0).op(I::I32GeU).get(first).i32(0xf0).op(I::I32GeU);
    code.op(I::I32Add).set(rest);
    // Checks the second byte.
    code.get(rest).get(end).get(at).ops_of([I::I32Sub, I::I32GeU]).br_if(wrong);
    code.i32(0xa0);
    unless(code, 0xf0, 0x90, 0x80);
    code.get(first).i32(0xe0).ops_of([I::I32Eq, I::Select]).set(low);
    code.i32(0x9f);
    unless(code, 0xf4, 0x8f, 0xbf);
    code.get(first).i32(0xed).ops_of([I::I32Eq, I::Select]).set(high);
    byte(code);
    code.tee(first).get(low).op(I::I32LtU).get(first).get(high).ops_of([I::I32GtU, I::I32Or]).br_if(wrong);
    let others = code.loop_();
    code.get(rest).op(I::I32Eqz).br_if(next);
    code.get(rest).i32(1).op(I::I32Sub).set(rest);
    byte(code);
    code.i32(0xc0).op(I::I32And).i32(0x80).op(I::I32Eq).br_if(others);
    code.br(wrong).end().end().end();
    code.i32(1).op(I::Return).end();
    code.i32(0);
}

/// Emits the body of [`Routine::TextAppend`].
pub fn append(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (to, to_size, from, from_size) = (Var(0), Var(1), Var(2), Var(3));
    let length = cx.routine(Routine::TextLength);
    let copy = cx.routine(Routine::TextCopy);
    let len = code.local(ValType::I32);
    code.get(to).get(to_size).call(length).set(len);
    code.get(to).get(len).op(I::I32Add).get(to_size).get(len).op(I::I32Sub);
    code.get(from).get(from_size).call(copy);
}

/// Emits the body of [`Routine::TextEqual`].
pub fn equal(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (left, left_size, right, right_size) = (Var(0), Var(1), Var(2), Var(3));
    let length = cx.routine(Routine::TextLength);
    let rest = code.local(ValType::I32);
    code.get(left).get(left_size).call(length).tee(rest);
    code.get(right).get(right_size).call(length).op(I::I32Ne).if_();
    code.i32(0).op(I::Return).end();
    let done = code.block();
    let next = code.loop_();
    code.get(rest).op(I::I32Eqz).br_if(done);
    code.get(rest).i32(1).op(I::I32Sub).set(rest);
    code.get(left).get(rest).ops_of([I::I32Add, I::I32Load8U(mem(0))]);
    code.get(right).get(rest).ops_of([I::I32Add, I::I32Load8U(mem(0)), I::I32Eq]).br_if(next);
    code.i32(0).op(I::Return).end().end();
    code.i32(1);
}
