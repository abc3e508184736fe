//! Ring buffers: `on_event` and `dispatch`.
//!
//! The state of each ring is in linear memory, where a dispatch over any rings finds it:
//!
//! ```text
//! 0 handle (-1 before the first use)   4 handler (position in the table, 0: none)
//! 8 whether it is being dispatched     12 bytes of a record
//! 16 address of its name               20 length of its name
//! ```
//!
//! A batch is in a heap block while its handlers run, because handlers make host calls, which reset the
//! arena. The host writes the batch there directly: the arena is moved to the block for that call.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::LIST_LEN;
use super::code::{Label, Var, WasmCode, mem};
use super::cx::{Cx, KeptGlobal, Lower};
use super::func::FnCx;
use super::heap;
use super::module::{ARENA, ARENA_START};
use super::runtime::{
    Routine, append_text, append_vars, begin_message, end_message, push_failed, reset_arena,
};
use crate::hir::{Expr, FuncId, RingId};
use crate::plugin::contract::import;
use crate::source::Span;

const HANDLE: u32 = 0;
const HANDLER: u32 = 4;
const BUSY: u32 = 8;
const RECORD_BYTES: u32 = 12;
const NAME: u32 = 16;
const NAME_LEN: u32 = 20;

/// Byte offsets of ring position and length in an entry of a batch; the record follows them.
const ENTRY_RING: u32 = 0;
const ENTRY_LEN: u32 = 4;
const ENTRY: u32 = 8;

/// Value of a ring's handle before its first use. No handle is negative.
const UNOPENED: i32 = -1;
/// Negated result of a `dispatch` of a ring that cannot be opened.
const EBADF: i32 = 9;
/// Size of a batch block in bytes, unless a record needs more.
const BLOCK: u32 = 32 << 10;
/// Number of nanoseconds per millisecond.
const NS_PER_MS: i64 = 1_000_000;

impl FnCx<'_, '_> {
    /// Lowers `r.on_event(f)`, whose result is 0.
    pub fn on_event(&mut self, ring: RingId, handler: FuncId) {
        let state = state(self.cx, ring);
        let function = self.cx.function(handler);
        let position = self.cx.module.table_position(function);
        self.code.u32(state).u32(position).op(I::I32Store(mem(HANDLER))).i32(0);
    }

    /// Lowers `dispatch` and pushes its result.
    pub fn dispatch(&mut self, rings: &[RingId], timeout_ms: Option<&Expr>, span: Span) -> Lower<()> {
        let dispatch = self.cx.routine(Routine::Dispatch);
        let states: Vec<u8> = rings.iter().flat_map(|ring| state(self.cx, *ring).to_le_bytes()).collect();
        let list = self.cx.text(states);
        self.code.u32(list.address).u32(rings.len() as u32);
        match timeout_ms {
            Some(ms) => {
                let var = self.temp(ValType::I64);
                let longest = i64::MAX / NS_PER_MS;
                self.scalar(ms)?;
                self.code.tee(var).i64(longest).get(var).i64(longest).ops_of([I::I64LtU, I::Select]);
                self.code.i64(NS_PER_MS).op(I::I64Mul);
            }
            None => {
                self.code.i64(-1);
            }
        }
        self.push_line(span);
        self.code.call(dispatch);
        self.check_thrown_value();
        Ok(())
    }
}

/// Returns the address of a ring's state, allocated on first use.
fn state(cx: &mut Cx<'_>, id: RingId) -> u32 {
    if let Some(address) = cx.rings.get(&id) {
        return *address;
    }
    let ring = &cx.hir.rings[id];
    let handler = ring.default_handler.map_or(0, |handler| {
        let function = cx.function(handler);
        cx.module.table_position(function)
    });
    let name = cx.text(&ring.name);
    let record = cx.hir.types.size(ring.record) as u32;
    let fields = [UNOPENED.cast_unsigned(), handler, 0, record, name.address, name.len];
    let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    let address = cx.module.statics.variable(&bytes, bytes.len() as u64, 4);
    cx.rings.insert(id, address);
    address
}

