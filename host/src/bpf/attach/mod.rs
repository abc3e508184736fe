//! Attaching programs to targets that have links of their own: one file per family of programs.
//!
//! The kernel detaches when the link's descriptor is closed, and so also when this process ends, for whatever
//! reason. Attachments without a descriptor are removed by another process (`clsact`). Not here: programs on
//! perf events, whose descriptors belong to other modules.

mod cgroup;
mod clsact;
mod net;
mod probe;
mod timer;
mod trace;

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use ks_compiler::object::table::ProgramType;
use nix::errno::Errno;

use super::error::BpfError;
use super::link::Link;
use super::program::{LoadedType, Program};
use super::sys;

pub use cgroup::ControlGroup;
pub(super) use clsact::Filter;
pub use clsact::Supervisor;
pub use net::XdpMode;
pub use probe::ProbeAttachPoint;
pub(super) use timer::Running;

impl Program<'_> {
    /// Attaches the program to a target of its kind: a raw tracepoint's name, an interface, or the function,
    /// tracepoint or hook that it was loaded for. A timer has no target and is started. `mode` is that
    /// of xdp programs. Not here: cgroups ([`Program::attach_to_group`]).
    ///
    /// # Errors
    /// [`BpfError::UnsupportedKind`]; [`BpfError::Target`]; [`BpfError::Kernel`].
    pub fn attach(&self, target: &str, mode: XdpMode) -> Result<Link, BpfError> {
        let kind = self.kind();
        let LoadedType::Known(known) = kind else {
            return Err(BpfError::UnsupportedKind { program: self.name(), kind });
        };
        match known {
            ProgramType::Xdp => self.attach_xdp(target, mode),
            ProgramType::SchedCls => self.attach_tc(target),
            // Both have the type of socket filters; the object has the map of a timer.
            ProgramType::SocketFilter if self.timer.is_some() => self.start_timer(target),
            ProgramType::SocketFilter => self.attach_socket_filter(target),
            ProgramType::RawTracepoint => self.attach_raw_tracepoint(target),
            ProgramType::Tracing | ProgramType::Lsm => self.attach_traced(target),
            _ => Err(BpfError::UnsupportedKind { program: self.name(), kind }),
        }
    }

    /// Creates a link to a descriptor or an interface index, with the attach type of the program's section.
    fn create_link(&self, target: i32, flags: u32) -> Result<Link, Errno> {
        sys::create_link(self.inner.as_fd(), target, self.attach_type(), flags).map(Link::new)
    }

    /// Returns the attach type, a number of `enum bpf_attach_type`. tc programs are all loaded with the same
    /// one (`sys::load`), so theirs comes from the section.
    fn attach_type(&self) -> u32 {
        match self.inner.section().as_bytes() {
            b"tcx/ingress" => libbpf_sys::BPF_TCX_INGRESS,
            b"tcx/egress" => libbpf_sys::BPF_TCX_EGRESS,
            _ => self.inner.attach_type() as u32,
        }
    }

    fn target(&self, target: &str, expected: &'static str) -> BpfError {
        BpfError::Target { program: self.name(), target: target.into(), expected }
    }

    fn not_linked(&self, target_text: &str, errno: Errno) -> BpfError {
        self.kernel(&format!("attach to {target_text}"), "bpf(BPF_LINK_CREATE)", errno)
    }
}
