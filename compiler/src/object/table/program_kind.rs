//! Program sections: libbpf determines the type of a program from the section name.
//!
//! Source: tools/lib/bpf/libbpf.c, `section_defs` and `sec_def_matches`, v1.7; include/uapi/linux/bpf.h,
//! `enum bpf_prog_type` and `enum bpf_attach_type`, v6.18.

use super::target::TargetForm as F;
use super::{Class, Target};
use AttachType as A;
use ProgramType as P;

/// Declares the program types, each with its number in `enum bpf_prog_type` and its name in messages.
macro_rules! program_types {
    ($($(#[$doc:meta])* $Type:ident = $number:literal $name:literal,)*) => {
        /// A program type that a plugin may have.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum ProgramType {
            $($(#[$doc])* $Type = $number,)*
        }

        impl ProgramType {
            /// Returns the type with this number; none for types that no plugin may have.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<ProgramType> {
                match number {
                    $($number => Some(ProgramType::$Type),)*
                    _ => None,
                }
            }

            /// Returns the number in `enum bpf_prog_type`.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Returns the name in messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(ProgramType::$Type => $name,)*
                }
            }
        }
    };
}

program_types! {
    /// `BPF_PROG_TYPE_SOCKET_FILTER`
    SocketFilter = 1 "socket_filter",
    /// `BPF_PROG_TYPE_KPROBE`
    Kprobe = 2 "kprobe",
    /// `BPF_PROG_TYPE_SCHED_CLS`
    SchedCls = 3 "tc",
    /// `BPF_PROG_TYPE_TRACEPOINT`
    Tracepoint = 5 "tracepoint",
    /// `BPF_PROG_TYPE_XDP`
    Xdp = 6 "xdp",
    /// `BPF_PROG_TYPE_PERF_EVENT`
    PerfEvent = 7 "perf_event",
    /// `BPF_PROG_TYPE_CGROUP_SKB`
    CgroupSkb = 8 "cgroup_skb",
    /// `BPF_PROG_TYPE_CGROUP_SOCK`
    CgroupSock = 9 "cgroup_sock",
    /// `BPF_PROG_TYPE_SOCK_OPS`
    SockOps = 13 "sock_ops",
    /// `BPF_PROG_TYPE_SK_SKB`
    SkSkb = 14 "sk_skb",
    /// `BPF_PROG_TYPE_CGROUP_DEVICE`
    CgroupDevice = 15 "cgroup_device",
    /// `BPF_PROG_TYPE_SK_MSG`
    SkMsg = 16 "sk_msg",
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`
    RawTracepoint = 17 "raw_tracepoint",
    /// `BPF_PROG_TYPE_CGROUP_SOCK_ADDR`
    CgroupSockAddr = 18 "cgroup_sock_addr",
    /// `BPF_PROG_TYPE_CGROUP_SYSCTL`
    CgroupSysctl = 23 "cgroup_sysctl",
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT_WRITABLE`
    RawTracepointWritable = 24 "raw_tracepoint_writable",
    /// `BPF_PROG_TYPE_CGROUP_SOCKOPT`
    CgroupSockopt = 25 "cgroup_sockopt",
    /// `BPF_PROG_TYPE_TRACING`
    Tracing = 26 "tracing",
    /// `BPF_PROG_TYPE_STRUCT_OPS`
    StructOps = 27 "struct_ops",
    /// `BPF_PROG_TYPE_LSM`
    Lsm = 29 "lsm",
}

