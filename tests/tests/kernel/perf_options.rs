//! Every option: either the kernel honours it, or it is refused with a reason.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::perf_support::{named, own_thread, program, some_descriptor, spin, store, stores_to};
use ks_host::perf::{Attachments, Catalog, ErrorKind, Notice, Options, PerfError, State};
use ks_tests::wait_until;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn refused(event: &str, options: Options) -> PerfError {
    Attachments::new().open(&named(event), &options, None, None).unwrap_err()
}

#[test]
fn root_bits_that_leave_nothing_out_here_count_all() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let all = [
        Options { exclude_hv: true, ..own_thread() },
        Options { exclude_guest: true, ..own_thread() },
        Options { exclude_kernel: true, ..own_thread() },
        Options { pinned: true, ..own_thread() },
        Options { exclusive: true, ..own_thread() },
        Options { weak: true, ..own_thread() },
        Options { precise: 1, ..own_thread() },
    ];
    for options in all {
        let mut attachments = Attachments::new();
        let id = attachments
            .open(&stores_to(&WORD), &options, None, None)
            .unwrap_or_else(|error| panic!("{options:?}: {error}"));
        store(&WORD, 9);
        assert_eq!(attachments.read(id).unwrap().raw, 9, "{options:?}");
        assert_eq!(attachments.take_notices(), []);
    }
}

#[test]
fn root_excluded_modes_are_not_counted() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let kernel = Options { exclude_user: true, ..own_thread() };
    let id = attachments.open(&stores_to(&WORD), &kernel, None, None).unwrap();
    store(&WORD, 9);
    assert_eq!(attachments.read(id).unwrap().raw, 0, "the stores are the user's");
}

#[test]
fn root_exclude_idle_comes_with_a_warning() {
    let mut attachments = Attachments::new();
    let options = Options { exclude_idle: true, ..own_thread() };
    attachments.open(&named("page_faults"), &options, None, None).unwrap();
    assert_eq!(attachments.take_notices(), [Notice::IdleCounts { event: "page_faults".to_owned() }]);
}

/// The kernel accepts the options that exclude user code or the kernel, and ignores them for clocks.
#[test]
fn root_clocks_count_user_code_and_the_kernel_alike() {
    for event in ["task_clock", "cpu_clock"] {
        let mut attachments = Attachments::new();
        let whole = attachments.open(&named(event), &own_thread(), None, None).unwrap();
        let kernel = Options { exclude_user: true, ..own_thread() };
        attachments.open(&named(event), &kernel, Some(whole), None).unwrap();
        assert_eq!(attachments.take_notices(), [Notice::ClockCounts { event: event.to_owned() }]);
        spin(Duration::from_millis(10));
        let entries = attachments.snapshot(whole).unwrap().entries;
        let (whole, kernel) = (entries[0].raw, entries[1].raw);
        assert!(kernel > whole / 10 * 9, "{kernel} of {whole} ns, nearly all of them in user code");
        attachments.open(&named("page_faults"), &own_thread(), None, None).unwrap();
        assert_eq!(attachments.take_notices(), []);
    }
}

#[test]
fn root_impossible_options_are_refused_with_the_reason() {
    let guest = refused("page_faults", Options { exclude_host: true, ..own_thread() });
    assert!(guest.to_string().contains("exclude_host"), "{guest}");
    let precise = refused("page_faults", Options { precise: 4, ..own_thread() });
    assert!(precise.to_string().contains("precise 4"), "{precise}");
    let both = refused("page_faults", Options { process: "sh".to_owned(), ..own_thread() });
    assert!(both.to_string().contains("`pid` and `process`"), "{both}");
    let nobody = refused("page_faults", Options { follow: true, ..Options::default() });
    assert!(nobody.to_string().contains("follow"), "{nobody}");
}

#[test]
fn root_more_samples_than_the_kernel_allows_name_the_setting() {
    let options = Options { freq: 1 << 40, ..own_thread() };
    let mut attachments = Attachments::new();
    let sampling = program(|_| some_descriptor());
    let error = attachments.open(&named("page_faults"), &options, None, sampling).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Limit, Some(Errno::EINVAL)), "{error}");
    assert!(error.to_string().contains("kernel.perf_event_max_sample_rate"), "{error}");
    attachments.open(&named("page_faults"), &options, None, None).expect("counting does not sample");
    let fine = Options { freq: 99, ..own_thread() };
    let sampling = program(|_| some_descriptor());
    attachments.open(&named("cpu_clock"), &fine, None, sampling).unwrap();
}

