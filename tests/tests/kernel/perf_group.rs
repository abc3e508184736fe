//! Groups: one leader, its members, a common start, a common read.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::perf_support::{fault, named, own_thread, program, some_descriptor, spin, store, stores_to};
use ks_host::perf::{AttachmentId, Attachments, Event, Options, PerfError, Refusal, State};
use nix::errno::Errno;

fn open(attachments: &mut Attachments, event: &Event, leader: Option<AttachmentId>) -> AttachmentId {
    attachments.open(event, &own_thread(), leader, None).unwrap()
}

#[test]
fn root_every_member_reads_its_own_count() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let faults = open(&mut attachments, &named("page_faults"), None);
    let switches = open(&mut attachments, &named("context_switches"), Some(faults));
    let stores = open(&mut attachments, &stores_to(&WORD), Some(faults));
    fault(200);
    store(&WORD, 77);
    attachments.disable(faults).unwrap();

    let raw = |attachments: &mut Attachments, id| attachments.read(id).unwrap().raw;
    assert_eq!(raw(&mut attachments, stores), 77);
    assert!(raw(&mut attachments, faults) >= 200);
    assert_ne!(raw(&mut attachments, switches), raw(&mut attachments, faults));

    for (position, id) in [faults, switches, stores].into_iter().enumerate() {
        let reading = attachments.read(id).unwrap();
        let snapshot = attachments.snapshot(id).unwrap();
        assert_eq!(snapshot.own, position, "leader first, then as they joined");
        assert_eq!(snapshot.entries.len(), 3);
        assert_eq!(snapshot.entries[position].raw, reading.raw);
        assert_eq!(snapshot.entries[position].scaled, reading.scaled);
        assert_eq!((snapshot.time_enabled, snapshot.state), (reading.time_enabled, reading.state));
    }
    let mut ids: Vec<u64> =
        attachments.snapshot(faults).unwrap().entries.iter().map(|entry| entry.kernel_id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each entry has the kernel's id of its own event");
}

#[test]
fn root_join_starts_counts_and_times_from_zero() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &stores_to(&WORD), None);
    store(&WORD, 50);
    spin(Duration::from_secs(1));
    let before = attachments.read(leader).unwrap();
    assert!(before.raw == 50 && before.time_enabled > 0);

    let joining = Instant::now();
    let member = open(&mut attachments, &named("page_faults"), Some(leader));
    store(&WORD, 5);
    for id in [leader, member] {
        let reading = attachments.read(id).unwrap();
        let elapsed = u64::try_from(joining.elapsed().as_nanos()).unwrap();
        assert!(
            reading.time_enabled > 0 && reading.time_enabled <= elapsed,
            "{reading:?}, {elapsed} ns since the join"
        );
        assert_eq!(reading.time_running, reading.time_enabled);
    }
    assert_eq!(attachments.read(leader).unwrap().raw, 5);
}

/// Linux 6.18 does not start a member of another PMU by PERF_IOC_FLAG_GROUP before the next context switch.
#[test]
fn root_a_member_of_another_pmu_counts_from_the_first_event() {
    for leader in ["task_clock", "cpu_clock", "page_faults"] {
        let word = AtomicU64::new(0);
        let mut attachments = Attachments::new();
        let leader = open(&mut attachments, &named(leader), None);
        let member = open(&mut attachments, &stores_to(&word), Some(leader));
        store(&word, 100);
        assert_eq!(attachments.read(member).unwrap().raw, 100);
    }
}

#[test]
fn root_a_group_starts_at_one_instant() {
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("task_clock"), None);
    for _ in 0..40 {
        open(&mut attachments, &named("task_clock"), Some(leader));
    }
    attachments.disable(leader).unwrap();
    let entries = attachments.snapshot(leader).unwrap().entries;
    assert!(entries[0].raw > 0);
    assert!(entries.iter().all(|entry| entry.raw == entries[0].raw), "{entries:?}");
}

