//! `attach` of a perf event: checks the properties that only the plugin can see, opens the event, fills the
//! attachment.

use wasm_encoder::{Instruction as I, ValType};

use super::super::abi::LIST_LEN;
use super::super::code::{Label, Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use super::{attachment_field, field};
use crate::builtins::perf::{OPTION_TEXT, attachment, form, options};
use crate::plugin::contract::{HostFunction, import};
use crate::types::IntType;

const TO: Var = Var(0);
const OPTIONS: Var = Var(1);
const PROGRAM: Var = Var(2);
const HAS_PROGRAM: Var = Var(3);
const FLAGS: Var = Var(4);
const LOCATION: Var = Var(5);
const LOCATION_LEN: Var = Var(6);

/// Setters of the contract's `options`, each with the field that it sets.
const SETTERS: &[(HostFunction, usize)] = &[
    (import::perf::OPTIONS_SET_PERIOD, options::PERIOD),
    (import::perf::OPTIONS_SET_INHERIT, options::INHERIT),
    (import::perf::OPTIONS_SET_EXCLUDE_KERNEL, options::EXCLUDE_KERNEL),
    (import::perf::OPTIONS_SET_EXCLUDE_USER, options::EXCLUDE_USER),
];

/// Setters of fields that version 0.1.1 does not have, imported if the script uses the field.
const MORE_SETTERS: &[(HostFunction, usize)] = &[
    (import::perf::OPTIONS_SET_FREQ, options::FREQ),
    (import::perf::OPTIONS_SET_EXCLUDE_IDLE, options::EXCLUDE_IDLE),
    (import::perf::OPTIONS_SET_EXCLUDE_HV, options::EXCLUDE_HV),
    (import::perf::OPTIONS_SET_EXCLUDE_HOST, options::EXCLUDE_HOST),
    (import::perf::OPTIONS_SET_EXCLUDE_GUEST, options::EXCLUDE_GUEST),
    (import::perf::OPTIONS_SET_PINNED, options::PINNED),
    (import::perf::OPTIONS_SET_EXCLUSIVE, options::EXCLUSIVE),
    (import::perf::OPTIONS_SET_PRECISE, options::PRECISE),
    (import::perf::OPTIONS_SET_FOLLOW, options::FOLLOW),
    (import::perf::OPTIONS_SET_WEAK, options::WEAK),
];

/// Emits the body of [`Routine::PerfAttach`].
pub fn code(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let [event, leader, handle] = [(); 3].map(|()| code.local(ValType::I32));
    let drop_event = cx.drop_handle(import::perf::EVENT);
    store_invalid(cx, code);
    let failed = code.block();
    make_event(cx, code, event, failed);
    let unattached = code.block();
    check(cx, code, event, leader, unattached);
    open(cx, code, event, leader, handle, unattached);
    store_attachment(cx, code, handle);
    code.end();
    code.get(event).call(drop_event);
    code.end();
}

fn store_invalid(cx: &Cx<'_>, code: &mut WasmCode) {
    for position in [attachment::PERF_FD, attachment::LINK_ID, attachment::PROG_FD] {
        code.get(TO).i32(attachment::INVALID).op(I::I32Store(mem(attachment_field(cx, position))));
    }
    code.get(TO).i64(0).op(I::I64Store(mem(attachment_field(cx, attachment::GENERATION))));
}

fn make_event(cx: &mut Cx<'_>, code: &mut WasmCode, event: Var, failed: Label) {
    let numbered = cx.host(import::perf::EVENT_NUMBERED);
    let shape = cx.abi.result(import::perf::EVENT_NUMBERED);
    let value = option_field(cx, options::EVENT);
    reset_arena(code);
    let created = code.block();
    if !cx.perf.forms.is_empty() {
        described(cx, code, created, failed);
    }
    code.get(OPTIONS).op(I::I64Load(mem(value))).i64(32).ops_of([I::I64ShrU, I::I32WrapI64]);
    code.get(OPTIONS).op(I::I64Load32U(mem(value)));
    code.u32(cx.returned).call(numbered);
    code.end();
    // All constructors return the same result type.
    warn_if_failed(cx, code, shape.err().offset, failed);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set(event);
}

/// Creates an event that is described in fields other than `event`, if it is one.
fn described(cx: &mut Cx<'_>, code: &mut WasmCode, created: Label, failed: Label) {
    let value = mem(option_field(cx, options::EVENT));
    for form in cx.perf.forms.clone() {
        let constructor = match form {
            form::RAW => import::perf::EVENT_RAW,
            form::TRACEPOINT => import::perf::EVENT_TRACEPOINT,
            form::BREAKPOINT => import::perf::EVENT_BREAKPOINT,
            form::BREAKPOINT_AT => import::perf::EVENT_BREAKPOINT_AT,
            form::PMU | form::NAMED => import::perf::EVENT_NAMED,
            form::KPROBE => import::perf::EVENT_KPROBE,
            _ => import::perf::EVENT_UPROBE,
        };
        let call = cx.host(constructor);
        code.get(OPTIONS).op(I::I64Load(value)).i64(form.cast_signed()).op(I::I64Eq).if_();
        match form {
            form::RAW => {
                push_option(cx, code, options::EVENT_TYPE);
                push_option(cx, code, options::EVENT_CONFIG);
                push_option(cx, code, options::EVENT_CONFIG1);
                push_option(cx, code, options::EVENT_CONFIG2);
            }
            form::BREAKPOINT => {
                push_option(cx, code, options::EVENT_CONFIG);
                push_accesses(cx, code);
            }
            form::BREAKPOINT_AT => {
                push_text_option(cx, code, options::EVENT_TEXT);
                push_accesses(cx, code);
            }
            form::NAMED => {
                refuse_if_not_utf8(cx, code, failed);
                push_text_option(cx, code, options::EVENT_TEXT);
            }
            _ => push_text_option(cx, code, options::EVENT_TEXT),
        }
        code.u32(cx.returned).call(call).br(created).end();
    }
    // A variable of type event holds the form alone; the description stayed in the options that it was read
    // from.
    code.get(OPTIONS).op(I::I64Load(value)).i64(form::RAW.cast_signed()).op(I::I64GeU).if_();
    let reason = "this event cannot be copied; name it where it is attached";
    refuse_unnamed(cx, code, reason, failed);
    code.end();
}

/// Refuses an event's name that the contract cannot pass.
fn refuse_if_not_utf8(cx: &mut Cx<'_>, code: &mut WasmCode, failed: Label) {
    let is_utf8 = cx.routine(Routine::IsUtf8);
    push_text_option(cx, code, options::EVENT_TEXT);
    code.call(is_utf8).op(I::I32Eqz).if_();
    refuse_unnamed(cx, code, "the name of the event is not UTF-8", failed);
    code.end();
}

/// Prints one line about an event that was not created and branches to `failed`.
fn refuse_unnamed(cx: &mut Cx<'_>, code: &mut WasmCode, reason: &str, failed: Label) {
    let warn = cx.host(import::console::WARN);
    let start = begin_message(code);
    append_vars(cx, code, LOCATION, LOCATION_LEN);
    append_text(cx, code, &format!("cannot attach: {reason}"));
    end_message(code, start);
    code.call(warn).br(failed);
}

/// Pushes the length of a breakpoint and its accesses, whose bits equal the contract's flags.
fn push_accesses(cx: &mut Cx<'_>, code: &mut WasmCode) {
    push_option(cx, code, options::EVENT_CONFIG1);
    code.op(I::I32WrapI64);
    push_option(cx, code, options::EVENT_CONFIG2);
    code.op(I::I32WrapI64);
}

/// Rejects requests that the host could not distinguish from valid ones.
fn check(cx: &mut Cx<'_>, code: &mut WasmCode, event: Var, leader: Var, refused: Label) {
    let handle = option_field(cx, options::GROUP) + attachment_field(cx, attachment::PERF_FD);
    code.get(OPTIONS).op(I::I32Load(mem(handle))).tee(leader).i32(0).op(I::I32LeS);
    code.get(leader).i32(attachment::NONE).ops_of([I::I32Ne, I::I32And]).if_();
    // The failed `attach` of the leader has reported why.
    code.get(leader).i32(attachment::INVALID).op(I::I32Eq).br_if(refused);
    refuse(cx, code, event, "stale or invalid leader: attach the leader first and test it for null", refused);
    code.end();
    code.get(HAS_PROGRAM).get(PROGRAM).ops_of([I::I32Eqz, I::I32And]).if_();
    refuse(
        cx,
        code,
        event,
        "its program is not loaded: test the handle that `load` returned for null",
        refused,
    );
    code.end();
    code.get(FLAGS).ops_of([I::I64Eqz, I::I32Eqz]).if_();
    refuse(cx, code, event, "the flags of a perf event must be 0", refused);
    code.end();
    for (position, reason) in [
        (options::PROCESS, "the name in `process` is not UTF-8"),
        (options::CGROUP, "the path in `cgroup` is not UTF-8"),
    ] {
        if cx.perf.options.contains(&position) {
            let is_utf8 = cx.routine(Routine::IsUtf8);
            push_text_option(cx, code, position);
            code.call(is_utf8).op(I::I32Eqz).if_();
            refuse(cx, code, event, reason, refused);
            code.end();
        }
    }
}

/// Prints one line that names the event and branches to `refused`.
fn refuse(cx: &mut Cx<'_>, code: &mut WasmCode, event: Var, reason: &str, refused: Label) {
    let name = cx.host(import::perf::EVENT_NAME);
    let append = cx.routine(Routine::Append);
    let warn = cx.host(import::console::WARN);
    reset_arena(code);
    code.get(event).u32(cx.returned).call(name);
    let start = begin_message(code);
    append_vars(cx, code, LOCATION, LOCATION_LEN);
    append_text(cx, code, "cannot attach `");
    code.u32(cx.returned).op(I::I32Load(mem(0))).u32(cx.returned).op(I::I32Load(mem(LIST_LEN))).call(append);
    append_text(cx, code, &format!("`: {reason}"));
    end_message(code, start);
    code.call(warn).br(refused);
}

fn open(cx: &mut Cx<'_>, code: &mut WasmCode, event: Var, leader: Var, handle: Var, failed: Label) {
    let new_options = cx.host(import::perf::OPTIONS_NEW);
    let drop_options = cx.drop_handle(import::perf::OPTIONS);
    let open = cx.host(import::perf::OPEN);
    let shape = cx.abi.result(import::perf::OPEN);
    let chosen = code.local(ValType::I32);
    code.call(new_options).set(chosen);
    observe(cx, code, chosen);
    choose_cpus(cx, code, chosen);
    let more: Vec<_> =
        MORE_SETTERS.iter().filter(|(_, position)| cx.perf.options.contains(position)).collect();
    for (setter, position) in SETTERS.iter().chain(more) {
        let call = cx.host(*setter);
        code.get(chosen);
        push_option(cx, code, *position);
        code.call(call);
    }
    reset_arena(code);
    code.get(event).get(chosen);
    code.get(leader).i32(0).op(I::I32GtS).get(leader);
    code.get(HAS_PROGRAM).get(PROGRAM);
    code.u32(cx.returned).call(open);
    code.get(chosen).call(drop_options);
    warn_if_failed(cx, code, shape.err().offset, failed);
    code.u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).set(handle);
}

