//! Explains refusals of perf events: maps every errno of `perf_event_open(2)`, its ioctls and reads to its
//! cause on this machine.
//!
//! Source: perf_event_open(2), "ERRORS"; `kernel/events/core.c` and `kernel/events/hw_breakpoint.c`, v6.18.

use std::fmt;

use nix::errno::Errno;

use super::{Capability, Explanation, Facts, FailureKind, filtered, unprobed};

#[cfg(test)]
mod tests;

/// The class of an event, as far as it determines the cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventClass {
    /// Counted by the CPU core: hardware, hardware cache and raw events.
    Hardware,
    /// Counted by the kernel.
    Software {
        /// Whether the event occurs in the kernel only, so that counting user space only would count nothing.
        in_kernel_only: bool,
    },
    /// A static tracepoint, by its id.
    Tracepoint,
    /// A hardware breakpoint on data accesses.
    Breakpoint {
        /// Address of the watched memory.
        address: u64,
        /// Length of the watched memory in bytes.
        len: u32,
        /// Whether only loads are watched, not stores.
        loads_only: bool,
    },
    /// An event of another PMU that the kernel publishes.
    Pmu,
    /// The execution of an instruction: a kprobe or uprobe.
    Probe {
        /// Whether the instruction belongs to the kernel, not to a program in user space.
        in_kernel: bool,
    },
}

/// The operation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Opening an event on its own.
    Open,
    /// Opening an event as a member of a group.
    Join {
        /// Name of the leader's event.
        leader: String,
        /// Number of events in the group before this one.
        size: usize,
    },
    /// Reading the count of an event or a group.
    Read,
    /// Starting the counter of an open event.
    Enable,
    /// Stopping the counter of an open event.
    Disable,
    /// Setting the count to zero.
    Reset,
    /// Putting the event into a map, so that BPF programs can read it.
    Publish,
    /// Changing the number of events between two samples.
    SetPeriod,
}

/// The operation that was tried, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The operation that failed.
    pub action: Action,
    /// The event, as the user named it.
    pub event: String,
    /// The class of the event.
    pub class: EventClass,
    /// The `pid` argument: -1 every task, 0 the calling thread.
    pub pid: i32,
    /// The `cpu` argument: -1 any CPU.
    pub cpu: i32,
    /// The control group whose tasks count; empty means no control group.
    pub cgroup: String,
    /// Whether the tasks' children count, too.
    pub inherit: bool,
    /// Whether only those children count that are threads.
    pub threads_only: bool,
    /// Whether execution in the kernel is excluded.
    pub exclude_kernel: bool,
    /// Whether a program runs at each overflow.
    pub sampling: bool,
    /// Samples per second; 0 means sampling by period.
    pub freq: u64,
    /// The requested `precise_ip`, 0 to 3.
    pub precise: u32,
}

/// Formats one line: ``cannot add `branch_misses` to the group led by `cpu_cycles` (pid 4242, any cpu)``.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = &self.event;
        match &self.action {
            Action::Open => write!(f, "cannot open `{event}`")?,
            Action::Join { leader, .. } => write!(f, "cannot add `{event}` to the group led by `{leader}`")?,
            Action::Read => write!(f, "cannot read `{event}`")?,
            Action::Enable => write!(f, "cannot enable `{event}`")?,
            Action::Disable => write!(f, "cannot disable `{event}`")?,
            Action::Reset => write!(f, "cannot reset `{event}`")?,
            Action::Publish => write!(f, "cannot let programs read `{event}`")?,
            Action::SetPeriod => write!(f, "cannot change the period of `{event}`")?,
        }
        match self.pid {
            -1 if !self.cgroup.is_empty() => write!(f, " (cgroup {}, ", self.cgroup)?,
            -1 => f.write_str(" (every task, ")?,
            pid => write!(f, " (pid {pid}, ")?,
        }
        match self.cpu {
            -1 => f.write_str("any cpu)"),
            cpu => write!(f, "cpu {cpu})"),
        }
    }
}

