//! Performance events.

pub mod attach;
pub mod control;
pub mod count;
pub mod list;
pub mod read;
pub mod record;
pub mod show;
pub mod used;

use wasm_encoder::Instruction as I;

use super::code::{Var, WasmCode, mem};
use super::cx::Cx;
use crate::builtins::perf::attachment;
use crate::types::{TypeId, TypeKind};

/// The byte offset of a field of one of the predeclared structs.
pub fn field(cx: &Cx<'_>, ty: TypeId, position: usize) -> u32 {
    let TypeKind::Struct(id) = cx.hir.types.kind(ty) else { panic!("the perf builtins are structs") };
    cx.hir.types.field_offset(*id, position) as u32
}

/// The byte offset of a field of `perf_attachment`.
fn attachment_field(cx: &Cx<'_>, position: usize) -> u32 {
    field(cx, cx.hir.known.perf_attachment, position)
}

/// Pushes the handle of an attachment and keeps it in `handle`. Not above 0: there is none (0 is what a variable
/// holds that was never set).
pub fn push_handle(cx: &Cx<'_>, code: &mut WasmCode, attachment: Var, handle: Var) {
    let offset = attachment_field(cx, attachment::PERF_FD);
    code.get(attachment).op(I::I32Load(mem(offset))).tee(handle);
}
