//! Builtin functions of both halves: one declaration each, from which visitors, listings and `defer` take the
//! parts of a call.

use ks_wit::object::DisplayForm;

use super::{CounterId, Expr, FuncId, ImplId, KernelVariableId, MapId, RingId};
use crate::types::ColumnLabel;

/// Maximum number of bytes between two texts of `join`.
pub const MAX_SEPARATOR: usize = 4;

/// Whether reading a queue or stack removes the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakeOp {
    /// Removes the value from the map.
    Pop,
    /// Leaves the value in the map.
    Peek,
}

/// A part of a builtin call, in order of evaluation.
#[derive(Debug, Clone, Copy)]
pub enum BuiltinPart<'a> {
    /// An operand.
    Expr(&'a Expr),
    /// A map that the call names.
    Map(MapId),
    /// A ring buffer that the call names.
    Ring(RingId),
    /// A counter that the call names.
    Counter(CounterId),
    /// A program that the call names, not a call of it.
    Program(FuncId),
    /// A function that receives records.
    Handler(FuncId),
    /// A struct of the kernel that the script implements.
    Impl(ImplId),
}

/// A function that receives the records of a ring buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handler(pub FuncId);

/// What a field of a builtin has: parts for visitors, operands to be changed.
trait Parts {
    fn parts<'a>(&'a self, _to: &mut Vec<BuiltinPart<'a>>) {}

    fn operands<'a>(&'a mut self, _to: &mut Vec<&'a mut Expr>) {}
}

impl Parts for Expr {
    fn parts<'a>(&'a self, to: &mut Vec<BuiltinPart<'a>>) {
        to.push(BuiltinPart::Expr(self));
    }

    fn operands<'a>(&'a mut self, to: &mut Vec<&'a mut Expr>) {
        to.push(self);
    }
}

impl<T: Parts> Parts for Box<T> {
    fn parts<'a>(&'a self, to: &mut Vec<BuiltinPart<'a>>) {
        (**self).parts(to);
    }

    fn operands<'a>(&'a mut self, to: &mut Vec<&'a mut Expr>) {
        (**self).operands(to);
    }
}

/// Fields that hold any number of others.
macro_rules! containers {
    ($($Container:ty $(, $N:ident)?;)*) => {
        $(impl<T: Parts $(, const $N: usize)?> Parts for $Container {
            fn parts<'a>(&'a self, to: &mut Vec<BuiltinPart<'a>>) {
                self.iter().for_each(|one| one.parts(to));
            }

            fn operands<'a>(&'a mut self, to: &mut Vec<&'a mut Expr>) {
                self.iter_mut().for_each(|one| one.operands(to));
            }
        })*
    };
}

containers! {
    Option<T>;
    Vec<T>;
    [T; N], N;
}

/// Fields that name an item.
macro_rules! names {
    ($($Id:ty => |$id:ident| $part:expr;)*) => {
        $(impl Parts for $Id {
            fn parts<'a>(&'a self, to: &mut Vec<BuiltinPart<'a>>) {
                let $id = *self;
                to.push($part);
            }
        })*
    };
}

names! {
    MapId => |map| BuiltinPart::Map(map);
    RingId => |ring| BuiltinPart::Ring(ring);
    CounterId => |counter| BuiltinPart::Counter(counter);
    FuncId => |program| BuiltinPart::Program(program);
    Handler => |handler| BuiltinPart::Handler(handler.0);
    ImplId => |block| BuiltinPart::Impl(block);
}

// Properties of a call: text by its bytes, and choices.
impl Parts for i64 {}
impl Parts for u8 {}
impl Parts for String {}
impl Parts for bool {}
impl Parts for u32 {}
impl Parts for HistogramScale {}
impl Parts for ReadForm {}
impl Parts for KernelVariableId {}
impl Parts for StackOwner {}
impl Parts for DisplayForm {}
impl Parts for ColumnLabel {}

