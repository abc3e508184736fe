//! Every errno with each of its causes, on machines other than this one.

use super::*;

const SOFTWARE: EventClass = EventClass::Software { in_kernel_only: false };
const SWITCHES: EventClass = EventClass::Software { in_kernel_only: true };

/// A machine without any restriction.
fn machine() -> Facts {
    Facts {
        in_user_namespace: Some(false),
        address_space_limit: None,
        paranoid: Some(2),
        capabilities: Some(u64::MAX),
        online_cpus: Some("0-3".to_owned()),
        hardware_pmu: Some(true),
        task_exists: Some(true),
        descriptor_limit: Some(1024),
        max_sample_rate: Some(100_000),
        kernel: Some((6, 18)),
        is_filtered: Some(false),
    }
}

fn unprivileged(paranoid: i32) -> Facts {
    Facts { paranoid: Some(paranoid), capabilities: Some(0), ..machine() }
}

fn open(event: &str, class: EventClass) -> Attempt {
    Attempt {
        action: Action::Open,
        event: event.to_owned(),
        class,
        pid: 0,
        cpu: -1,
        cgroup: String::new(),
        inherit: false,
        threads_only: false,
        exclude_kernel: false,
        sampling: false,
        freq: 0,
        precise: 0,
    }
}

fn join(attempt: Attempt, leader: &str, size: usize) -> Attempt {
    Attempt { action: Action::Join { leader: leader.to_owned(), size }, ..attempt }
}

#[track_caller]
fn check(call: Call, errno: Errno, attempt: Attempt, facts: Facts, kind: FailureKind, text: &str) {
    let failure = Failure { attempt, call, errno, facts };
    assert_eq!(failure.to_string(), text);
    assert_eq!(explain(&failure).kind, kind);
}

#[test]
fn an_event_without_a_counter() {
    check(
        Call::Open,
        Errno::ENOENT,
        Attempt { pid: 4242, ..open("cpu_cycles", EventClass::Hardware) },
        Facts { hardware_pmu: Some(false), ..machine() },
        FailureKind::Unsupported,
        "cannot open `cpu_cycles` (pid 4242, any cpu)\n  kernel: perf_event_open: ENOENT\n  \
         because: this machine has no hardware counters (usually a virtual machine without a PMU), so \
         nothing counts `cpu_cycles`\n  \
         do: use a software event, which works here: `task_clock`",
    );
    check(
        Call::Open,
        Errno::EOPNOTSUPP,
        open("LLC-load-misses", EventClass::Hardware),
        machine(),
        FailureKind::Unsupported,
        "cannot open `LLC-load-misses` (pid 0, any cpu)\n  kernel: perf_event_open: EOPNOTSUPP\n  \
         because: this CPU has no counter for `LLC-load-misses`\n  \
         do: use a software event, which works here: `page_faults`",
    );
    check(
        Call::Open,
        Errno::EOPNOTSUPP,
        Attempt { sampling: true, ..open("cpu_cycles", EventClass::Hardware) },
        machine(),
        FailureKind::Unsupported,
        "cannot open `cpu_cycles` (pid 0, any cpu)\n  kernel: perf_event_open: EOPNOTSUPP\n  \
         because: the PMU that counts `cpu_cycles` cannot interrupt at an overflow, or the event does not \
         exist on this CPU\n  \
         do: use a software event, which works here: `task_clock`",
    );
}

#[test]
fn a_right_that_is_missing() {
    check(
        Call::Open,
        Errno::EACCES,
        join(Attempt { pid: 4242, ..open("branch_misses", EventClass::Hardware) }, "cpu_cycles", 1),
        unprivileged(3),
        FailureKind::NotPermitted,
        "cannot add `branch_misses` to the group led by `cpu_cycles` (pid 4242, any cpu)\n  \
         kernel: perf_event_open: EACCES\n  \
         because: kernel.perf_event_paranoid is 3 and ks-host has no CAP_PERFMON\n  \
         do: give ks-host CAP_PERFMON, or lower the setting to 2 and count user space only (`exclude_kernel`)",
    );
}

