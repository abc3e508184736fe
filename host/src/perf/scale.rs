//! Scaling a count to the whole time that its event was enabled.

/// How long an event was enabled, and how much of that it was on a counter, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(super) struct Times {
    pub(super) enabled: u64,
    pub(super) running: u64,
}

impl Times {
    /// Returns the times that passed since `start`.
    #[inline]
    pub(super) fn since(self, start: Times) -> Times {
        Times {
            enabled: self.enabled.saturating_sub(start.enabled),
            running: self.running.saturating_sub(start.running),
        }
    }

    /// Returns both times, advanced by `span`.
    pub(super) fn plus(self, span: Times) -> Times {
        Times {
            enabled: self.enabled.saturating_add(span.enabled),
            running: self.running.saturating_add(span.running),
        }
    }

    /// Returns the state of a count with these times.
    #[inline]
    pub(super) fn state(self) -> State {
        match (self.enabled, self.running) {
            (0, 0) => State::Idle,
            (_, 0) => State::NeverRan,
            (enabled, running) if running < enabled => State::Multiplexed,
            _ => State::Counted,
        }
    }
}

/// The count of one kernel event, and its times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub(super) raw: u64,
    pub(super) times: Times,
}

impl Count {
    /// Converts to a tally that can be added to others.
    #[inline]
    pub(super) fn tally(self) -> Tally {
        Tally::of(self.raw, self.times)
    }

    /// Returns the count scaled to the whole enabled time, at most `u64::MAX`; None if the event never ran.
    #[inline]
    pub(super) fn scaled(self) -> Option<u64> {
        // The fast path: nearly every count was on a counter all the time.
        if self.times.running >= self.times.enabled {
            return Some(self.raw);
        }
        match self.times.state() {
            State::NeverRan => None,
            State::Idle | State::Counted => Some(self.raw),
            State::Multiplexed => Some(self.estimate().unwrap_or(u64::MAX)),
        }
    }

    /// Computes `raw * enabled / running`, rounded toward zero; None if it exceeds 64 bits. The product needs
    /// 128 bits, since `raw` may use all 64.
    fn estimate(self) -> Option<u64> {
        let Times { enabled, running } = self.times;
        let estimate = (u128::from(self.raw) * u128::from(enabled)).checked_div(u128::from(running))?;
        u64::try_from(estimate).ok()
    }
}

/// How much of the enabled time a count covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The event was on a counter whenever it was enabled: the count needs no correction.
    Counted,
    /// The event was on a counter part of the time (more events than counters, or a task away from the
    /// event's CPU).
    Multiplexed,
    /// Enabled for some time and never on a counter: there is no count.
    NeverRan,
    /// Neither enabled nor running since the restart, for example because the task slept: a true zero.
    Idle,
}

/// Count and times of one kernel event, or of several that read as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(super) struct Tally {
    /// Events as the kernel counted them.
    pub(super) raw: u64,
    /// Sum of the counts of all kernel events, each scaled to its own enabled time.
    scaled: u64,
    /// Whether `scaled` exceeds `u64::MAX` and was limited to it.
    pub(super) saturated: bool,
    /// The sums of both times.
    pub(super) times: Times,
    /// Number of kernel events that were enabled for some time.
    pub(super) enabled: u32,
    /// Number of enabled kernel events that were never on a counter.
    pub(super) never_ran: u32,
    /// Whether some requested kinds of core or CPUs did not count the event at all.
    pub(super) lacks: bool,
}

impl Tally {
    /// Returns the tally of one kernel event.
    #[inline]
    pub(super) fn of(raw: u64, times: Times) -> Tally {
        let count = Count { raw, times };
        let state = times.state();
        let (scaled, saturated) = match state {
            State::NeverRan => (0, false),
            State::Idle | State::Counted => (raw, false),
            State::Multiplexed => count.estimate().map_or((u64::MAX, true), |value| (value, false)),
        };
        let never_ran = (state == State::NeverRan).into();
        Tally { raw, scaled, saturated, times, enabled: (times.enabled > 0).into(), never_ran, lacks: false }
    }