/// Tells the host the tasks to observe. The language's default is every task, the contract's the own thread.
fn observe(cx: &mut Cx<'_>, code: &mut WasmCode, chosen: Var) {
    let [own, every, task] = [
        import::perf::OPTIONS_OBSERVE_OWN_THREAD,
        import::perf::OPTIONS_OBSERVE_EVERY_TASK,
        import::perf::OPTIONS_OBSERVE_TASK,
    ]
    .map(|function| cx.host(function));
    let pid = code.local(ValType::I32);
    push_option(cx, code, options::PID);
    code.tee(pid).op(I::I32Eqz).if_();
    code.get(chosen).call(own).else_().get(pid).i32(-1).op(I::I32Eq).if_();
    code.get(chosen).call(every).else_().get(chosen).get(pid).call(task).end().end();
    for (method, position) in [
        (import::perf::OPTIONS_OBSERVE_PROCESS, options::PROCESS),
        (import::perf::OPTIONS_OBSERVE_CGROUP, options::CGROUP),
        (import::perf::OPTIONS_OBSERVE_COMMAND, options::COMMAND),
    ] {
        if !cx.perf.options.contains(&position) {
            continue;
        }
        let call = cx.host(method);
        // The first byte of a text is 0 if it is empty, as is a boolean that is false.
        code.get(OPTIONS).op(I::I32Load8U(mem(option_field(cx, position)))).if_();
        code.get(chosen);
        if position != options::COMMAND {
            push_text_option(cx, code, position);
        }
        code.call(call).end();
    }
}

