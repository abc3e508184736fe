//! First kernel versions of features that plugins use.
//!
//! Source: the tags that contain the commits which added the numbers to include/uapi/linux/bpf.h (`enum
//! bpf_prog_type`, `enum bpf_map_type`), and the links to kernel/bpf/syscall.c, net/core/dev.c and
//! kernel/bpf/bpf_struct_ops.c.

pub use ks_wit::helper::Version;

use crate::bpf::InstructionGroup;

/// Helpers that some program types got in later kernels than others: tasks' ids, control groups, users and
/// names, cookies, stacks and signals, and the storage of tasks and sockets.
///
/// Source: the history of `bpf_base_func_proto` in kernel/bpf/helpers.c, and of the `*_func_proto` of
/// kernel/trace/bpf_trace.c and net/core/filter.c.
const HELPERS_LATER: &[(&[u32], &[&str], Version)] = &[
    (&[80, 123], WITHOUT_TASK, (6, 4)),
    (&[14, 120], WITHOUT_TASK, (6, 10)),
    (&[174], &["tp_btf", "raw_tp", "raw_tracepoint"], (6, 10)),
    (&[15, 16], WITHOUT_TASK, (6, 16)),
    (&[109, 117, 141, 176], &["struct_ops"], (6, 16)),
    (&[156, 157], WITHOUT_TASK, (6, 16)),
    (&[156, 157], &["cgroup", "syscall"], (6, 16)),
    (&[156, 157], TRACING, (5, 12)),
    (&[107, 108], &["cgroup"], (5, 3)),
    (&[107, 108], &["lsm"], (5, 10)),
    (&[107, 108], &["tp_btf", "fentry", "fexit"], (5, 11)),
];

/// Sections of programs that observe the kernel or a process, except LSM hooks.
const TRACING: &[&str] = &[
    "perf_event",
    "tracepoint",
    "tp",
    "raw_tracepoint",
    "raw_tp",
    "tp_btf",
    "fentry",
    "fexit",
    "kprobe",
    "kretprobe",
    "uprobe",
    "uretprobe",
];

/// Sections of programs that may run outside of any task's context.
const WITHOUT_TASK: &[&str] = &["xdp", "tc", "tcx", "classifier", "cgroup_skb", "socket", "struct_ops"];

/// Returns the first kernel in which the programs of a section may call a helper.
pub(super) fn helper(number: u32, section: &str) -> Option<Version> {
    let kind = section.split(['/', '.']).next().unwrap_or_default();
    let later =
        HELPERS_LATER.iter().find(|(numbers, kinds, _)| numbers.contains(&number) && kinds.contains(&kind));
    if let Some((.., since)) = later {
        return Some(*since);
    }
    ks_wit::helper::numbered(number).map(|helper| helper.since)
}

/// The highest map type number of each version. Numbers are assigned in ascending order, so lower numbers
/// came with it or before.
const MAPS: &[(u32, Version)] = &[
    (2, (3, 19)),
    (3, (4, 2)),
    (4, (4, 3)),
    (7, (4, 6)),
    (8, (4, 8)),
    (10, (4, 10)),
    (11, (4, 11)),
    (13, (4, 12)),
    (15, (4, 14)),
    (16, (4, 15)),
    (18, (4, 18)),
    (20, (4, 19)),
    (23, (4, 20)),
    (24, (5, 2)),
    (25, (5, 4)),
    (26, (5, 6)),
    (27, (5, 8)),
    (28, (5, 10)),
    (29, (5, 11)),
    (30, (5, 16)),
    (31, (6, 1)),
    (32, (6, 2)),
    (33, (6, 9)),
];

/// Returns the first kernel with a map type.
pub(super) fn map(kind: u32) -> Option<Version> {
    MAPS.iter().find(|(last, _)| kind <= *last).map(|(_, since)| *since)
}

