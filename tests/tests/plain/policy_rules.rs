//! Policies as functions of what a plugin asks for: what is allowed by which word, and files of them.

use ks_host::bpf::{Calls, MapSize, ObjectShape, ProgramKind, ProgramShape};
use ks_host::policy::{Class, Limit, Policy, needs};

/// `enum bpf_func_id`.
const SEND_SIGNAL: u32 = 109;

fn shape(kind: ProgramKind, section: &str) -> ObjectShape {
    let program = ProgramShape { name: "one".into(), section: section.into(), kind };
    ObjectShape { programs: vec![program], ..ObjectShape::default() }
}

fn judged(policy: &Policy, shape: &ObjectShape, calls: &Calls) -> Result<(), String> {
    policy.judge(&needs(shape, calls, &["kernelscript:host/perf@0.1.0".into()]), shape)
}

#[test]
fn who_observes_needs_no_word_and_who_steers_does() {
    let none = Calls::default();
    for (kind, section, word) in [
        (ProgramKind::PerfEvent, "perf_event", None),
        (ProgramKind::Tracepoint, "tracepoint/sched/sched_switch", None),
        (ProgramKind::Tracing, "fentry/vfs_read", None),
        (ProgramKind::Tracing, "tp_btf/sched_switch", None),
        (ProgramKind::Kprobe, "kprobe/vfs_read", None),
        (ProgramKind::Kprobe, "uretprobe//bin/sh:main+0", None),
        (ProgramKind::SocketFilter, "socket", None),
        (ProgramKind::Timer, "socket", None),
        (ProgramKind::Tracing, "fmod_ret/vfs_read", Some("modify_return=vfs_read")),
        (ProgramKind::Tracing, "?fmod_ret/vfs_read", Some("modify_return=vfs_read")),
        (ProgramKind::Tracing, "iter/task", Some("other=26")),
        (ProgramKind::Kprobe, "kprobe.multi/*", Some("other=2")),
        (ProgramKind::Lsm, "lsm/file_open", Some("lsm=file_open")),
        (ProgramKind::Xdp, "xdp", Some("xdp=eth0")),
        (ProgramKind::SchedCls, "tcx/ingress", Some("tc")),
        (ProgramKind::CgroupSkb, "cgroup_skb/egress", Some("cgroup=/a")),
        (ProgramKind::CgroupSockAddr, "cgroup/connect4", Some("cgroup")),
        (ProgramKind::StructOps, "struct_ops/init", Some("struct_ops=mine")),
        (ProgramKind::Other(31), "syscall", Some("other=31")),
    ] {
        let shape = shape(kind, section);
        let observing = judged(&Policy::observing(), &shape, &none);
        let Some(word) = word else {
            assert_eq!(observing, Ok(()), "{section}");
            continue;
        };
        let reason = observing.expect_err(section);
        assert!(reason.starts_with("program `one`: the policy does not allow `"), "{reason}");
        assert!(
            reason.contains(&format!("--allow {}", word.split('=').next().unwrap_or_default())),
            "{reason}"
        );
        let mut allowed = Policy::observing();
        allowed.allow_word(word).expect("a class");
        assert_eq!(judged(&allowed, &shape, &none), Ok(()), "{section}");
        assert!(judged(&Policy::nothing(), &shape, &none).is_err());
    }
}

/// Whatever kind of program it is in.
#[test]
fn who_starts_a_timer_needs_to_be_allowed_timers() {
    const TIMER_START: u32 = libbpf_sys::BPF_FUNC_timer_start;
    let calls = Calls { helpers: [(TIMER_START, "one".into())].into(), ..Calls::default() };
    let shape = shape(ProgramKind::SocketFilter, "socket");
    let mut policy = Policy::nothing();
    policy.allow_word("socket_filter").expect("a class");
    policy.allow_word("import").expect("a class");
    let reason = judged(&policy, &shape, &calls).expect_err("no timers");
    assert!(reason.contains("does not allow `timer`") && !reason.contains('\n'), "{reason}");
    policy.allow_word("timer").expect("a class");
    assert_eq!(judged(&policy, &shape, &calls), Ok(()));
}

#[test]
fn functions_structs_and_pins_are_allowed_by_name() {
    let calls = Calls {
        helpers: [(SEND_SIGNAL, "one".into()), (1, "one".into()), (4711, "one".into())].into(),
        kernel_symbols: ["bpf_iter_num_new", "tcp_reno_undo_cwnd"].map(str::to_owned).into(),
    };
    let shape = ObjectShape {
        pins: vec!["mine/counts".into()],
        structs: vec!["vegas".into()],
        ..shape(ProgramKind::PerfEvent, "perf_event")
    };
    let words = ["helper=send_signal", "helper=4711", "kfunc=tcp_reno_*", "struct_ops=vegas", "pin=mine/*"];
    for left_out in 0..words.len() {
        let mut policy = Policy::observing();
        for word in words.iter().enumerate().filter(|(place, _)| *place != left_out) {
            policy.allow_word(word.1).expect("a class");
        }
        let reason = judged(&policy, &shape, &calls).expect_err(words[left_out]);
        let class = words[left_out].split('=').next().unwrap_or_default();
        assert!(reason.contains(&format!("does not allow `{class}`")) && !reason.contains('\n'), "{reason}");
    }
    let mut policy = Policy::observing();
    words.iter().for_each(|word| policy.allow_word(word).expect("a class"));
    assert_eq!(judged(&policy, &shape, &calls), Ok(()));
    assert_eq!(judged(&Policy::everything(), &shape, &calls), Ok(()));
}

