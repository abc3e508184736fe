//! The kernel's BPF helpers: the name of each, the first kernel that has it, and the effect of a call. This
//! is the only such table: names and numbers for the compiler, classes for policies, versions for `ks-host
//! check`.
//!
//! Source: include/uapi/linux/bpf.h, `___BPF_FUNC_MAPPER`, and the tags that contain the commits which added
//! the numbers. No helper was added since v6.2; the kernel adds kfuncs instead.

/// A kernel version as (major, minor): `(6, 12)`.
pub type Version = (u32, u32);

/// The effect of a helper call, as policies distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperClass {
    /// Changes nothing but the plugin's own maps and ring buffers: it reads, or prints to a log.
    Observes,
    /// Changes packets or decides what becomes of them. The kernel offers these helpers only to program kinds
    /// that decide about packets and sockets, and a policy is asked about those kinds.
    Packets,
    /// Sends packets or messages to another interface, CPU or socket.
    Redirects,
    /// Schedules a function of the program to run later.
    Timers,
    /// Changes something outside of the plugin. The text completes "a policy that allows it trusts the plugin
    /// to ..".
    Steers(&'static str),
}

use HelperClass::{Observes, Packets, Redirects, Steers, Timers};

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
}

impl Helper {
    /// Returns the name without `bpf_`, as policies write it.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix("bpf_").unwrap_or(self.name)
    }

    const fn moving(self) -> Helper {
        Helper { moves_packets: true, ..self }
    }
}

const fn helper(name: &'static str, since: Version, class: HelperClass) -> Helper {
    Helper { name, since, class, moves_packets: false }
}

/// Returns the helper with this number of `enum bpf_func_id`, or none for 0 and for numbers above the table.
#[must_use]
pub fn numbered(number: u32) -> Option<&'static Helper> {
    HELPERS.get(usize::try_from(number.checked_sub(1)?).ok()?)
}

/// Returns the number and the helper of a name, which is written with or without `bpf_`.
#[must_use]
pub fn named(name: &str) -> Option<(u32, &'static Helper)> {
    (1..).zip(&HELPERS).find(|(_, helper)| helper.name == name || helper.short_name() == name)
}

