//! How an event is opened, and the kernel's structure for it.

use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::error::Refusal;
use super::event::EventKind;

/// Always the same four, so that every attachment can be read in one way, alone or in a group.
const READ_FORMAT: u64 = (bindings::PERF_FORMAT_GROUP
    | bindings::PERF_FORMAT_ID
    | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// How an event is opened.
///
/// Kernel versions are those in which the option came into `perf_event_open(2)`; none is older than what this host
/// asks for anyway (5.15, links of perf events) but where it is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The task: 0 is the calling thread, a positive number that task, -1 (the default) every task, which needs a CPU.
    pub pid: i32,
    /// The CPU from 0 (the default), or -1 for whichever CPU the task runs on.
    pub cpu: i32,
    /// Every CPU that is online, one kernel event on each; `cpu` is not used then.
    pub every_cpu: bool,
    /// Every task whose executable has this path, or whose command has this name; `pid` must be -1.
    pub process: String,
    /// The command that the host starts, counted from its exec; `pid` must be -1.
    #[doc(alias = "enable_on_exec")]
    pub command: bool,
    /// The tasks of a control group, by its path below the mount; `pid` must be -1, and a CPU is needed. 2.6.39.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    pub cgroup: String,
    /// All threads of the process of `pid`, also those that it creates later. 5.13 (`inherit_thread`).
    pub follow: bool,
    /// Events between two runs of the program; 0 means the default, 1000000. Not used without a program.
    #[doc(alias = "sample_period")]
    pub period: u64,
    /// Runs of the program per second, for which the kernel adapts the period; 0 (the default): by `period`.
    #[doc(alias = "sample_freq")]
    pub freq: u64,
    /// Samples between two wake-ups of a reader of the event's ring; 0 means the default, 1.
    #[doc(alias = "wakeup_events")]
    pub wakeup: u32,
    /// Count children that the task creates later, too. The same in a whole group.
    pub inherit: bool,
    /// Do not count while the CPU runs the kernel. The clocks of the kernel count all time whatever this says.
    pub exclude_kernel: bool,
    /// Do not count while the CPU runs user code.
    pub exclude_user: bool,
    /// Do not count while the CPU idles. Few PMUs honour it.
    pub exclude_idle: bool,
    /// Do not count while the CPU runs a hypervisor. PMUs without such a mode take no notice.
    pub exclude_hv: bool,
    /// Do not count while the CPU runs a host, as opposed to its virtual machines. 3.2.
    pub exclude_host: bool,
    /// Do not count while the CPU runs a virtual machine. 3.2.
    pub exclude_guest: bool,
    /// On a counter always, or in error state. For leaders.
    pub pinned: bool,
    /// Nobody else on the PMU while it counts. For leaders.
    pub exclusive: bool,
    /// How far a sample's place may be from the event: 0 (anywhere) to 3 (must not). 2.6.35.
    #[doc(alias = "precise_ip")]
    pub precise: u32,
    /// Opened alone if the group has no room for it.
    pub weak: bool,
}

impl Options {
    const DEFAULT_PERIOD: u64 = 1_000_000;
    const DEFAULT_WAKEUP: u32 = 1;
    /// The shortest time between two runs of a program at a clock, in nanoseconds. On a virtual machine each takes some
    /// twenty microseconds, most of them for the interrupt, and the kernel throttles no clock that asks for as many as
    /// `kernel.perf_event_max_sample_rate` allows: with 10 000 a CPU did nothing else until the event was closed.
    const MIN_CLOCK_PERIOD: u64 = 50_000;

    /// Refuses runs of a program at a clock that would leave its CPU no time for anything else.
    pub(super) fn check_clock(&self) -> Result<(), Refusal> {
        let period = match self.freq {
            0 => or_default(self.period, Options::DEFAULT_PERIOD),
            freq => 1_000_000_000 / freq,
        };
        if period >= Options::MIN_CLOCK_PERIOD {
            return Ok(());
        }
        Err(Refusal::ClockTooOften { period, shortest: Options::MIN_CLOCK_PERIOD })
    }

