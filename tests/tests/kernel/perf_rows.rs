//! Rows of the conformance table on performance events that need an observed task. These tests need root.

use std::num::NonZeroUsize;
use std::process::Command;

use ks_tests::run_script;
use ks_tests::watched::{Running, Worker};
use nix::sys::mman::{self, MapFlags, ProtFlags};
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Checks this many times by kill(2) whether this process exists, which has no other effect.
fn kills(count: u32) {
    for _ in 0..count {
        kill(Pid::this(), None).expect("it exists");
    }
}

/// One event with nothing but its name, and one whose program reports its period.
const DEFAULTS: &str = include_str!("scripts/perf_rows_defaults.ks");

/// The number of samples that wake a reader is visible to a reader only; a test of `ks_host` checks the
/// host's request.
#[test]
fn root_lf_129_an_event_without_options_counts_all_tasks_of_cpu_0() {
    let (here, elsewhere) = (Worker::new(0, || kills(1000)), Worker::new(1, || kills(100_000)));
    let running = Running::start("defaults", DEFAULTS, &[] as &[&str]);
    here.work();
    elsewhere.work();
    // Gives the clock of CPU 0 time to tick, which needs a millisecond.
    Worker::new(0, || std::thread::sleep(std::time::Duration::from_millis(50))).work();
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let kills = outcome.numbers("kills")[0];
    assert!((1000..100_000).contains(&kills), "those of CPU 0, whose ever: {outcome:#?}");
    assert_eq!(outcome.numbers("period"), [1_000_000], "{outcome:#?}");
}

#[test]
fn root_lf_130_uncountable_events_are_refused() {
    let sample = "@perf_event\nfn sample(ctx: *bpf_perf_event_data) -> i32 {\n    return 0\n}\n";
    let script = include_str!("scripts/perf_rows_lf_130_uncountable_events_are_refused.ks");
    let script = format!("{sample}{script}");
    let refusals = [
        (["--pid=-1", "--cpu=-1", "--flags=0"], "every task on every CPU"),
        (["--pid=-2", "--cpu=0", "--flags=0"], "pid -2"),
        (["--pid=0", "--cpu=-2", "--flags=0"], "cpu -2"),
        (["--pid=0", "--cpu=-1", "--flags=1"], "flags"),
    ];
    for (arguments, reason) in refusals {
        let outcome = run_script("refused", &script, &arguments);
        assert_eq!((outcome.code, outcome.numbers("refused")[0]), (0, 1), "{outcome:#?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
        assert!(outcome.stderr.contains(reason), "{reason}: {outcome:#?}");
    }
}

/// The task is never on the CPU of its event.
const NEVER: &str = include_str!("scripts/perf_rows_never.ks");

#[test]
fn root_lf_134_an_event_that_never_ran_has_no_count() {
    let worker = Worker::new(1, || kills(100_000));
    let task = format!("--task={}", worker.tid());
    let running = Running::start("never", NEVER, &[task]);
    worker.work();
    let outcome = running.stop();
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    for iteration in 0..3 {
        assert_eq!(outcome.numbers(&format!("turn{iteration}")), [0, -1, 2, -1, -1], "{outcome:#?}");
        assert_eq!(outcome.numbers(&format!("times{iteration}")), [1, 0], "{outcome:#?}");
    }
    assert_eq!(outcome.numbers("member"), [-1]);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "one for each attachment: {outcome:#?}");
    assert!(lines[0].contains("event `page_faults` was never scheduled"), "{outcome:#?}");
    assert!(lines[1].contains("event `task_clock` was never scheduled"), "{outcome:#?}");
}

const CHILDREN: &str = include_str!("scripts/perf_rows_children.ks");

#[test]
fn root_lf_140_children_are_counted_with_inherit() {
    let shell = "i=0; while [ $i -lt 100 ]; do kill -0 $$; i=$((i+1)); done";
    let worker = Worker::new(0, move || {
        kills(7);
        let status = Command::new("sh").args(["-c", shell]).status().expect("a shell is there");
        assert!(status.success());
    });
    let task = format!("--task={}", worker.tid());
    let running = Running::start("children", CHILDREN, &[task]);
    worker.work();
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("kills"), [107, 7], "{outcome:#?}");
}

/// A script that keeps the fields of the last sample.
const SAMPLES: &str = include_str!("scripts/perf_rows_samples.ks");

/// Faults once, at a byte of an unmapped page.
#[inline(never)]
fn store_to_a_new_page(page: usize) {
    let byte = page as *mut u8;
    // SAFETY: the page is a mapping of the caller's own, which nothing refers to.
    unsafe { byte.add(1234).write_volatile(1) };
}

#[test]
fn root_lf_076_a_sample_says_where_it_was_taken() {
    let bytes = NonZeroUsize::new(4096).expect("not 0");
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses; nothing else refers to it.
    let page = unsafe { mman::mmap_anonymous(None, bytes, access, MapFlags::MAP_PRIVATE) };
    let page = page.expect("there is memory");
    let address = page.as_ptr() as usize;
    let worker = Worker::new(0, move || store_to_a_new_page(address));
    // The thread has already ended when its code is named.
    let arguments = [format!("--task={}", worker.tid()), format!("--process={}", std::process::id())];
    let running = Running::start("samples", SAMPLES, &arguments);
    worker.work();
    let outcome = running.stop();
    // SAFETY: the mapping is our own and is not used any more.
    unsafe { mman::munmap(page, bytes.get()) }.expect("our own memory");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("period"), [1]);
    assert_eq!(outcome.numbers("address"), [address as i64 + 1234]);
    let function = outcome.row("at")[1];
    assert!(function.contains("store_to_a_new_page+0x"), "{function}");
}
