//! The kernel's helpers that need no `extern`: their signatures, and the programs that may call them.
//!
//! Source: include/uapi/linux/bpf.h, the comments above `___BPF_FUNC_MAPPER`, and the `*_func_proto`
//! functions in kernel/trace/bpf_trace.c, kernel/bpf/helpers.c and net/core/filter.c (v6.12).

use crate::bpf::helper_number;
use crate::hir::{FunctionKind, HirFunction, ProgramKind, Target};
use crate::kernel_version::KernelVersion;

/// The type of a helper's parameter or result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperType {
    /// No result; only as a result type.
    Void,
    /// The unsigned 16-bit type `u16`.
    U16,
    /// The unsigned 32-bit type `u32`.
    U32,
    /// The unsigned 64-bit type `u64`.
    U64,
    /// `i32`; `int` of the header.
    I32,
    /// `i64`; `long` of the header.
    I64,
    /// `*void`: memory, or a context of any of several kinds.
    Memory,
    /// `*u8`: text with a terminator.
    Text,
    /// `*bpf_perf_event_data`, the context of a perf program.
    PerfContext,
    /// `*xdp_md`, the context of an xdp program.
    Xdp,
    /// `*__sk_buff`, the context of programs on packets.
    Skb,
    /// `*task_struct`, a task of the kernel.
    Task,
    /// `*pt_regs`, the registers of a task.
    Registers,
}

use HelperType::{I32, I64, Memory, PerfContext, Registers, Skb, Task, Text, U16, U32, U64, Void, Xdp};

/// A helper and its signature.
#[derive(Debug)]
pub struct Helper {
    /// The name, with the prefix `bpf_`.
    pub name: &'static str,
    /// The parameter types in order.
    pub params: &'static [HelperType],
    /// The result type; `Void` if there is none.
    pub ret: HelperType,
    kinds: Kinds,
}

/// The callers of helpers that the kernel distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A program other than [`Caller::CgroupPacket`].
    Program(ProgramKind),
    /// An `@cgroup` program at `ingress` or `egress`: it sees packets, and no task.
    CgroupPacket,
    /// A method of a struct of the kernel. The kernel may allow the methods of some structs more helpers than
    /// this.
    Method,
}

impl Caller {
    /// Returns the caller that a function is to the kernel; none if the kernel does not call functions of its
    /// kind.
    pub fn of(function: &HirFunction) -> Option<Caller> {
        match (function.kind, &function.target) {
            (FunctionKind::Program(ProgramKind::Cgroup), Target::Name(hook))
                if matches!(hook.as_str(), "ingress" | "egress") =>
            {
                Some(Caller::CgroupPacket)
            }
            (FunctionKind::Program(kind), _) => Some(Caller::Program(kind)),
            (FunctionKind::Method(_), _) => Some(Caller::Method),
            _ => None,
        }
    }

    /// Returns the plural, for messages.
    pub fn plural(self) -> String {
        match self {
            Caller::Program(kind) => format!("`@{}` programs", kind.name()),
            Caller::CgroupPacket => "`@cgroup` programs that see packets".into(),
            Caller::Method => "methods of `@struct_ops`".into(),
        }
    }

    fn bit(self) -> u32 {
        match self {
            Caller::Program(kind) => 1 << kind as u32,
            Caller::CgroupPacket => 1 << 30,
            Caller::Method => 1 << 31,
        }
    }
}

/// A set of callers: a bit for each, see [`Caller::bit`].
#[derive(Debug, Clone, Copy)]
struct Kinds(u32);

impl Kinds {
    const fn of(kinds: &[ProgramKind]) -> Kinds {
        let mut bits = 0;
        let mut at = 0;
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u32;
            at += 1;
        }
        Kinds(bits)
    }

    const fn and(self, others: Kinds) -> Kinds {
        Kinds(self.0 | others.0)
    }

    fn has(self, caller: Caller) -> bool {
        self.0 & caller.bit() != 0
    }
}

