//! From a count and two times to a number for the whole enabled time.

/// How long an event was enabled, and how long of that it was on a counter. Nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) enabled: u64,
    pub(super) running: u64,
}

impl Times {
    /// The times that passed since `start`.
    pub(super) fn since(self, start: Times) -> Times {
        Times {
            enabled: self.enabled.saturating_sub(start.enabled),
            running: self.running.saturating_sub(start.running),
        }
    }

    /// Both times, later by `span`.
    pub(super) fn plus(self, span: Times) -> Times {
        Times {
            enabled: self.enabled.saturating_add(span.enabled),
            running: self.running.saturating_add(span.running),
        }
    }

    /// What these times say of a count.
    pub(super) fn state(self) -> State {
        match (self.enabled, self.running) {
            (0, 0) => State::Idle,
            (_, 0) => State::NeverRan,
            (enabled, running) if running < enabled => State::Multiplexed,
            _ => State::Counted,
        }
    }
}

/// How much of the enabled time a count stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The event was on a counter all the time it was enabled: the count needs no correction.
    Counted,
    /// The event was on a counter part of the time (more events than counters, or a task away from the event's CPU).
    Multiplexed,
    /// Enabled for some time and never on a counter: there is no number.
    NeverRan,
    /// Neither enabled nor running since the restart, for example a task that slept: a true zero.
    Idle,
}

/// A count, corrected for the time in which the event was not on a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scaled {
    /// None if the event never ran.
    pub(super) value: Option<u64>,
    /// The product was above `u64::MAX`, which `value` is then.
    pub(super) saturated: bool,
}

/// `raw * enabled / running`, rounded toward zero. The product is made in 128 bits: `raw` may use all of its 64.
pub(super) fn scale(raw: u64, times: Times) -> Scaled {
    match times.state() {
        State::NeverRan => Scaled { value: None, saturated: false },
        State::Idle | State::Counted => Scaled { value: Some(raw), saturated: false },
        State::Multiplexed => {
            let estimate = u128::from(raw) * u128::from(times.enabled) / u128::from(times.running);
            match u64::try_from(estimate) {
                Ok(value) => Scaled { value: Some(value), saturated: false },
                Err(_) => Scaled { value: Some(u64::MAX), saturated: true },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(raw: u64, enabled: u64, running: u64) -> (Option<u64>, bool) {
        let Scaled { value, saturated } = scale(raw, Times { enabled, running });
        (value, saturated)
    }

    #[test]
    fn the_product_is_made_in_128_bits() {
        assert_eq!(scaled(1 << 62, 3, 2), (Some(3 << 61), false));
        assert_eq!(scaled(1 << 62, u64::MAX, u64::MAX / 2), (Some(1 << 63), false));
    }

    #[test]
    fn a_result_above_64_bits_saturates_and_says_so() {
        assert_eq!(scaled(1 << 62, 5, 1), (Some(u64::MAX), true));
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), (Some(u64::MAX), true));
        assert_eq!(scaled(1 << 62, 7, 2), (Some(7 << 61), false));
        assert_eq!(scaled(1 << 63, 4, 2), (Some(u64::MAX), true));
    }

    #[test]
    fn a_fraction_is_cut() {
        assert_eq!(scaled(10, 5, 3), (Some(16), false));
        assert_eq!(scaled(1, 3, 2), (Some(1), false));
    }

    #[test]
    fn equal_times_leave_the_count_alone() {
        assert_eq!(scaled(u64::MAX, 7, 7), (Some(u64::MAX), false));
    }

    #[test]
    fn never_on_a_counter_is_no_number() {
        assert_eq!(scaled(0, 1, 0), (None, false));
        assert_eq!(Times { enabled: 1, running: 0 }.state(), State::NeverRan);
    }

    #[test]
    fn no_time_at_all_is_a_true_zero() {
        assert_eq!(scaled(0, 0, 0), (Some(0), false));
        assert_eq!(Times::default().state(), State::Idle);
    }
}
