//! `--kfuncs`: the kernel functions that programs of a kind may call.
//!
//! BTF marks these functions, but does not say for which kinds of programs; the prefixes of their names
//! mostly do.

use std::fmt::Write;

use super::kind::ScriptKind;
use super::script::Script;
use crate::kernel_types::{KernelType, KernelTypes, Proto};
use crate::spelling::{is_name, params_text, type_text};

/// Maximum number of parameters of a call.
const MAX_PARAMS: usize = 5;

/// Returns the prefixes of the names for a kind of program.
fn prefixes(kind: &ScriptKind) -> &'static [&'static str] {
    match kind {
        ScriptKind::Xdp => &["bpf_xdp_", "bpf_dynptr_"],
        ScriptKind::Tc(_) | ScriptKind::Cgroup(_, "__sk_buff") | ScriptKind::SocketFilter => {
            &["bpf_skb_", "bpf_dynptr_"]
        }
        ScriptKind::StructOps(name) if name == "tcp_congestion_ops" => {
            &["tcp_reno_", "tcp_slow_start", "tcp_cong_avoid_ai", "cubictcp_", "dctcp_", "bbr_"]
        }
        ScriptKind::StructOps(name) if name == "sched_ext_ops" => &["scx_bpf_", "bpf_cpumask_", "bpf_task_"],
        ScriptKind::Lsm(_) => &["bpf_path_", "bpf_get_file_", "bpf_get_dentry_", "bpf_task_", "bpf_cgroup_"],
        ScriptKind::Counting => &[],
        _ => &["bpf_task_", "bpf_cgroup_", "bpf_cpumask_", "bpf_rcu_"],
    }
}

/// Returns a header of `extern`s, named after the kind; `None` if the BTF marks none of them, or all are
/// already declared.
pub(super) fn header(kind: &ScriptKind, kernel: &KernelTypes, script: &Script) -> Option<(String, String)> {
    let prefixes = prefixes(kind);
    let wanted = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let mut externs = String::new();
    for name in kernel.kfunc_names().into_iter().filter(wanted) {
        let declaration = kernel.kfunc(&name).ok().and_then(|kfunc| extern_text(&name, &kfunc.proto));
        let Some(text) = declaration.filter(|_| !declares(script, &name)) else { continue };
        // Writing to a string cannot fail.
        let _ = writeln!(externs, "{text}");
    }
    if externs.is_empty() {
        return None;
    }
    let text =
        format!("// Kernel functions that the kernel's BTF names for this kind of program.\n\n{externs}");
    Some((format!("{}_kfuncs.kh", header_prefix(kind)), text))
}

/// Whether the script or one of its headers has this `extern`: a second one is an error.
fn declares(script: &Script, name: &str) -> bool {
    let declaration = format!("extern {name}(");
    let headers = script.headers.iter().map(|(_, text)| text);
    headers.chain(&script.items).any(|text| text.contains(&declaration))
}

fn extern_text(name: &str, proto: &Proto) -> Option<String> {
    let (params, left_out) = params_text(&proto.params, MAX_PARAMS);
    if left_out.is_some() || proto.variadic || !is_name(name) {
        return None;
    }
    let result = match &proto.result {
        KernelType::Void => String::new(),
        result => format!(" -> {}", type_text(result)?),
    };
    Some(format!("extern {name}({params}){result}"))
}

fn header_prefix(kind: &ScriptKind) -> &str {
    match kind {
        ScriptKind::Xdp => "xdp",
        ScriptKind::Tc(_) => "tc",
        ScriptKind::Probe(..) | ScriptKind::Retprobe(_) => "probe",
        ScriptKind::Tracepoint(..)
        | ScriptKind::RawTracepoint(_)
        | ScriptKind::SyscallEnter(_)
        | ScriptKind::SyscallExit(_) => "tracepoint",
        ScriptKind::PerfEvent | ScriptKind::Counting => "perf_event",
        ScriptKind::Uprobe(_) => "uprobe",
        ScriptKind::Lsm(_) => "lsm",
        ScriptKind::Cgroup(..) => "cgroup",
        ScriptKind::SocketFilter => "socket_filter",
        ScriptKind::Timer => "timer",
        ScriptKind::StructOps(name) => name,
    }
}
