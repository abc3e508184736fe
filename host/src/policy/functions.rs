//! Functions of the kernel that programs call: which of them only observe.
//!
//! What is not known to observe does not, so functions of later kernels are denied until somebody allows them.

/// Whether a helper changes nothing but the plugin's own maps and rings: it reads, or prints for whoever looks.
pub(super) fn helper_observes(number: u32) -> bool {
    matches!(number, 1..=8 | 12 | 14..=17 | 20 | 22 | 24..=29 | 33..=35 | 37 | 42 | 45..=47 | 55..=57 | 66..=69 | 79..=81 | 83..=89 | 93..=96 | 98..=103 | 105..=108 | 111..=115 | 118..=123 | 125..=134 | 136..=142 | 145..=151 | 153..=154 | 156..=158 | 160..=165 | 173..=178 | 180..=186 | 188..=189 | 191 | 193..=203 | 208..=211)
}

/// Whether a helper changes packets and what becomes of them. The kernel has it only for programs whose kind decides about
/// packets and sockets, which a policy is asked about.
pub(super) fn helper_is_of_packets(number: u32) -> bool {
    matches!(number, 9..=11 | 18..=19 | 21 | 30..=32 | 38..=41 | 43..=44 | 48 | 50 | 54 | 65 | 97 | 110 | 124 | 135 | 187 | 190 | 192 | 204..=207)
}

/// Whether a helper sends packets or messages to another interface or socket: `clone_redirect`, `redirect`, `redirect_map`,
/// `sk_redirect_map`, `msg_redirect_map`, `msg_redirect_hash`, `sk_redirect_hash`, `redirect_neigh`, `redirect_peer`.
pub(super) fn helper_redirects(number: u32) -> bool {
    matches!(number, 13 | 23 | 51 | 52 | 60 | 71 | 72 | 152 | 155)
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
    use ks_compiler::bpf::helper_name;

    use super::*;

    fn number(name: &str) -> u32 {
        let is_this =
            |number: &u32| helper_name(*number).is_some_and(|known| known.strip_prefix("bpf_") == Some(name));
        (1..=211).find(is_this).expect("a helper")
    }

    #[test]
    fn what_redirects_is_a_class_of_its_own() {
        let redirects: Vec<u32> = (1..=211)
            .filter(|number| helper_name(*number).is_some_and(|name| name.contains("redirect")))
            .collect();
        assert_eq!(redirects, (1..=211).filter(|number| helper_redirects(*number)).collect::<Vec<_>>());
        assert!(redirects.iter().all(|number| !helper_observes(*number) && !helper_is_of_packets(*number)));
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