const CGROUP_SKB: Kinds = Kinds(1 << 30);
const METHODS: Kinds = Kinds(1 << 31);
const ANY: Kinds = Kinds::of(ProgramKind::ALL).and(CGROUP_SKB).and(METHODS);
const PERF: Kinds = Kinds::of(&[ProgramKind::PerfEvent]);
const XDP: Kinds = Kinds::of(&[ProgramKind::Xdp]);
const TC: Kinds = Kinds::of(&[ProgramKind::Tc]);
const CGROUP: Kinds = Kinds::of(&[ProgramKind::Cgroup]);
const TIMER: Kinds = Kinds::of(&[ProgramKind::Timer]);
/// Programs that can forward a packet.
const PACKET: Kinds = XDP.and(TC);
const TC_CGROUP: Kinds = TC.and(CGROUP_SKB);
/// Programs whose context is a `__sk_buff`.
const SKB: Kinds = TC_CGROUP.and(Kinds::of(&[ProgramKind::SocketFilter]));
/// Programs of the network, including those that are so only in part.
const NET: Kinds = PACKET.and(SKB).and(CGROUP).and(METHODS);
const PROBES: Kinds =
    Kinds::of(&[ProgramKind::Probe, ProgramKind::Retprobe, ProgramKind::Uprobe, ProgramKind::Uretprobe]);
const TRACING: Kinds = PROBES.and(PERF).and(Kinds::of(&[
    ProgramKind::Tracepoint,
    ProgramKind::RawTracepoint,
    ProgramKind::SyscallEnter,
    ProgramKind::SyscallExit,
    ProgramKind::Lsm,
]));
/// Programs that may run for the task that caused them.
const TASK: Kinds = TRACING.and(CGROUP).and(CGROUP_SKB).and(METHODS);
const TRACING_METHODS: Kinds = TRACING.and(METHODS);
const LSM: Kinds = Kinds::of(&[ProgramKind::Lsm]);
/// Programs that receive the parameters of the kernel's functions and events unchanged, without the hooks of
/// LSM.
const TRAMPOLINES: Kinds =
    Kinds::of(&[ProgramKind::Probe, ProgramKind::Retprobe, ProgramKind::RawTracepoint]);
/// Programs that may have a socket: in a `__sk_buff`, or as the kernel's own struct.
const SOCKETS: Kinds = SKB.and(Kinds::of(&[
    ProgramKind::Cgroup,
    ProgramKind::Probe,
    ProgramKind::Retprobe,
    ProgramKind::RawTracepoint,
    ProgramKind::Lsm,
]));

const fn row(name: &'static str, params: &'static [HelperType], ret: HelperType, kinds: Kinds) -> Helper {
    Helper { name, params, ret, kinds }
}

