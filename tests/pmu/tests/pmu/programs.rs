//! Programs combined with hardware events: programs that run at overflows, and programs that read counters.

use std::sync::Arc;

use ks_host::perf::{
    AttachmentId, Attachments, Catalog, Event, EventArray, LinkProgram, Notice, Options, PerfError,
};
use ks_pmu_tests::{CounterReader, CountingProgram, INSNS_PER_ITERATION, Script, is_emulated, iterate};

use crate::{LONG, instructions};

/// Returns the runs of a program that runs every `period` cycles, the count, and the notices.
fn sampled(observed: Options, iterations: u64) -> (u64, u64, Vec<Notice>) {
    let program = Arc::new(CountingProgram::load().expect("root may load it"));
    let linked = Arc::clone(&program);
    let mut attachments = Attachments::new();
    let event = Event::named("cpu_cycles").unwrap();
    let link: LinkProgram = Arc::new(move |event, _| linked.link(event));
    let id = attachments.open(&event, &observed, None, Some(link)).unwrap();
    iterate(iterations);
    attachments.disable(id).unwrap();
    let counted = attachments.read(id).unwrap().raw;
    attachments.detach(id);
    (program.runs().expect("it is loaded"), counted, attachments.take_notices())
}

/// Returns how often this thread has left its CPU.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

/// An event of a CPU counts without interruption, and every overflow is a run. An event of a task loses its
/// counter when the task leaves the CPU, and the kernel then treats a pending overflow as handled
/// (`armpmu_event_set_period` in drivers/perf/arm_pmu.c, v6.12): so each switch may cost one run.
#[test]
fn a_program_runs_once_in_every_period_of_cycles() {
    if !is_emulated() {
        eprintln!("not run here: other programs share the machine; the emulated machine runs it");
        return;
    }
    for period in [100_000, 333_333, 1_000_000] {
        for (pid, cpu) in [(-1, 0), (0, -1)] {
            let observed = Options { pid, cpu, period, ..Options::default() };
            let before = switches();
            let (runs, counted, notices) = sampled(observed, LONG);
            let (expected, switched) = (counted / period, switches() - before);
            println!("{runs} runs, {counted} cycles, period {period}, pid {pid}, {switched} switches");
            let lost = if pid == -1 { 0 } else { switched };
            assert!(
                runs <= expected && expected - runs <= lost,
                "{runs} runs of {expected}, {switched} switches"
            );
            assert_eq!(notices, []);
        }
    }
}

/// Returns how far the count that a program reads in a system call advances over this many iterations of a
/// loop.
fn read_by_program(reader: &CounterReader, iterations: u64) -> u64 {
    nix::unistd::getppid();
    let before = reader.count().expect("it is loaded");
    iterate(iterations);
    nix::unistd::getppid();
    reader.count().expect("it is loaded") - before
}

/// Returns how much larger each number is after 100,000 and 1,000,000 additional iterations, as the median of
/// several repetitions: other work on the CPU is counted too, and the test's code between two readings
/// sometimes takes another path.
fn more<const N: usize>(mut counted: impl FnMut(u64) -> [i64; N]) -> [[i64; N]; 2] {
    let repetitions = [(); REPETITIONS].map(|()| {
        let few = counted(1000);
        [101_000, 1_001_000].map(|iterations| {
            let many = counted(iterations);
            std::array::from_fn::<i64, N, _>(|number| many[number] - few[number])
        })
    });
    println!("{repetitions:?}");
    std::array::from_fn(|iterations| {
        std::array::from_fn(|number| {
            let mut all = repetitions.map(|repetition| repetition[iterations][number]);
            all.sort_unstable();
            all[REPETITIONS / 2]
        })
    })
}

/// Returns the expected results of [`more`] for a loop with this many counts per instruction.
fn exactly(of_instruction: u64) -> [i64; 2] {
    [100_000, 1_000_000].map(|iterations| (iterations * INSNS_PER_ITERATION * of_instruction).cast_signed())
}

/// Repetitions of a count on a CPU, which includes other work there.
const REPETITIONS: usize = 5;

