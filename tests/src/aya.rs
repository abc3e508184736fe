//! Objects of rustc for Aya, in the manner of its examples. Their sources are next to them.

/// Returns the bytes of one of the compiler's objects.
macro_rules! object {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../compiler/src/object/tests/objects/aya/", $name, ".o")))
    };
}

/// Name and bytes of each object that the reader accepts.
pub const OBJECTS: [(&str, &[u8]); 9] = [
    object!("xdp_drop"),
    object!("tc_egress"),
    object!("cgroup_skb"),
    object!("cgroups"),
    object!("kprobe_tcp_connect"),
    object!("lsm_nice"),
    object!("sk_msg"),
    object!("tracepoints"),
    object!("uprobe"),
];
