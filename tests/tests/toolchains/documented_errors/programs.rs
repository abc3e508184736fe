//! The errors of `programs`.

use nix::errno::Errno;

use super::case::{BPF, Case, Of, case};

/// BPF_ENABLE_STATS. Source: include/uapi/linux/bpf.h, `enum bpf_cmd`, v6.18.
const ENABLE_STATS: Of = Of::First(32);

pub fn cases() -> Vec<Case> {
    let both = ["programs.next", "programs.info"];
    vec![
        case("not-permitted", "CAP_SYS_ADMIN")
            .of(&both)
            .by_nobody("-all,+bpf,+perfmon")
            .errno("EPERM")
            .says("CAP_SYS_ADMIN"),
        case("unsupported", "no run-time statistics")
            .of(&both)
            .refused(BPF, ENABLE_STATS, Errno::EINVAL)
            .errno("EINVAL")
            .says("Linux 5.8"),
        case("kernel", "")
            .of(&both)
            .refused(BPF, ENABLE_STATS, Errno::EIO)
            .errno("EIO")
            .says("cannot count the runs of BPF programs"),
    ]
}
