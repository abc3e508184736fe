//! Threads whose system calls trigger a program that emits bursts of records.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::unistd::gettid;

use crate::machine::stay_on;

/// Records per system call.
pub const BURST: u64 = 64;

/// The rate and number of a producer's bursts.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time between the starts of two bursts; none at full speed.
    every: Option<Duration>,
    /// Number of system calls, each of which emits a burst.
    pub bursts: u64,
}

impl Pace {
    /// Returns the pace of this many thousand records a second for a time.
    pub fn held(thousands: u64, time: Duration) -> Pace {
        let every = Duration::from_nanos(BURST * 1_000_000 / thousands);
        Pace { every: Some(every), bursts: (time.as_nanos() / every.as_nanos()) as u64 }
    }

    /// Returns the pace that emits as many records as `other`, without a pause.
    pub fn at_full_speed(other: Pace) -> Pace {
        Pace { every: None, ..other }
    }

    /// Returns the number of records of all bursts.
    pub fn records(&self) -> u64 {
        self.bursts * BURST
    }
}

/// A thread pinned to a CPU that emits its bursts when it is started.
pub struct Producer {
    /// The thread's id, as the kernel half sees it.
    pub tid: u64,
    start: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Producer {
    /// Creates the thread, which waits to be started.
    ///
    /// # Errors
    /// If it may not run on that CPU.
    pub fn new(cpu: usize, pace: Pace) -> Result<Producer> {
        let (sender, receiver) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pinned = stay_on(cpu).map(|()| gettid().as_raw());
            let is_pinned = pinned.is_ok();
            // The start never comes if the consumer fails.
            if sender.send(pinned).is_err() || !is_pinned || started.recv().is_err() {
                return Duration::ZERO;
            }
            let begin = Instant::now();
            for burst in 0..pace.bursts {
                while pace.every.is_some_and(|every| begin.elapsed() < every * burst as u32) {
                    std::hint::spin_loop();
                }
                std::hint::black_box(std::os::unix::process::parent_id());
            }
            begin.elapsed()
        });
        let tid = receiver.recv().context("the producer starts")??;
        Ok(Producer { tid: u64::try_from(tid)?, start, thread })
    }
}

/// Starts all producers, waits until the last has emitted its bursts, and returns the elapsed time.
///
/// # Errors
/// If one of them has ended early.
pub fn run_all(producers: Vec<Producer>) -> Result<Duration> {
    for producer in &producers {
        producer.start.send(()).context("the producer waits")?;
    }
    let times = producers
        .into_iter()
        .map(|producer| producer.thread.join().map_err(|_| anyhow!("the producer panicked")))
        .collect::<Result<Vec<_>>>()?;
    Ok(times.into_iter().max().unwrap_or_default())
}
