//! Counters of CPUs that a worker reads itself: its readings are those of the broker. These tests need root.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ks_host::perf::{AttachmentId, Attachments, Catalog, Event, Notice, Options, Sysfs};
use ks_tests::mirror::Mirror;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, getppid};

fn calls() -> Event {
    Catalog::default().tracepoint("syscalls/sys_enter_getppid").expect("the kernel has it")
}

fn faults() -> Event {
    Event::named("page_faults").expect("every kernel has it")
}

/// Makes counted calls on one CPU. Afterwards this thread runs where it did.
fn ask(cpu: usize, times: u32) {
    let own = Pid::from_raw(0);
    let before = sched_getaffinity(own).expect("it may ask");
    let mut only = CpuSet::new();
    only.set(cpu).expect("the number of a CPU");
    sched_setaffinity(own, &only).expect("the CPU is online");
    for _ in 0..times {
        getppid();
    }
    sched_setaffinity(own, &before).expect("it ran there");
}

/// Whether there are two CPUs to run on.
fn has_two_cpus() -> bool {
    let cpus = sched_getaffinity(Pid::from_raw(0)).expect("it may ask");
    let both = [0, 1].iter().all(|cpu| cpus.is_set(*cpu) == Ok(true));
    assert!(both || std::env::var_os("CI").is_none(), "this machine has one CPU only");
    if !both {
        eprintln!("NOT TESTED: this machine has one CPU only");
    }
    both
}

/// A folder like `/sys` whose list of online CPUs and number of device events change.
struct Cpus(PathBuf);