#[test]
fn root_a_member_stopped_alone_keeps_its_own_times() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("task_clock"), None);
    let member = open(&mut attachments, &stores_to(&WORD), Some(leader));
    store(&WORD, 10);
    attachments.disable(member).unwrap();
    let stopped = attachments.read(member).unwrap();
    store(&WORD, 10);
    spin(Duration::from_millis(20));
    assert_eq!(attachments.read(member).unwrap(), stopped, "the leader's time is not this member's");
    let of_leader = attachments.read(leader).unwrap();
    assert!(of_leader.time_enabled >= stopped.time_enabled + 1_000_000, "the leader went on: {of_leader:?}");

    attachments.enable(member).unwrap();
    store(&WORD, 10);
    let resumed = attachments.read(member).unwrap();
    let gap = attachments.read(leader).unwrap().time_enabled - resumed.time_enabled;
    assert_eq!(resumed.raw, 20, "it counts again at once, and nothing of the pause");
    assert_eq!((resumed.scaled, resumed.state), (Some(20), State::Counted));
    assert!(resumed.time_enabled > stopped.time_enabled && gap >= 1_000_000, "{gap} ns");
}

#[test]
fn root_a_join_starts_what_was_stopped() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("task_clock"), None);
    let member = open(&mut attachments, &stores_to(&WORD), Some(leader));
    attachments.disable(member).unwrap();
    spin(Duration::from_millis(20));
    attachments.disable(leader).unwrap();
    open(&mut attachments, &named("page_faults"), Some(leader));
    store(&WORD, 10);
    attachments.disable(leader).unwrap();
    let (of_leader, of_member) = (attachments.read(leader).unwrap(), attachments.read(member).unwrap());
    assert_eq!(of_member.raw, 10);
    assert_eq!(of_member.time_enabled, of_leader.time_enabled, "the pause before the join is forgotten");
}

#[test]
fn root_reset_of_the_leader_leaves_stopped_members_stopped() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("task_clock"), None);
    let member = open(&mut attachments, &stores_to(&WORD), Some(leader));
    attachments.disable(member).unwrap();
    spin(Duration::from_millis(20));
    attachments.reset(leader).unwrap();
    store(&WORD, 10);
    let reading = attachments.read(member).unwrap();
    assert_eq!((reading.raw, reading.time_enabled, reading.state), (0, 0, State::Idle));
    attachments.enable(member).unwrap();
    store(&WORD, 10);
    attachments.disable(leader).unwrap();
    let (of_leader, of_member) = (attachments.read(leader).unwrap(), attachments.read(member).unwrap());
    assert_eq!(of_member.raw, 10);
    assert!(of_member.time_enabled < of_leader.time_enabled, "{of_member:?} {of_leader:?}");
}

#[test]
fn root_enabling_the_leader_resumes_stopped_members() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("task_clock"), None);
    let member = open(&mut attachments, &stores_to(&WORD), Some(leader));
    attachments.disable(member).unwrap();
    attachments.disable(leader).unwrap();
    attachments.enable(member).unwrap();
    store(&WORD, 10);
    assert_eq!(attachments.read(member).unwrap().raw, 0, "a member counts while its leader does");
    attachments.disable(member).unwrap();
    attachments.enable(leader).unwrap();
    store(&WORD, 10);
    assert_eq!(attachments.read(member).unwrap().raw, 10);
}

#[test]
fn root_reset_of_a_member_leaves_the_others_alone() {
    static OF_LEADER: AtomicU64 = AtomicU64::new(0);
    static OF_MEMBER: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &stores_to(&OF_LEADER), None);
    let member = open(&mut attachments, &stores_to(&OF_MEMBER), Some(leader));
    store(&OF_LEADER, 10);
    store(&OF_MEMBER, 20);
    let before = attachments.read(leader).unwrap();
    attachments.reset(member).unwrap();
    store(&OF_MEMBER, 3);
    attachments.disable(leader).unwrap();
    let (of_leader, of_member) = (attachments.read(leader).unwrap(), attachments.read(member).unwrap());
    assert_eq!((of_leader.raw, of_member.raw), (10, 3));
    assert!(of_leader.time_enabled > before.time_enabled);
    assert!(of_member.time_enabled <= of_leader.time_enabled - before.time_enabled);

    attachments.reset(leader).unwrap();
    for id in [leader, member] {
        let reading = attachments.read(id).unwrap();
        assert_eq!((reading.raw, reading.time_enabled, reading.state), (0, 0, State::Idle));
    }
}