#[test]
fn targets_are_whole_and_none_climbs_out() {
    let mut policy = Policy::nothing();
    policy.allow_word("cgroup=/sys/fs/cgroup/mine/*").expect("a class");
    for (target, allowed) in [
        ("/sys/fs/cgroup/mine/a", true),
        ("/sys/fs/cgroup/mine", false),
        ("/sys/fs/cgroup/mine/../theirs", false),
        ("/sys/fs/cgroup/MINE/a", false),
        ("x/sys/fs/cgroup/mine/a", false),
    ] {
        assert_eq!(policy.check(Class::Cgroup, target).is_ok(), allowed, "{target}");
    }
    assert!(policy.check_class(Class::Cgroup).is_ok() && policy.check_class(Class::Xdp).is_err());
    let testing = Policy::testing();
    assert!(testing.check_class(Class::Xdp).is_ok() && testing.check(Class::Xdp, "eth0").is_err());
}

#[test]
fn maps_have_limits() {
    let map = |bytes| MapSize { name: "m".into(), bytes, is_ring: false };
    let shape = ObjectShape { maps: vec![map(600), map(500)], ..ObjectShape::default() };
    for (word, reason) in
        [("maps=1", Some("maps is 2, and the limit is 1")), ("map_bytes=1099", Some("1100"))]
    {
        let mut policy = Policy::observing();
        policy.limit_word(word).expect("a limit");
        let refused = judged(&policy, &shape, &Calls::default()).err();
        assert_eq!(
            refused.as_deref().map(|words| words.contains(reason.unwrap_or_default())),
            Some(true),
            "{refused:?}"
        );
    }
    let mut policy = Policy::observing();
    policy.limit_word("map_bytes=1100").expect("a limit");
    assert_eq!(judged(&policy, &shape, &Calls::default()), Ok(()));
    let huge = ObjectShape { maps: vec![map(u64::MAX), map(u64::MAX)], ..ObjectShape::default() };
    assert!(judged(&Policy::everything(), &huge, &Calls::default()).is_err());
}

#[test]
fn a_file_allows_what_it_names_and_is_written_as_it_is_read() {
    let text = "[allow]\nevent = [\"software\"]\nxdp = [\"eth0\", \"veth*\"]\n\n[limits]\nmaps = 16\n";
    let policy = Policy::from_toml(text).expect("a policy");
    assert_eq!(policy.to_toml(), text);
    assert!(policy.check(Class::Xdp, "veth7").is_ok() && policy.check(Class::Xdp, "eth1").is_err());
    assert!(
        policy.check(Class::Event, "hardware").is_err() && policy.check(Class::Symbols, "kernel").is_err()
    );
    assert_eq!((policy.limit(Limit::Maps), policy.limit(Limit::MapBytes)), (16, 1 << 30));
    let everything = Policy::everything();
    assert_eq!(Policy::from_toml(&everything.to_toml()).expect("a policy"), everything);
    let mut odd = Policy::nothing();
    odd.allow(Class::Pin, "a\"b\\c\nd");
    assert_eq!(Policy::from_toml(&odd.to_toml()).expect("a policy"), odd);
    assert_eq!(Policy::from_toml("").expect("a policy"), Policy::nothing());
}

#[test]
fn what_is_no_policy_is_told() {
    for (text, reason) in [
        ("[alow]", "no table `alow`, but `[allow]`, `[limits]` and `[signers]`"),
        ("allow = 3", "no table `allow`"),
        ("[allow]\nxdpp = [\"*\"]", "no class `xdpp`; did you mean `xdp`?"),
        ("[allow]\nxdp = \"eth0\"", "`xdp` is not a list of targets"),
        ("[allow]\nxdp = [1]", "`xdp` is not a list of targets"),
        ("[allow]\nfoo = [\"*\"]", "no class `foo`; there are `event`, `scope`,"),
        ("[limits]\nmap = 1", "no limit `map`; did you mean `maps`?"),
        ("[limits]\nmaps = -1", "the limit `maps` is not a number"),
        ("[allow", "line 1"),
        ("[allow]\nxdp = []\nxdp = []", "duplicate key"),
    ] {
        let error = Policy::from_toml(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert!(Policy::nothing().allow_word("pins=x").expect_err("no class").to_string().contains("`pin`"));
    assert!(Policy::nothing().limit_word("maps").is_err());
}
