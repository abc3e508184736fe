//! Programs of a loaded object.

use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ks_compiler::object::table::ProgramType;
use nix::errno::Errno;

use super::attach::Supervisor;
use super::delivered::LoadedProgram;
use super::error::BpfError;
use super::link::Link;
use super::map::Map;
use super::occupant::OccupantFinder;
use super::statistics::SkippedRuns;
use super::sys;
use crate::probed::Convention;

/// The type of a program in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadedType {
    /// A type that a plugin may have.
    Known(ProgramType),
    /// Any other type, by its number in `enum bpf_prog_type`.
    Other(u32),
}

impl LoadedType {
    /// Returns whether the kernel skips the program while any program of these types runs on the CPU, not
    /// only while it runs itself.
    ///
    /// Source: kernel/trace/bpf_trace.c, `trace_call_bpf`, v6.18.
    pub(super) fn shares_recursion(self) -> bool {
        matches!(self, LoadedType::Known(ProgramType::Tracepoint | ProgramType::Kprobe))
    }

    /// Returns the number in `enum bpf_prog_type`.
    pub fn number(self) -> u32 {
        match self {
            LoadedType::Known(known) => known.number(),
            LoadedType::Other(number) => number,
        }
    }
}

impl From<u32> for LoadedType {
    fn from(number: u32) -> LoadedType {
        ProgramType::from_number(number).map_or(LoadedType::Other(number), LoadedType::Known)
    }
}

impl fmt::Display for LoadedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadedType::Known(known) => f.write_str(known.name()),
            LoadedType::Other(number) => write!(f, "type {number} (enum bpf_prog_type)"),
        }
    }
}

/// Information from the kernel about a loaded program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Type of the program.
    pub kind: LoadedType,
    /// The kernel's id of the program.
    pub id: u32,
    /// Instructions of 8 bytes after the kernel's rewriting; 0 if the kernel hides them from this user.
    pub instructions: u32,
}

/// A program of a loaded object, borrowed from it.
#[derive(Debug)]
pub struct Program<'object> {
    pub(super) loaded: &'object LoadedProgram,
    /// Removes attachments that have no link.
    pub(super) supervisor: Option<&'object Arc<Supervisor>>,
    /// Identifies the owner of an interface's xdp program.
    pub(super) occupants: Option<&'object OccupantFinder>,
    /// The map of its timer; none for other kinds.
    pub(super) timer: Option<&'object Arc<Map>>,
    /// The convention by which it reads the arguments of a function; none if it reads none, or the object does
    /// not tell.
    pub(super) convention: Option<Convention>,
}

impl Program<'_> {
    /// Returns the name in the object, not truncated.
    pub fn name(&self) -> String {
        self.loaded.name.clone()
    }

    /// Returns the type, according to the object.
    pub fn kind(&self) -> LoadedType {
        LoadedType::from(self.loaded.kind)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.loaded.descriptor.as_fd()
    }

    /// The section of the object that it lies in, which says what it is attached to.
    pub(super) fn section(&self) -> &str {
        &self.loaded.section
    }

    /// Queries the kernel about the program.
    ///
    /// # Errors
    /// [`BpfError::Kernel`].
    pub fn info(&self) -> Result<ProgramInfo, BpfError> {
        let info = sys::program_info(self.descriptor())
            .map_err(|errno| self.kernel("describe", "bpf(BPF_OBJ_GET_INFO_BY_FD)", errno))?;
        Ok(ProgramInfo {
            kind: LoadedType::from(info.type_),
            id: info.id,
            instructions: info.xlated_prog_len / 8,
        })
    }

    /// Returns a function that links the program to an open perf event. The program runs at every overflow,
    /// or at every hit of a tracepoint's event, until the link's descriptor is closed. The program reads the
    /// cookie as `attachment_id`. The function holds its own descriptor of the program.
    ///
    /// The function's errors: EEXIST if the event already has a program; EINVAL if the program does not suit
    /// it or the kernel is older than 5.15.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] if no descriptor is left.
    pub fn linker(
        &self,
    ) -> Result<impl Fn(BorrowedFd<'_>, u64) -> Result<OwnedFd, Errno> + Send + Sync + use<>, BpfError> {
        let program = self.descriptor().try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
            self.kernel("keep", "fcntl(F_DUPFD_CLOEXEC)", errno)
        })?;
        Ok(move |event: BorrowedFd<'_>, cookie| sys::link_perf_event(program.as_fd(), event, cookie))
    }

    /// Returns a counter of the runs that the kernel skipped, to be polled.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] if no descriptor is left.
    pub fn skipped_runs(&self) -> Result<SkippedRuns, BpfError> {
        let program = self.descriptor().try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
            self.kernel("keep", "fcntl(F_DUPFD_CLOEXEC)", errno)
        })?;
        Ok(SkippedRuns::of(program))
    }

    /// Attaches the program to a raw tracepoint, for example `sched_switch`.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::NoCookie`]; [`BpfError::Kernel`]: ENOENT if there is no tracepoint
    /// of this name.
    pub fn attach_raw_tracepoint(&self, target: &str, cookie: u64) -> Result<Link, BpfError> {
        let name =
            CString::new(target).ok().filter(|name| !name.is_empty()).ok_or_else(|| BpfError::Target {
                program: self.name(),
                target: target.into(),
                expected: "the name of a tracepoint, without its category",
            })?;
        sys::open_raw_tracepoint(&name, self.descriptor(), cookie).map(Link::new).map_err(|errno| {
            let tried = format!("attach to the raw tracepoint `{target}`");
            self.not_linked_with(cookie, "6.10", self.kernel(&tried, "bpf(BPF_RAW_TRACEPOINT_OPEN)", errno))
        })
    }

    pub(super) fn kernel(&self, tried: &str, call: &'static str, errno: Errno) -> BpfError {
        BpfError::Kernel { tried: format!("{tried}: program `{}`", self.name()), call, errno }
    }
}
