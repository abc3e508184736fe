//! The callers of helpers that the kernel distinguishes, and sets of them.

use crate::program_kind::{ProgramKind, SectionSupport};

/// A caller of a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A program other than [`Caller::CgroupPacket`].
    Program(ProgramKind),
    /// An `@cgroup` program at `ingress` or `egress`: it sees packets, and no task.
    CgroupPacket,
    /// A method of a struct of the kernel. The kernel may allow the methods of some structs more helpers than
    /// this.
    Method,
}

impl Caller {
    /// Returns the caller that the programs of an ELF section are, such as `fentry/vfs_read`; none for
    /// sections that no script has.
    #[must_use]
    pub fn of_section(section: &str) -> Option<Caller> {
        match SectionSupport::of(section)? {
            SectionSupport { section: "cgroup_skb", .. } => Some(Caller::CgroupPacket),
            SectionSupport { section: "struct_ops", .. } => Some(Caller::Method),
            row => row.kind.map(Caller::Program),
        }
    }

    /// Returns the plural, for messages.
    #[must_use]
    pub fn plural(self) -> String {
        match self {
            Caller::Program(kind) => format!("`@{}` programs", kind.name()),
            Caller::CgroupPacket => "`@cgroup` programs that see packets".into(),
            Caller::Method => "methods of `@struct_ops`".into(),
        }
    }

    fn bit(self) -> u32 {
        match self {
            Caller::Program(kind) => 1 << kind as u32,
            Caller::CgroupPacket => 1 << 30,
            Caller::Method => 1 << 31,
        }
    }
}

/// A set of callers: a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallerSet(u32);

impl CallerSet {
    const fn of(kinds: &[ProgramKind]) -> CallerSet {
        let mut bits = 0;
        let mut at = 0;
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u32;
            at += 1;
        }
        CallerSet(bits)
    }

    pub(crate) const fn and(self, others: CallerSet) -> CallerSet {
        CallerSet(self.0 | others.0)
    }

    pub(crate) fn has(self, caller: Caller) -> bool {
        self.0 & caller.bit() != 0
    }

    #[cfg(test)]
    pub(crate) const fn overlaps(self, others: CallerSet) -> bool {
        self.0 & others.0 != 0
    }
}

pub(crate) const CGROUP_SKB: CallerSet = CallerSet(1 << 30);
pub(crate) const METHODS: CallerSet = CallerSet(1 << 31);
pub(crate) const ANY: CallerSet = CallerSet::of(ProgramKind::ALL).and(CGROUP_SKB).and(METHODS);
pub(crate) const PERF: CallerSet = CallerSet::of(&[ProgramKind::PerfEvent]);
pub(crate) const XDP: CallerSet = CallerSet::of(&[ProgramKind::Xdp]);
pub(crate) const TC: CallerSet = CallerSet::of(&[ProgramKind::Tc]);
pub(crate) const CGROUP: CallerSet = CallerSet::of(&[ProgramKind::Cgroup]);
pub(crate) const TIMER: CallerSet = CallerSet::of(&[ProgramKind::Timer]);
/// Programs that can forward a packet.
pub(crate) const PACKET: CallerSet = XDP.and(TC);
pub(crate) const TC_CGROUP: CallerSet = TC.and(CGROUP_SKB);
/// Programs whose context is a `__sk_buff`.
pub(crate) const SKB: CallerSet = TC_CGROUP.and(CallerSet::of(&[ProgramKind::SocketFilter]));
/// Programs of the network, including those that are so only in part.
pub(crate) const NET: CallerSet = PACKET.and(SKB).and(CGROUP).and(METHODS);
pub(crate) const PROBES: CallerSet =
    CallerSet::of(&[ProgramKind::Probe, ProgramKind::Retprobe, ProgramKind::Uprobe, ProgramKind::Uretprobe]);
pub(crate) const TRACING: CallerSet = PROBES.and(PERF).and(CallerSet::of(&[
    ProgramKind::Tracepoint,
    ProgramKind::RawTracepoint,
    ProgramKind::SyscallEnter,
    ProgramKind::SyscallExit,
    ProgramKind::Lsm,
]));
/// Programs that may run for the task that caused them.
pub(crate) const TASK: CallerSet = TRACING.and(CGROUP).and(CGROUP_SKB).and(METHODS);
pub(crate) const TRACING_METHODS: CallerSet = TRACING.and(METHODS);
pub(crate) const LSM: CallerSet = CallerSet::of(&[ProgramKind::Lsm]);
/// Programs that receive the parameters of the kernel's functions and events unchanged, without the hooks of
/// LSM.
pub(crate) const TRAMPOLINES: CallerSet =
    CallerSet::of(&[ProgramKind::Probe, ProgramKind::Retprobe, ProgramKind::RawTracepoint]);
/// Programs that may have a socket: in a `__sk_buff`, or as the kernel's own struct.
pub(crate) const SOCKETS: CallerSet = SKB.and(CallerSet::of(&[
    ProgramKind::Cgroup,
    ProgramKind::Probe,
    ProgramKind::Retprobe,
    ProgramKind::RawTracepoint,
    ProgramKind::Lsm,
]));
pub(crate) const RAW_TRACEPOINT: CallerSet = CallerSet::of(&[ProgramKind::RawTracepoint]);
/// Programs that may keep values with sockets.
pub(crate) const SOCKET_OWNERS: CallerSet = TC_CGROUP.and(CGROUP).and(TRAMPOLINES).and(LSM).and(METHODS);
/// Programs that need not run for a task.
pub(crate) const NO_TASK: CallerSet = PACKET.and(SKB).and(TIMER).and(METHODS);

// Two bits are for callers that are no kind of their own.
const _: () = assert!(ProgramKind::ALL.len() <= 30);
