//! The kinds of scripts that `ks init` can create.

use ks_wit::target::{Spot, UprobeTarget};

use super::InitError;
use crate::diag::nears;
use crate::hir::hooks::{ADDRESS_HOOKS, PACKET_HOOKS};
use crate::kernel_types::KernelTypes;

/// A kind of script as users write it.
#[derive(Clone, Copy, Debug)]
pub struct InitKind {
    /// The form on the command line. Words in capital letters stand for a target.
    pub form: &'static str,
    /// What programs of this kind see, for the help text.
    pub description: &'static str,
    /// Kinds of this form, at least one for each shape of script that they start. A test starts them all.
    pub examples: &'static [&'static str],
}

/// All kinds, in the order of the help text. Names of struct_ops types are kinds, too.
pub const KINDS: &[InitKind] = &[
    kind("xdp", "packets as they arrive at a network interface", &["xdp"]),
    kind("tc/ingress", "packets that an interface receives", &["tc/ingress"]),
    kind("tc/egress", "packets that an interface sends", &["tc/egress"]),
    kind(
        "probe/FUNCTION",
        "entry of a kernel function; FUNCTION+0x10 for a place in it",
        &[
            "probe/vfs_read",
            "probe/do_exit",
            "probe/sys_openat",
            "probe/sys_getpid",
            "probe/vfs_read+0x10",
            "probe/vfs_read+16",
        ],
    ),
    kind("retprobe/FUNCTION", "return of a kernel function", &["retprobe/vfs_read", "retprobe/do_exit"]),
    kind(
        "tracepoint/CATEGORY/EVENT",
        "an event of the kernel",
        &[
            "tracepoint/sched/sched_switch",
            "tracepoint/sched/sched_wakeup",
            "tracepoint/sched/sched_process_exec",
            "tracepoint/syscalls/sys_enter_openat",
            "tracepoint/syscalls/sys_exit_openat",
        ],
    ),
    kind(
        "raw_tracepoint/EVENT",
        "an event of the kernel, with its arguments instead of a record",
        &[
            "raw_tracepoint/sched_switch",
            "raw_tracepoint/sys_enter",
            "raw_tracepoint/sys_exit",
            "raw_tracepoint/balance_dirty_pages",
        ],
    ),
    kind("syscall_enter/CALL", "a system call, with its arguments", &["syscall_enter/openat"]),
    kind("syscall_exit/CALL", "the return of a system call", &["syscall_exit/getpid"]),
    kind("perf_event", "samples of a performance event", &["perf_event"]),
    kind("counting", "performance events that are only counted", &["counting"]),
    kind(
        "uprobe/PATH:SYMBOL",
        "entry of a function of a program or library",
        &["uprobe//usr/bin/bash:readline"],
    ),
    kind("lsm/HOOK", "a decision about access", &["lsm/file_open"]),
    kind(
        "cgroup/HOOK",
        "packets or connections of a group of processes",
        &["cgroup/ingress", "cgroup/connect4"],
    ),
    kind("socket_filter", "packets as a socket gets them", &["socket_filter"]),
    kind("timer", "nothing but time", &["timer"]),
    kind("tcp_congestion_ops", "a congestion control algorithm of TCP", &["tcp_congestion_ops"]),
    kind("sched_ext_ops", "a scheduler", &["sched_ext_ops"]),
];

const fn kind(form: &'static str, description: &'static str, examples: &'static [&'static str]) -> InitKind {
    InitKind { form, description, examples }
}

impl InitKind {
    /// Returns the part of the form before the target.
    fn name(&self) -> &'static str {
        self.form.split_once('/').map_or(self.form, |(name, _)| name)
    }
}