/// Checks the remedy for an unprivileged process at each level of the setting.
#[test]
fn the_advice_is_one_that_would_work() {
    let user_only = |attempt: Attempt| Attempt { exclude_kernel: true, ..attempt };
    let every_task = |attempt: Attempt| Attempt { pid: -1, cpu: 0, ..attempt };
    let faults = || open("page_faults", SOFTWARE);
    let switches = || open("context_switches", SWITCHES);
    for (attempt, paranoid, advice) in [
        (faults(), 2, "count user space only (`exclude_kernel`)"),
        (faults(), 3, "lower the setting to 2 and count user space only (`exclude_kernel`)"),
        (user_only(faults()), 3, "lower the setting to 2"),
        (switches(), 2, "lower the setting to 1"),
        (
            every_task(faults()),
            1,
            "count an own task (`pid: 0, cpu: -1`), user space only (`exclude_kernel`)",
        ),
        (every_task(faults()), 3, "lower the setting to 0"),
        (every_task(switches()), 1, "count an own task (`pid: 0, cpu: -1`)"),
        (every_task(switches()), 2, "lower the setting to 0"),
    ] {
        let failure =
            Failure { attempt, call: Call::Open, errno: Errno::EACCES, facts: unprivileged(paranoid) };
        let remedy = explain(&failure).remedy;
        assert_eq!(remedy, Some(format!("give ks-host CAP_PERFMON, or {advice}")), "{failure:?}");
    }
}

#[test]
fn a_right_that_is_there_but_refused() {
    check(
        Call::Open,
        Errno::EPERM,
        open("page_faults", SOFTWARE),
        machine(),
        FailureKind::NotPermitted,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: perf_event_open: EPERM\n  \
         because: ks-host has CAP_PERFMON: a security module refuses\n  \
         do: look into the kernel log, or run outside of the container",
    );
    check(
        Call::Open,
        Errno::EACCES,
        Attempt { pid: 1, ..open("page_faults", SOFTWARE) },
        unprivileged(1),
        FailureKind::NotPermitted,
        "cannot open `page_faults` (pid 1, any cpu)\n  kernel: perf_event_open: EACCES\n  \
         because: the task 1 belongs to another user or is protected, and ks-host has no CAP_PERFMON\n  \
         do: give ks-host CAP_PERFMON, or run it as the task's user",
    );
    check(
        Call::Open,
        Errno::EACCES,
        open("page_faults", SOFTWARE),
        Facts { in_user_namespace: Some(true), ..machine() },
        FailureKind::NotPermitted,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: perf_event_open: EACCES\n  \
         because: kernel.perf_event_paranoid is 2, and ks-host runs in a user namespace, whose capabilities \
         do not count for perf events\n  do: start ks-host outside of it, or count user space only \
         (`exclude_kernel`)",
    );
}

#[test]
fn einval_is_decided_by_the_facts() {
    check(
        Call::Open,
        Errno::EINVAL,
        join(Attempt { cpu: 7, ..open("cpu_cycles", EventClass::Hardware) }, "page_faults", 3),
        machine(),
        FailureKind::NotFound,
        "cannot add `cpu_cycles` to the group led by `page_faults` (pid 0, cpu 7)\n  \
         kernel: perf_event_open: EINVAL\n  because: cpu 7 is offline or does not exist\n  \
         do: name a CPU that is online: 0-3",
    );
    check(
        Call::Open,
        Errno::EINVAL,
        Attempt { inherit: true, ..open("page_faults", SOFTWARE) },
        Facts { kernel: Some((4, 9)), ..machine() },
        FailureKind::Unsupported,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: perf_event_open: EINVAL\n  \
         because: kernels before 4.13 refuse `inherit` with group reads\n  do: open the event without \
         `inherit`",
    );
    check(
        Call::Open,
        Errno::EINVAL,
        join(open("cache_misses", EventClass::Hardware), "cpu_cycles", 6),
        machine(),
        FailureKind::Invalid,
        "cannot add `cache_misses` to the group led by `cpu_cycles` (pid 0, any cpu)\n  \
         kernel: perf_event_open: EINVAL\n  \
         because: `cache_misses` and `cpu_cycles` are of PMUs that cannot be mixed in a group, or the 7 \
         events do not fit on the counters together\n  \
         do: open it outside of the group, or with fewer hardware events in the group",
    );
    check(
        Call::Open,
        Errno::EINVAL,
        join(Attempt { inherit: true, ..open("task_clock", SOFTWARE) }, "page_faults", 1),
        machine(),
        FailureKind::Kernel,
        "cannot add `task_clock` to the group led by `page_faults` (pid 0, any cpu)\n  \
         kernel: perf_event_open: EINVAL\n  \
         because: a child inherited the group before its last member joined, so that the two differ; the \
         kernel reads the group again when that child has ended\n  \
         do: complete a group with `inherit` before the task creates children",
    );
    check(
        Call::Open,
        Errno::EINVAL,
        open("power/config=0x2/", EventClass::Pmu),
        machine(),
        FailureKind::Invalid,
        "cannot open `power/config=0x2/` (pid 0, any cpu)\n  kernel: perf_event_open: EINVAL\n  \
         because: the PMU of `power/config=0x2/` counts whole CPUs, not tasks, or the config is none of its \
         events\n  \
         do: open it with pid -1 and a cpu",
    );
    let loads_only = EventClass::Breakpoint { address: 0x1000, len: 8, loads_only: true };
    check(
        Call::Open,
        Errno::EINVAL,
        open("breakpoint:0x1000:8:r", loads_only),
        machine(),
        FailureKind::Invalid,
        "cannot open `breakpoint:0x1000:8:r` (pid 0, any cpu)\n  kernel: perf_event_open: EINVAL\n  \
         because: this CPU cannot watch that address in that way\n  \
         do: watch loads and stores: x86 cannot watch loads alone",
    );
}

