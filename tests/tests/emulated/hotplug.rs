//! CPUs that go offline and come back while plugins count on all of them, in an emulated machine with two.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ks_host::bpf::{Map, Object, TestInput};
use ks_host::host_bytes::HostBytes;
use ks_host::perf::{AttachmentId, Attachments, Catalog, Event, EventArray, Notice, Options, OutputRings};
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::mirror::Mirror;
use ks_tests::plugins::{admitted, elf};
use ks_tests::watched::Running;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, getppid};

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["guest_"]);
}

fn set_online(online: bool) {
    let value = if online { "1" } else { "0" };
    std::fs::write("/sys/devices/system/cpu/cpu1/online", value).expect("this CPU can be taken away");
}

/// Runs this on one CPU. Afterwards this thread may run on any CPU.
fn on_cpu<T>(cpu: usize, run: impl FnOnce() -> T) -> T {
    let pin = |cpus: &[usize]| {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu).expect("the number of a CPU"));
        sched_setaffinity(Pid::from_raw(0), &set).expect("the CPU is online");
    };
    pin(&[cpu]);
    let result = run();
    pin(&[0, 1]);
    result
}

/// Makes counted calls on one CPU.
fn ask(cpu: usize, times: u32) {
    on_cpu(cpu, || {
        for _ in 0..times {
            getppid();
        }
    });
}

fn calls() -> Event {
    Catalog::default().tracepoint("syscalls/sys_enter_getppid").expect("the kernel has it")
}

/// Returns options for a task, or for every task, on every CPU.
fn everywhere(pid: i32) -> Options {
    Options { pid, every_cpu: true, ..Options::default() }
}

fn raw(attachments: &mut Attachments, id: AttachmentId) -> u64 {
    attachments.read(id).unwrap_or_else(|error| panic!("{error}")).raw
}

/// Returns the CPUs of the notices, as negative numbers for CPUs that went offline.
fn cpu_notices(attachments: &mut Attachments) -> Vec<i32> {
    let cpu = |notice: Notice| match notice {
        Notice::CpuGone { cpu, .. } => -cpu,
        Notice::CpuCame { cpu, .. } => cpu,
        other => panic!("{other}"),
    };
    attachments.take_notices().into_iter().map(cpu).collect()
}

#[test]
fn guest_counts_continue_when_a_cpu_goes_offline_and_online_again() {
    if inside().is_none() {
        return;
    }
    for pid in [-1, 0] {
        let mut attachments = Attachments::new();
        let leader = attachments.open(&calls(), &everywhere(pid), None, None).unwrap();
        let clock = Event::named("page_faults").unwrap();
        let member = attachments.open(&clock, &everywhere(pid), Some(leader), None).unwrap();
        let stopped = attachments.open(&calls(), &everywhere(pid), Some(leader), None).unwrap();
        attachments.disable(stopped).unwrap();
        ask(1, 10);
        ask(0, 5);
        assert_eq!(raw(&mut attachments, leader), 15);
        let faults = raw(&mut attachments, member);
        assert!(cpu_notices(&mut attachments).is_empty());

        set_online(false);
        assert_eq!(raw(&mut attachments, leader), 15, "what was counted there stays");
        assert_eq!(cpu_notices(&mut attachments), [-1]);
        assert!(raw(&mut attachments, member) >= faults);
        ask(0, 3);
        assert_eq!(raw(&mut attachments, leader), 18);
        let kept = attachments.snapshot_cpu(leader, 1).expect("what was counted there is kept");
        assert_eq!((kept.entries[0].raw, kept.partial), (10, true));

        set_online(true);
        ask(1, 100);
        assert_eq!(raw(&mut attachments, leader), 18, "what happened before the kernel was asked is the gap");
        assert_eq!(cpu_notices(&mut attachments), [1], "which is told with the reading");
        ask(1, 4);
        ask(0, 2);
        let snapshot = attachments.snapshot(member).unwrap();
        assert_eq!((snapshot.entries[0].raw, snapshot.own, snapshot.entries.len()), (24, 1, 3));
        let both = attachments.snapshot_cpu(leader, 1).unwrap();
        assert_eq!((both.entries[0].raw, both.partial), (14, false), "before it went, and since it is back");
        assert_eq!(raw(&mut attachments, stopped), 0, "what was stopped stays so on a CPU that comes");
        attachments.reset(leader).unwrap();
        ask(1, 7);
        assert_eq!(raw(&mut attachments, leader), 7, "a reset forgets what had gone, too");
    }
}

