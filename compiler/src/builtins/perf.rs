//! Performance events: the enumerators of `enum perf_event` and the structs of the perf builtins.

/// An event that the language names.
pub struct EventName {
    /// The enumerator.
    pub name: &'static str,
    /// `perf_event_attr.type << 32 | perf_event_attr.config`.
    pub value: u64,
    /// A script's own name hides it.
    pub weak: bool,
    /// Happens in the kernel only: with `exclude_kernel` it would count a silent 0.
    pub kernel_only: bool,
}

const fn event(name: &'static str, ty: u64, config: u64) -> EventName {
    EventName { name, value: ty << 32 | config, weak: false, kernel_only: false }
}

const fn weak(name: &'static str, ty: u64, config: u64) -> EventName {
    EventName { weak: true, ..event(name, ty, config) }
}

const HARDWARE: u64 = 0;
const SOFTWARE: u64 = 1;

/// Every enumerator of `enum perf_event`.
///
/// Source: `include/uapi/linux/perf_event.h`, `enum perf_type_id`, `enum perf_hw_id`, `enum perf_sw_ids`, v6.12.
pub const EVENTS: &[EventName] = &[
    event("cpu_cycles", HARDWARE, 0),
    event("instructions", HARDWARE, 1),
    event("cache_references", HARDWARE, 2),
    event("cache_misses", HARDWARE, 3),
    event("branch_instructions", HARDWARE, 4),
    event("branch_misses", HARDWARE, 5),
    weak("bus_cycles", HARDWARE, 6),
    weak("stalled_cycles_frontend", HARDWARE, 7),
    weak("stalled_cycles_backend", HARDWARE, 8),
    weak("ref_cpu_cycles", HARDWARE, 9),
    weak("cpu_clock", SOFTWARE, 0),
    weak("task_clock", SOFTWARE, 1),
    event("page_faults", SOFTWARE, 2),
    EventName { kernel_only: true, ..event("context_switches", SOFTWARE, 3) },
    EventName { kernel_only: true, ..event("cpu_migrations", SOFTWARE, 4) },
    weak("page_faults_min", SOFTWARE, 5),
    weak("page_faults_maj", SOFTWARE, 6),
    weak("alignment_faults", SOFTWARE, 7),
    weak("emulation_faults", SOFTWARE, 8),
    weak("dummy", SOFTWARE, 9),
    weak("bpf_output", SOFTWARE, 10),
    EventName { kernel_only: true, ..weak("cgroup_switches", SOFTWARE, 11) },
];

/// The name of an event by its value.
pub fn event_name(value: u64) -> Option<&'static str> {
    EVENTS.iter().find(|event| event.value == value).map(|event| event.name)
}

/// `perf_event_attr.type` of cache events: PERF_TYPE_HW_CACHE.
pub const HW_CACHE: u64 = 3;

/// `PERF_TYPE_TRACEPOINT`.
pub const TRACEPOINT: u64 = 2;

/// `PERF_TYPE_BREAKPOINT`.
pub const BREAKPOINT: u64 = 5;

/// Caches by name, with `enum perf_hw_cache_id`.
pub const CACHES: &[(&str, u64)] =
    &[("l1d", 0), ("l1i", 1), ("ll", 2), ("dtlb", 3), ("itlb", 4), ("bpu", 5), ("node", 6)];

/// Operations on a cache, with `enum perf_hw_cache_op_id`.
pub const CACHE_OPS: &[(&str, u64)] = &[("read", 0), ("write", 1), ("prefetch", 2)];

/// What comes of an operation, with `enum perf_hw_cache_op_result_id`.
pub const CACHE_RESULTS: &[(&str, u64)] = &[("access", 0), ("miss", 1)];

/// Most entries of `perf_read.values` and `.ids`.
pub const SNAPSHOT_ENTRIES: u64 = 16;

/// Positions of the fields of `perf_attachment`. `i32`, `i32`, `i32`, `u64`.
pub mod attachment {
    /// `perf_fd: i32`: the handle of the `attachment` resource, not a descriptor; [`INVALID`] or [`NONE`] if there is none.
    pub const PERF_FD: usize = 0;
    /// `link_id: i32`: the handle again if a program is linked, else 0.
    pub const LINK_ID: usize = 1;
    /// `prog_fd: i32`: the program handle, or 0.
    pub const PROG_FD: usize = 2;
    /// `generation: u64`: `attachment.id()`.
    pub const GENERATION: usize = 3;
    /// `perf_fd` of what `attach` gives on failure (`link_id` -1, `prog_fd` -1, `generation` 0).
    pub const INVALID: i32 = -1;
    /// `perf_fd` of the default of `perf_options.group`: no leader was named.
    pub const NONE: i32 = -2;
}

