//! `next_bpf_program` and `bpf_program`.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::addr::Addr;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, Lower};
use super::func::FnCx;
use super::perf::field;
use super::runtime::{Routine, push_failed, reset_arena};
use crate::builtins::programs::{KIND, NAME, info};
use crate::hir::Expr;
use crate::plugin::contract::import;
use crate::source::Span;

impl FnCx<'_, '_> {
    /// Lowers `next_bpf_program(after)`.
    pub fn next_bpf_program(&mut self, after: &Expr, span: Span) -> Lower<()> {
        let next = self.cx.routine(Routine::NextBpfProgram);
        self.scalar(after)?;
        self.push_line(span);
        self.code.call(next);
        Ok(())
    }

    /// Lowers `bpf_program(id)` and stores the result at `to`.
    pub fn bpf_program(&mut self, id: &Expr, to: Addr, span: Span) -> Lower<()> {
        let info = self.cx.routine(Routine::BpfProgram);
        let var = self.temp(ValType::I32);
        self.scalar(id)?;
        self.code.set(var);
        self.push_addr(to);
        self.code.get(var);
        self.push_line(span);
        self.code.call(info);
        Ok(())
    }
}

/// Emits the body of [`Routine::NextBpfProgram`].
pub fn next(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (after, location, location_len) = (Var(0), Var(1), Var(2));
    let call = cx.host(import::programs::NEXT);
    let result = cx.abi.result(import::programs::NEXT);
    let (ok, err) = (result.ok(), result.err().offset);
    let warn = cx.routine(Routine::WarnError);
    reset_arena(code);
    code.get(after).u32(cx.returned).call(call);
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len).u32(cx.returned + err).call(warn).i32(0).op(I::Return).end();
    code.u32(cx.returned).op(I::I32Load8U(mem(ok.offset))).if_value(ValType::I32);
    code.u32(cx.returned).op(I::I32Load(mem(ok.some().offset))).else_().i32(0).end();
}

/// Emits the body of [`Routine::BpfProgram`].
pub fn info(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (to, id, location, location_len) = (Var(0), Var(1), Var(2), Var(3));
    let call = cx.host(import::programs::INFO);
    let result = cx.abi.result(import::programs::INFO);
    let (ok, err) = (result.ok(), result.err().offset);
    let found = ok.some();
    let warn = cx.routine(Routine::WarnError);
    let copy = cx.routine(Routine::TextCopy);
    let ty = cx.hir.known.bpf_program_info;
    code.get(to).i32(0).u32(cx.hir.types.size(ty) as u32).op(I::MemoryFill(0));
    reset_arena(code);
    code.get(id).u32(cx.returned).call(call);
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len).u32(cx.returned + err).call(warn).op(I::Return).end();
    code.u32(cx.returned).op(I::I32Load8U(mem(ok.offset))).if_();
    for (position, size, name) in [(info::NAME, NAME, "name"), (info::KIND, KIND, "kind")] {
        let text = found.field(name).offset;
        code.get_plus(to, field(cx, ty, position)).u32(size);
        code.u32(cx.returned).op(I::I32Load(mem(text)));
        code.u32(cx.returned).op(I::I32Load(mem(text + LIST_LEN))).call(copy);
    }
    for (position, name) in [(info::RUNS, "runs"), (info::TIME_NS, "run-time")] {
        code.get(to).u32(cx.returned).op(I::I64Load(mem(found.field(name).offset)));
        code.op(I::I64Store(mem(field(cx, ty, position))));
    }
    code.end();
}
