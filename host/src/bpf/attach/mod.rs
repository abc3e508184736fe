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

use ks_compiler::object::table::ProgramType;
use nix::errno::Errno;

use super::error::BpfError;
use super::link::Link;
use super::program::{LoadedType, Program};
use super::sys;

pub use cgroup::{ControlGroup, GroupPath};
pub(super) use clsact::Filter;
pub use clsact::Supervisor;
pub use net::{FilterOrder, Interface, XdpMode};
pub use probe::{FileRules, ProbeAttachPoint, ProbeKind};
pub(super) use timer::Running;

/// The call that creates links.
const LINK_CREATE: &str = "bpf(BPF_LINK_CREATE)";

impl Program<'_> {
    /// Attaches the program to the function, raw tracepoint or hook that its section names, or starts its
    /// timer. Not here: programs on perf events, among them tracepoints and probes.
    ///
    /// # Errors
    /// [`BpfError::UnsupportedKind`]; [`BpfError::NoTarget`]; [`BpfError::NoCookie`]; [`BpfError::Kernel`].
    pub fn attach(&self, cookie: u64) -> Result<Link, BpfError> {
        match self.kind() {
            LoadedType::Known(ProgramType::SocketFilter) if self.timer.is_some() => self.start_timer(cookie),
            LoadedType::Known(ProgramType::RawTracepoint) => {
                self.attach_raw_tracepoint(&self.own_target()?, cookie)
            }
            LoadedType::Known(ProgramType::Tracing | ProgramType::Lsm) => self.attach_traced(cookie),
            // Their sections name no interface and no control group.
            LoadedType::Known(
                ProgramType::Xdp
                | ProgramType::SchedCls
                | ProgramType::SocketFilter
                | ProgramType::CgroupSkb
                | ProgramType::CgroupSockAddr,
            ) => Err(BpfError::NoTarget { program: self.name() }),
            kind => Err(BpfError::UnsupportedKind { program: self.name(), kind }),
        }
    }

    /// Returns the target that the program's section names: `vfs_read` for `fentry/vfs_read`.
    ///
    /// # Errors
    /// [`BpfError::NoTarget`] if it names none.
    pub fn own_target(&self) -> Result<String, BpfError> {
        let section = self.section();
        match section.split_once('/') {
            Some((_, target)) if !target.is_empty() => Ok(target.to_owned()),
            _ => Err(BpfError::NoTarget { program: self.name() }),
        }
    }

    /// Creates a link to a descriptor or an interface index, with the attach type of the program's section.
    fn create_link(&self, target: i32, flags: u32, cookie: u64) -> Result<Link, Errno> {
        sys::create_link(self.descriptor(), target, self.attach_type(), flags, cookie).map(Link::new)
    }

    /// Converts the error of a call that was given a cookie, of a kind that has had one since this kernel.
    pub(super) fn not_linked_with(&self, cookie: u64, since: &'static str, refused: BpfError) -> BpfError {
        match refused.errno() {
            // Older kernels demand that bytes which they do not know are zero.
            Some(Errno::EINVAL) if cookie != 0 => {
                BpfError::NoCookie { program: self.name(), since: Some(since) }
            }
            _ => refused,
        }
    }

    /// Returns the attach type, a number of `enum bpf_attach_type`. tc programs are all loaded with the same
    /// one (`sys::load`), so theirs comes from the section.
    fn attach_type(&self) -> u32 {
        match self.section() {
            "tcx/ingress" => libbpf_sys::BPF_TCX_INGRESS,
            "tcx/egress" => libbpf_sys::BPF_TCX_EGRESS,
            _ => self.loaded.attach_type,
        }
    }

    fn target(&self, target: &str, expected: &'static str) -> BpfError {
        BpfError::Target { program: self.name(), target: target.into(), expected }
    }

    fn not_linked(&self, target_text: &str, errno: Errno) -> BpfError {
        self.kernel(&format!("attach to {target_text}"), LINK_CREATE, errno)
    }

    fn crowded(&self, target_text: &str, most: u32, errno: Errno) -> BpfError {
        let tried = format!("attach to {target_text}: program `{}`", self.name());
        BpfError::Crowded { most, tried, call: LINK_CREATE, errno }
    }
}
