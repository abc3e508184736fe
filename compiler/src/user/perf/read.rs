//! `read` of one counter, and of a whole group.

use wasm_encoder::{Instruction as I, ValType};

use super::super::abi::{LIST_LEN, Shape};
use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::runtime::{Routine, append_text, begin_message, end_message, push_failed, reset_arena};
use super::{attachment_field, control, count, field, push_handle};
use crate::builtins::perf::{SNAPSHOT_ENTRIES, attachment, reading};
use crate::plugin::contract::{HostFunction, import};

const TO: Var = Var(0);
const ATTACHMENT: Var = Var(1);
const LOCATION: Var = Var(2);
const LOCATION_LEN: Var = Var(3);
const CPU: Var = Var(4);

/// Size in bytes of an element of both arrays.
const WORD: u32 = 8;

/// Emits the body of [`Routine::PerfRead`], which fills everything except the group's members.
pub fn scalar(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let ok = call(cx, code, import::perf::READ_BY_ID, "read", None);
    let base = code.local(ValType::I32);
    code.u32(cx.returned).set(base);
    store_counts(cx, code, base, ok.field("raw"), ok.field("scaled"));
    store_times(cx, code, ok);
}

/// Emits the body of [`Routine::PerfSnapshot`].
pub fn snapshot(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let ok = call(cx, code, import::perf::SNAPSHOT_BY_ID, "read", None);
    store_group(cx, code, ok);
}

/// Emits the body of [`Routine::PerfSnapshotCpu`].
pub fn snapshot_cpu(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let ok = call(cx, code, import::perf::ATTACHMENT_SNAPSHOT_CPU, "read_cpu", Some(CPU));
    store_group(cx, code, ok);
}

fn store_group(cx: &mut Cx<'_>, code: &mut WasmCode, ok: Shape) {
    let entry = ok.field("entries").element();
    let [at, len, own] = [(); 3].map(|()| code.local(ValType::I32));
    let entries = ok.field("entries").offset;
    code.u32(cx.returned).op(I::I32Load(mem(entries))).set(at);
    code.u32(cx.returned).op(I::I32Load(mem(entries + LIST_LEN))).set(len);
    // A host that names a member outside the group violates the contract.
    code.u32(cx.returned).op(I::I32Load(mem(ok.field("own").offset))).tee(own).get(len);
    code.op(I::I32GeU).if_();
    code.op(I::Unreachable).end();
    store_times(cx, code, ok);
    code.get(at).get(own).u32(entry.size()).ops_of([I::I32Mul, I::I32Add]).set(own);
    store_counts(cx, code, own, entry.field("raw"), entry.field("scaled"));
    cut(cx, code, at, len, entry.field("id").offset);
    // The store includes the padding after the field, because a comparison of two readings includes it.
    code.get(TO).get(len).op(I::I64ExtendI32U).op(I::I64Store(mem(reading_field(cx, reading::COUNT))));
    store_members(cx, code, at, len, entry);
}

/// Calls the host with the handle and a CPU, or with the id if there is no CPU. On failure it fills the
/// result and returns.
fn call(
    cx: &mut Cx<'_>,
    code: &mut WasmCode,
    function: HostFunction,
    builtin: &str,
    cpu: Option<Var>,
) -> Shape {
    let abi = cx.abi;
    let shape = abi.result(function);
    let host = cx.host(function);
    let warn = cx.routine(Routine::WarnError);
    let handle = code.local(ValType::I32);
    push_handle(cx, code, ATTACHMENT, handle);
    code.i32(0).op(I::I32LeS).if_();
    control::warn_invalid(cx, code, builtin, handle, [LOCATION, LOCATION_LEN]);
    fail(cx, code);
    code.end();
    reset_arena(code);
    match cpu {
        Some(cpu) => code.get(handle).get(cpu),
        None => code.get(ATTACHMENT).op(I::I64Load(mem(attachment_field(cx, attachment::GENERATION)))),
    };
    code.u32(cx.returned).call(host);
    push_failed(cx, code);
    code.if_();
    code.get(LOCATION).get(LOCATION_LEN).u32(cx.returned + shape.err().offset).call(warn);
    fail(cx, code);
    code.end();
    shape.ok()
}