/// Section names (up to the slash), the first kernel with such programs, the first that attaches them by a
/// link, and the kernel configuration that they need.
const PROGRAMS: &[(&str, Version, Version, &str)] = &[
    ("perf_event", (4, 9), (5, 15), "CONFIG_BPF_EVENTS"),
    ("tracepoint", (4, 7), (5, 15), "CONFIG_BPF_EVENTS"),
    ("tp", (4, 7), (5, 15), "CONFIG_BPF_EVENTS"),
    ("raw_tracepoint", (4, 17), (4, 17), "CONFIG_BPF_EVENTS"),
    ("raw_tp", (4, 17), (4, 17), "CONFIG_BPF_EVENTS"),
    ("tp_btf", (5, 5), (5, 5), "CONFIG_DEBUG_INFO_BTF"),
    ("fentry", (5, 5), (5, 5), "CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER"),
    ("fexit", (5, 5), (5, 5), "CONFIG_DEBUG_INFO_BTF and CONFIG_FUNCTION_TRACER"),
    ("lsm", (5, 7), (5, 7), "CONFIG_BPF_LSM"),
    ("kprobe", (4, 1), (5, 15), "CONFIG_KPROBE_EVENTS"),
    ("kretprobe", (4, 1), (5, 15), "CONFIG_KPROBE_EVENTS"),
    ("uprobe", (4, 1), (5, 15), "CONFIG_UPROBE_EVENTS"),
    ("uretprobe", (4, 1), (5, 15), "CONFIG_UPROBE_EVENTS"),
    ("xdp", (4, 8), (5, 9), "CONFIG_NET"),
    ("tcx", (4, 1), (4, 5), "CONFIG_NET_CLS_BPF"),
    ("tc", (4, 1), (6, 6), "CONFIG_NET_XGRESS"),
    ("cgroup_skb", (4, 10), (5, 7), "CONFIG_CGROUP_BPF"),
    ("cgroup", (4, 17), (5, 7), "CONFIG_CGROUP_BPF"),
    ("socket", (3, 19), (3, 19), "CONFIG_NET"),
    ("struct_ops", (5, 6), (6, 4), "CONFIG_BPF_JIT"),
    ("syscall", (5, 14), (5, 14), "CONFIG_BPF_SYSCALL"),
];

/// The first kernels and the configuration for the programs of a section.
pub(super) struct Programs {
    /// The first kernel with such programs.
    pub(super) since: Version,
    /// The first kernel that attaches them by a link.
    pub(super) links_since: Version,
    /// The kernel configuration options that they need.
    pub(super) config: &'static str,
}

/// Looks up the programs of a section such as `fentry/vfs_read`.
pub(super) fn programs(section: &str) -> Option<Programs> {
    let kind = section.split(['/', '.']).next().unwrap_or_default();
    let row = PROGRAMS.iter().find(|(name, ..)| *name == kind);
    row.map(|(_, since, links_since, config)| Programs { since: *since, links_since: *links_since, config })
}

/// Kernel functions that `ks` calls by itself, and the first kernel with each.
const KFUNCS: &[(&str, Version)] =
    &[("bpf_iter_num_new", (6, 4)), ("bpf_iter_num_next", (6, 4)), ("bpf_iter_num_destroy", (6, 4))];

/// Returns the first kernel in which programs may call a function.
pub(super) fn kfunc(name: &str) -> Option<Version> {
    KFUNCS.iter().find(|(known, _)| *known == name).map(|(_, since)| *since)
}

/// Returns the first kernel with the instructions of a group, and a name for the group.
///
/// Source: the tags that contain `bpf: Add instructions for atomic_[cmp]xchg` (v5.12), `bpf: Support new
/// sign-extension load insns` and those after it (v6.6), `bpf: Introduce may_goto instruction` (v6.9).
pub(super) const fn instructions(group: InstructionGroup) -> (Version, &'static str) {
    match group {
        InstructionGroup::Atomics => ((5, 12), "atomic instructions"),
        InstructionGroup::V4 => ((6, 6), "instructions of version 4"),
        InstructionGroup::MayGoto => ((6, 9), "may_goto"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_versions_grow_together() {
        assert!(MAPS.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    }

    #[test]
    fn some_that_are_well_known() {
        // Helpers bpf_loop, bpf_ringbuf_output, bpf_get_attach_cookie; map types ring buffer, cgroup storage,
        // arena.
        assert_eq!(
            [181, 130, 174].map(|number| helper(number, "kprobe/f")),
            [Some((5, 17)), Some((5, 8)), Some((5, 15))]
        );
        assert_eq!([27, 32, 33, 19].map(map), [Some((5, 8)), Some((6, 2)), Some((6, 9)), Some((4, 19))]);
        assert_eq!((helper(212, "xdp"), map(99)), (None, None));
        assert_eq!([helper(14, "xdp"), helper(14, "kprobe/f")], [Some((6, 10)), Some((4, 2))]);
        let storage = ["xdp", "tp_btf/sched_switch", "lsm/file_open"].map(|section| helper(156, section));
        assert_eq!(storage, [Some((6, 16)), Some((5, 12)), Some((5, 11))]);
        assert!(programs("tcx/ingress").is_some_and(|tcx| tcx.links_since == (4, 5)));
        assert!(programs("nothing").is_none());
    }
}
