//! Routines that compiled functions call, each defined only if it is used.
//!
//! Here: signatures and names, and the routines of memory and messages. The code of every other routine is in
//! the module of its construct.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, routine_code};
use super::maps::Table;
use super::memory::PAGE;
use super::module::{ARENA, ARENA_START};
use super::{
    defer, errno, errors, heap, link, load, maps, number, objects, perf, print, ring, shared, tasks, text,
    variables,
};
use crate::hir::{FuncId, Hir};
use crate::types::EnumId;

/// A routine of the runtime. Parameters are core values, in this order; `where` is a text (address, length).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routine {
    /// `cabi_realloc`: old address, old size, alignment, new size -> address.
    Realloc,
    /// Address, length: appends text to the message that is being built at the end of the arena.
    Append,
    /// Number, 1 if signed: appends it to the message in decimal.
    AppendNumber,
    /// `where`, address of an `error`: prints one line on standard error.
    WarnError,
    /// `where`, address of an `error`: ends the plugin.
    AbortError,
    /// `where`, index, 1 if signed, text after the index (address, length): ends the plugin.
    AbortIndex,
    /// Pointer, `where`: ends the plugin, because the pointer is outside the plugin's memory.
    AbortPointer,
    /// Value, address of a text: writes the enumerator's name there -> 1 if an enumerator has this value.
    EnumName(EnumId),
    /// Address, size -> bytes before the first zero.
    TextLength,
    /// Destination, size, source, size: copies text and fills the rest of the destination with zeros.
    TextCopy,
    /// Destination, size, source, size: appends text to the destination's.
    TextAppend,
    /// Address, size, address, size -> 1 if the texts are equal.
    TextEqual,
    /// a, b, scale -> a * scale / b.
    Ratio,
    /// Class, bytes, `where` -> the address of a zeroed object.
    Allocate,
    /// Pointer, `where`: frees an object, or removes the map entry that it mirrors.
    Free,
    /// Pointer, `where`: refreshes the object if it is in a map.
    ObjectRead,
    /// Pointer, `where`: writes the object back to its map if it is in one.
    ObjectWritten,
    /// Address of the key, pointer, kind of the pointer (`objects::GivenPointer`), `where` -> the address of
    /// the block that mirrors the entry; the pointer if there is no entry.
    Object(Table),
    /// A record: runs the deferred calls that were registered after it, newest first.
    RunDeferred,
    /// -> the exit code; reports an uncaught exception.
    ReportThrown,
    /// Handle, destination, size: copies a variable of the BPF object.
    VariableRead,
    /// Handle, offset, source, size, `where`: stores a part of a variable of the BPF object.
    VariableWrite,
    /// Handle, value, `where`: stores a scalar variable of the BPF object.
    VariableSet,
    /// Destination, source in shared memory, size: copies bytes.
    SharedCopy,
    /// `where` -> handle, or [`maps::UNAVAILABLE`].
    MapOpen(Table),
    /// Address of the key, destination, `where` -> 1 if present; the destination is zero if absent.
    MapLookup(Table),
    /// Address of the key, address of the value, update mode, `where`.
    MapStore(Table),
    /// Address of the key, summand, `where`: adds to the value of CPU 0.
    MapAdd(Table),
    /// Address of the key, `where`: removes an entry if there is one.
    MapRemove(Table),
    /// Address of the key, CPU, destination, `where` -> 1 if the CPU has a value; else the destination is
    /// zero.
    MapSlot(Table),
    /// Address of a value, `where` -> 0 or errno: adds it to a queue, stack or bloom filter.
    MapPush(Table),
    /// Destination, `where` -> 1 if a value was taken; else the destination is zero.
    MapTake(Table),
    /// Address of a value, `where` -> 1 if a bloom filter may contain it.
    MapHas(Table),
    /// `where` -> a cursor over the map, or 0.
    MapCursor(Table),
    /// Cursor or 0, destination, its bytes, `where` -> bytes of entries; 0 at the end.
    MapNext,
    /// `where` -> the number of entries of the map.
    MapCount(Table),
    /// `where` -> 0: removes all entries of the map.
    MapClear(Table),
    /// The state of a ring, `where` -> its handle, or -1.
    RingOpen,
    /// A list of the states of rings, its length, nanoseconds or -1, `where` -> the result of `dispatch`.
    Dispatch,
    /// Destination, options, program handle, 1 if there is a program, flags, `where`: fills an attachment.
    PerfAttach,
    /// Destination, attachment, `where`: reads one counter.
    PerfRead,
    /// Destination, attachment, `where`: reads a group.
    PerfSnapshot,
    /// Destination, attachment, `where`, CPU: reads a group on one CPU.
    PerfSnapshotCpu,
    /// Attachment, name of an array of events (address, length), `where`: exposes the attachment to programs
    /// there.
    PerfShow,
    /// A wildcard (address, size), `where` -> the number of events printed.
    PerfEvents,
    /// Attachment -> the largest count, which replaces one that does not fit.
    PerfLargestCount,
    /// Attachment, `where` -> 0 or errno: enables, disables or resets it.
    PerfControl(perf::control::Control),
    /// `where` -> handle of the loaded program, or 0.
    Load(FuncId),
    /// Program handle, target (address, length), flags, `where` -> 0 or errno.
    AttachTarget,
    /// Name of an impl block (address, length), `where` -> 0 or errno.
    Register,
    /// Program handle: drops its links, newest first.
    DropLinks,
    /// Address of an `error` -> its errno, or the nearest one for its kind.
    Errno,
    /// Name (address, length) -> pid, or -1.
    PidOf,
    /// Destination, its size, pid: writes the name of a process.
    CommOf,
    /// Address, length -> 1 if the bytes are UTF-8, as strings of the contract must be.
    IsUtf8,
    /// Destination, its size, 1 if there is a process, the process, address: writes the symbol at an address.
    Symbol,
    /// Milliseconds -> 0 or EINTR.
    Sleep,
    /// Returns when the host asks the plugin to stop.
    Wait,
}

