//! Machines with several kinds of core, each with its own PMU: one attachment counts on all of them.
//!
//! The emulated one has `armv8_cortex_a72` on CPU 0 and `armv8_cortex_a53` on CPU 1.

use ks_host::perf::{
    AttachmentId, Attachments, Catalog, Event, EventTable, Notice, Options, PerfError, Reading, Refusal,
    State, Sysfs,
};
use ks_pmu_tests::{INSNS_PER_ITERATION, iterate};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const BIG: &str = "armv8_cortex_a72";
const LITTLE: &str = "armv8_cortex_a53";

/// Returns whether this is the emulated hybrid machine. No other has these PMUs on these CPUs.
fn is_hybrid() -> bool {
    let emulated = std::env::var("KS_EMULATED").is_ok_and(|machine| machine.ends_with("-hybrid"));
    if emulated {
        let names = [format!("{LITTLE} (cpus 1)"), format!("{BIG} (cpus 0)")];
        assert_eq!(Catalog::default().core_names(), names);
    } else {
        eprintln!("not run here: the emulated machine with two kinds of core runs it");
    }
    emulated
}

/// Runs the loop on one CPU. Afterwards this thread may run on any CPU.
fn iterate_on(cpu: usize, iterations: u64) {
    let pin = |cpus: &[usize]| {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu).unwrap());
        sched_setaffinity(Pid::from_raw(0), &set).unwrap();
    };
    pin(&[cpu]);
    iterate(iterations);
    pin(&[0, 1]);
}

