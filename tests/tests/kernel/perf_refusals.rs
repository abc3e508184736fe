//! Refusals by the host and by the kernel, and their error messages.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::perf_support::{Sleeper, fault, named, own_thread, program, store, stores_to};
use ks_host::explain::Facts;
use ks_host::perf::{
    Access, Attachments, Catalog, ErrorKind, Event, LinkProgram, Options, PerfError, Refusal,
};
use nix::errno::Errno;

fn refusal(result: Result<ks_host::perf::AttachmentId, PerfError>) -> Refusal {
    match result {
        Err(PerfError::Refused { refusal, .. }) => refusal,
        other => panic!("the host did not refuse: {other:?}"),
    }
}

/// Each request also has every later fault: the error names the first in the documented order.
#[test]
fn fields_are_checked_in_order_before_the_kernel_is_asked() {
    let mut attachments = Attachments::new();
    let mut open = |event: &str, pid, cpu| {
        let options = Options { pid, cpu, exclude_kernel: true, ..Options::default() };
        refusal(attachments.open(&named(event), &options, None, None))
    };
    assert_eq!(open("context_switches", -2, -2), Refusal::Pid(-2));
    assert_eq!(open("context_switches", -1, -2), Refusal::Cpu(-2));
    assert_eq!(open("context_switches", -1, -1), Refusal::EveryTaskOnEveryCpu);
    for event in ["context_switches", "cpu_migrations", "cgroup-switches"] {
        assert_eq!(open(event, 0, -1), Refusal::InKernelOnly);
    }
}

/// With a clock that runs a program every 10 us, a CPU of a virtual machine does nothing else.
#[test]
fn a_program_does_not_run_at_every_tick_of_a_clock() {
    let link: LinkProgram = Arc::new(|_, _| Err(Errno::EPERM));
    let open = |event: &str, options: &Options| {
        let opened = Attachments::new().open(&named(event), options, None, Some(link.clone()));
        opened.expect_err("the link fails, too")
    };
    for event in ["cpu_clock", "task_clock"] {
        let period = |period| Options { period, ..own_thread() };
        let freq = |freq| Options { freq, ..own_thread() };
        for (options, reported) in [(period(1), 1), (period(49_999), 49_999), (freq(20_001), 49_997)] {
            let error = open(event, &options);
            assert_eq!(error.kind(), ErrorKind::Limit);
            assert_eq!(refusal(Err(error)), Refusal::ClockTooOften { period: reported, shortest: 50_000 });
        }
        for options in [period(0), period(50_000), freq(20_000)] {
            assert!(!matches!(open(event, &options), PerfError::Refused { .. }));
        }
    }
    assert!(!matches!(
        open("page_faults", &Options { period: 1, ..own_thread() }),
        PerfError::Refused { .. }
    ));
    let counted =
        Attachments::new().open(&named("task_clock"), &Options { period: 1, ..own_thread() }, None, None);
    assert!(counted.is_ok(), "without a program there is no period");
}

#[test]
fn root_a_refusal_by_the_host_says_why() {
    let mut attachments = Attachments::new();
    let options = Options { exclude_kernel: true, ..own_thread() };
    let error = attachments.open(&named("cs"), &options, None, None).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Invalid, None));
    assert_eq!(
        error.to_string(),
        "cannot open `cs` (pid 0, any cpu)\n  \
         because: it happens in the kernel only: with `exclude_kernel` it would count a silent 0\n  \
         do: leave out `exclude_kernel`"
    );
    let faults = attachments.open(&named("page_faults"), &options, None, None);
    assert!(faults.is_ok(), "page faults of user space exist");
}

/// The kernel reopens a probe's event for each child, and looks for the file's name in the memory of the
/// parent: with an inherited probe an observed task could start no thread (EFAULT).
#[test]
fn root_a_probe_is_not_inherited() {
    let own = std::env::current_exe().unwrap();
    let event = Catalog::default().uprobe(&format!("{}:main", own.display())).unwrap();
    for options in [Options { inherit: true, ..own_thread() }, Options { follow: true, ..own_thread() }] {
        let refused = Attachments::new().open(&event, &options, None, None);
        assert_eq!(refusal(refused), Refusal::ProbeInherited);
    }
}

