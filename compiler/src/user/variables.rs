//! Global variables that are in the BPF object because a kernel function uses them.
//!
//! `run` opens their handles once, at its start. The object has every variable that the compiler put there,
//! so a failure violates the contract and ends the plugin. A pinned variable has the value of the pin, which
//! exists once the object is loaded. If loading fails and the script checks its result, the first use of the
//! variable ends the plugin.

use wasm_encoder::Instruction as I;

use super::abi::LIST_LEN;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, KeptGlobal};
use super::func::FnCx;
use super::maps;
use super::runtime::{Routine, push_failed, reset_arena};
use super::shared;
use crate::hir::GlobalId;
use crate::plugin::contract::import;

/// Opens the variables that the userspace half uses.
pub fn open_all(cx: &mut Cx<'_>, code: &mut WasmCode) {
    for (id, kept) in cx.kept_variables() {
        let global = &cx.hir.globals[id];
        let name = cx.text(&global.name);
        let location = cx.text(format!("{}variable `{}`: ", cx.line_prefix(global.span), global.name));
        let open = cx.host(import::globals::VARIABLE_OPEN);
        let shape = cx.abi.result(import::globals::VARIABLE_OPEN);
        reset_arena(code);
        code.u32(name.address).u32(name.len).u32(cx.returned).call(open);
        push_failed(cx, code);
        code.if_();
        let abort = cx.routine(Routine::AbortError);
        let (err, returned) = (shape.err().offset, cx.returned);
        let end = |code: &mut WasmCode| {
            code.u32(location.address).u32(location.len).u32(returned + err).call(abort).op(I::Unreachable);
        };
        if global.pinned {
            maps::if_fatal(cx, code, err, end)
        } else {
            end(code)
        }
        code.else_();
        code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set_global(kept).end();
    }
    // Opening a pinned variable has loaded the object.
    shared::ask_variables(cx, code);
}

impl FnCx<'_, '_> {
    /// Pushes the handle of a variable; ends the plugin if it is not open.
    pub fn push_variable(&mut self, id: GlobalId) {
        let kept = self.cx.kept(KeptGlobal::Variable(id), 0);
        let hir = self.cx.hir;
        let global = &hir.globals[id];
        if global.pinned && self.cx.tests_a_load {
            let text = format!(
                "{}variable `{}`: its value is that of its pin, and the BPF object could not be loaded",
                self.cx.line_prefix(global.span),
                global.name
            );
            self.code.get_global(kept).op(I::I32Eqz).if_();
            super::abort(self.cx, &mut self.code, &text);
            self.code.end();
        }
        self.code.get_global(kept);
    }
}

/// Emits the body of [`Routine::VariableRead`].
pub fn read(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (handle, to, size) = (Var(0), Var(1), Var(2));
    let read = cx.host(import::globals::VARIABLE_READ);
    reset_arena(code);
    code.get(handle).u32(cx.returned).call(read);
    // A host that returns another length violates the contract.
    code.u32(cx.returned).op(I::I32Load(mem(LIST_LEN))).get(size).op(I::I32Ne).if_();
    code.op(I::Unreachable).end();
    code.get(to).u32(cx.returned).op(I::I32Load(mem(0))).get(size);
    code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
}

/// Emits the body of [`Routine::VariableWrite`].
pub fn write(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let write = cx.host(import::globals::VARIABLE_WRITE);
    let err = cx.abi.result(import::globals::VARIABLE_WRITE).err().offset;
    reset_arena(code);
    code.get(Var(0)).get(Var(1)).get(Var(2)).get(Var(3)).u32(cx.returned).call(write);
    abort_if_failed(cx, code, Var(4), Var(5), err);
}

/// Emits the body of [`Routine::VariableSet`].
pub fn set(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let set = cx.host(import::globals::VARIABLE_SET);
    let err = cx.abi.result(import::globals::VARIABLE_SET).err().offset;
    reset_arena(code);
    code.get(Var(0)).get(Var(1)).u32(cx.returned).call(set);
    abort_if_failed(cx, code, Var(2), Var(3), err);
}

fn abort_if_failed(cx: &mut Cx<'_>, code: &mut WasmCode, location: Var, location_len: Var, err: u32) {
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len);
    push_abort(cx, code, err);
    code.end();
}

fn push_abort(cx: &mut Cx<'_>, code: &mut WasmCode, err: u32) {
    let abort = cx.routine(Routine::AbortError);
    code.u32(cx.returned + err).call(abort).op(I::Unreachable);
}
