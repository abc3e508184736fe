//! The kernel's BPF helpers: the name of each, the first kernel that has it, the effect of a call, its
//! signature and the programs that may call it. This is the only such table: names, numbers and signatures
//! for the compiler, classes for policies, versions for `ks-host check`.
//!
//! Source: include/uapi/linux/bpf.h, `___BPF_FUNC_MAPPER` and the comments above it, and the tags that
//! contain the commits which added the numbers. No helper was added since v6.2; the kernel adds kfuncs
//! instead. Callers: the `*_func_proto` functions in kernel/trace/bpf_trace.c, kernel/bpf/helpers.c and
//! net/core/filter.c, v6.12; their history, and the answers of 6.1, 6.12 and 6.18 to a program of each kind
//! with the call, for the callers that came later.

use crate::caller::{
    ANY, CGROUP, Caller, CallerSet, LSM, METHODS, NET, NO_TASK, PACKET, PERF, PROBES, RAW_TRACEPOINT, SKB,
    SOCKET_OWNERS, SOCKETS, TASK, TC, TC_CGROUP, TRACING, TRACING_METHODS, TRAMPOLINES, XDP,
};

/// A kernel version as (major, minor): `(6, 12)`.
pub type Version = (u32, u32);

/// The effect of a helper call, as policies distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperClass {
    /// Changes nothing but the plugin's own maps and ring buffers: it reads, or prints to a log.
    Observes,
    /// Changes the packet or operation that the program runs for, or decides what becomes of it, and nothing
    /// else. The kernel offers these helpers only to program kinds that decide about packets and sockets, and a
    /// policy is asked about those kinds.
    Packets,
    /// Sends packets or messages to another interface, CPU or socket, also to one that the program looked up.
    Redirects,
    /// Schedules a function of the program to run later.
    Timers,
    /// Changes something outside of the plugin. The text completes "a policy that allows it trusts the plugin
    /// to ..".
    Steers(&'static str),
}

use HelperClass::{Observes, Packets, Redirects, Steers, Timers};

/// The type of a helper's parameter or result, in the language.
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

/// The parameters and the result of a helper that scripts call without declaring it: no maps, no callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// The parameter types in order, at most five.
    pub params: &'static [HelperType],
    /// The result type; `Void` if there is none.
    pub ret: HelperType,
}

/// One BPF helper function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Helper {
    /// The full name, including `bpf_`.
    pub name: &'static str,
    /// The first kernel that offers it to any program kind.
    pub since: Version,
    /// The effect of a call; policies decide by it.
    pub class: HelperClass,
    /// Whether it changes where a packet starts or ends, or where its bytes are. Such a call invalidates
    /// pointers into the packet. Source: net/core/filter.c, `bpf_helper_changes_pkt_data`, v6.18.
    pub moves_packets: bool,
    /// The parameters and the result; none if a script has to declare it (`extern`).
    pub signature: Option<Signature>,
    /// The callers that may call it on a new enough kernel; none if only the kernel knows.
    callers: Option<CallerSet>,
    /// Callers that may only call it since a later kernel than others.
    later: &'static [(CallerSet, Version)],
}

impl Helper {
    /// Returns the name without `bpf_`, as policies write it.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix("bpf_").unwrap_or(self.name)
    }

    /// Whether a caller may call it on a new enough kernel. Where the table does not know, this returns true:
    /// the kernel decides at load time.
    #[must_use]
    pub fn is_allowed_in(&self, caller: Caller) -> bool {
        self.callers.is_none_or(|callers| callers.has(caller))
    }

    /// Returns the first kernel that allows a caller to call it.
    #[must_use]
    pub fn since_in(&self, caller: Caller) -> Version {
        let later = self.later.iter().find(|(callers, _)| callers.has(caller));
        later.map_or(self.since, |(_, since)| *since)
    }

    const fn moving(self) -> Helper {
        Helper { moves_packets: true, ..self }
    }

    const fn with_signature(
        self,
        params: &'static [HelperType],
        ret: HelperType,
        callers: CallerSet,
    ) -> Helper {
        Helper { signature: Some(Signature { params, ret }), callers: Some(callers), ..self }
    }

    const fn only_in(self, callers: CallerSet) -> Helper {
        Helper { callers: Some(callers), ..self }
    }

    const fn later(self, later: &'static [(CallerSet, Version)]) -> Helper {
        Helper { later, ..self }
    }
}

