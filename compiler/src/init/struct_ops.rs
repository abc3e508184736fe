//! New scripts with an impl block (4.9).

use std::fmt::Write;

use ks_wit::event::EVENTS;

use super::InitError;
use super::script::Script;
use crate::headers;
use crate::kernel_types::{KernelType, KernelTypes, OpsMember, OpsMemberKind, Proto, StructOps};
use crate::spelling::{is_member_name, is_name, params_text, type_text, zero_text};

/// Maximum number of parameters of a method (4.9).
const MAX_PARAMS: usize = 5;

/// Facts about a struct_ops type beyond its BTF: the methods that it needs, and their bodies.
struct OpsTemplate {
    name: &'static str,
    about: &'static str,
    /// Declarations above the impl block.
    items: &'static [&'static str],
    /// The static fields, each followed by a comma.
    fields: &'static str,
    /// Bodies by method; the kernel has defaults for the other members.
    bodies: &'static [(&'static str, &'static str)],
}

/// Names that a script must not declare (3.1), or that the generated script already uses.
const PREDECLARED: [&str; 13] = [
    "main",
    "refused",
    "size_t",
    "xdp_md",
    "xdp_action",
    "__sk_buff",
    "bpf_perf_event_data",
    "gfp_flag",
    "tc_action",
    "perf_event",
    "perf_options",
    "perf_attachment",
    "perf_read",
];

/// Source: net/ipv4/tcp_cong.c (`tcp_validate_congestion_control`), net/ipv4/bpf_tcp_ca.c (the functions it
/// may call), kernel/sched/ext.c (v6.12).
const TEMPLATES: [OpsTemplate; 2] = [
    OpsTemplate {
        name: "tcp_congestion_ops",
        about: "A congestion control algorithm of TCP that does what Reno does.",
        items: &["extern tcp_reno_ssthresh(sk: *sock) -> u32\n\
                  extern tcp_reno_undo_cwnd(sk: *sock) -> u32\n\
                  extern tcp_reno_cong_avoid(sk: *sock, ack: u32, acked: u32)"],
        fields: "",
        bodies: &[
            ("ssthresh", "return tcp_reno_ssthresh(sk)"),
            ("cong_avoid", "tcp_reno_cong_avoid(sk, ack, acked)"),
            ("undo_cwnd", "return tcp_reno_undo_cwnd(sk)"),
        ],
    },
    OpsTemplate {
        name: "sched_ext_ops",
        about: "A scheduler that leaves every decision to the kernel and counts how often tasks run.",
        items: &["var runs : u64 = 0"],
        fields: "    timeout_ms: 5000,\n",
        bodies: &[("running", "runs += 1")],
    },
];

pub(super) fn script(name: &str, script_name: &str, kernel: &KernelTypes) -> Result<Script, InitError> {
    let found = kernel.struct_ops(name).or_else(|| KernelTypes::bundled().struct_ops(name));
    let ops = found.filter(|ops| !ops.members.is_empty()).ok_or_else(|| absent(name, kernel))?;
    let known = TEMPLATES.iter().find(|known| known.name == name);
    let header = header(&ops);
    let own = impl_name(script_name, &header, known);
    let about = known.map_or_else(|| format!("An implementation of {name}."), |known| known.about.to_owned());
    let mut items: Vec<String> =
        known.iter().flat_map(|known| known.items).map(|item| (*item).to_owned()).collect();
    items.push(impl_block(&ops, known, &own));
    items.push(main(known, &own));
    let mut script = Script::new(about, items);
    script.headers = vec![(format!("{name}.kh"), header)];
    Ok(script)
}

/// Returns the error for a struct that 0.1.1 knows by name, but whose members are unknown.
fn absent(name: &str, kernel: &KernelTypes) -> InitError {
    if kernel.has_btf() {
        InitError::Missing {
            what: "struct_ops type",
            name: name.to_owned(),
            near: kernel.near_struct_ops(name),
        }
    } else {
        InitError::NeedsBtf(name.to_owned())
    }
}

/// Returns the impl block's name: the script's, unless something else in the script has it.
fn impl_name(script: &str, header: &str, known: Option<&OpsTemplate>) -> String {
    let name = script.replace('-', "_");
    let uses = |text: &str| {
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|ident| ident == name)
    };
    let items = known.map_or(&[][..], |known| known.items);
    let taken = PREDECLARED.contains(&name.as_str())
        || EVENTS.iter().any(|event| event.name == name)
        || uses(header)
        || items.iter().any(|item| uses(item));
    if is_name(&name) && !taken { name } else { format!("{name}_impl") }
}