/// The system call or ioctl that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// perf_event_open(2), which opens the event.
    Open,
    /// PERF_EVENT_IOC_ID, which reads the event's id.
    Id,
    /// PERF_EVENT_IOC_RESET, which sets the count to zero.
    Reset,
    /// bpf(2) with BPF_LINK_CREATE, which links the program.
    Link,
    /// PERF_EVENT_IOC_ENABLE, which starts the counter.
    Enable,
    /// PERF_EVENT_IOC_DISABLE, which stops the counter.
    Disable,
    /// read(2) of the count or the group.
    Read,
    /// bpf(2) with BPF_MAP_UPDATE_ELEM, which puts the event into an array of events.
    Publish,
    /// PERF_EVENT_IOC_PERIOD, which changes the period.
    Period,
}

/// Formats the name as manual pages write it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::Open => "perf_event_open",
            Call::Id => "ioctl(PERF_EVENT_IOC_ID)",
            Call::Reset => "ioctl(PERF_EVENT_IOC_RESET)",
            Call::Link => "bpf(BPF_LINK_CREATE)",
            Call::Enable => "ioctl(PERF_EVENT_IOC_ENABLE)",
            Call::Disable => "ioctl(PERF_EVENT_IOC_DISABLE)",
            Call::Read => "read",
            Call::Publish => "bpf(BPF_MAP_UPDATE_ELEM)",
            Call::Period => "ioctl(PERF_EVENT_IOC_PERIOD)",
        })
    }
}

/// A refusal by the kernel, with the facts that explain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation that was tried, with its arguments.
    pub attempt: Attempt,
    /// The call that the kernel refused.
    pub call: Call,
    /// The errno of the call.
    pub errno: Errno,
    /// Facts about this machine, read after the refusal.
    pub facts: Facts,
}

/// Formats the attempt, the call with its errno, the cause, and the remedy.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  kernel: {}: {:?}{}", self.attempt, self.call, self.errno, explain(self))
    }
}

/// Determines the cause of a refusal. The facts decide between several causes of an errno; where they do not,
/// the remaining causes are listed as possibilities.
pub fn explain(failure: &Failure) -> Explanation {
    let Failure { attempt, call, errno, facts } = failure;
    let is_filtered = facts.is_filtered == Some(true);
    match (call, errno) {
        // The kernel implements the call: without perf events, /proc has no such setting.
        (Call::Open, Errno::ENOSYS) if is_filtered && facts.paranoid.is_some() => filtered("perf_event_open"),
        (Call::Link, errno) => link(*errno, facts),
        (Call::Period, Errno::EINVAL) if attempt.freq > 0 => Explanation::new(
            FailureKind::Limit,
            "no event is sampled more often than kernel.perf_event_max_sample_rate says",
        ),
        (Call::Read, Errno::ECHILD) => mismatched_children(),
        (Call::Open, Errno::ENOENT | Errno::EOPNOTSUPP) => no_counter(attempt, *errno, facts),
        (Call::Open, Errno::EACCES | Errno::EPERM) => not_permitted(attempt, facts),
        (Call::Open, Errno::EINVAL) => invalid(attempt, facts),
        (Call::Open, Errno::EILSEQ | Errno::EADDRNOTAVAIL) => unprobed(*errno),
        (Call::Open, Errno::ENOSPC) => no_room(attempt),
        (Call::Open, Errno::ESRCH) => no_task(attempt, facts),
        (Call::Open, Errno::ENODEV) => {
            no_cpu(attempt, facts).unwrap_or_else(|| device_is_gone(attempt, facts))
        }
        (Call::Open, Errno::EMFILE) => descriptors(facts),
        (Call::Open, Errno::ENFILE) => Explanation::new(
            FailureKind::Limit,
            "the whole machine has as many files open as fs.file-max allows",
        ),
        (Call::Open, Errno::EBUSY) => Explanation::new(
            FailureKind::Busy,
            format!(
                "another event has the PMU of `{}` for itself (an exclusive or pinned event)",
                attempt.event
            ),
        )
        .with_remedy("end the other profiler, or open the event later"),
        (Call::Open, Errno::ENOMEM) => {
            Explanation::new(FailureKind::Limit, "the kernel has no memory for another event")
        }
        (Call::Open, Errno::E2BIG) if matches!(attempt.action, Action::Join { size: 2.., .. }) => {
            Explanation::new(
                FailureKind::Limit,
                "the group has as many events as one read can bring (16 KiB)",
            )
            .with_remedy("open it outside of the group")
        }
        (Call::Open, Errno::E2BIG) => Explanation::new(
            FailureKind::Unsupported,
            "this kernel is older than an option that was asked for: its perf_event_attr is shorter",
        ),
        (Call::Open, Errno::ENOSYS) => Explanation::new(
            FailureKind::Unsupported,
            "this kernel was built without perf events (CONFIG_PERF_EVENTS)",
        ),
        _ => Explanation::unknown(),
    }
}

