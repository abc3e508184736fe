//! The hooks of `@cgroup`. Source: include/uapi/linux/bpf.h, `enum bpf_attach_type`, v6.12.

/// Hooks whose context is a packet.
pub const PACKET_HOOKS: [&str; 2] = ["ingress", "egress"];

/// Hooks whose context is a socket's address.
pub const ADDRESS_HOOKS: [&str; 12] = [
    "bind4",
    "bind6",
    "connect4",
    "connect6",
    "sendmsg4",
    "sendmsg6",
    "recvmsg4",
    "recvmsg6",
    "getpeername4",
    "getpeername6",
    "getsockname4",
    "getsockname6",
];