#[test]
fn a_group_that_does_not_fit() {
    check(
        Call::Open,
        Errno::ENOSPC,
        join(open("cache_misses", EventClass::Hardware), "cpu_cycles", 6),
        machine(),
        FailureKind::Limit,
        "cannot add `cache_misses` to the group led by `cpu_cycles` (pid 0, any cpu)\n  \
         kernel: perf_event_open: ENOSPC\n  \
         because: the PMU has no free counter for `cache_misses` (the group led by `cpu_cycles` would have 7 \
         events)\n  \
         do: use fewer events in the group",
    );
    let stores = EventClass::Breakpoint { address: 0x1000, len: 8, loads_only: false };
    check(
        Call::Open,
        Errno::ENOSPC,
        open("breakpoint:0x1000:8:w", stores),
        machine(),
        FailureKind::Limit,
        "cannot open `breakpoint:0x1000:8:w` (pid 0, any cpu)\n  kernel: perf_event_open: ENOSPC\n  \
         because: every breakpoint of the CPU is taken; most have 4 for each task\n  do: detach a \
         breakpoint first",
    );
}

#[test]
fn missing_events_and_tasks() {
    check(
        Call::Open,
        Errno::ESRCH,
        Attempt { pid: 4242, ..open("page_faults", SOFTWARE) },
        Facts { task_exists: Some(false), ..machine() },
        FailureKind::NotFound,
        "cannot open `page_faults` (pid 4242, any cpu)\n  kernel: perf_event_open: ESRCH\n  \
         because: there is no task 4242",
    );
    check(
        Call::Open,
        Errno::ENODEV,
        Attempt { pid: -1, cpu: 4, ..open("page_faults", SOFTWARE) },
        machine(),
        FailureKind::NotFound,
        "cannot open `page_faults` (every task, cpu 4)\n  kernel: perf_event_open: ENODEV\n  \
         because: cpu 4 is offline or does not exist\n  do: name a CPU that is online: 0-3",
    );
}

#[test]
fn limits_and_exclusive_users() {
    check(
        Call::Open,
        Errno::EMFILE,
        open("page_faults", SOFTWARE),
        machine(),
        FailureKind::Limit,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: perf_event_open: EMFILE\n  \
         because: ks-host has as many descriptors open as its limit allows, 1024\n  \
         do: detach what is not needed, or raise the limit (`ulimit -n`)",
    );
    check(
        Call::Open,
        Errno::EBUSY,
        open("cpu_cycles", EventClass::Hardware),
        machine(),
        FailureKind::Busy,
        "cannot open `cpu_cycles` (pid 0, any cpu)\n  kernel: perf_event_open: EBUSY\n  \
         because: another event has the PMU of `cpu_cycles` for itself (an exclusive or pinned event)\n  \
         do: end the other profiler, or open the event later",
    );
    let kind = |errno| {
        let attempt = open("page_faults", SOFTWARE);
        explain(&Failure { attempt, call: Call::Open, errno, facts: machine() }).kind
    };
    assert_eq!(kind(Errno::ENOMEM), FailureKind::Limit);
    assert_eq!(kind(Errno::ENFILE), FailureKind::Limit);
    assert_eq!(kind(Errno::E2BIG), FailureKind::Unsupported);
    assert_eq!(kind(Errno::ENOSYS), FailureKind::Unsupported);
    assert_eq!(kind(Errno::EIO), FailureKind::Kernel);
}

