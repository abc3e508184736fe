//! `throw`, `try` and `catch`.
//!
//! A pending exception is held in two globals of the module until a clause catches it: its code, and the text
//! of its source line. Every call of a function that may throw checks them afterwards; the call's result is
//! then undefined.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{WasmCode, mem};
use super::cx::{Cx, KeptGlobal, Lower};
use super::func::FnCx;
use super::runtime::{Routine, append_text, append_vars, begin_message, end_message};
use super::scalar::push_const;
use crate::hir::{Block, Catch, CatchPattern, Expr, FuncId};
use crate::plugin::contract::import;
use crate::source::Span;

/// Offset of the text, which follows its length.
const TEXT: u32 = 4;

impl FnCx<'_, '_> {
    /// Lowers a `throw` statement.
    pub fn throw(&mut self, value: &Expr, span: Span) -> Lower<()> {
        let line = self.cx.line(span);
        let mut bytes = (line.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(line.as_bytes());
        let location = self.cx.module.statics.constant(&bytes);
        let (thrown, code) = (self.cx.kept(KeptGlobal::Thrown, 0), self.cx.kept(KeptGlobal::ThrownCode, 0));
        self.scalar(value)?;
        self.code.set_global(code).u32(location).set_global(thrown);
        self.propagate();
        Ok(())
    }

    /// Checks for an exception after a call of a known function, and propagates it.
    pub fn check_thrown(&mut self, callee: FuncId) {
        if self.cx.hir.functions[callee].throws {
            self.check_thrown_value();
        }
    }

    /// Checks for an exception after a call through a function value.
    pub fn check_thrown_value(&mut self) {
        if self.cx.throws {
            let thrown = self.cx.kept(KeptGlobal::Thrown, 0);
            self.code.get_global(thrown).if_();
            self.propagate();
            self.code.end();
        }
    }

    /// Lowers `try` with its `catch` clauses.
    pub fn try_(&mut self, body: &Block, catches: &[Catch]) -> Lower<()> {
        let done = self.code.block();
        let caught = self.code.block();
        self.handlers.push((caught, self.cursors.len()));
        self.block(body)?;
        self.handlers.pop();
        self.code.br(done).end();
        for catch in catches {
            self.catch(catch)?;
            self.code.br(done);
            if let CatchPattern::Code(_) = catch.pattern {
                self.code.end();
            }
        }
        self.propagate();
        self.code.end();
        Ok(())
    }

    fn catch(&mut self, catch: &Catch) -> Lower<()> {
        let (thrown, code) = (self.cx.kept(KeptGlobal::Thrown, 0), self.cx.kept(KeptGlobal::ThrownCode, 0));
        match catch.pattern {
            CatchPattern::Code(value) => {
                self.code.get_global(code).i32(value).op(I::I32Eq).if_();
            }
            CatchPattern::Any => {}
            CatchPattern::Bind(local) => self.put(local, |fcx| {
                fcx.code.get_global(code);
                Ok(())
            })?,
        }
        self.code.i32(0).set_global(thrown);
        self.block(&catch.body)
    }

    /// Branches to the innermost `try`, or returns from the function.
    fn propagate(&mut self) {
        if let Some(handler) = self.handlers.last() {
            let (handler, cursors) = *handler;
            self.drop_cursors(cursors);
            self.code.br(handler);
            return;
        }
        if let Some(int) = self.cx.hir.types.scalar(self.function.ret) {
            push_const(&mut self.code, int, 0);
        }
        self.leave();
    }
}

/// Emits the body of [`Routine::ReportThrown`].
pub fn report(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let thrown = cx.kept(KeptGlobal::Thrown, 0);
    let thrown_code = cx.kept(KeptGlobal::ThrownCode, 0);
    let number = cx.routine(Routine::AppendNumber);
    let warn = cx.host(import::console::WARN);
    let (text, len) = (code.local(ValType::I32), code.local(ValType::I32));
    let start = begin_message(code);
    append_text(cx, code, "uncaught error ");
    code.get_global(thrown_code).op(I::I64ExtendI32S).i32(1).call(number);
    append_text(cx, code, " at ");
    code.get_global(thrown).u32(TEXT).op(I::I32Add).set(text);
    code.get_global(thrown).op(I::I32Load(mem(0))).set(len);
    append_vars(cx, code, text, len);
    end_message(code, start);
    code.call(warn);
    // Codes 1 to 125 become the exit code, any other code 1: a shell gives larger ones a meaning of its own.
    code.get_global(thrown_code).i32(1).get_global(thrown_code);
    code.i32(1).op(I::I32Sub).i32(125).ops_of([I::I32LtU, I::Select]);
}
