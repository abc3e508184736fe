//! What can go wrong, as data. The words are made by [`crate::explain`].

use nix::errno::Errno;

use super::attachments::AttachmentId;
use super::event::{InvalidEvent, did_you_mean};
use crate::explain::Facts;
pub use crate::explain::FailureKind as ErrorKind;
use crate::explain::perf::{Attempt, Call, Failure, explain};
use crate::tracefs::{self, TracefsError};

/// A failure of this module. Its text says what was tried, what the kernel answered, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PerfError {
    /// No event has this name.
    #[error("no event named `{name}`{}", did_you_mean(.near))]
    UnknownEvent {
        /// The name, as it was written.
        name: String,
        /// Names that are near, the nearest first.
        near: Vec<String>,
    },
    /// The kernel publishes no PMU with this type.
    #[error("no PMU has the type {type_} here\n  do: look at /sys/bus/event_source/devices/*/type")]
    UnknownPmu {
        /// `perf_event_attr.type`.
        type_: u32,
    },
    /// No PMU has this name.
    #[error("no PMU named `{name}` here{}", did_you_mean(.near))]
    NoPmu {
        /// The name.
        name: String,
        /// Names that are near, the nearest first.
        near: Vec<String>,
    },
    /// A tracepoint that has no number here.
    #[error("cannot find the tracepoint `{name}`\n  because: {cause}{}", tracefs_advice(.cause))]
    Tracepoint {
        /// `category/event`.
        name: String,
        /// Why.
        cause: TracefsError,
    },
    /// A place that a probe or a breakpoint is put at could not be found.
    #[error("cannot find `{location}`\n  because: {because}\n  do: {remedy}")]
    ProbeLocation {
        /// As it was written.
        location: String,
        /// The kind of failure.
        kind: ErrorKind,
        /// Why.
        because: String,
        /// What helps.
        remedy: &'static str,
    },
    /// The description of the event can never be opened.
    #[error("not an event\n  because: {0}")]
    InvalidEvent(#[from] InvalidEvent),
    /// The host refused before the kernel was asked.
    #[error("{attempt}\n  because: {refusal}")]
    Refused {
        /// What was tried.
        attempt: Box<Attempt>,
        /// The rule.
        refusal: Refusal,
    },
    /// The attachment was detached, or its leader was.
    #[error("attachment {0} is stale\n  because: it was detached, or the leader of its group was")]
    Stale(AttachmentId),
    /// The kernel refused.
    #[error("{0}")]
    Kernel(Box<Failure>),
    /// The attachment has no kernel event of that CPU's own.
    #[error(
        "{attempt}: nothing of it counts cpu {cpu} alone\n  do: attach it with `cpu: all`, or to that CPU"
    )]
    NotOnCpu {
        /// What was tried.
        attempt: Box<Attempt>,
        /// The CPU.
        cpu: i32,
    },
    /// A read gave end-of-file: the event is in error state.
    #[error(
        "{0}\n  kernel: read: end of file\n  because: the event lost its counter (a pinned event that did not fit)"
    )]
    EndOfFile(Box<Attempt>),
    /// The answer to a read does not have the documented form, or lacks the event that was read.
    #[error("{0}\n  kernel: read: an answer without this event's id")]
    Answer(Box<Attempt>),
}