/// A kind of script, with its target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ScriptKind {
    Xdp,
    Tc(&'static str),
    /// A function, and the offset in it as spelled by the user, with `+`.
    Probe(String, Option<String>),
    Retprobe(String),
    Tracepoint(String, String),
    RawTracepoint(String),
    SyscallEnter(String),
    SyscallExit(String),
    PerfEvent,
    Counting,
    Uprobe(String),
    Lsm(String),
    /// The name of the hook, and of its context.
    Cgroup(String, &'static str),
    SocketFilter,
    Timer,
    StructOps(String),
}

impl ScriptKind {
    pub(super) fn parse(kind: &str, kernel: &KernelTypes) -> Result<ScriptKind, InitError> {
        let (kind_name, target) = kind.split_once('/').unwrap_or((kind, ""));
        let incomplete = |form| Err(InitError::Incomplete { kind: kind.to_owned(), form });
        Ok(match (kind_name, target) {
            ("xdp", "") => ScriptKind::Xdp,
            ("tc", "ingress") => ScriptKind::Tc("ingress"),
            ("tc", "egress") => ScriptKind::Tc("egress"),
            ("tc", _) => return incomplete("tc/ingress or tc/egress"),
            ("probe", "") => return incomplete("probe/FUNCTION"),
            ("probe", target) => probe(target)?,
            ("retprobe", "") => return incomplete("retprobe/FUNCTION"),
            ("retprobe", target) => ScriptKind::Retprobe(target.to_owned()),
            ("tracepoint", target) => match target.split_once('/') {
                Some((category, event)) if !category.is_empty() && !event.is_empty() => {
                    ScriptKind::Tracepoint(category.to_owned(), event.to_owned())
                }
                _ => return incomplete("tracepoint/CATEGORY/EVENT"),
            },
            ("raw_tracepoint", "") => return incomplete("raw_tracepoint/EVENT"),
            ("raw_tracepoint", event) => ScriptKind::RawTracepoint(event.to_owned()),
            ("syscall_enter", "") => return incomplete("syscall_enter/CALL"),
            ("syscall_enter", call) => ScriptKind::SyscallEnter(call.to_owned()),
            ("syscall_exit", "") => return incomplete("syscall_exit/CALL"),
            ("syscall_exit", call) => ScriptKind::SyscallExit(call.to_owned()),
            ("perf_event", "") => ScriptKind::PerfEvent,
            ("counting", "") => ScriptKind::Counting,
            ("uprobe", target) if is_user_target(target) => ScriptKind::Uprobe(target.to_owned()),
            ("uprobe", _) => {
                return incomplete("uprobe/PATH:SYMBOL, for example uprobe//usr/bin/bash:readline");
            }
            ("lsm", "") => return incomplete("lsm/HOOK"),
            ("lsm", hook) => ScriptKind::Lsm(hook.to_owned()),
            ("cgroup", "") => return incomplete("cgroup/ingress, cgroup/egress, cgroup/connect4, ..."),
            ("cgroup", hook) => cgroup(hook)?,
            ("socket_filter", "") => ScriptKind::SocketFilter,
            ("timer", "") => ScriptKind::Timer,
            (ops, "") if kernel.struct_ops(ops).is_some_and(|ops| ops.registrable) || is_known_ops(ops) => {
                ScriptKind::StructOps(ops.to_owned())
            }
            _ => return Err(unknown(kind, kind_name, kernel)),
        })
    }
}

/// Whether 0.1.1 knows the struct although this kernel may lack it: the script then compiles with a warning.
fn is_known_ops(name: &str) -> bool {
    KernelTypes::bundled().struct_ops(name).is_some()
}

fn probe(target: &str) -> Result<ScriptKind, InitError> {
    let Some((function, offset)) = target.split_once('+') else {
        return Ok(ScriptKind::Probe(target.to_owned(), None));
    };
    let (digits, radix) = match offset.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (offset, 10),
    };
    // `from_str_radix` alone would accept a second sign.
    let number =
        digits.chars().all(|digit| digit.is_digit(radix)) && u64::from_str_radix(digits, radix).is_ok();
    if function.is_empty() || !number {
        let form = "probe/FUNCTION+OFFSET, the offset in bytes as 16 or 0x10";
        return Err(InitError::Incomplete { kind: format!("probe/{target}"), form });
    }
    Ok(ScriptKind::Probe(function.to_owned(), Some(format!("+{offset}"))))
}

fn is_user_target(target: &str) -> bool {
    // Characters that could end the string literal around the path do not occur in real paths.
    let plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    plain && UprobeTarget::parse(target).is_ok_and(|target| !matches!(target.spot, Spot::Line { .. }))
}

fn cgroup(hook: &str) -> Result<ScriptKind, InitError> {
    if PACKET_HOOKS.contains(&hook) {
        return Ok(ScriptKind::Cgroup(hook.to_owned(), "__sk_buff"));
    }
    if ADDRESS_HOOKS.contains(&hook) {
        return Ok(ScriptKind::Cgroup(hook.to_owned(), "bpf_sock_addr"));
    }
    let near = nears(hook, ADDRESS_HOOKS.into_iter().chain(PACKET_HOOKS));
    let near = near.into_iter().map(|hook| format!("cgroup/{hook}")).collect();
    Err(InitError::UnknownKind { kind: format!("cgroup/{hook}"), near })
}

/// Returns kinds similar to an unknown one: by the part before the `/`, or a struct_ops type.
fn unknown(kind: &str, kind_name: &str, kernel: &KernelTypes) -> InitError {
    let old = match kind_name {
        "kprobe" | "fentry" => Some("probe/FUNCTION"),
        "kretprobe" | "fexit" => Some("retprobe/FUNCTION"),
        "tp_btf" => Some("raw_tracepoint/EVENT"),
        "perf" => Some("perf_event"),
        _ => None,
    };
    if let Some(own) = old {
        return InitError::UnknownKind { kind: kind.to_owned(), near: vec![own.to_owned()] };
    }
    let ops = kernel.struct_ops_names();
    let found = nears(kind_name, KINDS.iter().map(|kind| kind.name()).chain(ops.iter().map(String::as_str)));
    let full = |kind_name: &str| {
        let same = KINDS.iter().find(|kind| kind.name() == kind_name);
        same.map_or(kind_name, |kind| kind.form).to_owned()
    };
    // The kind takes no target, but was given one.
    let near = if KINDS.iter().any(|kind| kind.form == kind_name) {
        vec![kind_name.to_owned()]
    } else {
        found.into_iter().map(full).collect()
    };
    InitError::UnknownKind { kind: kind.to_owned(), near }
}
