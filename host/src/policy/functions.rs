//! Functions of the kernel that programs call: which of them only observe.
//!
//! What is not known to observe does not, so functions of later kernels are denied until somebody allows them.

/// The names of the helpers, from number 1. Source: include/uapi/linux/bpf.h, `___BPF_FUNC_MAPPER`, v6.12.
const HELPERS: [&str; 211] = [
    "map_lookup_elem",
    "map_update_elem",
    "map_delete_elem",
    "probe_read",
    "ktime_get_ns",
    "trace_printk",
    "get_prandom_u32",
    "get_smp_processor_id",
    "skb_store_bytes",
    "l3_csum_replace",
    "l4_csum_replace",
    "tail_call",
    "clone_redirect",
    "get_current_pid_tgid",
    "get_current_uid_gid",
    "get_current_comm",
    "get_cgroup_classid",
    "skb_vlan_push",
    "skb_vlan_pop",
    "skb_get_tunnel_key",
    "skb_set_tunnel_key",
    "perf_event_read",
    "redirect",
    "get_route_realm",
    "perf_event_output",
    "skb_load_bytes",
    "get_stackid",
    "csum_diff",
    "skb_get_tunnel_opt",
    "skb_set_tunnel_opt",
    "skb_change_proto",
    "skb_change_type",
    "skb_under_cgroup",
    "get_hash_recalc",
    "get_current_task",
    "probe_write_user",
    "current_task_under_cgroup",
    "skb_change_tail",
    "skb_pull_data",
    "csum_update",
    "set_hash_invalid",
    "get_numa_node_id",
    "skb_change_head",
    "xdp_adjust_head",
    "probe_read_str",
    "get_socket_cookie",
    "get_socket_uid",
    "set_hash",
    "setsockopt",
    "skb_adjust_room",
    "redirect_map",
    "sk_redirect_map",
    "sock_map_update",
    "xdp_adjust_meta",
    "perf_event_read_value",
    "perf_prog_read_value",
    "getsockopt",
    "override_return",
    "sock_ops_cb_flags_set",
    "msg_redirect_map",
    "msg_apply_bytes",
    "msg_cork_bytes",
    "msg_pull_data",
    "bind",
    "xdp_adjust_tail",
    "skb_get_xfrm_state",
    "get_stack",
    "skb_load_bytes_relative",
    "fib_lookup",
    "sock_hash_update",
    "msg_redirect_hash",
    "sk_redirect_hash",
    "lwt_push_encap",
    "lwt_seg6_store_bytes",
    "lwt_seg6_adjust_srh",
    "lwt_seg6_action",
    "rc_repeat",
    "rc_keydown",
    "skb_cgroup_id",
    "get_current_cgroup_id",
    "get_local_storage",
    "sk_select_reuseport",
    "skb_ancestor_cgroup_id",
    "sk_lookup_tcp",
    "sk_lookup_udp",
    "sk_release",
    "map_push_elem",
    "map_pop_elem",
    "map_peek_elem",
    "msg_push_data",
    "msg_pop_data",
    "rc_pointer_rel",
    "spin_lock",
    "spin_unlock",
    "sk_fullsock",
    "tcp_sock",
    "skb_ecn_set_ce",
    "get_listener_sock",
    "skc_lookup_tcp",
    "tcp_check_syncookie",
    "sysctl_get_name",
    "sysctl_get_current_value",
    "sysctl_get_new_value",
    "sysctl_set_new_value",
    "strtol",
    "strtoul",
    "sk_storage_get",
    "sk_storage_delete",
    "send_signal",
    "tcp_gen_syncookie",
    "skb_output",
    "probe_read_user",
    "probe_read_kernel",
    "probe_read_user_str",
    "probe_read_kernel_str",
    "tcp_send_ack",
    "send_signal_thread",
    "jiffies64",
    "read_branch_records",
    "get_ns_current_pid_tgid",
    "xdp_output",
    "get_netns_cookie",
    "get_current_ancestor_cgroup_id",
    "sk_assign",
    "ktime_get_boot_ns",
    "seq_printf",
    "seq_write",
    "sk_cgroup_id",
    "sk_ancestor_cgroup_id",
    "ringbuf_output",
    "ringbuf_reserve",
    "ringbuf_submit",
    "ringbuf_discard",
    "ringbuf_query",
    "csum_level",
    "skc_to_tcp6_sock",
    "skc_to_tcp_sock",
    "skc_to_tcp_timewait_sock",
    "skc_to_tcp_request_sock",
    "skc_to_udp6_sock",
    "get_task_stack",
    "load_hdr_opt",
    "store_hdr_opt",
    "reserve_hdr_opt",
    "inode_storage_get",
    "inode_storage_delete",
    "d_path",
    "copy_from_user",
    "snprintf_btf",
    "seq_printf_btf",
    "skb_cgroup_classid",
    "redirect_neigh",
    "per_cpu_ptr",
    "this_cpu_ptr",
    "redirect_peer",
    "task_storage_get",
    "task_storage_delete",
    "get_current_task_btf",
    "bprm_opts_set",
    "ktime_get_coarse_ns",
    "ima_inode_hash",
    "sock_from_file",
    "check_mtu",
    "for_each_map_elem",
    "snprintf",
    "sys_bpf",
    "btf_find_by_name_kind",
    "sys_close",
    "timer_init",
    "timer_set_callback",
    "timer_start",
    "timer_cancel",
    "get_func_ip",
    "get_attach_cookie",
    "task_pt_regs",
    "get_branch_snapshot",
    "trace_vprintk",
    "skc_to_unix_sock",
    "kallsyms_lookup_name",
    "find_vma",
    "loop",
    "strncmp",
    "get_func_arg",
    "get_func_ret",
    "get_func_arg_cnt",
    "get_retval",
    "set_retval",
    "xdp_get_buff_len",
    "xdp_load_bytes",
    "xdp_store_bytes",
    "copy_from_user_task",
    "skb_set_tstamp",
    "ima_file_hash",
    "kptr_xchg",
    "map_lookup_percpu_elem",
    "skc_to_mptcp_sock",
    "dynptr_from_mem",
    "ringbuf_reserve_dynptr",
    "ringbuf_submit_dynptr",
    "ringbuf_discard_dynptr",
    "dynptr_read",
    "dynptr_write",
    "dynptr_data",
    "tcp_raw_gen_syncookie_ipv4",
    "tcp_raw_gen_syncookie_ipv6",
    "tcp_raw_check_syncookie_ipv4",
    "tcp_raw_check_syncookie_ipv6",
    "ktime_get_tai_ns",
    "user_ringbuf_drain",
    "cgrp_storage_get",
    "cgrp_storage_delete",
];

