//! Errors of this module as data. [`crate::explain`] formats them.

use nix::errno::Errno;

use super::attachments::AttachmentId;
use super::event::{InvalidEvent, did_you_mean};
use crate::explain::Facts;
pub use crate::explain::FailureKind as ErrorKind;
use crate::explain::perf::{Attempt, Call, Failure, explain};
use crate::tracefs::{self, TracefsError};

/// A failure of this module. Its text says what was attempted, the kernel's answer, the reason, and the
/// remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PerfError {
    /// No event has this name.
    #[error("no event named `{name}`{}", did_you_mean(.near))]
    UnknownEvent {
        /// The unknown name, as it was written.
        name: String,
        /// Similar names, the most similar first.
        near: Vec<String>,
    },
    /// No PMU of sysfs has this type.
    #[error("no PMU has the type {type_} here\n  do: look at /sys/bus/event_source/devices/*/type")]
    UnknownPmu {
        /// The `perf_event_attr.type` that no PMU has.
        type_: u32,
    },
    /// No PMU has this name.
    #[error("no PMU named `{name}` here{}", did_you_mean(.near))]
    NoPmu {
        /// The unknown name, as it was written.
        name: String,
        /// Similar names, the most similar first.
        near: Vec<String>,
    },
    /// The number of a tracepoint could not be read from tracefs.
    #[error("cannot find the tracepoint `{name}`\n  because: {cause}{}", tracefs_advice(.cause))]
    Tracepoint {
        /// The tracepoint as `category/event`.
        name: String,
        /// The failure of tracefs.
        cause: TracefsError,
    },
    /// The location of a probe or a breakpoint was not found.
    #[error("cannot find `{location}`\n  because: {because}\n  do: {remedy}")]
    ProbeLocation {
        /// The location, as it was written.
        location: String,
        /// The kind of failure, for programs.
        kind: ErrorKind,
        /// The reason, for messages.
        because: String,
        /// The remedy, for messages.
        remedy: &'static str,
    },
    /// The event's description is invalid; the kernel is not asked.
    #[error("not an event\n  because: {0}")]
    InvalidEvent(#[from] InvalidEvent),
    /// A check of the host refused before the kernel was asked.
    #[error("{attempt}\n  because: {refusal}")]
    Refused {
        /// The operation that was attempted, with its event and target.
        attempt: Box<Attempt>,
        /// The rule that the operation violates.
        refusal: Refusal,
    },
    /// The attachment or its leader was detached.
    #[error("attachment {0} is stale\n  because: it was detached, or the leader of its group was")]
    Stale(AttachmentId),
    /// A system call failed.
    #[error("{0}")]
    Kernel(Box<Failure>),
    /// The attachment has no kernel event for that CPU alone.
    #[error(
        "{attempt}: nothing of it counts cpu {cpu} alone\n  do: attach it with `cpu: all`, or to that CPU"
    )]
    NotOnCpu {
        /// The operation that was attempted, with its event and target.
        attempt: Box<Attempt>,
        /// The CPU whose counts were requested.
        cpu: i32,
    },
    /// A read returned end-of-file: the event is in error state.
    #[error(
        "{0}\n  kernel: read: end of file\n  because: the event lost its counter (a pinned event that did \
         not fit)"
    )]
    EndOfFile(Box<Attempt>),
    /// The result of a read is malformed, or lacks the event that was read.
    #[error("{0}\n  kernel: read: a result without this event's id")]
    MalformedRead(Box<Attempt>),
}

