//! Routines that compiled functions call, each defined only if it is used.
//!
//! Here: the table of the routines ([`Routine`]), and the bodies of those of memory and messages. The body of
//! every other routine is in the module of its construct.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::code::{Var, WasmCode, mem};
use super::cx::Cx;
use super::maps::Table;
use super::memory::PAGE;
use super::module::{ARENA, ARENA_START};
use super::{
    defer, errno, errors, heap, link, load, maps, number, objects, perf, print, programs, ring, shared,
    tasks, text, variables,
};
use crate::hir::{FuncId, Hir};
use crate::plugin::contract::import;
use crate::types::EnumId;

use ValType::{I32, I64};

/// Declares the routines: the enum `Routine`, and its signatures, names and bodies.
///
/// An entry is `Variant(payload: Type): (parameters) -> result, "name", argument => body;` below its
/// documentation. Payload, result and argument are optional; the argument replaces `{}` in the name. The
/// first line names the variables that entries use: the typed program in arguments of names, the context and
/// the code in bodies.
macro_rules! routines {
    (
        $hir:ident, $cx:ident, $code:ident;
        $(
            $(#[$doc:meta])*
            $variant:ident $(($payload:ident: $ty:ty))?: ($($param:ident),*) $(-> $result:ident)?,
            $name:literal $(, $argument:expr)? => $body:expr;
        )*
    ) => {
        /// A routine of the runtime. Parameters are core values, in this order; `where` is a text (address,
        /// length).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Routine {
            $($(#[$doc])* $variant $(($ty))?,)*
        }

        impl Routine {
            /// Returns core parameters and results of the routine.
            pub fn signature(self) -> (&'static [ValType], &'static [ValType]) {
                match self {
                    $(Routine::$variant { .. } => (&[$($param),*], &[$($result)?]),)*
                }
            }

            /// Returns a name for readers of a trap. No function of a script has a colon in its name.
            pub fn name(self, $hir: &Hir) -> String {
                match self {
                    $(Routine::$variant $(($payload))? => format!(concat!("ks:", $name) $(, $argument)?),)*
                }
            }

            /// Emits the body of the routine.
            pub fn code(self, $cx: &mut Cx<'_>) -> WasmCode {
                let mut body = WasmCode::new(self.signature().0.len());
                let $code = &mut body;
                match self {
                    $(Routine::$variant $(($payload))? => $body,)*
                }
                body
            }
        }
    };
}

routines! {
    hir, cx, code;

    /// `cabi_realloc`: old address, old size, alignment, new size -> address.
    Realloc: (I32, I32, I32, I32) -> I32, "realloc" => realloc(code);
    /// Address, length: appends text to the message that is being built at the end of the arena.
    Append: (I32, I32), "append" => append(cx, code);
    /// Number, 1 if signed: appends it to the message in decimal.
    AppendNumber: (I64, I32), "append_number" => append_number(cx, code);
    /// `where`, address of an `error`: prints one line on standard error.
    WarnError: (I32, I32, I32), "warn_error" => warn_error(cx, code);
    /// `where`, address of an `error`: ends the plugin.
    AbortError: (I32, I32, I32), "abort_error" => abort_error(cx, code);
    /// `where`, index, 1 if signed, text after the index (address, length): ends the plugin.
    AbortIndex: (I32, I32, I64, I32, I32, I32), "abort_index" => abort_index(cx, code);
    /// Pointer, `where`: ends the plugin, because the pointer is outside the plugin's memory.
    AbortPointer: (I64, I32, I32), "abort_pointer" => abort_pointer(cx, code);
    /// Value, address of a text: writes the enumerator's name there -> 1 if an enumerator has this value.
    EnumName(id: EnumId): (I64, I32) -> I32, "enum_name:{}", hir.types.enum_def(id).name =>
        print::enum_name(cx, code, id);
    /// Address, size -> bytes before the first zero.
    TextLength: (I32, I32) -> I32, "text_length" => text::length(code);
    /// Destination, size, source, size: copies text and fills the rest of the destination with zeros.
    TextCopy: (I32, I32, I32, I32), "text_copy" => text::copy(cx, code);
    /// Destination, size, source, size: appends text to the destination's.
    TextAppend: (I32, I32, I32, I32), "text_append" => text::append(cx, code);
    /// Address, size, address, size -> 1 if the texts are equal.
    TextEqual: (I32, I32, I32, I32) -> I32, "text_equal" => text::equal(cx, code);
    /// a, b, scale -> a * scale / b.
    Ratio: (I64, I64, I64) -> I64, "ratio" => number::ratio(code);
    /// Class, bytes, `where` -> the address of a zeroed object.
    Allocate: (I32, I32, I32, I32) -> I32, "allocate" => heap::allocate(cx, code);
    /// Pointer, `where`: frees an object, or removes the map entry that it mirrors.
    Free: (I64, I32, I32), "free" => heap::free(cx, code);
    /// Pointer, `where`: refreshes the object if it is in a map.
    ObjectRead: (I64, I32, I32), "object_read" => objects::read(cx, code);
    /// Pointer, `where`: writes the object back to its map if it is in one.
    ObjectWritten: (I64, I32, I32), "object_written" => objects::written(cx, code);
    /// Address of the key, pointer, kind of the pointer (`objects::GivenPointer`), `where` -> the address of
    /// the block that mirrors the entry; the pointer if there is no entry.
    Object(map: Table): (I32, I64, I32, I32, I32) -> I32, "object:{}", map.name(hir) =>
        objects::object(cx, code, map);
    /// A record: runs the deferred calls that were registered after it, newest first.
    RunDeferred: (I32), "run_deferred" => defer::run(cx, code);
    /// -> the exit code; reports an uncaught exception.
    ReportThrown: () -> I32, "report_thrown" => errors::report(cx, code);
    /// Handle, destination, size: copies a variable of the BPF object.
    VariableRead: (I32, I32, I32), "variable_read" => variables::read(cx, code);
    /// Handle, offset, source, size, `where`: stores a part of a variable of the BPF object.
    VariableWrite: (I32, I32, I32, I32, I32, I32), "variable_write" => variables::write(cx, code);
    /// Handle, value, `where`: stores a scalar variable of the BPF object.
    VariableSet: (I32, I64, I32, I32), "variable_set" => variables::set(cx, code);
    /// Destination, source in shared memory, size: copies bytes.
    SharedCopy: (I32, I32, I32), "shared_copy" => shared::copy(code);
    /// `where` -> handle, or [`maps::UNAVAILABLE`].
    MapOpen(map: Table): (I32, I32) -> I32, "map_open:{}", map.name(hir) => maps::open(cx, code, map);
    /// Address of the key, destination, `where` -> 1 if present; the destination is zero if absent.
    MapLookup(map: Table): (I32, I32, I32, I32) -> I32, "map_lookup:{}", map.name(hir) =>
        maps::lookup(cx, code, map);
    /// Address of the key, address of the value, update mode, `where`.
    MapStore(map: Table): (I32, I32, I32, I32, I32), "map_store:{}", map.name(hir) =>
        maps::store(cx, code, map);
    /// Address of the key, summand, `where`: adds to the value of CPU 0.
    MapAdd(map: Table): (I32, I64, I32, I32), "map_add:{}", map.name(hir) => maps::add(cx, code, map);
    /// Address of the key, `where`: removes an entry if there is one.
    MapRemove(map: Table): (I32, I32, I32), "map_remove:{}", map.name(hir) => maps::remove(cx, code, map);
    /// Address of the key of an inner map, `where`: creates it if there is none.
    MapCreateInner(map: Table): (I32, I32, I32), "map_create_inner:{}", map.name(hir) =>
        maps::create_inner(cx, code, map);
    /// Address of the key of an inner map, `where` -> 1 if there is one.
    MapHasInner(map: Table): (I32, I32, I32) -> I32, "map_has_inner:{}", map.name(hir) =>
        maps::has_inner(cx, code, map);
    /// Address of the key of an inner map, `where`: removes it if there is one.
    MapRemoveInner(map: Table): (I32, I32, I32), "map_remove_inner:{}", map.name(hir) =>
        maps::remove_inner(cx, code, map);
    /// Address of the key, CPU, destination, `where` -> 1 if the CPU has a value; else the destination is
    /// zero.
    MapSlot(map: Table): (I32, I32, I32, I32, I32) -> I32, "map_slot:{}", map.name(hir) =>
        maps::slot(cx, code, map);
    /// Address of a value, `where` -> 0 or errno: adds it to a queue, stack or bloom filter.
    MapPush(map: Table): (I32, I32, I32) -> I32, "map_push:{}", map.name(hir) => maps::push(cx, code, map);
    /// Destination, `where` -> 1 if a value was taken; else the destination is zero.
    MapTake(map: Table): (I32, I32, I32) -> I32, "map_take:{}", map.name(hir) => maps::take(cx, code, map);
    /// Address of a value, `where` -> 1 if a bloom filter may contain it.
    MapHas(map: Table): (I32, I32, I32) -> I32, "map_has:{}", map.name(hir) => maps::has(cx, code, map);
    /// `where` -> a cursor over the map, or 0.
    MapCursor(map: Table): (I32, I32) -> I32, "map_walk:{}", map.name(hir) => maps::cursor(cx, code, map);
    /// Cursor or 0, destination, its bytes, `where` -> bytes of entries; 0 at the end.
    MapNext: (I32, I32, I32, I32, I32) -> I32, "map_next" => maps::next(cx, code);
    /// `where` -> the number of entries of the map.
    MapCount(map: Table): (I32, I32) -> I32, "map_count:{}", map.name(hir) => maps::count(cx, code, map);
    /// `where` -> 0: removes all entries of the map.
    MapClear(map: Table): (I32, I32) -> I32, "map_clear:{}", map.name(hir) => maps::clear(cx, code, map);
    /// The state of a ring, `where` -> its handle, or -1.
    RingOpen: (I32, I32, I32) -> I32, "ring_open" => ring::open(cx, code);
    /// A list of the states of rings, its length, nanoseconds or -1, `where` -> the result of `dispatch`.
    Dispatch: (I32, I32, I64, I32, I32) -> I32, "dispatch" => ring::dispatch(cx, code);
    /// Destination, options, program handle, 1 if there is a program, flags, `where`: fills an attachment.
    PerfAttach: (I32, I32, I32, I32, I64, I32, I32), "attach" => perf::attach::code(cx, code);
    /// Destination, attachment, `where`: reads one counter.
    PerfRead: (I32, I32, I32, I32), "read" => perf::read::scalar(cx, code);
    /// Destination, attachment, `where`: reads a group.
    PerfSnapshot: (I32, I32, I32, I32), "snapshot" => perf::read::snapshot(cx, code);
    /// Destination, attachment, `where`, CPU: reads a group on one CPU.
    PerfSnapshotCpu: (I32, I32, I32, I32, I32), "snapshot_cpu" => perf::read::snapshot_cpu(cx, code);
    /// Attachment, name of an array of events (address, length), `where`: exposes the attachment to programs
    /// there.
    PerfPublish: (I32, I32, I32, I32, I32), "publish" => perf::publish::code(cx, code);
    /// A wildcard (address, size), `where` -> the number of events printed.
    PerfEvents: (I32, I32, I32, I32) -> I32, "events" => perf::list::code(cx, code);
    /// Attachment -> the largest count, which replaces one that does not fit.
    PerfLargestCount: (I32) -> I64, "largest_count" => perf::count::largest(cx, code);
    /// Attachment, `where` -> 0 or errno: enables, disables or resets it.
    PerfControl(control: perf::control::Control): (I32, I32, I32) -> I32, "{}", control.name() =>
        perf::control::code(cx, code, control);
    /// `where` -> handle of the loaded program, or 0.
    Load(program: FuncId): (I32, I32) -> I32, "load:{}", hir.functions[program].name =>
        load::load(cx, code, program);
    /// Program handle, target (address, length), flags, `where` -> 0 or errno.
    AttachTarget: (I32, I32, I32, I64, I32, I32) -> I32, "attach_target" => link::attach(cx, code);
    /// Name of an impl block (address, length), `where` -> 0 or errno.
    Register: (I32, I32, I32, I32) -> I32, "register" => link::register_code(cx, code);
    /// Program handle: drops its links, newest first.
    DropLinks: (I32), "drop_links" => link::drop_all(cx, code);
    /// Address of an `error` -> its errno, or the nearest one for its kind.
    Errno: (I32) -> I32, "errno" => errno::of_error(cx, code);
    /// Name (address, length) -> pid, or -1.
    PidOf: (I32, I32) -> I32, "pid_of" => tasks::pid_of(cx, code);
    /// Destination, its size, pid: writes the name of a process.
    CommOf: (I32, I32, I32), "comm_of" => tasks::comm_of(cx, code);
    /// Process, thread -> the next thread, or 0.
    NextThread: (I32, I32) -> I32, "next_thread" => tasks::next_thread(cx, code);
    /// Id, `where` -> the id of the next BPF program, or 0.
    NextBpfProgram: (I32, I32, I32) -> I32, "next_bpf_program" => programs::next(cx, code);
    /// Destination, id, `where`: writes a `bpf_program_info`.
    BpfProgram: (I32, I32, I32, I32), "bpf_program" => programs::info(cx, code);
    /// Address, length -> 1 if the bytes are UTF-8, as strings of the contract must be.
    IsUtf8: (I32, I32) -> I32, "is_utf8" => text::is_utf8(code);
    /// Destination, its size, 1 if there is a process, the process, address: writes the symbol at an address.
    Symbol: (I32, I32, I32, I32, I64), "symbol" => tasks::symbol(cx, code);
    /// Destination, its size: copies the text that the host returned.
    CopyAnswer: (I32, I32), "copy_answer" => tasks::copy_answer(cx, code);
    /// Milliseconds -> 0 or EINTR.
    Sleep: (I64) -> I32, "sleep" => load::sleep(cx, code);
    /// Returns when the host asks the plugin to stop.
    Wait: (), "wait" => load::wait(cx, code);
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
    let warn = cx.host(import::console::WARN);
    code.call(warn);
}

fn abort_error(cx: &mut Cx<'_>, code: &mut WasmCode) {
    push_error(cx, code);
    let abort = cx.host(import::console::ABORT);
    code.call(abort).op(I::Unreachable);
}

fn abort_index(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let start = begin_message(code);
    append_vars(cx, code, Var(0), Var(1));
    let number = cx.routine(Routine::AppendNumber);
    code.get(Var(2)).get(Var(3)).call(number);
    append_vars(cx, code, Var(4), Var(5));
    end_message(code, start);
    let abort = cx.host(import::console::ABORT);
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
    let abort = cx.host(import::console::ABORT);
    code.call(abort).op(I::Unreachable);
}
