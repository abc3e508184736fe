//! Programs of a loaded object.

use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;

use super::attach::Supervisor;
use super::error::BpfError;
use super::link::Link;
use super::map::Map;
use super::occupant::OccupantFinder;
use super::statistics::SkippedRuns;
use super::sys;

/// The type of a program, as far as this host distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    /// Runs at overflows of a perf event.
    #[doc(alias = "BPF_PROG_TYPE_PERF_EVENT")]
    PerfEvent,
    /// Runs at a tracepoint, with perf's record of the event as its context.
    #[doc(alias = "BPF_PROG_TYPE_TRACEPOINT")]
    Tracepoint,
    /// Runs at a tracepoint, with the arguments as the kernel passes them.
    #[doc(alias = "BPF_PROG_TYPE_RAW_TRACEPOINT")]
    RawTracepoint,
    /// Processes packets before the network stack.
    #[doc(alias = "BPF_PROG_TYPE_XDP")]
    Xdp,
    /// Processes packets at an interface's ingress or egress (tc).
    #[doc(alias = "BPF_PROG_TYPE_SCHED_CLS")]
    SchedCls,
    /// Runs for the packets that a socket receives.
    #[doc(alias = "BPF_PROG_TYPE_SOCKET_FILTER")]
    SocketFilter,
    /// Runs periodically. The program type is that of socket filters; the object has the map of its timer.
    Timer,
    /// Runs for the packets of a cgroup's sockets.
    #[doc(alias = "BPF_PROG_TYPE_CGROUP_SKB")]
    CgroupSkb,
    /// Runs for the addresses that a cgroup's sockets use.
    #[doc(alias = "BPF_PROG_TYPE_CGROUP_SOCK_ADDR")]
    CgroupSockAddr,
    /// Runs at a kernel function's entry or return, or at a tracepoint with typed arguments.
    #[doc(alias = "BPF_PROG_TYPE_TRACING")]
    Tracing,
    /// Runs at an LSM hook and decides about the operation.
    #[doc(alias = "BPF_PROG_TYPE_LSM")]
    Lsm,
    /// Runs at an instruction of the kernel or of a user program.
    #[doc(alias = "BPF_PROG_TYPE_KPROBE")]
    Kprobe,
    /// Implements a member of a kernel struct that a plugin registers.
    #[doc(alias = "BPF_PROG_TYPE_STRUCT_OPS")]
    StructOps,
    /// Any other type, by its number in `enum bpf_prog_type`.
    Other(u32),
}

impl ProgramKind {
    /// Returns whether attaching a program of this kind takes flags.
    pub fn has_flags(self) -> bool {
        self == ProgramKind::Xdp
    }

    /// Returns whether the kernel skips the program while any program of these kinds runs on the CPU, not
    /// only while it runs itself.
    ///
    /// Source: kernel/trace/bpf_trace.c, `trace_call_bpf`, v6.18.
    pub(super) fn shares_recursion(self) -> bool {
        matches!(self, ProgramKind::Tracepoint | ProgramKind::Kprobe)
    }

    /// Returns the number in `enum bpf_prog_type`.
    pub fn number(self) -> u32 {
        match self {
            ProgramKind::PerfEvent => libbpf_sys::BPF_PROG_TYPE_PERF_EVENT,
            ProgramKind::Tracepoint => libbpf_sys::BPF_PROG_TYPE_TRACEPOINT,
            ProgramKind::RawTracepoint => libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
            ProgramKind::Xdp => libbpf_sys::BPF_PROG_TYPE_XDP,
            ProgramKind::SchedCls => libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            ProgramKind::SocketFilter | ProgramKind::Timer => libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            ProgramKind::CgroupSkb => libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB,
            ProgramKind::CgroupSockAddr => libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK_ADDR,
            ProgramKind::Tracing => libbpf_sys::BPF_PROG_TYPE_TRACING,
            ProgramKind::Lsm => libbpf_sys::BPF_PROG_TYPE_LSM,
            ProgramKind::Kprobe => libbpf_sys::BPF_PROG_TYPE_KPROBE,
            ProgramKind::StructOps => libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS,
            ProgramKind::Other(number) => number,
        }
    }
}