/// Helpers whose parameters a script can pass: no maps, no callbacks, no kernel objects.
pub const HELPERS: &[Helper] = &[
    row("bpf_ktime_get_ns", &[], U64, ANY),
    row("bpf_ktime_get_boot_ns", &[], U64, ANY),
    row("bpf_ktime_get_coarse_ns", &[], U64, NET),
    row("bpf_ktime_get_tai_ns", &[], U64, ANY),
    row("bpf_jiffies64", &[], U64, ANY),
    row("bpf_get_prandom_u32", &[], U32, ANY),
    row("bpf_get_smp_processor_id", &[], U32, ANY),
    row("bpf_get_numa_node_id", &[], I64, ANY),
    row("bpf_get_current_pid_tgid", &[], U64, ANY),
    row("bpf_get_ns_current_pid_tgid", &[U64, U64, Memory, U32], I64, ANY),
    row("bpf_get_current_task", &[], U64, ANY),
    row("bpf_get_current_task_btf", &[], Task, ANY),
    row("bpf_task_pt_regs", &[Task], Registers, ANY),
    row("bpf_get_task_stack", &[Task, Memory, U32, U64], I64, TRACING_METHODS),
    row("bpf_get_current_uid_gid", &[], U64, TASK),
    row("bpf_get_current_comm", &[Memory, U32], I64, TASK),
    row("bpf_get_current_cgroup_id", &[], U64, TASK),
    row("bpf_get_current_ancestor_cgroup_id", &[I32], U64, TASK),
    row("bpf_probe_read_kernel", &[Memory, U32, Memory], I64, ANY),
    row("bpf_probe_read_user", &[Memory, U32, Memory], I64, ANY),
    row("bpf_probe_read_kernel_str", &[Memory, U32, Memory], I64, ANY),
    row("bpf_probe_read_user_str", &[Memory, U32, Memory], I64, ANY),
    row("bpf_probe_read", &[Memory, U32, Memory], I64, TRACING),
    row("bpf_probe_read_str", &[Memory, U32, Memory], I64, TRACING),
    row("bpf_strncmp", &[Text, U32, Text], I64, ANY),
    row("bpf_strtol", &[Text, U64, U64, Memory], I64, ANY),
    row("bpf_strtoul", &[Text, U64, U64, Memory], I64, ANY),
    row("bpf_get_attach_cookie", &[Memory], U64, TRACING),
    row("bpf_get_func_ip", &[Memory], U64, PROBES),
    row("bpf_get_stack", &[Memory, Memory, U32, U64], I64, TRACING),
    row("bpf_get_branch_snapshot", &[Memory, U32, U64], I64, TRACING_METHODS),
    row("bpf_perf_prog_read_value", &[PerfContext, Memory, U32], I64, PERF),
    row("bpf_read_branch_records", &[PerfContext, Memory, U32, U64], I64, PERF),
    row("bpf_probe_write_user", &[Memory, Memory, U32], I64, TRACING),
    row("bpf_send_signal", &[U32], I64, TRACING_METHODS),
    row("bpf_send_signal_thread", &[U32], I64, TRACING_METHODS),
    row("bpf_override_return", &[Registers, U64], I64, PROBES),
    row("bpf_xdp_adjust_head", &[Xdp, I32], I64, XDP),
    row("bpf_xdp_adjust_tail", &[Xdp, I32], I64, XDP),
    row("bpf_xdp_adjust_meta", &[Xdp, I32], I64, XDP),
    row("bpf_xdp_get_buff_len", &[Xdp], U64, XDP),
    row("bpf_xdp_load_bytes", &[Xdp, U32, Memory, U32], I64, XDP),
    row("bpf_xdp_store_bytes", &[Xdp, U32, Memory, U32], I64, XDP),
    row("bpf_redirect", &[U32, U64], I64, PACKET),
    row("bpf_redirect_peer", &[U32, U64], I64, TC),
    row("bpf_redirect_neigh", &[U32, Memory, I32, U64], I64, TC),
    row("bpf_clone_redirect", &[Skb, U32, U64], I64, TC),
    row("bpf_fib_lookup", &[Memory, Memory, I32, U32], I64, PACKET),
    row("bpf_check_mtu", &[Memory, U32, Memory, I32, U64], I64, PACKET),
    row("bpf_csum_diff", &[Memory, U32, Memory, U32, U32], I64, PACKET),
    row("bpf_csum_update", &[Skb, U32], I64, TC),
    row("bpf_csum_level", &[Skb, U64], I64, TC),
    row("bpf_l3_csum_replace", &[Skb, U32, U64, U64, U64], I64, TC),
    row("bpf_l4_csum_replace", &[Skb, U32, U64, U64, U64], I64, TC),
    row("bpf_skb_load_bytes", &[Skb, U32, Memory, U32], I64, SKB),
    row("bpf_skb_load_bytes_relative", &[Skb, U32, Memory, U32, U32], I64, SKB),
    row("bpf_skb_store_bytes", &[Skb, U32, Memory, U32, U64], I64, TC),
    row("bpf_skb_pull_data", &[Skb, U32], I64, TC),
    row("bpf_skb_vlan_push", &[Skb, U16, U16], I64, TC),
    row("bpf_skb_vlan_pop", &[Skb], I64, TC),
    row("bpf_skb_change_proto", &[Skb, U16, U64], I64, TC),
    row("bpf_skb_change_type", &[Skb, U32], I64, TC),
    row("bpf_skb_change_tail", &[Skb, U32, U64], I64, TC),
    row("bpf_skb_change_head", &[Skb, U32, U64], I64, TC),
    row("bpf_skb_adjust_room", &[Skb, I32, U32, U64], I64, TC),
    row("bpf_skb_ecn_set_ce", &[Skb], I64, TC_CGROUP),
    row("bpf_skb_cgroup_id", &[Skb], U64, TC_CGROUP),
    row("bpf_skb_ancestor_cgroup_id", &[Skb, I32], U64, TC_CGROUP),
    row("bpf_skb_cgroup_classid", &[Skb], U64, TC),
    row("bpf_skb_set_tstamp", &[Skb, U64, U32], I64, TC),
    row("bpf_get_cgroup_classid", &[Skb], U32, TC),
    row("bpf_get_route_realm", &[Skb], U32, TC),
    row("bpf_get_hash_recalc", &[Skb], U32, TC),
    row("bpf_set_hash", &[Skb, U32], I64, TC),
    row("bpf_set_hash_invalid", &[Skb], Void, TC),
    row("bpf_get_socket_cookie", &[Memory], U64, SOCKETS),
    row("bpf_get_socket_uid", &[Skb], U32, SKB),
    row("bpf_get_retval", &[], I32, CGROUP),
    row("bpf_set_retval", &[I32], I32, CGROUP),
];