#[test]
fn root_a_group_has_one_leader_one_target_and_one_inherit() {
    let sleeper = Sleeper::new();
    let mut attachments = Attachments::new();
    let leader = attachments.open(&named("page_faults"), &own_thread(), None, None).unwrap();
    let member = attachments.open(&named("task_clock"), &own_thread(), Some(leader), None).unwrap();
    let mut join = |options, leader| attachments.open(&named("dummy"), &options, Some(leader), None);

    let error = join(own_thread(), member).unwrap_err();
    assert!(error.to_string().contains("that attachment is a member; use its leader"), "{error}");
    assert_eq!(refusal(Err(error)), Refusal::MemberAsLeader { leader });

    let other_task = Options { pid: sleeper.tid, ..own_thread() };
    assert_eq!(refusal(join(other_task, leader)), Refusal::OtherPid { leader: 0, member: sleeper.tid });
    let other_cpu = Options { cpu: 0, ..own_thread() };
    let error = join(other_cpu, leader).unwrap_err();
    assert!(error.to_string().contains("the leader has cpu -1, this event cpu 0"), "{error}");
    assert_eq!(refusal(Err(error)), Refusal::OtherCpu { leader: -1, member: 0 });
    let inheriting = Options { inherit: true, ..own_thread() };
    assert_eq!(refusal(join(inheriting, leader)), Refusal::OtherInherit { leader: false, member: true });

    let by_number = Options { pid: nix::unistd::gettid().as_raw(), ..own_thread() };
    assert!(join(by_number, leader).is_ok(), "pid 0 is this thread, so its number is the same task");
}

#[test]
fn root_a_breakpoint_too_many_is_a_limit() {
    static WORDS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
    let mut attachments = Attachments::new();
    let leader = attachments.open(&stores_to(&WORDS[0]), &own_thread(), None, None).unwrap();
    for word in &WORDS[1..4] {
        attachments.open(&stores_to(word), &own_thread(), Some(leader), None).unwrap();
    }
    store(&WORDS[0], 7);
    let fifth = stores_to(&WORDS[4]);
    let error = attachments.open(&fifth, &own_thread(), Some(leader), None).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Limit, Some(Errno::ENOSPC)));
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("cannot add `{}` to the group led by `breakpoint:", fifth.name())),
        "{text}"
    );
    for part in ["kernel: perf_event_open: ENOSPC", "would have 5 events", "do: detach a breakpoint first"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(attachments.read(leader).unwrap().raw, 7, "the group goes on");
}

/// Where there is a PMU, the event must open instead, and the test prints that.
#[test]
fn root_an_event_without_a_counter_is_unsupported() {
    let mut attachments = Attachments::new();
    if Facts::read(0).hardware_pmu == Some(true) {
        println!("this machine has a PMU: cache_misses must open here");
        let misses = attachments.open(&named("cache_misses"), &own_thread(), None, None).unwrap();
        attachments.read(misses).unwrap();
        return;
    }
    let error = attachments.open(&named("cache_misses"), &own_thread(), None, None).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Unsupported, Some(Errno::ENOENT)));
    assert_eq!(
        error.to_string(),
        "cannot open `cache_misses` (pid 0, any cpu)\n  \
         kernel: perf_event_open: ENOENT\n  \
         because: this machine has no hardware counters (usually a virtual machine without a PMU), so \
         nothing counts `cache_misses`\n  \
         do: use a software event, which works here: `page_faults`"
    );
    let cycles = attachments.open(&named("cycles"), &own_thread(), None, None).unwrap_err().to_string();
    assert!(cycles.contains("works here: `task_clock`"), "{cycles}");
    for advised in ["page_faults", "task_clock"] {
        attachments.open(&named(advised), &own_thread(), None, None).unwrap();
    }
}

/// Capabilities belong to threads: this thread drops its own.
#[test]
fn root_without_capabilities_the_missing_one_is_named() {
    let attempt = thread::spawn(|| {
        become_nobody();
        Attachments::new().open(&named("page_faults"), &Options::default(), None, None).map(drop)
    });
    let opened = attempt.join().unwrap();
    let paranoid = Facts::read(0).paranoid.unwrap();
    if paranoid <= 0 {
        println!("kernel.perf_event_paranoid is {paranoid} here: everyone may count every task");
        return opened.unwrap();
    }
    let error = opened.unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::NotPermitted, Some(Errno::EACCES)));
    let because = format!("because: kernel.perf_event_paranoid is {paranoid} and ks-host has no CAP_PERFMON");
    assert!(error.to_string().contains(&because), "{error}");
}