use ValType::{I32, I64};

impl Routine {
    /// Returns core parameters and results of the routine.
    pub fn signature(self) -> (&'static [ValType], &'static [ValType]) {
        match self {
            Routine::Realloc => (&[I32; 4], &[I32]),
            Routine::Append => (&[I32; 2], &[]),
            Routine::AppendNumber => (&[I64, I32], &[]),
            Routine::WarnError | Routine::AbortError => (&[I32; 3], &[]),
            Routine::AbortIndex => (&[I32, I32, I64, I32, I32, I32], &[]),
            Routine::AbortPointer | Routine::Free | Routine::ObjectRead | Routine::ObjectWritten => {
                (&[I64, I32, I32], &[])
            }
            Routine::EnumName(_) => (&[I64, I32], &[I32]),
            Routine::TextLength => (&[I32; 2], &[I32]),
            Routine::TextCopy | Routine::TextAppend => (&[I32; 4], &[]),
            Routine::Ratio => (&[I64; 3], &[I64]),
            Routine::Allocate => (&[I32; 4], &[I32]),
            Routine::RunDeferred => (&[I32], &[]),
            Routine::ReportThrown => (&[], &[I32]),
            Routine::TextEqual => (&[I32; 4], &[I32]),
            Routine::VariableRead | Routine::SharedCopy => (&[I32; 3], &[]),
            Routine::VariableWrite => (&[I32; 6], &[]),
            Routine::VariableSet => (&[I32, I64, I32, I32], &[]),
            Routine::MapOpen(_) | Routine::Load(_) => (&[I32; 2], &[I32]),
            Routine::MapLookup(_) => (&[I32; 4], &[I32]),
            Routine::MapStore(_) => (&[I32; 5], &[]),
            Routine::Object(_) => (&[I32, I64, I32, I32, I32], &[I32]),
            Routine::MapAdd(_) => (&[I32, I64, I32, I32], &[]),
            Routine::MapRemove(_) => (&[I32; 3], &[]),
            Routine::MapSlot(_) => (&[I32; 5], &[I32]),
            Routine::MapPush(_) | Routine::MapTake(_) | Routine::MapHas(_) => (&[I32; 3], &[I32]),
            Routine::MapCursor(_) | Routine::MapCount(_) | Routine::MapClear(_) => (&[I32; 2], &[I32]),
            Routine::MapNext => (&[I32; 5], &[I32]),
            Routine::RingOpen => (&[I32; 3], &[I32]),
            Routine::Dispatch => (&[I32, I32, I64, I32, I32], &[I32]),
            Routine::PerfAttach => (&[I32, I32, I32, I32, I64, I32, I32], &[]),
            Routine::PerfRead | Routine::PerfSnapshot => (&[I32; 4], &[]),
            Routine::PerfSnapshotCpu => (&[I32; 5], &[]),
            Routine::PerfShow => (&[I32; 5], &[]),
            Routine::PerfEvents => (&[I32; 4], &[I32]),
            Routine::PerfLargestCount => (&[I32], &[I64]),
            Routine::PerfControl(_) => (&[I32; 3], &[I32]),
            Routine::AttachTarget => (&[I32, I32, I32, I64, I32, I32], &[I32]),
            Routine::Register => (&[I32; 4], &[I32]),
            Routine::DropLinks => (&[I32], &[]),
            Routine::Errno => (&[I32], &[I32]),
            Routine::PidOf => (&[I32; 2], &[I32]),
            Routine::CommOf => (&[I32; 3], &[]),
            Routine::IsUtf8 => (&[I32; 2], &[I32]),
            Routine::Symbol => (&[I32, I32, I32, I32, I64], &[]),
            Routine::Sleep => (&[I64], &[I32]),
            Routine::Wait => (&[], &[]),
        }
    }