/// Fills the result of a failed read and returns.
fn fail(cx: &Cx<'_>, code: &mut WasmCode) {
    push_zeros(cx, code);
    for position in [reading::RAW, reading::SCALED] {
        code.get(TO).i64(-1).op(I::I64Store(mem(reading_field(cx, position))));
    }
    code.op(I::Return);
}

fn push_zeros(cx: &Cx<'_>, code: &mut WasmCode) {
    let size = cx.hir.types.size(cx.hir.known.perf_read) as u32;
    code.get(TO).i32(0).u32(size).op(I::MemoryFill(0));
}

fn store_times(cx: &Cx<'_>, code: &mut WasmCode, ok: Shape) {
    for (position, name) in [(reading::TIME_ENABLED, "time-enabled"), (reading::TIME_RUNNING, "time-running")]
    {
        code.get(TO).u32(cx.returned).op(I::I64Load(mem(ok.field(name).offset)));
        code.op(I::I64Store(mem(reading_field(cx, position))));
    }
}

/// Stores `raw` and `scaled` of this attachment.
fn store_counts(cx: &mut Cx<'_>, code: &mut WasmCode, base: Var, raw: Shape, scaled: Shape) {
    code.get(TO);
    count::push(cx, code, base, raw.offset, ATTACHMENT);
    code.op(I::I64Store(mem(reading_field(cx, reading::RAW))));
    code.get(TO);
    push_scaled(cx, code, base, scaled);
    code.op(I::I64Store(mem(reading_field(cx, reading::SCALED))));
}

/// Pushes a scaled count; -1 if the event never ran, which the host reports on standard error.
fn push_scaled(cx: &mut Cx<'_>, code: &mut WasmCode, base: Var, scaled: Shape) {
    code.get(base).op(I::I32Load8U(mem(scaled.offset))).if_value(ValType::I64);
    count::push(cx, code, base, scaled.some().offset, ATTACHMENT);
    code.else_().i64(-1).end();
}

/// Truncates a group to the members that the language's arrays hold, and warns once per leader's event.
fn cut(cx: &mut Cx<'_>, code: &mut WasmCode, at: Var, len: Var, id: u32) {
    let most = SNAPSHOT_ENTRIES as u32;
    let warn_once = cx.host(import::console::WARN_ONCE);
    let number = cx.routine(Routine::AppendNumber);
    code.get(len).u32(most).op(I::I32GtU).if_();
    let start = begin_message(code);
    append_text(cx, code, "a group has ");
    code.get(len).op(I::I64ExtendI32U).i32(0).call(number);
    let rest = " live members: `values` and `ids` show the first 16, `raw` and `scaled` are right for each";
    append_text(cx, code, rest);
    code.get(at).op(I::I64Load(mem(id)));
    end_message(code, start);
    code.call(warn_once);
    code.u32(most).set(len).end();
}

/// Stores the members that the language's arrays hold, and zeros for the rest.
fn store_members(cx: &mut Cx<'_>, code: &mut WasmCode, at: Var, len: Var, entry: Shape) {
    let values = reading_field(cx, reading::VALUES);
    let ids = reading_field(cx, reading::IDS);
    let [end, to] = [(); 2].map(|()| code.local(ValType::I32));
    code.get(TO).set(to);
    code.get(at).get(len).u32(entry.size()).ops_of([I::I32Mul, I::I32Add]).set(end);
    let next = code.loop_();
    code.get(to);
    push_scaled(cx, code, at, entry.field("scaled"));
    code.op(I::I64Store(mem(values)));
    code.get(to).get(at).op(I::I64Load(mem(entry.field("kernel-id").offset)));
    code.op(I::I64Store(mem(ids)));
    code.get_plus(to, WORD).set(to);
    code.get_plus(at, entry.size()).tee(at).get(end).op(I::I32LtU).br_if(next).end();

    code.get_plus(TO, WORD * SNAPSHOT_ENTRIES as u32).set(end);
    let full = code.block();
    code.get(to).get(end).op(I::I32GeU).br_if(full);
    let next = code.loop_();
    for member in [values, ids] {
        code.get(to).i64(0).op(I::I64Store(mem(member)));
    }
    code.get_plus(to, WORD).tee(to).get(end).op(I::I32LtU).br_if(next).end().end();
}

fn reading_field(cx: &Cx<'_>, position: usize) -> u32 {
    field(cx, cx.hir.known.perf_read, position)
}