/// Between two readings a CPU may go offline and come back: the kernel has ended the counters there, and
/// reports it nowhere.
#[test]
fn guest_a_cpu_that_was_away_between_two_readings_counts_on() {
    if inside().is_none() {
        return;
    }
    let mut attachments = Attachments::new();
    let id = attachments.open(&calls(), &everywhere(-1), None, None).unwrap();
    ask(1, 10);
    assert_eq!(raw(&mut attachments, id), 10);
    for times in 1..4 {
        set_online(false);
        set_online(true);
        assert_eq!(raw(&mut attachments, id), 10 * times);
        assert_eq!(cpu_notices(&mut attachments), [-1, 1]);
        ask(1, 10);
    }
    assert_eq!(raw(&mut attachments, id), 40);
    assert!(cpu_notices(&mut attachments).is_empty());
}

/// A worker reads by itself, until the kernel's number of device events says that its state is out of date.
#[test]
fn guest_a_worker_notices_that_a_cpu_went_and_came() {
    if inside().is_none() {
        return;
    }
    let mut attachments = Attachments::new();
    let mut mirror = Mirror::of(&mut attachments);
    let id = attachments.open(&calls(), &everywhere(-1), None, None).unwrap();
    mirror.update(&mut attachments);
    ask(1, 10);
    assert_eq!((mirror.read(&mut attachments, id).raw, mirror.asked), (10, 0));
    set_online(false);
    assert_eq!(mirror.read(&mut attachments, id).raw, 10);
    let asked = mirror.asked;
    assert!(asked > 0);
    ask(0, 5);
    assert_eq!((mirror.read(&mut attachments, id).raw, mirror.asked), (15, asked));
    set_online(true);
    assert_eq!(mirror.read(&mut attachments, id).raw, 15);
    ask(1, 4);
    assert_eq!(mirror.read(&mut attachments, id).raw, 19);
    let asked = mirror.asked;
    set_online(false);
    set_online(true);
    assert_eq!(mirror.read(&mut attachments, id).raw, 19, "the kernel has ended the counters meanwhile");
    assert!(mirror.asked > asked);
    ask(1, 1);
    assert_eq!(mirror.read(&mut attachments, id).raw, 20);
}

/// An event of one CPU, whose stopped count nothing else would report.
#[test]
fn guest_an_event_of_one_cpu_is_partial_while_that_is_away_and_counts_when_it_is_back() {
    if inside().is_none() {
        return;
    }
    let mut attachments = Attachments::new();
    let of_one = Options { pid: -1, cpu: 1, ..Options::default() };
    let id = attachments.open(&calls(), &of_one, None, None).unwrap();
    let read = |attachments: &mut Attachments| {
        // A waiting plugin does the same.
        attachments.follow_cpus();
        let reading = attachments.read(id).unwrap_or_else(|error| panic!("{error}"));
        (reading.raw, reading.partial)
    };
    ask(1, 10);
    assert_eq!(read(&mut attachments), (10, false));
    set_online(false);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(read(&mut attachments), (10, true));
    assert_eq!(cpu_notices(&mut attachments), [-1]);
    ask(0, 5);
    assert_eq!(read(&mut attachments), (10, true));
    set_online(true);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(read(&mut attachments), (10, false));
    assert_eq!(cpu_notices(&mut attachments), [1]);
    ask(1, 7);
    assert_eq!(read(&mut attachments), (17, false));
}

