//! How an event is opened, and the kernel's structure for it.

use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::event::{Event, Kind};

/// Always the same four, so that every attachment can be read in one way, alone or in a group.
const READ_FORMAT: u64 = (bindings::PERF_FORMAT_GROUP
    | bindings::PERF_FORMAT_ID
    | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// How an event is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The task: 0 is the calling thread, a positive number that task, -1 (the default) every task, which needs a CPU.
    pub pid: i32,
    /// The CPU from 0 (the default), or -1 for whichever CPU the task runs on.
    pub cpu: i32,
    /// Events between two runs of the program; 0 means the default, 1000000. Not used without a program.
    #[doc(alias = "sample_period")]
    pub period: u64,
    /// Samples between two wake-ups of a reader of the event's ring; 0 means the default, 1.
    #[doc(alias = "wakeup_events")]
    pub wakeup: u32,
    /// Count children that the task creates later, too. The same in a whole group.
    pub inherit: bool,
    /// Do not count while the CPU runs the kernel.
    pub exclude_kernel: bool,
    /// Do not count while the CPU runs user code.
    pub exclude_user: bool,
}

impl Options {
    const DEFAULT_PERIOD: u64 = 1_000_000;
    const DEFAULT_WAKEUP: u32 = 1;
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pid: -1,
            cpu: 0,
            period: Options::DEFAULT_PERIOD,
            wakeup: Options::DEFAULT_WAKEUP,
            inherit: false,
            exclude_kernel: false,
            exclude_user: false,
        }
    }
}

/// What an event is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be read only: nothing happens at an overflow, the period is 0.
    Counting,
    /// To run a program at each overflow, too.
    Sampling,
}

/// The kernel's structure for an event.
pub(super) fn attr(event: &Event, options: &Options, purpose: Purpose) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.read_format = READ_FORMAT;
    match event.kind() {
        Kind::Counter { type_, config } => {
            attr.type_ = type_;
            attr.config = config;
        }
        Kind::Breakpoint { address, len, access } => {
            attr.type_ = bindings::PERF_TYPE_BREAKPOINT;
            attr.bp_type = access.bits();
            attr.__bindgen_anon_3.bp_addr = address;
            attr.__bindgen_anon_4.bp_len = u64::from(len);
        }
    }
    let (period, wakeup) = sampling(options, purpose);
    attr.__bindgen_anon_1.sample_period = period;
    attr.__bindgen_anon_2.wakeup_events = wakeup;
    attr.set_disabled(1);
    attr.set_inherit(u64::from(options.inherit));
    attr.set_exclude_kernel(u64::from(options.exclude_kernel));
    attr.set_exclude_user(u64::from(options.exclude_user));
    attr
}

/// Events between two samples, and samples between two wake-ups.
fn sampling(options: &Options, purpose: Purpose) -> (u64, u32) {
    match purpose {
        Purpose::Counting => (0, 0),
        Purpose::Sampling => (
            or_default(options.period, Options::DEFAULT_PERIOD),
            or_default(options.wakeup, Options::DEFAULT_WAKEUP),
        ),
    }
}

fn or_default<T: Default + PartialEq>(value: T, default: T) -> T {
    if value == T::default() { default } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(options: &Options, purpose: Purpose) -> perf_event_attr {
        attr(&Event::named("page_faults").unwrap(), options, purpose)
    }

    #[test]
    fn an_event_is_opened_disabled_and_read_as_a_group_with_ids_and_times() {
        let attr = faults(&Options::default(), Purpose::Counting);
        assert_eq!((attr.type_, attr.config, attr.disabled()), (1, 2, 1));
        assert_eq!(attr.read_format, 0b1111);
        assert_eq!((attr.inherit(), attr.exclude_kernel(), attr.exclude_user()), (0, 0, 0));
    }

    #[test]
    fn zero_means_the_default_and_counting_has_no_period() {
        let zero = Options { period: 0, wakeup: 0, ..Options::default() };
        assert_eq!(sampling(&zero, Purpose::Sampling), (1_000_000, 1));
        assert_eq!(sampling(&zero, Purpose::Counting), (0, 0));
        let given = Options { period: 7, wakeup: 3, ..Options::default() };
        assert_eq!(sampling(&given, Purpose::Sampling), (7, 3));
        assert_eq!(sampling(&given, Purpose::Counting), (0, 0));
    }
}
