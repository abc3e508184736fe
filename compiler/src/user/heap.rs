//! Objects of `new`: blocks in linear memory, between the variables and the arena.
//!
//! ```text
//! | variables | block | block | .. HEAP   free   ARENA_START  arena ..
//! block: 8 bytes (a mark with the class; see `objects`), then the object
//! ```
//!
//! A freed block goes to the free list of its class and is reused by the next object of that class. The arena
//! is empty while the script's own code runs, so it moves up when the blocks need space.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmCode, mem};
use super::cx::Cx;
use super::memory::{PAGE, STACK_TOP};
use super::module::{ARENA, ARENA_START, HEAP};
use super::objects;
use super::runtime::{append_text, append_vars, begin_message, end_message};
use crate::plugin::contract::import;

/// Size of the header before an object, in bytes.
pub const HEADER: u32 = 8;
/// Objects up to this size have classes in steps of 16 bytes; larger classes are powers of two.
const SMALL: u32 = 1024;
/// Number of classes of small objects: 1 to 64.
const SMALL_CLASSES: u32 = SMALL / 16;
/// Upper bound of the classes: an object is smaller than 4 GiB.
pub const CLASSES: u32 = SMALL_CLASSES + 32;
/// Mark in the header of an object in use; the low byte is the class.
pub const MARK: u32 = 0x6b73_0000;
/// Least number of bytes by which the heap grows.
const CHUNK: u32 = PAGE;

/// Returns the class of an object of `bytes` bytes, and the size of the class's objects.
pub fn class(bytes: u32) -> (u32, u32) {
    if bytes <= SMALL {
        let class = bytes.div_ceil(16).max(1);
        return (class, class * 16);
    }
    let rounded = bytes.checked_next_power_of_two().unwrap_or(1 << 31);
    (SMALL_CLASSES + rounded.trailing_zeros() - SMALL.trailing_zeros(), rounded)
}

/// Emits the body of `Routine::Allocate`.
pub fn allocate(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (class, bytes, location, location_len) = (Var(0), Var(1), Var(2), Var(3));
    let list = code.local(ValType::I32);
    let at = code.local(ValType::I32);
    push_list(cx, code, class);
    code.tee(list).op(I::I32Load(mem(0))).tee(at).if_();
    code.get(list).get(at).ops_of([I::I32Load(mem(0)), I::I32Store(mem(0))]).else_();
    let end = code.local(ValType::I64);
    code.get_global(HEAP).op(I::I64ExtendI32U).get(bytes).op(I::I64ExtendI32U);
    code.op(I::I64Add).i64(HEADER.into()).op(I::I64Add).tee(end);
    code.get_global(ARENA_START).ops_of([I::I64ExtendI32U, I::I64GtU]).if_();
    grow(cx, code, end, location, location_len);
    code.end();
    code.get_global(HEAP).u32(HEADER).op(I::I32Add).set(at);
    code.get(end).op(I::I32WrapI64).set_global(HEAP).end();
    code.get(at).u32(HEADER).op(I::I32Sub).get(class).u32(MARK).ops_of([I::I32Or, I::I32Store(mem(0))]);
    if objects::any(cx) {
        code.get(at).u32(HEADER).op(I::I32Sub).i32(0).op(I::I32Store(mem(objects::RECORD)));
    }
    code.get(at).i32(0).get(bytes).op(I::MemoryFill(0));
    code.get(at);
}

/// Moves the arena past `end`, with some space between, and grows the memory if necessary.
fn grow(cx: &mut Cx<'_>, code: &mut WasmCode, end: Var, location: Var, location_len: Var) {
    let start = code.local(ValType::I64);
    let pages = code.local(ValType::I64);
    code.get(end).i64(i64::from(CHUNK)).op(I::I64Add).i64(-16).op(I::I64And).set(start);
    code.get(start).i64(i64::from(PAGE) * 2 - 1).op(I::I64Add).i64(i64::from(PAGE)).op(I::I64DivU);
    code.ops_of([I::MemorySize(0), I::I64ExtendI32U, I::I64Sub]).tee(pages);
    code.i64(0).op(I::I64GtS).if_();
    code.get(pages).ops_of([I::I32WrapI64, I::MemoryGrow(0)]).i32(-1).op(I::I32Eq).if_();
    let message = begin_message(code);
    append_vars(cx, code, location, location_len);
    append_text(cx, code, "KS-TRAP memory: the memory of the plugin is full");
    end_message(code, message);
    let abort = cx.host(import::console::ABORT);
    code.call(abort).op(I::Unreachable).end().end();
    code.get(start).op(I::I32WrapI64).set_global(ARENA_START);
    code.get_global(ARENA_START).set_global(ARENA);
}

/// Emits the body of `Routine::Free`.
pub fn free(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (pointer, location, location_len) = (Var(0), Var(1), Var(2));
    let [at, mark, list] = [(); 3].map(|()| code.local(ValType::I32));
    code.get(pointer).op(I::I64Eqz).if_();
    code.op(I::Return).end();
    if objects::any(cx) {
        objects::free_entry(cx, code);
    }
    let known = code.block();
    let strange = code.block();
    code.get(pointer).i64(STACK_TOP.into()).op(I::I64LtU).br_if(strange);
    code.get(pointer).get_global(HEAP).ops_of([I::I64ExtendI32U, I::I64GeU]).br_if(strange);
    code.get(pointer).op(I::I32WrapI64).tee(at).u32(HEADER).op(I::I32Sub);
    code.ops_of([I::I32Load(mem(0))]).u32(MARK).op(I::I32Xor).tee(mark);
    code.u32(CLASSES).op(I::I32LeU).br_if(known).end();
    let message = begin_message(code);
    append_vars(cx, code, location, location_len);
    append_text(cx, code, "KS-TRAP delete: this is not an object of `new`, or it was deleted before");
    end_message(code, message);
    let abort = cx.host(import::console::ABORT);
    code.call(abort).op(I::Unreachable).end();
    code.get(at).u32(HEADER).op(I::I32Sub).i32(0).op(I::I32Store(mem(0)));
    push_list(cx, code, mark);
    code.set(list);
    code.get(at).get(list).ops_of([I::I32Load(mem(0)), I::I32Store(mem(0))]);
    code.get(list).get(at).op(I::I32Store(mem(0)));
}

/// Pushes the address of the head of a class's free list.
fn push_list(cx: &mut Cx<'_>, code: &mut WasmCode, class: Var) {
    let lists = cx.free_lists(CLASSES * 4 + 4);
    code.get(class).i32(4).op(I::I32Mul).u32(lists).op(I::I32Add);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_room_for_its_objects() {
        for bytes in (0..5000).chain([1 << 20, (1 << 20) + 1, 1 << 31]) {
            let (class, room) = class(bytes);
            assert!(room >= bytes && room % 8 == 0, "{bytes}: {room}");
            assert!((1..=CLASSES).contains(&class), "{bytes}: {class}");
        }
        assert_eq!(
            [class(16), class(17), class(1024), class(1025)],
            [(1, 16), (2, 32), (64, 1024), (65, 2048)]
        );
    }
}