/// Tells the host the CPUs to observe.
fn choose_cpus(cx: &mut Cx<'_>, code: &mut WasmCode, chosen: Var) {
    let (any, one) = (cx.host(import::perf::OPTIONS_ON_ANY_CPU), cx.host(import::perf::OPTIONS_ON_CPU));
    let every =
        cx.perf.options.contains(&options::EVERY_CPU).then(|| cx.host(import::perf::OPTIONS_ON_EVERY_CPU));
    let cpu = code.local(ValType::I32);
    if let Some(every) = every {
        push_option(cx, code, options::EVERY_CPU);
        code.if_();
        code.get(chosen).call(every).else_();
    }
    push_option(cx, code, options::CPU);
    code.tee(cpu).i32(-1).op(I::I32Eq).if_();
    code.get(chosen).call(any).else_().get(chosen).get(cpu).call(one).end();
    if every.is_some() {
        code.end();
    }
}

/// Pushes a field of the script's `perf_options`, loaded with the field's width.
fn push_option(cx: &Cx<'_>, code: &mut WasmCode, position: usize) {
    let types = &cx.hir.types;
    let crate::types::TypeKind::Struct(id) = types.kind(cx.hir.known.perf_options) else {
        panic!("perf_options is a struct")
    };
    let int: IntType =
        types.scalar(types.struct_def(*id).fields[position].ty).expect("the options are scalars");
    code.get(OPTIONS).op(super::super::scalar::load_op(int, option_field(cx, position)));
}

