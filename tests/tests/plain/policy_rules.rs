//! Policies as functions of a plugin's request: the rule that allows each request, and policy files.

use ks_compiler::object::Object;
use ks_compiler::object::btf::TypeId;
use ks_compiler::object::model::{
    DataContent, DataKind, DataSection, Ksym, KsymKind, Linkage, Pinning, Presence, Program, StructOps,
    Variable,
};
use ks_compiler::object::table::MapKind;
use ks_host::policy::{Class, Limit, PluginObject, Policy};
use ks_tests::plugins::models::{judged, map, name, program};
use ks_wit::object::cut_loop_variable;
use ks_wit::section::{Arch, FAULT_COUNT_PREFIX};

/// The helper's number in `enum bpf_func_id`.
const SEND_SIGNAL: u32 = 109;

#[test]
fn observing_needs_no_permission_and_steering_does() {
    for (section, rule) in [
        ("perf_event", None),
        ("tracepoint/sched/sched_switch", None),
        ("fentry/vfs_read", None),
        ("tp_btf/sched_switch", None),
        ("kprobe/vfs_read", None),
        ("uretprobe//bin/sh:main+0", None),
        ("socket", None),
        ("fmod_ret/vfs_read", Some("modify_return=vfs_read")),
        ("?fmod_ret/vfs_read", Some("modify_return=vfs_read")),
        ("iter/task", Some("other=iter/task")),
        ("kprobe.multi/*", Some("other=kprobe.multi/*")),
        ("lsm/file_open", Some("lsm=file_open")),
        ("xdp", Some("xdp=eth0")),
        ("tcx/ingress", Some("tc")),
        ("cgroup_skb/egress", Some("cgroup=/a")),
        ("cgroup/connect4", Some("cgroup")),
        ("struct_ops/init", Some("struct_ops=mine")),
        ("sockops", Some("other=sockops")),
    ] {
        let model = program(section, &[]);
        let observing = judged(&Policy::observing(), &model);
        let Some(rule) = rule else {
            assert!(observing.is_ok(), "{section}");
            continue;
        };
        let reason = observing.expect_err(section);
        assert!(reason.starts_with("program `one`: the policy does not allow `"), "{reason}");
        assert!(
            reason.contains(&format!("--allow {}", rule.split('=').next().unwrap_or_default())),
            "{reason}"
        );
        let mut allowed = Policy::observing();
        allowed.allow_rule(rule).expect("a class");
        assert!(judged(&allowed, &model).is_ok(), "{section}");
        assert!(judged(&Policy::nothing(), &model).is_err());
    }
}

/// The rule holds for every program kind.
#[test]
fn starting_a_timer_needs_permission_for_timers() {
    let model = program("socket", &[libbpf_sys::BPF_FUNC_timer_start]);
    let mut policy = Policy::nothing();
    policy.allow_rule("socket_filter").expect("a class");
    policy.allow_rule("import").expect("a class");
    let reason = judged(&policy, &model).expect_err("no timers");
    assert!(reason.contains("does not allow `timer`") && !reason.contains('\n'), "{reason}");
    policy.allow_rule("timer").expect("a class");
    assert!(judged(&policy, &model).is_ok());
}

#[test]
fn functions_structs_and_pins_are_allowed_by_name() {
    let ksym = |text| Ksym { name: name(text), kind: KsymKind::Address, presence: Presence::Required };
    let mut pinned = map("counts", MapKind::Array, 8, 1);
    pinned.pinning = Pinning::ByName;
    let vegas = StructOps {
        name: name("vegas"),
        ops: name("tcp_congestion_ops"),
        ty: TypeId(0),
        by_link: true,
        autocreate: true,
        members: Vec::new(),
    };
    let model = Object {
        ksyms: vec![ksym("bpf_iter_num_new"), ksym("tcp_reno_undo_cwnd")],
        maps: vec![pinned],
        struct_ops: vec![vegas],
        ..program("perf_event", &[SEND_SIGNAL, 1])
    };
    let rules = ["helper=send_signal", "kfunc=tcp_reno_*", "struct_ops=vegas", "pin=test/maps/*"];
    for left_out in 0..rules.len() {
        let mut policy = Policy::observing();
        for rule in rules.iter().enumerate().filter(|(index, _)| *index != left_out) {
            policy.allow_rule(rule.1).expect("a class");
        }
        let reason = judged(&policy, &model).expect_err(rules[left_out]);
        let class = rules[left_out].split('=').next().unwrap_or_default();
        assert!(reason.contains(&format!("does not allow `{class}`")) && !reason.contains('\n'), "{reason}");
    }
    let mut policy = Policy::observing();
    rules.iter().for_each(|rule| policy.allow_rule(rule).expect("a class"));
    assert!(judged(&policy, &model).is_ok());
    assert!(judged(&Policy::everything(), &model).is_ok());
}

/// Counting is allowed to a plugin that a user starts; hardware traces of other code need permission.
#[test]
fn observing_is_every_family_of_events_but_traces() {
    let observing = Policy::observing();
    for family in ["hardware", "cache", "raw", "software", "tracepoint", "breakpoint", "kprobe", "uprobe"] {
        assert!(observing.check(Class::Event, family).is_ok(), "{family}");
    }
    for family in ["pmu", "msr", "power", "uncore"] {
        assert!(observing.check(Class::Event, family).is_ok(), "{family}");
    }
    assert!(observing.check(Class::Event, "aux").is_err());
    assert!(Policy::everything().check(Class::Event, "aux").is_ok());
}

