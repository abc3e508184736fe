//! `attach` of a program to a target, and its links; `register` of an impl block.
//!
//! The language has no value for a link: `detach` names the program. The links are therefore kept in a list
//! of heap records, newest first: next record, handle of the program, handle of the link. A registered impl
//! block stays until the plugin ends, and its link is not kept.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, KeptGlobal, Lower};
use super::errno::EINVAL;
use super::func::FnCx;
use super::heap;
use super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use crate::hir::{Expr, FuncId, FunctionKind, HirFunction, ImplId, ProgramKind, Target};
use crate::plugin::contract::{HostFunction, import};
use crate::source::Span;

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

/// The parameters of [`Routine::AttachTarget`].
#[derive(Clone, Copy)]
struct Call {
    handle: Var,
    target: [Var; 2],
    flags: Var,
    location: [Var; 2],
}

/// Emits the body of [`Routine::AttachTarget`]. A handle is that of one of the programs that the script loads,
/// whose kind says which call of the contract attaches it.
pub fn attach(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let [handle, target, target_len, flags, location, location_len] = [0, 1, 2, 3, 4, 5].map(Var);
    let call = Call { handle, target: [target, target_len], flags, location: [location, location_len] };
    let shape = cx.abi.result(import::bpf::PROGRAM_ATTACH);
    let warn = cx.routine(Routine::WarnError);
    let errno = cx.routine(Routine::Errno);
    let is_utf8 = cx.routine(Routine::IsUtf8);
    code.get(target).get(target_len).call(is_utf8).op(I::I32Eqz).if_();
    warn_not_utf8(cx, code, call.location);
    code.i32(EINVAL).op(I::Return).end();
    code.get(handle).op(I::I32Eqz).if_();
    warn_not_loaded(cx, code, call.location, call.target);
    code.i32(EINVAL).op(I::Return).end();
    let attached = code.block();
    for program in cx.loaded.clone() {
        let kept = cx.kept(KeptGlobal::Program(program), 0);
        code.get(handle).get_global(kept).op(I::I32Eq).if_();
        attach_program(cx, code, call, program);
        code.br(attached).end();
    }
    code.op(I::Unreachable).end();
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len).u32(cx.returned + shape.err().offset).call(warn);
    code.u32(cx.returned + shape.err().offset).call(errno).op(I::Return).end();
    let link = code.local(ValType::I32);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set(link);
    keep(cx, code, handle, link, call.location);
    code.i32(0);
}

/// Attaches a program and leaves the result where the host returns results.
fn attach_program(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call, program: FuncId) {
    let function = &cx.hir.functions[program];
    let FunctionKind::Program(kind) = function.kind else { return };
    if kind == ProgramKind::Xdp {
        return attach_xdp(cx, code, call);
    }
    warn_of_flags(cx, code, call, &function.name);
    reset_arena(code);
    match kind {
        ProgramKind::Tc => {
            let attach = cx.host(import::bpf::PROGRAM_ATTACH_TC);
            code.get(call.handle).get(call.target[0]).get(call.target[1]);
            // Neither a priority nor a handle.
            code.i32(0).i32(0).i32(0).i32(0).u32(cx.returned).call(attach);
        }
        ProgramKind::Cgroup => attach_to_target(cx, code, call, import::bpf::PROGRAM_ATTACH_CGROUP),
        ProgramKind::SocketFilter => {
            attach_to_target(cx, code, call, import::bpf::PROGRAM_ATTACH_SOCKET_FILTER);
        }
        ProgramKind::Tracepoint | ProgramKind::SyscallEnter | ProgramKind::SyscallExit => {
            push_is_own(cx, code, call, program);
            code.if_();
            attach_where_declared(cx, code, call);
            code.else_();
            let attach = cx.host(import::bpf::PROGRAM_ATTACH_TRACEPOINT);
            code.get(call.handle).get(call.target[0]).get(call.target[1]).i64(NO_COOKIE);
            code.u32(cx.returned).call(attach).end();
        }
        // The host refuses it: such a program is attached to an event.
        ProgramKind::PerfEvent => attach_where_declared(cx, code, call),
        // The attributes of all others say where.
        _ => {
            push_is_own(cx, code, call, program);
            code.op(I::I32Eqz).if_();
            warn_not_own(cx, code, call, program);
            code.i32(EINVAL).op(I::Return).end();
            attach_where_declared(cx, code, call);
        }
    }
}

/// The language has no cookies.
const NO_COOKIE: i64 = 0;

/// Attaches where the program's attribute says.
fn attach_where_declared(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call) {
    let attach = cx.host(import::bpf::PROGRAM_ATTACH);
    code.get(call.handle).i64(NO_COOKIE).u32(cx.returned).call(attach);
}