/// Pushes the address and the length of a text of the options.
fn push_text_option(cx: &mut Cx<'_>, code: &mut WasmCode, position: usize) {
    let length = cx.routine(Routine::TextLength);
    let offset = option_field(cx, position);
    code.get_plus(OPTIONS, offset).get_plus(OPTIONS, offset).u32(OPTION_TEXT).call(length);
}

fn store_attachment(cx: &mut Cx<'_>, code: &mut WasmCode, handle: Var) {
    let id = cx.host(import::perf::ATTACHMENT_ID);
    let at = |position| mem(attachment_field(cx, position));
    code.get(TO).get(handle).op(I::I32Store(at(attachment::PERF_FD)));
    code.get(TO).get(handle).i32(0).get(HAS_PROGRAM).op(I::Select);
    code.op(I::I32Store(at(attachment::LINK_ID)));
    code.get(TO).get(PROGRAM).op(I::I32Store(at(attachment::PROG_FD)));
    code.get(TO).get(handle).call(id).op(I::I64Store(at(attachment::GENERATION)));
}

/// Prints one line and branches to `failed` if the host refused.
fn warn_if_failed(cx: &mut Cx<'_>, code: &mut WasmCode, err: u32, failed: Label) {
    let warn = cx.routine(Routine::WarnError);
    push_failed(cx, code);
    code.if_();
    code.get(LOCATION).get(LOCATION_LEN).u32(cx.returned + err).call(warn);
    code.br(failed).end();
}

fn option_field(cx: &Cx<'_>, position: usize) -> u32 {
    field(cx, cx.hir.known.perf_options, position)
}
