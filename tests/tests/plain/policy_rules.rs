//! Policies as functions of a plugin's request: the rule that allows each request, and policy files.

use std::time::Duration;

use ks_compiler::object::Object;
use ks_compiler::object::btf::TypeId;
use ks_compiler::object::model::{
    DataContent, DataKind, DataSection, Ksym, KsymKind, Linkage, Pinning, Presence, Program, StructOps,
    Variable,
};
use ks_compiler::object::table::MapKind;
use ks_host::plugin::{PublicKey, Signer};
use ks_host::policy::{Class, Limit, ObjectSet, PluginObject, Policy, Request};
use ks_tests::plugins::models::{judged, map, name, program, request};
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

/// The interface that lists BPF programs needs a class beside that of interfaces, and observes.
#[test]
fn listing_programs_needs_a_class_of_its_own() {
    let listing = || Request::new(ObjectSet::default(), &["kernelscript:host/programs@0.2.0".into()]);
    let mut policy = Policy::nothing();
    policy.allow_rule("import").expect("a class");
    let reason = policy.admit(listing(), 1).expect_err("no programs");
    assert!(reason.contains("`programs`"), "{reason}");
    policy.allow_rule("programs").expect("a class");
    assert!(policy.admit(listing(), 1).is_ok() && Policy::observing().admit(listing(), 1).is_ok());
    assert!(policy.allow_rule("programs=mine").is_err(), "it has no targets");
}

#[test]
fn functions_structs_and_pins_are_allowed_by_name() {
    let ksym = |text, kind| Ksym { name: name(text), kind, presence: Presence::Required };
    let function = |text| ksym(text, KsymKind::Function(TypeId(0)));
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
        ksyms: vec![
            function("bpf_iter_num_new"),
            function("tcp_reno_undo_cwnd"),
            ksym("total_forks", KsymKind::Address),
        ],
        maps: vec![pinned],
        struct_ops: vec![vegas],
        ..program("perf_event", &[SEND_SIGNAL, 1])
    };
    let rules = [
        "helper=send_signal",
        "kfunc=tcp_reno_*",
        "kernel_variable=total_*",
        "struct_ops=vegas",
        "pin=test/maps/*",
    ];
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
    let mut holds_maps = map("of_ports", MapKind::ArrayOfMaps, 4, 1);
    holds_maps.inner = Some(map("ports", MapKind::SockHash, 4, 8).shape);
    let of_inner = Object { maps: vec![holds_maps], ..program("xdp", &[]) };
    let to_socket = program("tc", &[libbpf_sys::BPF_FUNC_sk_lookup_tcp, libbpf_sys::BPF_FUNC_sk_assign]);
    for model in [program("xdp", &[51]), program("tcx/ingress", &[13]), of_map, of_inner, to_socket] {
        let mut policy = Policy::observing();
        policy.allow_rule("xdp").expect("a class");
        policy.allow_rule("tc").expect("a class");
        let reason = judged(&policy, &model).expect_err("it redirects");
        assert!(reason.contains("--allow redirect=*"), "{reason}");
        policy.allow_rule("redirect").expect("a class");
        assert!(judged(&policy, &model).is_ok());
    }
}

/// A socket that a program looked up is not the one of its packet.
#[test]
fn changing_the_sockets_of_others_needs_permission() {
    let model = program("xdp", &[libbpf_sys::BPF_FUNC_tcp_gen_syncookie]);
    let mut policy = Policy::observing();
    policy.allow_rule("xdp").expect("a class");
    let reason = judged(&policy, &model).expect_err("it changes a listening socket");
    assert!(reason.contains("--allow helper=tcp_gen_syncookie"), "{reason}");
    policy.allow_rule("helper=tcp_gen_syncookie").expect("a class");
    assert!(judged(&policy, &model).is_ok());
}

