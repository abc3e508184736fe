//! Headers that come with the compiler: `include "xdp.kh"` finds one of these when no file of that name is in
//! the folder of the script or in an include folder (language reference 9.2).

/// The bundled headers, each with its text. They declare the names that `ks init` of 0.1.1 writes: the
/// kernel's contexts, tables and functions. Layouts come from the kernel (4.7), so the member types here only
/// say how a script sees a member.
///
/// Sources, v6.12: include/uapi/linux/{bpf,pkt_cls}.h, include/net/{tcp,xdp}.h,
/// kernel/bpf/{helpers,cpumask}.c, net/core/xdp.c, kernel/sched/ext.c.
pub const BUNDLED: &[(&str, &str)] = &[
    ("common_kfuncs.kh", include_str!("../headers/common_kfuncs.kh")),
    ("perf_event.kh", include_str!("../headers/perf_event.kh")),
    ("probe.kh", include_str!("../headers/probe.kh")),
    ("sched_ext_ops.kh", include_str!("../headers/sched_ext_ops.kh")),
    ("tc.kh", include_str!("../headers/tc.kh")),
    ("tcp_congestion_ops.kh", include_str!("../headers/tcp_congestion_ops.kh")),
    ("tracepoint.kh", include_str!("../headers/tracepoint.kh")),
    ("xdp.kh", include_str!("../headers/xdp.kh")),
    ("xdp_kfuncs.kh", include_str!("../headers/xdp_kfuncs.kh")),
];

/// Returns the text of the bundled header of this name.
#[must_use]
pub fn bundled(name: &str) -> Option<&'static str> {
    BUNDLED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
