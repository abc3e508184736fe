//! Builtin functions of both halves.

use super::{CounterId, Expr, FuncId, ImplId, MapId, RingId};

/// Whether reading a queue or stack removes the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeOp {
    /// Removes the value from the map.
    Pop,
    /// Leaves the value in the map.
    Peek,
}

/// Builtins with the same meaning in both halves.
#[derive(Debug, Clone)]
pub enum SharedBuiltin {
    /// `print(..) -> u32`: 0. Arguments are scalars, strings, or `u8[N]`/`char[N]`; the format has the syntax
    /// of `console.print`, with a conversion for each argument. A pointer under `%s` is text in memory.
    Print {
        /// The format string for `console.print`.
        format: Vec<u8>,
        /// The values, one for each conversion.
        args: Vec<Expr>,
    },
    /// `len(s) -> u32`: bytes of text before the terminator.
    Len(Box<Expr>),
    /// `ntohs` and the like: reverses the bytes of an integer of 16, 32 or 64 bits.
    SwapBytes(Box<Expr>),
    /// `q.push(v) -> u32`: 0 or errno. The value has the map's value type.
    Push(MapId, Box<Expr>),
    /// `b.add(v) -> u32`: 0 or errno, on a bloom filter.
    Add(MapId, Box<Expr>),
    /// `b.has(v) -> bool`: whether a bloom filter may contain the value; false is certain, true is not.
    Has(MapId, Box<Expr>),
    /// `ratio(a, b, scale) -> u64`, in userspace only: a * scale / b, computed in 128 bits; 0 if b is 0. All
    /// u64.
    Ratio(Box<[Expr; 3]>),
    /// `log2_slot(value) -> u32`: the number of significant bits of the u64, 0 to 64.
    Log2Slot(Box<Expr>),
    /// `linear_slot(value, low, step, slots) -> u32`: 0 below `low`, else 1 + (value - low) / step, at most
    /// slots - 1; a step of 0 counts as larger than every value. All u64.
    LinearSlot(Box<[Expr; 4]>),
    /// `rate(before, now) -> u64`, in userspace only: difference of `scaled` per second between two
    /// `perf_read`s; 0 if no time passed.
    Rate(Box<[Expr; 2]>),
}

/// Builtins of the kernel half, most with the helper that implements them.
#[derive(Debug, Clone)]
pub enum KernelBuiltin {
    /// `time_ns() -> u64`: bpf_ktime_get_ns.
    TimeNs,
    /// `pid() -> u32`: the process (thread group) id, upper half of bpf_get_current_pid_tgid.
    Pid,
    /// `tid() -> u32`: the thread id, lower half of bpf_get_current_pid_tgid.
    Tid,
    /// `uid() -> u32`: lower half of bpf_get_current_uid_gid.
    Uid,
    /// `cpu() -> u32`: bpf_get_smp_processor_id.
    Cpu,
    /// `comm() -> str(16)`: bpf_get_current_comm.
    Comm,
    /// `cgroup_id() -> u64`: bpf_get_current_cgroup_id.
    CgroupId,
    /// `r.reserve()`: a pointer to a zeroed record, null if the ring is full. Every path submits or discards
    /// it.
    Reserve(RingId),
    /// `r.submit(p) -> i32`: 0. No effect if `p` is null.
    Submit(RingId, Box<Expr>),
    /// `r.discard(p) -> i32`: 0. No effect if `p` is null.
    Discard(RingId, Box<Expr>),
    /// `stack_id(ctx, m) -> i64` and `user_stack_id(ctx, m) -> i64`: bpf_get_stackid.
    StackId {
        /// The pointer to the program's context.
        ctx: Box<Expr>,
        /// A map of kind `stack_trace`.
        map: MapId,
        /// Whether the user's stack is recorded, not the kernel's.
        user: bool,
    },
    /// `attachment_id(ctx) -> u64`: bpf_get_attach_cookie.
    AttachmentId(Box<Expr>),
    /// `read(NAME)` of a counter: the value on this CPU, as a `perf_read`.
    ReadCounter(CounterId),
}

