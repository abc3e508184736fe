//! Builtin functions.

use super::{CounterId, Expr, FuncId, ImplId, MapId, RingId};

/// Which value of a queue or stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeOp {
    /// Takes it out.
    Pop,
    /// Leaves it there.
    Peek,
}

/// Builtins that mean the same in both halves.
#[derive(Debug, Clone)]
pub enum SharedBuiltin {
    /// `print(..) -> u32`: 0. Arguments are scalars, strings, or `u8[N]`/`char[N]`; the format is what
    /// `console.print` takes, with a conversion for each argument. A pointer under `%s` is text in memory.
    Print {
        /// The format.
        format: Vec<u8>,
        /// The values.
        args: Vec<Expr>,
    },
    /// `len(s) -> u32`: bytes of text before the terminator.
    Len(Box<Expr>),
    /// `ntohs` and the like: the bytes of an integer of 16, 32 or 64 bits in the other order.
    SwapBytes(Box<Expr>),
    /// `q.push(v) -> u32`: 0 or errno. The value has the map's value type.
    Push(MapId, Box<Expr>),
    /// `b.add(v) -> u32`: 0 or errno.
    Add(MapId, Box<Expr>),
    /// `b.has(v) -> bool`: false is certain, true is not.
    Has(MapId, Box<Expr>),
    /// `ratio(a, b, scale) -> u64`, in userspace only: a * scale / b, worked out in 128 bits; 0 if b is 0. All u64.
    Ratio(Box<[Expr; 3]>),
    /// `log2_slot(value) -> u32`: how many bits the u64 has.
    Log2Slot(Box<Expr>),
    /// `linear_slot(value, low, step, slots) -> u32`: 0 below `low`, else 1 + (value - low) / step, at most slots - 1; a
    /// step of 0 is as wide as all numbers. All u64.
    LinearSlot(Box<[Expr; 4]>),
    /// `rate(before, now) -> u64`, in userspace only: difference of `scaled` per second between two `perf_read`s; 0 if no
    /// time passed.
    Rate(Box<[Expr; 2]>),
}

/// Builtins of the kernel half.
#[derive(Debug, Clone)]
pub enum KernelBuiltin {
    /// `time_ns() -> u64`: bpf_ktime_get_ns.
    TimeNs,
    /// `pid() -> u32`: the process (thread group) id, upper half of bpf_get_current_pid_tgid.
    Pid,
    /// `tid() -> u32`: the thread id, lower half of the same.
    Tid,
    /// `uid() -> u32`: lower half of bpf_get_current_uid_gid.
    Uid,
    /// `cpu() -> u32`: bpf_get_smp_processor_id.
    Cpu,
    /// `comm() -> str(16)`: bpf_get_current_comm.
    Comm,
    /// `cgroup_id() -> u64`: bpf_get_current_cgroup_id.
    CgroupId,
    /// `r.reserve()`: a pointer to a zeroed record, null if the ring is full. Every path gives it back.
    Reserve(RingId),
    /// `r.submit(p) -> i32`: 0. Null: no effect.
    Submit(RingId, Box<Expr>),
    /// `r.discard(p) -> i32`: 0. Null: no effect.
    Discard(RingId, Box<Expr>),
    /// `stack_id(ctx, m) -> i64` and `user_stack_id(ctx, m) -> i64`: bpf_get_stackid.
    StackId {
        /// The context pointer.
        ctx: Box<Expr>,
        /// A map of stacks.
        map: MapId,
        /// The user's stack, not the kernel's.
        user: bool,
    },
    /// `attachment_id(ctx) -> u64`: bpf_get_attach_cookie.
    AttachmentId(Box<Expr>),
    /// `read(NAME)` of a counter: this CPU's, as a `perf_read`.
    ReadCounter(CounterId),
}

