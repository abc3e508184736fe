//! The events that the kernel's header names: the only such table. The compiler makes the enumerators of
//! `enum perf_event` and the texts of editors from it, the host the names that `ks-host events` lists and
//! that `--event` accepts.
//!
//! Source: include/uapi/linux/perf_event.h, `enum perf_type_id`, `perf_hw_id`, `perf_sw_ids`,
//! `perf_hw_cache_id`, `perf_hw_cache_op_id` and `perf_hw_cache_op_result_id`, v6.18;
//! tools/perf/util/evsel.c for the spellings of `perf list`.

/// `perf_event_attr.type` of the events that a CPU counts.
#[doc(alias = "PERF_TYPE_HARDWARE")]
pub const HARDWARE: u32 = 0;

/// `perf_event_attr.type` of the events that the kernel counts.
#[doc(alias = "PERF_TYPE_SOFTWARE")]
pub const SOFTWARE: u32 = 1;

/// `perf_event_attr.type` of tracepoints.
#[doc(alias = "PERF_TYPE_TRACEPOINT")]
pub const TRACEPOINT: u32 = 2;

/// `perf_event_attr.type` of cache events.
#[doc(alias = "PERF_TYPE_HW_CACHE")]
pub const HW_CACHE: u32 = 3;

/// `perf_event_attr.type` of breakpoints.
#[doc(alias = "PERF_TYPE_BREAKPOINT")]
pub const BREAKPOINT: u32 = 5;

/// An event that the kernel's header and the language have a name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedEvent {
    /// `perf_event_attr.type`: [`HARDWARE`] or [`SOFTWARE`].
    pub type_: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// The name in the language: an enumerator of `enum perf_event`.
    pub name: &'static str,
    /// Further names, as `perf list` spells them but with `_` for `-`. The first one is the name that `perf
    /// list` prefers if it prefers another one than the language.
    pub aliases: &'static [&'static str],
    /// What is counted, as a sentence.
    pub docs: &'static str,
    /// Whether KernelScript 0.1.1 has the name. A script's own names hide the others.
    pub in_011: bool,
    /// Whether it only happens in the kernel: with `exclude_kernel` it would always count 0.
    pub kernel_only: bool,
    /// Whether `perf list` names it by the first alias.
    listed_by_alias: bool,
}

impl NamedEvent {
    /// The event as the language stores it: `type << 32 | config`.
    #[must_use]
    pub const fn packed(&self) -> u64 {
        (self.type_ as u64) << 32 | self.config
    }

    /// The name in `perf list`, such as `page-faults`.
    #[must_use]
    pub fn perf_name(&self) -> String {
        let alias = self.aliases.first().filter(|_| self.listed_by_alias);
        alias.copied().unwrap_or(self.name).replace('_', "-")
    }

    const fn in_011(self) -> NamedEvent {
        NamedEvent { in_011: true, ..self }
    }

    const fn kernel_only(self) -> NamedEvent {
        NamedEvent { kernel_only: true, ..self }
    }

    const fn listed_by_alias(self) -> NamedEvent {
        NamedEvent { listed_by_alias: true, ..self }
    }
}

const fn event(
    type_: u32,
    config: u64,
    name: &'static str,
    aliases: &'static [&'static str],
    docs: &'static str,
) -> NamedEvent {
    NamedEvent {
        type_,
        config,
        name,
        aliases,
        docs,
        in_011: false,
        kernel_only: false,
        listed_by_alias: false,
    }
}

/// All named events, in the order of their numbers.
#[rustfmt::skip]
pub const EVENTS: &[NamedEvent] = &[
    event(HARDWARE, 0, "cpu_cycles", &["cycles"], "Cycles of the CPU.").in_011(),
    event(HARDWARE, 1, "instructions", &[], "Retired instructions.").in_011(),
    event(HARDWARE, 2, "cache_references", &[], "Accesses of the last level cache.").in_011(),
    event(HARDWARE, 3, "cache_misses", &[], "Accesses that missed the last level cache.").in_011(),
    event(HARDWARE, 4, "branch_instructions", &["branches"], "Retired branches.").in_011(),
    event(HARDWARE, 5, "branch_misses", &[], "Mispredicted branches.").in_011(),
    event(HARDWARE, 6, "bus_cycles", &[], "Cycles of the bus."),
    event(HARDWARE, 7, "stalled_cycles_frontend", &["idle_cycles_frontend"], "Cycles in which no instruction could be issued."),
    event(HARDWARE, 8, "stalled_cycles_backend", &["idle_cycles_backend"], "Cycles in which no instruction could retire."),
    event(HARDWARE, 9, "ref_cpu_cycles", &["ref_cycles"], "Cycles at a fixed frequency.").listed_by_alias(),
    event(SOFTWARE, 0, "cpu_clock", &[], "Nanoseconds of a CPU's clock."),
    event(SOFTWARE, 1, "task_clock", &[], "Nanoseconds for which the task ran."),
    event(SOFTWARE, 2, "page_faults", &["faults"], "Page faults.").in_011(),
    event(SOFTWARE, 3, "context_switches", &["cs"], "Switches to another task. Happens in the kernel only.").in_011().kernel_only(),
    event(SOFTWARE, 4, "cpu_migrations", &["migrations"], "Moves to another CPU. Happens in the kernel only.").in_011().kernel_only(),
    event(SOFTWARE, 5, "page_faults_min", &["minor_faults"], "Page faults that needed no disk.").listed_by_alias(),
    event(SOFTWARE, 6, "page_faults_maj", &["major_faults"], "Page faults that needed the disk.").listed_by_alias(),
    event(SOFTWARE, 7, "alignment_faults", &[], "Unaligned accesses that the kernel had to carry out."),
    event(SOFTWARE, 8, "emulation_faults", &[], "Instructions that the kernel had to carry out."),
    event(SOFTWARE, 9, "dummy", &[], "Counts nothing."),
    event(SOFTWARE, 10, "bpf_output", &[], "What programs put out."),
    event(SOFTWARE, 11, "cgroup_switches", &[], "Switches to a task of another cgroup. Happens in the kernel only.").kernel_only(),
];

/// One of the three parts of a cache event. Its number is the position in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheTerm {
    /// The name in the language, as an argument of `hw_cache`.
    pub name: &'static str,
    /// The name in `perf list`.
    pub perf: &'static str,
}

const fn term(name: &'static str, perf: &'static str) -> CacheTerm {
    CacheTerm { name, perf }
}

/// The caches, by `enum perf_hw_cache_id`.
pub const CACHES: [CacheTerm; 7] = [
    term("l1d", "L1-dcache"),
    term("l1i", "L1-icache"),
    term("ll", "LLC"),
    term("dtlb", "dTLB"),
    term("itlb", "iTLB"),
    term("bpu", "branch"),
    term("node", "node"),
];

/// The operations on a cache, by `enum perf_hw_cache_op_id`.
pub const CACHE_OPS: [CacheTerm; 3] =
    [term("read", "load"), term("write", "store"), term("prefetch", "prefetch")];

/// The results of an operation on a cache, by `enum perf_hw_cache_op_result_id`.
pub const CACHE_RESULTS: [CacheTerm; 2] = [term("access", "access"), term("miss", "miss")];
