//! `enable`, `disable` and `reset`.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Var, WasmCode};
use super::super::cx::Cx;
use super::super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use super::push_handle;
use crate::builtins::perf::attachment;
use crate::plugin::contract::{HostFunction, import};

/// EBADF of `include/uapi/asm-generic/errno-base.h`: the attachment does not exist.
const EBADF: i32 = 9;

/// Builtin that controls a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Resumes counting.
    Enable,
    /// Stops counting.
    Disable,
    /// Sets the count to zero.
    Reset,
}

impl Control {
    /// Returns the name of the builtin.
    pub fn name(self) -> &'static str {
        match self {
            Control::Enable => "enable",
            Control::Disable => "disable",
            Control::Reset => "reset",
        }
    }

    fn function(self) -> HostFunction {
        match self {
            Control::Enable => import::perf::ATTACHMENT_ENABLE,
            Control::Disable => import::perf::ATTACHMENT_DISABLE,
            Control::Reset => import::perf::ATTACHMENT_RESET,
        }
    }
}

/// Emits the body of [`Routine::PerfControl`].
pub fn code(cx: &mut Cx<'_>, code: &mut WasmCode, control: Control) {
    let (counter, location, location_len) = (Var(0), Var(1), Var(2));
    let call = cx.host(control.function());
    let err = cx.abi.result(control.function()).err().offset;
    let warn = cx.routine(Routine::WarnError);
    let handle = code.local(ValType::I32);
    push_handle(cx, code, counter, handle);
    code.i32(0).op(I::I32LeS).if_();
    warn_invalid(cx, code, control.name(), handle, [location, location_len]);
    code.i32(EBADF).op(I::Return).end();
    reset_arena(code);
    code.get(handle).u32(cx.returned).call(call);
    push_failed(cx, code);
    code.op(I::I32Eqz).if_();
    code.i32(0).op(I::Return).end();
    code.get(location).get(location_len).u32(cx.returned + err).call(warn);
    let errno = cx.routine(Routine::Errno);
    code.u32(cx.returned + err).call(errno);
}

/// Warns that a builtin was passed an attachment that never existed. Silent if its `attach` failed, which
/// reported why.
pub fn warn_invalid(
    cx: &mut Cx<'_>,
    code: &mut WasmCode,
    builtin: &str,
    handle: Var,
    [location, location_len]: [Var; 2],
) {
    let warn = cx.host(import::console::WARN);
    code.get(handle).i32(attachment::INVALID).op(I::I32Ne).if_();
    reset_arena(code);
    let start = begin_message(code);
    append_vars(cx, code, location, location_len);
    append_text(cx, code, &format!("{builtin}: invalid attachment: `attach` never ran"));
    end_message(code, start);
    code.call(warn).end();
}
