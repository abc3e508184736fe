//! Stopping a running plugin: by request, then by force.
//!
//! Two steps, because a plugin should be able to print its last table. First it is asked (`stopping()` is
//! true, waits end early). If it does not return, it is ended between two instructions.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use crate::killed::KillFlag;

/// Why a plugin was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// A person or another process wants it to (Ctrl-C, SIGTERM).
    Asked,
    /// The time limit of the run was reached.
    Timeout,
    /// The reader of its output is gone.
    OutputClosed,
    /// Its output cannot be written, for example because the disk is full.
    OutputLost,
    /// The command that it observes has ended.
    CommandEnded,
}

/// Connects a run with everybody who may stop it. Clones denote the same run.
#[derive(Debug, Clone, Default)]
pub struct StopHandle {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    killed: KillFlag,
    /// Becomes readable when the plugin is asked to stop or has something to report, for waits on
    /// descriptors; created for the first such wait.
    wake: OnceLock<EventFd>,
    news: Mutex<Option<News>>,
}

/// A query, asked by another thread, whether the plugin's thread has something to report.
struct News(Box<dyn Fn() -> bool + Send>);

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("News")
    }
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    pub(super) asked: Option<StopReason>,
    pub(super) finished: bool,
    /// The plugin ended before it was asked to, and stays for what it registered.
    pub(super) lingers: bool,
    /// A query is installed that must be asked regularly.
    pub(super) may_have_news: bool,
    /// Work of the host for the plugin that has begun and not ended, as it does to detach, and to name the functions of
    /// stacks.
    pub(super) works: u32,
    /// When the host last ended such work.
    pub(super) worked: Option<Instant>,
    /// Writes that have begun and not ended: a reader may keep them.
    pub(super) writes: u32,
    /// When the last write ended that a reader may have kept.
    pub(super) wrote: Option<Instant>,
    /// Number of requests that were taken back.
    pub(super) forgotten: u64,
}

/// Work of the host for a plugin.
#[derive(Debug)]
pub(crate) struct Work(StopHandle);

impl Drop for Work {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.works -= 1;
        state.worked = Some(Instant::now());
    }
}

/// A write to the plugin's output.
#[derive(Debug)]
pub(crate) struct OutputWrite(StopHandle);

impl Drop for OutputWrite {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.writes -= 1;
        if state.asked.is_some() && state.waits_for_readers() {
            state.wrote = Some(Instant::now());
        }
    }
}

impl State {
    /// Whether a reader that does not read takes nothing of the plugin's grace: not if a person wants it to stop.
    pub(super) fn waits_for_readers(&self) -> bool {
        self.asked != Some(StopReason::Asked)
    }
}

impl StopHandle {
    /// Creates a handle for one future run.
    pub fn new() -> StopHandle {
        StopHandle::default()
    }

    /// Asks the plugin to stop. The first reason is kept, unless it is the end of the command, which can be taken back.
    pub fn ask(&self, reason: StopReason) {
        self.update(|state| {
            if matches!(state.asked, None | Some(StopReason::CommandEnded)) {
                state.asked = Some(reason);
            }
        });
    }

    /// Takes a request back that the end of the command has made. Returns false if somebody else asked before: the
    /// plugin goes on stopping. The next wait may end early once.
    pub(crate) fn forget_end_of_command(&self) -> bool {
        let mut is_forgotten = false;
        self.update(|state| {
            is_forgotten = state.asked.is_none_or(|reason| reason == StopReason::CommandEnded);
            if is_forgotten {
                state.asked = None;
                state.forgotten += 1;
            }
        });
        is_forgotten
    }

    /// Ends the plugin at its next instruction, without asking it. A write that nobody reads fails.
    pub fn kill(&self) {
        self.inner.killed.set();
        self.ask(StopReason::Asked);
    }

    /// Whether the plugin was asked to stop.
    pub fn stopping(&self) -> bool {
        self.lock().asked.is_some()
    }

    /// Waits for this duration, or until the plugin is asked to stop. Returns true if it was asked.
    pub fn wait(&self, duration: Duration) -> bool {
        // A duration beyond the range of the clock is a wait without end.
        let deadline = Instant::now().checked_add(duration);
        self.wait_until(deadline, |state| state.asked.is_some()).asked.is_some()
    }

    /// Installs a query that the watching thread asks once a second. Each true ends a wait for descriptors,
    /// and makes the plugin's thread check after its next instructions, too.
    pub(crate) fn wake_when(&self, news: impl Fn() -> bool + Send + 'static) {
        *self.inner.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(News(Box::new(news)));
        self.update(|state| state.may_have_news = true);
    }

