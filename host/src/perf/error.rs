//! What can go wrong, as data. The words are made by [`crate::explain`].

use nix::errno::Errno;

use super::attachments::AttachmentId;
use super::event::InvalidEvent;
use crate::explain::Facts;
pub use crate::explain::Kind as ErrorKind;
use crate::explain::perf::{Attempt, Call, Failure, explain};

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

impl PerfError {
    /// The kind, to decide by.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PerfError::UnknownEvent { .. } | PerfError::UnknownPmu { .. } => ErrorKind::NotFound,
            PerfError::InvalidEvent(_) => ErrorKind::Invalid,
            PerfError::Refused { refusal: Refusal::StaleLeader(_), .. } | PerfError::Stale(_) => {
                ErrorKind::Stale
            }
            PerfError::Refused { .. } => ErrorKind::Invalid,
            PerfError::Kernel(failure) => explain(failure).kind,
            PerfError::EndOfFile(_) | PerfError::Answer(_) => ErrorKind::Kernel,
        }
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

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("\n  do: use a name that exists, such as `{}`", near.join("`, `")),
    }
}
