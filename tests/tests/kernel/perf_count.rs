//! Single events: counts, scopes and lifetimes.

use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::perf_support::{Sleeper, fault, named, own_thread, program, some_descriptor, store, stores_to};
use ks_host::perf::{Attachments, Options, PerfError, State};
use nix::sched::{CloneFlags, unshare};

#[test]
fn root_counts_this_thread_exactly() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let stores = attachments.open(&stores_to(&WORD), &own_thread(), None, None).unwrap();
    store(&WORD, 1000);
    thread::spawn(|| store(&WORD, 500)).join().unwrap();
    let reading = attachments.read(stores).unwrap();
    assert_eq!(reading.raw, 1000, "another thread's 500 stores are none of ours");
    assert_eq!(reading.scaled, Some(1000));
    assert_eq!(reading.state, State::Counted);
    assert_eq!(reading.time_enabled, reading.time_running);
    assert!(!reading.saturated && !reading.partial);
}

#[test]
fn root_a_task_that_sleeps_is_idle() {
    let sleeper = Sleeper::new();
    let mut attachments = Attachments::new();
    let options = Options { pid: sleeper.tid, ..own_thread() };
    let faults = attachments.open(&named("page_faults"), &options, None, None).unwrap();
    let reading = attachments.read(faults).unwrap();
    assert_eq!((reading.raw, reading.scaled, reading.state), (0, Some(0), State::Idle));
    assert_eq!((reading.time_enabled, reading.time_running), (0, 0));
}

#[test]
fn root_a_cpu_is_counted_for_every_task() {
    let mut attachments = Attachments::new();
    let clock = attachments.open(&named("cpu-clock"), &Options::default(), None, None).unwrap();
    thread::sleep(std::time::Duration::from_millis(5));
    let reading = attachments.read(clock).unwrap();
    assert!(reading.raw > 0, "the clock of CPU 0 goes on while this thread sleeps");
    assert_eq!(reading.state, State::Counted);
}

#[test]
fn root_disable_stops_enable_goes_on_reset_starts_from_zero() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let stores = attachments.open(&stores_to(&WORD), &own_thread(), None, None).unwrap();
    store(&WORD, 10);
    attachments.disable(stores).unwrap();
    let stopped = attachments.read(stores).unwrap();
    store(&WORD, 10);
    assert_eq!(attachments.read(stores).unwrap(), stopped, "count and times stand still");
    assert_eq!(stopped.raw, 10);
    attachments.enable(stores).unwrap();
    store(&WORD, 10);
    assert_eq!(attachments.read(stores).unwrap().raw, 20);
    attachments.disable(stores).unwrap();
    attachments.reset(stores).unwrap();
    let reset = attachments.read(stores).unwrap();
    assert_eq!((reset.raw, reset.time_enabled, reset.time_running, reset.state), (0, 0, 0, State::Idle));
    attachments.enable(stores).unwrap();
    store(&WORD, 3);
    let reading = attachments.read(stores).unwrap();
    assert_eq!(reading.raw, 3);
    assert!(reading.time_enabled > 0 && reading.time_enabled == reading.time_running);
}

/// The kernel's own reset keeps the counts of ended children.
#[test]
fn root_inherit_counts_children_created_later_and_reset_forgets_them() {
    let mut attachments = Attachments::new();
    let inheriting = Options { inherit: true, ..own_thread() };
    let with_children = attachments.open(&named("page_faults"), &inheriting, None, None).unwrap();
    let without = attachments.open(&named("page_faults"), &own_thread(), None, None).unwrap();
    thread::spawn(|| fault(300)).join().unwrap();
    assert!(Command::new("/bin/true").status().unwrap().success());
    let own = attachments.read(without).unwrap().raw;
    let all = attachments.read(with_children).unwrap().raw;
    assert!(all >= own + 300, "own {own}, with the children {all}");

    attachments.disable(with_children).unwrap();
    attachments.reset(with_children).unwrap();
    let reset = attachments.read(with_children).unwrap();
    assert_eq!((reset.raw, reset.state), (0, State::Idle));
}

#[test]
fn root_a_program_is_linked_while_the_event_is_off() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let link = program(|event| {
        store(&WORD, 10);
        let mut answer = [0_u8; 40];
        nix::unistd::read(event, &mut answer).unwrap();
        assert_eq!(answer[8..16], [0; 8], "it was not enabled yet");
        some_descriptor()
    });
    let stores = attachments.open(&stores_to(&WORD), &own_thread(), None, link).unwrap();
    assert!(attachments.live().iter().all(|live| live.id == stores && live.has_program));
    store(&WORD, 10);
    assert_eq!(attachments.read(stores).unwrap().raw, 10, "it counts once it is linked");
}

#[test]
fn root_live_reports_what_is_attached() {
    let mut attachments = Attachments::new();
    let leader = attachments.open(&named("page-faults"), &own_thread(), None, None).unwrap();
    let member = attachments.open(&named("cs"), &own_thread(), Some(leader), None).unwrap();
    let live = attachments.live();
    let rows: Vec<_> =
        live.iter().map(|live| (live.id, live.event.as_str(), live.pid, live.cpu, live.leader)).collect();
    assert_eq!(rows, [(leader, "page-faults", 0, -1, None), (member, "cs", 0, -1, Some(leader))]);
    attachments.detach(leader);
    assert!(attachments.live().is_empty());
}

#[test]
fn root_ids_start_at_one_and_are_not_used_again() {
    let mut attachments = Attachments::new();
    let first = attachments.open(&named("dummy"), &own_thread(), None, None).unwrap();
    attachments.detach(first);
    attachments.detach(first);
    assert_eq!(attachments.read(first), Err(PerfError::Stale(first)));
    let second = attachments.open(&named("dummy"), &own_thread(), None, None).unwrap();
    assert_eq!((first.get(), second.get()), (1, 2));
    assert_eq!(attachments.reset(first), Err(PerfError::Stale(first)));
}

/// The thread has a descriptor table of its own here, so other tests do not disturb the count.
#[test]
fn root_no_descriptor_stays_open() {
    thread::spawn(|| {
        unshare(CloneFlags::CLONE_FILES).unwrap();
        let open = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
        let before = open();
        let mut attachments = Attachments::new();
        let leader = attachments.open(&named("page_faults"), &own_thread(), None, None).unwrap();
        let link = || program(|_| some_descriptor());
        attachments.open(&named("task_clock"), &own_thread(), Some(leader), link()).unwrap();
        assert_eq!(open(), before + 3, "two events and a link");
        let failing = || program(|_| Err(nix::errno::Errno::EEXIST));
        attachments.open(&named("dummy"), &own_thread(), Some(leader), failing()).unwrap_err();
        attachments.open(&named("dummy"), &own_thread(), None, failing()).unwrap_err();
        assert_eq!(open(), before + 3, "a failed open leaves nothing");
        attachments.detach(leader);
        assert_eq!(open(), before);
        let leader = attachments.open(&named("page_faults"), &own_thread(), None, None).unwrap();
        attachments.open(&named("task_clock"), &own_thread(), Some(leader), link()).unwrap();
        drop(attachments);
        assert_eq!(open(), before);
    })
    .join()
    .unwrap();
}
