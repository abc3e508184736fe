//! `attach` of a program to a target, and its links; `register` of an impl block.
//!
//! The language has no value for a link: `detach` names the program. The links are therefore kept in a list
//! of heap records, newest first: next record, handle of the program, handle of the link. A registered impl
//! block stays until the plugin ends, and its link is not kept.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, KeptGlobal, Lower};
use super::errno::EINVAL;
use super::func::FnCx;
use super::heap;
use super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use crate::hir::{Expr, ImplId};
use crate::plugin::contract::import;
use crate::source::Span;

/// Type of xdp programs. Source: include/uapi/linux/bpf.h, `BPF_PROG_TYPE_XDP`, v6.18.
const XDP_PROGRAM: u32 = 6;
/// Has no effect: a link is exclusive anyway. Source of the flags: include/uapi/linux/if_link.h, v6.12.
const XDP_FLAGS_UPDATE_IF_NOEXIST: i64 = 1;
/// The language's flags, and the contract's modes.
const XDP_FLAGS: [(i64, &str); 4] = [(0, "best"), (2, "generic"), (4, "native"), (8, "offloaded")];

/// Byte offsets of a record's fields, and its size.
const NEXT: u32 = 0;
const PROGRAM: u32 = 4;
const LINK: u32 = 8;
const RECORD: u32 = 12;

impl FnCx<'_, '_> {
    /// Lowers `attach(h, target, flags)`.
    pub fn attach_target(&mut self, program: &Expr, target: &Expr, flags: &Expr, span: Span) -> Lower<()> {
        let attach = self.cx.routine(Routine::AttachTarget);
        let handle = self.temp(ValType::I32);
        self.scalar(program)?;
        self.code.set(handle);
        let text = self.stable_addr(target, std::slice::from_ref(flags))?;
        self.code.get(handle);
        self.push_text_at(text, target.ty);
        self.scalar(flags)?;
        self.push_line(span);
        self.code.call(attach);
        Ok(())
    }

    /// Lowers `register(block)`.
    pub fn register(&mut self, block: ImplId, span: Span) {
        let register = self.cx.routine(Routine::Register);
        let name = self.cx.text(&self.cx.hir.impls[block].name);
        self.push_text(name);
        self.push_line(span);
        self.code.call(register);
    }
}

/// Emits the body of [`Routine::Register`].
pub fn register_code(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let [name, name_len, location, location_len] = [0, 1, 2, 3].map(Var);
    let call = cx.host(import::bpf::LINK_REGISTER);
    let shape = cx.abi.result(import::bpf::LINK_REGISTER);
    let warn = cx.routine(Routine::WarnError);
    let errno = cx.routine(Routine::Errno);
    reset_arena(code);
    code.get(name).get(name_len).u32(cx.returned).call(call);
    push_failed(cx, code);
    code.if_value(ValType::I32);
    code.get(location).get(location_len).u32(cx.returned + shape.err().offset).call(warn);
    code.u32(cx.returned + shape.err().offset).call(errno).else_().i32(0).end();
}

/// Emits the body of [`Routine::AttachTarget`].
pub fn attach(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let [program, target, target_len] = [0, 1, 2].map(Var);
    let (flags, location, location_len) = (Var(3), Var(4), Var(5));
    let shape = cx.abi.result(import::bpf::PROGRAM_ATTACH);
    let warn = cx.routine(Routine::WarnError);
    let errno = cx.routine(Routine::Errno);
    let is_utf8 = cx.routine(Routine::IsUtf8);
    code.get(target).get(target_len).call(is_utf8).op(I::I32Eqz).if_();
    warn_not_utf8(cx, code, [location, location_len]);
    code.i32(EINVAL).op(I::Return).end();
    code.get(program).op(I::I32Eqz).if_();
    warn_not_loaded(cx, code, [location, location_len], [target, target_len]);
    code.i32(EINVAL).op(I::Return).end();
    code.get(flags).op(I::I64Eqz).if_();
    call_attach(cx, code, [program, target, target_len]);
    code.else_();
    attach_with_flags(cx, code, [program, target, target_len], flags, [location, location_len]);
    code.end();
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len).u32(cx.returned + shape.err().offset).call(warn);
    code.u32(cx.returned + shape.err().offset).call(errno).op(I::Return).end();
    let link = code.local(ValType::I32);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set(link);
    keep(cx, code, program, link, [location, location_len]);
    code.i32(0);
}

fn call_attach(cx: &mut Cx<'_>, code: &mut WasmCode, [program, target, target_len]: [Var; 3]) {
    let call = cx.host(import::bpf::PROGRAM_ATTACH);
    reset_arena(code);
    code.get(program).get(target).get(target_len).u32(cx.returned).call(call);
}