    /// Whose events these are, as policies know it: `own` (this thread), `command` (the one that the host starts),
    /// `process` (found by its name), `cgroup`, `task` (found by its number), or `all`.
    pub fn scope(&self) -> &'static str {
        match self.pid {
            0 => "own",
            _ if self.command => "command",
            _ if !self.process.is_empty() => "process",
            _ if !self.cgroup.is_empty() => "cgroup",
            -1 => "all",
            _ => "task",
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pid: -1,
            cpu: 0,
            every_cpu: false,
            process: String::new(),
            command: false,
            cgroup: String::new(),
            follow: false,
            period: Options::DEFAULT_PERIOD,
            freq: 0,
            wakeup: Options::DEFAULT_WAKEUP,
            inherit: false,
            exclude_kernel: false,
            exclude_user: false,
            exclude_idle: false,
            exclude_hv: false,
            exclude_host: false,
            exclude_guest: false,
            pinned: false,
            exclusive: false,
            precise: 0,
            weak: false,
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

/// The kernel's structure for an event. It points to nothing.
pub(super) fn attr(kind: &EventKind, options: &Options, purpose: Purpose) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.read_format = READ_FORMAT;
    what(&mut attr, kind);
    when(&mut attr, options, purpose);
    attr.set_disabled(1);
    // A thread's events are inherited by all of its children, unless they are said to be for threads.
    attr.set_inherit(u64::from(options.inherit || options.follow));
    attr.set_inherit_thread(u64::from(options.follow && !options.inherit));
    attr.set_enable_on_exec(u64::from(options.command));
    attr.set_exclude_kernel(u64::from(options.exclude_kernel));
    attr.set_exclude_user(u64::from(options.exclude_user));
    attr.set_exclude_idle(u64::from(options.exclude_idle));
    attr.set_exclude_hv(u64::from(options.exclude_hv));
    attr.set_exclude_host(u64::from(options.exclude_host));
    attr.set_exclude_guest(u64::from(options.exclude_guest));
    attr.set_pinned(u64::from(options.pinned));
    attr.set_exclusive(u64::from(options.exclusive));
    attr.set_precise_ip(u64::from(options.precise));
    attr
}

/// The fields that choose the event.
fn what(attr: &mut perf_event_attr, kind: &EventKind) {
    match kind {
        EventKind::Counter { type_, config } => {
            attr.type_ = *type_;
            [attr.config, attr.config1, attr.config2] = *config;
        }
        EventKind::Breakpoint { address, len, access } => {
            attr.type_ = bindings::PERF_TYPE_BREAKPOINT;
            attr.bp_type = access.bits();
            attr.bp_addr = *address;
            attr.bp_len = u64::from(*len);
        }
        // Where its text is, says the call.
        EventKind::Probe { type_, location } => {
            attr.type_ = *type_;
            attr.probe_offset = location.offset();
        }
    }
}

/// The fields that say when a program runs.
fn when(attr: &mut perf_event_attr, options: &Options, purpose: Purpose) {
    if purpose == Purpose::Counting {
        return;
    }
    attr.wakeup_events = or_default(options.wakeup, Options::DEFAULT_WAKEUP);
    if options.freq == 0 {
        attr.sample_period = or_default(options.period, Options::DEFAULT_PERIOD);
    } else {
        attr.set_freq(1);
        attr.sample_freq = options.freq;
    }
}

fn or_default<T: Default + PartialEq>(value: T, default: T) -> T {
    if value == T::default() { default } else { value }
}

#[cfg(test)]
mod tests {
    use super::super::event::Event;
    use super::*;

    fn faults(options: &Options, purpose: Purpose) -> perf_event_attr {
        attr(Event::named("page_faults").unwrap().kind(), options, purpose)
    }

    #[test]
    fn an_event_is_opened_disabled_and_read_as_a_group_with_ids_and_times() {
        let attr = faults(&Options::default(), Purpose::Counting);
        assert_eq!((attr.type_, attr.config, attr.disabled()), (1, 2, 1));
        assert_eq!(attr.read_format, 0b1111);
        assert_eq!((attr.inherit(), attr.exclude_kernel(), attr.exclude_user()), (0, 0, 0));
    }

    /// Period or frequency, whether it is a frequency, and the samples between two wake-ups.
    fn sampling(options: &Options, purpose: Purpose) -> (u64, u64, u32) {
        let attr = faults(options, purpose);
        (attr.sample_period, attr.freq(), attr.wakeup_events)
    }

    #[test]
    fn zero_means_the_default_and_counting_has_no_period() {
        let zero = Options { period: 0, wakeup: 0, ..Options::default() };
        assert_eq!(sampling(&zero, Purpose::Sampling), (1_000_000, 0, 1));
        assert_eq!(sampling(&zero, Purpose::Counting), (0, 0, 0));
        let given = Options { period: 7, wakeup: 3, ..Options::default() };
        assert_eq!(sampling(&given, Purpose::Sampling), (7, 0, 3));
        assert_eq!(sampling(&given, Purpose::Counting), (0, 0, 0));
        let frequent = Options { freq: 99, ..Options::default() };
        assert_eq!(sampling(&frequent, Purpose::Sampling), (99, 1, 1));
        assert_eq!(sampling(&frequent, Purpose::Counting), (0, 0, 0));
    }
}