/// Emits the body of [`Routine::RingOpen`].
pub fn open(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let (ring, location, location_len) = (Var(0), Var(1), Var(2));
    let open = cx.host(import::ring::RING_OPEN);
    let shape = cx.abi.result(import::ring::RING_OPEN);
    let warn = cx.routine(Routine::WarnError);
    code.get(ring).op(I::I32Load(mem(HANDLE))).i32(UNOPENED).op(I::I32Ne).if_();
    code.get(ring).ops_of([I::I32Load(mem(HANDLE)), I::Return]).end();
    reset_arena(code);
    code.get(ring).op(I::I32Load(mem(NAME))).get(ring).op(I::I32Load(mem(NAME_LEN)));
    code.u32(cx.returned).call(open);
    push_failed(cx, code);
    code.if_();
    code.get(location).get(location_len).u32(cx.returned + shape.err().offset).call(warn);
    code.i32(UNOPENED).op(I::Return).end();
    code.get(ring).u32(cx.returned).op(I::I32Load(mem(shape.ok().offset))).op(I::I32Store(mem(HANDLE)));
    code.get(ring).op(I::I32Load(mem(HANDLE)));
}

/// Locals of a dispatch.
struct Dispatch {
    rings: Var,
    count: Var,
    /// Timeout in nanoseconds; negative means none.
    timeout: Var,
    location: Var,
    location_len: Var,
    result: Var,
    /// Address of the handles, followed by the batch.
    block: Var,
    block_bytes: u32,
    batch: Var,
    /// Handle of the batch.
    handle: Var,
    deadline: Var,
    handled: Var,
    /// Addresses of the current entry and of the end of the batch.
    at: Var,
    end: Var,
}

/// Emits the body of [`Routine::Dispatch`].
pub fn dispatch(cx: &mut Cx<'_>, code: &mut WasmCode) {
    let mut narrow = || code.local(ValType::I32);
    let largest = cx.hir.rings.iter().map(|ring| cx.hir.types.size(ring.record)).max().unwrap_or(0);
    let handles = cx.hir.rings.len() as u64 * 4;
    let needed = largest.next_multiple_of(8) + u64::from(ENTRY) + handles + 8;
    let (class, block_bytes) = heap::class(u32::try_from(needed).unwrap_or(u32::MAX >> 1).max(BLOCK));
    let this = Dispatch {
        rings: Var(0),
        count: Var(1),
        timeout: Var(2),
        location: Var(3),
        location_len: Var(4),
        result: narrow(),
        block: narrow(),
        batch: narrow(),
        handle: narrow(),
        handled: narrow(),
        at: narrow(),
        end: narrow(),
        deadline: code.local(ValType::I64),
        block_bytes,
    };
    let allocate = cx.routine(Routine::Allocate);
    let free = cx.routine(Routine::Free);
    code.u32(class).u32(block_bytes).get(this.location).get(this.location_len).call(allocate).tee(this.block);
    code.get(this.count).i32(4).op(I::I32Mul).op(I::I32Add).i32(7).op(I::I32Add).i32(-8).op(I::I32And);
    code.set(this.batch);
    let done = code.block();
    this.open_all(cx, code, done);
    this.set_busy(code, 1);
    this.start_clock(cx, code);
    let quit = code.block();
    let next = code.loop_();
    this.poll(cx, code, quit);
    this.handle_all(cx, code, quit);
    this.check_deadline(cx, code, quit);
    code.br(next).end().end();
    this.set_busy(code, 0);
    code.end();
    code.get(this.block).op(I::I64ExtendI32U).get(this.location).get(this.location_len).call(free);
    code.get(this.result);
}

impl Dispatch {
    /// Emits a loop over the rings; `body` receives the ring's state and its position.
    fn each(&self, code: &mut WasmCode, body: impl FnOnce(&mut WasmCode, Var, Var)) {
        let (position, ring) = (code.local(ValType::I32), code.local(ValType::I32));
        code.i32(0).set(position);
        let next = code.loop_();
        self.state_at(code, position);
        code.set(ring);
        body(code, ring, position);
        code.get(position).i32(1).op(I::I32Add).tee(position).get(self.count).op(I::I32LtU).br_if(next).end();
    }

