//! ELF sections of programs, from which libbpf derives the program type and attach point.

use ks_wit::section::Arch;

use crate::hir::hooks::PACKET_HOOKS;
use crate::hir::{FunctionKind, HirFunction, ProgramKind, Target};

/// The section of a program. Source: libbpf 1.7, `section_defs`.
pub(super) fn of(function: &HirFunction, arch: Arch) -> String {
    let kind = match function.kind {
        FunctionKind::Program(kind) => kind,
        // libbpf ignores the part after the slash.
        FunctionKind::Method(_) => return format!("struct_ops/{}", method_name(function)),
        _ => return String::new(),
    };
    let section = kind.row().section;
    match (kind, &function.target) {
        (ProgramKind::Cgroup, Target::Name(hook)) if PACKET_HOOKS.contains(&hook.as_str()) => {
            format!("cgroup_skb/{hook}")
        }
        (ProgramKind::SyscallEnter | ProgramKind::SyscallExit, Target::Name(call)) => {
            format!("{section}_{call}")
        }
        (_, Target::Name(name)) => format!("{section}/{name}"),
        (_, Target::Egress(true)) => format!("{section}/egress"),
        (_, Target::Egress(false)) => format!("{section}/ingress"),
        // The other probes are entered through a trampoline, which only the start of a function has.
        (_, Target::Function { name, offset: Some(offset) }) => {
            format!("kprobe/{}+{offset}", symbol(function, name, arch))
        }
        (_, Target::Function { name, offset: None }) => format!("{section}/{}", symbol(function, name, arch)),
        (_, Target::Tracepoint { category, event }) => format!("{section}/{category}/{event}"),
        (_, Target::User { path, symbol: Some(symbol), offset, .. }) => {
            format!("{section}/{path}:{symbol}+{offset}")
        }
        (_, Target::User { path, symbol: None, offset, .. }) => format!("{section}/{path}:+{offset}"),
        (_, Target::None | Target::Period { .. }) => section.to_owned(),
    }
}

/// The section of a program that sleeps.
pub(super) fn sleeping(section: &str) -> String {
    match section.split_once('/') {
        Some((kind, target)) => format!("{kind}.s/{target}"),
        None => format!("{section}.s"),
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

/// The name of a method without the name of its block.
pub(super) fn method_name(function: &HirFunction) -> &str {
    function.name.rsplit('.').next().unwrap_or_default()
}