fn no_counter(attempt: &Attempt, errno: Errno, facts: &Facts) -> Explanation {
    let event = &attempt.event;
    let because = match (attempt.class, facts.hardware_pmu) {
        (EventClass::Hardware, Some(false)) => format!(
            "this machine has no hardware counters (usually a virtual machine without a PMU), so nothing \
             counts `{event}`"
        ),
        (EventClass::Hardware, _) if errno == Errno::EOPNOTSUPP && attempt.sampling => {
            format!(
                "the PMU that counts `{event}` cannot interrupt at an overflow, or the event does not exist \
                 on this CPU"
            )
        }
        (EventClass::Hardware, _) if names_core(attempt) && older(facts, GENERAL_ON_CORE_SINCE) => {
            "kernels before 6.6 know no general events of one kind of core on arm64".to_owned()
        }
        (EventClass::Hardware, _) => format!("this CPU has no counter for `{event}`"),
        (EventClass::Software { .. }, _) => format!("this kernel does not count `{event}`"),
        (EventClass::Tracepoint, _) => "this kernel was built without tracepoint events".to_owned(),
        (EventClass::Breakpoint { .. }, _) => "this CPU or kernel has no such hardware breakpoint".to_owned(),
        (EventClass::Probe { in_kernel: true }, _) => {
            "the kernel has no such function, or allows no probe of it".to_owned()
        }
        (EventClass::Probe { in_kernel: false }, _) => "there is no such file".to_owned(),
        (_, _) if attempt.precise > 0 && errno == Errno::EOPNOTSUPP => {
            format!("this CPU has no such precise samples (`precise: {}`) of `{event}`", attempt.precise)
        }
        (EventClass::Pmu, _) => {
            format!("the PMU of `{event}` does not know this event, or not with these options")
        }
    };
    let explanation = Explanation::new(FailureKind::Unsupported, because);
    match attempt.class {
        EventClass::Hardware if names_core(attempt) && older(facts, GENERAL_ON_CORE_SINCE) => explanation
            .with_remedy("use an event that the PMU itself names: `ks-host events 'armv8*'` lists them"),
        EventClass::Hardware | EventClass::Software { .. } | EventClass::Pmu => explanation
            .with_remedy(format!("use a software event, which works here: `{}`", software_event(event))),
        EventClass::Tracepoint | EventClass::Breakpoint { .. } | EventClass::Probe { .. } => explanation,
    }
}

/// Whether the event is specific to one of several core types.
fn names_core(attempt: &Attempt) -> bool {
    attempt.event.contains('/') && cfg!(target_arch = "aarch64")
}

fn older(facts: &Facts, than: (u32, u32)) -> bool {
    facts.kernel.is_some_and(|version| version < than)
}

/// First kernel with PERF_PMU_CAP_EXTENDED_HW_TYPE for arm64's core PMUs (`drivers/perf/arm_pmu.c`).
const GENERAL_ON_CORE_SINCE: (u32, u32) = (6, 6);

/// Suggests a similar software event: time for cycles and instructions, faults for memory events.
fn software_event(event: &str) -> &'static str {
    let is_about_memory =
        ["cache", "tlb", "llc", "node"].iter().any(|keyword| event.to_ascii_lowercase().contains(keyword));
    if is_about_memory { "page_faults" } else { "task_clock" }
}