#[test]
fn programs_read_exact_counts() {
    if !is_emulated() {
        eprintln!("not run here: other programs share the machine; the emulated machine runs it");
        return;
    }
    let mut attachments = Attachments::new();
    let options = Options { pid: -1, every_cpu: true, exclude_kernel: true, ..Options::default() };
    let leader = attachments.open(&Event::named("cpu_cycles").unwrap(), &options, None, None).unwrap();
    let member = attachments.open(&instructions(), &options, Some(leader), None).unwrap();
    for (id, name, of_instruction) in [(member, "instructions", 1), (leader, "cycles", 2)] {
        let reader = Arc::new(CounterReader::load(name).expect("root may load it"));
        let array: Arc<dyn EventArray> = Arc::clone(&reader) as Arc<dyn EventArray>;
        attachments.publish(id, &array).unwrap();
        let call = Catalog::default().tracepoint("syscalls/sys_enter_getppid").unwrap();
        let linked = Arc::clone(&reader);
        let link: LinkProgram = Arc::new(move |event, _| linked.link(event));
        let everyone = Options { pid: -1, cpu: 0, period: 1, ..Options::default() };
        let probe = attachments.open(&call, &everyone, None, Some(link)).unwrap();
        let more = more(|iterations| [read_by_program(&reader, iterations).cast_signed()]);
        assert_eq!(more.map(|[count]| count), exactly(of_instruction), "{name}");
        attachments.detach(probe);
        // Detaching also removes the event from the array.
        if id == leader {
            attachments.detach(leader);
            assert_eq!(Arc::strong_count(&reader), 2, "the array, and what this test holds");
        }
    }
    let own = Options { pid: 0, cpu: -1, ..Options::default() };
    let own = attachments.open(&instructions(), &own, None, None).unwrap();
    let array: Arc<dyn EventArray> = Arc::new(CounterReader::load("own").unwrap());
    assert!(matches!(attachments.publish(own, &array), Err(PerfError::Refused { .. })));
}

/// Returns how far cycles and instructions advance over this many iterations of a loop, each read in a
/// compiled script's program and in userspace.
fn script_reads(
    script: &Script,
    attachments: &mut Attachments,
    ids: [AttachmentId; 2],
    iterations: u64,
) -> [i64; 4] {
    let mut look = |inside: bool| {
        // Only the program's reads are between the userspace readings.
        let here = ids.map(|id| attachments.read(id).unwrap().raw.cast_signed());
        nix::unistd::getppid();
        let [cycles, retired] = [1, 4].map(|entry| script.entry("seen", entry).unwrap());
        if inside {
            iterate(iterations);
        }
        [cycles, retired, here[0], here[1]]
    };
    let [before, after] = [true, false].map(&mut look);
    [0, 1, 2, 3].map(|number| after[number] - before[number])
}

/// A `counter` of a script, in both halves: the compiler produced the program, and the events are opened and
/// put into its array as for a plugin.
#[test]
fn a_compiled_script_reads_exact_counts() {
    if !is_emulated() {
        eprintln!("not run here: other programs share the machine; the emulated machine runs it");
        return;
    }
    let text = std::fs::read_to_string("/script")
        .expect("`tests/tests/emulated/counters.rs` gives the machine a script");
    let script = Arc::new(Script::load(&text).expect("root may load it"));
    let mut attachments = Attachments::new();
    let options = Options { pid: -1, every_cpu: true, exclude_kernel: true, ..Options::default() };
    let leader = attachments.open(&Event::named("cpu_cycles").unwrap(), &options, None, None).unwrap();
    let member = attachments.open(&instructions(), &options, Some(leader), None).unwrap();
    attachments.publish(leader, &script.counter("cycles")).unwrap();
    attachments.publish(member, &script.counter("retired")).unwrap();
    let call = Catalog::default().tracepoint("syscalls/sys_enter_getppid").unwrap();
    let linked = Arc::clone(&script);
    let link: LinkProgram = Arc::new(move |event, _| linked.link(event));
    let everyone = Options { pid: -1, cpu: 0, period: 1, ..Options::default() };
    attachments.open(&call, &everyone, None, Some(link)).unwrap();
    let more = more(|iterations| script_reads(&script, &mut attachments, [leader, member], iterations));
    assert_eq!(more.map(|[cycles, ..]| cycles), exactly(2), "in the program");
    assert_eq!(more.map(|[_, retired, ..]| retired), exactly(1), "in the program");
    assert_eq!(more.map(|[.., cycles, _]| cycles), exactly(2), "in userspace");
    assert_eq!(more.map(|[.., retired]| retired), exactly(1), "in userspace");
    // Two runs in each measurement; the leader had a counter all the time.
    let [runs, cycles, scaled, missed] = [0, 1, 2, 3].map(|entry| script.entry("seen", entry).unwrap());
    assert_eq!((runs, scaled, missed), (2 * 3 * REPETITIONS as i64, cycles, 0));
}

#[test]
fn throttling_is_reported() {
    const RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    if !is_emulated() {
        eprintln!("not run here: it changes the machine's settings; the emulated machine runs it");
        return;
    }
    let before = std::fs::read_to_string(RATE).unwrap();
    std::fs::write(RATE, "1000").unwrap();
    let observed = Options { pid: 0, cpu: -1, period: 10_000, ..Options::default() };
    let (runs, counted, notices) = sampled(observed, LONG);
    std::fs::write(RATE, before.trim()).unwrap();
    println!("{runs} runs, {counted} cycles, {notices:?}");
    let [Notice::Throttled { event, times }] = &notices[..] else { panic!("{notices:?}") };
    assert!(event == "cpu_cycles" && *times > 1, "{notices:?}");
    // A throttled event does not count: the loop alone takes twice its instructions in cycles.
    assert!(counted < INSNS_PER_ITERATION * LONG / 2, "{counted} cycles");
}