    /// Returns a name for readers of a trap. No function of a script has a colon in its name.
    pub fn name(self, hir: &Hir) -> String {
        let name = match self {
            Routine::Realloc => "realloc",
            Routine::Append => "append",
            Routine::AppendNumber => "append_number",
            Routine::WarnError => "warn_error",
            Routine::AbortError => "abort_error",
            Routine::AbortIndex => "abort_index",
            Routine::AbortPointer => "abort_pointer",
            Routine::EnumName(id) => return format!("ks:enum_name:{}", hir.types.enum_def(id).name),
            Routine::TextLength => "text_length",
            Routine::TextCopy => "text_copy",
            Routine::TextAppend => "text_append",
            Routine::Ratio => "ratio",
            Routine::Allocate => "allocate",
            Routine::Free => "free",
            Routine::ObjectRead => "object_read",
            Routine::ObjectWritten => "object_written",
            Routine::Object(map) => return format!("ks:object:{}", map.name(hir)),
            Routine::RunDeferred => "run_deferred",
            Routine::ReportThrown => "report_thrown",
            Routine::TextEqual => "text_equal",
            Routine::VariableRead => "variable_read",
            Routine::VariableWrite => "variable_write",
            Routine::VariableSet => "variable_set",
            Routine::SharedCopy => "shared_copy",
            Routine::MapOpen(map) => return format!("ks:map_open:{}", map.name(hir)),
            Routine::MapLookup(map) => return format!("ks:map_lookup:{}", map.name(hir)),
            Routine::MapStore(map) => return format!("ks:map_store:{}", map.name(hir)),
            Routine::MapAdd(map) => return format!("ks:map_add:{}", map.name(hir)),
            Routine::MapRemove(map) => return format!("ks:map_remove:{}", map.name(hir)),
            Routine::MapSlot(map) => return format!("ks:map_slot:{}", map.name(hir)),
            Routine::MapPush(map) => return format!("ks:map_push:{}", map.name(hir)),
            Routine::MapTake(map) => return format!("ks:map_take:{}", map.name(hir)),
            Routine::MapHas(map) => return format!("ks:map_has:{}", map.name(hir)),
            Routine::MapCursor(map) => return format!("ks:map_walk:{}", map.name(hir)),
            Routine::MapCount(map) => return format!("ks:map_count:{}", map.name(hir)),
            Routine::MapClear(map) => return format!("ks:map_clear:{}", map.name(hir)),
            Routine::MapNext => "map_next",
            Routine::RingOpen => "ring_open",
            Routine::Dispatch => "dispatch",
            Routine::PerfAttach => "attach",
            Routine::PerfRead => "read",
            Routine::PerfSnapshot => "snapshot",
            Routine::PerfSnapshotCpu => "snapshot_cpu",
            Routine::PerfShow => "show",
            Routine::PerfEvents => "events",
            Routine::PerfLargestCount => "largest_count",
            Routine::PerfControl(control) => control.name(),
            Routine::Load(program) => return format!("ks:load:{}", hir.functions[program].name),
            Routine::AttachTarget => "attach_target",
            Routine::Register => "register",
            Routine::DropLinks => "drop_links",
            Routine::Errno => "errno",
            Routine::PidOf => "pid_of",
            Routine::CommOf => "comm_of",
            Routine::IsUtf8 => "is_utf8",
            Routine::Symbol => "symbol",
            Routine::Sleep => "sleep",
            Routine::Wait => "wait",
        };
        format!("ks:{name}")
    }