    /// Adds two independent tallies.
    pub(super) fn plus(self, other: Tally) -> Tally {
        let (scaled, overflow) = self.scaled.overflowing_add(other.scaled);
        Tally {
            raw: self.raw.saturating_add(other.raw),
            scaled: if overflow { u64::MAX } else { scaled },
            saturated: self.saturated || other.saturated || overflow,
            times: self.times.plus(other.times),
            enabled: self.enabled + other.enabled,
            never_ran: self.never_ran + other.never_ran,
            lacks: self.lacks || other.lacks,
        }
    }

    /// Combines with the same task's tally on another CPU. Both were enabled over the same time, in which the
    /// task ran on one or the other. If each were scaled alone, each would stand for all of that time.
    pub(super) fn on_other_cpu(self, other: Tally) -> Tally {
        let enabled = self.times.enabled.max(other.times.enabled);
        let running = self.times.running.saturating_add(other.times.running).min(enabled);
        Tally::of(self.raw.saturating_add(other.raw), Times { enabled, running })
    }

    /// Combines with the same task's tally on another kind of core. Both were enabled over the same time,
    /// except for the moment between two system calls, and one ran whenever the task did. If one never ran
    /// and the other not always, the task may have run without being counted.
    pub(super) fn on_other_core(self, other: Tally) -> Tally {
        let enabled = self.times.enabled.min(other.times.enabled);
        let running = self.times.running.saturating_add(other.times.running).min(enabled);
        let both = Tally::of(self.raw.saturating_add(other.raw), Times { enabled, running });
        let kinds = self.enabled + other.enabled;
        let never_ran = if running < enabled { self.never_ran + other.never_ran } else { 0 };
        Tally { enabled: kinds, never_ran, ..both }
    }

    /// Combines with the tally of the same tasks and CPUs at another probed instruction. Both were enabled
    /// over the same time, except for the moment between two system calls.
    pub(super) fn at_other_point(self, other: Tally) -> Tally {
        let times = Times {
            enabled: self.times.enabled.max(other.times.enabled),
            running: self.times.running.max(other.times.running),
        };
        Tally { times, ..self.plus(other) }
    }

    /// Returns the tally with [`Tally::lacks`] set.
    #[inline]
    pub(super) fn lacking(self, lacks: bool) -> Tally {
        Tally { lacks, ..self }
    }

    /// Returns the tally of an event that was not opened there: enabled, and never on a counter.
    pub(super) fn nothing() -> Tally {
        Tally::of(0, Times { enabled: 1, running: 0 })
    }

    /// Returns the state that follows from the times.
    #[inline]
    pub(super) fn state(&self) -> State {
        self.times.state()
    }

    /// Returns the scaled count; None if no kernel event ever ran.
    #[inline]
    pub(super) fn scaled(&self) -> Option<u64> {
        (self.state() != State::NeverRan).then_some(self.scaled)
    }