/// All helpers, starting with number 1. The kernel never reassigns a number.
#[rustfmt::skip]
pub const HELPERS: [Helper; 211] = [
    helper("bpf_map_lookup_elem", (3, 19), Observes),
    helper("bpf_map_update_elem", (3, 19), Observes),
    helper("bpf_map_delete_elem", (3, 19), Observes),
    helper("bpf_probe_read", (4, 1), Observes),
    helper("bpf_ktime_get_ns", (4, 1), Observes),
    helper("bpf_trace_printk", (4, 1), Observes),
    helper("bpf_get_prandom_u32", (4, 1), Observes),
    helper("bpf_get_smp_processor_id", (4, 1), Observes),
    helper("bpf_skb_store_bytes", (4, 1), Packets).moving(),
    helper("bpf_l3_csum_replace", (4, 1), Packets).moving(),
    helper("bpf_l4_csum_replace", (4, 1), Packets).moving(),
    helper("bpf_tail_call", (4, 2), Observes).moving(),
    helper("bpf_clone_redirect", (4, 2), Redirects).moving(),
    helper("bpf_get_current_pid_tgid", (4, 2), Observes),
    helper("bpf_get_current_uid_gid", (4, 2), Observes),
    helper("bpf_get_current_comm", (4, 2), Observes),
    helper("bpf_get_cgroup_classid", (4, 3), Observes),
    helper("bpf_skb_vlan_push", (4, 3), Packets).moving(),
    helper("bpf_skb_vlan_pop", (4, 3), Packets).moving(),
    helper("bpf_skb_get_tunnel_key", (4, 3), Observes),
    helper("bpf_skb_set_tunnel_key", (4, 3), Packets),
    helper("bpf_perf_event_read", (4, 3), Observes),
    helper("bpf_redirect", (4, 4), Redirects),
    helper("bpf_get_route_realm", (4, 4), Observes),
    helper("bpf_perf_event_output", (4, 4), Observes),
    helper("bpf_skb_load_bytes", (4, 5), Observes),
    helper("bpf_get_stackid", (4, 6), Observes),
    helper("bpf_csum_diff", (4, 6), Observes),
    helper("bpf_skb_get_tunnel_opt", (4, 6), Observes),
    helper("bpf_skb_set_tunnel_opt", (4, 6), Packets),
    helper("bpf_skb_change_proto", (4, 8), Packets).moving(),
    helper("bpf_skb_change_type", (4, 8), Packets),
    helper("bpf_skb_under_cgroup", (4, 8), Observes),
    helper("bpf_get_hash_recalc", (4, 8), Observes),
    helper("bpf_get_current_task", (4, 8), Observes),
    helper("bpf_probe_write_user", (4, 8), Steers("write the memory of the observed process")),
    helper("bpf_current_task_under_cgroup", (4, 9), Observes),
    helper("bpf_skb_change_tail", (4, 9), Packets).moving(),
    helper("bpf_skb_pull_data", (4, 9), Packets).moving(),
    helper("bpf_csum_update", (4, 9), Packets),
    helper("bpf_set_hash_invalid", (4, 9), Packets),
    helper("bpf_get_numa_node_id", (4, 10), Observes),
    helper("bpf_skb_change_head", (4, 10), Packets).moving(),
    helper("bpf_xdp_adjust_head", (4, 10), Packets).moving(),
    helper("bpf_probe_read_str", (4, 11), Observes),
    helper("bpf_get_socket_cookie", (4, 12), Observes),
    helper("bpf_get_socket_uid", (4, 12), Observes),
    helper("bpf_set_hash", (4, 13), Packets),
    helper("bpf_setsockopt", (4, 13), Steers("set options of sockets")),
    helper("bpf_skb_adjust_room", (4, 13), Packets).moving(),
    helper("bpf_redirect_map", (4, 14), Redirects),
    helper("bpf_sk_redirect_map", (4, 14), Redirects),
    helper("bpf_sock_map_update", (4, 14), Steers("put sockets into maps that send to them")),
    helper("bpf_xdp_adjust_meta", (4, 15), Packets).moving(),
    helper("bpf_perf_event_read_value", (4, 15), Observes),
    helper("bpf_perf_prog_read_value", (4, 15), Observes),
    helper("bpf_getsockopt", (4, 15), Observes),
    helper("bpf_override_return", (4, 16), Steers("make functions of the kernel fail")),
    helper("bpf_sock_ops_cb_flags_set", (4, 16), Steers("ask for more events of a connection")),
    helper("bpf_msg_redirect_map", (4, 17), Redirects),
    helper("bpf_msg_apply_bytes", (4, 17), Steers("decide about more of a stream than it was shown")),
    helper("bpf_msg_cork_bytes", (4, 17), Steers("hold back what a socket sends")),
    helper("bpf_msg_pull_data", (4, 17), Steers("change what a socket sends")).moving(),
    helper("bpf_bind", (4, 17), Steers("choose the address that a socket is bound to")),
    helper("bpf_xdp_adjust_tail", (4, 18), Packets).moving(),
    helper("bpf_skb_get_xfrm_state", (4, 18), Observes),
    helper("bpf_get_stack", (4, 18), Observes),
    helper("bpf_skb_load_bytes_relative", (4, 18), Observes),
    helper("bpf_fib_lookup", (4, 18), Observes),
    helper("bpf_sock_hash_update", (4, 18), Steers("put sockets into maps that send to them")),
    helper("bpf_msg_redirect_hash", (4, 18), Redirects),
    helper("bpf_sk_redirect_hash", (4, 18), Redirects),
    helper("bpf_lwt_push_encap", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_lwt_seg6_store_bytes", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_lwt_seg6_adjust_srh", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_lwt_seg6_action", (4, 18), Steers("change packets on a route")).moving(),
    helper("bpf_rc_repeat", (4, 18), Steers("press keys of a remote control")),
    helper("bpf_rc_keydown", (4, 18), Steers("press keys of a remote control")),
    helper("bpf_skb_cgroup_id", (4, 18), Observes),
    helper("bpf_get_current_cgroup_id", (4, 18), Observes),
    helper("bpf_get_local_storage", (4, 19), Observes),
    helper("bpf_sk_select_reuseport", (4, 19), Steers("choose the socket that a packet is for")),
    helper("bpf_skb_ancestor_cgroup_id", (4, 19), Observes),
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
    helper("bpf_skb_ecn_set_ce", (5, 1), Packets),
    helper("bpf_get_listener_sock", (5, 1), Observes),
    helper("bpf_skc_lookup_tcp", (5, 2), Observes),
    helper("bpf_tcp_check_syncookie", (5, 2), Observes),
    helper("bpf_sysctl_get_name", (5, 2), Observes),
    helper("bpf_sysctl_get_current_value", (5, 2), Observes),
    helper("bpf_sysctl_get_new_value", (5, 2), Observes),
    helper("bpf_sysctl_set_new_value", (5, 2), Steers("change what is written to a sysctl")),
    helper("bpf_strtol", (5, 2), Observes),
    helper("bpf_strtoul", (5, 2), Observes),
    helper("bpf_sk_storage_get", (5, 2), Observes),
    helper("bpf_sk_storage_delete", (5, 2), Observes),
    helper("bpf_send_signal", (5, 3), Steers("send signals to processes")),
    helper("bpf_tcp_gen_syncookie", (5, 3), Packets),
    helper("bpf_skb_output", (5, 5), Observes),
    helper("bpf_probe_read_user", (5, 5), Observes),
    helper("bpf_probe_read_kernel", (5, 5), Observes),
    helper("bpf_probe_read_user_str", (5, 5), Observes),
    helper("bpf_probe_read_kernel_str", (5, 5), Observes),
    helper("bpf_tcp_send_ack", (5, 6), Steers("send acknowledgements of a connection")),
    helper("bpf_send_signal_thread", (5, 6), Steers("send signals to processes")),
    helper("bpf_jiffies64", (5, 6), Observes),
    helper("bpf_read_branch_records", (5, 6), Observes),
    helper("bpf_get_ns_current_pid_tgid", (5, 7), Observes),
    helper("bpf_xdp_output", (5, 7), Observes),
    helper("bpf_get_netns_cookie", (5, 7), Observes),
    helper("bpf_get_current_ancestor_cgroup_id", (5, 7), Observes),
    helper("bpf_sk_assign", (5, 7), Packets),
    helper("bpf_ktime_get_boot_ns", (5, 8), Observes),
    helper("bpf_seq_printf", (5, 8), Observes),
    helper("bpf_seq_write", (5, 8), Observes),
    helper("bpf_sk_cgroup_id", (5, 8), Observes),
    helper("bpf_sk_ancestor_cgroup_id", (5, 8), Observes),
    helper("bpf_ringbuf_output", (5, 8), Observes),
    helper("bpf_ringbuf_reserve", (5, 8), Observes),
    helper("bpf_ringbuf_submit", (5, 8), Observes),
    helper("bpf_ringbuf_discard", (5, 8), Observes),
    helper("bpf_ringbuf_query", (5, 8), Observes),
    helper("bpf_csum_level", (5, 8), Packets),
    helper("bpf_skc_to_tcp6_sock", (5, 9), Observes),
    helper("bpf_skc_to_tcp_sock", (5, 9), Observes),
    helper("bpf_skc_to_tcp_timewait_sock", (5, 9), Observes),
    helper("bpf_skc_to_tcp_request_sock", (5, 9), Observes),
    helper("bpf_skc_to_udp6_sock", (5, 9), Observes),
    helper("bpf_get_task_stack", (5, 9), Observes),
    helper("bpf_load_hdr_opt", (5, 10), Observes),
    helper("bpf_store_hdr_opt", (5, 10), Steers("write options into TCP headers")).moving(),
    helper("bpf_reserve_hdr_opt", (5, 10), Steers("write options into TCP headers")),
    helper("bpf_inode_storage_get", (5, 10), Observes),
    helper("bpf_inode_storage_delete", (5, 10), Observes),
    helper("bpf_d_path", (5, 10), Observes),
    helper("bpf_copy_from_user", (5, 10), Observes),
    helper("bpf_snprintf_btf", (5, 10), Observes),
    helper("bpf_seq_printf_btf", (5, 10), Observes),
    helper("bpf_skb_cgroup_classid", (5, 10), Observes),
    helper("bpf_redirect_neigh", (5, 10), Redirects),
    helper("bpf_per_cpu_ptr", (5, 10), Observes),
    helper("bpf_this_cpu_ptr", (5, 10), Observes),
    helper("bpf_redirect_peer", (5, 10), Redirects),
    helper("bpf_task_storage_get", (5, 11), Observes),
    helper("bpf_task_storage_delete", (5, 11), Observes),
    helper("bpf_get_current_task_btf", (5, 11), Observes),
    helper("bpf_bprm_opts_set", (5, 11), Steers("change how programs are started")),
    helper("bpf_ktime_get_coarse_ns", (5, 11), Observes),
    helper("bpf_ima_inode_hash", (5, 11), Observes),
    helper("bpf_sock_from_file", (5, 11), Observes),
    helper("bpf_check_mtu", (5, 12), Observes),
    helper("bpf_for_each_map_elem", (5, 13), Observes),
    helper("bpf_snprintf", (5, 13), Observes),
    helper("bpf_sys_bpf", (5, 14), Steers("make objects of the kernel that no policy sees")),
    helper("bpf_btf_find_by_name_kind", (5, 14), Steers("look up what only loaders need")),
    helper("bpf_sys_close", (5, 14), Steers("close descriptors of the host")),
    helper("bpf_timer_init", (5, 15), Timers),
    helper("bpf_timer_set_callback", (5, 15), Timers),
    helper("bpf_timer_start", (5, 15), Timers),
    helper("bpf_timer_cancel", (5, 15), Timers),
    helper("bpf_get_func_ip", (5, 15), Observes),
    helper("bpf_get_attach_cookie", (5, 15), Observes),
    helper("bpf_task_pt_regs", (5, 15), Observes),
    helper("bpf_get_branch_snapshot", (5, 16), Observes),
    helper("bpf_trace_vprintk", (5, 16), Observes),
    helper("bpf_skc_to_unix_sock", (5, 16), Observes),
    helper("bpf_kallsyms_lookup_name", (5, 16), Steers("learn where the kernel lies")),
    helper("bpf_find_vma", (5, 17), Observes),
    helper("bpf_loop", (5, 17), Observes),
    helper("bpf_strncmp", (5, 17), Observes),
    helper("bpf_get_func_arg", (5, 17), Observes),
    helper("bpf_get_func_ret", (5, 17), Observes),
    helper("bpf_get_func_arg_cnt", (5, 17), Observes),
    helper("bpf_get_retval", (5, 18), Observes),
    helper("bpf_set_retval", (5, 18), Packets),
    helper("bpf_xdp_get_buff_len", (5, 18), Observes),
    helper("bpf_xdp_load_bytes", (5, 18), Observes),
    helper("bpf_xdp_store_bytes", (5, 18), Packets),
    helper("bpf_copy_from_user_task", (5, 18), Observes),
    helper("bpf_skb_set_tstamp", (5, 18), Packets),
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
    helper("bpf_ktime_get_tai_ns", (6, 1), Observes),
    helper("bpf_user_ringbuf_drain", (6, 1), Observes),
    helper("bpf_cgrp_storage_get", (6, 2), Observes),
    helper("bpf_cgrp_storage_delete", (6, 2), Observes),
];

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_redirects_is_a_class_of_its_own() {
        for helper in HELPERS {
            let redirects = helper.name.contains("redirect");
            assert_eq!(helper.class == Redirects, redirects, "{}", helper.name);
        }
    }

    #[test]
    fn what_writes_or_signals_does_not_observe() {
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
            "kallsyms_lookup_name",
        ] {
            assert!(matches!(class(name), Steers(_)), "{name}");
        }
        assert_eq!([class("skb_store_bytes"), class("timer_start")], [Packets, Timers]);
        assert_eq!([class("ringbuf_reserve"), class("loop")], [Observes; 2]);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = HELPERS.iter().map(|helper| helper.name).collect();
        assert_eq!(names.len(), HELPERS.len());
    }
}
