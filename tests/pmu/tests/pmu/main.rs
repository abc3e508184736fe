//! Hardware events: exact counts, groups, more events than counters, and groups that do not fit.

mod hybrid;
mod others;
mod programs;
mod shared;

use ks_host::perf::{
    AttachmentId, Attachments, Catalog, Event, Notice, Options, PerfError, Reading, Snapshot, State,
};
use ks_pmu_tests::{INSNS_PER_ITERATION, is_emulated, iterate};

/// Whether an arm64 kernel lets user code read counters.
const USER_ACCESS: &str = "/proc/sys/kernel/perf_user_access";

/// Iterations that take a few tenths of a second of the machine's time: many rotations of multiplexed events.
const LONG: u64 = 60_000_000;

/// Returns options for the own thread, in user code.
fn user() -> Options {
    Options { pid: 0, cpu: -1, exclude_kernel: true, ..Options::default() }
}

fn instructions() -> Event {
    Event::named("instructions").unwrap()
}

/// Returns whether there is a PMU. The emulated machine must have one.
fn has_pmu() -> bool {
    let catalog = Catalog::default();
    let missing = catalog.why_not(&catalog.list("instructions")[0]);
    match missing {
        None => true,
        Some(error) if is_emulated() => panic!("{error}"),
        Some(error) => {
            eprintln!("not run here: {}; the emulated machine runs it", error.cause());
            false
        }
    }
}

/// Asserts that a count is exact on the emulated machine, and within a thousandth on a real one, where
/// interrupts count a little.
fn assert_near(counted: u64, expected: u64, what: &str) {
    let slack = if is_emulated() { 0 } else { expected / 1000 };
    assert!(counted.abs_diff(expected) <= slack, "{what}: {counted}, not {expected}");
}

fn assert_within(counted: u64, expected: u64, part: u64, what: &str) {
    assert!(counted.abs_diff(expected) <= expected / part, "{what}: {counted}, not {expected} (1/{part})");
}

/// Returns a number of events above the number of counters: the emulated PMU has six for them, none more than
/// sixteen. During each rotation the kernel runs none of them for a moment, which is longer for more events.
fn more_than_counters() -> usize {
    if is_emulated() { 9 } else { 20 }
}

/// Returns the tolerance between scaled and unmultiplexed counts, as one part of this many.
fn scaling_part() -> u64 {
    if is_emulated() { 1000 } else { 50 }
}

/// Returns the attachment's count of the loop, starting from 0.
fn counted(attachments: &mut Attachments, id: AttachmentId, iterations: u64) -> Reading {
    attachments.reset(id).unwrap();
    iterate(iterations);
    attachments.read(id).unwrap()
}

#[test]
fn instructions_of_user_code_are_exact() {
    if !has_pmu() {
        return;
    }
    let mut attachments = Attachments::new();
    let id = attachments.open(&instructions(), &user(), None, None).unwrap();
    // Where user code may read the counter, a reader that the kernel interrupts while it writes the counter's
    // page retries: some readings count more instructions, and the smallest is the loop's. The emulated
    // machine does not allow such reads, so all its readings are equal.
    let mut least = |iterations| {
        let readings: Vec<_> = (0..7).map(|_| counted(&mut attachments, id, iterations)).collect();
        assert!(
            !is_emulated() || readings.iter().all(|reading| reading.raw == readings[0].raw),
            "{readings:?}"
        );
        readings.into_iter().min_by_key(|reading| reading.raw).unwrap()
    };
    let around = least(1).raw - INSNS_PER_ITERATION;
    for iterations in [1000, 250_000, 2_000_000, 1000, 1, 1, 1, 1000] {
        let reading = least(iterations);
        assert_near(reading.raw, around + INSNS_PER_ITERATION * iterations, "instructions");
        assert_eq!((reading.state, reading.scaled), (State::Counted, Some(reading.raw)));
    }
}

