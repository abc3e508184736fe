//! Notices about readings that are correct: how far a count can be trusted, and what it leaves out.

use std::fmt;

use super::attr::Options;
use super::event::Event;

/// A notice about one attachment, reported once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// The event was enabled for some time and never on a counter.
    NeverRan {
        /// The event's name, as in [`Event::name`].
        event: String,
    },
    /// The count is scaled from a small share of the enabled time.
    LowShare {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// Share of the enabled time that the event was on a counter, in hundredths of a percent.
        share: u32,
    },
    /// Some of the kernel events that the attachment stands for were never on a counter.
    Partial {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// Number of its kernel events that were enabled.
        enabled: u32,
        /// Number of enabled kernel events that never ran.
        never_ran: u32,
    },
    /// Some kinds of core do not count the event; others do.
    OtherCores {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// The PMU of a kind of core that does not count the event.
        pmu: String,
        /// The reason, in words.
        because: String,
    },
    /// The event did not fit into the group and was opened alone.
    Alone {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// The name of the event that leads the group.
        leader: String,
    },
    /// Several functions have the event's name; it counts the calls of all of them.
    Functions {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// Number of functions with this name.
        number: usize,
        /// The offsets of these functions in the file.
        locations: String,
    },
    /// The compiler made copies of the function for some of its callers; their calls are not counted.
    Copies {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// The symbols of the copies.
        copies: String,
    },
    /// `exclude_idle` was accepted, but most PMUs ignore it.
    IdleCounts {
        /// The event's name, as in [`Event::name`].
        event: String,
    },
    /// CPU modes were excluded for a clock, which ignores them.
    ClockCounts {
        /// The event's name, as in [`Event::name`].
        event: String,
    },
    /// The kernel stopped the event for part of the time because it occurred too often. Its count is too low,
    /// and its program missed some events.
    Throttled {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// Number of throttlings; each lasts until the next clock tick.
        times: u64,
    },
    /// A CPU went offline: nothing is counted there from now on.
    CpuGone {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// The CPU that went offline.
        cpu: i32,
    },
    /// A CPU came online: it is counted from now on.
    CpuCame {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// The CPU that came online.
        cpu: i32,
    },
    /// A CPU came online and cannot be counted.
    CpuMissed {
        /// The event's name, as in [`Event::name`].
        event: String,
        /// The CPU that came online.
        cpu: i32,
        /// The error of opening the event, in words.
        because: String,
    },
}

impl Notice {
    /// Returns notices about options that the event or its PMU may ignore.
    pub(super) fn of_options(event: &Event, options: &Options) -> Vec<Notice> {
        let name = || event.name().to_owned();
        let mut notices = Vec::new();
        if options.exclude_idle {
            notices.push(Notice::IdleCounts { event: name() });
        }
        if event.is_clock() && (options.exclude_kernel || options.exclude_user) {
            notices.push(Notice::ClockCounts { event: name() });
        }
        notices
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NeverRan { event } => write!(
                f,
                "event `{event}` was never scheduled: it was enabled for some time and never on a counter, \
                 so there is no count"
            ),
            Notice::LowShare { event, share } => write!(
                f,
                "event `{event}` was on a counter {}.{:02} % of the time: its scaled count is a guess\n  \
                 do: use fewer events at once",
                share / 100,
                share % 100
            ),
            Notice::Partial { event, enabled, never_ran } => write!(
                f,
                "event `{event}` was never on a counter at {never_ran} of {enabled} places: its count is \
                 that of the others"
            ),
            Notice::OtherCores { event, pmu, because } => write!(
                f,
                "event `{event}` is not counted on the cores of `{pmu}`: {because}\n  \
                 so: its count is that of the other cores"
            ),
            Notice::Alone { event, leader } => write!(
                f,
                "event `{event}` does not fit the group led by `{leader}` and counts alone (`weak`): ratios \
                 between the two compare different times"
            ),
            Notice::Functions { event, number, locations } => {
                write!(f, "event `{event}` counts calls of {number} functions: {locations}")
            }
            Notice::Copies { event, copies } => write!(
                f,
                "event `{event}` does not count calls of copies that the compiler made of the function: \
                 {copies}"
            ),
            Notice::IdleCounts { event } => write!(
                f,
                "`exclude_idle` of `{event}` was taken by the kernel, but few PMUs honour it: idle time may \
                 be counted"
            ),
            Notice::ClockCounts { event } => write!(
                f,
                "`exclude_kernel` and `exclude_user` of `{event}` were taken by the kernel, which counts all \
                 of the time nevertheless"
            ),
            Notice::Throttled { event, times } => {
                let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
                write!(
                    f,
                    "event `{event}` was throttled {often}: it came more often than the kernel allows, and \
                     was stopped until the next tick of the clock: its count and its samples are too few\n  \
                     do: take fewer samples, or raise sysctl kernel.perf_event_max_sample_rate"
                )
            }
            Notice::CpuGone { event, cpu } => {
                write!(f, "cpu {cpu} went offline: `{event}` keeps what it counted there")
            }
            Notice::CpuCame { event, cpu } => {
                write!(
                    f,
                    "cpu {cpu} came online: `{event}` counts there from now on, what was before is missing"
                )
            }
            Notice::CpuMissed { event, cpu, because } => {
                write!(f, "cpu {cpu} came online, and `{event}` is not counted there\n{because}")
            }
        }
    }
}