/// Declares the builtins of a half: for each one its name in listings (a method begins with a dot; its first
/// part is the receiver), the helper that implements it (`->`), and its fields in order of evaluation.
macro_rules! builtins {
    (
        $(#[$docs:meta])*
        pub enum $Builtin:ident {
            $(
                $(#[$doc:meta])*
                $name:literal $(-> $helper:literal)? $Variant:ident
                $(( $($part:ident: $Part:ty),* ))?
                $({ $($(#[$field_doc:meta])* $field:ident: $Field:ty),* $(,)? })?
            ),* $(,)?
        }
    ) => {
        $(#[$docs])*
        pub enum $Builtin {
            $(
                $(#[$doc])*
                $Variant $(( $($Part),* ))? $({ $($(#[$field_doc])* $field: $Field),* })?
            ),*
        }

        impl $Builtin {
            /// Returns the name in listings and messages.
            pub fn name(&self) -> &'static str {
                match self {
                    $($Builtin::$Variant { .. } => $name),*
                }
            }

            /// Returns the helper of the kernel that implements the builtin, if there is one.
            pub fn helper(&self) -> Option<&'static str> {
                match self {
                    $($($Builtin::$Variant { .. } => Some($helper),)?)*
                    #[allow(unreachable_patterns, reason = "not every half has builtins without a helper")]
                    _ => None,
                }
            }

            /// Returns the parts of the call in order of evaluation.
            pub fn parts(&self) -> Vec<BuiltinPart<'_>> {
                let mut parts = Vec::new();
                match self {
                    $($Builtin::$Variant $(( $($part),* ))? $({ $($field),* })? => {
                        $($($part.parts(&mut parts);)*)?
                        $($($field.parts(&mut parts);)*)?
                    })*
                }
                parts
            }

            /// Returns the operands in order of evaluation.
            pub fn operands_mut(&mut self) -> Vec<&mut Expr> {
                let mut operands = Vec::new();
                match self {
                    $($Builtin::$Variant $(( $($part),* ))? $({ $($field),* })? => {
                        $($($part.operands(&mut operands);)*)?
                        $($($field.operands(&mut operands);)*)?
                    })*
                }
                operands
            }
        }
    };
}

builtins! {
    /// Builtins with the same meaning in both halves.
    #[derive(Debug, Clone)]
    pub enum SharedBuiltin {
        /// `print(..) -> u32`: 0. Arguments are scalars, strings, or `u8[N]`/`char[N]`; the format has the syntax
        /// of `console.print`, with a conversion for each argument. A pointer under `%s` is text in memory.
        "print" Print {
            /// The format string for `console.print`.
            format: Vec<u8>,
            /// The values, one for each conversion.
            args: Vec<Expr>,
        },
        /// `len(s) -> u32`: bytes of text before the terminator.
        "len" Len(operand: Box<Expr>),
        /// `ntohs` and the like: reverses the bytes of an integer of 16, 32 or 64 bits.
        "swap_bytes" SwapBytes(operand: Box<Expr>),
        /// `q.push(v) -> u32`: 0 or errno. The value has the map's value type.
        ".push" Push(map: MapId, operand: Box<Expr>),
        /// `b.add(v) -> u32`: 0 or errno, on a bloom filter.
        ".add" Add(map: MapId, operand: Box<Expr>),
        /// `b.has(v) -> bool`: whether a bloom filter may contain the value; false is certain, true is not.
        ".has" Has(map: MapId, operand: Box<Expr>),
        /// `ratio(a, b, scale) -> u64`, in userspace only: a * scale / b, computed in 128 bits; 0 if b is 0. All
        /// u64.
        "ratio" Ratio(operands: Box<[Expr; 3]>),
        /// `log2_slot(value) -> u32`: the number of significant bits of the u64, 0 to 64.
        "log2_slot" Log2Slot(operand: Box<Expr>),
        /// `linear_slot(value, low, step, slots) -> u32`: 0 below `low`, else 1 + (value - low) / step, at most
        /// slots - 1; a step of 0 counts as larger than every value. All u64.
        "linear_slot" LinearSlot(operands: Box<[Expr; 4]>),
        /// `rate(before, now) -> u64`, in userspace only: difference of `scaled` per second between two
        /// `perf_read`s; 0 if no time passed.
        "rate" Rate(operands: Box<[Expr; 2]>),
        /// `ipv4(address) -> str(16)` and the like: the text that the host makes of the operands. In the kernel
        /// half only as a value of `print`.
        "display" Display {
            /// How the text is made.
            form: DisplayForm,
            /// The operands: integers, or an address of a network as an array.
            args: Vec<Expr>,
        },
    }
}

builtins! {
    /// Builtins of the kernel half, most with the helper that implements them.
    #[derive(Debug, Clone)]
    pub enum KernelBuiltin {
        /// `time_ns() -> u64`: bpf_ktime_get_ns.
        "time_ns" -> "bpf_ktime_get_ns" TimeNs,
        /// `pid() -> u32`: the process (thread group) id, upper half of bpf_get_current_pid_tgid.
        "pid" -> "bpf_get_current_pid_tgid" Pid,
        /// `tid() -> u32`: the thread id, lower half of bpf_get_current_pid_tgid.
        "tid" -> "bpf_get_current_pid_tgid" Tid,
        /// `pid(task) -> u32` and `tid(task) -> u32`: the process or thread id of a task of the kernel.
        "pid" TaskNumber {
            /// The address of the task, a u64.
            task: Box<Expr>,
            /// Its id in the initial PID namespace, a u32.
            initial: Box<Expr>,
            /// Whether it is the process id.
            is_process: bool,
        },
        /// `uid() -> u32`: lower half of bpf_get_current_uid_gid.
        "uid" -> "bpf_get_current_uid_gid" Uid,
        /// `gid() -> u32`: upper half of bpf_get_current_uid_gid.
        "gid" -> "bpf_get_current_uid_gid" Gid,
        /// `cpu() -> u32`: bpf_get_smp_processor_id.
        "cpu" -> "bpf_get_smp_processor_id" Cpu,
        /// `comm() -> str(16)`: bpf_get_current_comm.
        "comm" -> "bpf_get_current_comm" Comm,
        /// `str(p)` and `str(p, bytes)`: the text at an address of the kernel or of a user program, a u64.
        "str" Text(operand: Box<Expr>),
        /// `buf(p, length)`: as many bytes at an address as the array has, at most `length`; the others are zero.
        "buf" Buffer {
            /// The address, a u64.
            address: Box<Expr>,
            /// The number of bytes, a u64.
            length: Box<Expr>,
        },
        /// `join(p, separator)`: the texts behind an array of pointers, a u64, that a null pointer ends.
        "join" Join {
            /// The address of the first pointer.
            pointers: Box<Expr>,
            /// The text between two, at most as long as [`MAX_SEPARATOR`].
            separator: Vec<u8>,
        },
        /// `path(&file->f_path)`: the path of a file from the root of its mounts, by the address of a `struct path`,
        /// a u64.
        "path" Path(operand: Box<Expr>),
        /// Member of a tracepoint's record whose length differs from record to record: its text, or its
        /// elements.
        "record member" RecordBytes {
            /// The member that says where the bytes are, a u32: length in the upper half, offset in the lower.
            locator: Box<Expr>,
            /// Whether the offset counts from the end of that member, else from the start of the record.
            relative: bool,
        },
        /// Value of an enumerator in the running kernel.
        "enumerator" Enumerator {
            /// Name of the enum.
            owner: String,
            /// Name of the enumerator.
            name: String,
            /// Value in the kernel that the script is compiled for.
            value: i64,
        },
        /// The address of a variable of the kernel: u64.
        "variable address" VariableAddress {
            /// The variable.
            variable: KernelVariableId,
            /// The CPU whose value it is, a u32, of a variable with a value for each CPU; none: the running one. Null if
            /// there is no such CPU.
            of_cpu: Option<Box<Expr>>,
        },
        /// `str(p) != null`: whether text or bytes can be read.
        "is_read" IsRead(operand: Box<Expr>),
        /// `exists(p->member)`: whether the running kernel has the member whose address this is. The pointer is
        /// not evaluated.
        "exists" Exists(operand: Box<Expr>),
        /// `p + i` and `p[i]` of an array of kernel structs: their size is the running kernel's.
        "kernel element" Element {
            /// The pointer to the first.
            pointer: Box<Expr>,
            /// The index, an i64.
            index: Box<Expr>,
        },
        /// `container_of(p, T, member)`: the struct in which `p` points to the member. The operand is the address of
        /// that member of a struct that starts at `p`.
        "container_of" ContainerOf(operand: Box<Expr>),
        /// Counts that a loop left a list of the kernel before its end: void. Created for `list` of a `for`.
        "cut list" CutList,
        /// `cgroup_id() -> u64`: bpf_get_current_cgroup_id.
        "cgroup_id" -> "bpf_get_current_cgroup_id" CgroupId,
        /// `r.reserve()`: a pointer to a zeroed record, null if the ring is full. Every path submits or discards
        /// it.
        ".reserve" -> "bpf_ringbuf_reserve" Reserve(ring: RingId),
        /// `r.submit(p) -> i32`: 0. No effect if `p` is null.
        ".submit" -> "bpf_ringbuf_submit" Submit(ring: RingId, operand: Box<Expr>),
        /// `r.discard(p) -> i32`: 0. No effect if `p` is null.
        ".discard" -> "bpf_ringbuf_discard" Discard(ring: RingId, operand: Box<Expr>),
        /// `stack_id(ctx, m) -> i64` and `user_stack_id(ctx, m) -> i64`: bpf_get_stackid.
        "stack_id" -> "bpf_get_stackid" StackId {
            /// The pointer to the program's context.
            ctx: Box<Expr>,
            /// A map of kind `stack_trace`.
            map: MapId,
            /// The stack that is recorded.
            of: StackOwner,
        },
        /// `kstack() -> i64`, in a program: bpf_get_stackid of its own context into a map of kind `stack_trace`.
        "kstack" -> "bpf_get_stackid" KernelStack(map: MapId),
        /// `ustack() -> i64`, as `kstack`; the number has the process in the upper half.
        "ustack" -> "bpf_get_stackid" UserStack(map: MapId),
        /// `attachment_id(ctx) -> u64`: bpf_get_attach_cookie.
        "attachment_id" -> "bpf_get_attach_cookie" AttachmentId(operand: Box<Expr>),
        /// `read(NAME)` of a counter: the value on this CPU, as a `perf_read`.
        "read" -> "bpf_perf_event_read_value" ReadCounter(counter: CounterId),
    }
}

builtins! {
    /// Builtins of the userspace half. Failures are reported on standard error; the script sees the value stated.
    #[derive(Debug, Clone)]
    pub enum UserBuiltin {
        /// `load(f)`: a program handle, or null on failure.
        "load" Load {
            /// The program that is loaded.
            program: FuncId,
            /// Whether a failed load ends the plugin with exit code 1: the script never tests the handle for
            /// null.
            exit_on_failure: bool,
        },
        /// `attach(h, target, flags) -> u32`: 0 or errno.
        "attach" AttachTarget {
            /// The handle of the program, from `load`.
            program: Box<Expr>,
            /// The target, a string.
            target: Box<Expr>,
            /// The flags, a u64.
            flags: Box<Expr>,
        },
        /// `attach(h, options, flags)` and `attach(options)`: a `perf_attachment`, invalid on failure.
        "attach" Attach {
            /// The program handle; none: the event is only counted.
            program: Option<Box<Expr>>,
            /// The options, a `perf_options`.
            options: Box<Expr>,
            /// The flags, a u64; only 0 is accepted. Evaluated last.
            flags: Option<Box<Expr>>,
        },
        /// `read(att)`: a `perf_read`; on failure -1 in `raw` and `scaled` and 0 elsewhere.
        "read" Read {
            /// The attachment, a `perf_attachment`.
            attachment: Box<Expr>,
            /// The members of the result that the script uses.
            form: ReadForm,
        },
        /// `read_cpu(att, cpu)`: one instance, as a `perf_read`. The CPU is a u32.
        "read_cpu" ReadCpu(operands: Box<[Expr; 2]>),
        /// `read(NAME)` of a counter, summed over the CPUs, and `read_cpu(NAME, cpu)`: a `perf_read`.
        /// [`super::counters`] replaces it.
        "read" ReadCounter(counter: CounterId, cpu: Option<Box<Expr>>),
        /// Makes an attachment, a `perf_attachment`, readable by programs as this counter: void. No effect if no
        /// program reads the counter, or if the attachment is invalid. Created by [`super::counters`].
        "show_counter" ShowCounter(counter: CounterId, operand: Box<Expr>),
        /// `id(att) -> u64`: the value that `attachment_id` returns in the attached program.
        "id" Id(operand: Box<Expr>),
        /// `detach(att)`: detaches one attachment; void.
        "detach" Detach(operand: Box<Expr>),
        /// `detach(h)` of a program handle: detaches all its attachments; void.
        "detach_program" DetachProgram(operand: Box<Expr>),
        /// `enable(att) -> u32`: 0 or errno.
        "enable" Enable(operand: Box<Expr>),
        /// `disable(att) -> u32`: 0 or errno.
        "disable" Disable(operand: Box<Expr>),
        /// `reset(att) -> u32`: 0 or errno.
        "reset" Reset(operand: Box<Expr>),
        /// `register(impl) -> u32`: 0 or errno.
        "register" Register(block: ImplId),
        /// `test(program, input) -> u32`: the program's return value.
        "test" Test {
            /// The program under test.
            program: FuncId,
            /// A struct that describes the input, or a string that is the packet.
            input: Box<Expr>,
        },
        /// `r.on_event(f) -> u32`: 0; `f` receives the ring's records from now on.
        ".on_event" OnEvent(ring: RingId, handler: Handler),
        /// `dispatch(r, .., timeout_ms) -> i32`.
        "dispatch" Dispatch {
            /// The rings that are polled, in order.
            rings: Vec<RingId>,
            /// The timeout in milliseconds, a u64; none if the call has none.
            timeout_ms: Option<Box<Expr>>,
        },
        /// `exec("x.py")`: asks the host to run a script, whose path is given; void.
        "exec" Exec(text: Vec<u8>),
        /// `MODULE.f(..) -> u64` of a Python module: integers and strings.
        "python" Python {
            /// The path of the module.
            module: String,
            /// The name of the function.
            function: String,
            /// The arguments, integers and strings.
            args: Vec<Expr>,
        },
        /// `daemon()`: void; returns when the host asks the plugin to stop, which then ends with exit code 0.
        "daemon" Daemon,
        /// `sleep(ms) -> u32`: the argument is a u64 of milliseconds; 0, or EINTR (4) when the host asks to stop.
        "sleep" Sleep(operand: Box<Expr>),
        /// `time_ns() -> u64`: monotonic time in nanoseconds.
        "time_ns" TimeNs,
        /// `stopping() -> bool`: whether the host asked the plugin to stop.
        "stopping" Stopping,
        /// `has_command() -> bool`: whether the host starts a command to observe (`--exec`).
        "has_command" HasCommand,
        /// `exit(code)`: ends the plugin with the low 8 bits of an i32. Void; does not return.
        "exit" Exit(operand: Box<Expr>),
        /// `pid_of(name) -> i32`: the process id of a name, a string; -1 if there is no such process.
        "pid_of" PidOf(operand: Box<Expr>),
        /// `comm_of(pid) -> str(16)`: the name of a process, an i32; empty if there is no such process.
        "comm_of" CommOf(operand: Box<Expr>),
        /// `restart_command() -> bool`: whether the command runs again.
        "restart_command" RestartCommand,
        /// `next_thread(process, after) -> i32`: the next thread of a process, both i32; 0 if there is none.
        "next_thread" NextThread(operands: Box<[Expr; 2]>),
        /// `next_bpf_program(after) -> u32`: the id of the next BPF program, a u32; 0 if there is none.
        "next_bpf_program" NextBpfProgram(operand: Box<Expr>),
        /// `bpf_program(id)`: the program of an id, a u32, as a `bpf_program_info`; all zero if there is none.
        "bpf_program" BpfProgram(operand: Box<Expr>),
        /// `cpu_count() -> u32`: the number of possible CPUs.
        "cpu_count" CpuCount,
        /// `per_cpu(m, k, cpu)`: the entry's value on one CPU, a u32.
        "per_cpu" PerCpu {
            /// A map of a per-CPU kind.
            map: MapId,
            /// The key, of the map's key type.
            key: Box<Expr>,
            /// The CPU number, a u32.
            cpu: Box<Expr>,
        },
        /// `clear(m)`: void; deletes every entry.
        "clear" Clear(map: MapId),
        /// `m.create(k)`: void; puts an empty map at a key of a map of maps, unless there is one.
        ".create" CreateInner {
            /// The map of maps.
            map: MapId,
            /// The key of the inner map.
            key: Box<Expr>,
        },
        /// `take(m)`: void; exchanges the map for an empty one. [`super::taken`] replaces it.
        "take" TakeMap(map: MapId),
        /// Waits until the runs of programs that have begun are over: void. From then on the map is the other one of two.
        /// Created by [`super::taken`].
        "settle" Settle(map: MapId),
        /// `count(m) -> u32`: the number of entries.
        "count" Count(map: MapId),
        /// `events(glob) -> u32`: prints the events that match a string and returns their number.
        "events" Events(operand: Box<Expr>),
        /// `print_log2_hist(title, counts)` and `print_linear_hist(title, counts, low, step)`: void.
        "print_hist" Histogram {
            /// The title, a string.
            title: Box<Expr>,
            /// The counts, a `u64[N]`.
            counts: Box<Expr>,
            /// The low end and the step of a linear scale, both u64; none: a log2 scale.
            linear: Option<Box<[Expr; 2]>>,
        },
        /// `print_kept()`: void; prints what the script keeps in maps and variables that userspace does not name.
        /// [`super::kept`] replaces it.
        "print_kept" PrintKept,
        /// `print_map(m, top: n, by: column, headings: texts)`: void; prints the entries of a map. [`super::kept`] replaces it.
        "print_map" PrintMap {
            /// The map.
            map: MapId,
            /// How many entries are printed at most, a u32; none: all.
            top: Option<Box<Expr>>,
            /// The column that the entries are sorted by, largest first; none: the value.
            by: Option<u32>,
            /// The headings of the first columns of the values, a `str(N)[M]`; none: those of the script.
            headings: Option<Box<Expr>>,
        },
        /// `redraw()`: void; begins a new picture on a terminal.
        "redraw" Redraw,
        /// A new table without rows, a u32: its handle. Created by [`super::kept`].
        "new_table" NewTable {
            /// The title above the table, and its name in JSON.
            title: String,
            /// The label of each column.
            columns: Vec<ColumnLabel>,
        },
        /// Makes the lines of texts in a column lines of the table: void.
        "set_lines" SetLines {
            /// The handle of the table.
            table: Box<Expr>,
            /// The position of the column.
            column: u32,
        },
        /// Gives a column another heading: void. One without a heading is not shown.
        "set_heading" SetHeading {
            /// The handle of the table.
            table: Box<Expr>,
            /// The position of the column.
            column: u32,
            /// The heading, a string.
            heading: Box<Expr>,
        },
        /// Makes rows with the same values in the first columns one row, with the sums of the others: void.
        "merge_rows" MergeRows {
            /// The handle of the table.
            table: Box<Expr>,
            /// The number of columns that are compared.
            keys: u32,
        },
        /// Appends a row to a table: void. A row that the host has no room for is left out, with a warning.
        "append_row" AppendRow {
            /// The handle of the table.
            table: Box<Expr>,
            /// The values, one for each column: scalars, strings and `char[N]`.
            row: Vec<Expr>,
        },
        /// Prints a table and drops its handle: void.
        "write_table" WriteTable {
            /// The handle of the table.
            table: Box<Expr>,
            /// The column that the rows are sorted by, largest first; none: in the order in which they came.
            sorted: Option<u32>,
            /// How many rows are printed at most, a u32; none: all. Only of sorted rows.
            top: Option<Box<Expr>>,
        },
        /// Empty histograms of one scale, a u32: their handle. Created by [`super::kept`].
        "new_histograms" NewHistograms {
            /// The name that stands before each key.
            name: String,
            /// The values of the slots.
            scale: HistogramScale,
        },
        /// Appends a histogram: void. One that the host has no room for is left out, with a warning.
        "append_histogram" AppendHistogram {
            /// The handle of the histograms.
            histograms: Box<Expr>,
            /// The parts of the key: scalars and strings.
            key: Vec<Expr>,
            /// The number of values below zero, a u64.
            below_zero: Box<Expr>,
            /// The sum of all values, an i64.
            sum: Box<Expr>,
            /// The counts of the slots, a `u64[N]`.
            counts: Box<Expr>,
        },
        /// Prints histograms and drops their handle: void.
        "write_histograms" WriteHistograms {
            /// The handle of the histograms.
            histograms: Box<Expr>,
            /// How many are printed at most, a u32; none: all.
            top: Option<Box<Expr>>,
        },
        /// `symbol(addr) -> str(128)` and `symbol(pid, addr)`: an i32 and a u64.
        "symbol" Symbol {
            /// The process id, an i32; none: a kernel address.
            pid: Option<Box<Expr>>,
            /// The address, a u64.
            address: Box<Expr>,
        },
    }
}

/// The owner of a call stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StackOwner {
    /// The kernel, while it runs for the task.
    Kernel,
    /// The task's own program.
    User,
}

/// The values that the slots of a histogram count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistogramScale {
    /// Slot 0 counts 0, slot n the values of n bits.
    Log2,
    /// The first slot counts what is below `low`, the next `low` to `low + step - 1`, and so on; the last what
    /// is above the others.
    Linear {
        /// The lowest value of the second slot.
        low: u64,
        /// The number of values of a slot, at least 1.
        step: u64,
        /// The number of slots, with the first and the last.
        slots: u64,
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
