//! Options for opening an event.

use crate::sys::perf;

/// Options for opening an event: the observed tasks and CPUs, exclusions, and the period of its program.
///
/// The default observes every task on CPU 0, which needs CAP_PERFMON. Each method changes one option and
/// returns the result; later calls override earlier ones.
///
/// ```no_run
/// use ks_guest::PerfOptions;
///
/// let mine = PerfOptions::new().own_thread().exclude_kernel(true);
/// let everything = PerfOptions::new().every_task().every_cpu(true);
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
    /// Creates options for every task on CPU 0, with all defaults.
    pub fn new() -> PerfOptions {
        PerfOptions { raw: perf::Options::new() }
    }

    fn with(self, set: impl FnOnce(&perf::Options)) -> PerfOptions {
        set(&self.raw);
        self
    }

    /// Observes the thread that runs this plugin, on whichever CPU it runs.
    #[must_use]
    pub fn own_thread(self) -> PerfOptions {
        self.task(0)
    }

    /// Observes one task by its id, on whichever CPU it runs. 0 is the thread that runs this plugin; a
    /// negative number is refused when the event is opened.
    #[must_use]
    pub fn task(self, id: i32) -> PerfOptions {
        // -1 would mean every task, which [`PerfOptions::every_task`] requests explicitly.
        let id = if id == -1 { i32::MIN } else { id };
        self.with(|raw| {
            raw.set_pid(id);
            raw.set_cpu(-1);
        })
    }

    /// Observes every task; needs a CPU, or [`PerfOptions::every_cpu`].
    #[must_use]
    pub fn every_task(self) -> PerfOptions {
        self.with(|raw| raw.set_pid(-1))
    }

    /// Counts on one CPU, by its number from 0.
    #[must_use]
    pub fn cpu(self, cpu: u32) -> PerfOptions {
        // A number that no machine has is refused when the event is opened.
        self.with(|raw| raw.set_cpu(i32::try_from(cpu).unwrap_or(i32::MAX)))
    }

    /// Counts on whichever CPU the task runs.
    #[must_use]
    pub fn any_cpu(self) -> PerfOptions {
        self.with(|raw| raw.set_cpu(-1))
    }

    /// Opens one kernel event on every online CPU; they read as one. Must be equal for a whole group.
    #[must_use]
    pub fn every_cpu(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_every_cpu(on))
    }

    /// Observes every process whose executable has this path (with a `/` in it) or whose command has this
    /// name, instead of a task. Must be equal for a whole group.
    #[must_use]
    pub fn process(self, name: &str) -> PerfOptions {
        self.with(|raw| {
            raw.set_process(name);
            raw.set_cpu(-1);
        })
    }

    /// Observes the command that the host starts (`--exec`), from its exec on. Must be equal for a whole
    /// group.
    #[must_use]
    pub fn command(self) -> PerfOptions {
        self.with(|raw| {
            raw.set_command(true);
            raw.set_cpu(-1);
        })
    }

    /// Observes the tasks of a control group, by its path below the mount; needs a CPU, or
    /// [`PerfOptions::every_cpu`].
    #[must_use]
    pub fn cgroup(self, path: &str) -> PerfOptions {
        self.with(|raw| raw.set_cgroup(path))
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

    /// Sets the number of samples between two wake-ups of a reader of the event's ring; 0 means 1.
    #[must_use]
    pub fn wakeup(self, samples: u32) -> PerfOptions {
        self.with(|raw| raw.set_wakeup(samples))
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
