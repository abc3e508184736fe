//! The sizes of maps that options of the script set.

use std::collections::BTreeSet;

use wasm_encoder::Instruction as I;

use super::super::abort;
use super::super::code::{WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{Routine, push_failed, reset_arena};
use crate::hir::MapId;
use crate::plugin::contract::import;
use crate::types::StructId;

/// Sets the sizes of maps whose option has another value than its default, or ends the plugin. `options` are the
/// struct of `main` and its address.
pub fn set_sizes(
    cx: &mut Cx<'_>,
    code: &mut WasmCode,
    maps: &BTreeSet<MapId>,
    options: Option<(StructId, u32)>,
) {
    let Some((options, address)) = options else { return };
    let hir = cx.hir;
    for map in maps.iter().map(|id| &hir.maps[*id]) {
        let Some(field) = map.size_option else { continue };
        let at = address + hir.types.field_offset(options, field) as u32;
        let option = &hir.types.struct_def(options).fields[field].name;
        let (name, location) = (cx.text(&map.name), cx.text(cx.line_prefix(map.span)));
        let set = cx.host(import::maps::SET_MAX_ENTRIES);
        let err = cx.abi.result(import::maps::SET_MAX_ENTRIES).err().offset;
        let failed = cx.routine(Routine::AbortError);
        code.u32(at).op(I::I32Load(mem(0))).u32(map.max_entries).op(I::I32Ne).if_();
        code.u32(at).op(I::I32Load(mem(0))).op(I::I32Eqz).if_();
        abort(
            cx,
            code,
            &format!("`--{option}` must be at least 1: it is the size of the map `{}`", map.name),
        );
        code.end();
        reset_arena(code);
        code.u32(name.address).u32(name.len).u32(at).op(I::I32Load(mem(0))).u32(cx.returned).call(set);
        push_failed(cx, code);
        code.if_();
        code.u32(location.address).u32(location.len).u32(cx.returned + err).call(failed).op(I::Unreachable);
        code.end().end();
    }
}
