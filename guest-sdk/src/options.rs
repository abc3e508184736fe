//! How an event is opened.

use crate::sys::perf;

/// How an event is opened: whom it observes, what it leaves out, how often its program runs.
///
/// A new one observes every task on CPU 0, which needs CAP_PERFMON. Each method changes one thing and hands it on; the
/// last word counts.
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
    /// Every task on CPU 0, all defaults.
    pub fn new() -> PerfOptions {
        PerfOptions { raw: perf::Options::new() }
    }

    fn with(self, set: impl FnOnce(&perf::Options)) -> PerfOptions {
        set(&self.raw);
        self
    }

    /// The thread that runs this plugin, on whichever CPU it runs.
    #[must_use]
    pub fn own_thread(self) -> PerfOptions {
        self.task(0)
    }

    /// One task by its id, on whichever CPU it runs. 0 is the thread that runs this plugin; a negative number is refused
    /// when the event is opened.
    #[must_use]
    pub fn task(self, id: i32) -> PerfOptions {
        // -1 would be every task, which is asked for by its own name.
        let id = if id == -1 { i32::MIN } else { id };
        self.with(|raw| {
            raw.set_pid(id);
            raw.set_cpu(-1);
        })
    }

    /// Every task; a CPU, or [`PerfOptions::every_cpu`], is needed with it.
    #[must_use]
    pub fn every_task(self) -> PerfOptions {
        self.with(|raw| raw.set_pid(-1))
    }

    /// One CPU, by its number from 0.
    #[must_use]
    pub fn cpu(self, cpu: u32) -> PerfOptions {
        // A number that no machine has is refused when the event is opened.
        self.with(|raw| raw.set_cpu(i32::try_from(cpu).unwrap_or(i32::MAX)))
    }

    /// Whichever CPU the task runs on.
    #[must_use]
    pub fn any_cpu(self) -> PerfOptions {
        self.with(|raw| raw.set_cpu(-1))
    }

    /// One kernel event on every CPU that is online, which read as one. The same in a whole group.
    #[must_use]
    pub fn every_cpu(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_every_cpu(on))
    }

    /// Every process whose executable has this path (with a `/` in it) or whose command has this name, instead of a task.
    /// The same in a whole group.
    #[must_use]
    pub fn process(self, name: &str) -> PerfOptions {
        self.with(|raw| {
            raw.set_process(name);
            raw.set_cpu(-1);
        })
    }

    /// The command that the host starts (`--exec`), from its exec on. The same in a whole group.
    #[must_use]
    pub fn command(self) -> PerfOptions {
        self.with(|raw| {
            raw.set_command(true);
            raw.set_cpu(-1);
        })
    }

    /// The tasks of a control group, by its path below the mount; a CPU, or [`PerfOptions::every_cpu`], is needed.
    #[must_use]
    pub fn cgroup(self, path: &str) -> PerfOptions {
        self.with(|raw| raw.set_cgroup(path))
    }

    /// Events between two runs of the program; 0 means 1000000. Without a program it is not used. At a clock (`cpu_clock`,
    /// `task_clock`) it is nanoseconds, 50000 or more: with less a CPU may do nothing else.
    #[must_use]
    pub fn period(self, events: u64) -> PerfOptions {
        self.with(|raw| raw.set_period(events))
    }

    /// Runs of the program per second; the kernel adapts the period. 0: by [`PerfOptions::period`].
    #[must_use]
    pub fn frequency(self, hertz: u64) -> PerfOptions {
        self.with(|raw| raw.set_freq(hertz))
    }

    /// Samples between two wake-ups of a reader of the event's ring; 0 means 1.
    #[must_use]
    pub fn wakeup(self, samples: u32) -> PerfOptions {
        self.with(|raw| raw.set_wakeup(samples))
    }

    /// Count children that the task creates later, too. The same in a whole group.
    #[must_use]
    pub fn inherit(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_inherit(on))
    }

    /// All threads of the process, also those that it creates later.
    #[must_use]
    pub fn follow(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_follow(on))
    }

    /// Do not count while the CPU runs the kernel. Refused for events that happen in the kernel only.
    #[must_use]
    pub fn exclude_kernel(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_kernel(on))
    }

    /// Do not count while the CPU runs user code.
    #[must_use]
    pub fn exclude_user(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_user(on))
    }

    /// Do not count while the CPU idles. Few PMUs honour it: the host says so on standard error.
    #[must_use]
    pub fn exclude_idle(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_idle(on))
    }

    /// Do not count while the CPU runs a hypervisor.
    #[must_use]
    pub fn exclude_hypervisor(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_hv(on))
    }

    /// Count in virtual machines only.
    #[must_use]
    pub fn exclude_host(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_host(on))
    }

    /// Do not count in virtual machines.
    #[must_use]
    pub fn exclude_guest(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclude_guest(on))
    }

    /// On a counter always, or in error state, in which a read gives [`Kernel`](crate::ErrorKind::Kernel). For leaders.
    #[must_use]
    pub fn pinned(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_pinned(on))
    }

    /// Nobody else is on the PMU while this counts. For leaders.
    #[must_use]
    pub fn exclusive(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_exclusive(on))
    }

    /// How far a sample's place may be from the event: 0 (anywhere) to 3 (exact).
    #[must_use]
    pub fn precise(self, step: u32) -> PerfOptions {
        self.with(|raw| raw.set_precise(step))
    }

    /// If the group has no room for the event, open it alone and say so on standard error.
    #[must_use]
    pub fn weak(self, on: bool) -> PerfOptions {
        self.with(|raw| raw.set_weak(on))
    }
}
