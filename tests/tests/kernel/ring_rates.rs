//! Rates of ring buffer records: below the rate that the README states nothing is lost; above it the losses
//! are counted exactly. These tests need root.

use std::time::{Duration, Instant};

use ks_tests::Outcome;
use ks_tests::watched::{Running, Worker};

/// Records per system call.
const BURST: u64 = 64;

/// Every call of the task emits a burst.
const SCRIPT: &str = include_str!("scripts/ring_rates.ks");

/// Emits this many bursts on CPU 0, with this time between their starts.
fn produce(ring_bytes: u32, bursts: u64, every: Duration) -> Outcome {
    let worker = Worker::new(0, move || {
        let begin = Instant::now();
        for burst in 0..bursts {
            while begin.elapsed() < every * burst as u32 {
                std::hint::spin_loop();
            }
            std::hint::black_box(std::os::unix::process::parent_id());
        }
    });
    let arguments = [format!("--task={}", worker.tid()), format!("--bursts={bursts}")];
    let script = SCRIPT.replace("RING", &ring_bytes.to_string());
    let running = Running::start("rates", &script, &arguments);
    worker.work();
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    outcome
}

/// A tenth of the stated rate, so that a busy machine has time to spare; more records than the ring holds.
#[test]
fn root_below_the_stated_rate_nothing_is_lost() {
    let (bursts, rate) = (1000, 100_000);
    let outcome = produce(1 << 20, bursts, Duration::from_nanos(BURST * 1_000_000_000 / rate));
    assert_eq!(outcome.stderr, "", "{outcome:#?}");
    assert_eq!(outcome.numbers("seen"), [bursts as i64, (bursts * BURST) as i64, 0], "{outcome:#?}");
}

/// As fast as one CPU can, into a ring that holds fewer than three bursts.
#[test]
fn root_above_it_what_is_lost_is_counted_exactly() {
    let bursts = 20_000;
    let outcome = produce(4096, bursts, Duration::ZERO);
    let [produced, handled, wrong] = outcome.numbers("seen")[..] else { panic!("{outcome:#?}") };
    assert_eq!((produced, wrong), (bursts as i64, 0), "{outcome:#?}");
    let (before, _) = outcome.stderr.rsplit_once(" records were lost").expect("the ring was full");
    let lost: u64 = before.rsplit(' ').next().and_then(|lost| lost.parse().ok()).expect("a number");
    assert!(lost > 0);
    assert_eq!(handled as u64 + lost, bursts * BURST, "{outcome:#?}");
}
