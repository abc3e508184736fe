//! Time, sleeping, and requests to stop.

use core::time::Duration;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::sys::clock;

/// Returns the time of CLOCK_MONOTONIC: the clock of `bpf_ktime_get_ns` and of perf's times.
pub fn now() -> Duration {
    Duration::from_nanos(clock::now())
}

/// Returns the time of CLOCK_BOOTTIME: the time since the boot, including the time for which the machine was
/// suspended, which [`now`] does not count. The clock of `bpf_ktime_get_boot_ns`.
pub fn boottime() -> Duration {
    Duration::from_nanos(clock::boottime())
}

/// Returns the time of CLOCK_REALTIME since 1970-01-01 00:00 UTC. It can be set, so it may jump: compute time
/// spans from [`now`].
pub fn wall_clock() -> Duration {
    Duration::from_nanos(clock::wall_clock())
}

/// Waits for this time. A command that the host starts (`--exec`) begins to run at the first call of this
/// function, of [`stopping`] or of [`Ring::poll`](crate::Ring::poll).
///
/// ```no_run
/// use std::time::Duration;
///
/// use ks_guest::{clock, println};
///
/// while clock::sleep(Duration::from_secs(1)).is_ok() {
///     println!("{:?}", clock::now());
/// }
/// ```
///
/// # Errors
/// [`Interrupted`](ErrorKind::Interrupted), early, when the host asks the plugin to stop.
pub fn sleep(duration: Duration) -> Result<()> {
    // Saturates beyond the range of the clock.
    Ok(clock::sleep(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))?)
}

/// Waits until [`now`] is at least `deadline`; at once if it is already. Repeated waits by a period do not
/// drift. In all else like [`sleep`].
///
/// # Errors
/// [`Interrupted`](ErrorKind::Interrupted), early, when the host asks the plugin to stop.
pub fn sleep_until(deadline: Duration) -> Result<()> {
    // Saturates beyond the range of the clock.
    Ok(clock::sleep_until(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX))?)
}

/// Whether the host has asked the plugin to stop (Ctrl-C, SIGTERM, `--timeout`, the end of the command it
/// observes).
pub fn stopping() -> bool {
    clock::stopping()
}
