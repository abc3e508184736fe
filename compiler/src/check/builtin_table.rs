//! The table of builtin functions: names, halves, forms and documentation for editors, and the function that
//! checks a call (language reference, 6, 11.1, 11.7, 11.9, 11.10, 11.13). This is the only such table: the
//! checker, editors and their grammar are made from it.

use ks_wit::object::DisplayForm;

use super::expr::Typed;
use super::function::Body;
use crate::ast;
use crate::hir::{Half, KernelBuiltin, StackOwner, UserBuiltin};
use crate::source::Span;

/// Checks the arguments of a call whose number of arguments fits one of the forms.
type CheckCall = fn(&mut Body<'_, '_>, &[ast::Expr], Span) -> Typed;

/// A builtin function.
pub struct Builtin {
    /// The name in a call.
    pub name: &'static str,
    /// Each form of a call: parameters and result, without the name. `..` stands for any number.
    pub forms: &'static [&'static str],
    /// The documentation in Markdown, for editors.
    pub docs: &'static str,
    /// The halves in which it may be called.
    pub halves: &'static [Half],
    /// Whether KernelScript 0.1.1 has it: a call of this name then always means the builtin. The script's own
    /// names hide the others.
    pub in_011: bool,
    /// Whether its result is a `perf_event`, for `event:`.
    pub makes_event: bool,
    /// Whether the compiler evaluates a call if it knows the arguments: constants may call it.
    pub is_constant: bool,
    /// The names of the arguments that a call may give by name, behind the others.
    pub(super) named: &'static [&'static str],
    /// Checks a call.
    pub(super) check: CheckCall,
}

impl Builtin {
    /// Returns the description of the halves in which it may be called.
    pub fn halves_text(&self) -> &'static str {
        match self.halves {
            [Half::User] => "userspace",
            [Half::Kernel] => "kernel half",
            _ => "both halves",
        }
    }

    /// Returns whether an operand names a member, so that it has no value: what is indexed there is a part of a struct.
    pub(super) fn names_member(&self, operand: usize) -> bool {
        self.forms.iter().any(|form| parameters(form).split(", ").nth(operand) == Some("member"))
    }

    /// Returns the forms of a call as messages show them, without types: `sleep(ms)`.
    pub(super) fn calls(&self) -> Vec<String> {
        self.forms.iter().map(|form| format!("{}({})", self.name, names(form))).collect()
    }

    const fn in_011(self) -> Builtin {
        Builtin { in_011: true, ..self }
    }

    const fn with_named(self, named: &'static [&'static str]) -> Builtin {
        Builtin { named, ..self }
    }

    const fn event(self) -> Builtin {
        Builtin { makes_event: true, ..self }
    }

    const fn constant(self) -> Builtin {
        Builtin { is_constant: true, ..self }
    }
}

/// Returns the parameters of a form, with their types.
pub(super) fn parameters(form: &str) -> &str {
    let inner = form.strip_prefix('(').unwrap_or(form);
    inner.split_once(')').map_or(inner, |(inner, _)| inner)
}

/// Returns the names of the parameters of a form, without their types.
fn names(form: &str) -> String {
    let parameters = parameters(form).split(", ");
    let names: Vec<&str> = parameters.map(|one| one.split_once(':').map_or(one, |(name, _)| name)).collect();
    names.join(", ")
}

const fn builtin(
    name: &'static str,
    forms: &'static [&'static str],
    docs: &'static str,
    halves: &'static [Half],
    check: CheckCall,
) -> Builtin {
    Builtin {
        name,
        forms,
        docs,
        halves,
        in_011: false,
        makes_event: false,
        is_constant: false,
        named: &[],
        check,
    }
}

const fn user(
    name: &'static str,
    forms: &'static [&'static str],
    docs: &'static str,
    check: CheckCall,
) -> Builtin {
    builtin(name, forms, docs, &[Half::User], check)
}

const fn kernel(
    name: &'static str,
    forms: &'static [&'static str],
    docs: &'static str,
    check: CheckCall,
) -> Builtin {
    builtin(name, forms, docs, &[Half::Kernel], check)
}

