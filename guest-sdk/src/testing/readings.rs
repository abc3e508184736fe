//! Readings that a test scripts for its counters.

use core::time::Duration;

use crate::perf::{Reading, State};

/// The result of one read of an event.
#[derive(Debug, Clone)]
pub(super) enum Scripted {
    /// A count of an event that was on a counter since it was opened.
    Count(u64),
    /// A whole reading, returned unchanged.
    Reading(Reading),
}

impl Scripted {
    /// Returns the reading at this time after the opening.
    pub(super) fn after(&self, time: Duration) -> Reading {
        match self {
            Scripted::Count(raw) => counted(*raw, time),
            Scripted::Reading(reading) => *reading,
        }
    }
}

/// Creates a reading of an event that was on a counter all the time; the state is idle if the time is zero.
pub fn counted(raw: u64, time: Duration) -> Reading {
    let state = if time.is_zero() { State::Idle } else { State::Counted };
    Reading { raw, scaled: Some(raw), time_enabled: time, time_running: time, state, partial: false }
}

/// Creates a reading of an event that was on a counter for a part of the time: `scaled` is estimated.
///
/// # Panics
/// If it did not run, or longer than it was enabled.
pub fn multiplexed(raw: u64, enabled: Duration, running: Duration) -> Reading {
    assert!(!running.is_zero() && running <= enabled, "an event runs at most as long as it is enabled");
    let scaled = u128::from(raw) * enabled.as_nanos() / running.as_nanos();
    let scaled = Some(u64::try_from(scaled).unwrap_or(u64::MAX));
    let state = State::Multiplexed;
    Reading { raw, scaled, time_enabled: enabled, time_running: running, state, partial: false }
}

/// Creates a reading of an event that was enabled for this time and never on a counter.
pub fn never_ran(enabled: Duration) -> Reading {
    let state = State::NeverRan;
    Reading {
        raw: 0,
        scaled: None,
        time_enabled: enabled,
        time_running: Duration::ZERO,
        state,
        partial: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_scaled_to_the_whole() {
        let second = Duration::from_secs(1);
        assert_eq!(multiplexed(10, 4 * second, second).scaled, Some(40));
        assert_eq!(multiplexed(u64::MAX, 4 * second, second).scaled, Some(u64::MAX));
        assert_eq!(never_ran(second).scaled, None);
        assert_eq!(
            (counted(7, second).state, counted(0, Duration::ZERO).state),
            (State::Counted, State::Idle)
        );
    }
}
