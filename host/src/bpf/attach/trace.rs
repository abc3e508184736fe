//! Tracing programs: fentry and fexit, BTF-typed tracepoints, and LSM hooks. The program's section names the
//! target.

use super::super::error::BpfError;
use super::super::link::Link;
use super::super::program::Program;

/// The kernels that added cookies to these programs. Source: include/uapi/linux/bpf.h, v5.19 and v6.10.
const COOKIE_SINCE: &str = "5.19, or 6.10 for tracepoints";

impl Program<'_> {
    /// Creates a link to the function, tracepoint or hook that the program was loaded for.
    ///
    /// Source: bpf(2), BPF_LINK_CREATE; kernel/bpf/syscall.c, `bpf_tracing_prog_attach`, v6.12.
    pub(super) fn attach_traced(&self, cookie: u64) -> Result<Link, BpfError> {
        let own = self.own_target()?;
        self.create_link(0, 0, cookie).map_err(|errno| {
            self.not_linked_with(cookie, COOKIE_SINCE, self.not_linked(&format!("`{own}`"), errno))
        })
    }
}
