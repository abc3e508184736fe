//! Lowering of performance events.

pub mod attach;
pub mod control;
pub mod count;
pub mod list;
pub mod publish;
pub mod read;
pub mod record;
pub mod used;

use wasm_encoder::Instruction as I;

use super::code::{Var, WasmCode, mem};
use super::cx::Cx;
use crate::builtins::perf::attachment;
use crate::types::{TypeId, TypeKind};

/// Returns the byte offset of a field of a predeclared struct.
pub fn field(cx: &Cx<'_>, ty: TypeId, position: usize) -> u32 {
    let TypeKind::Struct(id) = cx.hir.types.kind(ty) else { panic!("the perf builtins are structs") };
    cx.hir.types.field_offset(*id, position) as u32
}

/// Returns the byte offset of a field of `perf_attachment`.
fn attachment_field(cx: &Cx<'_>, position: usize) -> u32 {
    field(cx, cx.hir.known.perf_attachment, position)
}

/// Pushes the handle of an attachment and stores it in `handle`. A handle of 0 or below is not an attachment;
/// a variable that was never set has 0.
pub fn push_handle(cx: &Cx<'_>, code: &mut WasmCode, attachment: Var, handle: Var) {
    let offset = attachment_field(cx, attachment::PERF_FD);
    code.get(attachment).op(I::I32Load(mem(offset))).tee(handle);
}
