//! Ring buffers, from programs to the handlers of the plugin. These tests need root.

use std::num::NonZeroUsize;

use ks_tests::watched::{Running, Worker};
use ks_tests::{Outcome, run_script};
use nix::sys::mman::{self, MapFlags, MmapAdvise, ProtFlags};

const NO_ARGUMENTS: &[&str] = &[];

/// Every page fault of the plugin's own thread emits a record with its number.
const PRODUCER: &str = r#"
struct Event { n: u64, half: u32 }
var events : ringbuf<Event>(4096)
var attempts : u64 = 0
var memory : u8[4194304]

@perf_event
fn fault(ctx: *bpf_perf_event_data) -> i32 {
    attempts += 1
    var r = events.reserve()
    r->n = attempts
    r->half = 1
    events.submit(r)
    return 0
}

fn touch(first: u32, pages: u32) {
    for (i in 0..pages) {
        memory[(first + i) * 4096] = 1
    }
}
"#;

#[test]
fn root_lf_099_a_forgotten_record_is_discarded() {
    let script = include_str!("scripts/rings_lf_099_a_forgotten_record_is_discarded.ks");
    let outcome = run_script("forgotten", script, NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let (last, numbers) = lines.split_last().expect("it printed");
    let numbers: Vec<u64> = numbers.iter().map(|line| line.parse().expect("a number")).collect();
    let expected: Vec<u64> = (1..).filter(|n| n % 2 == 1 && n % 3 != 0).take(numbers.len()).collect();
    assert!(numbers.len() >= 13, "{outcome:#?}");
    assert_eq!(numbers, expected);
    assert_eq!(*last, format!("handled {}", numbers.len()));
}

#[test]
fn root_lf_101_dispatch_ends_on_a_negative_result_and_loses_nothing() {
    let main = include_str!("scripts/rings_lf_101_dispatch_ends_on_a_negative_result_and_loses_nothing.ks");
    let outcome = run_script("negative", &format!("{PRODUCER}{main}"), NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[..7], ["1", "2", "3", "4", "5", "ended -7", "6"], "{outcome:#?}");
    let fields: Vec<&str> = lines.last().expect("a line").split_whitespace().collect();
    assert!(fields[0] == "then" && fields[1] == fields[2] && fields[1] != "0", "{outcome:#?}");
}

#[test]
fn root_a_full_ring_counts_what_it_loses() {
    let main = include_str!("scripts/rings_a_full_ring_counts_what_it_loses.ks");
    let outcome = run_script("full", &format!("{PRODUCER}{main}"), NO_ARGUMENTS);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let numbers: Vec<u64> =
        outcome.stdout.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [attempts, handled] = numbers[..] else { panic!("{outcome:#?}") };
    // 24 bytes for each record of 16, and one byte of the 4096 stays free (kernel/bpf/ringbuf.c, v6.12).
    assert_eq!(handled, 4095 / 24);
    assert!(attempts > handled, "{outcome:#?}");
    assert_eq!(outcome.number_before(" records were lost"), attempts - handled, "{outcome:#?}");
}

/// A thread of this process faults as fast as it can while the plugin, on another CPU, receives the records.
#[test]
fn root_a_producer_at_full_speed_loses_only_what_is_counted() {
    // The large ring holds all records, however slow the plugin is.
    for (bytes, may_lose) in [(16 << 20, false), (4096, true)] {
        let outcome = full_speed(bytes);
        let numbers: Vec<u64> =
            outcome.stdout.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let [attempts, handled, disorder] = numbers[..] else { panic!("{outcome:#?}") };
        assert!(attempts >= FAULTS && disorder == 0, "{outcome:#?}");
        if may_lose {
            // A plugin that keeps up loses nothing, and nothing is reported.
            let is_silent = outcome.stderr.is_empty();
            let lost = if is_silent { 0 } else { outcome.number_before(" records were lost") };
            assert_eq!(handled + lost, attempts, "{outcome:#?}");
        } else {
            assert_eq!((handled, outcome.stderr.as_str()), (attempts, ""), "{outcome:#?}");
        }
    }
}

const FAULTS: u64 = 200_000;

fn full_speed(ring_bytes: u32) -> Outcome {
    let script = include_str!("scripts/rings_full_speed.ks").replace("RING", &ring_bytes.to_string());
    let worker = Worker::new(0, || {
        fault(FAULTS);
        fault(FAULTS);
    });
    let arguments = [format!("--task={}", worker.tid()), format!("--faults={FAULTS}")];
    let running = Running::start("speed", &script, &arguments);
    worker.work();
    running.finish()
}

/// Touches this many unmapped pages.
fn fault(pages: u64) {
    const PAGE: usize = 4096;
    // Smaller than a huge page.
    const BLOCK: usize = 256;
    let bytes = NonZeroUsize::new(PAGE * BLOCK).expect("not 0");
    let flags = MapFlags::MAP_PRIVATE;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses; nothing else refers to it.
    let block = unsafe { mman::mmap_anonymous(None, bytes, access, flags) }.expect("there is memory");
    for iteration in 0..pages as usize {
        let page = iteration % BLOCK;
        if page == 0 {
            // SAFETY: the mapping is our own, and no reference points into it.
            unsafe { mman::madvise(block, bytes.get(), MmapAdvise::MADV_DONTNEED) }.expect("our own memory");
        }
        // SAFETY: the page lies inside the mapping.
        unsafe { block.cast::<u8>().add(page * PAGE).write_volatile(1) };
    }
    // SAFETY: the mapping is our own and is not used any more.
    unsafe { mman::munmap(block, bytes.get()) }.expect("our own memory");
}

#[test]
fn root_handlers_may_detach_throw_and_dispatch_other_rings() {
    let script = include_str!("scripts/rings_handlers_may_detach_throw_and_dispatch_other_rings.ks");
    let outcome = run_script("handlers", script, NO_ARGUMENTS);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let first = ["event 1", "other 1", "other 2", "inner -3", "event 2", "event 3", "caught 40 after 3"];
    assert_eq!(lines[..7], first, "{outcome:#?}");
    assert!(lines[7..].contains(&"event 5") && !lines.contains(&"event 6"), "{outcome:#?}");
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("ring `events` is dispatched already"), "{outcome:#?}");
}
