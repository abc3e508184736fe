//! Members of the context structs that are predeclared without a header: the meaning of `ctx->name` for
//! programs on packets and sockets, and the records of the tracepoints with a fixed layout.
//!
//! The layouts are stable interfaces of the kernel (UAPI, or never changed): a load at the offset given here
//! needs no relocation. Registers and the context of perf programs are in [`super::context`].
//!
//! Sources, v6.12: include/uapi/linux/bpf.h (`struct xdp_md`, `struct __sk_buff`, `struct bpf_sock_addr`),
//! net/core/filter.c (`*_is_valid_access`), include/linux/trace_events.h (`struct trace_entry`),
//! include/trace/events/{syscalls,sched}.h.

/// The language's type of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberType {
    /// The unsigned 8-bit type `u8`.
    U8,
    /// The unsigned 16-bit type `u16`.
    U16,
    /// The unsigned 32-bit type `u32`.
    U32,
    /// The unsigned 64-bit type `u64`.
    U64,
    /// The signed 32-bit type `i32`.
    I32,
    /// The signed 64-bit type `i64`.
    I64,
    /// `*u8`: the first byte of the packet.
    PacketStart,
    /// `*u8`: the byte after the packet.
    PacketEnd,
    /// `*u8`: the first byte of the metadata before the packet.
    PacketMeta,
    /// `*NAME`: a kernel struct of this name. Its member is 8 bytes and loaded whole.
    Pointer(&'static str),
    /// An array `u32[n]`, with its length.
    ArrayU32(u32),
    /// An array `u64[n]`, with its length.
    ArrayU64(u32),
    /// An array `char[n]`, with its length.
    Chars(u32),
    /// A struct by value, which is another of [`STRUCTS`].
    Struct(&'static str),
}

impl MemberType {
    /// Whether the member is the start or end of a packet, so that a pointer derived from it has packet
    /// provenance (3.7, 4.3).
    #[must_use]
    pub const fn is_packet(self) -> bool {
        matches!(self, Self::PacketStart | Self::PacketEnd | Self::PacketMeta)
    }
}

/// The permitted uses of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only; an assignment is `KS0412`.
    Read,
    /// Read it, and assign to it.
    ReadWrite,
    /// None: the kernel rejects a program of this kind that reads it, for this reason (`KS0304`).
    Refused(&'static str),
}

/// A member of a context struct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextField {
    /// The name of the member.
    pub name: &'static str,
    /// The type in the language.
    pub ty: MemberType,
    /// Byte offset from the start of the struct.
    pub offset: u32,
    /// Size in bytes in the kernel's struct. A packet pointer has 4: the kernel replaces it by the pointer
    /// when it loads the program.
    pub size: u32,
    /// The uses that [`ContextStruct`]'s kind of program may make of it.
    pub access: Access,
}

/// A struct that is predeclared without a header.
#[derive(Clone, Copy, Debug)]
pub struct ContextStruct {
    /// The name of the struct.
    pub name: &'static str,
    /// The size of the struct in bytes.
    pub size: u32,
    /// The members in order of their offset.
    pub fields: &'static [ContextField],
}