#[test]
fn targets_are_whole_and_none_climbs_out() {
    let mut policy = Policy::nothing();
    policy.allow_rule("cgroup=/sys/fs/cgroup/mine/*").expect("a class");
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
    let array = |value| map(if value > 550 { "a" } else { "b" }, MapKind::Array, value, 1);
    // The size of `struct bpf_array` plus the values, rounded up to 8.
    let model = Object { maps: vec![array(600), array(500)], ..Object::default() };
    for (rule, reason) in [("maps=1", "maps is 2, and the limit is 1"), ("map_bytes=1727", "1728")] {
        let mut policy = Policy::everything();
        policy.limit_rule(rule).expect("a limit");
        let refused = judged(&policy, &model).expect_err(rule);
        assert!(refused.contains(reason), "{refused}");
    }
    let mut policy = Policy::everything();
    policy.limit_rule("map_bytes=1728").expect("a limit");
    assert!(judged(&policy, &model).is_ok());
    let huge = || map("huge", MapKind::PerCpuHash, 1 << 30, 1 << 30);
    let huge = Object { maps: vec![huge(), huge()], ..Object::default() };
    assert!(judged(&Policy::everything(), &huge).is_err());
}

/// The target of packets and messages is a number known only at run time, so a policy cannot choose between
/// targets.
#[test]
fn redirecting_needs_permission() {
    let of_map = Object { maps: vec![map("ports", MapKind::DevMap, 4, 8)], ..program("xdp", &[]) };
    for model in [program("xdp", &[51]), program("tcx/ingress", &[13]), of_map] {
        let mut policy = Policy::observing();
        policy.allow_rule("xdp").expect("a class");
        policy.allow_rule("tc").expect("a class");
        let reason = judged(&policy, &model).expect_err("it redirects");
        assert!(reason.contains("--allow redirect=*"), "{reason}");
        policy.allow_rule("redirect").expect("a class");
        assert!(judged(&policy, &model).is_ok());
    }
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
    odd.allow(Class::Pin, "a\"b\\c\nd").expect("a class with targets");
    assert_eq!(Policy::from_toml(&odd.to_toml()).expect("a policy"), odd);
    assert_eq!(Policy::from_toml("").expect("a policy"), Policy::nothing());
}

#[test]
fn malformed_policies_are_reported() {
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
    assert!(Policy::nothing().allow_rule("pins=x").expect_err("no class").to_string().contains("`pin`"));
    assert!(Policy::nothing().limit_rule("maps").is_err());
}

/// Returns the reason for which an object with this name is refused before any policy sees it.
fn unsound(name: &str, model: Object) -> Option<String> {
    PluginObject::new(name, Arch::Any, model).err().map(|error| error.to_string())
}

#[test]
fn names_of_objects_are_names_of_files() {
    let long = "n".repeat(255);
    for sound in ["a", "a.b", "..a", long.as_str()] {
        assert_eq!(unsound(sound, Object::default()), None, "{sound}");
    }
    let longer = "n".repeat(256);
    for bad in ["", ".", "..", "a/b", "/", "a\n", "a\u{85}", longer.as_str()] {
        assert!(
            unsound(bad, Object::default()).is_some_and(|reason| reason.contains("cannot name")),
            "{bad:?}"
        );
    }
}

#[test]
fn objects_have_limits_that_no_policy_changes() {
    let programs = |count: usize| {
        let one = program("perf_event", &[]).programs.remove(0);
        let named = |at| Program { name: name(&format!("p{at}")), ..one.clone() };
        Object { programs: (0..count).map(named).collect(), ..Object::default() }
    };
    assert_eq!(unsound("a", programs(256)), None);
    assert_eq!(unsound("a", programs(257)).as_deref(), Some("it has 257 programs; the limit is 256"));

    let counters = |count: u32, prefix: &str| {
        let variable = |at: u32| Variable {
            name: name(&format!("{prefix}{at}")),
            offset: at * 8,
            bytes: 8,
            linkage: Linkage::Global,
            ty: None,
            attributes: Vec::new(),
        };
        let section = DataSection {
            kind: DataKind::Bss,
            suffix: None,
            content: DataContent::Zeros(count * 8),
            variables: (0..count).map(variable).collect(),
        };
        Object { data: vec![section], ..Object::default() }
    };
    let cut = cut_loop_variable(1, "");
    for prefix in [FAULT_COUNT_PREFIX, cut.as_str()] {
        assert_eq!(unsound("a", counters(16_384, prefix)), None, "{prefix}");
        let reason = unsound("a", counters(16_385, prefix)).expect(prefix);
        assert_eq!(reason, "it has 16385 variables that count losses; the limit is 16384");
    }
    assert_eq!(unsound("a", counters(20_000, "other")), None);

    let dotted = Object { maps: vec![map("a.b", MapKind::Array, 4, 1)], ..Object::default() };
    assert!(unsound("a", dotted).is_some_and(|reason| reason.starts_with("map `a.b` has a dot")));
}