/// Builtins of the userspace half. Failures go to standard error; the script sees the value stated.
#[derive(Debug, Clone)]
pub enum UserBuiltin {
    /// `load(f)`: a program handle, or null on failure.
    Load {
        /// The program.
        program: FuncId,
        /// The script never asks whether the handle is null: a failed load ends the plugin with exit code 1.
        exit_on_failure: bool,
    },
    /// `attach(h, target, flags) -> u32`: 0 or errno.
    AttachTarget {
        /// The program handle.
        program: Box<Expr>,
        /// A string.
        target: Box<Expr>,
        /// A u64.
        flags: Box<Expr>,
    },
    /// `attach(h, options, flags)` and `attach(options)`: a `perf_attachment`, invalid on failure.
    Attach {
        /// The program handle; none: the event is only counted.
        program: Option<Box<Expr>>,
        /// A `perf_options`.
        options: Box<Expr>,
        /// A u64; not 0 is refused. Evaluated last.
        flags: Option<Box<Expr>>,
    },
    /// `read(att)`: a `perf_read`; on failure -1 in `raw` and `scaled` and 0 elsewhere.
    Read {
        /// A `perf_attachment`.
        attachment: Box<Expr>,
        /// What of the result is used.
        form: ReadForm,
    },
    /// `read_cpu(att, cpu)`: one instance, as a `perf_read`. The CPU is a u32.
    ReadCpu(Box<[Expr; 2]>),
    /// `read(NAME)` of a counter, summed over the CPUs, and `read_cpu(NAME, cpu)`: a `perf_read`. [`super::counters`]
    /// replaces it.
    ReadCounter(CounterId, Option<Box<Expr>>),
    /// Lets programs read an attachment, a `perf_attachment`, as this counter: void. No effect if none does, or if the
    /// attachment is invalid. Made by [`super::counters`].
    ShowCounter(CounterId, Box<Expr>),
    /// `id(att) -> u64`: what `attachment_id` gives in its program.
    Id(Box<Expr>),
    /// `detach(att)`: void.
    Detach(Box<Expr>),
    /// `detach(h)` of a program handle: all its attachments: void.
    DetachProgram(Box<Expr>),
    /// `enable(att) -> u32`: 0 or errno.
    Enable(Box<Expr>),
    /// `disable(att) -> u32`: 0 or errno.
    Disable(Box<Expr>),
    /// `reset(att) -> u32`: 0 or errno.
    Reset(Box<Expr>),
    /// `register(impl) -> u32`: 0 or errno.
    Register(ImplId),
    /// `test(program, input) -> u32`: what the program returned.
    Test {
        /// The program.
        program: FuncId,
        /// A struct that describes the input, or a string that is the packet.
        input: Box<Expr>,
    },
    /// `r.on_event(f) -> u32`: 0; `f` takes the records of the ring from now on.
    OnEvent(RingId, FuncId),
    /// `dispatch(r, .., timeout_ms) -> i32`.
    Dispatch {
        /// The rings, in order.
        rings: Vec<RingId>,
        /// A u64 of milliseconds.
        timeout_ms: Option<Box<Expr>>,
    },
    /// `exec("x.py")`: void.
    Exec(Vec<u8>),
    /// `MODULE.f(..) -> u64` of a Python module: integers and strings.
    Python {
        /// The module's file.
        module: String,
        /// The function.
        function: String,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `daemon()`: void; returns when the host asks the plugin to stop, which then ends with exit code 0.
    Daemon,
    /// `sleep(ms) -> u32`: the argument is a u64 of milliseconds; 0, or EINTR (4) when the host asks to stop.
    Sleep(Box<Expr>),
    /// `time_ns() -> u64`.
    TimeNs,
    /// `stopping() -> bool`.
    Stopping,
    /// `has_command() -> bool`.
    HasCommand,
    /// `exit(code)`: an i32; its low 8 bits. Void; does not return.
    Exit(Box<Expr>),
    /// `pid_of(name) -> i32`: a string; -1 if there is none.
    PidOf(Box<Expr>),
    /// `comm_of(pid) -> str(16)`: an i32; empty if there is none.
    CommOf(Box<Expr>),
    /// `cpu_count() -> u32`: possible CPUs.
    CpuCount,
    /// `per_cpu(m, k, cpu)`: one slot. The CPU is a u32.
    PerCpu {
        /// A per-CPU map.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
        /// Which CPU.
        cpu: Box<Expr>,
    },
    /// `clear(m)`: void; deletes every entry.
    Clear(MapId),
    /// `count(m) -> u32`: the number of entries.
    Count(MapId),
    /// `events(glob) -> u32`: a string; prints the events and gives their number.
    Events(Box<Expr>),
    /// `print_log2_hist(title, counts)` and `print_linear_hist(title, counts, low, step)`: void.
    Histogram {
        /// A string.
        title: Box<Expr>,
        /// A `u64[N]`.
        counts: Box<Expr>,
        /// The low end and the step of a linear scale, u64; none: log2.
        linear: Option<Box<[Expr; 2]>>,
    },
    /// `symbol(addr) -> str(128)` and `symbol(pid, addr)`: an i32 and a u64.
    Symbol {
        /// The process; none: the kernel.
        pid: Option<Box<Expr>>,
        /// The address.
        address: Box<Expr>,
    },
}

/// What a script uses of a `perf_read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadForm {
    /// `raw`, `scaled` and the times only: the other members are never looked at.
    Scalar,
    /// Everything.
    Snapshot,
}