/// Expected attach type, for programs whose load requires one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum AttachType {
    /// `BPF_CGROUP_INET_INGRESS`
    CgroupInetIngress = 0,
    /// `BPF_CGROUP_INET_EGRESS`
    CgroupInetEgress = 1,
    /// `BPF_CGROUP_INET_SOCK_CREATE`
    CgroupInetSockCreate = 2,
    /// `BPF_CGROUP_SOCK_OPS`
    CgroupSockOps = 3,
    /// `BPF_SK_SKB_STREAM_PARSER`
    SkSkbStreamParser = 4,
    /// `BPF_SK_SKB_STREAM_VERDICT`
    SkSkbStreamVerdict = 5,
    /// `BPF_CGROUP_DEVICE`
    CgroupDevice = 6,
    /// `BPF_SK_MSG_VERDICT`
    SkMsgVerdict = 7,
    /// `BPF_CGROUP_INET4_BIND`
    CgroupInet4Bind = 8,
    /// `BPF_CGROUP_INET6_BIND`
    CgroupInet6Bind = 9,
    /// `BPF_CGROUP_INET4_CONNECT`
    CgroupInet4Connect = 10,
    /// `BPF_CGROUP_INET6_CONNECT`
    CgroupInet6Connect = 11,
    /// `BPF_CGROUP_INET4_POST_BIND`
    CgroupInet4PostBind = 12,
    /// `BPF_CGROUP_INET6_POST_BIND`
    CgroupInet6PostBind = 13,
    /// `BPF_CGROUP_UDP4_SENDMSG`
    CgroupUdp4Sendmsg = 14,
    /// `BPF_CGROUP_UDP6_SENDMSG`
    CgroupUdp6Sendmsg = 15,
    /// `BPF_CGROUP_SYSCTL`
    CgroupSysctl = 18,
    /// `BPF_CGROUP_UDP4_RECVMSG`
    CgroupUdp4Recvmsg = 19,
    /// `BPF_CGROUP_UDP6_RECVMSG`
    CgroupUdp6Recvmsg = 20,
    /// `BPF_CGROUP_GETSOCKOPT`
    CgroupGetsockopt = 21,
    /// `BPF_CGROUP_SETSOCKOPT`
    CgroupSetsockopt = 22,
    /// `BPF_TRACE_RAW_TP`
    TraceRawTp = 23,
    /// `BPF_TRACE_FENTRY`
    TraceFentry = 24,
    /// `BPF_TRACE_FEXIT`
    TraceFexit = 25,
    /// `BPF_MODIFY_RETURN`
    ModifyReturn = 26,
    /// `BPF_LSM_MAC`
    LsmMac = 27,
    /// `BPF_TRACE_ITER`
    TraceIter = 28,
    /// `BPF_CGROUP_INET4_GETPEERNAME`
    CgroupInet4Getpeername = 29,
    /// `BPF_CGROUP_INET6_GETPEERNAME`
    CgroupInet6Getpeername = 30,
    /// `BPF_CGROUP_INET4_GETSOCKNAME`
    CgroupInet4Getsockname = 31,
    /// `BPF_CGROUP_INET6_GETSOCKNAME`
    CgroupInet6Getsockname = 32,
    /// `BPF_XDP_DEVMAP`
    XdpDevmap = 33,
    /// `BPF_CGROUP_INET_SOCK_RELEASE`
    CgroupInetSockRelease = 34,
    /// `BPF_XDP_CPUMAP`
    XdpCpumap = 35,
    /// `BPF_XDP`
    Xdp = 37,
    /// `BPF_SK_SKB_VERDICT`
    SkSkbVerdict = 38,
    /// `BPF_TRACE_KPROBE_MULTI`
    TraceKprobeMulti = 42,
    /// `BPF_LSM_CGROUP`
    LsmCgroup = 43,
    /// `BPF_TCX_INGRESS`
    TcxIngress = 46,
    /// `BPF_TCX_EGRESS`
    TcxEgress = 47,
    /// `BPF_TRACE_UPROBE_MULTI`
    TraceUprobeMulti = 48,
    /// `BPF_CGROUP_UNIX_CONNECT`
    CgroupUnixConnect = 49,
    /// `BPF_CGROUP_UNIX_SENDMSG`
    CgroupUnixSendmsg = 50,
    /// `BPF_CGROUP_UNIX_RECVMSG`
    CgroupUnixRecvmsg = 51,
    /// `BPF_CGROUP_UNIX_GETPEERNAME`
    CgroupUnixGetpeername = 52,
    /// `BPF_CGROUP_UNIX_GETSOCKNAME`
    CgroupUnixGetsockname = 53,
    /// `BPF_TRACE_KPROBE_SESSION`
    TraceKprobeSession = 56,
    /// `BPF_TRACE_UPROBE_SESSION`
    TraceUprobeSession = 57,
    /// `BPF_TRACE_FSESSION`
    TraceFsession = 58,
}

