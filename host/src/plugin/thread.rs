//! The OS thread of a plugin, one for its whole life: pid 0 of an event is that thread. The caller waits here
//! and ends the plugin when its time is over.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::outcome::Outcome;
use super::stop::{State, StopHandle, StopReason};
use crate::processes::cpu::{self, Cpus};

/// Default time that a plugin may continue after it was asked to stop.
pub const GRACE: Duration = Duration::from_secs(2);

/// Default time that the output of a plugin waits for its reader after the plugin was asked to stop, not by a person.
pub const OUTPUT_WAIT: Duration = Duration::from_secs(30);

/// Time that the host works for a plugin after it was asked to stop: it detaches, and shows stacks with names.
const MOST_WORK: Duration = Duration::from_secs(30);

/// Time that a killed plugin may spend in a system call that cannot be interrupted (a file system that does
/// not answer) before it is abandoned. Its resources are then released when the process ends.
const ABANDON_AFTER: Duration = Duration::from_millis(500);

/// Interval between queries whether a plugin has something to report.
const NEWS_EVERY: Duration = Duration::from_secs(1);

/// Stack bytes of a plugin's thread: the guest's own limit, and room for the host functions below it.
pub(crate) const STACK_BYTES: usize = 4 << 20;

/// Prefix of plugins' thread names; as much of the plugin's name follows as the kernel keeps (15 bytes in
/// all).
pub const THREAD_PREFIX: &str = "ks:";

/// Settings for watching a run.
#[derive(Debug, Clone)]
pub struct Watch {
    /// The plugin's name, for its thread.
    pub name: String,
    /// The handle that stops the run.
    pub stop: StopHandle,
    /// Time that the plugin may run before it is asked to stop; none means no limit.
    pub timeout: Option<Duration>,
    /// Time that it may continue after it was asked.
    pub grace: Duration,
    /// Time that its output then waits for its reader, besides that.
    pub output_wait: Duration,
    /// Interval at which it is made to check its CPU time.
    pub tick: Duration,
}

/// How a running plugin is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// It checks its limits, and whether it was killed.
    Look,
    /// It was killed.
    End,
}

/// Runs `body` on a thread of its own and watches it; `interrupt` reaches the plugin while it computes. `body` must
/// have released all resources of the plugin when it returns.
pub fn supervise(
    watch: &Watch,
    interrupt: impl Fn(Interrupt),
    body: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    let stop = watch.stop.clone();
    let thread = std::thread::Builder::new().name(thread_name(&watch.name)).stack_size(STACK_BYTES);
    let thread = cpu::start_here(|cpus| {
        thread.spawn(move || {
            cpus.iter().for_each(Cpus::release);
            stop.belongs_to_this_thread();
            let finish = FinishOnDrop(stop);
            // The receiver is gone if the plugin was abandoned.
            let _ = sender.send(body());
            drop(finish);
        })
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => return Outcome::Failed(format!("cannot start a thread for the plugin: {error}")),
    };
    let finished = wait_for_end(watch, interrupt);
    if finished && let Err(panic) = thread.join() {
        return Outcome::Failed(format!(
            "ks-host has a defect, and the plugin was ended: {}",
            panic_text(panic.as_ref())
        ));
    }
    let state = watch.stop.wait_until(None, |_| true);
    let timed_out = state.asked == Some(StopReason::Timeout) && !state.lingers;
    match receiver.try_recv() {
        // Output that was lost is worse than a time that is over.
        Ok(outcome @ Outcome::Failed(_)) => outcome,
        _ if timed_out => Outcome::TimedOut,
        Ok(outcome) => outcome,
        Err(_) => Outcome::Killed,
    }
}

/// Returns the thread's name. A NUL byte would make starting the thread fail.
pub(crate) fn thread_name(plugin: &str) -> String {
    format!("{THREAD_PREFIX}{}", plugin.replace('\0', "?"))
}

/// Marks the run as finished even if the body panics.
struct FinishOnDrop(StopHandle);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Waits for the end: voluntary, then requested, then forced. Returns false if the thread had to be
/// abandoned.
fn wait_for_end(watch: &Watch, interrupt: impl Fn(Interrupt)) -> bool {
    let stop = &watch.stop;
    let deadline = watch.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let asked = wait_for_request(watch, deadline, &interrupt);
        if asked.finished {
            return true;
        }
        let state = wait_for_grace(watch, asked.forgotten);
        if state.finished {
            return true;
        }
        // Else the command that it observes was started again.
        if stop.killed() || state.forgotten == asked.forgotten {
            break;
        }
    }
    stop.kill();
    interrupt(Interrupt::End);
    let abandon_at = Instant::now().checked_add(ABANDON_AFTER);
    stop.wait_until(abandon_at, |state| state.finished).finished
}

/// Waits until the plugin has ended or is asked to stop, which it is at the deadline.
fn wait_for_request(watch: &Watch, deadline: Option<Instant>, interrupt: &impl Fn(Interrupt)) -> State {
    let stop = &watch.stop;
    let mut tick = Instant::now().checked_add(watch.tick);
    let mut asked_news: Option<Instant> = None;
    loop {
        let news = asked_news.map(|asked| asked + NEWS_EVERY);
        let until = [deadline, tick, news].into_iter().flatten().min();
        let asks = asked_news.is_some();
        let state = stop.wait_until(until, |state| {
            state.finished || state.asked.is_some() || state.may_have_news != asks
        });
        if state.finished || state.asked.is_some() {
            return state;
        }
        let now = Instant::now();
        let is_over = |end: Option<Instant>| end.is_some_and(|end| now >= end);
        if is_over(deadline) {
            stop.ask(StopReason::Timeout);
            return state;
        }
        let has_news = is_over(news) && stop.wake_if_news();
        asked_news = match asked_news {
            Some(asked) if state.may_have_news && !is_over(news) => Some(asked),
            _ => state.may_have_news.then_some(now),
        };
        if is_over(tick) {
            tick = now.checked_add(watch.tick);
            interrupt(Interrupt::Look);
        } else if has_news {
            interrupt(Interrupt::Look);
        }
    }
}

/// Waits until a plugin that was asked to stop has ended, its time is over, or the request was taken back: more than
/// `forgotten` were. The time that the host works for the plugin, or that a reader keeps its output, is none of its own.
fn wait_for_grace(watch: &Watch, forgotten: u64) -> State {
    let stop = &watch.stop;
    let asked = Instant::now();
    let mut grace_ends = asked.checked_add(watch.grace);
    let longer = |since: Option<Instant>, most: Duration| {
        since.and_then(|since| since.checked_add(watch.grace)).min(asked.checked_add(watch.grace + most))
    };
    loop {
        let is_over = |state: &State| state.finished || stop.killed() || state.forgotten != forgotten;
        let state = stop.wait_until(grace_ends, is_over);
        let now = Some(Instant::now());
        let worked = if state.works > 0 { now } else { state.worked };
        let waits = state.writes > 0 && state.waits_for_readers();
        let wrote = if waits { now } else { state.wrote };
        let longer = longer(worked, MOST_WORK).max(longer(wrote, watch.output_wait));
        if is_over(&state) || longer <= grace_ends {
            return state;
        }
        grace_ends = longer;
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}