fn named(name: &str) -> Event {
    Catalog::default().named(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn on(pmu: &str, event: &str) -> Event {
    named(&format!("{pmu}/{event}/"))
}

/// Returns options for the own thread, in user code.
fn user() -> Options {
    Options { pid: 0, cpu: -1, exclude_kernel: true, ..Options::default() }
}

fn open(attachments: &mut Attachments, event: &Event, leader: Option<AttachmentId>) -> AttachmentId {
    attachments.open(event, &user(), leader, None).unwrap_or_else(|error| panic!("{error}"))
}

/// Asserts a count of the loop and of the code around it: a thread that moves to another CPU, a read.
#[track_caller]
fn assert_iterations(counted: u64, iterations: u64) {
    let least = INSNS_PER_ITERATION * iterations;
    assert!((least..least + least / 20 + 200_000).contains(&counted), "{counted} for {iterations} rounds");
}

fn read(attachments: &mut Attachments, id: AttachmentId) -> Reading {
    attachments.read(id).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_task_is_counted_on_every_kind_of_core() {
    if !is_hybrid() {
        return;
    }
    let mut attachments = Attachments::new();
    let both = open(&mut attachments, &named("instructions"), None);
    let raw = open(&mut attachments, &named("r8"), None);
    let big = open(&mut attachments, &on(BIG, "instructions"), None);
    let little = open(&mut attachments, &on(LITTLE, "inst_retired"), None);
    assert_eq!(attachments.live().iter().map(|live| live.locations).collect::<Vec<_>>(), [2, 2, 1, 1]);
    [both, raw, big, little].iter().for_each(|id| attachments.reset(*id).unwrap());
    iterate_on(0, 20_000_000);
    iterate_on(1, 10_000_000);
    for id in [both, raw] {
        let reading = read(&mut attachments, id);
        assert_iterations(reading.raw, 30_000_000);
        assert_eq!((reading.scaled, reading.state), (Some(reading.raw), State::Counted), "{reading:?}");
        assert!(!reading.partial);
    }
    for (id, iterations) in [(big, 20_000_000), (little, 10_000_000)] {
        let reading = read(&mut attachments, id);
        assert_iterations(reading.raw, iterations);
        assert_eq!(reading.state, State::Multiplexed, "the task was elsewhere, too: {reading:?}");
    }
    assert!(attachments.take_notices().is_empty());
}

#[test]
fn a_task_that_stays_on_one_kind_is_counted_in_full() {
    if !is_hybrid() {
        return;
    }
    for cpu in [0, 1] {
        let mut attachments = Attachments::new();
        let id = open(&mut attachments, &named("instructions"), None);
        let mut set = CpuSet::new();
        set.set(cpu).unwrap();
        sched_setaffinity(Pid::from_raw(0), &set).unwrap();
        attachments.reset(id).unwrap();
        iterate(10_000_000);
        let reading = read(&mut attachments, id);
        assert_iterations(reading.raw, 10_000_000);
        assert_eq!(
            (reading.scaled, reading.state, reading.partial),
            (Some(reading.raw), State::Counted, false)
        );
        iterate_on(1 - cpu, 1);
    }
}

#[test]
fn a_group_has_a_branch_on_every_kind() {
    if !is_hybrid() {
        return;
    }
    let mut attachments = Attachments::new();
    let cycles = open(&mut attachments, &named("cycles"), None);
    let instructions = open(&mut attachments, &named("instructions"), Some(cycles));
    let clock = open(&mut attachments, &named("task-clock"), Some(cycles));
    let big = open(&mut attachments, &on(BIG, "instructions"), Some(cycles));
    iterate_on(0, 10_000_000);
    iterate_on(1, 20_000_000);
    attachments.disable(cycles).unwrap();
    let snapshot = attachments.snapshot(instructions).unwrap();
    let [cycles, instructions, time, of_big] = [0, 1, 2, 3].map(|entry| snapshot.entries[entry].raw);
    assert_iterations(instructions, 30_000_000);
    assert_iterations(of_big, 10_000_000);
    assert!(cycles.abs_diff(2 * instructions) <= instructions / 500, "{snapshot:?}");
    assert_eq!((snapshot.state, snapshot.partial, snapshot.own), (State::Counted, false, 1));
    // The kernel's clock also counts time in the kernel: all of the time for which the group was enabled.
    assert!(time.abs_diff(snapshot.time_enabled) <= time / 50, "{snapshot:?}");
    assert_eq!(read(&mut attachments, clock).raw, time);
    assert_eq!(read(&mut attachments, big).raw, of_big);
}

/// A clock as the leader counts on every CPU until a member binds its group to a kind of core.
#[test]
fn a_group_that_software_leads_is_split_and_counts_nothing_twice() {
    if !is_hybrid() {
        return;
    }
    let mut attachments = Attachments::new();
    let clock = open(&mut attachments, &named("task-clock"), None);
    let faults = open(&mut attachments, &named("page-faults"), Some(clock));
    let instructions = open(&mut attachments, &named("instructions"), Some(clock));
    assert_eq!(attachments.live()[0].locations, 2);
    let both = |attachments: &mut Attachments| {
        iterate_on(0, 10_000_000);
        iterate_on(1, 20_000_000);
        let reading = read(attachments, clock);
        assert!(reading.raw.abs_diff(reading.time_enabled) <= reading.raw / 50, "{reading:?}");
        // An iteration takes 4 ns, so double counting would show.
        assert!((120_000_000..200_000_000).contains(&reading.raw), "{reading:?}");
        assert_eq!(reading.state, State::Counted);
    };
    both(&mut attachments);
    assert_iterations(read(&mut attachments, instructions).raw, 30_000_000);
    // The kernel leaves the groups on their PMUs after the member is detached.
    attachments.detach(instructions);
    attachments.reset(clock).unwrap();
    both(&mut attachments);
    // A member of one kind does not stop the leader from counting on the other kind.
    let big = open(&mut attachments, &on(BIG, "instructions"), Some(clock));
    both(&mut attachments);
    assert_iterations(read(&mut attachments, big).raw, 10_000_000);
    assert!(read(&mut attachments, faults).raw < 1000);
}

/// In a group led by a clock, a member of one kind of core binds the group to it; a member of the other kind
/// gets a group of its own.
#[test]
fn members_of_both_kinds_share_a_leader_of_none() {
    if !is_hybrid() {
        return;
    }
    let mut attachments = Attachments::new();
    let clock = open(&mut attachments, &named("task-clock"), None);
    let big = open(&mut attachments, &on(BIG, "instructions"), Some(clock));
    iterate_on(0, 10_000_000);
    iterate_on(1, 10_000_000);
    let reading = read(&mut attachments, clock);
    assert_eq!(reading.state, State::Multiplexed, "it is on a counter where its member is: {reading:?}");
    let little = open(&mut attachments, &on(LITTLE, "instructions"), Some(clock));
    iterate_on(0, 10_000_000);
    iterate_on(1, 20_000_000);
    assert_iterations(read(&mut attachments, big).raw, 10_000_000);
    assert_iterations(read(&mut attachments, little).raw, 20_000_000);
    assert_eq!(read(&mut attachments, clock).state, State::Counted);
}

#[test]
fn a_cpu_is_counted_by_the_pmu_of_its_kind() {
    if !is_hybrid() {
        return;
    }
    let mut attachments = Attachments::new();
    let of = |cpu| Options { cpu, exclude_kernel: true, ..Options::default() };
    let big = attachments.open(&named("instructions"), &of(0), None, None).unwrap();
    let little = attachments.open(&named("instructions"), &of(1), None, None).unwrap();
    attachments.open(&on(LITTLE, "cpu_cycles"), &of(1), Some(little), None).unwrap();
    let everywhere = Options { every_cpu: true, ..of(0) };
    let all = attachments.open(&named("instructions"), &everywhere, None, None).unwrap();
    let cycles = attachments.open(&named("cycles"), &everywhere, Some(all), None).unwrap();
    [big, little, all].iter().for_each(|id| attachments.reset(*id).unwrap());
    iterate_on(0, 20_000_000);
    iterate_on(1, 10_000_000);
    for (id, iterations) in [(big, 20_000_000), (little, 10_000_000), (all, 30_000_000)] {
        let reading = read(&mut attachments, id);
        assert_iterations(reading.raw, iterations);
        assert_eq!((reading.state, reading.partial), (State::Counted, false));
    }
    for (cpu, iterations) in [(0, 20_000_000), (1, 10_000_000)] {
        let snapshot = attachments.snapshot_cpu(cycles, cpu).unwrap();
        assert_iterations(snapshot.entries[0].raw, iterations);
        assert_iterations(snapshot.entries[1].raw, 2 * iterations);
    }

    let elsewhere = attachments.open(&on(BIG, "instructions"), &of(1), None, None).unwrap_err();
    let other = |cpus: &[i32]| Refusal::OtherPmuCpu { cpus: cpus.to_vec() };
    let refusal = |error| match error {
        PerfError::Refused { refusal, .. } => refusal,
        other => panic!("{other}"),
    };
    assert_eq!(refusal(elsewhere), other(&[0]));
    let member = attachments.open(&on(BIG, "instructions"), &everywhere, Some(all), None).unwrap_err();
    assert_eq!(refusal(member), other(&[0]), "it would be missing on the other CPU");
    let leader = open(&mut attachments, &on(BIG, "instructions"), None);
    let member = attachments.open(&on(LITTLE, "instructions"), &user(), Some(leader), None).unwrap_err();
    assert!(matches!(refusal(member), Refusal::OtherCores { .. }));
    // An event of both kinds counts on the leader's kind; a notice reports that the other is left out.
    let of_leader = open(&mut attachments, &named("cycles"), Some(leader));
    iterate_on(1, 1_000_000);
    iterate_on(0, 1_000_000);
    let reading = read(&mut attachments, of_leader);
    assert_iterations(reading.raw, 2_000_000);
    assert!(reading.partial);
    let notices = attachments.take_notices();
    assert!(matches!(&notices[..], [Notice::OtherCores { pmu, .. }] if pmu == LITTLE), "{notices:?}");
}

/// A fake sysfs declares another PMU for CPU 1, with the type of one that counts no hardware events.
#[test]
fn events_missing_on_a_kind_of_core_make_the_count_partial() {
    if !is_hybrid() {
        return;
    }
    let root = std::path::Path::new("/tmp/lacking");
    let pmus = root.join("bus/event_source/devices");
    let real = std::fs::read_to_string(format!("/sys/bus/event_source/devices/{BIG}/type")).unwrap();
    for (pmu, type_, cpus) in [("big", real.trim(), "0"), ("ghost", "1", "1")] {
        std::fs::create_dir_all(pmus.join(pmu)).unwrap();
        std::fs::write(pmus.join(pmu).join("type"), type_).unwrap();
        std::fs::write(pmus.join(pmu).join("cpus"), cpus).unwrap();
    }
    std::fs::create_dir_all(root.join("devices/system/cpu")).unwrap();
    std::fs::write(root.join("devices/system/cpu/online"), "0-1").unwrap();
    let catalog = Catalog::new(Sysfs::at(root), EventTable::default());
    let event = catalog.named("instructions").unwrap();
    let all = Options { every_cpu: true, exclude_kernel: true, ..Options::default() };
    for options in [user(), all.clone()] {
        let mut attachments = Attachments::with_sysfs(Sysfs::at(root));
        let id = attachments.open(&event, &options, None, None).unwrap_or_else(|error| panic!("{error}"));
        let notices = attachments.take_notices();
        assert!(matches!(&notices[..], [Notice::OtherCores { pmu, .. }] if pmu == "ghost"), "{notices:?}");
        assert!(notices[0].to_string().contains("ghost/instructions/"), "{}", notices[0]);
        attachments.reset(id).unwrap();
        iterate_on(0, 1_000_000);
        iterate_on(1, 1_000_000);
        let reading = read(&mut attachments, id);
        assert_iterations(reading.raw, 1_000_000);
        assert!(reading.partial, "{reading:?}");
        assert!(attachments.snapshot(id).unwrap().partial);
    }
    // Led by a clock, the group is on that kind alone.
    let mut attachments = Attachments::with_sysfs(Sysfs::at(root));
    let clock = open(&mut attachments, &named("task-clock"), None);
    let id = open(&mut attachments, &event, Some(clock));
    iterate_on(0, 1_000_000);
    iterate_on(1, 1_000_000);
    assert_iterations(read(&mut attachments, id).raw, 1_000_000);
    assert!(read(&mut attachments, id).partial);
    assert_eq!(read(&mut attachments, clock).state, State::Multiplexed);
    // A member on all CPUs whose leader counts on all: one CPU has no number for it.
    let clock = attachments.open(&named("cpu-clock"), &all, None, None).unwrap();
    let member = attachments.open(&event, &all, Some(clock), None).unwrap();
    let there = attachments.snapshot_cpu(clock, 1).unwrap();
    assert_eq!((there.entries[1].scaled, there.state), (None, State::Counted));
    assert!(attachments.snapshot_cpu(member, 1).is_err());
    assert!(attachments.snapshot_cpu(member, 0).is_ok());
    // No kind has the event: an error, as on every other machine.
    let missing = attachments.open(&catalog.named("cache-misses").unwrap(), &user(), None, None).unwrap_err();
    assert!(missing.to_string().contains("no counter for"), "{missing}");
}

#[test]
fn a_cpu_that_comes_back_is_counted_by_its_own_pmu() {
    if !is_hybrid() {
        return;
    }
    let set_online =
        |value: &str| std::fs::write("/sys/devices/system/cpu/cpu1/online", value).expect("CPUs go and come");
    let all = Options { every_cpu: true, exclude_kernel: true, ..Options::default() };
    let mut attachments = Attachments::new();
    let id = attachments.open(&named("cycles"), &all, None, None).unwrap();
    let member = attachments.open(&named("instructions"), &all, Some(id), None).unwrap();
    iterate_on(1, 10_000_000);
    set_online("0");
    assert_iterations(read(&mut attachments, member).raw, 10_000_000);
    set_online("1");
    read(&mut attachments, member);
    iterate_on(1, 10_000_000);
    assert_iterations(read(&mut attachments, member).raw, 20_000_000);
    // The count of a CPU that goes offline is kept.
    assert_iterations(attachments.snapshot_cpu(member, 1).unwrap().entries[1].raw, 20_000_000);
}

#[test]
fn free_counters_are_those_of_each_kind() {
    if !is_hybrid() {
        return;
    }
    let free = || {
        let mut found = Catalog::default().free_counters();
        found.retain(|free| free.event == "instructions");
        found.into_iter().map(|free| (free.pmu, free.counters)).collect::<Vec<_>>()
    };
    assert_eq!(free(), [(LITTLE.to_owned(), 6), (BIG.to_owned(), 6)]);
}

/// A thread may move to a core without the counter between finding its number and reading it.
#[test]
fn counters_of_one_kind_of_core_are_read_by_the_kernel() {
    const SETTING: &str = "/proc/sys/kernel/perf_user_access";
    if !is_hybrid() {
        return;
    }
    std::fs::write(SETTING, "1").unwrap();
    for event in [on(LITTLE, "instructions"), named("r8")] {
        let mut attachments = Attachments::new();
        let id = open(&mut attachments, &event, None);
        [0, 1].into_iter().for_each(|cpu| iterate_on(cpu, 1000));
        let calls = super::system_calls(|| assert!(read(&mut attachments, id).raw > 0));
        assert!(calls > 0, "{}", event.name());
    }
    std::fs::write(SETTING, "0").unwrap();
}
