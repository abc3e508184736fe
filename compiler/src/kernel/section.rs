//! The section of a program, by which libbpf knows its type and where it is attached.

use crate::hir::{Function, FunctionKind, ProgramKind, Target};

/// The section of a program. Source: libbpf 1.7, `section_defs`.
pub(super) fn of(function: &Function) -> String {
    let FunctionKind::Program(kind) = function.kind else { return String::new() };
    match (kind, &function.target) {
        (ProgramKind::Xdp, _) => "xdp".into(),
        (ProgramKind::Tc, Target::Egress(true)) => "tcx/egress".into(),
        (ProgramKind::Tc, _) => "tcx/ingress".into(),
        (ProgramKind::SocketFilter, _) => "socket".into(),
        (ProgramKind::Cgroup, Target::Name(hook)) if matches!(hook.as_str(), "ingress" | "egress") => {
            format!("cgroup_skb/{hook}")
        }
        (ProgramKind::Cgroup, Target::Name(hook)) => format!("cgroup/{hook}"),
        _ => "perf_event".into(),
    }
}