#[test]
fn instructions_per_cycle_are_those_of_one_read() {
    if !has_pmu() {
        return;
    }
    let mut attachments = Attachments::new();
    let cycles = attachments.open(&Event::named("cpu_cycles").unwrap(), &user(), None, None).unwrap();
    let member = attachments.open(&instructions(), &user(), Some(cycles), None).unwrap();
    attachments.reset(cycles).unwrap();
    iterate(5_000_000);
    let snapshot = attachments.snapshot(member).unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.own, snapshot.state), (2, 1, State::Counted));
    assert_eq!(snapshot.time_enabled, snapshot.time_running);
    let [cycles, instructions] = [0, 1].map(|entry| snapshot.entries[entry].raw);
    assert!(instructions >= INSNS_PER_ITERATION * 5_000_000);
    if is_emulated() {
        // One instruction takes 2 ns, and a cycle 1 ns.
        assert_within(cycles, 2 * instructions, 1000, "cycles");
    } else {
        assert!(cycles > instructions / 16, "{cycles} cycles for {instructions} instructions");
    }
}

#[test]
fn more_events_than_counters_are_scaled() {
    if !has_pmu() {
        return;
    }
    let mut attachments = Attachments::new();
    let alone = attachments.open(&instructions(), &user(), None, None).unwrap();
    let unmultiplexed = counted(&mut attachments, alone, LONG);
    assert_eq!(unmultiplexed.state, State::Counted);
    attachments.detach(alone);

    let open = |_| attachments.open(&instructions(), &user(), None, None).unwrap();
    let ids: Vec<AttachmentId> = (0..more_than_counters()).map(open).collect();
    ids.iter().for_each(|id| attachments.reset(*id).unwrap());
    iterate(LONG);
    for id in &ids {
        let reading = attachments.read(*id).unwrap();
        assert_eq!(reading.state, State::Multiplexed, "{reading:?}");
        assert!(
            reading.time_running < reading.time_enabled && reading.raw < unmultiplexed.raw,
            "{reading:?}"
        );
        let scaled = u128::from(reading.raw) * u128::from(reading.time_enabled);
        let scaled = u64::try_from(scaled / u128::from(reading.time_running)).unwrap();
        assert_eq!(reading.scaled, Some(scaled));
        assert_within(scaled, unmultiplexed.raw, scaling_part(), "scaled");
    }
}

#[test]
fn multiplexed_groups_are_scaled_as_wholes() {
    if !has_pmu() {
        return;
    }
    let mut attachments = Attachments::new();
    let leaders: Vec<AttachmentId> = (0..more_than_counters().div_ceil(3))
        .map(|_| {
            let leader = attachments.open(&instructions(), &user(), None, None).unwrap();
            for _ in 0..2 {
                attachments.open(&instructions(), &user(), Some(leader), None).unwrap();
            }
            leader
        })
        .collect();
    leaders.iter().for_each(|leader| attachments.reset(*leader).unwrap());
    iterate(LONG);
    for leader in leaders {
        let snapshot = attachments.snapshot(leader).unwrap();
        assert_eq!(snapshot.state, State::Multiplexed, "{snapshot:?}");
        let first = snapshot.entries[0];
        for entry in &snapshot.entries {
            // All members have counters at the same times, and one read returns all of them at one moment.
            assert_within(entry.raw, first.raw, 10_000, "a member");
            assert_within(entry.scaled.unwrap(), INSNS_PER_ITERATION * LONG, scaling_part(), "scaled");
        }
    }
}

