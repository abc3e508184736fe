//! Options for opening an event.

use crate::sys::perf;

/// Options for opening an event: the observed tasks and CPUs, exclusions, and the period of its program.
///
/// The default observes the own thread on whichever CPU it runs, which needs least rights. Each method changes
/// one option and returns the result. Of the methods that select tasks one may be called; of those that select
/// CPUs the last one counts.
///
/// ```no_run
/// use ks_guest::PerfOptions;
///
/// let mine = PerfOptions::new().exclude_kernel(true);
/// let everything = PerfOptions::new().every_task().every_cpu();
/// let samples = PerfOptions::new().task(4711).period(100_000);
/// ```
#[derive(Debug)]
pub struct PerfOptions {
    pub(crate) raw: perf::Options,
}

impl Default for PerfOptions {
    fn default() -> PerfOptions {
        PerfOptions::new()
    }
}

impl PerfOptions {
    /// Creates options for the own thread, with all defaults.
    pub fn new() -> PerfOptions {
        PerfOptions { raw: perf::Options::new() }
    }

    fn with(self, set: impl FnOnce(&perf::Options)) -> PerfOptions {
        set(&self.raw);
        self
    }

    /// Observes the thread that runs this plugin. The default.
    #[must_use]
    pub fn own_thread(self) -> PerfOptions {
        self.with(perf::Options::observe_own_thread)
    }

    /// Observes one task by its id. Negative numbers and 0 are refused when the event is opened.
    #[must_use]
    pub fn task(self, id: i32) -> PerfOptions {
        self.with(|raw| raw.observe_task(id))
    }

    /// Observes every task; needs a CPU, or [`PerfOptions::every_cpu`].
    #[must_use]
    pub fn every_task(self) -> PerfOptions {
        self.with(perf::Options::observe_every_task)
    }

    /// Observes every process whose executable has this path (with a `/` in it) or whose command has this
    /// name. Must be equal for a whole group.
    #[must_use]
    pub fn process(self, name: &str) -> PerfOptions {
        self.with(|raw| raw.observe_process(name))
    }

    /// Observes the command that the host starts (`--exec`), from its exec on. Must be equal for a whole
    /// group.
    #[must_use]
    pub fn command(self) -> PerfOptions {
        self.with(perf::Options::observe_command)
    }

    /// Observes the tasks of a control group, by its path below the mount; needs a CPU, or
    /// [`PerfOptions::every_cpu`].
    #[must_use]
    pub fn cgroup(self, path: &str) -> PerfOptions {
        self.with(|raw| raw.observe_cgroup(path))
    }

    /// Counts on one CPU, by its number from 0.
    #[must_use]
    pub fn cpu(self, cpu: u32) -> PerfOptions {
        // A number that no machine has is refused when the event is opened.
        self.with(|raw| raw.on_cpu(i32::try_from(cpu).unwrap_or(i32::MAX)))
    }

    /// Counts on whichever CPU the task runs. The default.
    #[must_use]
    pub fn any_cpu(self) -> PerfOptions {
        self.with(perf::Options::on_any_cpu)
    }

    /// Opens one kernel event on every online CPU; they read as one. Must be equal for a whole group.
    #[must_use]
    pub fn every_cpu(self) -> PerfOptions {
        self.with(perf::Options::on_every_cpu)
    }

    /// Opens the event without starting it: [`Attachment::enable`](crate::Attachment::enable) does. For
    /// leaders and events that are alone.
    #[must_use]
    pub fn start_disabled(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_start_disabled(on))
    }

    /// Opens the event without starting it: it starts when the observed task next calls execve(2).
    #[must_use]
    pub fn enable_on_exec(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_enable_on_exec(on))
    }

    /// Closes the event when the observed task next calls execve(2): the count stands still from then on.
    #[must_use]
    pub fn remove_on_exec(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_remove_on_exec(on))
    }

    /// Sets the number of events between two runs of the program; 0 means 1000000. Ignored without a program.
    /// For a clock (`cpu_clock`, `task_clock`) the unit is nanoseconds, at least 50000: with less a CPU may
    /// do nothing else.
    #[must_use]
    pub fn period(self, events: u64) -> PerfOptions {
        self.with(|raw| raw.set_period(events))
    }

    /// Sets the runs of the program per second; the kernel adapts the period. 0 means that
    /// [`PerfOptions::period`] applies.
    #[must_use]
    pub fn frequency(self, hertz: u64) -> PerfOptions {
        self.with(|raw| raw.set_freq(hertz))
    }

    /// Also counts children that the task creates later. Must be equal for a whole group.
    #[must_use]
    pub fn inherit(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_inherit(on))
    }

    /// Observes all threads of the process, including threads that it creates later.
    #[must_use]
    pub fn follow(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_follow(on))
    }

    /// Does not count while the CPU runs the kernel. Refused for events that happen in the kernel only.
    #[must_use]
    pub fn exclude_kernel(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_kernel(on))
    }

    /// Does not count while the CPU runs user code.
    #[must_use]
    pub fn exclude_user(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_user(on))
    }

    /// Does not count while the CPU idles. Few PMUs support it: the host reports that on standard error.
    #[must_use]
    pub fn exclude_idle(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_idle(on))
    }

    /// Does not count while the CPU runs a hypervisor.
    #[must_use]
    pub fn exclude_hypervisor(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_hv(on))
    }

    /// Counts in virtual machines only.
    #[must_use]
    pub fn exclude_host(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_host(on))
    }

    /// Does not count in virtual machines.
    #[must_use]
    pub fn exclude_guest(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_guest(on))
    }

    /// Keeps the event on a counter always. If that fails it is in error state, in which a read returns
    /// [`Kernel`](crate::ErrorKind::Kernel). For leaders.
    #[must_use]
    pub fn pinned(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_pinned(on))
    }

    /// Uses the PMU exclusively while this counts. For leaders.
    #[must_use]
    pub fn exclusive(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclusive(on))
    }

    /// Limits the distance of a sample's instruction from the event: 0 (any) to 3 (exact).
    #[must_use]
    pub fn precise(self, step: u32) -> PerfOptions {
        self.with(|raw| raw.set_precise(step))
    }

    /// Opens the event alone if the group has no room for it, and reports that on standard error.
    #[must_use]
    pub fn weak(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_weak(on))
    }
}