    /// Whether some kernel events were on a counter and others never were, or were not opened.
    #[inline]
    pub(super) fn is_partial(&self) -> bool {
        self.lacks || self.never_ran > 0 && self.never_ran < self.enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(raw: u64, enabled: u64, running: u64) -> (Option<u64>, bool) {
        let tally = Tally::of(raw, Times { enabled, running });
        (tally.scaled(), tally.saturated)
    }

    #[test]
    fn two_probe_points_of_a_program_share_one_time() {
        let times = Times { enabled: 10, running: 5 };
        let both = Tally::of(3, times).at_other_point(Tally::of(4, Times { enabled: 9, running: 5 }));
        assert_eq!((both.raw, both.times, both.state()), (7, times, State::Multiplexed));
        assert_eq!(both.scaled(), Some(6 + 7));
    }

    #[test]
    fn one_task_on_two_cpus_is_scaled_once() {
        let part = |raw, enabled, running| Tally::of(raw, Times { enabled, running });
        let both = part(10, 100, 50).on_other_cpu(part(10, 100, 50));
        assert_eq!((both.raw, both.scaled(), both.state()), (20, Some(20), State::Counted));
        assert_eq!(both.times, Times { enabled: 100, running: 100 });
        let elsewhere = both.on_other_cpu(part(0, 100, 0));
        assert_eq!((elsewhere.scaled(), elsewhere.is_partial()), (Some(20), false), "it was never there");
        let shared = part(10, 100, 25).on_other_cpu(part(10, 100, 25));
        assert_eq!(shared.scaled(), Some(40), "on a counter half of the time");
    }

    #[test]
    fn one_task_on_two_kinds_of_core_is_one() {
        let part = |raw, enabled, running| Tally::of(raw, Times { enabled, running });
        // The second event was enabled slightly later.
        let both = part(10, 103, 60).on_other_core(part(5, 100, 42));
        assert_eq!((both.raw, both.scaled(), both.state()), (15, Some(15), State::Counted));
        let one = part(10, 100, 100).on_other_core(part(0, 103, 0));
        assert_eq!(
            (one.scaled(), one.state(), one.is_partial()),
            (Some(10), State::Counted, false),
            "all of it"
        );
        let perhaps = part(10, 100, 50).on_other_core(part(0, 100, 0));
        assert_eq!((perhaps.scaled(), perhaps.state()), (Some(20), State::Multiplexed));
        assert!(perhaps.is_partial(), "nobody knows where the task was meanwhile");
        let shared = part(10, 100, 25).on_other_core(part(10, 100, 25));
        assert_eq!((shared.scaled(), shared.is_partial()), (Some(40), false));
        let never = part(0, 100, 0).on_other_core(part(0, 100, 0));
        assert_eq!((never.scaled(), never.is_partial()), (None, false));
    }

    #[test]
    fn a_sum_lacks_what_a_part_lacks() {
        let whole = Tally::of(1, Times { enabled: 1, running: 1 });
        let most = Tally::of(u64::MAX, Times { enabled: 2, running: 1 });
        assert!(most.saturated && most.plus(whole).saturated && whole.plus(most).saturated);
        let over = Tally::of(u64::MAX, Times { enabled: 1, running: 1 });
        assert!(!over.saturated && over.plus(whole).saturated && !whole.plus(whole).saturated);
        let lacking = whole.lacking(true);
        assert!(lacking.is_partial() && lacking.plus(whole).is_partial() && whole.plus(lacking).is_partial());
        assert!(!whole.lacking(false).plus(whole).is_partial());
        let nothing = Tally::nothing();
        assert_eq!((nothing.raw, nothing.scaled(), nothing.state()), (0, None, State::NeverRan));
    }

    #[test]
    fn a_sum_is_scaled_part_by_part() {
        let part = |raw, enabled, running| Tally::of(raw, Times { enabled, running });
        let sum = part(10, 100, 50).plus(part(10, 100, 100));
        assert_eq!((sum.raw, sum.scaled(), sum.state()), (20, Some(30), State::Multiplexed));
        assert!(!sum.is_partial());
        let partial = sum.plus(part(0, 100, 0));
        assert_eq!((partial.scaled(), partial.enabled, partial.never_ran), (Some(30), 3, 1));
        assert!(partial.is_partial());
        let never = part(0, 0, 0).plus(part(0, 7, 0));
        assert_eq!(
            (never.scaled(), never.state()),
            (None, State::NeverRan),
            "idle is not on a counter either"
        );
        assert!(!never.is_partial());
        let idle = Tally::default().plus(part(0, 0, 0));
        assert_eq!((idle.scaled(), idle.state()), (Some(0), State::Idle));
        let large = part(u64::MAX, 1, 1).plus(part(1, 1, 1));
        assert_eq!((large.scaled(), large.saturated), (Some(u64::MAX), true));
    }

    #[test]
    fn the_product_has_128_bits() {
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
    fn never_scheduled_events_have_no_scaled_count() {
        assert_eq!(scaled(0, 1, 0), (None, false));
        assert_eq!(Times { enabled: 1, running: 0 }.state(), State::NeverRan);
    }

    #[test]
    fn no_time_at_all_is_a_true_zero() {
        assert_eq!(scaled(0, 0, 0), (Some(0), false));
        assert_eq!(Times::default().state(), State::Idle);
    }
}
