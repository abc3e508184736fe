//! From an errno and facts of this machine to a reason and an advice.
//!
//! In: what was tried, the call and its errno, and [`Facts`], which are read when something has failed. Out: an
//! [`Explanation`]. The rules are pure functions, so that the answer for any machine can be tested on this one.
//!
//! Not here: what the errno is turned into on the plugin's side.

#[cfg(feature = "plugins")]
pub mod bpf;
#[cfg(feature = "plugins")]
pub mod check;
pub mod doctor;
mod facts;
mod machine;
pub mod perf;
#[cfg(feature = "plugins")]
mod since;

use std::fmt;

pub use facts::{Capability, Facts};
pub use machine::{FileSystem, Machine};

/// What kind of failure something is. The cases mirror `error-kind` of the plugin contract, as far as the kernel
/// interfaces produce them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A capability or a sysctl is missing.
    NotPermitted,
    /// What was named does not exist: a task, a CPU, a tracepoint.
    NotFound,
    /// The request can never succeed as it stands.
    Invalid,
    /// Something exclusive is taken.
    Busy,
    /// A limit of the process or of the hardware is reached.
    Limit,
    /// The handle was detached, or its leader was.
    Stale,
    /// This kernel or this CPU cannot do it.
    Unsupported,
    /// Any other answer of the kernel.
    Kernel,
}

/// Why something failed and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The kind, to decide by.
    pub kind: FailureKind,
    /// The cause, as far as this machine's facts tell. One line.
    pub because: Option<String>,
    /// What a person can do. One line.
    pub remedy: Option<String>,
}

/// What helps in a user namespace.
const OUTSIDE: &str = "start ks-host outside of the user namespace (as root of the machine, not of a rootless container), or let \
                       the owner of the machine delegate BPF by a token";

/// That a filter of system calls refuses a call, as containers and services have one.
pub(crate) fn filtered(call: &str) -> Explanation {
    Explanation::new(
        FailureKind::NotPermitted,
        format!("a filter of system calls (seccomp) that ks-host was started with refuses {call}"),
    )
    .with_remedy(format!(
        "allow it there: `--security-opt seccomp=PROFILE` of a container, `SystemCallFilter={call}` of a service; or start \
         ks-host outside"
    ))
}

impl Explanation {
    fn new(kind: FailureKind, because: impl Into<String>) -> Explanation {
        Explanation { kind, because: Some(because.into()), remedy: None }
    }

    fn unknown() -> Explanation {
        Explanation { kind: FailureKind::Kernel, because: None, remedy: None }
    }

    fn with_remedy(self, remedy: impl Into<String>) -> Explanation {
        Explanation { remedy: Some(remedy.into()), ..self }
    }
}

/// The lines `because:` and `do:`, each after a line end; nothing for what is not known.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(because) = &self.because {
            write!(f, "\n  because: {because}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  do: {remedy}")?;
        }
        Ok(())
    }
}
