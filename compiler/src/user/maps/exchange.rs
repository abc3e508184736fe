//! Maps that `take(m)` exchanges: userspace uses the one of the two that programs do not.

use wasm_encoder::Instruction as I;

use super::super::code::{Var, WasmCode};
use super::super::cx::{Cx, KeptGlobal};
use super::super::func::FnCx;
use super::super::runtime::{Routine, push_failed, reset_arena};
use super::Table;
use crate::hir::MapId;
use crate::plugin::contract::import;
use crate::source::Span;

/// Returns from the routine that opens a map with the other map, if programs use this one. The parameters are the start
/// of a message.
pub(super) fn return_other(cx: &mut Cx<'_>, code: &mut WasmCode, map: Table) {
    let Table::Map(id) = map else { return };
    let Some(buffer) = cx.hir.maps[id].double_buffer else { return };
    let active = cx.kept(KeptGlobal::ActiveBuffer(map), 0);
    let open = cx.routine(Routine::MapOpen(buffer.second.into()));
    code.get_global(active).op(I::I32Eqz).if_();
    code.get(Var(0)).get(Var(1)).call(open).op(I::Return).end();
}

impl FnCx<'_, '_> {
    /// Waits for the runs of programs that have begun, and uses the other map from then on. Ends the plugin if the kernel
    /// cannot tell when they are over: what they count would be lost.
    pub fn settle(&mut self, map: MapId, span: Span) {
        let settle = self.cx.host(import::maps::SETTLE);
        let err = self.cx.abi.result(import::maps::SETTLE).err().offset;
        let abort = self.cx.routine(Routine::AbortError);
        let active = self.cx.kept(KeptGlobal::ActiveBuffer(map.into()), 0);
        reset_arena(&mut self.code);
        self.code.u32(self.cx.returned).call(settle);
        push_failed(self.cx, &mut self.code);
        self.code.if_();
        self.push_line(span);
        self.code.u32(self.cx.returned + err).call(abort).op(I::Unreachable).end();
        self.code.get_global(active).i32(1).op(I::I32Xor).set_global(active);
    }
}