    /// Pushes the address of the state of the ring at `position`.
    fn state_at(&self, code: &mut WasmCode, position: Var) {
        code.get(self.rings).get(position).i32(4).ops_of([I::I32Mul, I::I32Add, I::I32Load(mem(0))]);
    }

    /// Opens the rings and stores their handles in the block.
    fn open_all(&self, cx: &mut Cx<'_>, code: &mut WasmCode, failed: Label) {
        let open = cx.routine(Routine::RingOpen);
        let handle = code.local(ValType::I32);
        self.each(code, |code, ring, position| {
            code.get(ring).op(I::I32Load(mem(BUSY))).if_();
            self.abort(cx, code, ring, "` is dispatched already, by what calls this");
            code.end();
            code.get(ring).get(self.location).get(self.location_len).call(open).tee(handle);
            code.i32(UNOPENED).op(I::I32Eq).if_();
            code.i32(-EBADF).set(self.result).br(failed).end();
            code.get(self.block).get(position).i32(4).ops_of([I::I32Mul, I::I32Add]);
            code.get(handle).op(I::I32Store(mem(0)));
        });
    }

    fn set_busy(&self, code: &mut WasmCode, busy: i32) {
        self.each(code, |code, ring, _| {
            code.get(ring).i32(busy).op(I::I32Store(mem(BUSY)));
        });
    }

    /// Ends the plugin with a message about a ring.
    fn abort(&self, cx: &mut Cx<'_>, code: &mut WasmCode, ring: Var, what: &str) {
        let append = cx.routine(Routine::Append);
        let abort = cx.host(import::console::ABORT);
        let start = begin_message(code);
        append_vars(cx, code, self.location, self.location_len);
        append_text(cx, code, "ring `");
        code.get(ring).op(I::I32Load(mem(NAME))).get(ring).op(I::I32Load(mem(NAME_LEN))).call(append);
        append_text(cx, code, what);
        end_message(code, start);
        code.call(abort).op(I::Unreachable);
    }

    /// Sets the deadline to now plus the timeout, saturated.
    fn start_clock(&self, cx: &mut Cx<'_>, code: &mut WasmCode) {
        let now = cx.host(import::clock::NOW);
        code.get(self.timeout).i64(0).op(I::I64GeS).if_();
        code.call(now).get(self.timeout).op(I::I64Add).tee(self.deadline);
        code.i64(i64::MAX).get(self.deadline).i64(0).ops_of([I::I64GeS, I::Select]).set(self.deadline).end();
    }

    /// Pushes the nanoseconds until the deadline, at least 0.
    fn push_left(&self, cx: &mut Cx<'_>, code: &mut WasmCode) {
        let now = cx.host(import::clock::NOW);
        let left = code.local(ValType::I64);
        code.get(self.deadline).call(now).op(I::I64Sub).tee(left);
        code.i64(0).get(left).i64(0).ops_of([I::I64GtS, I::Select]);
    }

    /// Fetches a batch; branches to `quit` if none will come.
    fn poll(&self, cx: &mut Cx<'_>, code: &mut WasmCode, quit: Label) {
        let poll = cx.host(import::ring::POLL);
        let shape = cx.abi.result(import::ring::POLL);
        let warn = cx.routine(Routine::WarnError);
        let errno = cx.routine(Routine::Errno);
        let left = code.local(ValType::I64);
        let interrupted = cx.abi.named("types", "error").field("kind").case("interrupted").0;
        let error = cx.returned + shape.err().offset;
        code.i64(0).set(left);
        code.get(self.timeout).i64(0).op(I::I64GeS).if_();
        self.push_left(cx, code);
        code.set(left).end();
        code.get(self.batch).set_global(ARENA);
        code.get(self.block).get(self.count).get(self.timeout).i64(0).op(I::I64GeS).get(left);
        code.get(self.block).u32(self.block_bytes).op(I::I32Add).get(self.batch).op(I::I32Sub);
        code.u32(cx.returned).call(poll);
        code.get_global(ARENA_START).set_global(ARENA);
        push_failed(cx, code);
        code.if_();
        code.i32(0).set(self.result);
        code.u32(error).op(I::I32Load8U(mem(0))).u32(interrupted).op(I::I32Eq).br_if(quit);
        code.get(self.location).get(self.location_len).u32(error).call(warn);
        code.i32(0).u32(error).call(errno).op(I::I32Sub).set(self.result).br(quit).end();
        let [handle, records] = [0, 1].map(|position| shape.ok().item(position).offset);
        code.u32(cx.returned).op(I::I32Load(mem(handle))).set(self.handle);
        code.u32(cx.returned).op(I::I32Load(mem(records))).tee(self.at);
        code.u32(cx.returned).op(I::I32Load(mem(records + LIST_LEN))).op(I::I32Add).set(self.end);
    }