impl ContextStruct {
    /// Returns the member of this name; none if there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static ContextField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

const fn field(name: &'static str, ty: MemberType, offset: u32) -> ContextField {
    let size = match ty {
        MemberType::U8 => 1,
        MemberType::U16 => 2,
        MemberType::U32
        | MemberType::I32
        | MemberType::PacketStart
        | MemberType::PacketEnd
        | MemberType::PacketMeta => 4,
        MemberType::U64 | MemberType::I64 | MemberType::Pointer(_) | MemberType::Struct(_) => 8,
        MemberType::ArrayU32(len) => 4 * len,
        MemberType::ArrayU64(len) => 8 * len,
        MemberType::Chars(len) => len,
    };
    ContextField { name, ty, offset, size, access: Access::Read }
}

const fn number(name: &'static str, offset: u32) -> ContextField {
    field(name, MemberType::U32, offset)
}

const fn writable(field: ContextField) -> ContextField {
    ContextField { access: Access::ReadWrite, ..field }
}

const fn refused(field: ContextField, reason: &'static str) -> ContextField {
    ContextField { access: Access::Refused(reason), ..field }
}

/// The context of `@xdp` (4.2).
///
/// `egress_ifindex` is readable only in a program that a device map runs (`expected_attach_type`
/// `BPF_XDP_DEVMAP`): the kernel refuses any other program that loads it (net/core/filter.c,
/// `xdp_is_valid_access`).
pub const XDP_MD: ContextStruct = ContextStruct {
    name: "xdp_md",
    size: 24,
    fields: &[
        field("data", MemberType::PacketStart, 0),
        field("data_end", MemberType::PacketEnd, 4),
        field("data_meta", MemberType::PacketMeta, 8),
        number("ingress_ifindex", 12),
        number("rx_queue_index", 16),
        number("egress_ifindex", 20),
    ],
};

const SOCKET_ONLY: &str = "the kernel lets only programs on sockets read it";
const DISSECTOR_ONLY: &str = "the kernel lets only flow dissector programs read it";

/// The context of `@tc` (4.4), with the accesses that `tc_cls_act_is_valid_access` allows. For the other
/// kinds of programs on packets see [`skb_access`].
pub const SK_BUFF: ContextStruct = ContextStruct {
    name: "__sk_buff",
    size: 192,
    fields: &[
        number("len", 0),
        number("pkt_type", 4),
        writable(number("mark", 8)),
        writable(number("queue_mapping", 12)),
        number("protocol", 16),
        number("vlan_present", 20),
        number("vlan_tci", 24),
        number("vlan_proto", 28),
        writable(number("priority", 32)),
        number("ingress_ifindex", 36),
        number("ifindex", 40),
        writable(number("tc_index", 44)),
        writable(field("cb", MemberType::ArrayU32(5), 48)),
        number("hash", 68),
        writable(number("tc_classid", 72)),
        field("data", MemberType::PacketStart, 76),
        field("data_end", MemberType::PacketEnd, 80),
        number("napi_id", 84),
        refused(number("family", 88), SOCKET_ONLY),
        refused(number("remote_ip4", 92), SOCKET_ONLY),
        refused(number("local_ip4", 96), SOCKET_ONLY),
        refused(field("remote_ip6", MemberType::ArrayU32(4), 100), SOCKET_ONLY),
        refused(field("local_ip6", MemberType::ArrayU32(4), 116), SOCKET_ONLY),
        refused(number("remote_port", 132), SOCKET_ONLY),
        refused(number("local_port", 136), SOCKET_ONLY),
        field("data_meta", MemberType::PacketMeta, 140),
        refused(field("flow_keys", MemberType::Pointer("bpf_flow_keys"), 144), DISSECTOR_ONLY),
        writable(field("tstamp", MemberType::U64, 152)),
        number("wire_len", 160),
        number("gso_segs", 164),
        field("sk", MemberType::Pointer("bpf_sock"), 168),
        number("gso_size", 176),
        field("tstamp_type", MemberType::U8, 180),
        field("hwtstamp", MemberType::U64, 184),
    ],
};

/// A kind of program whose context is [`SK_BUFF`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SkbProgram {
    /// A program with `@tc` (4.4).
    Tc,
    /// A program with `@cgroup("ingress")` or `@cgroup("egress")` (11.8).
    Cgroup,
    /// A program with `@socket_filter` (11.8).
    SocketFilter,
}

/// Returns the uses that a kind of program may make of a member of `__sk_buff`; `None` if there is no such
/// member.
///
/// Source: net/core/filter.c, `tc_cls_act_is_valid_access`, `cg_skb_is_valid_access`,
/// `sk_filter_is_valid_access` and `bpf_skb_is_valid_access`, which the three end in (v6.12).
#[must_use]
pub fn skb_access(program: SkbProgram, name: &str) -> Option<Access> {
    const TC_ONLY: &str = "the kernel lets only tc programs read it";
    const NOT_FILTER: &str = "the kernel does not let socket filters read it";
    let tc = SK_BUFF.field(name)?.access;
    let sockets = matches!(
        name,
        "family" | "remote_ip4" | "local_ip4" | "remote_ip6" | "local_ip6" | "remote_port" | "local_port"
    );
    Some(match program {
        SkbProgram::Tc => tc,
        _ if name == "flow_keys" => tc,
        SkbProgram::Cgroup => match name {
            "data_meta" | "tc_classid" | "wire_len" | "tstamp_type" => Access::Refused(TC_ONLY),
            "mark" | "priority" | "cb" | "tstamp" => Access::ReadWrite,
            _ => Access::Read,
        },
        SkbProgram::SocketFilter => match name {
            "data_meta" | "tc_classid" | "wire_len" | "tstamp_type" => Access::Refused(TC_ONLY),
            "data" | "data_end" | "tstamp" | "hwtstamp" => Access::Refused(NOT_FILTER),
            "cb" => Access::ReadWrite,
            _ if sockets => Access::Refused(NOT_FILTER),
            _ => Access::Read,
        },
    })
}

/// The context of `@cgroup("connect4")` and the other hooks on socket addresses (11.8).
///
/// Which of the addresses may be written depends on the hook as well: those ending in `4` have the `ip4`
/// members, those ending in `6` the `ip6` members, and `msg_src_*` belongs to `sendmsg4` and `sendmsg6`
/// (`sock_addr_is_valid_access`).
pub const SOCK_ADDR: ContextStruct = ContextStruct {
    name: "bpf_sock_addr",
    size: 72,
    fields: &[
        number("user_family", 0),
        writable(number("user_ip4", 4)),
        writable(field("user_ip6", MemberType::ArrayU32(4), 8)),
        writable(number("user_port", 24)),
        number("family", 28),
        number("type", 32),
        number("protocol", 36),
        writable(number("msg_src_ip4", 40)),
        writable(field("msg_src_ip6", MemberType::ArrayU32(4), 44)),
        field("sk", MemberType::Pointer("bpf_sock"), 64),
    ],
};