/// Without privileges, own tasks are counted in user code, as far as the system setting allows it to all
/// users.
#[test]
fn root_without_capabilities_own_user_code_is_counted() {
    let attempt = thread::spawn(|| {
        become_nobody();
        let mut attachments = Attachments::new();
        let user = Options { exclude_kernel: true, ..own_thread() };
        let id = attachments.open(&named("page_faults"), &user, None, None)?;
        fault(50);
        let faults = attachments.read(id)?.raw;
        assert!((50..200).contains(&faults), "{faults}");
        let catalog = Catalog::default();
        assert_eq!(catalog.why_not(&catalog.list("page_faults")[0]), None, "it can be counted");
        let of_kernel = catalog.why_not(&catalog.list("context_switches")[0]);
        assert!(of_kernel.is_some() || Facts::read(0).paranoid.is_some_and(|level| level <= 1));
        Ok(())
    });
    let counted: Result<(), PerfError> = attempt.join().unwrap();
    match Facts::read(0).paranoid.unwrap() {
        ..=2 => counted.unwrap_or_else(|error| panic!("{error}")),
        _ => assert_eq!(counted.unwrap_err().kind(), ErrorKind::NotPermitted),
    }
}

fn become_nobody() {
    const NOBODY: nix::libc::uid_t = 65534;
    const KEEP: nix::libc::uid_t = nix::libc::uid_t::MAX;
    // SAFETY: the arguments are numbers. The system call itself changes the calling thread only, where the C
    // library's function would change all threads.
    let answer = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, KEEP, NOBODY, KEEP) };
    assert_eq!(answer, 0, "root can become nobody");
}

#[test]
fn root_a_task_or_cpu_that_is_not_there_is_not_found() {
    let mut attachments = Attachments::new();
    let mut open = |pid, cpu| {
        let options = Options { pid, cpu, ..Options::default() };
        attachments.open(&named("page_faults"), &options, None, None).unwrap_err()
    };
    let ended = ended_process();
    let error = open(ended, -1);
    assert_eq!((error.kind(), error.errno()), (ErrorKind::NotFound, Some(Errno::ESRCH)));
    assert!(error.to_string().contains(&format!("because: there is no task {ended}")), "{error}");

    let error = open(-1, 100_000);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert!(error.to_string().contains("cannot open `page_faults` (every task, cpu 100000)"), "{error}");
    assert!(error.to_string().contains("because: cpu 100000 is offline or does not exist"), "{error}");
    assert!(
        error.to_string().contains(&format!("do: name a CPU that is online: {}", online.trim())),
        "{error}"
    );
}

fn ended_process() -> i32 {
    let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    i32::try_from(child.id()).unwrap()
}

#[test]
fn root_a_tracepoint_that_is_not_there_is_not_found() {
    let mut attachments = Attachments::new();
    let event = Event::of_tracepoint("tracepoint:99999999", 99_999_999);
    let error = attachments.open(&event, &own_thread(), None, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no tracepoint with the id of `tracepoint:99999999`"), "{error}");
}

#[test]
fn root_a_misaligned_breakpoint_is_explained() {
    let stores = Access { write: true, ..Access::default() };
    let mut attachments = Attachments::new();
    let event = Event::breakpoint(0x1001, 8, stores).unwrap();
    let error = attachments.open(&event, &own_thread(), None, None).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Invalid, Some(Errno::EINVAL)));
    assert!(
        error.to_string().contains("the address 0x1001 is not a multiple of the breakpoint's length"),
        "{error}"
    );
}

#[test]
fn root_a_second_program_is_busy() {
    let mut attachments = Attachments::new();
    let taken = program(|_| Err(Errno::EEXIST));
    let error = attachments.open(&named("page_faults"), &own_thread(), None, taken).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(Errno::EEXIST)));
    assert!(error.to_string().contains("kernel: bpf(BPF_LINK_CREATE): EEXIST"), "{error}");
    assert!(error.to_string().contains("an event takes one program only"), "{error}");
    assert!(attachments.live().is_empty());
}

#[test]
fn an_unknown_name_comes_with_near_ones() {
    let error = Event::named("cache_miss").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error
            .to_string()
            .starts_with("no event named `cache_miss`\n  do: use a name that exists, such as `cache_misses`")
    );
}