impl Cpus {
    fn new(name: &str, online: &str) -> Cpus {
        let root = std::env::temp_dir().join(format!("ks-shared-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("devices/system/cpu")).expect("a temporary folder");
        fs::create_dir_all(root.join("kernel")).expect("a temporary folder");
        let cpus = Cpus(root);
        cpus.set(online, 1);
        cpus
    }

    fn set(&self, online: &str, device_events: u64) {
        let write = |file: &str, text: &str| fs::write(self.0.join(file), text).expect("a temporary file");
        write("devices/system/cpu/online", online);
        write("kernel/uevent_seqnum", &format!("{device_events}\n"));
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Opens a group of calls and page faults.
fn group(attachments: &mut Attachments, options: &Options) -> [AttachmentId; 2] {
    let leader = attachments.open(&calls(), options, None, None).unwrap_or_else(|error| panic!("{error}"));
    let member = attachments.open(&faults(), options, Some(leader), None);
    [leader, member.unwrap_or_else(|error| panic!("{error}"))]
}

#[test]
fn root_sums_over_cpus_are_those_of_the_broker() {
    // A thread that another test starts between the leader and the member would inherit half of a group.
    ks_tests::alone!();
    if !has_two_cpus() {
        return;
    }
    let own = i32::try_from(std::process::id()).expect("a number of a process");
    for options in [
        Options { pid: 0, every_cpu: true, ..Options::default() },
        Options { pid: own, every_cpu: true, follow: true, ..Options::default() },
        Options { pid: 0, cpu: 1, ..Options::default() },
    ] {
        let mut attachments = Attachments::new();
        let mut mirror = Mirror::of(&mut attachments);
        let [leader, member] = group(&mut attachments, &options);
        mirror.update(&mut attachments);
        ask(0, 5);
        ask(1, 10);
        let here = mirror.read(&mut attachments, leader);
        let there = attachments.read(leader).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((here.raw, here.partial, here.saturated), (there.raw, there.partial, there.saturated));
        let expected = if options.every_cpu { 15 } else { 10 };
        assert_eq!(here.raw, expected, "{here:?}");
        assert!(here.time_running <= there.time_running && here.time_enabled <= there.time_enabled);
        let here = mirror.snapshot(&mut attachments, member);
        let there = attachments.snapshot(member).unwrap_or_else(|error| panic!("{error}"));
        let ids = |entries: &ks_host::perf::Entries| -> Vec<_> {
            entries.iter().map(|entry| (entry.id, entry.kernel_id)).collect()
        };
        assert_eq!((ids(&here.entries), here.own), (ids(&there.entries), there.own));
        let on_cpu = mirror.snapshot_cpu(&mut attachments, leader, 1);
        assert_eq!(on_cpu.entries[0].raw, 10, "{on_cpu:?}");
        attachments.disable(member).expect("it is open");
        attachments.reset(leader).expect("it is open");
        mirror.update(&mut attachments);
        ask(1, 3);
        let here = mirror.read(&mut attachments, leader);
        assert_eq!(here.raw, 3, "{here:?}");
        // A small share of the time is reported once: only the broker does that.
        assert!(mirror.asked <= 2, "{} of its readings were asked for", mirror.asked);
        attachments.detach(leader);
        mirror.update(&mut attachments);
        assert!(attachments.read(leader).is_err());
    }
}

/// Several groups at once, in any order, with repetitions.
#[test]
fn root_many_are_read_as_the_broker_reads_them() {
    let mut attachments = Attachments::new();
    let mut mirror = Mirror::of(&mut attachments);
    let own = Options { pid: 0, cpu: -1, ..Options::default() };
    let [one, member] = group(&mut attachments, &own);
    let [two, _] = group(&mut attachments, &Options { every_cpu: true, ..own.clone() });
    mirror.update(&mut attachments);
    for _ in 0..7 {
        getppid();
    }
    let ids = [two, member, one, two, one];
    let readings = mirror.read_many(&mut attachments, &ids);
    let raw = |index: usize| readings[index].raw;
    assert_eq!((readings.len(), raw(0), raw(2), raw(3), raw(4)), (5, 7, 7, 7, 7));
    assert_eq!(readings[1].time_enabled, readings[2].time_enabled, "one system call for each group");
    // A small share of the time on each CPU may have been reported.
    assert!(mirror.asked <= 1);
    assert_eq!(mirror.read_many(&mut attachments, &[]), []);
    attachments.detach(two);
    mirror.update(&mut attachments);
    let asked = mirror.asked;
    assert_eq!(mirror.read_many(&mut attachments, &[member, one]).len(), 2);
    assert_eq!(mirror.asked, asked);
}

/// Only the broker follows CPUs: a worker sees that its state is out of date, and asks once for each change.
#[test]
fn root_a_worker_asks_when_cpus_have_come_or_gone() {
    if !has_two_cpus() {
        return;
    }
    let cpus = Cpus::new("follow", "0-1\n");
    let mut attachments = Attachments::with_sysfs(Sysfs::at(&cpus.0));
    let mut mirror = Mirror::of(&mut attachments);
    // Of every task, so that no task's share of time is reported.
    let options = Options { pid: -1, every_cpu: true, ..Options::default() };
    let clock = Event::named("cpu_clock").expect("every kernel has it");
    let leader = attachments.open(&clock, &options, None, None).expect("it can be opened");
    mirror.update(&mut attachments);
    let mut reads = |what: &str, asks: u32| {
        let (before, first) = (mirror.asked, mirror.read(&mut attachments, leader));
        let second = mirror.read(&mut attachments, leader);
        assert_eq!(mirror.asked - before, asks, "{what}");
        assert!(second.raw > first.raw, "{what}");
        let of_broker = attachments.read(leader).expect("it is open");
        assert!(of_broker.raw > second.raw, "{what}");
        attachments.take_notices()
    };
    assert_eq!(reads("nothing has happened", 0), []);
    cpus.set("0-1\n", 2);
    assert_eq!(reads("another device came", 1), []);
    cpus.set("0\n", 3);
    let gone = reads("a CPU has gone", 1);
    assert!(gone.iter().any(|notice| matches!(notice, Notice::CpuGone { cpu: 1, .. })), "{gone:?}");
    assert_eq!(reads("it is away", 0), []);
    cpus.set("0-1\n", 4);
    let came = reads("it came back", 1);
    assert!(matches!(came[..], [Notice::CpuCame { cpu: 1, .. }]), "{came:?}");
    assert_eq!(reads("it counts", 0), []);
    // What the broker finds while it looks after the plugin reaches the worker with the next answer, of whatever call.
    cpus.set("0\n", 5);
    attachments.follow_cpus();
    mirror.update(&mut attachments);
    let before = mirror.asked;
    mirror.read(&mut attachments, leader);
    assert_eq!(mirror.asked, before);
    drop(attachments);
    // An event of one CPU is partial while that is away.
    let cpus = Cpus::new("one", "0-1\n");
    let mut attachments = Attachments::with_sysfs(Sysfs::at(&cpus.0));
    let mut mirror = Mirror::of(&mut attachments);
    let options = Options { pid: -1, cpu: 1, ..Options::default() };
    let leader = attachments.open(&clock, &options, None, None).expect("it can be opened");
    mirror.update(&mut attachments);
    assert!(!mirror.read(&mut attachments, leader).partial);
    cpus.set("0\n", 2);
    // It is looked at each 10 ms.
    thread::sleep(Duration::from_millis(20));
    let away = [(); 3].map(|()| mirror.read(&mut attachments, leader));
    assert!(away.iter().all(|reading| reading.partial && reading.raw == away[0].raw), "{away:?}");
    assert_eq!(mirror.asked, 1);
    cpus.set("0-1\n", 3);
    assert!(!mirror.read(&mut attachments, leader).partial);
    assert!(mirror.read(&mut attachments, leader).raw > away[0].raw);
}