const fn helper(name: &'static str, since: Version, class: HelperClass) -> Helper {
    Helper { name, since, class, moves_packets: false, signature: None, callers: None, later: &[] }
}

/// Returns the helper with this number of `enum bpf_func_id`, or none for 0 and for numbers above the table.
#[must_use]
pub fn numbered(number: u32) -> Option<&'static Helper> {
    HELPERS.get(usize::try_from(number.checked_sub(1)?).ok()?)
}

/// Returns the first kernel that offers the helper of this full name to any program kind, for constants.
///
/// # Panics
/// If there is no such helper: at compile time in a constant.
#[must_use]
pub const fn since(name: &str) -> Version {
    let mut at = 0;
    while !equal(HELPERS[at].name, name) {
        at += 1;
    }
    HELPERS[at].since
}

/// `a == b`, which constants cannot compute yet.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Returns the number and the helper of a name, which is written with or without `bpf_`.
#[must_use]
pub fn named(name: &str) -> Option<(u32, &'static Helper)> {
    (1..).zip(HELPERS).find(|(_, helper)| helper.name == name || helper.short_name() == name)
}

/// All helpers, starting with number 1. The kernel never reassigns a number.
#[rustfmt::skip]
pub const HELPERS: &[Helper] = &[
    helper("bpf_map_lookup_elem", (3, 19), Observes),
    helper("bpf_map_update_elem", (3, 19), Observes),
    helper("bpf_map_delete_elem", (3, 19), Observes),
    helper("bpf_probe_read", (4, 1), Observes).with_signature(&[Memory, U32, Memory], I64, TRACING),
    helper("bpf_ktime_get_ns", (4, 1), Observes).with_signature(&[], U64, ANY),
    helper("bpf_trace_printk", (4, 1), Observes),
    helper("bpf_get_prandom_u32", (4, 1), Observes).with_signature(&[], U32, ANY),
    helper("bpf_get_smp_processor_id", (4, 1), Observes).with_signature(&[], U32, ANY),
    helper("bpf_skb_store_bytes", (4, 1), Packets).moving().with_signature(&[Skb, U32, Memory, U32, U64], I64, TC),
    helper("bpf_l3_csum_replace", (4, 1), Packets).moving().with_signature(&[Skb, U32, U64, U64, U64], I64, TC),
    helper("bpf_l4_csum_replace", (4, 1), Packets).moving().with_signature(&[Skb, U32, U64, U64, U64], I64, TC),
    helper("bpf_tail_call", (4, 2), Observes).moving(),
    helper("bpf_clone_redirect", (4, 2), Redirects).moving().with_signature(&[Skb, U32, U64], I64, TC),
    helper("bpf_get_current_pid_tgid", (4, 2), Observes).with_signature(&[], U64, ANY).later(&[(NO_TASK, (6, 10))]),
    helper("bpf_get_current_uid_gid", (4, 2), Observes).with_signature(&[], U64, TASK).later(&[(NO_TASK, (6, 16))]),
    helper("bpf_get_current_comm", (4, 2), Observes).with_signature(&[Memory, U32], I64, TASK).later(&[(NO_TASK, (6, 16))]),
    helper("bpf_get_cgroup_classid", (4, 3), Observes).with_signature(&[Skb], U32, TC),
    helper("bpf_skb_vlan_push", (4, 3), Packets).moving().with_signature(&[Skb, U16, U16], I64, TC),
    helper("bpf_skb_vlan_pop", (4, 3), Packets).moving().with_signature(&[Skb], I64, TC),
    helper("bpf_skb_get_tunnel_key", (4, 3), Observes),
    helper("bpf_skb_set_tunnel_key", (4, 3), Packets),
    helper("bpf_perf_event_read", (4, 3), Observes),
    helper("bpf_redirect", (4, 4), Redirects).with_signature(&[U32, U64], I64, PACKET),
    helper("bpf_get_route_realm", (4, 4), Observes).with_signature(&[Skb], U32, TC),
    helper("bpf_perf_event_output", (4, 4), Observes),
    helper("bpf_skb_load_bytes", (4, 5), Observes).with_signature(&[Skb, U32, Memory, U32], I64, SKB),
    helper("bpf_get_stackid", (4, 6), Observes).only_in(TRACING),
    helper("bpf_csum_diff", (4, 6), Observes).with_signature(&[Memory, U32, Memory, U32, U32], I64, PACKET),
    helper("bpf_skb_get_tunnel_opt", (4, 6), Observes),
    helper("bpf_skb_set_tunnel_opt", (4, 6), Packets),
    helper("bpf_skb_change_proto", (4, 8), Packets).moving().with_signature(&[Skb, U16, U64], I64, TC),
    helper("bpf_skb_change_type", (4, 8), Packets).with_signature(&[Skb, U32], I64, TC),
    helper("bpf_skb_under_cgroup", (4, 8), Observes),
    helper("bpf_get_hash_recalc", (4, 8), Observes).with_signature(&[Skb], U32, TC),
    helper("bpf_get_current_task", (4, 8), Observes).with_signature(&[], U64, ANY),
    helper("bpf_probe_write_user", (4, 8), Steers("write the memory of the observed process")).with_signature(&[Memory, Memory, U32], I64, TRACING),
    helper("bpf_current_task_under_cgroup", (4, 9), Observes),
    helper("bpf_skb_change_tail", (4, 9), Packets).moving().with_signature(&[Skb, U32, U64], I64, TC),
    helper("bpf_skb_pull_data", (4, 9), Packets).moving().with_signature(&[Skb, U32], I64, TC),
    helper("bpf_csum_update", (4, 9), Packets).with_signature(&[Skb, U32], I64, TC),
    helper("bpf_set_hash_invalid", (4, 9), Packets).with_signature(&[Skb], Void, TC),
    helper("bpf_get_numa_node_id", (4, 10), Observes).with_signature(&[], I64, ANY),
    helper("bpf_skb_change_head", (4, 10), Packets).moving().with_signature(&[Skb, U32, U64], I64, TC),
    helper("bpf_xdp_adjust_head", (4, 10), Packets).moving().with_signature(&[Xdp, I32], I64, XDP),
    helper("bpf_probe_read_str", (4, 11), Observes).with_signature(&[Memory, U32, Memory], I64, TRACING),
    helper("bpf_get_socket_cookie", (4, 12), Observes).with_signature(&[Memory], U64, SOCKETS),
    helper("bpf_get_socket_uid", (4, 12), Observes).with_signature(&[Skb], U32, SKB),
    helper("bpf_set_hash", (4, 13), Packets).with_signature(&[Skb, U32], I64, TC),
    helper("bpf_setsockopt", (4, 13), Steers("set options of sockets")),
    helper("bpf_skb_adjust_room", (4, 13), Packets).moving().with_signature(&[Skb, I32, U32, U64], I64, TC),
    helper("bpf_redirect_map", (4, 14), Redirects),
    helper("bpf_sk_redirect_map", (4, 14), Redirects),
    helper("bpf_sock_map_update", (4, 14), Steers("put sockets into maps that send to them")),
    helper("bpf_xdp_adjust_meta", (4, 15), Packets).moving().with_signature(&[Xdp, I32], I64, XDP),
    helper("bpf_perf_event_read_value", (4, 15), Observes).only_in(TRACING),
    helper("bpf_perf_prog_read_value", (4, 15), Observes).with_signature(&[PerfContext, Memory, U32], I64, PERF),
    helper("bpf_getsockopt", (4, 15), Observes),
    helper("bpf_override_return", (4, 16), Steers("make functions of the kernel fail")).with_signature(&[Registers, U64], I64, PROBES),
    helper("bpf_sock_ops_cb_flags_set", (4, 16), Steers("ask for more events of a connection")),
    helper("bpf_msg_redirect_map", (4, 17), Redirects),
    helper("bpf_msg_apply_bytes", (4, 17), Steers("decide about more of a stream than it was shown")),
    helper("bpf_msg_cork_bytes", (4, 17), Steers("hold back what a socket sends")),
    helper("bpf_msg_pull_data", (4, 17), Steers("change what a socket sends")).moving(),
    helper("bpf_bind", (4, 17), Steers("choose the address that a socket is bound to")),
    helper("bpf_xdp_adjust_tail", (4, 18), Packets).moving().with_signature(&[Xdp, I32], I64, XDP),
    helper("bpf_skb_get_xfrm_state", (4, 18), Observes),
    helper("bpf_get_stack", (4, 18), Observes).with_signature(&[Memory, Memory, U32, U64], I64, TRACING),
    helper("bpf_skb_load_bytes_relative", (4, 18), Observes).with_signature(&[Skb, U32, Memory, U32, U32], I64, SKB),
    helper("bpf_fib_lookup", (4, 18), Observes).with_signature(&[Memory, Memory, I32, U32], I64, PACKET),
    helper("bpf_sock_hash_update", (4, 18), Steers("put sockets into maps that send to them")),
    helper("bpf_msg_redirect_hash", (4, 18), Redirects),
    helper("bpf_sk_redirect_hash", (4, 18), Redirects),
    helper("bpf_lwt_push_encap", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_lwt_seg6_store_bytes", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_lwt_seg6_adjust_srh", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_lwt_seg6_action", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_rc_repeat", (4, 18), Steers("press keys of a remote control")),
    helper("bpf_rc_keydown", (4, 18), Steers("press keys of a remote control")),
    helper("bpf_skb_cgroup_id", (4, 18), Observes).with_signature(&[Skb], U64, TC_CGROUP),
    helper("bpf_get_current_cgroup_id", (4, 18), Observes).with_signature(&[], U64, TASK).later(&[(NO_TASK, (6, 4))]),
    helper("bpf_get_local_storage", (4, 19), Observes),
    helper("bpf_sk_select_reuseport", (4, 19), Steers("choose the socket that a packet is for")),
    helper("bpf_skb_ancestor_cgroup_id", (4, 19), Observes).with_signature(&[Skb, I32], U64, TC_CGROUP),
    helper("bpf_sk_lookup_tcp", (4, 20), Observes),
    helper("bpf_sk_lookup_udp", (4, 20), Observes),
    helper("bpf_sk_release", (4, 20), Observes),
    helper("bpf_map_push_elem", (4, 20), Observes),
    helper("bpf_map_pop_elem", (4, 20), Observes),
    helper("bpf_map_peek_elem", (4, 20), Observes),
    helper("bpf_msg_push_data", (4, 20), Steers("change what a socket sends")).moving(),
    helper("bpf_msg_pop_data", (5, 0), Steers("change what a socket sends")).moving(),
    helper("bpf_rc_pointer_rel", (5, 0), Steers("move a pointer")),
    helper("bpf_spin_lock", (5, 1), Observes),
    helper("bpf_spin_unlock", (5, 1), Observes),
    helper("bpf_sk_fullsock", (5, 1), Observes),
    helper("bpf_tcp_sock", (5, 1), Observes),
    helper("bpf_skb_ecn_set_ce", (5, 1), Packets).with_signature(&[Skb], I64, TC_CGROUP),
    helper("bpf_get_listener_sock", (5, 1), Observes),
    helper("bpf_skc_lookup_tcp", (5, 2), Observes),
    helper("bpf_tcp_check_syncookie", (5, 2), Observes),
    helper("bpf_sysctl_get_name", (5, 2), Observes),
    helper("bpf_sysctl_get_current_value", (5, 2), Observes),
    helper("bpf_sysctl_get_new_value", (5, 2), Observes),
    helper("bpf_sysctl_set_new_value", (5, 2), Steers("change what is written to a sysctl")),
    helper("bpf_strtol", (5, 2), Observes).with_signature(&[Text, U64, U64, Memory], I64, ANY),
    helper("bpf_strtoul", (5, 2), Observes).with_signature(&[Text, U64, U64, Memory], I64, ANY),
    helper("bpf_sk_storage_get", (5, 2), Observes).only_in(SOCKET_OWNERS).later(&[(CGROUP, (5, 3)), (LSM, (5, 10)), (TRAMPOLINES, (5, 11))]),
    helper("bpf_sk_storage_delete", (5, 2), Observes).only_in(SOCKET_OWNERS).later(&[(CGROUP, (5, 3)), (LSM, (5, 10)), (TRAMPOLINES, (5, 11))]),
    helper("bpf_send_signal", (5, 3), Steers("send signals to processes")).with_signature(&[U32], I64, TRACING_METHODS).later(&[(METHODS, (6, 16))]),
    // It marks the listening socket, which the program looked up, as overflown.
    helper("bpf_tcp_gen_syncookie", (5, 3), Steers("make sockets of others accept connections by cookies")),
    helper("bpf_skb_output", (5, 5), Observes),
    helper("bpf_probe_read_user", (5, 5), Observes).with_signature(&[Memory, U32, Memory], I64, ANY),
    helper("bpf_probe_read_kernel", (5, 5), Observes).with_signature(&[Memory, U32, Memory], I64, ANY),
    helper("bpf_probe_read_user_str", (5, 5), Observes).with_signature(&[Memory, U32, Memory], I64, ANY),
    helper("bpf_probe_read_kernel_str", (5, 5), Observes).with_signature(&[Memory, U32, Memory], I64, ANY),
    helper("bpf_tcp_send_ack", (5, 6), Steers("send acknowledgements of a connection")),
    helper("bpf_send_signal_thread", (5, 6), Steers("send signals to processes")).with_signature(&[U32], I64, TRACING_METHODS).later(&[(METHODS, (6, 16))]),
    helper("bpf_jiffies64", (5, 6), Observes).with_signature(&[], U64, ANY),
    helper("bpf_read_branch_records", (5, 6), Observes).with_signature(&[PerfContext, Memory, U32, U64], I64, PERF),
    helper("bpf_get_ns_current_pid_tgid", (5, 7), Observes).with_signature(&[U64, U64, Memory, U32], I64, ANY).later(&[(NO_TASK.and(CGROUP), (6, 10))]),
    helper("bpf_xdp_output", (5, 7), Observes),
    helper("bpf_get_netns_cookie", (5, 7), Observes),
    helper("bpf_get_current_ancestor_cgroup_id", (5, 7), Observes).with_signature(&[I32], U64, TASK).later(&[(NO_TASK, (6, 4))]),
    helper("bpf_sk_assign", (5, 7), Redirects),
    helper("bpf_ktime_get_boot_ns", (5, 8), Observes).with_signature(&[], U64, ANY),
    helper("bpf_seq_printf", (5, 8), Observes),
    helper("bpf_seq_write", (5, 8), Observes),
    helper("bpf_sk_cgroup_id", (5, 8), Observes),
    helper("bpf_sk_ancestor_cgroup_id", (5, 8), Observes),
    helper("bpf_ringbuf_output", (5, 8), Observes),
    helper("bpf_ringbuf_reserve", (5, 8), Observes),
    helper("bpf_ringbuf_submit", (5, 8), Observes),
    helper("bpf_ringbuf_discard", (5, 8), Observes),
    helper("bpf_ringbuf_query", (5, 8), Observes),
    helper("bpf_csum_level", (5, 8), Packets).with_signature(&[Skb, U64], I64, TC),
    helper("bpf_skc_to_tcp6_sock", (5, 9), Observes),
    helper("bpf_skc_to_tcp_sock", (5, 9), Observes),
    helper("bpf_skc_to_tcp_timewait_sock", (5, 9), Observes),
    helper("bpf_skc_to_tcp_request_sock", (5, 9), Observes),
    helper("bpf_skc_to_udp6_sock", (5, 9), Observes),
    helper("bpf_get_task_stack", (5, 9), Observes).with_signature(&[Task, Memory, U32, U64], I64, TRACING_METHODS).later(&[(METHODS, (6, 16))]),
    helper("bpf_load_hdr_opt", (5, 10), Observes),
    helper("bpf_store_hdr_opt", (5, 10), Steers("write options into TCP headers")).moving(),
    helper("bpf_reserve_hdr_opt", (5, 10), Steers("write options into TCP headers")),
    helper("bpf_inode_storage_get", (5, 10), Observes).only_in(LSM),
    helper("bpf_inode_storage_delete", (5, 10), Observes).only_in(LSM),
    helper("bpf_d_path", (5, 10), Observes),
    helper("bpf_copy_from_user", (5, 10), Observes),
    helper("bpf_snprintf_btf", (5, 10), Observes),
    helper("bpf_seq_printf_btf", (5, 10), Observes),
    helper("bpf_skb_cgroup_classid", (5, 10), Observes).with_signature(&[Skb], U64, TC),
    helper("bpf_redirect_neigh", (5, 10), Redirects).with_signature(&[U32, Memory, I32, U64], I64, TC),
    helper("bpf_per_cpu_ptr", (5, 10), Observes),
    helper("bpf_this_cpu_ptr", (5, 10), Observes),
    helper("bpf_redirect_peer", (5, 10), Redirects).with_signature(&[U32, U64], I64, TC),
    helper("bpf_task_storage_get", (5, 11), Observes).later(&[(NO_TASK.and(CGROUP), (6, 16)), (LSM, (5, 11)), (TRACING, (5, 12))]),
    helper("bpf_task_storage_delete", (5, 11), Observes).later(&[(NO_TASK.and(CGROUP), (6, 16)), (LSM, (5, 11)), (TRACING, (5, 12))]),
    helper("bpf_get_current_task_btf", (5, 11), Observes).with_signature(&[], Task, ANY),
    helper("bpf_bprm_opts_set", (5, 11), Steers("change how programs are started")),
    helper("bpf_ktime_get_coarse_ns", (5, 11), Observes).with_signature(&[], U64, NET),
    helper("bpf_ima_inode_hash", (5, 11), Observes),
    helper("bpf_sock_from_file", (5, 11), Observes),
    helper("bpf_check_mtu", (5, 12), Observes).with_signature(&[Memory, U32, Memory, I32, U64], I64, PACKET),
    helper("bpf_for_each_map_elem", (5, 13), Observes),
    helper("bpf_snprintf", (5, 13), Observes),
    helper("bpf_sys_bpf", (5, 14), Steers("make objects of the kernel that no policy sees")),
    helper("bpf_btf_find_by_name_kind", (5, 14), Steers("look up what only loaders need")),
    helper("bpf_sys_close", (5, 14), Steers("close descriptors of the host")),
    helper("bpf_timer_init", (5, 15), Timers),
    helper("bpf_timer_set_callback", (5, 15), Timers),
    helper("bpf_timer_start", (5, 15), Timers),
    helper("bpf_timer_cancel", (5, 15), Timers),
    helper("bpf_get_func_ip", (5, 15), Observes).with_signature(&[Memory], U64, PROBES),
    helper("bpf_get_attach_cookie", (5, 15), Observes).with_signature(&[Memory], U64, TRACING).later(&[(RAW_TRACEPOINT, (6, 10))]),
    helper("bpf_task_pt_regs", (5, 15), Observes).with_signature(&[Task], Registers, ANY),
    helper("bpf_get_branch_snapshot", (5, 16), Observes).with_signature(&[Memory, U32, U64], I64, TRACING_METHODS).later(&[(METHODS, (6, 16))]),
    helper("bpf_trace_vprintk", (5, 16), Observes),
    helper("bpf_skc_to_unix_sock", (5, 16), Observes),
    helper("bpf_kallsyms_lookup_name", (5, 16), Steers("learn where the kernel lies")),
    helper("bpf_find_vma", (5, 17), Observes),
    helper("bpf_loop", (5, 17), Observes),
    helper("bpf_strncmp", (5, 17), Observes).with_signature(&[Text, U32, Text], I64, ANY),
    helper("bpf_get_func_arg", (5, 17), Observes),
    helper("bpf_get_func_ret", (5, 17), Observes),
    helper("bpf_get_func_arg_cnt", (5, 17), Observes),
    helper("bpf_get_retval", (5, 18), Observes).with_signature(&[], I32, CGROUP),
    helper("bpf_set_retval", (5, 18), Packets).with_signature(&[I32], I32, CGROUP),
    helper("bpf_xdp_get_buff_len", (5, 18), Observes).with_signature(&[Xdp], U64, XDP),
    helper("bpf_xdp_load_bytes", (5, 18), Observes).with_signature(&[Xdp, U32, Memory, U32], I64, XDP),
    helper("bpf_xdp_store_bytes", (5, 18), Packets).with_signature(&[Xdp, U32, Memory, U32], I64, XDP),
    helper("bpf_copy_from_user_task", (5, 18), Observes),
    helper("bpf_skb_set_tstamp", (5, 18), Packets).with_signature(&[Skb, U64, U32], I64, TC),
    helper("bpf_ima_file_hash", (5, 18), Observes),
    helper("bpf_kptr_xchg", (5, 19), Observes),
    helper("bpf_map_lookup_percpu_elem", (5, 19), Observes),
    helper("bpf_skc_to_mptcp_sock", (5, 19), Observes),
    helper("bpf_dynptr_from_mem", (5, 19), Observes),
    helper("bpf_ringbuf_reserve_dynptr", (5, 19), Observes),
    helper("bpf_ringbuf_submit_dynptr", (5, 19), Observes),
    helper("bpf_ringbuf_discard_dynptr", (5, 19), Observes),
    helper("bpf_dynptr_read", (5, 19), Observes),
    helper("bpf_dynptr_write", (5, 19), Observes),
    helper("bpf_dynptr_data", (5, 19), Observes),
    helper("bpf_tcp_raw_gen_syncookie_ipv4", (6, 0), Packets),
    helper("bpf_tcp_raw_gen_syncookie_ipv6", (6, 0), Packets),
    helper("bpf_tcp_raw_check_syncookie_ipv4", (6, 0), Packets),
    helper("bpf_tcp_raw_check_syncookie_ipv6", (6, 0), Packets),
    helper("bpf_ktime_get_tai_ns", (6, 1), Observes).with_signature(&[], U64, ANY),
    helper("bpf_user_ringbuf_drain", (6, 1), Observes),
    helper("bpf_cgrp_storage_get", (6, 2), Observes),
    helper("bpf_cgrp_storage_delete", (6, 2), Observes),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_kind::ProgramKind;

    fn class(name: &str) -> HelperClass {
        named(name).expect(name).1.class
    }

    #[test]
    fn numbers_are_those_of_the_kernel() {
        // The first, two from the middle and the last of the header's list.
        for (number, name) in [
            (1, "bpf_map_lookup_elem"),
            (14, "bpf_get_current_pid_tgid"),
            (130, "bpf_ringbuf_output"),
            (211, "bpf_cgrp_storage_delete"),
        ] {
            assert_eq!(numbered(number).map(|helper| helper.name), Some(name));
            assert_eq!(named(name).map(|(number, _)| number), Some(number));
        }
        assert_eq!((numbered(0), numbered(212), named("unknown")), (None, None, None));
    }

    #[test]
    fn numbers_and_versions_grow_together() {
        assert!(HELPERS.windows(2).all(|pair| pair[0].since <= pair[1].since));
    }

    #[test]
    fn redirecting_helpers_have_their_own_class() {
        for helper in HELPERS {
            let redirects = helper.name.contains("redirect") || helper.name == "bpf_sk_assign";
            assert_eq!(helper.class == Redirects, redirects, "{}", helper.name);
        }
    }

    /// Which packets and operations a program decides about was judged: those of its interface or control
    /// group. A helper that takes a socket or another object instead of its context reaches others. Source:
    /// include/uapi/linux/bpf.h, the comments above `___BPF_FUNC_MAPPER`, v6.18.
    #[test]
    fn helpers_for_packets_reach_nothing_but_the_packet() {
        let contextless = [
            "bpf_set_retval",
            "bpf_tcp_raw_gen_syncookie_ipv4",
            "bpf_tcp_raw_gen_syncookie_ipv6",
            "bpf_tcp_raw_check_syncookie_ipv4",
            "bpf_tcp_raw_check_syncookie_ipv6",
        ];
        for helper in HELPERS.iter().filter(|helper| helper.class == Packets) {
            let on_packet =
                ["bpf_skb_", "bpf_xdp_", "bpf_csum_", "bpf_l3_csum", "bpf_l4_csum", "bpf_set_hash"];
            let is_on_packet = on_packet.iter().any(|start| helper.name.starts_with(start));
            assert!(is_on_packet || contextless.contains(&helper.name), "{}", helper.name);
        }
    }

    #[test]
    fn helpers_that_write_or_signal_do_not_observe() {
        for name in [
            "probe_write_user",
            "override_return",
            "send_signal",
            "send_signal_thread",
            "setsockopt",
            "bind",
            "sys_bpf",
            "sys_close",
            "bprm_opts_set",
            "sysctl_set_new_value",
            "sock_map_update",
            "tcp_send_ack",
            "tcp_gen_syncookie",
            "kallsyms_lookup_name",
        ] {
            assert!(matches!(class(name), Steers(_)), "{name}");
        }
        assert_eq!([class("skb_store_bytes"), class("timer_start")], [Packets, Timers]);
        assert_eq!([class("ringbuf_reserve"), class("loop")], [Observes; 2]);
    }

    #[test]
    fn signatures_have_at_most_five_parameters() {
        let signatures = || HELPERS.iter().filter_map(|helper| helper.signature);
        assert!(signatures().all(|signature| signature.params.len() <= 5));
        assert!(signatures().count() > 70);
    }

    #[test]
    fn callers_are_those_of_the_kernel() {
        use ProgramKind::{Cgroup, PerfEvent, SocketFilter, Tc, Xdp};
        let allowed = |name: &str, kind| named(name).expect(name).1.is_allowed_in(Caller::Program(kind));
        assert!(allowed("bpf_ktime_get_ns", Xdp) && allowed("bpf_send_signal", PerfEvent));
        assert!(!allowed("bpf_send_signal", Tc) && !allowed("bpf_skb_store_bytes", Xdp));
        assert!(!allowed("bpf_xdp_adjust_head", Tc) && !allowed("bpf_get_current_comm", SocketFilter));
        // Only the kernel knows.
        assert!(allowed("bpf_sysctl_get_name", Xdp));
        let allowed = |name: &str, caller| named(name).expect(name).1.is_allowed_in(caller);
        let sockets = Caller::Program(Cgroup);
        assert!(allowed("skb_load_bytes", Caller::CgroupPacket) && !allowed("skb_load_bytes", sockets));
        assert!(allowed("set_retval", sockets) && !allowed("set_retval", Caller::CgroupPacket));
        assert!(allowed("send_signal", Caller::Method) && !allowed("redirect", Caller::Method));
    }

    #[test]
    fn later_is_later_for_those_who_may_call_it() {
        for helper in HELPERS {
            for (callers, since) in helper.later {
                assert!(*since >= helper.since, "{}", helper.name);
                assert!(helper.callers.is_none_or(|all| all.overlaps(*callers)), "{}", helper.name);
            }
        }
        let comm = named("get_current_comm").unwrap().1;
        assert_eq!(comm.since_in(Caller::Method), (6, 16));
        assert_eq!(comm.since_in(Caller::Program(ProgramKind::Probe)), (4, 2));
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = HELPERS.iter().map(|helper| helper.name).collect();
        assert_eq!(names.len(), HELPERS.len());
    }
}
