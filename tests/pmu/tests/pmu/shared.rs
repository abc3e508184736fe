//! Counters of one thread that another one opens: as `ks-host` does for a plugin's process.

use std::sync::mpsc;
use std::thread;

use ks_host::perf::{AttachmentId, Attachments, Change, Event, SharedGroups, State};
use ks_pmu_tests::{is_emulated, iterate};
use nix::unistd::gettid;

use super::{USER_ACCESS, has_pmu, instructions, system_calls, user};

/// What the thread that reads gets from the one that has opened the events.
type Passed = ([AttachmentId; 2], Vec<Change>);

/// Takes what the other thread passes on. Returns the leader and the member.
fn take(groups: &mut SharedGroups, (ids, changes): Passed) -> [AttachmentId; 2] {
    for change in changes {
        match change {
            Change::Event { kernel_id, descriptor } => groups.add(kernel_id, descriptor),
            Change::CpuEvents { descriptor } => groups.watch_cpus(descriptor),
            Change::Group { leader, state } => groups.set(leader.get(), state),
        }
    }
    ids
}

/// Reads a group of the calling thread; `next` has it opened, and then reset. A reading from user space lies between the
/// kernel's readings before and after it, in counts and times. Returns the number of read(2) calls of 40 readings.
fn check_readings(mut next: impl FnMut() -> Passed) -> u64 {
    let mut groups = SharedGroups::default();
    let ids = take(&mut groups, next());
    let mut of_kernel = 0;
    let calls = system_calls(|| {
        for iteration in 0..20 {
            if iteration == 10 {
                take(&mut groups, next());
            }
            iterate(10_000);
            for (own, id) in ids.into_iter().enumerate() {
                let before = groups.snapshot(id).unwrap();
                let reading = groups.read(id).unwrap();
                let after = groups.snapshot(id).unwrap();
                of_kernel += 2;
                let between = before.entries[own].raw..=after.entries[own].raw;
                assert!(between.contains(&reading.raw), "{between:?} {reading:?}");
                let between = before.time_enabled..=after.time_enabled;
                assert!(between.contains(&reading.time_enabled), "{between:?} {reading:?}");
                assert_eq!((reading.state, reading.time_running), (State::Counted, reading.time_enabled));
            }
        }
    });
    calls - of_kernel
}

/// Opens a group for another thread, which reads it.
fn check_readings_of_another() -> u64 {
    let (ask, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let reader = thread::spawn(move || {
        check_readings(|| {
            ask.send(gettid().as_raw()).unwrap();
            answers.recv().unwrap()
        })
    });
    let mut attachments = Attachments::new();
    attachments.share();
    attachments.set_own_task(asked.recv().unwrap());
    let cycles = attachments.open(&Event::named("cpu_cycles").unwrap(), &user(), None, None).unwrap();
    let member = attachments.open(&instructions(), &user(), Some(cycles), None).unwrap();
    answer.send(([cycles, member], attachments.take_changes().unwrap())).unwrap();
    asked.recv().unwrap();
    attachments.reset(cycles).unwrap();
    answer.send(([cycles, member], attachments.take_changes().unwrap())).unwrap();
    reader.join().unwrap()
}

#[test]
fn counters_that_another_opened_are_read_without_the_kernel_where_it_allows_it() {
    if !has_pmu() {
        return;
    }
    if !is_emulated() {
        // The numbers are right whether the kernel allows it or not.
        assert!(check_readings_of_another() <= 40);
        return;
    }
    std::fs::write(USER_ACCESS, "0").unwrap();
    assert_eq!(check_readings_of_another(), 40, "the kernel reads");
    std::fs::write(USER_ACCESS, "1").unwrap();
    assert_eq!(check_readings_of_another(), 0, "the registers are read");
    std::fs::write(USER_ACCESS, "0").unwrap();
}
