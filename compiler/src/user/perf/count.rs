//! Conversion of a count: the language has an i64, the contract a u64.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::Routine;
use super::attachment_field;
use crate::builtins::perf::attachment;
use crate::plugin::contract::import;

/// Pushes the count at an offset from `base`. A count that does not fit becomes the largest one, with a
/// warning. `attachment` holds the address of the attachment that was read.
pub fn push(cx: &mut Cx<'_>, code: &mut WasmCode, base: Var, offset: u32, attachment: Var) {
    let largest = cx.routine(Routine::PerfLargestCount);
    let count = code.local(ValType::I64);
    code.get(base).op(I::I64Load(mem(offset))).tee(count).i64(0).op(I::I64LtS).if_value(ValType::I64);
    code.get(attachment).call(largest);
    code.else_().get(count).end();
}

/// Emits the body of [`Routine::PerfLargestCount`], which warns once per attachment.
pub fn largest(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let att = Var(0);
    let text = cx.text("a count above 9223372036854775807 is shown as that number");
    let warn_once = cx.host(import::console::WARN_ONCE);
    let generation = attachment_field(cx, attachment::GENERATION);
    code.get(att).op(I::I64Load(mem(generation))).u32(text.address).u32(text.len).call(warn_once);
    code.i64(i64::MAX);
}