/// A rule that the host checks before it asks the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A pid below -1.
    #[error("pid {0} is no task: -1 is every task, 0 the calling thread")]
    Pid(i32),
    /// A cpu below -1.
    #[error("cpu {0} is no CPU: -1 is any CPU")]
    Cpu(i32),
    /// pid -1 with cpu -1.
    #[error("every task on every CPU (pid -1, cpu -1) cannot be one event\n  do: name a task or a CPU")]
    EveryTaskOnEveryCpu,
    /// An event that happens in the kernel only, without the kernel.
    #[error(
        "it happens in the kernel only: with `exclude_kernel` it would count a silent 0\n  do: leave out `exclude_kernel`"
    )]
    InKernelOnly,
    /// An event that happens in the host only, without the host.
    #[error(
        "virtual machines do not cause it: `exclude_host` would leave nothing\n  do: leave out `exclude_host`"
    )]
    InHostOnly,
    /// A program at a clock, at every few ticks of it.
    #[error(
        "the program would run every {period} ns, and its CPU would do little else\n  do: give a `period` of {shortest} ns or more, or a `freq` of {} or less",
        1_000_000_000 / shortest
    )]
    ClockTooOften {
        /// Nanoseconds.
        period: u64,
        /// Nanoseconds.
        shortest: u64,
    },
    /// `precise` above 3.
    #[error("precise {0} is no step: 0 is the loosest, 3 the strictest")]
    Precise(u32),
    /// More than one of what says whom to count.
    #[error(
        "`{first}` and `{second}` both say whom to count\n  do: give one of pid, process, command and cgroup"
    )]
    TwoTasks {
        /// The one.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// `follow` without a task.
    #[error("`follow` needs a task whose threads are counted: give `pid`, `process` or `command`")]
    FollowsNobody,
    /// A probe's event that children or threads would inherit. The kernel opens it anew for each of them, and reads the
    /// name of the file or function at the address that the opener gave, in the memory of the task that starts the new one:
    /// fork(2) and pthread_create(3) fail there (`perf_uprobe_init` in `kernel/trace/trace_event_perf.c`, v6.18).
    #[error(
        "a probe's event cannot be inherited: the observed task could start no thread and no process any more\n  do: leave out `inherit` and `follow`, and count all tasks (pid -1, `cpu: all`), or by task in a program of the probe"
    )]
    ProbeInherited,
    /// An event at several functions, in a group.
    #[error(
        "an event of several functions of one name ({locations}) cannot be in a group\n  do: count it alone, or name one of \
         them: `path:function@file.c`, `path:+OFFSET`"
    )]
    SeveralFunctions {
        /// Where they are in the file.
        locations: String,
    },
    /// A control group on any CPU.
    #[error("a cgroup is counted on one CPU or on all\n  do: give `cpu: all`, or the number of a CPU")]
    CgroupNeedsCpu,
    /// `command` where the host starts none.
    #[error("the host starts no command\n  do: run `ks-host PLUGIN --exec COMMAND WORDS..`")]
    NoCommand,
    /// Threads and processes are listed by a procfs that shows another PID namespace.
    #[error(
        "/proc shows the tasks of another PID namespace, so threads and processes cannot be listed\n  do: {}",
        crate::procfs::REMEDY
    )]
    OtherProcfs,
    /// No process has that name.
    #[error("no process runs `{0}`")]
    NoProcess(String),
    /// No such task.
    #[error("there is no task {0}")]
    NoTask(i32),
    /// No such control group.
    #[error("there is no cgroup `{path}`{}", mounted_at(.mount))]
    NoCgroup {
        /// As it was given.
        path: String,
        /// Where control groups for perf are mounted.
        mount: Option<std::path::PathBuf>,
    },
    /// The threads of a process changed faster than they could be opened.
    #[error(
        "task {0} starts threads faster than they can be opened\n  do: attach before it does, with `inherit`"
    )]
    TooManyThreads(i32),
    /// None of the CPUs that the event's PMU counts on was asked for.
    #[error("the PMU of this event counts on other CPUs: {}", list(.cpus))]
    OtherPmuCpu {
        /// Those.
        cpus: Vec<i32>,
    },
    /// A member whose PMUs are not those of its leader's kinds of core.
    #[error(
        "a group is on one kind of core: it counts on {leader}, this event on {member}\n  do: open the event on its own"
    )]
    OtherCores {
        /// The PMUs of the group.
        leader: String,
        /// Those of the event.
        member: String,
    },
    /// A group that would have to be split, on a kernel that does not keep the parts on their kinds of core.
    #[error(
        "a group is on one kind of core, and its leader counts on all of them: kernels before 6.2 cannot split it\n  do: let this event lead the group"
    )]
    SplitGroup,
    /// An option that only a leader may have.
    #[error("`{0}` is for the leader of a group: the group is on the counters together")]
    ForLeaders(&'static str),
    /// A member that would be opened at other places than its leader.
    #[error("a group observes the same tasks and CPUs: `{0}` of the leader and of this event differ")]
    OtherTarget(&'static str),
    /// An event that programs cannot read by the number of the CPU that they run on.
    #[error(
        "programs read what all tasks do on their own CPU\n  do: open it with pid -1 and `cpu: all`, or a CPU, and without `inherit`"
    )]
    NotOfCpus,
    /// An array of events that another attachment is in.
    #[error("programs read another attachment in `{0}`")]
    EventArrayInUse(String),
    /// The leader is detached.
    #[error("stale leader: attachment {0} was detached")]
    StaleLeader(AttachmentId),
    /// The leader is a member of another group.
    #[error(
        "that attachment is a member; use its leader\n  do: join attachment {leader}, which leads its group"
    )]
    MemberAsLeader {
        /// The leader of that member's group.
        leader: AttachmentId,
    },
    /// A member for another task.
    #[error("a group observes one task: the leader has pid {leader}, this event pid {member}")]
    OtherPid {
        /// The leader's pid, as it was given.
        leader: i32,
        /// The member's.
        member: i32,
    },
    /// A member for another CPU.
    #[error("a group is on one CPU: the leader has cpu {leader}, this event cpu {member}")]
    OtherCpu {
        /// The leader's cpu.
        leader: i32,
        /// The member's.
        member: i32,
    },
    /// A member with another `inherit`.
    #[error("`inherit` is the same in a whole group: the leader has {leader}, this event {member}")]
    OtherInherit {
        /// The leader's flag.
        leader: bool,
        /// The member's.
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
    /// The kind, to decide by.
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
            PerfError::InvalidEvent(_) => ErrorKind::Invalid,
            PerfError::Refused { refusal: Refusal::StaleLeader(_), .. } | PerfError::Stale(_) => {
                ErrorKind::Stale
            }
            PerfError::Refused { .. } | PerfError::NotOnCpu { .. } => ErrorKind::Invalid,
            PerfError::Kernel(failure) => explain(failure).kind,
            PerfError::EndOfFile(_) | PerfError::Answer(_) => ErrorKind::Kernel,
        }
    }

    /// Why, in one line: the cause if it is known, else what was said.
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

    /// The errno, if a system call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            PerfError::Kernel(failure) => Some(failure.errno),
            _ => None,
        }
    }

    /// A refusal by the kernel, with the facts as they are now.
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
