//! Options for opening an event, and the kernel's `perf_event_attr` for it.

use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::error::Refusal;
use super::event::EventKind;

/// The same four fields for every event, so that one parser reads single events and groups.
const READ_FORMAT: u64 = (bindings::PERF_FORMAT_GROUP
    | bindings::PERF_FORMAT_ID
    | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// Options for opening an event.
///
/// Kernel versions are those that added the option to `perf_event_open(2)`. This host requires 5.15 anyway,
/// for links of perf events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The observed task: 0 is the calling thread, a positive number that task, -1 (the default) every task,
    /// which needs a CPU.
    pub pid: i32,
    /// The observed CPU, from 0 (the default); -1 is whichever CPU the task runs on.
    pub cpu: i32,
    /// Observe every online CPU, with one kernel event on each; `cpu` is ignored.
    pub every_cpu: bool,
    /// Observe every task whose executable has this path or whose command has this name; `pid` must be -1.
    pub process: String,
    /// Observe the command that the host starts, from its exec on; `pid` must be -1.
    #[doc(alias = "enable_on_exec")]
    pub command: bool,
    /// Observe the tasks of a control group, given by its path below the mount; `pid` must be -1, and a CPU
    /// is required. 2.6.39.
    #[doc(alias = "PERF_FLAG_PID_CGROUP")]
    pub cgroup: String,
    /// Observe all threads of the process of `pid`, including threads that it creates later. 5.13
    /// (`inherit_thread`).
    pub follow: bool,
    /// Number of events between two runs of the program; 0 means the default, 1000000. Unused without a
    /// program.
    #[doc(alias = "sample_period")]
    pub period: u64,
    /// Runs of the program per second; the kernel adapts the period. 0 (the default) uses `period`.
    #[doc(alias = "sample_freq")]
    pub freq: u64,
    /// Also count children that the task creates later. All events of a group must agree.
    pub inherit: bool,
    /// Do not count while the CPU runs the kernel. Kernel clocks ignore it and count all time.
    pub exclude_kernel: bool,
    /// Do not count while the CPU runs user code.
    pub exclude_user: bool,
    /// Do not count while the CPU idles. Few PMUs honour it.
    pub exclude_idle: bool,
    /// Do not count while the CPU runs a hypervisor. PMUs without this mode ignore it.
    pub exclude_hv: bool,
    /// Do not count while the CPU runs the host rather than a virtual machine. 3.2.
    pub exclude_host: bool,
    /// Do not count while the CPU runs a virtual machine. 3.2.
    pub exclude_guest: bool,
    /// Keep the event on a counter always; if that is impossible it goes into error state. Leaders only.
    pub pinned: bool,
    /// Allow no other event on the PMU while this one counts. Leaders only.
    pub exclusive: bool,
    /// Largest skid between the event and its sample, from 0 (arbitrary) to 3 (must be none). 2.6.35.
    #[doc(alias = "precise_ip")]
    pub precise: u32,
    /// Open the event alone if it does not fit into the group.
    pub weak: bool,
    /// Open without starting. Leaders only.
    #[doc(alias = "disabled")]
    pub start_disabled: bool,
    /// Open without starting, and start when the task next calls execve(2).
    pub enable_on_exec: bool,
    /// Close when the task next calls execve(2). 5.13.
    pub remove_on_exec: bool,
}

impl Options {
    const DEFAULT_PERIOD: u64 = 1_000_000;
    /// Shortest period of a program on a clock event, in nanoseconds. On a virtual machine each run takes
    /// about 20 us, mostly for the interrupt, and the kernel throttles no clock up to
    /// `kernel.perf_event_max_sample_rate`: with a period of 10 000 ns, a CPU did nothing else until the
    /// event was closed.
    const MIN_CLOCK_PERIOD: u64 = 50_000;

    /// Rejects a program on a clock event whose period would leave its CPU no time for anything else.
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

    /// Sets the period, or the frequency of options that have one.
    pub(super) fn set_period(&mut self, events: u64) {
        let field = if self.freq == 0 { &mut self.period } else { &mut self.freq };
        *field = events;
    }

    /// Returns the observed scope in the vocabulary of policies: `own` (this thread), `command` (the one that
    /// the host starts), `process` (found by its name), `cgroup`, `task` (found by its number), or `all`.
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
            start_disabled: false,
            enable_on_exec: false,
            remove_on_exec: false,
        }
    }
}

/// Purpose of an event: counting only, or running a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Only read: overflows have no effect, and the period is 0.
    Counting,
    /// Read, and runs a program at each overflow.
    Sampling,
}

/// Builds the kernel's `perf_event_attr` for an event. It contains no pointers.
pub(super) fn attr(kind: &EventKind, options: &Options, purpose: Purpose) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.read_format = READ_FORMAT;
    what(&mut attr, kind);
    when(&mut attr, options, purpose);
    attr.set_disabled(1);
    // All children of a thread inherit its events unless `inherit_thread` is set.
    attr.set_inherit(u64::from(options.inherit || options.follow));
    attr.set_inherit_thread(u64::from(options.follow && !options.inherit));
    attr.set_enable_on_exec(u64::from(options.command || options.enable_on_exec));
    attr.set_remove_on_exec(u64::from(options.remove_on_exec));
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

/// Sets the fields that select the event.
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
        // The system call sets the pointer to the probe's text.
        EventKind::Probe { type_, location } => {
            attr.type_ = *type_;
            attr.probe_offset = location.offset();
        }
    }
}

/// Sets the fields that select when a program runs.
fn when(attr: &mut perf_event_attr, options: &Options, purpose: Purpose) {
    if purpose == Purpose::Counting {
        return;
    }
    attr.wakeup_events = 1;
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

    /// Returns the period or frequency, whether it is a frequency, and the number of samples between two
    /// wake-ups.
    fn sampling(options: &Options, purpose: Purpose) -> (u64, u64, u32) {
        let attr = faults(options, purpose);
        (attr.sample_period, attr.freq(), attr.wakeup_events)
    }

    #[test]
    fn zero_means_the_default_and_counting_has_no_period() {
        let zero = Options { period: 0, ..Options::default() };
        assert_eq!(sampling(&zero, Purpose::Sampling), (1_000_000, 0, 1));
        assert_eq!(sampling(&zero, Purpose::Counting), (0, 0, 0));
        let given = Options { period: 7, ..Options::default() };
        assert_eq!(sampling(&given, Purpose::Sampling), (7, 0, 1));
        assert_eq!(sampling(&given, Purpose::Counting), (0, 0, 0));
        let frequent = Options { freq: 99, ..Options::default() };
        assert_eq!(sampling(&frequent, Purpose::Sampling), (99, 1, 1));
        assert_eq!(sampling(&frequent, Purpose::Counting), (0, 0, 0));
    }
}
