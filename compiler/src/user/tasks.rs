//! `pid_of`, `comm_of`, `next_thread` and `symbol`.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::addr::Addr;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, Lower};
use super::func::FnCx;
use super::runtime::{Routine, reset_arena};
use crate::hir::Expr;
use crate::plugin::contract::import;
use crate::types::TypeId;

impl FnCx<'_, '_> {
    /// Lowers `pid_of(name)`.
    pub fn pid_of(&mut self, name: &Expr) -> Lower<()> {
        let find = self.cx.routine(Routine::PidOf);
        let text = self.aggregate_addr(name)?;
        self.push_text_at(text, name.ty);
        self.code.call(find);
        Ok(())
    }

    /// Lowers `comm_of(pid)`, a string of type `ty`, and stores the result at `to`.
    pub fn comm_of(&mut self, pid: &Expr, ty: TypeId, to: Addr) -> Lower<()> {
        let find = self.cx.routine(Routine::CommOf);
        let var = self.temp(ValType::I32);
        self.scalar(pid)?;
        self.code.set(var);
        self.push_addr(to);
        let size = self.cx.hir.types.size(ty) as u32;
        self.code.u32(size).get(var).call(find);
        Ok(())
    }

    /// Lowers `next_thread(process, after)`.
    pub fn next_thread(&mut self, operands: &[Expr; 2]) -> Lower<()> {
        let next = self.cx.routine(Routine::NextThread);
        for operand in operands {
            self.scalar(operand)?;
        }
        self.code.call(next);
        Ok(())
    }

    /// Lowers `symbol(address)` and `symbol(pid, address)`, a string of type `ty`, and stores the result at
    /// `to`.
    pub fn symbol(&mut self, pid: Option<&Expr>, address: &Expr, ty: TypeId, to: Addr) -> Lower<()> {
        let find = self.cx.routine(Routine::Symbol);
        let process = self.temp(ValType::I32);
        match pid {
            Some(pid) => self.scalar(pid)?,
            None => {
                self.code.i32(0);
            }
        }
        self.code.set(process);
        self.push_addr(to);
        let size = self.cx.hir.types.size(ty) as u32;
        self.code.u32(size).i32(pid.is_some().into()).get(process);
        self.scalar(address)?;
        self.code.call(find);
        Ok(())
    }

    /// Pushes the address and the length of a string's text.
    pub fn push_text_at(&mut self, text: Addr, ty: TypeId) {
        let length = self.cx.routine(Routine::TextLength);
        let size = self.cx.hir.types.size(ty) as u32;
        self.push_addr(text);
        self.push_addr(text);
        self.code.u32(size).call(length);
    }
}

/// Emits the body of [`Routine::PidOf`].
pub fn pid_of(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let call = cx.host(import::system::PID_OF);
    let found = cx.abi.result(import::system::PID_OF).some().offset;
    reset_arena(code);
    code.get(Var(0)).get(Var(1)).u32(cx.returned).call(call);
    code.u32(cx.returned).op(I::I32Load8U(mem(0))).if_value(ValType::I32);
    code.u32(cx.returned).op(I::I32Load(mem(found))).else_().i32(-1).end();
}

/// Emits the body of [`Routine::NextThread`].
pub fn next_thread(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let call = cx.host(import::system::NEXT_THREAD);
    let found = cx.abi.result(import::system::NEXT_THREAD).some().offset;
    reset_arena(code);
    code.get(Var(0)).get(Var(1)).u32(cx.returned).call(call);
    code.u32(cx.returned).op(I::I32Load8U(mem(0))).if_value(ValType::I32);
    code.u32(cx.returned).op(I::I32Load(mem(found))).else_().i32(0).end();
}

/// Emits the body of [`Routine::CommOf`].
pub fn comm_of(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let call = cx.host(import::system::COMM_OF);
    reset_arena(code);
    code.get(Var(2)).u32(cx.returned).call(call);
    copy_answer(cx, code);
}

/// Emits the body of [`Routine::Symbol`].
pub fn symbol(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let call = cx.host(import::symbols::NAME);
    reset_arena(code);
    code.get(Var(2)).get(Var(3)).get(Var(4)).u32(cx.returned).call(call);
    copy_answer(cx, code);
}

/// Copies the text that the host returned to the destination, whose address and size are the first two
/// parameters. The body of [`Routine::CopyAnswer`].
pub fn copy_answer(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let copy = cx.routine(Routine::TextCopy);
    code.get(Var(0)).get(Var(1));
    code.u32(cx.returned).op(I::I32Load(mem(0))).u32(cx.returned).op(I::I32Load(mem(LIST_LEN))).call(copy);
}