/// A sampler without readers: its program runs on a CPU that came back.
#[test]
fn guest_a_sampler_follows_a_cpu_that_comes_back_without_being_read() {
    if inside().is_none() {
        return;
    }
    let linked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = std::sync::Arc::clone(&linked);
    let mut attachments = Attachments::new();
    let clock = Event::named("cpu-clock").unwrap();
    let options = Options { freq: 100, ..everywhere(-1) };
    // Counts the events that the program is linked to.
    let link: ks_host::perf::LinkProgram =
        std::sync::Arc::new(move |event: std::os::fd::BorrowedFd<'_>, _| {
            count.fetch_add(1, Ordering::Relaxed);
            event.try_clone_to_owned().map_err(|_| nix::errno::Errno::EMFILE)
        });
    let id = attachments.open(&clock, &options, None, Some(link)).unwrap();
    assert_eq!(linked.load(Ordering::Relaxed), 2);
    set_online(false);
    assert!(attachments.follow_cpus(), "there is something to follow");
    set_online(true);
    attachments.follow_cpus();
    assert_eq!(linked.load(Ordering::Relaxed), 3, "the program is linked to the CPU that came back");
    assert_eq!(cpu_notices(&mut attachments), [-1, 1]);
    attachments.detach(id);
    assert!(!attachments.follow_cpus());
}

/// The array of an object.
struct Events(Arc<Map>);

impl EventArray for Events {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn put(&self, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        self.0.put_event(cpu as u32, event)
    }

    fn remove(&self, cpu: i32) {
        self.0.remove_event(cpu as u32);
    }
}

/// Records of a CPU that went offline stay, and the CPU has a ring again when it is back, also while the old one
/// is not empty.
#[test]
fn guest_rings_of_an_array_of_events_follow_a_cpu() {
    if inside().is_none() {
        return;
    }
    const PAGE: u32 = 4096;
    let mut object = Object::open(admitted("emit", &elf::emitting()).expect("sound")).expect("sound");
    let array = Arc::new(Events(object.event_array("m").expect("it loads")));
    let room = HostBytes::new(1 << 20);
    let mut rings = Attachments::new().output_rings(array, PAGE, &room).expect("both CPUs have one");
    let mut emit = |cpu: usize, records: u32| {
        let ran = on_cpu(cpu, || {
            let run =
                |_| object.program("emit").and_then(|emit| emit.test_run(&TestInput::default())).map(drop);
            (0..records).try_for_each(run)
        });
        ran.unwrap_or_else(|error| panic!("{error}"));
    };
    emit(0, 2);
    emit(1, 3);
    set_online(false);
    assert_eq!(rings.follow_cpus(), []);
    assert_eq!(rings.size(), PAGE, "of CPU 0");
    emit(0, 4);
    set_online(true);
    assert_eq!(rings.follow_cpus(), []);
    assert_eq!(rings.size(), 2 * PAGE);
    emit(1, 1);
    // The first record is looked at, and stays.
    rings.take(&mut |_| false);
    let mut records = Vec::new();
    let mut take = |rings: &mut OutputRings| {
        rings.take(&mut |record| {
            records.push(record[..8] == [7, 0, 0, 0, 0, 0, 0, 0]);
            true
        });
        records.len()
    };
    assert_eq!(take(&mut rings), 10);
    emit(1, 5);
    assert_eq!(take(&mut rings), 15, "the ring of a CPU that is back is not that which was taken away");
    // A record takes 32 bytes, and the ring is never full to its last byte.
    emit(1, 200);
    let (taken, lost) = (take(&mut rings) - 15, rings.losses().count());
    assert!(taken >= 100 && taken as u64 + lost == 200, "{taken} {lost}");
    set_online(false);
    assert_eq!(rings.follow_cpus(), []);
    assert_eq!(rings.losses().count(), lost, "what was lost there stays");
    set_online(true);
    assert!(records.into_iter().all(|is_sound| is_sound));
}