fn not_permitted(attempt: &Attempt, facts: &Facts) -> Explanation {
    let explanation = |because: String, remedy: String| {
        Explanation::new(FailureKind::NotPermitted, because).with_remedy(remedy)
    };
    if facts.has(Capability::Perfmon) == Some(true) && facts.is_filtered == Some(true) {
        return filtered("perf_event_open");
    }
    if facts.has(Capability::Perfmon) == Some(true) {
        return explanation(
            "ks-host has CAP_PERFMON: a security module refuses".to_owned(),
            "look into the kernel log, or run outside of the container".to_owned(),
        );
    }
    if facts.in_user_namespace == Some(true) {
        let level = level(facts);
        return explanation(
            format!(
                "kernel.perf_event_paranoid is {level}, and ks-host runs in a user namespace, whose \
                 capabilities do not count for perf events"
            ),
            format!("start ks-host outside of it, or {}", without_capability(attempt, facts)),
        );
    }
    let wanted = paranoid_needed(attempt);
    let allowed_by_setting = facts.paranoid.is_some_and(|level| level <= wanted);
    if allowed_by_setting && attempt.pid > 0 {
        return explanation(
            format!(
                "the task {} belongs to another user or is protected, and ks-host has no CAP_PERFMON",
                attempt.pid
            ),
            "give ks-host CAP_PERFMON, or run it as the task's user".to_owned(),
        );
    }
    let because = format!("kernel.perf_event_paranoid is {} and ks-host has no CAP_PERFMON", level(facts));
    explanation(because, format!("give ks-host CAP_PERFMON, or {}", without_capability(attempt, facts)))
}

fn level(facts: &Facts) -> String {
    facts.paranoid.map_or("not readable".to_owned(), |level| level.to_string())
}

/// Formats the remedy for a process that cannot get a capability.
fn without_capability(attempt: &Attempt, facts: &Facts) -> String {
    let can_leave_out_kernel =
        !attempt.exclude_kernel && attempt.class != EventClass::Software { in_kernel_only: true };
    let user_space = if can_leave_out_kernel { ", user space only (`exclude_kernel`)" } else { "" };
    let own_task = if can_leave_out_kernel { PARANOID_OWN_USER_SPACE } else { paranoid_of_task(attempt) };
    let is_low_enough = facts.paranoid.is_some_and(|level| level <= own_task);
    match (attempt.pid, is_low_enough) {
        (-1, true) => format!("count an own task (`pid: 0, cpu: -1`){user_space}"),
        (-1, false) => format!("lower the setting to {PARANOID_EVERY_TASK}"),
        (_, true) => "count user space only (`exclude_kernel`)".to_owned(),
        (_, false) if can_leave_out_kernel => {
            format!("lower the setting to {own_task} and count user space only (`exclude_kernel`)")
        }
        (_, false) => format!("lower the setting to {own_task}"),
    }
}

/// The highest `perf_event_paranoid` at which a process without capabilities may count every task of a CPU,
/// its own tasks with the kernel, its own tasks in user space.
///
/// Source: `perf_allow_cpu` and `perf_allow_kernel` in `include/linux/perf_event.h`, v6.18.
const PARANOID_EVERY_TASK: i32 = 0;
const PARANOID_OWN_TASK: i32 = 1;
const PARANOID_OWN_USER_SPACE: i32 = 2;

fn paranoid_needed(attempt: &Attempt) -> i32 {
    if attempt.pid == -1 { PARANOID_EVERY_TASK } else { paranoid_of_task(attempt) }
}

fn paranoid_of_task(attempt: &Attempt) -> i32 {
    if attempt.exclude_kernel { PARANOID_OWN_USER_SPACE } else { PARANOID_OWN_TASK }
}

/// Explains EINVAL, which has the most causes. Causes that the facts prove come first, then causes that the
/// event class makes likely.
fn invalid(attempt: &Attempt, facts: &Facts) -> Explanation {
    if let Some(explanation) = no_cpu(attempt, facts) {
        return explanation;
    }
    if attempt.inherit && facts.kernel.is_some_and(|version| version < GROUP_INHERIT_SINCE) {
        return Explanation::new(
            FailureKind::Unsupported,
            "kernels before 4.13 refuse `inherit` with group reads",
        )
        .with_remedy("open the event without `inherit`");
    }
    if attempt.threads_only && facts.kernel.is_some_and(|version| version < THREADS_SINCE) {
        return Explanation::new(
            FailureKind::Unsupported,
            "kernels before 5.13 cannot count new threads alone (`follow`)",
        )
        .with_remedy("give `inherit: true` in addition to `follow`: then new processes are counted, too");
    }
    if let (true, Some(limit)) = (attempt.sampling && attempt.freq > 0, facts.max_sample_rate)
        && attempt.freq > limit
    {
        return Explanation::new(
            FailureKind::Limit,
            format!(
                "{} samples per second are more than kernel.perf_event_max_sample_rate, {limit}",
                attempt.freq
            ),
        )
        .with_remedy("use a lower `freq`, or raise the setting");
    }
    match attempt.class {
        EventClass::Probe { in_kernel } => Explanation::new(
            FailureKind::Invalid,
            if in_kernel {
                "there is no instruction at that place of the kernel, or it allows no probe there"
            } else {
                "there is no instruction at that place of the file, or it cannot be probed"
            },
        ),
        EventClass::Tracepoint => Explanation::new(
            FailureKind::NotFound,
            format!("the kernel has no tracepoint with the id of `{}`", attempt.event),
        ),
        EventClass::Breakpoint { address, len, loads_only } => breakpoint(address, len, loads_only),
        EventClass::Pmu if attempt.pid >= 0 => Explanation::new(
            FailureKind::Invalid,
            format!(
                "the PMU of `{}` counts whole CPUs, not tasks, or the config is none of its events",
                attempt.event
            ),
        )
        .with_remedy("open it with pid -1 and a cpu"),
        _ => invalid_in_group(attempt),
    }
}