    /// Removes the query; its closure is dropped when this returns.
    pub(crate) fn forget_news(&self) {
        self.update(|state| state.may_have_news = false);
        *self.inner.news.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Asks the query, and ends a wait of the plugin if it returned true.
    pub(super) fn wake_if_news(&self) -> bool {
        let news = self.inner.news.lock().unwrap_or_else(PoisonError::into_inner);
        let is_true = news.as_ref().is_some_and(|News(ask)| ask());
        if let (true, Some(wake)) = (is_true, self.inner.wake.get()) {
            // Fails only if the eventfd is readable already.
            let _ = wake.write(1);
        }
        is_true
    }

    /// Waits until one of these descriptors is readable, the deadline is reached, the plugin is asked to
    /// stop, or it has something to report. Returns for each descriptor whether it is readable.
    ///
    /// # Errors
    /// See ppoll(2) and eventfd(2): no memory or descriptors.
    pub fn wait_readable(
        &self,
        descriptors: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<Vec<bool>, Errno> {
        let wake = self.wake()?;
        let all = descriptors.iter().copied().chain([wake.as_fd()]);
        let mut polled: Vec<PollFd<'_>> = all.map(|one| PollFd::new(one, PollFlags::POLLIN)).collect();
        // A plugin that is asked before the eventfd exists wakes nobody: it must not wait. This thread cannot
        // write to the eventfd itself, which is newer than its filter of system calls.
        let left = match deadline {
            _ if self.stopping() => Some(Duration::ZERO),
            deadline => deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        };
        match ppoll(&mut polled, left.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let readable: Vec<bool> = polled.iter().map(|one| one.any().unwrap_or_default()).collect();
        let (given, is_woken) = readable.split_at(descriptors.len());
        if is_woken.contains(&true) && !self.stopping() {
            // Resets the eventfd after a report, which wakes once. A request to stop in between writes again
            // before the next wait.
            let _ = wake.read();
        }
        Ok(given.to_vec())
    }

    fn wake(&self) -> Result<&EventFd, Errno> {
        if self.inner.wake.get().is_none() {
            // Of two concurrent threads the second drops its eventfd.
            let _ = self.inner.wake.set(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        }
        self.inner.wake.get().ok_or(Errno::EINVAL)
    }

    /// Marks that the plugin ended by itself: the reason that keeps it alive from now on does not change its
    /// outcome.
    pub fn linger(&self) {
        self.update(|state| state.lingers = state.asked.is_none());
    }

    /// Marks that the host works for the plugin, until the mark is dropped: the time that this takes is none of its grace.
    pub(crate) fn work(&self) -> Work {
        self.lock().works += 1;
        Work(self.clone())
    }

    /// Marks that the host writes output of the plugin, until the mark is dropped.
    pub(crate) fn write(&self) -> OutputWrite {
        self.lock().writes += 1;
        OutputWrite(self.clone())
    }

    /// Whether the plugin must end immediately.
    pub(crate) fn killed(&self) -> bool {
        self.inner.killed.is_set()
    }

    /// Makes the calling thread the one of this run: see [`crate::killed`].
    pub(super) fn belongs_to_this_thread(&self) {
        self.inner.killed.belongs_to_this_thread();
    }

    /// Marks that the run is over and its resources are released.
    pub(super) fn finish(&self) {
        self.update(|state| state.finished = true);
    }

    /// Waits until `done` is true of the state or the deadline is reached; without a deadline, waits forever.
    pub(super) fn wait_until(&self, deadline: Option<Instant>, done: impl Fn(&State) -> bool) -> State {
        let mut state = self.lock();
        while !done(&state) {
            state = match deadline {
                None => self.inner.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.inner.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *state
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let asked = {
            let mut state = self.lock();
            change(&mut state);
            state.asked.is_some()
        };
        self.inner.changed.notify_all();
        if let (true, Some(wake)) = (asked, self.inner.wake.get()) {
            // Fails only if the eventfd is readable already.
            let _ = wake.write(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one assignment: a thread that panicked cannot have left it half done.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_early_when_the_plugin_is_asked_to_stop() {
        let stop = StopHandle::new();
        let asker = stop.clone();
        let thread = std::thread::spawn(move || asker.ask(StopReason::Asked));
        // Without the early end this test would never return.
        assert!(stop.wait(Duration::MAX));
        thread.join().expect("the asking thread does not panic");
    }

    #[test]
    fn news_end_a_wait_once() {
        let stop = StopHandle::new();
        let wait = |deadline| stop.wait_readable(&[], deadline).expect("there are descriptors");
        // Creates the eventfd.
        wait(Some(Instant::now()));
        stop.wake_when(|| true);
        assert!(stop.wake_if_news());
        // Without the report these waits would never return; the first resets it.
        wait(None);
        assert!(stop.wake_if_news());
        wait(None);
        stop.forget_news();
        assert!(!stop.wake_if_news());
        wait(Some(Instant::now()));
    }

    #[test]
    fn the_first_reason_is_kept() {
        let stop = StopHandle::new();
        stop.ask(StopReason::Timeout);
        stop.kill();
        let state = stop.wait_until(None, |_| true);
        assert_eq!(state.asked, Some(StopReason::Timeout));
        assert!(stop.killed());
    }
}