const fn both(
    name: &'static str,
    forms: &'static [&'static str],
    docs: &'static str,
    check: CheckCall,
) -> Builtin {
    builtin(name, forms, docs, &[Half::User, Half::Kernel], check)
}

/// Returns the builtin of a name; none for an unknown name.
pub fn named(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// All builtin functions.
pub const BUILTINS: &[Builtin] = &[
    both(
        "print",
        &["(format, values..) -> u32"],
        "Prints a line. A string literal first is a format (`%d %i %u %x %X %o %c %s %p %%`, `{}`); else \
         every value is printed as it is.",
        |body, args, span| body.print_call(args, span),
    )
    .in_011(),
    user(
        "load",
        &["(program) -> program handle"],
        "Loads a program into the kernel. Null if the kernel refuses it.",
        |body, args, span| body.load_call(args, span),
    )
    .in_011(),
    user(
        "attach",
        &[
            "(options: perf_options) -> perf_attachment",
            "(program, options: perf_options, flags: u32) -> perf_attachment",
            "(program, target: str, flags: u32) -> u32",
        ],
        "Attaches a loaded program: to an interface, kernel function or tracepoint (0 on success, else \
         an error number), or to an event. `perf_options` alone open an event only to be read.",
        |body, args, span| body.attach_call(args, span),
    )
    .in_011(),
    user(
        "detach",
        &["(attachment: perf_attachment) -> void", "(program) -> void"],
        "Closes an event (a leader with its members), or detaches a program from everything.",
        |body, args, span| body.detach_call(args, span),
    )
    .in_011(),
    both(
        "read",
        &["(attachment: perf_attachment) -> perf_read"],
        "Reads an event's counter, now, without stopping it. One system call; in a group all values are \
         from one moment.",
        |body, args, span| body.read_call(args, span),
    )
    .in_011(),
    user(
        "read_cpu",
        &["(attachment: perf_attachment, cpu: u32) -> perf_read"],
        "Reads one CPU's share.",
        |body, args, span| body.read_cpu_call(args, span),
    ),
    user(
        "register",
        &["(impl) -> u32"],
        "Hands an impl block with `@struct_ops` to the kernel. 0 on success, else an error number.",
        |body, args, span| body.register_call(args, span),
    )
    .in_011(),
    user(
        "test",
        &["(program, context) -> u32"],
        "In a `@test` function: runs a program once and returns its result. The context is a struct \
         (`packet_size`, `data`, ..) or a string with the packet's bytes.",
        |body, args, span| body.test_call(args, span),
    )
    .in_011(),
    user(
        "dispatch",
        &["(ring, ..) -> i32", "(ring, .., timeout_ms: u32) -> i32"],
        "Waits for records of the ring buffers and calls each one's handler, until a handler returns a \
         negative value, the time is over or the host asks to stop.",
        |body, args, span| body.dispatch_call(args, span),
    )
    .in_011(),
    user(
        "exec",
        &["(script: str) -> void"],
        "Asks the host to run a Python script. The host decides; by default it does not.",
        |body, args, span| body.exec_call(args, span),
    )
    .in_011(),
    user(
        "daemon",
        &["() -> void"],
        "Does not return until the host asks to stop; then the script ends with 0.",
        |body, _, span| body.user_builtin(UserBuiltin::Daemon, body.common().void, span),
    )
    .in_011(),
    user(
        "sleep",
        &["(ms: u32) -> u32"],
        "Sleeps that many milliseconds. Not 0 if the host asked to stop.",
        |body, args, span| body.sleep_call(args, span),
    ),
    both(
        "time_ns",
        &["() -> u64"],
        "Monotonic nanoseconds; the same clock in both halves.",
        |body, _, span| body.time_ns_call(span),
    ),
    user("exit", &["(code: i32) -> void"], "Ends the script. Deferred calls run.", |body, args, span| {
        body.exit_call(args, span)
    }),
    user("stopping", &["() -> bool"], "Whether the host asked to stop.", |body, _, span| {
        body.user_builtin(UserBuiltin::Stopping, body.common().bool, span)
    }),
    user(
        "has_command",
        &["() -> bool"],
        "Whether the host starts a command to observe (`--exec`).",
        |body, _, span| body.user_builtin(UserBuiltin::HasCommand, body.common().bool, span),
    ),
    user(
        "pid_of",
        &["(name: str) -> i32"],
        "The lowest process id with that command name; -1 if there is none.",
        |body, args, span| body.pid_of_call(args, span),
    ),
    user(
        "comm_of",
        &["(pid: i32) -> str(16)"],
        "The command name of a process; empty if there is none.",
        |body, args, span| body.comm_of_call(args, span),
    ),
    user(
        "restart_command",
        &["() -> bool"],
        "Starts the command of `--exec` again if it has ended; false if it was not started.",
        |body, _, span| body.user_builtin(UserBuiltin::RestartCommand, body.common().bool, span),
    ),
    user(
        "next_thread",
        &["(process: i32, after: i32) -> i32"],
        "The lowest id above `after` of a process's threads; 0 if there is none.",
        |body, args, span| body.next_thread_call(args, span),
    ),
    user(
        "next_bpf_program",
        &["(after: u32) -> u32"],
        "The lowest id above `after` of the BPF programs of the machine; 0 if there is none.",
        |body, args, span| body.next_bpf_program_call(args, span),
    ),
    user(
        "bpf_program",
        &["(id: u32) -> bpf_program_info"],
        "What the BPF program of an id is and has cost: `name`, `kind`, `runs`, `time_ns`. All zero if there is none.",
        |body, args, span| body.bpf_program_call(args, span),
    ),
    user("cpu_count", &["() -> u32"], "How many CPUs there may be.", |body, _, span| {
        body.user_builtin(UserBuiltin::CpuCount, body.common().u32, span)
    }),
    user(
        "per_cpu",
        &["(map, key, cpu: u32) -> V", "(variable, cpu: u32) -> V"],
        "One CPU's value of a map or variable with a value for each CPU. `for (cpu, value in per_cpu(map, key))` and \
         `for (cpu, value in per_cpu(variable))` visit all.",
        |body, args, span| body.per_cpu_call(args, span),
    ),
    both("len", &["(text: str) -> u32"], "Bytes of the text.", |body, args, span| body.len_call(args, span)),
    user(
        "events",
        &["(pattern: str) -> u32"],
        "Prints the events of this machine that match the pattern, and returns their number.",
        |body, args, span| body.events_call(args, span),
    ),
    user(
        "symbol",
        &["(address: u64) -> str(128)", "(pid: i32, address: u64) -> str(128)"],
        "Function name and offset of an address, `schedule+0x5`; `ksym` and `usym` have no offset.",
        |body, args, span| body.symbol_call(args, span),
    ),
    both(
        "ksym",
        &["(address: u64) -> str(128)"],
        "The function of the kernel at an address, without the offset in it. In the kernel half a value of \
         `print`.",
        |body, args, span| body.ksym_call(args, span),
    ),
    both(
        "usym",
        &["(pid: i32, address: u64) -> str(128)"],
        "The function of a process at an address, also of one that has ended since. In the kernel half a value \
         of `print`.",
        |body, args, span| body.usym_call(args, span),
    ),
    both(
        "ipv4",
        &["(address: u32) -> str(16)", "(address: u8[4]) -> str(16)"],
        "An IPv4 address as text: `10.0.0.1`. The address is in network byte order. In the kernel half a value \
         of `print`.",
        |body, args, span| body.ipv4_call(args, span),
    ),
    both(
        "ipv6",
        &["(address: u8[16]) -> str(46)", "(address: u32[4]) -> str(46)"],
        "An IPv6 address as text: `2001:db8::1`. The address is in network byte order. In the kernel half a \
         value of `print`.",
        |body, args, span| body.address_call(DisplayForm::Ipv6, args, span),
    ),
    both(
        "mac",
        &["(address: u8[6]) -> str(18)"],
        "A link-layer address as text: `52:54:00:12:34:56`. In the kernel half a value of `print`.",
        |body, args, span| body.address_call(DisplayForm::Mac, args, span),
    ),
    both(
        "syscall_name",
        &["(number: i64) -> str(32)"],
        "The name of a system call, `openat`; the number if there is none. In the kernel half a value of \
         `print`.",
        |body, args, span| body.name_call(DisplayForm::SystemCall, args, span),
    ),
    both(
        "errno_name",
        &["(number: i64) -> str(32)"],
        "The name of an error number or of its negative: `ENOENT` of 2 and -2; the number if there is none. In \
         the kernel half a value of `print`.",
        |body, args, span| body.name_call(DisplayForm::Errno, args, span),
    ),
    both(
        "signal_name",
        &["(number: i64) -> str(32)"],
        "The name of a signal, `SIGKILL`; the number if there is none. In the kernel half a value of `print`.",
        |body, args, span| body.name_call(DisplayForm::Signal, args, span),
    ),
    both(
        "capability_name",
        &["(number: i64) -> str(32)"],
        "The name of a capability, `CAP_SYS_ADMIN`; the number if there is none. In the kernel half a value of \
         `print`.",
        |body, args, span| body.name_call(DisplayForm::Capability, args, span),
    ),
    both(
        "enum_name",
        &["(enum, number: i64) -> str(128)", "(pointer->member) -> str(128)"],
        "The name of a value of an enum of the running kernel; the number if there is none. The enum is named, or one \
         of its enumerators, or it is the type of a member. In the kernel half a value of `print`.",
        |body, args, span| body.enum_name_call(args, span),
    ),
    both(
        "strftime",
        &["(format: str, ns: u64) -> str(64)"],
        "The time of day at a moment of `time_ns`, in the format of strftime(3): `%H:%M:%S`; `%f` are \
         microseconds. In the kernel half a value of `print`.",
        |body, args, span| body.strftime_call(args, span),
    ),
    both(
        "human_bytes",
        &["(bytes: u64) -> str(16)"],
        "A size with its unit: `1.5 KiB`. In the kernel half a value of `print`.",
        |body, args, span| body.quantity_call(DisplayForm::Bytes, args, span),
    ),
    both(
        "human_time",
        &["(ns: u64) -> str(16)"],
        "A time with its unit: `20.0 ms`, `3h 12m`. In the kernel half a value of `print`.",
        |body, args, span| body.quantity_call(DisplayForm::Duration, args, span),
    ),
    user(
        "enable",
        &["(attachment: perf_attachment) -> u32"],
        "Goes on counting; of a leader, in the whole group. 0 or an error number.",
        |body, args, span| body.switch_call("enable", UserBuiltin::Enable, args, span),
    ),
    user(
        "disable",
        &["(attachment: perf_attachment) -> u32"],
        "Stops counting; of a leader, in the whole group. 0 or an error number.",
        |body, args, span| body.switch_call("disable", UserBuiltin::Disable, args, span),
    ),
    user(
        "reset",
        &["(attachment: perf_attachment) -> u32"],
        "Starts again from zero; of a leader, the whole group. 0 or an error number.",
        |body, args, span| body.switch_call("reset", UserBuiltin::Reset, args, span),
    ),
    user(
        "id",
        &["(attachment: perf_attachment) -> u64"],
        "The number that `attachment_id` returns in the kernel half.",
        |body, args, span| body.id_call(args, span),
    ),
    user(
        "rate",
        &["(before: perf_read, now: perf_read) -> u64"],
        "Difference per second of two readings of one attachment.",
        |body, args, span| body.rate_call(args, span),
    ),
    user(
        "ratio",
        &["(a: u64, b: u64, scale: u64) -> u64"],
        "`a * scale / b` without overflow; 0 if b is 0.",
        |body, args, span| body.ratio_call(args, span),
    ),
    both(
        "log2_slot",
        &["(value: u64) -> u32"],
        "The slot of a value in a histogram of powers of two: 0 of 0, else how many bits it has, at most \
         64.",
        |body, args, span| body.log2_slot_call(args, span),
    ),
    both(
        "linear_slot",
        &["(value: u64, low: u64, step: u64, slots: u64) -> u32"],
        "The slot of a value in a histogram of equal steps: 0 below `low`, `slots - 1` for all that is \
         above the others.",
        |body, args, span| body.linear_slot_call(args, span),
    ),
    user(
        "print_log2_hist",
        &["(title: str, counts: u64[N]) -> void"],
        "Prints what was counted in the slots of `log2_slot`, with bars.",
        |body, args, span| body.print_log2_call(args, span),
    ),
    user(
        "print_linear_hist",
        &["(title: str, counts: u64[N], low: u64, step: u64) -> void"],
        "Prints what was counted in the slots of `linear_slot`, with bars.",
        |body, args, span| body.print_linear_call(args, span),
    ),
    user(
        "print_kept",
        &["() -> void"],
        "Prints what is in the shared maps and variables that no function of userspace names, as tables \
         sorted by value. A script without `main` ends with it.",
        |body, _, span| body.user_builtin(UserBuiltin::PrintKept, body.common().void, span),
    ),
    user(
        "print_map",
        &["(map) -> void"],
        "Prints the entries of a map as a table sorted by value, largest first; histograms with bars. `top: 10` prints the \
         first ten, `by: count` sorts by the column `count`, and `headings: texts` are the headings of the values.",
        |body, args, span| body.print_map_call(args, span),
    )
    .with_named(&["top", "by", "headings"]),
    user(
        "redraw",
        &["() -> void"],
        "Begins a new picture: on a terminal, what is printed from now on replaces what is there.",
        |body, _, span| body.user_builtin(UserBuiltin::Redraw, body.common().void, span),
    ),
    user("clear", &["(map) -> void"], "Deletes every entry.", |body, args, span| body.clear_call(args, span)),
    user("count", &["(map) -> u32"], "How many entries there are.", |body, args, span| {
        body.count_call(args, span)
    }),
    both("sizeof", &["(type) -> u32"], "Bytes of a type.", |body, args, span| body.size_of_call(args, span))
        .constant(),
    both("ntohs", &["(value: u16) -> u16"], "Network order to host order, 2 bytes.", |body, args, span| {
        body.swap_bytes_call(body.common().u16, args, span)
    })
    .constant(),
    both("htons", &["(value: u16) -> u16"], "Host order to network order, 2 bytes.", |body, args, span| {
        body.swap_bytes_call(body.common().u16, args, span)
    })
    .constant(),
    both("ntohl", &["(value: u32) -> u32"], "Network order to host order, 4 bytes.", |body, args, span| {
        body.swap_bytes_call(body.common().u32, args, span)
    })
    .constant(),
    both("htonl", &["(value: u32) -> u32"], "Host order to network order, 4 bytes.", |body, args, span| {
        body.swap_bytes_call(body.common().u32, args, span)
    })
    .constant(),
    both("ntohll", &["(value: u64) -> u64"], "Network order to host order, 8 bytes.", |body, args, span| {
        body.swap_bytes_call(body.common().u64, args, span)
    })
    .constant(),
    both("htonll", &["(value: u64) -> u64"], "Host order to network order, 8 bytes.", |body, args, span| {
        body.swap_bytes_call(body.common().u64, args, span)
    })
    .constant(),
    kernel(
        "pid",
        &["() -> u32", "(task) -> u32"],
        "The process id of the task that is running, or of a task of the kernel (`pid(prev)`).",
        |body, args, span| body.task_id_call(args, true, span),
    ),
    kernel(
        "tid",
        &["() -> u32", "(task) -> u32"],
        "The thread id of the task that is running, or of a task of the kernel (`tid(prev)`).",
        |body, args, span| body.task_id_call(args, false, span),
    ),
    kernel("uid", &["() -> u32"], "The user id of the task that is running.", |body, _, span| {
        body.kernel_builtin(KernelBuiltin::Uid, body.common().u32, span)
    }),
    kernel("gid", &["() -> u32"], "The group id of the task that is running.", |body, _, span| {
        body.kernel_builtin(KernelBuiltin::Gid, body.common().u32, span)
    }),
    kernel("cpu", &["() -> u32"], "The CPU that the program runs on.", |body, _, span| {
        body.kernel_builtin(KernelBuiltin::Cpu, body.common().u32, span)
    }),
    kernel(
        "per_cpu_ptr",
        &["(variable, cpu: u32) -> *T"],
        "A pointer to the value that a CPU has of a `percpu extern`; null if there is no such CPU.",
        |body, args, span| body.per_cpu_ptr_call(&args[0], &args[1], span),
    ),
    kernel("comm", &["() -> str(16)"], "The command name of the task that is running.", |body, _, span| {
        body.comm_call(span)
    }),
    kernel(
        "str",
        &["(pointer) -> str(N)", "(pointer, bytes) -> str(N)"],
        "The text at an address of the kernel or of a user program. Without `bytes` the destination says how \
         long it may be, else it has 64 bytes. What cannot be read is null; where nothing asks, it is empty, and is counted.",
        |body, args, span| body.str_call(args, span),
    ),
    kernel(
        "buf",
        &["(pointer, length) -> u8[N]"],
        "Bytes at an address of the kernel or of a user program: as many as the destination has, at most `length`; \
         without a destination a constant `length`, else 64. The others are zero. Null if they cannot be read.",
        |body, args, span| body.buf_call(&args[0], &args[1], span),
    ),
    kernel(
        "path",
        &["(path) -> str(N)", "(path, bytes) -> str(N)"],
        "The path of a file, `path(&file->f_path)`, through all mounts up to their root. Of one that is too long the \
         end is there, behind `..`. The name of a socket or a pipe is no path. Null if it cannot be read.",
        |body, args, span| body.path_call(&args[0], args.get(1), span),
    ),
    kernel(
        "exists",
        &["(pointer->member) -> bool", "(function) -> bool"],
        "Whether the running kernel's struct has this member, or the running kernel has this function. Only where \
         it does may a member be read, or a function be called, that the kernel of the build lacks.",
        |body, args, span| body.exists_call(&args[0], span),
    ),
    kernel(
        "container_of",
        &["(pointer, struct, member) -> *struct"],
        "The kernel struct in which the pointer points to this member.",
        |body, args, span| body.container_of_call(args, span),
    ),
    kernel(
        "list",
        &["(head, struct, member)", "(head, struct, member, bound)"],
        "The elements of a list of the kernel, for `for (i, p in list(&task->children, task_struct, sibling))`: at most \
         4096, or as many as the bound says.",
        |body, _, span| body.list_alone(span),
    ),
    kernel(
        "join",
        &["(texts, separator) -> str(N)", "(texts, separator, bytes) -> str(N)"],
        "The texts of an array of pointers that ends with null, such as `argv`: at most 20. Without `bytes` the \
         destination says how long the text may be, else it has 64 bytes.",
        |body, args, span| body.join_call(args, span),
    ),
    kernel(
        "probe",
        &["() -> str(N)"],
        "Where the program is attached, as its attribute says: `\"sched/sched_switch\"`. In a program of several targets \
         the one that was hit.",
        |body, _, span| body.probe_call(span),
    ),
    kernel("cgroup_id", &["() -> u64"], "The cgroup of the task that is running.", |body, _, span| {
        body.kernel_builtin(KernelBuiltin::CgroupId, body.common().u64, span)
    }),
    kernel(
        "attachment_id",
        &["(ctx) -> u64"],
        "The number of the attachment that the program runs for: what `id` returns in userspace.",
        |body, args, span| body.attachment_id_call(args, span),
    ),
    kernel(
        "stack_id",
        &["(ctx, stacks) -> i64"],
        "Puts the kernel's call stack into a `stack_trace`; its number, or a negative error.",
        |body, args, span| body.stack_id_call(StackOwner::Kernel, args, span),
    ),
    kernel(
        "user_stack_id",
        &["(ctx, stacks) -> i64"],
        "Puts the task's call stack into a `stack_trace`; its number, or a negative error.",
        |body, args, span| body.stack_id_call(StackOwner::User, args, span),
    ),
    user(
        "take",
        &["(map)"],
        "Exchanges the map for an empty one. Programs go on with that; userspace has all entries until the next `take(map)`. \
         Nothing is counted twice or lost.",
        |body, args, span| body.take_map_call(args, span),
    ),
    kernel(
        "kstack",
        &["() -> i64", "(depth) -> i64"],
        "The kernel's call stack, of at most `depth` functions, else 127: a part of a key. Tables show its functions.",
        |body, args, span| body.stack_call(StackOwner::Kernel, args, span),
    ),
    kernel(
        "ustack",
        &["() -> i64", "(depth) -> i64"],
        "The call stack of the process, of at most `depth` functions, else 127: a part of a key. Tables show its \
         functions. The process is a part of it.",
        |body, args, span| body.stack_call(StackOwner::User, args, span),
    ),
    both(
        "raw_event",
        &[
            "(type: u32, config: u64) -> perf_event",
            "(type: u32, config: u64, config1: u64, config2: u64) -> perf_event",
        ],
        "An event by the kernel's numbers: the PMU's type and its config.",
        |body, args, span| body.packed_event("raw_event", args, span),
    )
    .event()
    .constant(),
    both(
        "hw_cache",
        &["(cache: str, op: str, result: str) -> perf_event"],
        "A cache event. Caches `l1d l1i ll dtlb itlb bpu node`, operations `read write prefetch`, \
         results `access miss`.",
        |body, args, span| body.packed_event("hw_cache", args, span),
    )
    .event()
    .constant(),
    both(
        "tracepoint",
        &["(name: str) -> perf_event"],
        "A tracepoint as an event: `\"category/event\"`.",
        |body, args, span| body.packed_event("tracepoint", args, span),
    )
    .event()
    .constant(),
    both(
        "syscall_event",
        &["(call: str) -> perf_event"],
        "Calls of a system call: the tracepoint `\"syscalls/sys_enter_NAME\"`.",
        |body, args, span| body.packed_event("syscall_event", args, span),
    )
    .event()
    .constant(),
    both(
        "breakpoint",
        &["(address, len: u32, access: str) -> perf_event"],
        "Accesses of an address or `\"symbol\"`: len 1, 2, 4 or 8, access `r`, `w`, `rw` or `x`.",
        |body, args, span| body.packed_event("breakpoint", args, span),
    )
    .event()
    .constant(),
    both(
        "pmu",
        &["(name: str) -> perf_event"],
        "An event in the spelling of `perf list`: `pmu(\"msr/tsc/\")`, or of a text: `pmu(args.event)`.",
        |body, args, span| body.packed_event("pmu", args, span),
    )
    .event()
    .constant(),
    both(
        "kprobe_event",
        &["(function: str) -> perf_event"],
        "Calls of a kernel function.",
        |body, args, span| body.packed_event("kprobe_event", args, span),
    )
    .event()
    .constant(),
    both(
        "uprobe_event",
        &["(place: str) -> perf_event"],
        "Calls of a function in user space: `\"path:function\"`.",
        |body, args, span| body.packed_event("uprobe_event", args, span),
    )
    .event()
    .constant(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_a_form_without_types() {
        let calls = |name| named(name).expect("a builtin").calls();
        assert_eq!(calls("time_ns"), ["time_ns()"]);
        assert_eq!(calls("symbol"), ["symbol(address)", "symbol(pid, address)"]);
        assert_eq!(calls("print"), ["print(format, values..)"]);
    }

    #[test]
    fn the_ten_of_kernelscript_0_1_1_hide_what_scripts_declare() {
        let old: Vec<_> = BUILTINS.iter().filter(|one| one.in_011).map(|one| one.name).collect();
        assert_eq!(
            old,
            ["print", "load", "attach", "detach", "read", "register", "test", "dispatch", "exec", "daemon"]
        );
    }
}
