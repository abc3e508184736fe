//! What a plugin needs to be allowed, as its file tells.

use super::Class;
use super::functions::{
    helper_is_of_packets, helper_is_of_timers, helper_name, helper_observes, kfunc_observes,
};
use crate::bpf::{Calls, ObjectShape, ProgramKind, ProgramShape};

/// One act that a plugin asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Its class.
    pub class: Class,
    /// Its target; none if it is known only when it is done.
    pub target: Option<String>,
    /// What of the plugin asks, for messages.
    pub by: String,
}

/// What loading the object, and importing these interfaces, needs.
pub fn needs(shape: &ObjectShape, calls: &Calls, imports: &[String]) -> Vec<Need> {
    let mut needs: Vec<Need> = shape.programs.iter().map(of_program).collect();
    for (number, function) in &calls.helpers {
        if helper_is_of_timers(*number) {
            needs.push(Need {
                class: Class::Timer,
                target: None,
                by: printable(&format!("program `{function}`")),
            });
        } else if !helper_observes(*number) && !helper_is_of_packets(*number) {
            needs.push(need(Class::Helper, helper_name(*number), format!("program `{function}`")));
        }
    }
    for name in calls.kernel_symbols.iter().filter(|name| !kfunc_observes(name)) {
        needs.push(need(Class::Kfunc, name.clone(), "the BPF object".into()));
    }
    for name in &shape.structs {
        needs.push(need(Class::StructOps, name.clone(), format!("struct `{name}`")));
    }
    for pin in &shape.pins {
        needs.push(need(Class::Pin, pin.clone(), format!("map `{}`", after_slash(pin))));
    }
    needs.extend(imports.iter().map(|import| {
        let name = import.strip_prefix("kernelscript:host/").unwrap_or(import);
        let interface = name.split('@').next().unwrap_or_default().to_owned();
        need(Class::Import, interface, format!("import `{import}`"))
    }));
    needs
}

fn need(class: Class, target: String, by: String) -> Need {
    Need { class, target: Some(printable(&target)), by: printable(&by) }
}

/// The names in a file are anybody's: on a terminal they do nothing.
fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

fn after_slash(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or_default()
}

fn of_program(program: &ProgramShape) -> Need {
    let class = class_of(program.kind, &program.section);
    // The rest of the section is for people, or is overruled by the target of the attach.
    let known_later = [
        Class::Xdp,
        Class::Tc,
        Class::Cgroup,
        Class::SocketFilter,
        Class::Timer,
        Class::PerfEvent,
        Class::StructOps,
    ];
    let target = match class {
        Class::Other => Some(program.kind.number().to_string()),
        class if known_later.contains(&class) => None,
        _ => Some(own_target(&program.section)),
    };
    Need {
        class,
        target: target.as_deref().map(printable),
        by: printable(&format!("program `{}`", program.name)),
    }
}

/// The class of programs of a kind; the section tells kinds of one type apart, as it does for libbpf.
pub(crate) fn class_of(kind: ProgramKind, section: &str) -> Class {
    match kind {
        ProgramKind::PerfEvent => Class::PerfEvent,
        ProgramKind::Tracepoint => Class::Tracepoint,
        ProgramKind::RawTracepoint => Class::RawTracepoint,
        ProgramKind::Xdp => Class::Xdp,
        ProgramKind::SchedCls => Class::Tc,
        ProgramKind::SocketFilter => Class::SocketFilter,
        ProgramKind::Timer => Class::Timer,
        ProgramKind::CgroupSkb | ProgramKind::CgroupSockAddr => Class::Cgroup,
        ProgramKind::Lsm => Class::Lsm,
        ProgramKind::StructOps => Class::StructOps,
        ProgramKind::Kprobe => match kind_word(section) {
            "uprobe" | "uretprobe" | "uprobe.s" | "uretprobe.s" => Class::Uprobe,
            "kprobe" | "kretprobe" => Class::Kprobe,
            _ => Class::Other,
        },
        ProgramKind::Tracing => match kind_word(section) {
            "fentry" | "fexit" | "tp_btf" | "fentry.s" | "fexit.s" => Class::Tracing,
            "fmod_ret" | "fmod_ret.s" => Class::ModifyReturn,
            _ => Class::Other,
        },
        ProgramKind::Other(_) => Class::Other,
    }
}

/// `fentry` of `?fentry/vfs_read`.
fn kind_word(section: &str) -> &str {
    let section = section.strip_prefix('?').unwrap_or(section);
    section.split('/').next().unwrap_or_default()
}

/// `vfs_read` of `fentry/vfs_read`.
fn own_target(section: &str) -> String {
    section.split_once('/').map(|(_, target)| target.to_owned()).unwrap_or_default()
}