    /// Calls the handlers of a batch.
    fn handle_all(&self, cx: &mut Cx<'_>, code: &mut WasmCode, quit: Label) {
        let (entry, ring, len) =
            (code.local(ValType::I32), code.local(ValType::I32), code.local(ValType::I32));
        let call = cx.module.call_indirect(&[ValType::I64], &[ValType::I32]);
        let all = code.block();
        let next = code.loop_();
        code.get(self.at).get(self.end).op(I::I32GeU).br_if(all);
        code.get(self.at).set(entry);
        code.get(entry).op(I::I32Load(mem(ENTRY_RING))).set(ring);
        self.state_at(code, ring);
        code.set(ring);
        code.get(entry).op(I::I32Load(mem(ENTRY_LEN))).set(len);
        code.get(entry).get(len).ops_of([I::I32Add]).u32(ENTRY + 7).op(I::I32Add).i32(-8).op(I::I32And);
        code.set(self.at);
        // Another plugin may have pinned a ring with other records under the same name.
        code.get(len).get(ring).ops_of([I::I32Load(mem(RECORD_BYTES)), I::I32LtU]).if_();
        self.abort(cx, code, ring, "` has records of another size: its pin belongs to another script");
        code.end();
        code.get(ring).ops_of([I::I32Load(mem(HANDLER)), I::I32Eqz]).if_();
        self.abort(cx, code, ring, "` has no handler yet: call `on_event` before `dispatch`");
        code.end();
        code.get(entry).u32(ENTRY).ops_of([I::I32Add, I::I64ExtendI32U]);
        code.get(ring).op(I::I32Load(mem(HANDLER))).op(call).set(self.result);
        code.get(self.handled).i32(1).op(I::I32Add).set(self.handled);
        self.leave_off(cx, code, quit);
        code.br(next).end().end();
        let drop = cx.drop_handle(import::ring::BATCH);
        code.get(self.handle).call(drop);
    }

    /// Branches to `quit` if the handler threw or returned a negative number; the next dispatch handles the
    /// rest of the batch.
    fn leave_off(&self, cx: &mut Cx<'_>, code: &mut WasmCode, quit: Label) {
        let put_back = cx.host(import::ring::BATCH_PUT_BACK);
        let drop = cx.drop_handle(import::ring::BATCH);
        let shape = cx.abi.result(import::ring::BATCH_PUT_BACK);
        let warn = cx.routine(Routine::WarnError);
        if cx.throws {
            let thrown = cx.kept(KeptGlobal::Thrown, 0);
            code.get_global(thrown).i32(0).ops_of([I::I32Ne]);
        } else {
            code.i32(0);
        }
        code.get(self.result).i32(0).ops_of([I::I32LtS, I::I32Or]).if_();
        code.get(self.at).get(self.end).op(I::I32LtU).if_();
        reset_arena(code);
        code.get(self.handle).get(self.at).get(self.end).get(self.at).op(I::I32Sub);
        code.u32(cx.returned).call(put_back);
        push_failed(cx, code);
        code.if_();
        code.get(self.location)
            .get(self.location_len)
            .u32(cx.returned + shape.err().offset)
            .call(warn)
            .end()
            .end();
        code.get(self.handle).call(drop).br(quit).end();
    }

    /// Branches to `quit` with the number of records if the deadline has passed.
    fn check_deadline(&self, cx: &mut Cx<'_>, code: &mut WasmCode, quit: Label) {
        code.get(self.timeout).i64(0).op(I::I64GeS).if_();
        code.get(self.handled).set(self.result);
        self.push_left(cx, code);
        code.op(I::I64Eqz).br_if(quit).end();
    }
}