fn impl_block(ops: &StructOps, known: Option<&OpsTemplate>, own: &str) -> String {
    let mut fields = String::new();
    if has_name(ops) {
        // 15 bytes and the terminator.
        let _ = writeln!(fields, "    name: \"{}\",", &own[..own.len().min(15)]);
    }
    fields.push_str(known.map_or("", |known| known.fields));
    let mut parts: Vec<String> = if fields.is_empty() { Vec::new() } else { vec![fields] };
    let mut omitted = Vec::new();
    for member in &ops.members {
        let OpsMemberKind::Function(proto) = &member.kind else { continue };
        let body = match known {
            Some(known) => {
                known.bodies.iter().find(|(name, _)| *name == member.name).map(|(_, body)| (*body).to_owned())
            }
            None => Some(zero_text(&proto.result).map(|zero| format!("return {zero}")).unwrap_or_default()),
        };
        match body.and_then(|body| method(member, proto, &body)) {
            Some(method) => parts.push(method),
            None => omitted.push(member.name.as_str()),
        }
    }
    if !omitted.is_empty() {
        parts.push(comment("Also possible: ", &omitted));
    }
    format!("@struct_ops(\"{}\")\nimpl {own} {{\n{}}}", ops.name, parts.join("\n"))
}

fn has_name(ops: &StructOps) -> bool {
    ops.member("name").is_some_and(|name| matches!(name.kind, OpsMemberKind::Data(KernelType::Array { .. })))
}

/// Returns a method with this body; `None` if the language cannot declare it.
fn method(member: &OpsMember, proto: &Proto, body: &str) -> Option<String> {
    let result = match proto.result {
        KernelType::Void => "void".to_owned(),
        ref result => type_text(result)?,
    };
    let (params, left_out) = params_text(&proto.params, MAX_PARAMS);
    if left_out.is_some() || !is_name(&member.name) {
        return None;
    }
    let body = if body.is_empty() { "{}".to_owned() } else { format!("{{\n        {body}\n    }}") };
    Some(format!("    fn {}({params}) -> {result} {body}\n", member.name))
}

/// Formats names as comment lines of at most 100 bytes, the first of which starts with `prefix`.
fn comment(prefix: &str, names: &[&str]) -> String {
    let mut text = String::new();
    let mut line = format!("    // {prefix}");
    for (index, name) in names.iter().enumerate() {
        let end = if index + 1 == names.len() { "." } else { ", " };
        if line.len() + name.len() + end.len() > 100 {
            let _ = writeln!(text, "{}", line.trim_end());
            line = "    // ".to_owned();
        }
        line.push_str(name);
        line.push_str(end);
    }
    let _ = writeln!(text, "{}", line.trim_end());
    text
}

fn main(known: Option<&OpsTemplate>, own: &str) -> String {
    let watch = match known {
        Some(known) if known.name == "sched_ext_ops" => {
            "    while (sleep(1000) == 0) {\n        print(\"%llu runs\", runs)\n    }\n"
        }
        // The host keeps it registered after `main` until it is asked to stop (6.7).
        _ => "",
    };
    format!(
        "fn main() -> i32 {{\n    var refused = register({own})\n    if (refused != 0) {{\n        \
         print(\"the kernel refused {own}: %u\", refused)\n        return 1\n    }}\n{watch}    return 0\n}}"
    )
}

/// Returns the struct's declaration: functions as `*u8`, so that the compiler takes their types from the
/// kernel. Uses the bundled header if there is one, which also has the constants.
fn header(ops: &StructOps) -> String {
    if let Some(text) = headers::bundled(&format!("{}.kh", ops.name)) {
        return text.to_owned();
    }
    let mut text = format!("// The kernel's struct {}.\n\nstruct {} {{\n", ops.name, ops.name);
    for member in &ops.members {
        let ty = match &member.kind {
            OpsMemberKind::Function(_) => Some("*u8".to_owned()),
            // A struct by value would need its own declaration, and an impl block cannot initialise it.
            OpsMemberKind::Data(KernelType::Struct { .. }) => None,
            OpsMemberKind::Data(ty) => type_text(ty),
        };
        let name = &member.name;
        match ty.filter(|_| is_member_name(name)) {
            Some(ty) => {
                let _ = writeln!(text, "    {name}: {ty},");
            }
            None => {
                let _ = writeln!(text, "    // {name} is left out: its type has no spelling in the language");
            }
        }
    }
    text.push_str("}\n");
    text
}