#[test]
fn root_a_software_group_may_have_70_members() {
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("page_faults"), None);
    let members: Vec<AttachmentId> =
        (0..70).map(|_| open(&mut attachments, &named("page_faults"), Some(leader))).collect();
    fault(10);
    attachments.disable(leader).unwrap();
    let snapshot = attachments.snapshot(members[69]).unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.own), (71, 70));
    assert!(snapshot.entries[0].raw >= 10);
    assert!(
        snapshot.entries.iter().all(|entry| entry.raw == snapshot.entries[0].raw),
        "all count the same faults"
    );
    assert_eq!(attachments.read(members[40]).unwrap().raw, snapshot.entries[0].raw);
}

#[test]
fn root_a_detached_member_leaves_the_group_counting() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &stores_to(&WORD), None);
    let first = open(&mut attachments, &named("page_faults"), Some(leader));
    let second = open(&mut attachments, &named("context_switches"), Some(leader));
    store(&WORD, 10);
    let before = attachments.read(leader).unwrap();
    attachments.detach(first);
    store(&WORD, 10);
    let after = attachments.read(leader).unwrap();
    assert_eq!(after.raw, 20, "no restart");
    assert!(after.time_enabled > before.time_enabled);
    let snapshot = attachments.snapshot(second).unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.own), (2, 1));
    assert_eq!(attachments.read(first), Err(PerfError::Stale(first)));
    assert!(attachments.read(second).is_ok());
}

#[test]
fn root_detaching_the_leader_detaches_its_members() {
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("page_faults"), None);
    let member = open(&mut attachments, &named("task_clock"), Some(leader));
    let other = open(&mut attachments, &named("dummy"), None);
    attachments.detach(leader);
    for stale in [leader, member] {
        assert_eq!(attachments.read(stale), Err(PerfError::Stale(stale)));
        assert_eq!(attachments.snapshot(stale), Err(PerfError::Stale(stale)));
        assert_eq!(attachments.enable(stale), Err(PerfError::Stale(stale)));
        assert_eq!(attachments.disable(stale), Err(PerfError::Stale(stale)));
        attachments.detach(stale);
    }
    let joined = attachments.open(&named("dummy"), &own_thread(), Some(leader), None);
    assert!(matches!(joined, Err(PerfError::Refused { refusal: Refusal::StaleLeader(_), .. })), "{joined:?}");
    assert!(attachments.read(other).is_ok());
}

#[test]
fn root_a_member_that_fails_leaves_the_group_at_its_old_start() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &stores_to(&WORD), None);
    let member = open(&mut attachments, &named("task_clock"), Some(leader));
    store(&WORD, 10);
    spin(Duration::from_millis(5));
    let before = attachments.read(leader).unwrap();

    let no_such_cpu_watch = Event::breakpoint(
        WORD.as_ptr() as u64 + 1,
        8,
        ks_host::perf::Access { write: true, ..Default::default() },
    );
    attachments.open(&no_such_cpu_watch.unwrap(), &own_thread(), Some(leader), None).unwrap_err();
    let failing = program(|_| Err(Errno::EACCES));
    attachments.open(&named("page_faults"), &own_thread(), Some(leader), failing).unwrap_err();

    store(&WORD, 10);
    let after = attachments.read(leader).unwrap();
    assert_eq!(after.raw, 20);
    assert!(after.time_enabled > before.time_enabled);
    assert_eq!(attachments.snapshot(member).unwrap().entries.len(), 2);
}

#[test]
fn root_a_member_can_carry_a_program() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let leader = open(&mut attachments, &named("task_clock"), None);
    let link = program(|_| {
        store(&WORD, 10);
        some_descriptor()
    });
    let member = attachments.open(&stores_to(&WORD), &own_thread(), Some(leader), link).unwrap();
    store(&WORD, 10);
    assert_eq!(attachments.read(member).unwrap().raw, 10, "what came before the restart is not counted");
}