/// First kernel that reads inherited events as groups (`perf_event_alloc`, v4.13).
const GROUP_INHERIT_SINCE: (u32, u32) = (4, 13);

/// First kernel with `perf_event_attr.inherit_thread`.
const THREADS_SINCE: (u32, u32) = (5, 13);

fn invalid_in_group(attempt: &Attempt) -> Explanation {
    match &attempt.action {
        Action::Join { .. } if attempt.inherit && matches!(attempt.class, EventClass::Software { .. }) => {
            mismatched_children()
        }
        Action::Join { leader, size } => Explanation::new(
            FailureKind::Invalid,
            format!(
                "`{}` and `{leader}` are of PMUs that cannot be mixed in a group, or the {} events do not \
                 fit on the counters together{}",
                attempt.event,
                size + 1,
                if attempt.inherit { ", or a child has inherited the group already" } else { "" }
            ),
        )
        .with_remedy("open it outside of the group, or with fewer hardware events in the group"),
        _ => Explanation::new(
            FailureKind::Invalid,
            "the kernel knows no such combination of event and options",
        ),
    }
}

fn breakpoint(address: u64, len: u32, loads_only: bool) -> Explanation {
    if !address.is_multiple_of(u64::from(len)) {
        return Explanation::new(
            FailureKind::Invalid,
            format!("the address {address:#x} is not a multiple of the breakpoint's length, {len} bytes"),
        )
        .with_remedy("align the address, or use a shorter length");
    }
    if address >> 63 == 1 {
        return Explanation::new(
            FailureKind::Invalid,
            "the kernel allows no breakpoint at that place of its own (in its code only with CONFIG_KPROBES)",
        )
        .with_remedy("watch data of the kernel, or a tracepoint near that code");
    }
    let explanation =
        Explanation::new(FailureKind::Invalid, "this CPU cannot watch that address in that way");
    if loads_only {
        return explanation.with_remedy("watch loads and stores: x86 cannot watch loads alone");
    }
    explanation
}

/// Explains ENODEV and EINVAL for a CPU that does not exist. None if it exists, or if that is unknown.
fn no_cpu(attempt: &Attempt, facts: &Facts) -> Option<Explanation> {
    let online = facts.online_cpus.as_deref()?;
    let is_missing = attempt.cpu >= 0 && facts.is_online(attempt.cpu) == Some(false);
    is_missing.then(|| {
        Explanation::new(FailureKind::NotFound, format!("cpu {} is offline or does not exist", attempt.cpu))
            .with_remedy(format!("name a CPU that is online: {online}"))
    })
}

/// Explains ENODEV: the PMU is gone, or an event joins a leader whose task has ended. Source:
/// `perf_event_open` in `kernel/events/core.c`, v6.18.
fn device_is_gone(attempt: &Attempt, facts: &Facts) -> Explanation {
    let event = &attempt.event;
    let because = match (&attempt.action, facts.task_exists) {
        (Action::Join { leader, .. }, Some(false)) => {
            format!("the task {} has ended, and with it the group led by `{leader}`", attempt.pid)
        }
        (Action::Join { leader, .. }, _) => format!(
            "the task that the group led by `{leader}` counts has ended, or the PMU of `{event}` is not \
             there any more"
        ),
        _ => format!("the PMU of `{event}` is not there (any more)"),
    };
    Explanation::new(FailureKind::NotFound, because)
}