/// A helper's name without `bpf_`; one of a later kernel has only a number.
pub(super) fn helper_name(number: u32) -> String {
    known_helper(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// The name of a helper, without `bpf_`; none if libbpf's header has none of this number.
pub(crate) fn known_helper(number: u32) -> Option<&'static str> {
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    HELPERS.get(place).copied()
}

/// Whether a helper changes nothing but the plugin's own maps and rings: it reads, or prints for whoever looks.
pub(super) fn helper_observes(number: u32) -> bool {
    matches!(number, 1..=8 | 12 | 14..=17 | 20 | 22 | 24..=29 | 33..=35 | 37 | 42 | 45..=47 | 55..=57 | 66..=69 | 79..=81 | 83..=89 | 93..=96 | 98..=103 | 105..=108 | 111..=115 | 118..=123 | 125..=134 | 136..=142 | 145..=151 | 153..=154 | 156..=158 | 160..=165 | 173..=178 | 180..=186 | 188..=189 | 191 | 193..=203 | 208..=211)
}

/// Whether a helper changes packets and what becomes of them. The kernel has it only for programs whose kind decides about
/// packets and sockets, which a policy is asked about.
pub(super) fn helper_is_of_packets(number: u32) -> bool {
    matches!(number, 9..=11 | 13 | 18..=19 | 21 | 23 | 30..=32 | 38..=41 | 43..=44 | 48 | 50..=51 | 54 | 65 | 97 | 110 | 124 | 135 | 152 | 155 | 187 | 190 | 192 | 204..=207)
}

/// Whether a helper makes a function of the program run later.
pub(super) fn helper_is_of_timers(number: u32) -> bool {
    matches!(number, 169..=172)
}

/// Whether a function of the kernel changes nothing but what the program itself holds.
pub(super) fn kfunc_observes(name: &str) -> bool {
    const OBSERVING: [&str; 9] = [
        "bpf_iter_num_new",
        "bpf_iter_num_next",
        "bpf_iter_num_destroy",
        "bpf_rcu_read_lock",
        "bpf_rcu_read_unlock",
        "bpf_rdonly_cast",
        "bpf_cast_to_kern_ctx",
        "bpf_obj_new_impl",
        "bpf_obj_drop_impl",
    ];
    OBSERVING.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str) -> u32 {
        let place = HELPERS.iter().position(|helper| *helper == name).expect("a helper");
        u32::try_from(place).expect("few") + 1
    }

    #[test]
    fn the_names_have_the_numbers_of_the_kernel() {
        assert_eq!(helper_name(libbpf_sys::BPF_FUNC_map_lookup_elem), "map_lookup_elem");
        assert_eq!(helper_name(libbpf_sys::BPF_FUNC_send_signal), "send_signal");
        assert_eq!(helper_name(libbpf_sys::BPF_FUNC_cgrp_storage_delete), "cgrp_storage_delete");
        assert_eq!((helper_name(0), helper_name(212)), ("0".into(), "212".into()));
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
            "skb_store_bytes",
            "redirect",
            "sock_map_update",
            "sk_redirect_map",
            "tcp_send_ack",
            "kallsyms_lookup_name",
        ] {
            assert!(!helper_observes(number(name)), "{name}");
        }
        for name in ["send_signal", "override_return", "probe_write_user", "sys_bpf", "setsockopt"] {
            assert!(!helper_is_of_packets(number(name)), "{name}");
        }
        assert!(helper_observes(number("ringbuf_reserve")) && helper_observes(number("loop")));
        assert!(!helper_observes(0) && !helper_observes(212) && !helper_observes(u32::MAX));
    }
}