#[test]
fn root_an_inherited_group_counts_children_and_may_lose_a_member() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let mut attachments = Attachments::new();
    let inheriting = Options { inherit: true, ..own_thread() };
    let leader = attachments.open(&stores_to(&WORD), &inheriting, None, None).unwrap();
    let member = attachments.open(&named("page_faults"), &inheriting, Some(leader), None).unwrap();
    let (end, wait) = mpsc::channel::<()>();
    let (stored_sender, stored) = mpsc::channel();
    let child = thread::spawn(move || {
        store(&WORD, 10);
        stored_sender.send(()).unwrap();
        wait.recv().unwrap_err();
        store(&WORD, 5);
    });
    stored.recv().unwrap();
    store(&WORD, 1);
    assert_eq!(attachments.read(leader).unwrap().raw, 11);
    attachments.detach(member);
    assert_eq!(attachments.read(leader).unwrap().raw, 11, "while the child lives, with one member less");
    drop(end);
    child.join().unwrap();
    assert_eq!(attachments.read(leader).unwrap().raw, 16, "when the child has ended");
    attachments.reset(leader).unwrap();
    store(&WORD, 2);
    assert_eq!(attachments.read(leader).unwrap().raw, 2);
}

/// The kernel cannot read a group that differs from the one a living child has inherited (ECHILD), nor open
/// the member when it has switched from the task to that child directly (EINVAL).
#[test]
fn root_joining_after_a_child_inherited_is_explained() {
    let mut attachments = Attachments::new();
    let inheriting = Options { inherit: true, ..own_thread() };
    let leader = attachments.open(&named("page_faults"), &inheriting, None, None).unwrap();
    let (end, wait) = mpsc::channel::<()>();
    let child = thread::spawn(move || wait.recv().unwrap_err());
    fault(20);
    let error = match attachments.open(&named("task_clock"), &inheriting, Some(leader), None) {
        Err(error) => error,
        // Kernels before 6.6 do not compare the two groups, and allow the read.
        Ok(member) => {
            assert!(kernel_version() < (6, 6), "the kernel took {member}");
            return;
        }
    };
    assert!(matches!(error.errno(), Some(Errno::ECHILD | Errno::EINVAL)), "{error}");
    assert!(error.to_string().contains("a child inherited the group"), "{error}");
    drop(end);
    child.join().unwrap();
    assert!(attachments.read(leader).unwrap().raw >= 20, "the leader goes on from its old start");
    assert_eq!(attachments.snapshot(leader).unwrap().entries.len(), 1);
}

fn kernel_version() -> (u32, u32) {
    ks_host::explain::Facts::read(0).kernel.unwrap()
}

#[test]
fn root_many_are_read_in_their_order_and_those_of_a_group_at_one_moment() {
    let mut attachments = Attachments::new();
    let clock = named("task_clock");
    let leader = open(&mut attachments, &clock, None);
    let member = open(&mut attachments, &clock, Some(leader));
    let [one, other] = [(); 2].map(|()| open(&mut attachments, &clock, None));
    let ids = [member, one, leader, other, leader];
    let [member, alone, ..] = attachments.read_many(&ids).unwrap()[..] else {
        panic!("one reading for each")
    };
    let again = attachments.read_many(&ids).unwrap();
    assert!(again[0].raw > member.raw && again[1].raw > alone.raw, "read anew: {again:?}");
    assert_eq!(again[2], again[4], "one that is asked for twice is read once");
    assert_eq!(again[0].time_enabled, again[2].time_enabled, "one moment: {again:?}");
    assert_ne!(again[1].time_enabled, again[3].time_enabled, "opened one after the other: {again:?}");
    assert_eq!(attachments.read_many(&[]), Ok(Vec::new()));
    attachments.detach(one);
    assert_eq!(attachments.read_many(&ids), Err(PerfError::Stale(one)));
    let none = AttachmentId::of(u64::MAX);
    assert_eq!(attachments.read(none), Err(PerfError::Stale(none)));
}
