//! Times of day in the time zone of the machine.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use nix::time::{ClockId, clock_gettime};

use crate::text::MOST_BYTES;

/// The time zone in which times of day are shown. Read once, before the thread loses access to files.
#[derive(Debug, Clone)]
pub(crate) struct TimeZone(jiff::tz::TimeZone);

impl TimeZone {
    /// Returns the zone of the environment variable TZ, else of /etc/localtime, else UTC.
    pub(crate) fn of_system() -> TimeZone {
        TimeZone(jiff::tz::TimeZone::try_system().unwrap_or(jiff::tz::TimeZone::UTC))
    }

    /// Returns UTC, for runs that show no times.
    pub(crate) fn utc() -> TimeZone {
        TimeZone(jiff::tz::TimeZone::UTC)
    }

    /// Formats a moment of the monotonic clock as strftime(3); a format that is not one is returned as it
    /// stands.
    pub(crate) fn time_of_day(&self, format: &[u8], monotonic: u64) -> String {
        self.format(&format[..format.len().min(MOST_BYTES)], wall_clock(monotonic))
    }

    /// Formats a time since 1970.
    fn format(&self, format: &[u8], since_epoch: Duration) -> String {
        let as_it_stands = || String::from_utf8_lossy(format).into_owned();
        let Some(time) = since_epoch.try_into().ok().and_then(|time| Timestamp::from_duration(time).ok())
        else {
            return as_it_stands();
        };
        let broken_down = BrokenDownTime::from(&time.to_zoned(self.0.clone()));
        broken_down.to_string(spelled_out(format)).unwrap_or_else(|_| as_it_stands())
    }
}

/// Returns the time since 1970 at a moment of the monotonic clock, by what the clocks show now.
fn wall_clock(monotonic: u64) -> Duration {
    let now = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
    let (real, own) = (now(ClockId::CLOCK_REALTIME), now(ClockId::CLOCK_MONOTONIC));
    let time = Duration::from_nanos(monotonic);
    (real + time).saturating_sub(own)
}

/// Writes `%f` as microseconds and `%N` as nanoseconds in all of their digits, and the conversions that depend on the
/// language as those of the C locale. Source: POSIX.1-2024, XBD 7.3.5.
fn spelled_out(format: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(format.len() + 2);
    let mut rest = format;
    while let [byte, after @ ..] = rest {
        written.push(*byte);
        rest = after;
        if *byte == b'%'
            && let [letter, after @ ..] = rest
        {
            match letter {
                b'f' => written.extend(b"6f"),
                b'N' => written.extend(b"9f"),
                b'c' => written.extend(b"a %b %e %H:%M:%S %Y"),
                b'x' => written.extend(b"m/%d/%y"),
                b'X' => written.extend(b"H:%M:%S"),
                b'r' => written.extend(b"I:%M:%S %p"),
                letter => written.push(*letter),
            }
            rest = after;
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZone(jiff::tz::TimeZone::posix(name).expect("it is one"))
    }

    #[test]
    fn a_time_is_shown_in_the_zone() {
        let time = Duration::new(1_000_000_000, 1_230_000);
        assert_eq!(zone("UTC0").format(b"%Y-%m-%d %H:%M:%S.%f", time), "2001-09-09 01:46:40.001230");
        assert_eq!(
            zone("CET-1CEST,M3.5.0,M10.5.0/3").format(b"%T.%N %%f %z", time),
            "03:46:40.001230000 %f +0200"
        );
        assert_eq!(zone("UTC0").format(b"%H:%M", Duration::ZERO), "00:00");
        assert_eq!(
            zone("UTC0").format(b"%c|%x|%X|%r", time),
            "Sun Sep  9 01:46:40 2001|09/09/01|01:46:40|01:46:40 AM"
        );
    }

    #[test]
    fn what_is_no_format_stands() {
        assert_eq!(zone("UTC0").format(b"%", Duration::ZERO), "%");
        assert_eq!(zone("UTC0").format(b"%H %!", Duration::ZERO), "%H %!");
        assert_eq!(zone("UTC0").format(b"\xff%H", Duration::ZERO), "\u{fffd}%H");
        assert_eq!(zone("UTC0").format(b"%H", Duration::MAX), "%H");
    }

    #[test]
    fn now_is_now() {
        let own = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("it is there"));
        let real = Duration::from(clock_gettime(ClockId::CLOCK_REALTIME).expect("it is there"));
        let found = wall_clock(u64::try_from(own.as_nanos()).expect("the machine is younger"));
        assert!(found.abs_diff(real) < Duration::from_secs(1), "{found:?} {real:?}");
    }
}