/// Returns the uses that a program on a hook of socket addresses may make of a member of `bpf_sock_addr`;
/// `None` if there is no such member.
///
/// Source: net/core/filter.c, `sock_addr_is_valid_access`, v6.12.
#[must_use]
pub fn sock_addr_access(hook: &str, name: &str) -> Option<Access> {
    const OTHER_FAMILY: &str = "the kernel shows it to programs at hooks of the other address family only";
    const SENDING: &str = "the kernel shows it to programs at `sendmsg4` and `sendmsg6` only";
    let access = SOCK_ADDR.field(name)?.access;
    Some(match name {
        "user_ip4" if !hook.ends_with('4') => Access::Refused(OTHER_FAMILY),
        "user_ip6" if !hook.ends_with('6') => Access::Refused(OTHER_FAMILY),
        "msg_src_ip4" if hook != "sendmsg4" => Access::Refused(SENDING),
        "msg_src_ip6" if hook != "sendmsg6" => Access::Refused(SENDING),
        _ => access,
    })
}

/// The first member, `ent`, of every tracepoint's record (4.6).
pub const TRACE_ENTRY: ContextStruct = ContextStruct {
    name: "trace_entry",
    size: 8,
    fields: &[
        field("type", MemberType::U16, 0),
        field("flags", MemberType::U8, 2),
        field("preempt_count", MemberType::U8, 3),
        field("pid", MemberType::I32, 4),
    ],
};

const ENT: ContextField = field("ent", MemberType::Struct("trace_entry"), 0);

/// The record of `syscalls/sys_enter_*` (4.6), used without BTF.
pub const SYS_ENTER: ContextStruct = ContextStruct {
    name: "trace_event_raw_sys_enter",
    size: 64,
    fields: &[ENT, field("id", MemberType::I64, 8), field("args", MemberType::ArrayU64(6), 16)],
};

/// The record of `syscalls/sys_exit_*` (4.6), used without BTF.
pub const SYS_EXIT: ContextStruct = ContextStruct {
    name: "trace_event_raw_sys_exit",
    size: 24,
    fields: &[ENT, field("id", MemberType::I64, 8), field("ret", MemberType::I64, 16)],
};

/// The record of `sched/sched_switch` (4.6), used without BTF.
pub const SCHED_SWITCH: ContextStruct = ContextStruct {
    name: "trace_event_raw_sched_switch",
    size: 64,
    fields: &[
        ENT,
        field("prev_comm", MemberType::Chars(16), 8),
        field("prev_pid", MemberType::I32, 24),
        field("prev_prio", MemberType::I32, 28),
        field("prev_state", MemberType::I64, 32),
        field("next_comm", MemberType::Chars(16), 40),
        field("next_pid", MemberType::I32, 56),
        field("next_prio", MemberType::I32, 60),
    ],
};

/// All structs of this file.
pub const STRUCTS: &[ContextStruct] =
    &[XDP_MD, SK_BUFF, SOCK_ADDR, TRACE_ENTRY, SYS_ENTER, SYS_EXIT, SCHED_SWITCH];

/// Returns the struct of this name; none if it is not in this file.
#[must_use]
pub fn find(name: &str) -> Option<&'static ContextStruct> {
    STRUCTS.iter().find(|found| found.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_each_other_and_fit() {
        for found in STRUCTS {
            let mut end = 0;
            for field in found.fields {
                assert!(field.offset >= end, "{}.{} overlaps the one before it", found.name, field.name);
                // A gap may only result from alignment, so the test finds a wrong offset or size.
                assert!(field.offset - end < 8, "{}.{} leaves a gap", found.name, field.name);
                end = field.offset + field.size;
            }
            assert!(end <= found.size && found.size - end < 8, "{} ends at {end}", found.name);
        }
    }

    #[test]
    fn kinds_of_programs_differ_in_what_they_may_touch() {
        use SkbProgram::{Cgroup, SocketFilter, Tc};
        let table = [
            ("mark", [Some(Access::ReadWrite), Some(Access::ReadWrite), Some(Access::Read)]),
            ("len", [Some(Access::Read), Some(Access::Read), Some(Access::Read)]),
            ("nothing", [None, None, None]),
        ];
        for (name, expected) in table {
            assert_eq!([Tc, Cgroup, SocketFilter].map(|kind| skb_access(kind, name)), expected, "{name}");
        }
        assert!(matches!(skb_access(Tc, "family"), Some(Access::Refused(_))));
        assert_eq!(skb_access(Cgroup, "family"), Some(Access::Read));
        assert!(matches!(skb_access(SocketFilter, "data"), Some(Access::Refused(_))));
    }
}
