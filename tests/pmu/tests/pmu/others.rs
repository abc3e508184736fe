//! Counters that another process holds: what was not counted is no number.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use ks_host::perf::{Attachments, Event, Options, PerfError, State};
use ks_pmu_tests::{is_emulated, iterate};

use super::{has_pmu, user};

/// Names the events that the other process pins, separated by commas.
const HELD: &str = "KS_HELD";

/// Pins events on every CPU until the input ends, if this is the other process. Returns whether it is.
fn is_holder() -> bool {
    let Ok(held) = std::env::var(HELD) else { return false };
    let mut attachments = Attachments::new();
    let everywhere = Options { pid: -1, cpu: -1, every_cpu: true, pinned: true, ..Options::default() };
    for name in held.split(',') {
        let id = attachments.open(&Event::named(name).unwrap(), &everywhere, None, None).unwrap();
        assert_eq!(attachments.read(id).unwrap().state, State::Counted, "{name}");
    }
    println!("\nholding");
    std::io::stdin().lines().for_each(drop);
    true
}

/// A process that holds counters, until it is dropped.
struct Holder {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Starts the calling test in a process of its own, and waits until that holds a counter for each of the
    /// events.
    fn of(events: &[&str]) -> Holder {
        let thread = std::thread::current();
        let test = thread.name().expect("tests run on threads of their name");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", test])
            .env(HELD, events.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let holds = output.any(|line| line.unwrap() == "holding");
        assert!(holds, "the other process cannot hold {events:?}");
        Holder { process, output }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.output.by_ref().for_each(drop);
        let ended = self.process.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// The result of reading each event of a group, which is counted meanwhile; none for what was not counted.
fn count(events: &[&str], pinned: bool) -> Vec<Option<u64>> {
    let mut attachments = Attachments::new();
    let mut leader = None;
    let mut ids = Vec::new();
    for name in events {
        let options = Options { pinned: pinned && leader.is_none(), ..user() };
        let id = match attachments.open(&Event::named(name).unwrap(), &options, leader, None) {
            Ok(id) => id,
            // The group restarts when a member joins, and is read then.
            Err(PerfError::EndOfFile(_)) if pinned => return vec![None; events.len()],
            Err(error) => panic!("{events:?}: {error}"),
        };
        leader.get_or_insert(id);
        ids.push(id);
    }
    iterate(100_000);
    let snapshot = match attachments.snapshot(ids[0]) {
        Ok(snapshot) => snapshot,
        Err(PerfError::EndOfFile(_)) if pinned => {
            let readings: Vec<_> = ids.iter().map(|id| attachments.read(*id)).collect();
            assert!(readings.iter().all(|reading| reading.is_err()), "{events:?}: {readings:?}");
            return vec![None; events.len()];
        }
        Err(error) => panic!("{events:?}: {error}"),
    };
    for (id, entry) in ids.iter().zip(&snapshot.entries) {
        let reading = attachments.read(*id).unwrap();
        let is_number = entry.scaled.is_some();
        assert_eq!(reading.scaled.is_some(), is_number, "{events:?}: {reading:?} {snapshot:?}");
        let state = if is_number { State::Counted } else { State::NeverRan };
        assert_eq!((reading.state, snapshot.state), (state, state), "{events:?}: {reading:?} {snapshot:?}");
        assert_eq!(reading.raw > 0, is_number, "{events:?}: {reading:?}");
    }
    snapshot.entries.iter().map(|entry| entry.scaled).collect()
}

const INSTRUCTIONS: [&str; 6] = ["instructions"; 6];

#[test]
fn nothing_is_a_number_while_others_hold_every_counter() {
    if is_holder() || !has_pmu() || !is_emulated() {
        return;
    }
    let _holder = Holder::of(&[&INSTRUCTIONS[..], &["cpu_cycles"]].concat());
    for pinned in [false, true] {
        for events in [&["instructions"][..], &["cpu_cycles"], &["cpu_cycles", "instructions"]] {
            assert_eq!(count(events, pinned), vec![None; events.len()], "{events:?}, pinned: {pinned}");
        }
    }
}

#[test]
fn cycles_alone_are_a_number_while_others_leave_the_counter_of_cycles() {
    if is_holder() || !has_pmu() || !is_emulated() {
        return;
    }
    let _holder = Holder::of(&INSTRUCTIONS);
    for pinned in [false, true] {
        let cycles = count(&["cpu_cycles"], pinned);
        assert!(cycles[0].is_some_and(|cycles| cycles > 100_000), "{cycles:?}, pinned: {pinned}");
        for events in [&["instructions"][..], &["cpu_cycles", "instructions"]] {
            assert_eq!(count(events, pinned), vec![None; events.len()], "{events:?}, pinned: {pinned}");
        }
    }
}
