//! `--kfuncs`: the kernel functions that programs of a kind may call.
//!
//! BTF marks kernel functions, and does not say for which kinds of programs; the kernel's naming does, mostly.

use std::fmt::Write;

use super::kind::Kind;
use super::language::{is_name, params_text, type_text};
use super::script::Script;
use crate::kernel_types::{KernelType, KernelTypes, Proto};

/// Most parameters of a call.
const MOST_PARAMS: usize = 5;

/// How the names begin for a kind.
fn prefixes(kind: &Kind) -> &'static [&'static str] {
    match kind {
        Kind::Xdp => &["bpf_xdp_", "bpf_dynptr_"],
        Kind::Tc(_) | Kind::Cgroup(_, "__sk_buff") | Kind::SocketFilter => &["bpf_skb_", "bpf_dynptr_"],
        Kind::StructOps(name) if name == "tcp_congestion_ops" => {
            &["tcp_reno_", "tcp_slow_start", "tcp_cong_avoid_ai", "cubictcp_", "dctcp_", "bbr_"]
        }
        Kind::StructOps(name) if name == "sched_ext_ops" => &["scx_bpf_", "bpf_cpumask_", "bpf_task_"],
        Kind::Lsm(_) => &["bpf_path_", "bpf_get_file_", "bpf_get_dentry_", "bpf_task_", "bpf_cgroup_"],
        Kind::Counting => &[],
        _ => &["bpf_task_", "bpf_cgroup_", "bpf_cpumask_", "bpf_rcu_"],
    }
}

/// A header of `extern`s, named after the kind; `None` if the BTF marks none of them, or all are declared already.
pub(super) fn header(kind: &Kind, kernel: &KernelTypes, script: &Script) -> Option<(String, String)> {
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
    Some((format!("{}_kfuncs.kh", word(kind)), text))
}

/// Whether the script or one of its headers has this `extern`: a second one is an error.
fn declares(script: &Script, name: &str) -> bool {
    let declaration = format!("extern {name}(");
    let headers = script.headers.iter().map(|(_, text)| text);
    headers.chain(&script.items).any(|text| text.contains(&declaration))
}

fn extern_text(name: &str, proto: &Proto) -> Option<String> {
    let (params, left_out) = params_text(&proto.params, MOST_PARAMS);
    if left_out.is_some() || proto.variadic || !is_name(name) {
        return None;
    }
    let result = match &proto.result {
        KernelType::Void => String::new(),
        result => format!(" -> {}", type_text(result)?),
    };
    Some(format!("extern {name}({params}){result}"))
}

fn word(kind: &Kind) -> &str {
    match kind {
        Kind::Xdp => "xdp",
        Kind::Tc(_) => "tc",
        Kind::Probe(..) | Kind::Retprobe(_) => "probe",
        Kind::Tracepoint(..) | Kind::RawTracepoint(_) | Kind::SyscallEnter(_) | Kind::SyscallExit(_) => {
            "tracepoint"
        }
        Kind::PerfEvent | Kind::Counting => "perf_event",
        Kind::Uprobe(_) => "uprobe",
        Kind::Lsm(_) => "lsm",
        Kind::Cgroup(..) => "cgroup",
        Kind::SocketFilter => "socket_filter",
        Kind::Timer => "timer",
        Kind::StructOps(name) => name,
    }
}