#[test]
fn programs_that_cannot_be_linked() {
    let attempt = || Attempt { sampling: true, ..open("page_faults", SOFTWARE) };
    check(
        Call::Link,
        Errno::EEXIST,
        attempt(),
        machine(),
        FailureKind::Busy,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: bpf(BPF_LINK_CREATE): EEXIST\n  \
         because: an event takes one program only, and this one has it already\n  \
         do: open the event once more for the second program",
    );
    check(
        Call::Link,
        Errno::EPERM,
        attempt(),
        unprivileged(2),
        FailureKind::NotPermitted,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: bpf(BPF_LINK_CREATE): EPERM\n  \
         because: ks-host has no CAP_BPF and no CAP_PERFMON\n  do: give ks-host CAP_BPF and CAP_PERFMON",
    );
    check(
        Call::Link,
        Errno::EINVAL,
        attempt(),
        Facts { kernel: Some((5, 10)), ..machine() },
        FailureKind::Unsupported,
        "cannot open `page_faults` (pid 0, any cpu)\n  kernel: bpf(BPF_LINK_CREATE): EINVAL\n  \
         because: kernels before 5.15 have no links for perf events",
    );
}

#[test]
fn an_attach_point_of_the_kernel_that_is_not_probed() {
    for (errno, because) in [
        (Errno::EILSEQ, "no instruction of the kernel begins at that place"),
        (Errno::EADDRNOTAVAIL, "the kernel has several functions of that name"),
    ] {
        check(
            Call::Open,
            errno,
            open("kprobe:f", EventClass::Probe { in_kernel: true }),
            machine(),
            FailureKind::Invalid,
            &format!(
                "cannot open `kprobe:f` (pid 0, any cpu)\n  kernel: perf_event_open: {errno:?}\n  because: {because}"
            ),
        );
    }
}

#[test]
fn an_answer_without_a_known_cause_claims_none() {
    check(
        Call::Enable,
        Errno::EIO,
        Attempt { action: Action::Enable, ..open("page_faults", SOFTWARE) },
        machine(),
        FailureKind::Kernel,
        "cannot enable `page_faults` (pid 0, any cpu)\n  kernel: ioctl(PERF_EVENT_IOC_ENABLE): EIO",
    );
}

#[test]
fn a_filter_of_somebody_else() {
    let filtered = || Facts { is_filtered: Some(true), ..machine() };
    for errno in [Errno::EPERM, Errno::ENOSYS] {
        check(
            Call::Open,
            errno,
            open("page_faults", SOFTWARE),
            filtered(),
            FailureKind::NotPermitted,
            &format!(
                "cannot open `page_faults` (pid 0, any cpu)\n  kernel: perf_event_open: {errno:?}\n  \
                 because: a filter of system calls (seccomp) that ks-host was started with refuses \
                 perf_event_open\n  do: allow it there: `--security-opt seccomp=PROFILE` of a container, \
                 `SystemCallFilter=perf_event_open` of a service; or start ks-host outside"
            ),
        );
    }
    // A kernel without perf events has no such setting, and refuses the call without a filter.
    let explained = explain(&Failure {
        attempt: open("page_faults", SOFTWARE),
        call: Call::Open,
        errno: Errno::ENOSYS,
        facts: Facts { paranoid: None, ..filtered() },
    });
    assert!(explained.because.is_some_and(|because| because.contains("CONFIG_PERF_EVENTS")));
}

#[test]
fn a_group_whose_task_has_ended() {
    check(
        Call::Open,
        Errno::ENODEV,
        join(Attempt { pid: 4242, ..open("context_switches", SWITCHES) }, "page_faults", 1),
        Facts { task_exists: Some(false), ..machine() },
        FailureKind::NotFound,
        "cannot add `context_switches` to the group led by `page_faults` (pid 4242, any cpu)\n  \
         kernel: perf_event_open: ENODEV\n  because: the task 4242 has ended, and with it the group led by \
         `page_faults`",
    );
}
