use super::*;

/// A machine without any restriction.
fn good() -> Machine {
    let mounted = |kind, mount_point| {
        let mounted_at = Some("/somewhere".into());
        FileSystem { kind, mount_point, without: "…", mounted_at, refused: None }
    };
    Machine {
        facts: Facts {
            paranoid: Some(2),
            capabilities: Some(u64::MAX),
            hardware_pmu: Some(true),
            descriptor_limit: Some(1 << 20),
            kernel: Some((6, 12)),
            is_filtered: Some(false),
            ..Facts::default()
        },
        core_pmus: vec!["cpu_atom (cpus 8-11)".into(), "cpu_core (cpus 0-7)".into()],
        nmi_watchdog: Some(false),
        btf: true,
        lockdown: Some("none".into()),
        kptr_restrict: Some(1),
        bpf_jit: Some(1),
        bpf_stats: Some(false),
        pid_namespace: Some(FIRST_PID_NAMESPACE),
        own_procfs: true,
        file_systems: vec![mounted("tracefs", "/sys/kernel/tracing"), mounted("bpf", "/sys/fs/bpf")],
    }
}

/// Returns the findings that are not good.
fn bad(machine: &Machine) -> Vec<Finding> {
    examine(machine).into_iter().filter(|finding| finding.state != State::Good).collect()
}

#[test]
fn a_good_machine_lacks_nothing() {
    assert_eq!(bad(&good()), []);
}

#[test]
fn core_types_are_listed_with_their_cpus() {
    let findings = examine(&good());
    let pmu = findings.iter().find(|finding| finding.topic == "hardware PMU").expect("it is looked at");
    assert_eq!(pmu.found, "cpu_atom (cpus 8-11), cpu_core (cpus 0-7)");
}

/// A change of the machine, the topic and state of its finding, and a part of the remedy.
type Case = (fn(&mut Machine), &'static str, State, &'static str);

#[test]
fn every_fault_is_named_with_what_to_do() {
    let cases: [Case; 16] = [
        (
            |machine| machine.facts.is_filtered = Some(true),
            "seccomp",
            State::Limited,
            "perf_event_open and bpf",
        ),
        (|machine| machine.own_procfs = false, "PID namespace", State::Limited, "mount -t proc"),
        (
            |machine| machine.pid_namespace = Some(4_026_532_000),
            "PID namespace",
            State::Limited,
            "--pid=host",
        ),
        (|machine| machine.facts.hardware_pmu = Some(false), "hardware PMU", State::Missing, "page_faults"),
        (
            |machine| machine.nmi_watchdog = Some(true),
            "kernel.nmi_watchdog",
            State::Limited,
            "nmi_watchdog=0",
        ),
        (|machine| machine.btf = false, "BTF", State::Missing, "CONFIG_DEBUG_INFO_BTF"),
        (|machine| machine.bpf_jit = Some(0), "net.core.bpf_jit_enable", State::Limited, "bpf_jit_enable=1"),
        (
            |machine| machine.kptr_restrict = Some(2),
            "kernel.kptr_restrict",
            State::Limited,
            "kptr_restrict=1",
        ),
        (
            |machine| machine.lockdown = Some("confidentiality".into()),
            "kernel lockdown",
            State::Missing,
            "lockdown=",
        ),
        (
            |machine| machine.facts.descriptor_limit = Some(1024),
            "descriptors (ulimit -n)",
            State::Limited,
            "ulimit -n 4096",
        ),
        (
            |machine| machine.facts.address_space_limit = Some(4_000_000_000),
            "address space (ulimit -v)",
            State::Limited,
            "ulimit -v unlimited",
        ),
        (
            |machine| machine.file_systems[0].mounted_at = None,
            "tracefs",
            State::Missing,
            "mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        (
            |machine| machine.file_systems[0].refused = Some(("it may not", "remount")),
            "tracefs",
            State::Limited,
            "remount",
        ),
        (
            |machine| machine.file_systems[1].mounted_at = None,
            "bpf",
            State::Missing,
            "mkdir -p /sys/fs/bpf && mount -t bpf bpf /sys/fs/bpf",
        ),
        // Without CAP_SYS_ADMIN, too, which would replace the others.
        (
            |machine| machine.facts.capabilities = Some(!(1 << 39 | 1 << 21)),
            "CAP_BPF",
            State::Missing,
            "setcap cap_bpf,cap_perfmon",
        ),
        (
            |machine| machine.facts.capabilities = Some(!(1 << 12 | 1 << 21)),
            "CAP_NET_ADMIN",
            State::Missing,
            "cap_net_admin+ep",
        ),
    ];
    for (spoil, topic, state, remedy) in cases {
        let mut machine = good();
        spoil(&mut machine);
        let found = bad(&machine);
        let [finding] = &found[..] else { panic!("{topic}: {found:#?}") };
        assert_eq!((finding.topic.as_str(), finding.state), (topic, state), "{finding:#?}");
        assert!(finding.means.is_some(), "{finding:#?}");
        assert!(finding.remedy.as_deref().is_some_and(|text| text.contains(remedy)), "{finding:#?}");
    }
}

