//! A count as the language has it: an i64, where the contract has a u64.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Code, Var, mem};
use super::super::cx::Cx;
use super::attachment_field;
use crate::builtins::perf::attachment;

/// [`super::super::runtime::Routine::PerfCount`]: what does not fit becomes the largest count, and is said once.
pub fn code(cx: &mut Cx<'_>, code: &mut Code) {
    let (count, att) = (Var(0), Var(1));
    let text = cx.text("a count above 9223372036854775807 is shown as that number");
    let warn_once = cx.host("console", "warn-once");
    let generation = attachment_field(cx, attachment::GENERATION);
    code.get(count).i64(0).op(I::I64LtS).if_value(ValType::I64);
    code.get(att).op(I::I64Load(mem(generation))).u32(text.address).u32(text.len).call(warn_once);
    code.i64(i64::MAX).else_().get(count).end();
}
