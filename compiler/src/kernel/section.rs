//! ELF sections of programs, from which libbpf derives the program type and attach point.

use ks_wit::section::Arch;

use crate::hir::{FunctionKind, HirFunction, ProgramKind, Target};

/// The section of a program. Source: libbpf 1.7, `section_defs`.
pub(super) fn of(function: &HirFunction, arch: Arch) -> String {
    let kind = match function.kind {
        FunctionKind::Program(kind) => kind,
        // libbpf ignores the part after the slash.
        FunctionKind::Method(_) => return format!("struct_ops/{}", method_name(function)),
        _ => return String::new(),
    };
    match (kind, &function.target) {
        (ProgramKind::Tc, Target::Egress(true)) => "tcx/egress".into(),
        (ProgramKind::Tc, _) => "tcx/ingress".into(),
        (ProgramKind::Cgroup, Target::Name(hook)) if matches!(hook.as_str(), "ingress" | "egress") => {
            format!("cgroup_skb/{hook}")
        }
        (ProgramKind::Cgroup, Target::Name(hook)) => format!("cgroup/{hook}"),
        (ProgramKind::Probe, Target::Function { name, offset: Some(offset) }) => {
            format!("kprobe/{}+{offset}", symbol(function, name, arch))
        }
        (ProgramKind::Probe, Target::Function { name, offset: None }) => {
            format!("fentry/{}", symbol(function, name, arch))
        }
        (ProgramKind::Retprobe, Target::Function { name, .. }) => {
            format!("fexit/{}", symbol(function, name, arch))
        }
        (ProgramKind::Tracepoint, Target::Tracepoint { category, event }) => {
            format!("tracepoint/{category}/{event}")
        }
        (ProgramKind::RawTracepoint, Target::Name(event)) => format!("tp_btf/{event}"),
        (ProgramKind::Lsm, Target::Name(hook)) => format!("lsm/{hook}"),
        (ProgramKind::SyscallEnter, Target::Name(call)) => format!("tracepoint/syscalls/sys_enter_{call}"),
        (ProgramKind::SyscallExit, Target::Name(call)) => format!("tracepoint/syscalls/sys_exit_{call}"),
        (ProgramKind::Uprobe, target) => format!("uprobe/{}", attach_point(target)),
        (ProgramKind::Uretprobe, target) => format!("uretprobe/{}", attach_point(target)),
        (kind, _) => kind.row().section.into(),
    }
}

/// The group of programs that one program array may hold. The kernel requires them to be of one type and,
/// since Linux 6.17, loaded for the same attach type. The attach type of traffic control programs does not
/// matter, because the host sets none. Source: kernel/bpf/core.c, `bpf_prog_map_compatible`, v6.18.
pub(super) fn array(function: &HirFunction) -> String {
    let section = of(function, Arch::Any);
    let type_alone = ["tcx", "tracepoint", "kprobe", "uprobe", "uretprobe"];
    match section.split_once('/') {
        Some((kind, _)) if type_alone.contains(&kind) => kind.to_owned(),
        _ => section,
    }
}

/// The function that a probe is attached to. For a system call it is the wrapper, whose name depends on the
/// architecture.
fn symbol(function: &HirFunction, name: &str, arch: Arch) -> String {
    match &function.system_call {
        Some(call) if call.wrapped => {
            let prefix = if arch == Arch::Aarch64 { "__arm64_" } else { "__x64_" };
            format!("{prefix}{name}")
        }
        Some(call) => call.target.clone(),
        None => name.to_owned(),
    }
}

/// `PATH:SYMBOL+OFFSET`, or `PATH:+OFFSET` in the file.
fn attach_point(target: &Target) -> String {
    match target {
        Target::User { path, symbol: Some(symbol), offset } => format!("{path}:{symbol}+{offset}"),
        Target::User { path, symbol: None, offset } => format!("{path}:+{offset}"),
        _ => String::new(),
    }
}

/// The name of a method without the name of its block.
pub(super) fn method_name(function: &HirFunction) -> &str {
    function.name.rsplit('.').next().unwrap_or_default()
}