/// A rule that the host checks before it asks the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The pid is below -1.
    #[error("pid {0} is not a task: -1 is every task, 0 the calling thread")]
    Pid(i32),
    /// The cpu is below -1.
    #[error("cpu {0} is not a CPU: -1 is any CPU")]
    Cpu(i32),
    /// Both pid and cpu are -1.
    #[error("every task on every CPU (pid -1, cpu -1) cannot be one event\n  do: name a task or a CPU")]
    EveryTaskOnEveryCpu,
    /// `exclude_kernel` for an event that only happens in the kernel.
    #[error(
        "it happens in the kernel only: with `exclude_kernel` it would count a silent 0\n  do: leave out \
         `exclude_kernel`"
    )]
    InKernelOnly,
    /// `exclude_host` for an event that only happens in the host.
    #[error(
        "virtual machines do not cause it: `exclude_host` would leave nothing\n  do: leave out `exclude_host`"
    )]
    InHostOnly,
    /// The program's period on a clock event is too short.
    #[error(
        "the program would run every {period} ns, and its CPU would do little else\n  do: give a `period` \
         of {shortest} ns or more, or a `freq` of {} or less",
        1_000_000_000 / shortest
    )]
    ClockTooOften {
        /// The requested period, in nanoseconds.
        period: u64,
        /// The shortest accepted period, in nanoseconds.
        shortest: u64,
    },
    /// A period of 0 for an event that is open.
    #[error("a period is 1 or more")]
    NoPeriod,
    /// A period for an event that runs no program.
    #[error("nothing is sampled: it runs no program")]
    NotSampled,
    /// `remove_on_exec` together with `enable_on_exec`.
    #[error("it cannot both start and end at an exec")]
    StartsAndEndsOnExec,
    /// `precise` is above 3.
    #[error("precise {0} is not a level: 0 allows any skid, 3 allows none")]
    Precise(u32),
    /// Several options select the observed tasks.
    #[error(
        "`{first}` and `{second}` both select the tasks to count\n  do: give one of pid, process, command \
         and cgroup"
    )]
    TwoTasks {
        /// The first of the conflicting options.
        first: &'static str,
        /// The second of the conflicting options.
        second: &'static str,
    },
    /// `follow` without a task.
    #[error("`follow` needs a task whose threads are counted: give `pid`, `process` or `command`")]
    FollowWithoutTask,
    /// A probe event is to be inherited by children or threads. The kernel opens the event anew for each of
    /// them, and reads the name of the file or function at the address that the opener passed, but in the
    /// memory of the task that starts the new one: fork(2) and pthread_create(3) fail there
    /// (`perf_uprobe_init` in `kernel/trace/trace_event_perf.c`, v6.18).
    #[error(
        "a probe's event cannot be inherited: the observed task could start no thread and no process any \
         more\n  do: leave out `inherit` and `follow`, and count all tasks (pid -1, `cpu: all`), or by task \
         in a program of the probe"
    )]
    ProbeInherited,
    /// A group contains an event that probes several functions.
    #[error(
        "an event of several functions of one name ({locations}) cannot be in a group\n  \
         do: count it alone, or name one of them: `path:function@file.c`, `path:+OFFSET`"
    )]
    SeveralFunctions {
        /// The offsets of these functions in the file.
        locations: String,
    },
    /// `cgroup` without a CPU.
    #[error("a cgroup is counted on one CPU or on all\n  do: give `cpu: all`, or the number of a CPU")]
    CgroupNeedsCpu,
    /// `command` although the host starts no command.
    #[error("the host starts no command\n  do: run `ks-host PLUGIN --exec COMMAND ARGUMENTS..`")]
    NoCommand,
    /// procfs shows another PID namespace, so threads and processes cannot be listed.
    #[error(
        "/proc shows the tasks of another PID namespace, so threads and processes cannot be listed\n  do: {}",
        crate::procfs::REMEDY
    )]
    OtherProcfs,
    /// No process has that name.
    #[error("no process runs `{0}`")]
    NoProcess(String),
    /// The task does not exist.
    #[error("there is no task {0}")]
    NoTask(i32),
    /// The control group does not exist.
    #[error("there is no cgroup `{path}`{}", mounted_at(.mount))]
    NoCgroup {
        /// The path, as it was given.
        path: String,
        /// The mount point of the control groups that perf uses; None if nothing is mounted.
        mount: Option<std::path::PathBuf>,
    },
    /// The threads of a process changed faster than they could be opened.
    #[error(
        "task {0} starts threads faster than they can be opened\n  do: attach before it does, with `inherit`"
    )]
    TooManyThreads(i32),
    /// The event's PMU counts on none of the requested CPUs.
    #[error("the PMU of this event counts on other CPUs: {}", list(.cpus))]
    OtherPmuCpu {
        /// The CPUs on which the PMU counts.
        cpus: Vec<i32>,
    },
    /// A member's core PMUs differ from those of its leader.
    #[error(
        "a group is on one kind of core: it counts on {leader}, this event on {member}\n  do: open the \
         event on its own"
    )]
    OtherCores {
        /// The PMUs of the group, for messages.
        leader: String,
        /// The PMUs of the event, for messages.
        member: String,
    },
    /// The group would have to be split by kind of core, which this kernel does not support.
    #[error(
        "a group is on one kind of core, and its leader counts on all of them: kernels before 6.2 cannot \
         split it\n  do: let this event lead the group"
    )]
    SplitGroup,
    /// The named option is only for leaders.
    #[error("`{0}` is for the leader of a group: the group is on the counters together")]
    ForLeaders(&'static str),
    /// The member's target differs from its leader's in the named option.
    #[error("a group observes the same tasks and CPUs: `{0}` of the leader and of this event differ")]
    OtherTarget(&'static str),
    /// Programs cannot read this event by the number of the CPU that they run on.
    #[error(
        "programs read what all tasks do on their own CPU\n  do: open it with pid -1 and `cpu: all`, or a \
         CPU, and without `inherit`"
    )]
    NotOfCpus,
    /// The named event array already exposes another attachment.
    #[error("programs read another attachment in `{0}`")]
    EventArrayInUse(String),
    /// The leader was detached.
    #[error("stale leader: attachment {0} was detached")]
    StaleLeader(AttachmentId),
    /// The leader is itself a member of a group.
    #[error(
        "that attachment is a member; use its leader\n  do: join attachment {leader}, which leads its group"
    )]
    MemberAsLeader {
        /// The leader of that group.
        leader: AttachmentId,
    },
    /// The member observes another task than its leader.
    #[error("a group observes one task: the leader has pid {leader}, this event pid {member}")]
    OtherPid {
        /// The leader's pid, as it was given.
        leader: i32,
        /// The member's pid, as it was given.
        member: i32,
    },
    /// The member observes another CPU than its leader.
    #[error("a group is on one CPU: the leader has cpu {leader}, this event cpu {member}")]
    OtherCpu {
        /// The leader's CPU; -1 is any.
        leader: i32,
        /// The member's CPU; -1 is any.
        member: i32,
    },
    /// The member's `inherit` differs from its leader's.
    #[error("`inherit` is the same in a whole group: the leader has {leader}, this event {member}")]
    OtherInherit {
        /// The leader's `inherit`, which the whole group must share.
        leader: bool,
        /// The member's `inherit`, as it was requested.
        member: bool,
    },
}