/// Size of the fields of `perf_options` that are text.
pub const OPTION_TEXT: u32 = 256;

/// Positions of the fields of `perf_options`, with their types and defaults.
pub mod options {
    /// `event: perf_event`, required.
    pub const EVENT: usize = 0;
    /// `pid: i32`, -1.
    pub const PID: usize = 1;
    /// `cpu: i32`, 0.
    pub const CPU: usize = 2;
    /// `period: u64`, 1000000.
    pub const PERIOD: usize = 3;
    /// `wakeup: u32`, 1.
    pub const WAKEUP: usize = 4;
    /// `inherit: bool`, false.
    pub const INHERIT: usize = 5;
    /// `exclude_kernel: bool`, false.
    pub const EXCLUDE_KERNEL: usize = 6;
    /// `exclude_user: bool`, false.
    pub const EXCLUDE_USER: usize = 7;
    /// `group: perf_attachment`, [`super::attachment::NONE`].
    pub const GROUP: usize = 8;
    /// The first of the fields that version 0.1.1 of the language has not.
    pub const OURS: usize = 9;
    /// `freq: u64`, 0.
    pub const FREQ: usize = 9;
    /// `exclude_idle: bool`, false.
    pub const EXCLUDE_IDLE: usize = 10;
    /// `exclude_hv: bool`, false.
    pub const EXCLUDE_HV: usize = 11;
    /// `exclude_host: bool`, false.
    pub const EXCLUDE_HOST: usize = 12;
    /// `exclude_guest: bool`, false.
    pub const EXCLUDE_GUEST: usize = 13;
    /// `every_cpu: bool`, false; no field of the language: `cpu: all` sets it.
    pub const EVERY_CPU: usize = 14;
    /// `process: str(256)`, empty.
    pub const PROCESS: usize = 15;
    /// `command: bool`, false.
    pub const COMMAND: usize = 16;
    /// `cgroup: str(256)`, empty.
    pub const CGROUP: usize = 17;
    /// `pinned: bool`, false.
    pub const PINNED: usize = 18;
    /// `exclusive: bool`, false.
    pub const EXCLUSIVE: usize = 19;
    /// `precise: u32`, 0.
    pub const PRECISE: usize = 20;
    /// `follow: bool`, false.
    pub const FOLLOW: usize = 21;
    /// `weak: bool`, false.
    pub const WEAK: usize = 22;
    /// `event_type: u32`, 0. This and what follows is no field of the language: it describes an event that the packed
    /// form cannot hold, whose `event` is one of [`super::form`].
    pub const EVENT_TYPE: usize = 23;
    /// `event_config: u64`, 0: `config`, or the address of a breakpoint.
    pub const EVENT_CONFIG: usize = 24;
    /// `event_config1: u64`, 0: `config1`, or the length of a breakpoint.
    pub const EVENT_CONFIG1: usize = 25;
    /// `event_config2: u64`, 0: `config2`, or the accesses of a breakpoint.
    pub const EVENT_CONFIG2: usize = 26;
    /// `event_text: str(256)`, empty: a name or a place.
    pub const EVENT_TEXT: usize = 27;

    /// Whether a script cannot name a field.
    pub fn is_hidden(field: usize) -> bool {
        field == EVERY_CPU || field >= EVENT_TYPE
    }
}

/// What `perf_options.event` holds if the fields behind it describe the event: no PMU has such a type.
pub mod form {
    /// `raw_event(type, config, config1, config2)`.
    pub const RAW: u64 = 0xffff_ffff_0000_0000;
    /// `tracepoint(text)`.
    pub const TRACEPOINT: u64 = RAW + 1;
    /// `breakpoint(address, len, access)`.
    pub const BREAKPOINT: u64 = RAW + 2;
    /// `breakpoint(text, len, access)`.
    pub const BREAKPOINT_AT: u64 = RAW + 3;
    /// `pmu(text)`.
    pub const PMU: u64 = RAW + 4;
    /// `kprobe_event(text)`.
    pub const KPROBE: u64 = RAW + 5;
    /// `uprobe_event(text)`.
    pub const UPROBE: u64 = RAW + 6;
}

/// Positions of the fields of `perf_read`.
pub mod reading {
    /// `raw: i64`.
    pub const RAW: usize = 0;
    /// `scaled: i64`.
    pub const SCALED: usize = 1;
    /// `time_enabled: u64`, nanoseconds.
    pub const TIME_ENABLED: usize = 2;
    /// `time_running: u64`, nanoseconds.
    pub const TIME_RUNNING: usize = 3;
    /// `count: u32`.
    pub const COUNT: usize = 4;
    /// `values: i64[16]`.
    pub const VALUES: usize = 5;
    /// `ids: u64[16]`.
    pub const IDS: usize = 6;
}