impl ProgramKind {
    /// Returns the kind for a program type. `has_timer` distinguishes timers from socket filters.
    pub(super) fn with_timer(ty: u32, has_timer: bool) -> ProgramKind {
        match ProgramKind::from(ty) {
            ProgramKind::SocketFilter if has_timer => ProgramKind::Timer,
            kind => kind,
        }
    }
}

impl From<u32> for ProgramKind {
    fn from(ty: u32) -> ProgramKind {
        match ty {
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT => ProgramKind::PerfEvent,
            libbpf_sys::BPF_PROG_TYPE_TRACEPOINT => ProgramKind::Tracepoint,
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT => ProgramKind::RawTracepoint,
            libbpf_sys::BPF_PROG_TYPE_XDP => ProgramKind::Xdp,
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS => ProgramKind::SchedCls,
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER => ProgramKind::SocketFilter,
            libbpf_sys::BPF_PROG_TYPE_CGROUP_SKB => ProgramKind::CgroupSkb,
            libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCK_ADDR => ProgramKind::CgroupSockAddr,
            libbpf_sys::BPF_PROG_TYPE_TRACING => ProgramKind::Tracing,
            libbpf_sys::BPF_PROG_TYPE_LSM => ProgramKind::Lsm,
            libbpf_sys::BPF_PROG_TYPE_KPROBE => ProgramKind::Kprobe,
            libbpf_sys::BPF_PROG_TYPE_STRUCT_OPS => ProgramKind::StructOps,
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
            ProgramKind::Xdp => f.write_str("xdp"),
            ProgramKind::SchedCls => f.write_str("tc"),
            ProgramKind::SocketFilter => f.write_str("socket_filter"),
            ProgramKind::Timer => f.write_str("timer"),
            ProgramKind::CgroupSkb => f.write_str("cgroup_skb"),
            ProgramKind::CgroupSockAddr => f.write_str("cgroup_sock_addr"),
            ProgramKind::Tracing => f.write_str("tracing"),
            ProgramKind::Lsm => f.write_str("lsm"),
            ProgramKind::Kprobe => f.write_str("kprobe"),
            ProgramKind::StructOps => f.write_str("struct_ops"),
            ProgramKind::Other(ty) => write!(f, "type {ty} (enum bpf_prog_type)"),
        }
    }
}

/// Information from the kernel about a loaded program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Kind of the program.
    pub kind: ProgramKind,
    /// The kernel's id of the program.
    pub id: u32,
    /// Instructions of 8 bytes after the kernel's rewriting; 0 if the kernel hides them from this user.
    pub instructions: u32,
}

/// A program of a loaded object, borrowed from it.
#[derive(Debug)]
pub struct Program<'object> {
    pub(super) inner: libbpf_rs::Program<'object>,
    /// Removes attachments that have no link.
    pub(super) supervisor: Option<&'object Arc<Supervisor>>,
    /// Identifies the owner of an interface's xdp program.
    pub(super) occupants: Option<&'object OccupantFinder>,
    /// The map of its timer; none for other kinds.
    pub(super) timer: Option<&'object Arc<Map>>,
}

impl Program<'_> {
    /// Returns the name in the object, not truncated.
    pub fn name(&self) -> String {
        self.inner.name().to_string_lossy().into_owned()
    }

    /// Returns the kind, according to the object.
    pub fn kind(&self) -> ProgramKind {
        ProgramKind::with_timer(self.inner.prog_type() as u32, self.timer.is_some())
    }

    /// Queries the kernel about the program.
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
        let program = self.inner.as_fd().try_clone_to_owned().map_err(|error| {
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
        let program = self.inner.as_fd().try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
            self.kernel("keep", "fcntl(F_DUPFD_CLOEXEC)", errno)
        })?;
        Ok(SkippedRuns::of(program))
    }

    /// Attaches the program to a raw tracepoint, for example `sched_switch`.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`]: ENOENT if there is no tracepoint of this name.
    pub(super) fn attach_raw_tracepoint(&self, target: &str) -> Result<Link, BpfError> {
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

    pub(super) fn kernel(&self, tried: &str, call: &'static str, errno: Errno) -> BpfError {
        BpfError::Kernel { tried: format!("{tried}: program `{}`", self.name()), call, errno }
    }
}