/// The kernel accepts seven events into a group, although its PMU has six counters for it, because its check
/// does not count a leader that is still disabled. It refuses the eighth.
#[test]
fn a_group_that_never_fits_has_never_run() {
    if !has_pmu() || !is_emulated() {
        return;
    }
    let mut attachments = Attachments::new();
    let leader = attachments.open(&instructions(), &user(), None, None).unwrap();
    for _ in 0..6 {
        attachments.open(&instructions(), &user(), Some(leader), None).unwrap();
    }
    iterate(1_000_000);
    let reading = attachments.read(leader).unwrap();
    assert_eq!((reading.state, reading.scaled, reading.raw), (State::NeverRan, None, 0), "{reading:?}");
    assert!(reading.time_enabled > 0);
    assert_eq!(attachments.take_notices(), [Notice::NeverRan { event: "instructions".into() }]);
    let refused = attachments.open(&instructions(), &user(), Some(leader), None).unwrap_err();
    assert!(refused.to_string().contains("cannot add `instructions` to the group"), "{refused}");
    // The `weak` option: an event without a counter in the group counts alone.
    let weak = Options { weak: true, ..user() };
    let alone = attachments.open(&instructions(), &weak, Some(leader), None).unwrap();
    assert!(counted(&mut attachments, alone, LONG / 10).raw > 0);
}

#[test]
fn a_pinned_event_without_a_counter_is_an_error() {
    if !has_pmu() {
        return;
    }
    let pinned = Options { pinned: true, ..user() };
    let mut attachments = Attachments::new();
    let open = |_| attachments.open(&instructions(), &pinned, None, None).unwrap();
    let ids: Vec<AttachmentId> = (0..20).map(open).collect();
    iterate(100_000);
    let readings: Vec<_> = ids.iter().map(|id| attachments.read(*id)).collect();
    let counters = readings.iter().take_while(|reading| reading.is_ok()).count();
    assert!((1..20).contains(&counters), "{readings:?}");
    if is_emulated() {
        assert_eq!(counters, 6);
    }
    for reading in &readings[..counters] {
        assert!(reading.as_ref().is_ok_and(|reading| reading.state == State::Counted), "{reading:?}");
    }
    for reading in &readings[counters..] {
        assert!(matches!(reading, Err(PerfError::EndOfFile(_))), "{reading:?}");
    }
}

#[test]
fn free_counters_are_counted() {
    if !has_pmu() {
        return;
    }
    let of_core = || {
        let found = Catalog::default().free_counters();
        let core = found.into_iter().find(|free| free.event == "instructions");
        core.expect("the PMU of the cores").counters
    };
    let free = of_core();
    assert!(free > 0);
    let mut attachments = Attachments::new();
    let pinned = Options { pinned: true, ..user() };
    attachments.open(&instructions(), &pinned, None, None).unwrap();
    if is_emulated() {
        assert_eq!((free, of_core()), (6, 5));
    }
}

#[test]
fn codes_of_the_manual_and_terms_of_the_pmu_count_the_same() {
    if !has_pmu() || !is_emulated() {
        return;
    }
    let catalog = Catalog::default();
    let mut attachments = Attachments::new();
    let leader = attachments.open(&instructions(), &user(), None, None).unwrap();
    for name in ["r8", "armv8_pmuv3/inst_retired/", "armv8_pmuv3/event=0x08/", "instructions:u"] {
        let event = catalog.named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        attachments.open(&event, &user(), Some(leader), None).unwrap();
    }
    attachments.reset(leader).unwrap();
    iterate(1_000_000);
    let snapshot = attachments.snapshot(leader).unwrap();
    for entry in &snapshot.entries {
        assert_within(entry.raw, snapshot.entries[0].raw, 1000, "the same event");
    }
}

#[test]
fn missing_features_of_the_pmu_are_reported() {
    if !has_pmu() || !is_emulated() {
        return;
    }
    let catalog = Catalog::default();
    let why_not = |name: &str| catalog.why_not(&catalog.list(name)[0]);
    assert_eq!(why_not("cpu_cycles"), None);
    assert_eq!(why_not("armv8_pmuv3/cpu_cycles/"), None);
    let missing = why_not("cache_misses").expect("this PMU has no such event");
    assert_eq!(missing.cause(), "this CPU has no counter for `cache-misses`");
}