/// Messages escape a target; the policy decides about the text itself.
#[test]
fn targets_are_judged_as_they_are_and_escaped_in_messages() {
    let mut pinned = map("counts", MapKind::Array, 8, 1);
    pinned.pinning = Pinning::ByName;
    let model = Object { maps: vec![pinned], ..Object::default() };
    let object = PluginObject::new("\u{202e}x", Arch::Any, model).expect("a name of a file");
    let target = "\u{202e}x/maps/counts";
    let request = || {
        let objects = ObjectSet::new(vec![object.clone()], Some(0)).expect("one object");
        Request::new(objects, &[])
    };
    assert_eq!(request().needs()[0].target.as_deref(), Some(target));
    let allows = |pattern: &str| {
        let mut policy = Policy::nothing();
        policy.allow(Class::Pin, pattern).expect("a class");
        policy.admit(request(), 1)
    };
    assert!(allows(target).is_ok());
    let reason = allows("y/*").expect_err("another pin");
    assert!(reason.contains("\\u{202e}x/maps/counts") && !reason.contains('\u{202e}'), "{reason}");
    let displayed = target.escape_default().to_string().replace('\\', "\\\\");
    assert!(allows(&displayed).is_err(), "the escaped text is another one");
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

/// Returns the message of a rule that is refused.
fn bad_rule(rule: &str) -> String {
    Policy::everything().allow_rule(rule).expect_err(rule).to_string()
}

#[test]
fn a_class_without_targets_is_allowed_whole() {
    for rule in ["perf_event=x", "timer=a*", "redirect=eth0"] {
        let (class, target) = rule.split_once('=').expect("a target");
        let message = bad_rule(rule);
        assert!(message.contains(&format!("`{class}` has no targets")), "{message}");
        assert!(message.contains(&format!("`{target}` would allow everything")), "{message}");
        Policy::nothing().allow_rule(&format!("{class}=*")).expect("the whole class");
    }
    Policy::nothing().allow_rule("xdp=eth0").expect("a class with targets");
}

#[test]
fn targets_of_the_dangerous_class_are_written_out() {
    for rule in
        ["go-uretprobe", "go-uretprobe=*", "go-uretprobe=/usr/bin/*", "go-uretprobe=/a?", "go-uretprobe=a"]
    {
        assert!(bad_rule(rule).contains("go-uretprobe"), "{rule}");
    }
    let mut policy = Policy::nothing();
    policy.allow_rule("go-uretprobe=/usr/bin/a\\*").expect("a whole path");
    assert!(policy.check(Class::GoUretprobe, "/usr/bin/a*").is_ok());
    assert!(policy.check(Class::GoUretprobe, "/usr/bin/ab").is_err());
    // `all` means the classes that one may allow whole.
    let mut all = Policy::nothing();
    all.allow_rule("all").expect("all classes");
    assert_eq!(all, Policy::everything());
    assert!(all.check(Class::GoUretprobe, "/usr/bin/a").is_err() && all.check(Class::Lsm, "a").is_ok());
}

#[test]
fn counting_is_a_group_of_families() {
    let mut policy = Policy::nothing();
    policy.allow_counting();
    for (family, allowed) in [("software", true), ("pmu", true), ("aux", false), ("other", false)] {
        assert_eq!(policy.check(Class::Event, family).is_ok(), allowed, "{family}");
    }
}

#[test]
fn a_policy_made_for_a_plugin_allows_its_needs_and_no_more() {
    let model = Object {
        maps: vec![map("ports", MapKind::DevMap, 4, 8)],
        ..program("tracepoint/sched/sched_switch", &[SEND_SIGNAL])
    };
    let needed = request(model.clone(), &["perf"]);
    let mut policy = Policy::nothing();
    needed.needs().iter().for_each(|need| policy.allow_need(need));
    assert!(judged(&policy, &model).is_ok());
    for need in needed.needs() {
        let mut others = Policy::nothing();
        needed
            .needs()
            .iter()
            .filter(|other| other.class != need.class)
            .for_each(|one| others.allow_need(one));
        assert!(judged(&others, &model).is_err(), "{need:?}");
    }
    assert!(policy.check(Class::Tracepoint, "sched/sched_switch").is_ok());
    assert!(policy.check(Class::Tracepoint, "sched/sched_wakeup").is_err());
}

#[test]
fn a_policy_that_demands_signers_takes_one_of_them() {
    let key = |digit: &str| PublicKey::read(&digit.repeat(64)).expect("64 digits");
    let signer = |identity: &str, digit| Signer { identity: identity.into(), key: key(digit) };
    let mut policy = Policy::nothing();
    assert!(!policy.demands_signer() && policy.judge_signers(&[]).is_ok());
    policy.demand_signer("a@example.org", key("1"));
    policy.demand_signer("b@example.org", key("2"));
    assert!(policy.demands_signer());
    let nobody = policy.judge_signers(&[]).expect_err("a signature is demanded");
    assert!(
        nobody.contains("`a@example.org` with key 1111") && nobody.contains("nobody has signed"),
        "{nobody}"
    );
    for (signers, accepted) in [
        (vec![signer("a@example.org", "1")], true),
        (vec![signer("c@example.org", "3"), signer("b@example.org", "2")], true),
        (vec![signer("a@example.org", "2")], false),
        (vec![signer("b@example.org", "1"), signer("c@example.org", "3")], false),
    ] {
        assert_eq!(policy.judge_signers(&signers).is_ok(), accepted, "{signers:?}");
    }
    let again = Policy::from_toml(&policy.to_toml()).expect("a policy");
    assert_eq!(again, policy);
    assert!(
        Policy::from_toml("[signers]\na = \"11\"").is_err() && Policy::from_toml("[signers]\na = 1").is_err()
    );
}

#[test]
fn times_of_a_run_are_limits() {
    let mut policy = Policy::everything();
    assert_eq!((policy.run_time(), policy.compile_time()), (None, Duration::from_mins(2)));
    policy.limit_rule("run_ms=1500").expect("a limit");
    policy.limit_rule("compile_ms=2s").expect("a limit");
    assert_eq!(policy.run_time(), Some(Duration::from_millis(1500)));
    assert_eq!(policy.compile_time(), Duration::from_secs(2));
}

#[test]
fn a_denial_says_what_would_allow_it() {
    let nothing = Policy::nothing();
    let of = |class, target| nothing.check(class, target).expect_err("nothing is allowed").to_string();
    assert_eq!(
        of(Class::Xdp, "eth0"),
        "the policy does not allow `xdp` for `eth0`: --allow xdp=eth0 would, if you trust the plugin to drop, \
         change and redirect packets"
    );
    assert_eq!(
        nothing.check_class(Class::Xdp).expect_err("nothing is allowed").to_string(),
        "the policy does not allow `xdp`: --allow xdp=INTERFACE would, if you trust the plugin to drop, change \
         and redirect packets"
    );
    assert!(of(Class::Xdp, "").contains("--allow xdp=INTERFACE would"));
    // A helper's own act, but only where the class is that of helpers.
    assert!(of(Class::Helper, "send_signal").ends_with("trust the plugin to send signals to processes"));
    assert!(of(Class::Helper, "unknown").ends_with("trust the plugin to write or signal so"));
    assert!(of(Class::Kfunc, "send_signal").ends_with("trust the plugin to call the kernel so"));
}

#[test]
fn limits_are_numbers_sizes_and_times() {
    let policy = |rule: &str| {
        let mut policy = Policy::nothing();
        policy.limit_rule(rule).map(|()| policy)
    };
    for (rule, limit, number) in [
        ("map_bytes=16M", Limit::MapBytes, 16 << 20),
        ("map_bytes=17", Limit::MapBytes, 17),
        ("print_bytes_per_second=1k", Limit::PrintBytes, 1 << 10),
        ("run_ms=2s", Limit::RunMs, 2000),
        ("compute_ms=1500", Limit::ComputeMs, 1500),
        ("maps=3", Limit::Maps, 3),
    ] {
        assert_eq!(policy(rule).expect(rule).limit(limit), number, "{rule}");
    }
    for rule in ["map_bytes=2s", "run_ms=16K", "run_ms=1.5", "maps=1k", "maps=2s", "handles=", "maps=-1"] {
        assert!(policy(rule).is_err(), "{rule}");
    }
    let message = Limit::Handles.reached(7);
    assert_eq!(message, "the limit `handles` of the plugin is 7\n  do: --limit handles=.. allows more");
}

/// A default of 0 would refuse every plugin.
#[test]
fn every_limit_leaves_room_by_default() {
    let policy = Policy::observing();
    for limit in Limit::ALL {
        let least = if limit.name().contains("bytes") { 4096 } else { 1 };
        assert!(policy.limit(limit) >= least, "{}: {}", limit.name(), policy.limit(limit));
    }
}
