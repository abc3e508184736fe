//! Tracing programs: fentry and fexit, BTF-typed tracepoints, and LSM hooks. The program's section names the
//! target.

use super::super::error::BpfError;
use super::super::link::Link;
use super::super::program::Program;

const OWN: &str = "the target of the program's attribute, or an empty string for it";

impl Program<'_> {
    /// Creates a link to the function, tracepoint or hook that the program was loaded for.
    ///
    /// Source: bpf(2), BPF_LINK_CREATE; kernel/bpf/syscall.c, `bpf_tracing_prog_attach`, v6.12.
    pub(super) fn attach_traced(&self, target: &str) -> Result<Link, BpfError> {
        let own = self.own_target();
        // A script's `sys_NAME` is here the name of the architecture's wrapper, for example `__x64_sys_NAME`.
        let is_own = target.is_empty() || own == target || own.ends_with(&format!("_{target}"));
        if !is_own {
            return Err(self.target(target, OWN));
        }
        self.create_link(0, 0).map_err(|errno| self.not_linked(&format!("`{own}`"), errno))
    }

    /// Returns the target in the program's section: `vfs_read` for `fentry/vfs_read`.
    pub(in super::super) fn own_target(&self) -> String {
        let section = self.inner.section().to_string_lossy();
        section.split_once('/').map(|(_, target)| target.to_owned()).unwrap_or_default()
    }

    /// Returns the raw tracepoint that a target denotes: an empty string is the program's own.
    pub fn raw_tracepoint_target(&self, target: &str) -> String {
        if target.is_empty() { self.own_target() } else { target.to_owned() }
    }

    /// Returns the tracepoint that a target denotes. The program's own tracepoint is meant by an empty
    /// string, by the event without its category, and by the system call of the event.
    pub fn tracepoint_target(&self, target: &str) -> String {
        let own = self.own_target();
        let event = own.split_once('/').map_or("", |(_, event)| event);
        let call = ["sys_enter_", "sys_exit_"].iter().find_map(|prefix| event.strip_prefix(prefix));
        let is_own = target.is_empty() || target == event || call == Some(target);
        if is_own { own } else { target.to_owned() }
    }
}