/// A whole group waits: members that join do not start it.
#[test]
fn root_what_starts_disabled_counts_from_the_enabling() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let waits = Options { start_disabled: true, ..own_thread() };
    let leader = attachments.open(&stores_to(&WORD), &waits, None, None).unwrap();
    store(&WORD, 9);
    let member = attachments.open(&stores_to(&WORD), &own_thread(), Some(leader), None).unwrap();
    store(&WORD, 9);
    let before = attachments.read(leader).unwrap();
    assert_eq!((before.raw, before.state), (0, State::Idle));
    attachments.enable(leader).unwrap();
    store(&WORD, 5);
    for id in [leader, member] {
        let reading = attachments.read(id).unwrap();
        assert_eq!((reading.raw, reading.state), (5, State::Counted), "{id}");
    }
    attachments.disable(leader).unwrap();
    store(&WORD, 9);
    attachments.enable(leader).unwrap();
    store(&WORD, 1);
    assert_eq!(attachments.read(member).unwrap().raw, 6);
    let refused = attachments.open(&stores_to(&WORD), &waits, Some(leader), None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

/// A shell that calls kill(2) twenty times, then executes one that does so thirty times: both wait for a line.
#[test]
fn root_an_event_starts_or_ends_when_its_task_executes_a_program() {
    let kills =
        |times: u32| format!("read line; i=0; while [ $i -lt {times} ]; do kill -0 $$; i=$((i+1)); done");
    let script = format!("{}; exec sh -c '{}; read line'", kills(20), kills(30));
    let mut shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(shell.id()).unwrap();
    let kills = Catalog::default().tracepoint("syscalls/sys_enter_kill").unwrap();
    let of_shell = Options { pid, cpu: -1, ..Options::default() };
    let mut attachments = Attachments::new();
    let mut open = |options: Options| attachments.open(&kills, &options, None, None);
    let all = open(of_shell.clone()).unwrap();
    let later = open(Options { enable_on_exec: true, ..of_shell.clone() }).unwrap();
    let earlier = open(Options { remove_on_exec: true, ..of_shell.clone() }).unwrap();
    let both = open(Options { enable_on_exec: true, remove_on_exec: true, ..of_shell }).unwrap_err();
    assert_eq!(both.kind(), ErrorKind::Invalid, "{both}");
    let mut input = shell.stdin.take().unwrap();
    for lines in ["\n", "\n"] {
        std::io::Write::write_all(&mut input, lines.as_bytes()).unwrap();
    }
    wait_until(Duration::from_secs(10), "all are called", || attachments.read(all).unwrap().raw == 50);
    assert_eq!(attachments.read(later).unwrap().raw, 30);
    assert_eq!(attachments.read(earlier).unwrap().raw, 20);
    drop(input);
    shell.wait().unwrap();
}

/// Counting and sampling members: only the sampling one has a period.
#[test]
fn root_a_group_mixes_counting_and_sampling_members() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = attachments.open(&stores_to(&WORD), &own_thread(), None, None).unwrap();
    let sampling = Options { period: 10, ..own_thread() };
    let link = program(|_| some_descriptor());
    let member = attachments.open(&named("page_faults"), &sampling, Some(leader), link).unwrap();
    let counting = attachments.open(&named("task_clock"), &own_thread(), Some(leader), None).unwrap();
    store(&WORD, 40);
    let snapshot = attachments.snapshot(counting).unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.entries[0].raw, snapshot.own), (3, 40, 2));
    let programs: Vec<bool> = attachments.live().iter().map(|live| live.has_program).collect();
    assert_eq!(programs, [false, true, false]);
    assert!(attachments.read(member).is_ok());
}

/// The size of one read limits the events of a group.
#[test]
fn root_a_weak_member_counts_alone_and_says_so() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(4096), most).unwrap();
    let mut attachments = Attachments::new();
    let leader = attachments.open(&named("dummy"), &own_thread(), None, None).unwrap();
    let refused = (0..4000)
        .find_map(|_| attachments.open(&named("dummy"), &own_thread(), Some(leader), None).err())
        .expect("there is an end to groups");
    assert_eq!((refused.kind(), refused.errno()), (ErrorKind::Limit, Some(Errno::E2BIG)), "{refused}");
    let full = attachments.snapshot(leader).unwrap().entries.len();
    let weak = Options { weak: true, ..own_thread() };
    let id = attachments.open(&named("task_clock"), &weak, Some(leader), None).unwrap();
    let alone = Notice::Alone { event: "task_clock".to_owned(), leader: "dummy".to_owned() };
    assert_eq!(attachments.take_notices(), [alone]);
    assert_eq!(attachments.snapshot(id).unwrap().entries.len(), 1);
    assert_eq!(attachments.snapshot(leader).unwrap().entries.len(), full);
    attachments.detach(leader);
    assert!(attachments.read(id).unwrap().raw > 0, "it is not a member");
}
