//! The capabilities that the kernel requires besides CAP_BPF, to load and attach programs and to create maps.
//!
//! Source: kernel/bpf/syscall.c, `is_perfmon_prog_type`, `is_net_admin_prog_type`, `map_create` and
//! `bpf_prog_attach_check_attach_type`, v6.18.

use super::{MapKind, ProgramType};

impl ProgramType {
    /// Returns whether the kernel requires CAP_PERFMON.
    #[must_use]
    pub const fn needs_perfmon(self) -> bool {
        use ProgramType as P;
        matches!(
            self,
            P::Kprobe
                | P::Tracepoint
                | P::PerfEvent
                | P::RawTracepoint
                | P::RawTracepointWritable
                | P::Tracing
                | P::Lsm
                | P::StructOps
        )
    }

    /// Returns whether the kernel requires CAP_NET_ADMIN.
    #[must_use]
    pub const fn needs_net_admin(self) -> bool {
        use ProgramType as P;
        matches!(
            self,
            P::SchedCls
                | P::Xdp
                | P::CgroupSkb
                | P::CgroupSock
                | P::SockOps
                | P::SkSkb
                | P::CgroupDevice
                | P::SkMsg
                | P::CgroupSockAddr
                | P::CgroupSysctl
                | P::CgroupSockopt
        )
    }
}

impl MapKind {
    /// Returns whether the kernel requires CAP_NET_ADMIN.
    #[must_use]
    pub const fn needs_net_admin(self) -> bool {
        use MapKind as M;
        matches!(self, M::SockMap | M::SockHash | M::DevMap | M::DevMapHash | M::XskMap)
    }
}