/// Returns the helper of a name, such as `bpf_ktime_get_ns`.
pub fn named(name: &str) -> Option<&'static Helper> {
    HELPERS.iter().find(|helper| helper.name == name)
}

fn numbered(number: u32) -> Option<&'static Helper> {
    HELPERS.iter().find(|helper| helper_number(helper.name) == Some(number))
}

/// Whether a caller may call a helper, on a new enough kernel. For a helper that is not in the table this
/// returns true: the kernel decides at load time.
pub fn allowed(number: u32, caller: Caller) -> bool {
    let of_builtin = BUILTIN_HELPERS.iter().find(|(name, _)| helper_number(name) == Some(number));
    let kinds = numbered(number).map(|helper| helper.kinds).or(of_builtin.map(|(_, kinds)| *kinds));
    kinds.is_none_or(|kinds| kinds.has(caller))
}

/// Helpers that builtins and local storage call with arguments that a script cannot pass, with their
/// permitted callers.
const BUILTIN_HELPERS: &[(&str, Kinds)] = &[
    ("bpf_perf_event_read_value", TRACING),
    ("bpf_sk_storage_get", TC_CGROUP.and(CGROUP).and(TRAMPOLINES).and(LSM).and(METHODS)),
    ("bpf_inode_storage_get", LSM),
];

/// Helpers that some callers may only call on later kernels than the one that introduced the helper: the
/// first such kernel.
///
/// Source: the history of `bpf_base_func_proto` in kernel/bpf/helpers.c, of `bpf_tracing_func_proto` and
/// `tracing_prog_func_proto` in kernel/trace/bpf_trace.c and of `sock_addr_func_proto` in net/core/filter.c;
/// the answers of 6.1, 6.12 and 6.18 to a program of each kind with the call.
const LATER: &[(&str, Kinds, KernelVersion)] = &[
    ("bpf_get_current_pid_tgid", NO_TASK, KernelVersion::new(6, 10)),
    ("bpf_get_ns_current_pid_tgid", NO_TASK.and(CGROUP), KernelVersion::new(6, 10)),
    ("bpf_get_current_cgroup_id", NO_TASK, KernelVersion::new(6, 4)),
    ("bpf_get_current_ancestor_cgroup_id", NO_TASK, KernelVersion::new(6, 4)),
    ("bpf_get_attach_cookie", Kinds::of(&[ProgramKind::RawTracepoint]), KernelVersion::new(6, 10)),
    ("bpf_get_current_uid_gid", NO_TASK, KernelVersion::new(6, 16)),
    ("bpf_get_current_comm", NO_TASK, KernelVersion::new(6, 16)),
    ("bpf_get_task_stack", METHODS, KernelVersion::new(6, 16)),
    ("bpf_get_branch_snapshot", METHODS, KernelVersion::new(6, 16)),
    ("bpf_send_signal", METHODS, KernelVersion::new(6, 16)),
    ("bpf_send_signal_thread", METHODS, KernelVersion::new(6, 16)),
    ("bpf_task_storage_get", NO_TASK.and(CGROUP), KernelVersion::new(6, 16)),
    ("bpf_task_storage_get", LSM, KernelVersion::new(5, 11)),
    ("bpf_task_storage_get", TRACING, KernelVersion::new(5, 12)),
    ("bpf_inode_storage_get", LSM, KernelVersion::new(5, 10)),
    ("bpf_sk_storage_get", TC_CGROUP.and(METHODS), KernelVersion::new(5, 2)),
    ("bpf_sk_storage_get", CGROUP, KernelVersion::new(5, 3)),
    ("bpf_sk_storage_get", LSM, KernelVersion::new(5, 10)),
    ("bpf_sk_storage_get", TRAMPOLINES, KernelVersion::new(5, 11)),
    ("bpf_cgrp_storage_get", ANY, KernelVersion::new(6, 2)),
];

