//! What a person should know of a number that is right: how far it can be trusted, and what it leaves out.

use std::fmt;

use super::attr::Options;
use super::event::Event;

/// One such thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// The event was enabled for some time and never on a counter.
    NeverRan {
        /// The event's name.
        event: String,
    },
    /// The count is scaled from little.
    LowShare {
        /// The event's name.
        event: String,
        /// How much of the enabled time it was on a counter, in hundredths of a percent.
        share: u32,
    },
    /// Some of the kernel events that the attachment stands for were never on a counter.
    Partial {
        /// The event's name.
        event: String,
        /// How many were enabled.
        enabled: u32,
        /// How many of these never ran.
        never_ran: u32,
    },
    /// Cores of one kind do not count the event, others do.
    OtherCores {
        /// The event's name.
        event: String,
        /// The PMU of the kind of core that does not count it.
        pmu: String,
        /// Why.
        because: String,
    },
    /// The group had no room: the event was opened alone.
    Alone {
        /// The event's name.
        event: String,
        /// The leader of the group that it should have joined.
        leader: String,
    },
    /// Several functions have the name that the event was given: it counts the calls of all of them.
    Functions {
        /// The event's name.
        event: String,
        /// How many.
        number: usize,
        /// Where they are in the file.
        locations: String,
    },
    /// The compiler made copies of the function for some of its callers.
    Copies {
        /// The event's name.
        event: String,
        /// Their names.
        copies: String,
    },
    /// `exclude_idle` was taken, and most PMUs do not honour it.
    IdleCounts {
        /// The event's name.
        event: String,
    },
    /// Modes of the CPU were to be left out of a clock, which takes no notice.
    ClockCounts {
        /// The event's name.
        event: String,
    },
    /// The kernel stopped the event for parts of the time, because it came too often: its count is too low, and its program missed
    /// some.
    Throttled {
        /// The event's name.
        event: String,
        /// How often, each time until the next tick of the clock.
        times: u64,
    },
    /// A CPU went offline: nothing is counted there from now on.
    CpuGone {
        /// The event's name.
        event: String,
        /// The CPU.
        cpu: i32,
    },
    /// A CPU came online: it is counted from now on.
    CpuCame {
        /// The event's name.
        event: String,
        /// The CPU.
        cpu: i32,
    },
    /// A CPU came online and cannot be counted.
    CpuMissed {
        /// The event's name.
        event: String,
        /// The CPU.
        cpu: i32,
        /// The error.
        because: String,
    },
}

impl Notice {
    /// What the options ask for and the kernel may count nevertheless.
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
                "event `{event}` was never scheduled: it was enabled for some time and never on a counter, so there is \
                 no count"
            ),
            Notice::LowShare { event, share } => write!(
                f,
                "event `{event}` was on a counter {}.{:02} % of the time: its scaled count is a guess\n  do: use fewer \
                 events at once",
                share / 100,
                share % 100
            ),
            Notice::Partial { event, enabled, never_ran } => write!(
                f,
                "event `{event}` was never on a counter at {never_ran} of {enabled} places: its count is that of the \
                 others"
            ),
            Notice::OtherCores { event, pmu, because } => write!(
                f,
                "event `{event}` is not counted on the cores of `{pmu}`: {because}\n  so: its count is that of the other \
                 cores"
            ),
            Notice::Alone { event, leader } => write!(
                f,
                "event `{event}` does not fit the group led by `{leader}` and counts alone (`weak`): ratios between the \
                 two compare different times"
            ),
            Notice::Functions { event, number, locations } => {
                write!(f, "event `{event}` counts calls of {number} functions: {locations}")
            }
            Notice::Copies { event, copies } => write!(
                f,
                "event `{event}` does not count calls of copies that the compiler made of the function: {copies}"
            ),
            Notice::IdleCounts { event } => write!(
                f,
                "`exclude_idle` of `{event}` was taken by the kernel, but few PMUs honour it: idle time may be counted"
            ),
            Notice::ClockCounts { event } => write!(
                f,
                "`exclude_kernel` and `exclude_user` of `{event}` were taken by the kernel, which counts all of the time \
                 nevertheless"
            ),
            Notice::Throttled { event, times } => {
                let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
                write!(
                    f,
                    "event `{event}` was throttled {often}: it came more often than the kernel allows, and was stopped \
                     until the next tick of the clock: its count and its samples are too few\n  do: take fewer samples, or raise sysctl \
                     kernel.perf_event_max_sample_rate"
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
