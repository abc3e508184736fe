//! `exec` and functions of Python modules. The host decides; a refusal prints one line and yields 0.

use wasm_encoder::{Instruction as I, ValType};

use super::code::mem;
use super::cx::{Lower, base_name};
use super::func::FnCx;
use super::runtime::{Routine, push_failed, reset_arena};
use crate::hir::Expr;
use crate::plugin::contract::import;
use crate::source::Span;

impl FnCx<'_, '_> {
    /// Lowers `exec("x.py")`.
    pub fn exec(&mut self, file: &[u8], span: Span) {
        let run = self.cx.host(import::exec::RUN);
        let err = self.cx.abi.result(import::exec::RUN).err().offset;
        let file = self.cx.text(file);
        reset_arena(&mut self.code);
        self.push_text(file);
        let returned = self.cx.returned;
        self.code.u32(returned).call(run);
        push_failed(self.cx, &mut self.code);
        self.code.if_();
        self.warn_refused(err, span);
        self.code.end();
    }

    /// Lowers `MODULE.f(..)` and pushes the result.
    pub fn python(&mut self, (module, function): (&str, &str), args: &[Expr], span: Span) -> Lower<()> {
        let call = self.cx.host(import::exec::CALL);
        let shape = self.cx.abi.result(import::exec::CALL);
        let (ok, err) = (shape.ok().offset, shape.err().offset);
        let values = self.printed(b"", args)?;
        // The path on the build machine is not disclosed to the host.
        let (module, function) = (self.cx.text(base_name(module)), self.cx.text(function));
        reset_arena(&mut self.code);
        self.push_text(module);
        self.push_text(function);
        self.push_addr(values);
        let returned = self.cx.returned;
        self.code.u32(args.len() as u32).u32(returned).call(call);
        push_failed(self.cx, &mut self.code);
        self.code.if_value(ValType::I64);
        self.warn_refused(err, span);
        self.code.i64(0).else_().u32(returned).op(I::I64Load(mem(ok))).end();
        Ok(())
    }

    /// Writes the error of the last call to standard error, after the source line.
    pub fn warn_refused(&mut self, err: u32, span: Span) {
        let warn = self.cx.routine(Routine::WarnError);
        self.push_line(span);
        let returned = self.cx.returned;
        self.code.u32(returned + err).call(warn);
    }
}