    /// Emits the body of the routine.
    pub fn code(self, cx: &mut Cx<'_>) -> WasmCode {
        let mut code = routine_code(self);
        match self {
            Routine::Realloc => realloc(&mut code),
            Routine::Append => append(cx, &mut code),
            Routine::AppendNumber => append_number(cx, &mut code),
            Routine::WarnError => warn_error(cx, &mut code),
            Routine::AbortError => abort_error(cx, &mut code),
            Routine::AbortIndex => abort_index(cx, &mut code),
            Routine::AbortPointer => abort_pointer(cx, &mut code),
            Routine::EnumName(id) => print::enum_name(cx, &mut code, id),
            Routine::TextLength => text::length(&mut code),
            Routine::TextCopy => text::copy(cx, &mut code),
            Routine::TextAppend => text::append(cx, &mut code),
            Routine::Ratio => number::ratio(&mut code),
            Routine::Allocate => heap::allocate(cx, &mut code),
            Routine::Free => heap::free(cx, &mut code),
            Routine::ObjectRead => objects::read(cx, &mut code),
            Routine::ObjectWritten => objects::written(cx, &mut code),
            Routine::Object(map) => objects::object(cx, &mut code, map),
            Routine::RunDeferred => defer::run(cx, &mut code),
            Routine::ReportThrown => errors::report(cx, &mut code),
            Routine::TextEqual => text::equal(cx, &mut code),
            Routine::VariableRead => variables::read(cx, &mut code),
            Routine::VariableWrite => variables::write(cx, &mut code),
            Routine::VariableSet => variables::set(cx, &mut code),
            Routine::SharedCopy => shared::copy(&mut code),
            Routine::MapOpen(map) => maps::open(cx, &mut code, map),
            Routine::MapLookup(map) => maps::lookup(cx, &mut code, map),
            Routine::MapStore(map) => maps::store(cx, &mut code, map),
            Routine::MapAdd(map) => maps::add(cx, &mut code, map),
            Routine::MapRemove(map) => maps::remove(cx, &mut code, map),
            Routine::MapSlot(map) => maps::slot(cx, &mut code, map),
            Routine::MapPush(map) => maps::push(cx, &mut code, map),
            Routine::MapTake(map) => maps::take(cx, &mut code, map),
            Routine::MapHas(map) => maps::has(cx, &mut code, map),
            Routine::MapCursor(map) => maps::cursor(cx, &mut code, map),
            Routine::MapCount(map) => maps::count(cx, &mut code, map),
            Routine::MapClear(map) => maps::clear(cx, &mut code, map),
            Routine::MapNext => maps::next(cx, &mut code),
            Routine::RingOpen => ring::open(cx, &mut code),
            Routine::Dispatch => ring::dispatch(cx, &mut code),
            Routine::PerfAttach => perf::attach::code(cx, &mut code),
            Routine::PerfRead => perf::read::scalar(cx, &mut code),
            Routine::PerfSnapshot => perf::read::snapshot(cx, &mut code),
            Routine::PerfSnapshotCpu => perf::read::snapshot_cpu(cx, &mut code),
            Routine::PerfShow => perf::show::code(cx, &mut code),
            Routine::PerfEvents => perf::list::code(cx, &mut code),
            Routine::PerfLargestCount => perf::count::largest(cx, &mut code),
            Routine::PerfControl(control) => perf::control::code(cx, &mut code, control),
            Routine::Load(program) => load::load(cx, &mut code, program),
            Routine::AttachTarget => link::attach(cx, &mut code),
            Routine::Register => link::register_code(cx, &mut code),
            Routine::DropLinks => link::drop_all(cx, &mut code),
            Routine::Errno => errno::of_error(cx, &mut code),
            Routine::PidOf => tasks::pid_of(cx, &mut code),
            Routine::CommOf => tasks::comm_of(cx, &mut code),
            Routine::IsUtf8 => text::is_utf8(&mut code),
            Routine::Symbol => tasks::symbol(cx, &mut code),
            Routine::Sleep => load::sleep(cx, &mut code),
            Routine::Wait => load::wait(cx, &mut code),
        }
        code
    }
}