#[test]
fn the_paranoid_level_matters_to_those_without_perfmon() {
    for (level, state) in [(-1, State::Good), (0, State::Limited), (2, State::Limited), (3, State::Missing)] {
        let mut machine = good();
        machine.facts.paranoid = Some(level);
        assert_eq!(bad(&machine), []);
        machine.facts.capabilities = Some(1 << 39 | 1 << 12);
        let finding = paranoid(&machine.facts);
        assert_eq!(finding.state, state, "{finding:#?}");
        assert_eq!(finding.remedy.is_some(), state != State::Good, "{finding:#?}");
    }
}

#[test]
fn a_watchdog_holds_no_counter_where_there_is_none() {
    let mut machine = good();
    machine.nmi_watchdog = Some(true);
    machine.facts.hardware_pmu = Some(false);
    assert_eq!(watchdog(&machine).state, State::Good);
}

#[test]
fn capabilities_of_a_user_namespace_do_not_count() {
    let mut machine = good();
    machine.facts.in_user_namespace = Some(true);
    let found = bad(&machine);
    for topic in ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
        let finding =
            found.iter().find(|one| one.topic == topic).unwrap_or_else(|| panic!("{topic}: {found:#?}"));
        assert_eq!(
            (finding.state, finding.found.as_str()),
            (State::Missing, "held in a user namespace only")
        );
        assert!(finding.remedy.as_deref().is_some_and(|text| text.contains("token")), "{finding:#?}");
    }
    // The capabilities do not override the setting either.
    assert!(found.iter().any(|one| one.topic == "kernel.perf_event_paranoid"), "{found:#?}");
}

#[test]
fn loops_are_judged_by_what_the_kernel_has_and_not_by_its_version() {
    let refused = || Answer::No("unknown func".into());
    let untried = || Answer::Unknown("EPERM".into());
    let cases = [
        (Answer::Yes, refused(), State::Good, "bpf_iter_num_new"),
        (refused(), Answer::Yes, State::Good, "bpf_loop"),
        (untried(), Answer::Yes, State::Good, "bpf_loop"),
        (refused(), refused(), State::Limited, "unknown func"),
        (refused(), untried(), State::Unknown, "EPERM"),
    ];
    for (iterator, callback, state, found) in cases {
        let finding = loops(iterator, callback);
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.found.contains(found), "{finding:?}");
        assert_eq!(finding.remedy.is_some(), state == State::Limited, "{finding:?}");
    }
    assert_eq!(event_links(refused()).state, State::Missing);
    assert_eq!(event_links(Answer::Yes).state, State::Good);
    let tried = [Answer::Yes, refused(), untried()].map(|answer| function_programs(answer).state);
    assert_eq!(tried, [State::Good, State::Missing, State::Missing]);
}
