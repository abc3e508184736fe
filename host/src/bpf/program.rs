//! Programs of a loaded object.

use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::error::BpfError;
use super::link::Link;
use super::sys;

/// The type of a program, as far as this host tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs on the overflow of a perf event.
    #[doc(alias = "BPF_PROG_TYPE_PERF_EVENT")]
    PerfEvent,
    /// Runs at a tracepoint, with the record that perf sees.
    #[doc(alias = "BPF_PROG_TYPE_TRACEPOINT")]
    Tracepoint,
    /// Runs at a tracepoint, with the arguments as the kernel passes them.
    #[doc(alias = "BPF_PROG_TYPE_RAW_TRACEPOINT")]
    RawTracepoint,
    /// Any other, by its number in `enum bpf_prog_type`.
    Other(u32),
}

impl From<u32> for ProgramKind {
    fn from(ty: u32) -> ProgramKind {
        match ty {
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT => ProgramKind::PerfEvent,
            libbpf_sys::BPF_PROG_TYPE_TRACEPOINT => ProgramKind::Tracepoint,
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT => ProgramKind::RawTracepoint,
            other => ProgramKind::Other(other),
        }
    }
}

impl fmt::Display for ProgramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramKind::PerfEvent => f.write_str("perf_event"),
            ProgramKind::Tracepoint => f.write_str("tracepoint"),
            ProgramKind::RawTracepoint => f.write_str("raw_tracepoint"),
            ProgramKind::Other(ty) => write!(f, "type {ty} (enum bpf_prog_type)"),
        }
    }
}

/// What the kernel knows of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Its type.
    pub kind: ProgramKind,
    /// The kernel's id.
    pub id: u32,
    /// Instructions of 8 bytes after the kernel's rewriting; 0 if the kernel keeps them from this user.
    pub instructions: u32,
}

/// A program of a loaded object.
#[derive(Debug)]
pub struct Program<'object> {
    pub(super) inner: libbpf_rs::Program<'object>,
}

impl Program<'_> {
    /// The name in the object, uncut.
    pub fn name(&self) -> String {
        self.inner.name().to_string_lossy().into_owned()
    }

    /// The type, as the object says.
    pub fn kind(&self) -> ProgramKind {
        ProgramKind::from(self.inner.prog_type() as u32)
    }

    /// What the kernel knows of it, now.
    ///
    /// # Errors
    /// [`BpfError::Kernel`].
    pub fn info(&self) -> Result<ProgramInfo, BpfError> {
        let info = sys::program_info(self.inner.as_fd())
            .map_err(|errno| self.kernel("describe", "bpf(BPF_OBJ_GET_INFO_BY_FD)", errno))?;
        Ok(ProgramInfo {
            kind: ProgramKind::from(info.type_),
            id: info.id,
            instructions: info.xlated_prog_len / 8,
        })
    }

    /// Links the program to an event that somebody else opened and enables: it runs at every overflow, or at every
    /// hit of a tracepoint's event, until the descriptor is closed.
    ///
    /// # Errors
    /// EEXIST if the event has a program already; EINVAL if the program does not suit it or the kernel is older than
    /// 5.15.
    pub fn link_event(&self, event: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        sys::link_perf_event(self.inner.as_fd(), event)
    }

    /// Attaches the program to the raw tracepoint of this name, for example `sched_switch`.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`]: ENOENT if there is no such tracepoint.
    pub fn attach_raw_tracepoint(&self, target: &str) -> Result<Link, BpfError> {
        let name =
            CString::new(target).ok().filter(|name| !name.is_empty()).ok_or_else(|| BpfError::Target {
                program: self.name(),
                target: target.into(),
                expected: "the name of a tracepoint, without its category",
            })?;
        sys::open_raw_tracepoint(&name, self.inner.as_fd()).map(Link::new).map_err(|errno| {
            self.kernel(
                &format!("attach to the raw tracepoint `{target}`"),
                "bpf(BPF_RAW_TRACEPOINT_OPEN)",
                errno,
            )
        })
    }

    fn kernel(&self, tried: &str, call: &'static str, errno: Errno) -> BpfError {
        BpfError::Kernel { tried: format!("{tried}: program `{}`", self.name()), call, errno }
    }
}