/// Builtins of the userspace half. Failures are reported on standard error; the script sees the value stated.
#[derive(Debug, Clone)]
pub enum UserBuiltin {
    /// `load(f)`: a program handle, or null on failure.
    Load {
        /// The program that is loaded.
        program: FuncId,
        /// Whether a failed load ends the plugin with exit code 1: the script never tests the handle for
        /// null.
        exit_on_failure: bool,
    },
    /// `attach(h, target, flags) -> u32`: 0 or errno.
    AttachTarget {
        /// The handle of the program, from `load`.
        program: Box<Expr>,
        /// The target, a string.
        target: Box<Expr>,
        /// The flags, a u64.
        flags: Box<Expr>,
    },
    /// `attach(h, options, flags)` and `attach(options)`: a `perf_attachment`, invalid on failure.
    Attach {
        /// The program handle; none: the event is only counted.
        program: Option<Box<Expr>>,
        /// The options, a `perf_options`.
        options: Box<Expr>,
        /// The flags, a u64; only 0 is accepted. Evaluated last.
        flags: Option<Box<Expr>>,
    },
    /// `read(att)`: a `perf_read`; on failure -1 in `raw` and `scaled` and 0 elsewhere.
    Read {
        /// The attachment, a `perf_attachment`.
        attachment: Box<Expr>,
        /// The members of the result that the script uses.
        form: ReadForm,
    },
    /// `read_cpu(att, cpu)`: one instance, as a `perf_read`. The CPU is a u32.
    ReadCpu(Box<[Expr; 2]>),
    /// `read(NAME)` of a counter, summed over the CPUs, and `read_cpu(NAME, cpu)`: a `perf_read`.
    /// [`super::counters`] replaces it.
    ReadCounter(CounterId, Option<Box<Expr>>),
    /// Makes an attachment, a `perf_attachment`, readable by programs as this counter: void. No effect if no
    /// program reads the counter, or if the attachment is invalid. Created by [`super::counters`].
    ShowCounter(CounterId, Box<Expr>),
    /// `id(att) -> u64`: the value that `attachment_id` returns in the attached program.
    Id(Box<Expr>),
    /// `detach(att)`: detaches one attachment; void.
    Detach(Box<Expr>),
    /// `detach(h)` of a program handle: detaches all its attachments; void.
    DetachProgram(Box<Expr>),
    /// `enable(att) -> u32`: 0 or errno.
    Enable(Box<Expr>),
    /// `disable(att) -> u32`: 0 or errno.
    Disable(Box<Expr>),
    /// `reset(att) -> u32`: 0 or errno.
    Reset(Box<Expr>),
    /// `register(impl) -> u32`: 0 or errno.
    Register(ImplId),
    /// `test(program, input) -> u32`: the program's return value.
    Test {
        /// The program under test.
        program: FuncId,
        /// A struct that describes the input, or a string that is the packet.
        input: Box<Expr>,
    },
    /// `r.on_event(f) -> u32`: 0; `f` receives the ring's records from now on.
    OnEvent(RingId, FuncId),
    /// `dispatch(r, .., timeout_ms) -> i32`.
    Dispatch {
        /// The rings that are polled, in order.
        rings: Vec<RingId>,
        /// The timeout in milliseconds, a u64; none if the call has none.
        timeout_ms: Option<Box<Expr>>,
    },
    /// `exec("x.py")`: asks the host to run a script, whose path is given; void.
    Exec(Vec<u8>),
    /// `MODULE.f(..) -> u64` of a Python module: integers and strings.
    Python {
        /// The path of the module.
        module: String,
        /// The name of the function.
        function: String,
        /// The arguments, integers and strings.
        args: Vec<Expr>,
    },
    /// `daemon()`: void; returns when the host asks the plugin to stop, which then ends with exit code 0.
    Daemon,
    /// `sleep(ms) -> u32`: the argument is a u64 of milliseconds; 0, or EINTR (4) when the host asks to stop.
    Sleep(Box<Expr>),
    /// `time_ns() -> u64`: monotonic time in nanoseconds.
    TimeNs,
    /// `stopping() -> bool`: whether the host asked the plugin to stop.
    Stopping,
    /// `has_command() -> bool`: whether the host starts a command to observe (`--exec`).
    HasCommand,
    /// `exit(code)`: ends the plugin with the low 8 bits of an i32. Void; does not return.
    Exit(Box<Expr>),
    /// `pid_of(name) -> i32`: the process id of a name, a string; -1 if there is no such process.
    PidOf(Box<Expr>),
    /// `comm_of(pid) -> str(16)`: the name of a process, an i32; empty if there is no such process.
    CommOf(Box<Expr>),
    /// `cpu_count() -> u32`: the number of possible CPUs.
    CpuCount,
    /// `per_cpu(m, k, cpu)`: the entry's value on one CPU, a u32.
    PerCpu {
        /// A map of a per-CPU kind.
        map: MapId,
        /// The key, of the map's key type.
        key: Box<Expr>,
        /// The CPU number, a u32.
        cpu: Box<Expr>,
    },
    /// `clear(m)`: void; deletes every entry.
    Clear(MapId),
    /// `count(m) -> u32`: the number of entries.
    Count(MapId),
    /// `events(glob) -> u32`: prints the events that match a string and returns their number.
    Events(Box<Expr>),
    /// `print_log2_hist(title, counts)` and `print_linear_hist(title, counts, low, step)`: void.
    Histogram {
        /// The title, a string.
        title: Box<Expr>,
        /// The counts, a `u64[N]`.
        counts: Box<Expr>,
        /// The low end and the step of a linear scale, both u64; none: a log2 scale.
        linear: Option<Box<[Expr; 2]>>,
    },
    /// `symbol(addr) -> str(128)` and `symbol(pid, addr)`: an i32 and a u64.
    Symbol {
        /// The process id, an i32; none: a kernel address.
        pid: Option<Box<Expr>>,
        /// The address, a u64.
        address: Box<Expr>,
    },
}

/// The members of a `perf_read` that a script uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadForm {
    /// `raw`, `scaled` and the times only: the script never uses the other members.
    Scalar,
    /// All members, those of the group included.
    Snapshot,
}