impl AttachType {
    /// Returns the number in `enum bpf_attach_type`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// A kind of program section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramRow {
    /// Section name, or its part before the slash and the target.
    pub section: &'static str,
    /// Type of the section's programs.
    pub program: ProgramType,
    /// Expected attach type; none if the load needs none.
    pub attach: Option<AttachType>,
    /// Form of the target after the slash.
    pub target: F,
    /// Whether the programs may sleep.
    pub sleeps: bool,
    /// Class that a policy must allow.
    pub class: Class,
}

const fn row(section: &'static str, program: P, attach: Option<A>, target: F, class: Class) -> ProgramRow {
    ProgramRow { section, program, attach, target, sleeps: false, class }
}

const fn sleeping(row: ProgramRow) -> ProgramRow {
    ProgramRow { sleeps: true, ..row }
}

/// Section kinds that a plugin may have.
///
/// Kinds of libbpf that are rejected, because the contract cannot attach them or they act for other programs:
/// `action`, `flow_dissector`, `freplace`, `lirc_mode2`, `lwt_*`, `netfilter`, `netkit/*`, `sk_lookup`,
/// `sk_reuseport`, `syscall`.
#[rustfmt::skip]
const ROWS: &[ProgramRow] = &[
    row("socket", P::SocketFilter, None, F::Nothing, Class::SocketFilter),
    row("kprobe", P::Kprobe, None, F::Function, Class::Kprobe),
    row("uprobe", P::Kprobe, None, F::Binary, Class::Uprobe),
    sleeping(row("uprobe.s", P::Kprobe, None, F::Binary, Class::Uprobe)),
    row("kretprobe", P::Kprobe, None, F::Function, Class::Kprobe),
    row("uretprobe", P::Kprobe, None, F::Binary, Class::Uprobe),
    sleeping(row("uretprobe.s", P::Kprobe, None, F::Binary, Class::Uprobe)),
    row("kprobe.multi", P::Kprobe, Some(A::TraceKprobeMulti), F::Functions, Class::Other),
    row("kretprobe.multi", P::Kprobe, Some(A::TraceKprobeMulti), F::Functions, Class::Other),
    row("kprobe.session", P::Kprobe, Some(A::TraceKprobeSession), F::Functions, Class::Other),
    row("uprobe.multi", P::Kprobe, Some(A::TraceUprobeMulti), F::Binary, Class::Other),
    row("uretprobe.multi", P::Kprobe, Some(A::TraceUprobeMulti), F::Binary, Class::Other),
    row("uprobe.session", P::Kprobe, Some(A::TraceUprobeSession), F::Binary, Class::Other),
    sleeping(row("uprobe.multi.s", P::Kprobe, Some(A::TraceUprobeMulti), F::Binary, Class::Other)),
    sleeping(row("uretprobe.multi.s", P::Kprobe, Some(A::TraceUprobeMulti), F::Binary, Class::Other)),
    sleeping(row("uprobe.session.s", P::Kprobe, Some(A::TraceUprobeSession), F::Binary, Class::Other)),
    row("ksyscall", P::Kprobe, None, F::Name, Class::Other),
    row("kretsyscall", P::Kprobe, None, F::Name, Class::Other),
    row("usdt", P::Kprobe, None, F::Usdt, Class::Other),
    sleeping(row("usdt.s", P::Kprobe, None, F::Usdt, Class::Other)),
    row("tc/ingress", P::SchedCls, Some(A::TcxIngress), F::Nothing, Class::Tc),
    row("tc/egress", P::SchedCls, Some(A::TcxEgress), F::Nothing, Class::Tc),
    row("tcx/ingress", P::SchedCls, Some(A::TcxIngress), F::Nothing, Class::Tc),
    row("tcx/egress", P::SchedCls, Some(A::TcxEgress), F::Nothing, Class::Tc),
    row("tc", P::SchedCls, None, F::Nothing, Class::Tc),
    row("classifier", P::SchedCls, None, F::Nothing, Class::Tc),
    row("tracepoint", P::Tracepoint, None, F::Event, Class::Tracepoint),
    row("tp", P::Tracepoint, None, F::Event, Class::Tracepoint),
    row("raw_tracepoint", P::RawTracepoint, None, F::Name, Class::RawTracepoint),
    row("raw_tp", P::RawTracepoint, None, F::Name, Class::RawTracepoint),
    row("raw_tracepoint.w", P::RawTracepointWritable, None, F::Name, Class::Other),
    row("raw_tp.w", P::RawTracepointWritable, None, F::Name, Class::Other),
    row("tp_btf", P::Tracing, Some(A::TraceRawTp), F::Name, Class::Tracing),
    row("fentry", P::Tracing, Some(A::TraceFentry), F::Function, Class::Tracing),
    row("fmod_ret", P::Tracing, Some(A::ModifyReturn), F::Function, Class::ModifyReturn),
    row("fexit", P::Tracing, Some(A::TraceFexit), F::Function, Class::Tracing),
    sleeping(row("fentry.s", P::Tracing, Some(A::TraceFentry), F::Function, Class::Tracing)),
    sleeping(row("fmod_ret.s", P::Tracing, Some(A::ModifyReturn), F::Function, Class::ModifyReturn)),
    sleeping(row("fexit.s", P::Tracing, Some(A::TraceFexit), F::Function, Class::Tracing)),
    row("fsession", P::Tracing, Some(A::TraceFsession), F::Function, Class::Other),
    sleeping(row("fsession.s", P::Tracing, Some(A::TraceFsession), F::Function, Class::Other)),
    row("lsm", P::Lsm, Some(A::LsmMac), F::Name, Class::Lsm),
    sleeping(row("lsm.s", P::Lsm, Some(A::LsmMac), F::Name, Class::Lsm)),
    row("lsm_cgroup", P::Lsm, Some(A::LsmCgroup), F::Name, Class::Lsm),
    row("iter", P::Tracing, Some(A::TraceIter), F::Name, Class::Other),
    sleeping(row("iter.s", P::Tracing, Some(A::TraceIter), F::Name, Class::Other)),
    row("xdp.frags/devmap", P::Xdp, Some(A::XdpDevmap), F::Nothing, Class::Xdp),
    row("xdp/devmap", P::Xdp, Some(A::XdpDevmap), F::Nothing, Class::Xdp),
    row("xdp.frags/cpumap", P::Xdp, Some(A::XdpCpumap), F::Nothing, Class::Xdp),
    row("xdp/cpumap", P::Xdp, Some(A::XdpCpumap), F::Nothing, Class::Xdp),
    row("xdp.frags", P::Xdp, Some(A::Xdp), F::Nothing, Class::Xdp),
    row("xdp", P::Xdp, Some(A::Xdp), F::Nothing, Class::Xdp),
    row("perf_event", P::PerfEvent, None, F::Nothing, Class::PerfEvent),
    row("sockops", P::SockOps, Some(A::CgroupSockOps), F::Nothing, Class::Other),
    row("sk_skb/stream_parser", P::SkSkb, Some(A::SkSkbStreamParser), F::Nothing, Class::Other),
    row("sk_skb/stream_verdict", P::SkSkb, Some(A::SkSkbStreamVerdict), F::Nothing, Class::Other),
    row("sk_skb/verdict", P::SkSkb, Some(A::SkSkbVerdict), F::Nothing, Class::Other),
    row("sk_skb", P::SkSkb, None, F::Nothing, Class::Other),
    row("sk_msg", P::SkMsg, Some(A::SkMsgVerdict), F::Nothing, Class::Other),
    row("cgroup_skb/ingress", P::CgroupSkb, Some(A::CgroupInetIngress), F::Nothing, Class::Cgroup),
    row("cgroup_skb/egress", P::CgroupSkb, Some(A::CgroupInetEgress), F::Nothing, Class::Cgroup),
    row("cgroup/skb", P::CgroupSkb, None, F::Nothing, Class::Cgroup),
    row("cgroup/sock_create", P::CgroupSock, Some(A::CgroupInetSockCreate), F::Nothing, Class::Other),
    row("cgroup/sock_release", P::CgroupSock, Some(A::CgroupInetSockRelease), F::Nothing, Class::Other),
    row("cgroup/sock", P::CgroupSock, Some(A::CgroupInetSockCreate), F::Nothing, Class::Other),
    row("cgroup/post_bind4", P::CgroupSock, Some(A::CgroupInet4PostBind), F::Nothing, Class::Other),
    row("cgroup/post_bind6", P::CgroupSock, Some(A::CgroupInet6PostBind), F::Nothing, Class::Other),
    row("cgroup/bind4", P::CgroupSockAddr, Some(A::CgroupInet4Bind), F::Nothing, Class::Cgroup),
    row("cgroup/bind6", P::CgroupSockAddr, Some(A::CgroupInet6Bind), F::Nothing, Class::Cgroup),
    row("cgroup/connect4", P::CgroupSockAddr, Some(A::CgroupInet4Connect), F::Nothing, Class::Cgroup),
    row("cgroup/connect6", P::CgroupSockAddr, Some(A::CgroupInet6Connect), F::Nothing, Class::Cgroup),
    row("cgroup/connect_unix", P::CgroupSockAddr, Some(A::CgroupUnixConnect), F::Nothing, Class::Cgroup),
    row("cgroup/sendmsg4", P::CgroupSockAddr, Some(A::CgroupUdp4Sendmsg), F::Nothing, Class::Cgroup),
    row("cgroup/sendmsg6", P::CgroupSockAddr, Some(A::CgroupUdp6Sendmsg), F::Nothing, Class::Cgroup),
    row("cgroup/sendmsg_unix", P::CgroupSockAddr, Some(A::CgroupUnixSendmsg), F::Nothing, Class::Cgroup),
    row("cgroup/recvmsg4", P::CgroupSockAddr, Some(A::CgroupUdp4Recvmsg), F::Nothing, Class::Cgroup),
    row("cgroup/recvmsg6", P::CgroupSockAddr, Some(A::CgroupUdp6Recvmsg), F::Nothing, Class::Cgroup),
    row("cgroup/recvmsg_unix", P::CgroupSockAddr, Some(A::CgroupUnixRecvmsg), F::Nothing, Class::Cgroup),
    row("cgroup/getpeername4", P::CgroupSockAddr, Some(A::CgroupInet4Getpeername), F::Nothing, Class::Cgroup),
    row("cgroup/getpeername6", P::CgroupSockAddr, Some(A::CgroupInet6Getpeername), F::Nothing, Class::Cgroup),
    row("cgroup/getpeername_unix", P::CgroupSockAddr, Some(A::CgroupUnixGetpeername), F::Nothing, Class::Cgroup),
    row("cgroup/getsockname4", P::CgroupSockAddr, Some(A::CgroupInet4Getsockname), F::Nothing, Class::Cgroup),
    row("cgroup/getsockname6", P::CgroupSockAddr, Some(A::CgroupInet6Getsockname), F::Nothing, Class::Cgroup),
    row("cgroup/getsockname_unix", P::CgroupSockAddr, Some(A::CgroupUnixGetsockname), F::Nothing, Class::Cgroup),
    row("cgroup/sysctl", P::CgroupSysctl, Some(A::CgroupSysctl), F::Nothing, Class::Other),
    row("cgroup/getsockopt", P::CgroupSockopt, Some(A::CgroupGetsockopt), F::Nothing, Class::Other),
    row("cgroup/setsockopt", P::CgroupSockopt, Some(A::CgroupSetsockopt), F::Nothing, Class::Other),
    row("cgroup/dev", P::CgroupDevice, Some(A::CgroupDevice), F::Nothing, Class::Other),
    row("struct_ops", P::StructOps, None, F::Name, Class::StructOps),
    sleeping(row("struct_ops.s", P::StructOps, None, F::Name, Class::StructOps)),
];
/// Returns the kind and target of a section name, without the `?` of programs that are not loaded by default;
/// none if plugins may not have such a section.
///
/// The longest kind matches: `xdp/devmap` is not `xdp` with a target.
#[must_use]
pub fn program_row(name: &str) -> Option<(&'static ProgramRow, Target)> {
    let after = |row: &ProgramRow| match name.strip_prefix(row.section)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    };
    let rows = ROWS.iter().filter_map(|row| Some((row, after(row)?)));
    let (row, target) = rows.max_by_key(|(row, _)| row.section.len())?;
    Some((row, Target::parse(row.target, target)?))
}