/// Attaches with flags, which say the mode of an xdp program. A program of another kind has none: they have no
/// effect, and one line says so.
fn attach_with_flags(
    cx: &mut Cx<'_>,
    code: &mut WasmCode,
    [program, target, target_len]: [Var; 3],
    flags: Var,
    [location, location_len]: [Var; 2],
) {
    let [info, attach] =
        [import::bpf::PROGRAM_INFO, import::bpf::PROGRAM_ATTACH_XDP].map(|call| cx.host(call));
    let known = cx.abi.result(import::bpf::PROGRAM_INFO).ok();
    let (name, kind) = (known.field("name").offset, known.field("kind"));
    let (other, number) = kind.case("other");
    let number = number.expect("another kind has a number").offset;
    let at = |offset| I::I32Load(mem(offset));
    let returned = cx.returned;
    let mode = code.local(ValType::I32);
    reset_arena(code);
    code.get(program).u32(returned).call(info);
    push_failed(cx, code);
    code.op(I::I32Eqz)
        .u32(returned)
        .op(I::I32Load8U(mem(kind.offset)))
        .u32(other)
        .ops_of([I::I32Eq, I::I32And]);
    code.u32(returned).op(at(number)).u32(XDP_PROGRAM).ops_of([I::I32Eq, I::I32And]).if_();

    code.i32(-1).set(mode);
    for (flag, name) in XDP_FLAGS {
        let of_mode = cx.abi.named("bpf", "xdp-mode").enumerator(name);
        code.get(flags).i64(!XDP_FLAGS_UPDATE_IF_NOEXIST).op(I::I64And).i64(flag).op(I::I64Eq).if_();
        code.u32(of_mode).set(mode).end();
    }
    code.get(mode).i32(0).op(I::I32LtS).if_();
    let known = "cannot attach: xdp has the flags 0, 2 (generic), 4 (driver) and 8 (hardware)";
    warn_with(cx, code, [location, location_len], |cx, code| append_text(cx, code, known));
    code.i32(EINVAL).op(I::Return).end();
    reset_arena(code);
    code.get(program).get(target).get(target_len).get(mode).u32(returned).call(attach).else_();

    warn_with(cx, code, [location, location_len], |cx, code| {
        let append = cx.routine(Routine::Append);
        append_text(cx, code, "attaching `");
        code.u32(returned).op(at(name)).u32(returned).op(at(name + LIST_LEN)).call(append);
        append_text(cx, code, "`: its kind has no flags, and those given have no effect: pass 0");
    });
    call_attach(cx, code, [program, target, target_len]);
    code.end();
}

/// Writes a line after the source line.
fn warn_with(
    cx: &mut Cx<'_>,
    code: &mut WasmCode,
    location: [Var; 2],
    text: impl FnOnce(&mut Cx<'_>, &mut WasmCode),
) {
    let warn = cx.host(import::console::WARN);
    let start = begin_message(code);
    append_vars(cx, code, location[0], location[1]);
    text(cx, code);
    end_message(code, start);
    code.call(warn);
}

/// Prepends a link to the list.
fn keep(cx: &mut Cx<'_>, code: &mut WasmCode, program: Var, link: Var, [location, location_len]: [Var; 2]) {
    let links = cx.kept(KeptGlobal::Links, 0);
    let allocate = cx.routine(Routine::Allocate);
    let (class, bytes) = heap::class(RECORD);
    let record = code.local(ValType::I32);
    code.u32(class).u32(bytes).get(location).get(location_len).call(allocate).set(record);
    code.get(record).get_global(links).op(I::I32Store(mem(NEXT)));
    code.get(record).get(program).op(I::I32Store(mem(PROGRAM)));
    code.get(record).get(link).op(I::I32Store(mem(LINK)));
    code.get(record).set_global(links);
}

/// Emits the body of [`Routine::DropLinks`].
pub fn drop_all(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let program = Var(0);
    let links = cx.kept(KeptGlobal::Links, 0);
    let drop = cx.drop_handle(import::bpf::LINK);
    let free = cx.routine(Routine::Free);
    let [at, previous, next] = [(); 3].map(|()| code.local(ValType::I32));
    code.get_global(links).set(at);
    let done = code.block();
    let again = code.loop_();
    code.get(at).op(I::I32Eqz).br_if(done);
    code.get(at).op(I::I32Load(mem(NEXT))).set(next);
    code.get(at).op(I::I32Load(mem(PROGRAM))).get(program).op(I::I32Eq).if_();
    code.get(at).op(I::I32Load(mem(LINK))).call(drop);
    code.get(previous).if_();
    code.get(previous).get(next).op(I::I32Store(mem(NEXT))).else_();
    code.get(next).set_global(links).end();
    code.get(at).op(I::I64ExtendI32U).i32(0).i32(0).call(free).else_();
    code.get(at).set(previous).end();
    code.get(next).set(at).br(again).end().end();
}

/// Warns about a target that is not UTF-8, which can be neither passed to the host nor printed.
fn warn_not_utf8(cx: &mut Cx<'_>, code: &mut WasmCode, location: [Var; 2]) {
    warn_with(cx, code, location, |cx, code| append_text(cx, code, "cannot attach: the target is not UTF-8"));
}

/// Warns that the program is not loaded.
fn warn_not_loaded(cx: &mut Cx<'_>, code: &mut WasmCode, location: [Var; 2], target: [Var; 2]) {
    let warn = cx.host(import::console::WARN);
    reset_arena(code);
    let start = begin_message(code);
    append_vars(cx, code, location[0], location[1]);
    append_text(cx, code, "cannot attach to `");
    append_vars(cx, code, target[0], target[1]);
    append_text(cx, code, "`: the program is not loaded: test the handle that `load` returned for null");
    end_message(code, start);
    code.call(warn);
}