fn attach_to_target(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call, function: HostFunction) {
    let attach = cx.host(function);
    code.get(call.handle).get(call.target[0]).get(call.target[1]).u32(cx.returned).call(attach);
}

/// Attaches in the mode that the flags say.
fn attach_xdp(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call) {
    let attach = cx.host(import::bpf::PROGRAM_ATTACH_XDP);
    let mode = code.local(ValType::I32);
    code.i32(-1).set(mode);
    for (flag, name) in XDP_FLAGS {
        let of_mode = cx.abi.named("bpf", "xdp-mode").enumerator(name);
        code.get(call.flags).i64(!XDP_FLAGS_UPDATE_IF_NOEXIST).op(I::I64And).i64(flag).op(I::I64Eq).if_();
        code.u32(of_mode).set(mode).end();
    }
    code.get(mode).i32(0).op(I::I32LtS).if_();
    warn_with(cx, code, call.location, |cx, code| {
        let number = cx.routine(Routine::AppendNumber);
        append_text(cx, code, "cannot attach: xdp has no flags ");
        code.get(call.flags).i32(0).call(number);
        append_text(cx, code, ": pass 0, 2 (generic), 4 (driver) or 8 (hardware)");
    });
    code.i32(EINVAL).op(I::Return).end();
    reset_arena(code);
    code.get(call.handle).get(call.target[0]).get(call.target[1]).get(mode).u32(cx.returned).call(attach);
}

/// Pushes whether the target is one of the texts for what the program's attribute says.
fn push_is_own(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call, program: FuncId) {
    let equal = cx.routine(Routine::TextEqual);
    code.i32(0);
    for text in own_targets(&cx.hir.functions[program]) {
        let text = cx.text(text);
        code.get(call.target[0]).get(call.target[1]).u32(text.address).u32(text.len).call(equal);
        code.op(I::I32Or);
    }
}

/// Returns the texts that name the attach point of a program's attribute; the empty text always does. The
/// second one is the most precise.
fn own_targets(function: &HirFunction) -> Vec<String> {
    let mut texts = vec![String::new()];
    match &function.target {
        Target::None | Target::Egress(_) | Target::Period { .. } => {}
        Target::Function { name, offset } => {
            let mut names = vec![name.clone()];
            if function.system_call.is_some() {
                names.extend(["__x64_", "__arm64_"].map(|prefix| format!("{prefix}{name}")));
            }
            if let Some(offset) = offset {
                texts.extend(names.iter().map(|name| format!("{name}+{offset}")));
                texts.extend(names.iter().map(|name| format!("{name}+{offset:#x}")));
            }
            if offset.unwrap_or_default() == 0 {
                texts.extend(names);
            }
        }
        Target::Tracepoint { category, event } => {
            texts.extend([format!("{category}/{event}"), event.clone()])
        }
        Target::Name(name) => match function.kind {
            FunctionKind::Program(kind @ (ProgramKind::SyscallEnter | ProgramKind::SyscallExit)) => {
                let at = if kind == ProgramKind::SyscallEnter { "enter" } else { "exit" };
                let event = format!("sys_{at}_{name}");
                texts.extend([format!("syscalls/{event}"), event, name.clone()]);
            }
            _ => texts.push(name.clone()),
        },
        Target::User { path, symbol, offset, .. } => {
            let symbol = symbol.as_deref().unwrap_or_default();
            let in_file = match offset {
                0 => vec![symbol.to_owned(), format!("{symbol}+0")],
                _ => vec![format!("{symbol}+{offset}"), format!("{symbol}+{offset:#x}")],
            };
            texts.extend(in_file.iter().map(|one| format!("{path}:{one}")));
            texts.extend(in_file);
            texts.push(path.clone());
        }
    }
    texts
}

fn warn_not_own(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call, program: FuncId) {
    let function = &cx.hir.functions[program];
    let remedy = match own_targets(function).get(1) {
        Some(own) => format!("` is not its target: pass \"\" or \"{own}\""),
        None => "` is not its target: pass \"\"".to_owned(),
    };
    let tried = format!("cannot attach `{}`: `", function.name);
    warn_with(cx, code, call.location, |cx, code| {
        append_text(cx, code, &tried);
        append_vars(cx, code, call.target[0], call.target[1]);
        append_text(cx, code, &remedy);
    });
}

/// Warns about flags of a program whose kind has none; they have no effect.
fn warn_of_flags(cx: &mut Cx<'_>, code: &mut WasmCode, call: Call, program: &str) {
    let text =
        format!("attaching `{program}`: its kind has no flags, and those given have no effect: pass 0");
    code.get(call.flags).op(I::I64Eqz).op(I::I32Eqz).if_();
    warn_with(cx, code, call.location, |cx, code| append_text(cx, code, &text));
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