/// A CPU goes offline and online as fast as the kernel allows, while all attachments are read, joined,
/// stopped and started.
#[test]
fn guest_readings_never_go_back() {
    if inside().is_none() {
        return;
    }
    const ITERATIONS: u32 = 25;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for iteration in 0..ITERATIONS {
                set_online(false);
                // Sometimes the CPU is back at once, sometimes it stays offline for a while.
                std::thread::sleep(Duration::from_millis(u64::from(iteration % 4) * 3));
                set_online(true);
                std::thread::sleep(Duration::from_millis(u64::from(iteration % 3) * 4));
            }
            over.store(true, Ordering::Release);
        });
        let mut attachments = Attachments::new();
        let mut open = |event: &str, pid, leader| {
            let event = Catalog::default().named(event).unwrap_or_else(|error| panic!("{error}"));
            let opened = attachments.open(&event, &everywhere(pid), leader, None);
            opened.unwrap_or_else(|error| panic!("{error}"))
        };
        let alone = open("cpu-clock", -1, None);
        let leader = open("cpu-clock", -1, None);
        let member = open("syscalls:sys_enter_getppid", -1, Some(leader));
        let of_task = open("task-clock", 0, None);
        let of_task_too = open("page-faults", 0, Some(of_task));
        let all = [alone, leader, member, of_task, of_task_too];
        let mut last = [0; 5];
        let (mut iterations, mut changing) = (0, 0);
        while !over.load(Ordering::Acquire) {
            for (id, last) in all.iter().zip(&mut last) {
                let reading =
                    attachments.read(*id).unwrap_or_else(|error| panic!("after {iterations}: {error}"));
                let snapshot =
                    attachments.snapshot(*id).unwrap_or_else(|error| panic!("after {iterations}: {error}"));
                let own = snapshot.entries[snapshot.own].raw;
                assert!(*last <= reading.raw && reading.raw <= own, "{last} {} {own}", reading.raw);
                *last = own;
                getppid();
            }
            // Meanwhile a group of its own is changed.
            let opened = attachments.open(&calls(), &everywhere(-1), None, None);
            let fresh = opened.unwrap_or_else(|error| panic!("after {iterations}: {error}"));
            let cpu_clock = Event::named("cpu-clock").unwrap();
            let joined = attachments.open(&cpu_clock, &everywhere(-1), Some(fresh), None);
            let joined = joined.unwrap_or_else(|error| panic!("after {iterations}: {error}"));
            for done in [
                attachments.reset(fresh),
                attachments.disable(joined),
                attachments.enable(joined),
                attachments.disable(fresh),
                attachments.enable(fresh),
            ] {
                done.unwrap_or_else(|error| panic!("after {iterations}: {error}"));
            }
            attachments.detach(fresh);
            changing += attachments.take_notices().len();
            iterations += 1;
        }
        assert!(iterations > 10 && changing > 10, "{iterations} {changing}");
        // In the end both CPUs are counted.
        for id in all {
            attachments.read(id).unwrap_or_else(|error| panic!("{error}"));
        }
        let before = attachments.read(member).unwrap().raw;
        ask(1, 1000);
        ask(0, 1000);
        assert_eq!(attachments.read(member).unwrap().raw, before + 2000);
        assert_eq!(attachments.live().iter().map(|live| live.locations).collect::<Vec<_>>(), [2; 5]);
    });
}

/// A plugin that reads nothing follows the CPUs, too, while it waits.
#[test]
fn guest_a_waiting_plugin_samples_a_cpu_that_came_back() {
    if inside().is_none() {
        return;
    }
    // Nothing of this process runs on CPU 1 before it came back.
    on_cpu(0, || {
        let script = include_str!("scripts/hotplug_waits.ks");
        let running = Running::start("waits", script, &[format!("--pid={}", std::process::id())]);
        set_online(false);
        // The host looks at the CPUs twice in a second.
        std::thread::sleep(Duration::from_millis(1500));
        set_online(true);
        std::thread::sleep(Duration::from_millis(1500));
        on_cpu(1, || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                std::hint::spin_loop();
            }
        });
        let outcome = running.stop();
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        // Some 200; what an emulated CPU gets of its machine varies.
        assert!(outcome.numbers("samples")[0] >= 20, "{outcome:#?}");
    });
}