/// Resets the arena, which frees everything that the host allocated.
pub fn reset_arena(code: &mut WasmCode) {
    code.get_global(ARENA_START).set_global(ARENA);
}

/// Starts a message at the end of the arena, after the host's data, and returns its start.
pub fn begin_message(code: &mut WasmCode) -> Var {
    let start = code.local(I32);
    code.get_global(ARENA).set(start);
    start
}

/// Appends a constant text to a message.
pub fn append_text(cx: &mut Cx<'_>, code: &mut WasmCode, text: &str) {
    let text = cx.text(text);
    let append = cx.routine(Routine::Append);
    code.u32(text.address).u32(text.len).call(append);
}

/// Pushes the address and the length of a message.
pub fn end_message(code: &mut WasmCode, start: Var) {
    code.get(start).get_global(ARENA).get(start).op(I::I32Sub);
}

/// Appends the text whose address and length are in two locals.
pub fn append_vars(cx: &mut Cx<'_>, code: &mut WasmCode, address: Var, len: Var) {
    let append = cx.routine(Routine::Append);
    code.get(address).get(len).call(append);
}

/// Pushes the discriminant of the last host call's result: not 0 is an error.
pub fn push_failed(cx: &Cx<'_>, code: &mut WasmCode) {
    code.u32(cx.returned).op(I::I32Load8U(mem(0)));
}

fn realloc(code: &mut WasmCode) {
    let (old, old_size, align, new_size) = (Var(0), Var(1), Var(2), Var(3));
    let start = code.local(I32);
    let end = code.local(I64);
    let limit = code.local(I64);
    code.get_global(ARENA).get(align).op(I::I32Add).i32(1).op(I::I32Sub);
    code.i32(0).get(align).ops_of([I::I32Sub, I::I32And]).set(start);
    code.get(start).op(I::I64ExtendI32U).get(new_size).ops_of([I::I64ExtendI32U, I::I64Add]).set(end);
    code.ops_of([I::MemorySize(0), I::I64ExtendI32U]).i64(i64::from(PAGE)).op(I::I64Mul).set(limit);
    code.get(end).get(limit).op(I::I64GtU).if_();
    code.get(end).get(limit).op(I::I64Sub).i64(i64::from(PAGE) - 1).op(I::I64Add);
    code.i64(i64::from(PAGE)).ops_of([I::I64DivU, I::I32WrapI64, I::MemoryGrow(0)]);
    // The host may not be called from `cabi_realloc`, so there is no message.
    code.i32(-1).op(I::I32Eq).if_();
    code.op(I::Unreachable).end().end();
    code.get(end).op(I::I32WrapI64).set_global(ARENA);
    code.get(start).get(old).get(old_size);
    code.get(new_size).get(old_size).get(new_size).ops_of([I::I32LtU, I::Select]);
    code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    code.get(start);
}

