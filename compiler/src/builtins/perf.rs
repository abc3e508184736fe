//! The structs of the perf builtins: positions, types and defaults of their fields. The events themselves are
//! in the contract's table ([`ks_wit::event`]).

/// Length of `perf_read.values` and `.ids`.
pub const SNAPSHOT_ENTRIES: u64 = 16;

/// Positions of the fields of `perf_attachment`. `i32`, `i32`, `i32`, `u64`.
pub mod attachment {
    /// `perf_fd: i32`: the handle of the `attachment` resource, not a descriptor; [`INVALID`] or [`NONE`] if
    /// there is none.
    pub const PERF_FD: usize = 0;
    /// `link_id: i32`: the handle again if a program is linked, else 0.
    pub const LINK_ID: usize = 1;
    /// `prog_fd: i32`: the program handle, or 0.
    pub const PROG_FD: usize = 2;
    /// `generation: u64`: the result of `attachment.id()`.
    pub const GENERATION: usize = 3;
    /// `perf_fd` of the result of a failed `attach` (`link_id` -1, `prog_fd` -1, `generation` 0).
    pub const INVALID: i32 = -1;
    /// `perf_fd` of the default of `perf_options.group`: no leader is named.
    pub const NONE: i32 = -2;
}

/// Size in bytes of the string fields of `perf_options`, terminator included.
pub const OPTION_TEXT: u32 = 256;

/// Positions of the fields of `perf_options`, with their types and defaults.
pub mod options {
    /// `event: perf_event`, required: the event that is counted.
    pub const EVENT: usize = 0;
    /// `pid: i32`, -1: -1 all tasks, 0 the thread that runs the script, else that task.
    pub const PID: usize = 1;
    /// `cpu: i32`, 0: -1 any CPU, else that CPU.
    pub const CPU: usize = 2;
    /// `period: u64`, 1000000: events between two samples.
    pub const PERIOD: usize = 3;
    /// `wakeup: u32`, 1: samples between two wake-ups of a reader.
    pub const WAKEUP: usize = 4;
    /// `inherit: bool`, false: also counts children that are created later.
    pub const INHERIT: usize = 5;
    /// `exclude_kernel: bool`, false: does not count in the kernel.
    pub const EXCLUDE_KERNEL: usize = 6;
    /// `exclude_user: bool`, false: does not count in user mode.
    pub const EXCLUDE_USER: usize = 7;
    /// `group: perf_attachment`, [`super::attachment::NONE`]: the group's leader.
    pub const GROUP: usize = 8;
    /// The position of the first field that version 0.1.1 of the language does not have.
    pub const OURS: usize = 9;
    /// `freq: u64`, 0: samples per second in place of `period`; 0 for none.
    pub const FREQ: usize = 9;
    /// `exclude_idle: bool`, false: does not count while the CPU is idle.
    pub const EXCLUDE_IDLE: usize = 10;
    /// `exclude_hv: bool`, false: does not count in the hypervisor.
    pub const EXCLUDE_HV: usize = 11;
    /// `exclude_host: bool`, false: does not count outside of guests.
    pub const EXCLUDE_HOST: usize = 12;
    /// `exclude_guest: bool`, false: does not count in guests.
    pub const EXCLUDE_GUEST: usize = 13;
    /// `every_cpu: bool`, false; not a field of the language: `cpu: all` sets it.
    pub const EVERY_CPU: usize = 14;
    /// `process: str(256)`, empty: the path of an executable or a command name.
    pub const PROCESS: usize = 15;
    /// `command: bool`, false: counts the command that the host starts with `--exec`.
    pub const COMMAND: usize = 16;
    /// `cgroup: str(256)`, empty: a path below the mount of the cgroups.
    pub const CGROUP: usize = 17;
    /// `pinned: bool`, false: a leader that is always on a counter, or fails.
    pub const PINNED: usize = 18;
    /// `exclusive: bool`, false: a leader whose group is alone on its counters.
    pub const EXCLUSIVE: usize = 19;
    /// `precise: u32`, 0: how near a sample lies to its instruction, 0 to 3.
    pub const PRECISE: usize = 20;
    /// `follow: bool`, false: counts all threads of `pid`, also later ones.
    pub const FOLLOW: usize = 21;
    /// `weak: bool`, false: opens the member alone if the group does not fit.
    pub const WEAK: usize = 22;
    /// `event_type: u32`, 0. This field and those after it are not fields of the language: they describe an
    /// event that the packed form cannot hold, whose `event` is one of [`super::form`].
    pub const EVENT_TYPE: usize = 23;
    /// `event_config: u64`, 0: `config`, or the address of a breakpoint.
    pub const EVENT_CONFIG: usize = 24;
    /// `event_config1: u64`, 0: `config1`, or the length of a breakpoint.
    pub const EVENT_CONFIG1: usize = 25;
    /// `event_config2: u64`, 0: `config2`, or the accesses of a breakpoint.
    pub const EVENT_CONFIG2: usize = 26;
    /// `event_text: str(256)`, empty: a name or location.
    pub const EVENT_TEXT: usize = 27;

    /// Whether a field cannot be named in a script.
    pub fn is_hidden(field: usize) -> bool {
        field == EVERY_CPU || field >= EVENT_TYPE
    }
}

/// Values of `perf_options.event` if the fields after it describe the event: no PMU has such a type.
pub mod form {
    /// `raw_event(type, config, config1, config2)`.
    pub const RAW: u64 = 0xffff_ffff_0000_0000;
    /// `tracepoint(text)`: a tracepoint of the kernel.
    pub const TRACEPOINT: u64 = RAW + 1;
    /// `breakpoint(address, len, access)` at an address.
    pub const BREAKPOINT: u64 = RAW + 2;
    /// `breakpoint(text, len, access)` at a symbol.
    pub const BREAKPOINT_AT: u64 = RAW + 3;
    /// `pmu(text)`: an event of a PMU.
    pub const PMU: u64 = RAW + 4;
    /// `kprobe_event(text)`: a kernel function.
    pub const KPROBE: u64 = RAW + 5;
    /// `uprobe_event(text)`: a function of a program.
    pub const UPROBE: u64 = RAW + 6;
    /// `pmu(text)` of a text that is known at run time, which may not be UTF-8.
    pub const NAMED: u64 = RAW + 7;
}

/// Positions of the fields of `perf_read`.
pub mod reading {
    /// `raw: i64`: the count of this attachment; -1 on failure.
    pub const RAW: usize = 0;
    /// `scaled: i64`: `raw * time_enabled / time_running`; -1 if the event never ran.
    pub const SCALED: usize = 1;
    /// `time_enabled: u64`: nanoseconds for which the group was enabled.
    pub const TIME_ENABLED: usize = 2;
    /// `time_running: u64`: nanoseconds for which it was on the counters.
    pub const TIME_RUNNING: usize = 3;
    /// `count: u32`: number of filled entries of `values` and `ids`, at most 16.
    pub const COUNT: usize = 4;
    /// `values: i64[16]`: scaled counts of the whole group, leader first.
    pub const VALUES: usize = 5;
    /// `ids: u64[16]`: the kernel's numbers of the events, in the same order.
    pub const IDS: usize = 6;
}
