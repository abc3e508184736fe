//! Threads whose system calls a program answers with bursts of records.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::unistd::gettid;

use crate::machine::stay_on;

/// Records of one system call.
pub const BURST: u64 = 64;

/// How fast records are made by one thread, and how many.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between the starts of two bursts; none at full speed.
    every: Option<Duration>,
    /// System calls, each with a burst.
    pub bursts: u64,
}

impl Pace {
    /// So many thousand records a second, for a time.
    pub fn held(thousands: u64, time: Duration) -> Pace {
        let every = Duration::from_nanos(BURST * 1_000_000 / thousands);
        Pace { every: Some(every), bursts: (time.as_nanos() / every.as_nanos()) as u64 }
    }

    /// As many as `other`, without a pause.
    pub fn at_full_speed(other: Pace) -> Pace {
        Pace { every: None, ..other }
    }

    /// All records.
    pub fn records(&self) -> u64 {
        self.bursts * BURST
    }
}

/// A thread on a CPU of its own that makes bursts when it is told to.
pub struct Producer {
    /// The thread.
    pub tid: u64,
    start: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Producer {
    /// Starts the thread, which waits.
    ///
    /// # Errors
    /// If it may not run on that CPU.
    pub fn new(cpu: usize, pace: Pace) -> Result<Producer> {
        let (sender, receiver) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let pinned = stay_on(cpu).map(|()| gettid().as_raw());
            let is_pinned = pinned.is_ok();
            // Nobody starts it if the consumer does not.
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

/// Lets all of them make their bursts, and waits for the last. The time that it took.
///
/// # Errors
/// If one of them is gone.
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
