//! Builtin functions of the language.

/// The halves in which a builtin may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Callable in both halves.
    Both,
    /// Callable in the kernel half only.
    Kernel,
    /// Callable in userspace only.
    User,
}

impl Half {
    /// Returns the description of the half.
    pub fn text(self) -> &'static str {
        match self {
            Half::Both => "both halves",
            Half::Kernel => "kernel half",
            Half::User => "userspace",
        }
    }
}

/// A builtin function and its documentation.
pub struct Builtin {
    /// The name in a call.
    pub name: &'static str,
    /// Each form of a call: parameters and result, without the name.
    pub forms: &'static [&'static str],
    /// The halves in which it may be called.
    pub half: Half,
    /// The documentation in Markdown.
    pub docs: &'static str,
    /// Whether its result is a `perf_event`, for `event:`.
    pub makes_event: bool,
}

const fn user(name: &'static str, forms: &'static [&'static str], docs: &'static str) -> Builtin {
    Builtin { name, forms, half: Half::User, docs, makes_event: false }
}

const fn kernel(name: &'static str, forms: &'static [&'static str], docs: &'static str) -> Builtin {
    Builtin { half: Half::Kernel, ..user(name, forms, docs) }
}

const fn both(name: &'static str, forms: &'static [&'static str], docs: &'static str) -> Builtin {
    Builtin { half: Half::Both, ..user(name, forms, docs) }
}

const fn event(name: &'static str, forms: &'static [&'static str], docs: &'static str) -> Builtin {
    Builtin { makes_event: true, ..user(name, forms, docs) }
}

/// All builtin functions (language reference, 6, 11.1, 11.7, 11.9, 11.10, 11.13).
pub const BUILTINS: &[Builtin] = &[
    both(
        "print",
        &["(format, values..) -> u32"],
        "Prints a line. A string literal first is a format (`%d %i %u %x %X %o %c %s %p %%`, `{}`); else \
         every value is \
         printed as it is.",
    ),
    user(
        "load",
        &["(program) -> program handle"],
        "Loads a program into the kernel. Null if the kernel refuses it.",
    ),
    user(
        "attach",
        &[
            "(options: perf_options) -> perf_attachment",
            "(program, options: perf_options, flags: u32) -> perf_attachment",
            "(program, target: str, flags: u32) -> u32",
        ],
        "Attaches a loaded program: to an interface, kernel function or tracepoint (0 on success, else an \
         error \
         number), or to an event. `perf_options` alone open an event only to be read.",
    ),
    user(
        "detach",
        &["(attachment: perf_attachment) -> void", "(program) -> void"],
        "Closes an event (a leader with its members), or detaches a program from everything.",
    ),
    both(
        "read",
        &["(attachment: perf_attachment) -> perf_read"],
        "Reads an event's counter, now, without stopping it. One system call; in a group all values are \
         from one moment.",
    ),
    user("read_cpu", &["(attachment: perf_attachment, cpu: u32) -> perf_read"], "Reads one CPU's share."),
    user(
        "register",
        &["(impl) -> u32"],
        "Hands an impl block with `@struct_ops` to the kernel. 0 on success, else an error number.",
    ),
    user(
        "test",
        &["(program, context) -> u32"],
        "In a `@test` function: runs a program once and gives its result. The context is a struct \
         (`packet_size`, \
         `data`, ..) or a string with the packet's bytes.",
    ),
    user(
        "dispatch",
        &["(ring, ..) -> i32", "(ring, .., timeout_ms: u32) -> i32"],
        "Waits for records of the ring buffers and calls each one's handler, until a handler gives a \
         negative value, \
         the time is over or the host asks to stop.",
    ),
    user(
        "exec",
        &["(script: str) -> void"],
        "Asks the host to run a Python script. The host decides; by default it does not.",
    ),
    user(
        "daemon",
        &["() -> void"],
        "Does not return until the host asks to stop; then the script ends with 0.",
    ),
    user("sleep", &["(ms: u32) -> u32"], "Sleeps that many milliseconds. Not 0 if the host asked to stop."),
    both("time_ns", &["() -> u64"], "Monotonic nanoseconds; the same clock in both halves."),
    user("exit", &["(code: i32) -> void"], "Ends the script. Deferred calls run."),
    user("stopping", &["() -> bool"], "Whether the host asked to stop."),
    user("has_command", &["() -> bool"], "Whether the host starts a command to observe (`--exec`)."),
    user(
        "pid_of",
        &["(name: str) -> i32"],
        "The lowest process id with that command name; -1 if there is none.",
    ),
    user("comm_of", &["(pid: i32) -> str(16)"], "The command name of a process; empty if there is none."),
    user("cpu_count", &["() -> u32"], "How many CPUs there may be."),
    user(
        "per_cpu",
        &["(map, key, cpu: u32) -> V", "(map, key)"],
        "One CPU's value of a map with a value for each CPU.",
    ),
    both("len", &["(text: str) -> u32"], "Bytes of the text."),
    user(
        "events",
        &["(pattern: str) -> u32"],
        "Prints the events of this machine that fit the pattern, gives their number.",
    ),
    user(
        "symbol",
        &["(address: u64) -> str(128)", "(pid: i32, address: u64) -> str(128)"],
        "Function name and offset of an address.",
    ),
    user(
        "enable",
        &["(attachment: perf_attachment) -> u32"],
        "Goes on counting; of a leader, in the whole group. 0 or an error number.",
    ),
    user(
        "disable",
        &["(attachment: perf_attachment) -> u32"],
        "Stops counting; of a leader, in the whole group. 0 or an error number.",
    ),
    user(
        "reset",
        &["(attachment: perf_attachment) -> u32"],
        "Starts again from zero; of a leader, the whole group. 0 or an error number.",
    ),
    user(
        "id",
        &["(attachment: perf_attachment) -> u64"],
        "The number that `attachment_id` gives in the kernel half.",
    ),
    user(
        "rate",
        &["(before: perf_read, now: perf_read) -> u64"],
        "Difference per second of two readings of one attachment.",
    ),
    both("ratio", &["(a: u64, b: u64, scale: u64) -> u64"], "`a * scale / b` without overflow; 0 if b is 0."),
    both(
        "log2_slot",
        &["(value: u64) -> u32"],
        "The slot of a value in a histogram of powers of two: 0 of 0, else how many bits it has, at most 64.",
    ),
    both(
        "linear_slot",
        &["(value: u64, low: u64, step: u64, slots: u64) -> u32"],
        "The slot of a value in a histogram of equal steps: 0 below `low`, `slots - 1` for all that is \
         above the others.",
    ),
    user(
        "print_log2_hist",
        &["(title: str, counts: u64[N]) -> void"],
        "Prints what was counted in the slots of `log2_slot`, with bars.",
    ),
    user(
        "print_linear_hist",
        &["(title: str, counts: u64[N], low: u64, step: u64) -> void"],
        "Prints what was counted in the slots of `linear_slot`, with bars.",
    ),
    user("clear", &["(map) -> void"], "Deletes every entry."),
    user("count", &["(map) -> u32"], "How many entries there are."),
    both("sizeof", &["(type) -> u32"], "Bytes of a type."),
    both("ntohs", &["(value: u16) -> u16"], "Network order to host order, 2 bytes."),
    both("htons", &["(value: u16) -> u16"], "Host order to network order, 2 bytes."),
    both("ntohl", &["(value: u32) -> u32"], "Network order to host order, 4 bytes."),
    both("htonl", &["(value: u32) -> u32"], "Host order to network order, 4 bytes."),
    both("ntohll", &["(value: u64) -> u64"], "Network order to host order, 8 bytes."),
    both("htonll", &["(value: u64) -> u64"], "Host order to network order, 8 bytes."),
    kernel("pid", &["() -> u32"], "The process id of the task that is running."),
    kernel("tid", &["() -> u32"], "The thread id of the task that is running."),
    kernel("uid", &["() -> u32"], "The user id of the task that is running."),
    kernel("cpu", &["() -> u32"], "The CPU that the program runs on."),
    kernel("comm", &["() -> str(16)"], "The command name of the task that is running."),
    kernel("cgroup_id", &["() -> u64"], "The cgroup of the task that is running."),
    kernel(
        "attachment_id",
        &["(ctx) -> u64"],
        "Which attachment fired: the number that `id` gives in userspace.",
    ),
    kernel(
        "stack_id",
        &["(ctx, stacks) -> i64"],
        "Puts the kernel's call stack into a `stack_trace`; its number, or a negative error.",
    ),
    kernel(
        "user_stack_id",
        &["(ctx, stacks) -> i64"],
        "Puts the task's call stack into a `stack_trace`; its number, or a negative error.",
    ),
    event(
        "raw_event",
        &[
            "(type: u32, config: u64) -> perf_event",
            "(type: u32, config: u64, config1: u64, config2: u64) -> perf_event",
        ],
        "An event by the kernel's numbers: the PMU's type and its config.",
    ),
    event(
        "hw_cache",
        &["(cache: str, op: str, result: str) -> perf_event"],
        "A cache event. Caches `l1d l1i ll dtlb itlb bpu node`, operations `read write prefetch`, results \
         `access miss`.",
    ),
    event("tracepoint", &["(name: str) -> perf_event"], "A tracepoint as an event: `\"category/event\"`."),
    event(
        "breakpoint",
        &["(address, len: u32, access: str) -> perf_event"],
        "Accesses of an address or `\"symbol\"`: len 1, 2, 4 or 8, access `r`, `w`, `rw` or `x`.",
    ),
    event(
        "pmu",
        &["(name: str) -> perf_event"],
        "An event in the spelling of `perf list`: `pmu(\"msr/tsc/\")`.",
    ),
    event("kprobe_event", &["(function: str) -> perf_event"], "Calls of a kernel function."),
    event(
        "uprobe_event",
        &["(place: str) -> perf_event"],
        "Calls of a function in user space: `\"path:function\"`.",
    ),
];

/// Returns the builtin of a name; none for an unknown name.
pub fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}
