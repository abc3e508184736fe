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
    /// Sees packets before the network stack.
    #[doc(alias = "BPF_PROG_TYPE_XDP")]
    Xdp,
    /// Sees packets at an interface's ingress or egress.
    #[doc(alias = "BPF_PROG_TYPE_SCHED_CLS")]
    SchedCls,
    /// Sees the packets that a socket gets.
    #[doc(alias = "BPF_PROG_TYPE_SOCKET_FILTER")]
    SocketFilter,
    /// Runs again and again. Its type is that of socket filters; the object has the map of its timer.
    Timer,
    /// Sees the packets of a control group's sockets.
    #[doc(alias = "BPF_PROG_TYPE_CGROUP_SKB")]
    CgroupSkb,
    /// Sees the addresses that a control group's sockets use.
    #[doc(alias = "BPF_PROG_TYPE_CGROUP_SOCK_ADDR")]
    CgroupSockAddr,
    /// Runs at a function of the kernel, at its return, or at a tracepoint with typed arguments.
    #[doc(alias = "BPF_PROG_TYPE_TRACING")]
    Tracing,
    /// Runs at a hook of the kernel's security module, and decides.
    #[doc(alias = "BPF_PROG_TYPE_LSM")]
    Lsm,
    /// Runs at an instruction of the kernel or of a user program.
    #[doc(alias = "BPF_PROG_TYPE_KPROBE")]
    Kprobe,
    /// A member of a struct of the kernel that a plugin registers.
    #[doc(alias = "BPF_PROG_TYPE_STRUCT_OPS")]
    StructOps,
    /// Any other, by its number in `enum bpf_prog_type`.
    Other(u32),
}

impl ProgramKind {
    /// Whether attaching a program of this kind to a target takes flags.
    pub fn has_flags(self) -> bool {
        self == ProgramKind::Xdp
    }

    /// Whether the kernel skips it while any program of these kinds runs on the CPU, not only itself.
    ///
    /// Source: kernel/trace/bpf_trace.c, `trace_call_bpf`, v6.18.
    pub(super) fn shares_recursion(self) -> bool {
        matches!(self, ProgramKind::Tracepoint | ProgramKind::Kprobe)
    }

    /// Its number in `enum bpf_prog_type`.
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
    /// The kind of a program of a type, in an object that has the map of its timer or not.
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
    /// Undoes what has no link.
    pub(super) supervisor: Option<&'object Arc<Supervisor>>,
    /// Who tells whose xdp program an interface has.
    pub(super) occupants: Option<&'object OccupantFinder>,
    /// The map of its timer.
    pub(super) timer: Option<&'object Arc<Map>>,
}

impl Program<'_> {
    /// The name in the object, uncut.
    pub fn name(&self) -> String {
        self.inner.name().to_string_lossy().into_owned()
    }

    /// The type, as the object says.
    pub fn kind(&self) -> ProgramKind {
        ProgramKind::with_timer(self.inner.prog_type() as u32, self.timer.is_some())
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

    /// What links the program to an event that somebody else opened and enables: it runs at every overflow, or at every
    /// hit of a tracepoint's event, until the descriptor of the link is closed. The cookie is what the program finds in
    /// `attachment_id`. It holds the program by a descriptor of its own.
    ///
    /// The function's errors: EEXIST if the event has a program already; EINVAL if the program does not suit it or the
    /// kernel is older than 5.15.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] if there is no descriptor left.
    pub fn linker(
        &self,
    ) -> Result<impl Fn(BorrowedFd<'_>, u64) -> Result<OwnedFd, Errno> + Send + Sync + use<>, BpfError> {
        let program = self.inner.as_fd().try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
            self.kernel("keep", "fcntl(F_DUPFD_CLOEXEC)", errno)
        })?;
        Ok(move |event: BorrowedFd<'_>, cookie| sys::link_perf_event(program.as_fd(), event, cookie))
    }

    /// The runs that the kernel skipped, for whoever asks from time to time.
    ///
    /// # Errors
    /// [`BpfError::Kernel`] if there is no descriptor left.
    pub fn skipped_runs(&self) -> Result<SkippedRuns, BpfError> {
        let program = self.inner.as_fd().try_clone_to_owned().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
            self.kernel("keep", "fcntl(F_DUPFD_CLOEXEC)", errno)
        })?;
        Ok(SkippedRuns::of(program))
    }

    /// Attaches the program to the raw tracepoint of this name, for example `sched_switch`.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`]: ENOENT if there is no such tracepoint.
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