/// Programs that need not run for a task.
const NO_TASK: Kinds = PACKET.and(SKB).and(TIMER).and(METHODS);

/// Returns the first kernel that allows a caller a helper which others could call before; none if it came to
/// all at once.
pub fn later(number: u32, caller: Caller) -> Option<KernelVersion> {
    let row = LATER.iter().find(|(name, kinds, _)| helper_number(name) == Some(number) && kinds.has(caller));
    row.map(|(.., since)| *since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_helper_has_a_number_and_at_most_five_parameters() {
        for helper in HELPERS {
            assert!(helper_number(helper.name).is_some(), "{}", helper.name);
            assert!(helper.params.len() <= 5, "{}", helper.name);
            let same = HELPERS.iter().filter(|other| other.name == helper.name).count();
            assert_eq!(same, 1, "{}", helper.name);
        }
    }

    #[test]
    fn kinds_are_those_of_the_kernel() {
        let allowed = |name: &str, kind| allowed(helper_number(name).expect(name), Caller::Program(kind));
        assert!(allowed("bpf_ktime_get_ns", ProgramKind::Xdp));
        assert!(allowed("bpf_send_signal", ProgramKind::PerfEvent));
        assert!(!allowed("bpf_send_signal", ProgramKind::Tc));
        assert!(!allowed("bpf_skb_store_bytes", ProgramKind::Xdp));
        assert!(!allowed("bpf_xdp_adjust_head", ProgramKind::Tc));
        assert!(!allowed("bpf_get_current_comm", ProgramKind::SocketFilter));
        // This helper is not in the table.
        assert!(allowed("bpf_sysctl_get_name", ProgramKind::Xdp));
    }

    #[test]
    fn packets_of_cgroups_and_methods_have_others() {
        let allowed = |name: &str, caller| allowed(helper_number(name).expect(name), caller);
        let sockets = Caller::Program(ProgramKind::Cgroup);
        assert!(
            allowed("bpf_skb_load_bytes", Caller::CgroupPacket) && !allowed("bpf_skb_load_bytes", sockets)
        );
        assert!(allowed("bpf_set_retval", sockets) && !allowed("bpf_set_retval", Caller::CgroupPacket));
        assert!(allowed("bpf_send_signal", Caller::Method) && !allowed("bpf_redirect", Caller::Method));
    }

    #[test]
    fn later_is_later_for_those_who_may_call_it() {
        for (name, kinds, _) in LATER {
            assert!(helper_number(name).is_some(), "{name}");
            let of_builtin = BUILTIN_HELPERS.iter().find(|(other, _)| other == name).map(|(_, kinds)| *kinds);
            let callers = named(name).map(|helper| helper.kinds).or(of_builtin);
            assert!(callers.is_none_or(|callers| kinds.0 & callers.0 != 0), "{name}");
        }
        let later = |name: &str, caller| later(helper_number(name).expect(name), caller);
        assert_eq!(later("bpf_get_current_comm", Caller::Method), Some(KernelVersion::new(6, 16)));
        assert_eq!(later("bpf_get_current_comm", Caller::Program(ProgramKind::Probe)), None);
    }
}