/// Returns the number of read(2) calls that `what` makes in this thread. Reading the tracepoint itself is one
/// read(2) call.
fn system_calls(what: impl FnOnce()) -> u64 {
    let calls = Catalog::default().tracepoint("syscalls/sys_enter_read").unwrap();
    let mut attachments = Attachments::new();
    let own = Options { pid: 0, cpu: -1, ..Options::default() };
    let id = attachments.open(&calls, &own, None, None).unwrap();
    let before = attachments.read(id).unwrap().raw;
    what();
    attachments.read(id).unwrap().raw - before - 1
}

/// Reads a group that counts the calling thread.
trait GroupReader {
    /// Has the group of this leader reset. Returns the number of read(2) calls that it takes here.
    fn reset(&mut self, leader: AttachmentId) -> u64;
    /// Reads the group of this attachment by the kernel.
    fn snapshot(&mut self, id: AttachmentId) -> Snapshot;
    fn read(&mut self, id: AttachmentId) -> Reading;
}

impl GroupReader for Attachments {
    fn reset(&mut self, leader: AttachmentId) -> u64 {
        Attachments::reset(self, leader).unwrap();
        1
    }

    fn snapshot(&mut self, id: AttachmentId) -> Snapshot {
        Attachments::snapshot(self, id).unwrap()
    }

    fn read(&mut self, id: AttachmentId) -> Reading {
        Attachments::read(self, id).unwrap()
    }
}

/// Reads a leader and a member. A user-space reading lies between the kernel's readings before and after it, in counts
/// and times. Returns the number of read(2) calls of 40 readings.
fn check_readings(reader: &mut impl GroupReader, ids: [AttachmentId; 2]) -> u64 {
    let mut of_kernel = 0;
    let calls = system_calls(|| {
        for iteration in 0..20 {
            if iteration == 10 {
                of_kernel += reader.reset(ids[0]);
            }
            iterate(10_000);
            for (own, id) in ids.into_iter().enumerate() {
                let before = reader.snapshot(id);
                let reading = reader.read(id);
                let after = reader.snapshot(id);
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

/// Opens a leader that counts cycles, and a member that counts instructions.
fn open_group(attachments: &mut Attachments) -> [AttachmentId; 2] {
    let cycles = attachments.open(&Event::named("cpu_cycles").unwrap(), &user(), None, None).unwrap();
    [cycles, attachments.open(&instructions(), &user(), Some(cycles), None).unwrap()]
}

/// Checks the number of read(2) calls of 40 readings; `where_allowed` follows while the kernel lets user code read.
///
/// arm64 kernels let user code read counters only if configured so, x86-64 kernels unless configured
/// otherwise.
fn check_calls(of_readings: fn() -> u64, where_allowed: fn()) {
    if !has_pmu() {
        return;
    }
    if !is_emulated() {
        // The numbers are right whether the kernel allows it or not.
        assert!(of_readings() <= 40);
        return;
    }
    std::fs::write(USER_ACCESS, "0").unwrap();
    assert_eq!(of_readings(), 40, "the kernel reads");
    std::fs::write(USER_ACCESS, "1").unwrap();
    assert_eq!(of_readings(), 0, "the registers are read");
    where_allowed();
    std::fs::write(USER_ACCESS, "0").unwrap();
}

#[test]
fn counters_are_read_without_the_kernel_where_it_allows_it() {
    let of_readings = || {
        let mut attachments = Attachments::new();
        let group = open_group(&mut attachments);
        check_readings(&mut attachments, group)
    };
    check_calls(of_readings, read_on_another_thread);
}

/// On another thread the readings would be those of another task.
fn read_on_another_thread() {
    let mut attachments = Attachments::new();
    let id = attachments.open(&instructions(), &user(), None, None).unwrap();
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| system_calls(|| assert!(attachments.read(id).is_ok())));
        assert_eq!(elsewhere.join().unwrap(), 1);
    });
}