fn append(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (address, len) = (Var(0), Var(1));
    let realloc = cx.routine(Routine::Realloc);
    code.i32(0).i32(0).i32(1).get(len).call(realloc);
    code.get(address).get(len).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
}

/// Size of the buffer for a number; the longest one has 20 characters.
const NUMBER_BYTES: u32 = 24;

fn append_number(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (value, signed) = (Var(0), Var(1));
    let digits_end = cx.module.statics.reserve(u64::from(NUMBER_BYTES), 1) + NUMBER_BYTES;
    let negative = code.local(I32);
    let at = code.local(I32);
    let put = |code: &mut WasmCode| {
        code.get(at).i32(1).op(I::I32Sub).tee(at);
    };
    code.get(value).i64(0).op(I::I64LtS).get(signed).op(I::I32And).tee(negative).if_();
    code.i64(0).get(value).op(I::I64Sub).set(value).end();
    code.u32(digits_end).set(at);
    let next = code.loop_();
    put(code);
    code.get(value).i64(10).ops_of([I::I64RemU, I::I32WrapI64]).i32(i32::from(b'0')).op(I::I32Add);
    code.op(I::I32Store8(mem(0)));
    code.get(value).i64(10).op(I::I64DivU).tee(value).i64(0).op(I::I64Ne).br_if(next).end();
    code.get(negative).if_();
    put(code);
    code.i32(i32::from(b'-')).op(I::I32Store8(mem(0))).end();
    let append = cx.routine(Routine::Append);
    code.get(at).u32(digits_end).get(at).op(I::I32Sub).call(append);
}

/// Writes `where` and the error's text as a message and pushes its address and length.
fn push_error(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (location, location_len, error) = (Var(0), Var(1), Var(2));
    let message = cx.abi.named("types", "error").field("message").offset;
    let append = cx.routine(Routine::Append);
    let start = begin_message(code);
    append_vars(cx, code, location, location_len);
    code.get(error)
        .op(I::I32Load(mem(message)))
        .get(error)
        .op(I::I32Load(mem(message + LIST_LEN)))
        .call(append);
    end_message(code, start);
}

fn warn_error(cx: &mut Cx<'_>, code: &mut WasmCode) {
    push_error(cx, code);
    let warn = cx.host("console", "warn");
    code.call(warn);
}

fn abort_error(cx: &mut Cx<'_>, code: &mut WasmCode) {
    push_error(cx, code);
    let abort = cx.host("console", "abort");
    code.call(abort).op(I::Unreachable);
}

fn abort_index(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let start = begin_message(code);
    append_vars(cx, code, Var(0), Var(1));
    let number = cx.routine(Routine::AppendNumber);
    code.get(Var(2)).get(Var(3)).call(number);
    append_vars(cx, code, Var(4), Var(5));
    end_message(code, start);
    let abort = cx.host("console", "abort");
    code.call(abort).op(I::Unreachable);
}

fn abort_pointer(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let pointer = Var(0);
    let number = cx.routine(Routine::AppendNumber);
    let start = begin_message(code);
    append_vars(cx, code, Var(1), Var(2));
    code.get(pointer).op(I::I64Eqz).if_();
    append_text(cx, code, "KS-TRAP null: this pointer is null");
    code.else_();
    append_text(cx, code, "KS-TRAP pointer: this pointer, ");
    code.get(pointer).i32(0).call(number);
    append_text(cx, code, ", is outside the memory of the plugin");
    code.end();
    end_message(code, start);
    let abort = cx.host("console", "abort");
    code.call(abort).op(I::Unreachable);
}