fn no_room(attempt: &Attempt) -> Explanation {
    let together = match &attempt.action {
        Action::Join { leader, size } => {
            format!(" (the group led by `{leader}` would have {} events)", size + 1)
        }
        _ => String::new(),
    };
    match attempt.class {
        EventClass::Breakpoint { .. } => Explanation::new(
            FailureKind::Limit,
            format!("every breakpoint of the CPU is taken; most have 4 for each task{together}"),
        )
        .with_remedy("detach a breakpoint first"),
        _ => Explanation::new(
            FailureKind::Limit,
            format!("the PMU has no free counter for `{}`{together}", attempt.event),
        )
        .with_remedy("use fewer events in the group"),
    }
}

fn no_task(attempt: &Attempt, facts: &Facts) -> Explanation {
    let because = match facts.task_exists {
        Some(true) => format!("the task {} was ending", attempt.pid),
        _ => format!("there is no task {}", attempt.pid),
    };
    Explanation::new(FailureKind::NotFound, because)
}

fn descriptors(facts: &Facts) -> Explanation {
    let limit = facts.descriptor_limit.map_or(String::new(), |limit| format!(", {limit}"));
    Explanation::new(
        FailureKind::Limit,
        format!("ks-host has as many descriptors open as its limit allows{limit}"),
    )
    .with_remedy("detach what is not needed, or raise the limit (`ulimit -n`)")
}

/// Explains a group whose members' inherited events differ. Source: `__perf_read_group_add` in
/// `kernel/events/core.c`, since v6.6.
///
/// A read of the group returns ECHILD. Opening the member already returns EINVAL if the kernel had switched
/// from the task to its child and swapped their equal contexts, so that the leader belongs to the child's
/// context (`perf_event_context_sched_out`).
fn mismatched_children() -> Explanation {
    Explanation::new(
        FailureKind::Kernel,
        "a child inherited the group before its last member joined, so that the two differ; the kernel reads \
         the group again when that child has ended",
    )
    .with_remedy("complete a group with `inherit` before the task creates children")
}

fn link(errno: Errno, facts: &Facts) -> Explanation {
    match errno {
        Errno::EEXIST => Explanation::new(
            FailureKind::Busy,
            "an event takes one program only, and this one has it already",
        )
        .with_remedy("open the event once more for the second program"),
        Errno::E2BIG => Explanation::new(
            FailureKind::Limit,
            format!(
                "a tracepoint or function takes {MAX_PROGRAMS} programs at a time, and has them, whoever \
                     they are of"
            ),
        )
        .with_remedy("detach what is not needed; `bpftool link` and `ks-host ps` show who has some"),
        Errno::EACCES | Errno::EPERM => {
            let missing = [(Capability::Bpf, "CAP_BPF"), (Capability::Perfmon, "CAP_PERFMON")]
                .map(|(capability, name)| (facts.has(capability) == Some(false)).then_some(name))
                .into_iter()
                .flatten()
                .collect::<Vec<_>>();
            match missing.as_slice() {
                [] => Explanation::new(
                    FailureKind::NotPermitted,
                    "a security module refuses to link the program",
                ),
                missing => Explanation::new(
                    FailureKind::NotPermitted,
                    format!("ks-host has no {}", missing.join(" and no ")),
                )
                .with_remedy(format!("give ks-host {}", missing.join(" and "))),
            }
        }
        Errno::EINVAL if facts.kernel.is_some_and(|version| version < PERF_LINK_SINCE) => {
            Explanation::new(FailureKind::Unsupported, "kernels before 5.15 have no links for perf events")
        }
        Errno::EINVAL | Errno::EPROTO | Errno::EOPNOTSUPP => {
            Explanation::new(FailureKind::Invalid, "this kind of event does not run this kind of program")
        }
        _ => Explanation::unknown(),
    }
}

/// Limit on the programs of one event. Source: BPF_TRACE_MAX_PROGS, kernel/trace/bpf_trace.c, v6.18.
const MAX_PROGRAMS: usize = 64;

/// First kernel whose BPF_LINK_CREATE accepts perf events (`bpf_perf_link_attach`).
const PERF_LINK_SINCE: (u32, u32) = (5, 15);
