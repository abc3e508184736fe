//! Explains an errno by facts of this machine: the cause, and a remedy.
//!
//! In: what was tried, the call and its errno, and [`Facts`], which are read when something has failed. Out:
//! an [`Explanation`]. The rules are pure functions, so that the answer for any machine can be tested on this
//! one.
//!
//! The conversion to the plugin's error type is elsewhere.

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

use nix::errno::Errno;

pub use facts::{Capability, Facts};
pub use machine::{FileSystem, Machine};

/// The kind of a failure. The cases mirror `error-kind` of the plugin contract, as far as the kernel
/// interfaces produce them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A capability or a sysctl is missing.
    NotPermitted,
    /// A named task, CPU or tracepoint does not exist.
    NotFound,
    /// The request can never succeed unchanged.
    Invalid,
    /// An exclusive resource is in use.
    Busy,
    /// A limit of the process or of the hardware is reached.
    Limit,
    /// The handle is detached, or the handle of its group leader is.
    Stale,
    /// This kernel or this CPU does not support it.
    Unsupported,
    /// The host never does it, or only if a policy names it: it could change what is observed.
    DeniedByPolicy,
    /// Any other errno of the kernel.
    Kernel,
}

/// The cause of a failure and a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The kind, for programs that handle the error.
    pub kind: FailureKind,
    /// The cause, as far as the facts determine it. One line.
    pub because: Option<String>,
    /// A remedy for the person who runs the host. One line.
    pub remedy: Option<String>,
}

/// Remedy for a refusal in a user namespace.
const OUTSIDE: &str = "start ks-host outside of the user namespace (as root of the machine, not of a \
                       rootless container), or let the owner of the machine delegate BPF by a token";

/// Explains a call that a seccomp filter refuses, as containers and services install one.
pub(crate) fn filtered(call: &str) -> Explanation {
    Explanation::new(
        FailureKind::NotPermitted,
        format!("a filter of system calls (seccomp) that ks-host was started with refuses {call}"),
    )
    .with_remedy(format!(
        "allow it there: `--security-opt seccomp=PROFILE` of a container, `SystemCallFilter={call}` of a \
         service; or start ks-host outside"
    ))
}

/// Explains the errors that only probes of the kernel have: EADDRNOTAVAIL and EILSEQ.
///
/// Source: kernel/trace/trace_kprobe.c, `validate_probe_symbol`; arch/x86/kernel/kprobes/core.c,
/// `arch_prepare_kprobe`, v6.18.
fn unprobed(errno: Errno) -> Explanation {
    let because = match errno {
        Errno::EADDRNOTAVAIL => "the kernel has several functions of that name",
        _ => "no instruction of the kernel begins at that place",
    };
    Explanation::new(FailureKind::Invalid, because)
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

/// Formats the lines `because:` and `do:`, each after a line feed; omits what is unknown.
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