fn tracefs_advice(cause: &TracefsError) -> String {
    match cause {
        TracefsError::NotFound { near, .. } => did_you_mean(near),
        TracefsError::NotMounted => {
            "\n  do: mount -t tracefs tracefs /sys/kernel/tracing, or give ks-host CAP_SYS_ADMIN".to_owned()
        }
        TracefsError::NotPermitted => format!("\n  do: {}", tracefs::READ_REMEDY),
        TracefsError::Unreadable(_) => String::new(),
    }
}

impl PerfError {
    /// Returns the kind of failure, for programs.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PerfError::UnknownEvent { .. } | PerfError::UnknownPmu { .. } | PerfError::NoPmu { .. } => {
                ErrorKind::NotFound
            }
            PerfError::Tracepoint { cause, .. } => match cause {
                TracefsError::NotFound { .. } => ErrorKind::NotFound,
                TracefsError::NotPermitted => ErrorKind::NotPermitted,
                TracefsError::NotMounted => ErrorKind::Unsupported,
                TracefsError::Unreadable(_) => ErrorKind::Kernel,
            },
            PerfError::ProbeLocation { kind, .. } => *kind,
            PerfError::Refused {
                refusal: Refusal::NoProcess(_) | Refusal::NoTask(_) | Refusal::NoCgroup { .. },
                ..
            } => ErrorKind::NotFound,
            PerfError::Refused { refusal: Refusal::ClockTooOften { .. }, .. } => ErrorKind::Limit,
            PerfError::Refused { refusal: Refusal::EventArrayInUse(_), .. } => ErrorKind::Busy,
            PerfError::InvalidEvent(reason) => reason.kind(),
            PerfError::Refused { refusal: Refusal::StaleLeader(_), .. } | PerfError::Stale(_) => {
                ErrorKind::Stale
            }
            PerfError::Refused { .. } | PerfError::NotOnCpu { .. } => ErrorKind::Invalid,
            PerfError::Kernel(failure) => explain(failure).kind,
            PerfError::EndOfFile(_) | PerfError::MalformedRead(_) => ErrorKind::Kernel,
        }
    }

    /// Returns the reason in one line: the cause if it is known, else the error's text.
    pub fn cause(&self) -> String {
        let text = match self {
            PerfError::Kernel(failure) => {
                explain(failure).because.unwrap_or_else(|| format!("{}: {:?}", failure.call, failure.errno))
            }
            PerfError::Refused { refusal, .. } => refusal.to_string(),
            PerfError::Tracepoint { cause, .. } => cause.to_string(),
            PerfError::ProbeLocation { because, .. } => because.clone(),
            PerfError::InvalidEvent(reason) => reason.to_string(),
            other => other.to_string(),
        };
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// Returns the errno if a system call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            PerfError::Kernel(failure) => Some(failure.errno),
            _ => None,
        }
    }

    /// Builds the error for a system call that failed, with the kernel settings as they are now.
    pub(super) fn kernel(attempt: Attempt, call: Call, errno: Errno) -> PerfError {
        let facts = Facts::read(attempt.pid);
        PerfError::Kernel(Box::new(Failure { attempt, call, errno, facts }))
    }
}

fn mounted_at(mount: &Option<std::path::PathBuf>) -> String {
    match mount {
        Some(mount) => format!(" below {}", mount.display()),
        None => ": no file system of control groups is mounted that perf events can use".to_owned(),
    }
}

fn list(cpus: &[i32]) -> String {
    cpus.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}
