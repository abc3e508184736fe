//! `ks-host check PLUGIN`: whether the running kernel has what a plugin needs.

use std::fmt::Write as _;
use std::path::PathBuf;

use ks_host::explain::check::{Need, Registers, State, What, check, chosen, missing, oldest};
use ks_wit::command_output::{with_causes, write_json, write_lines, write_stderr};

use crate::apart::{Compiling, Isolation};
use crate::output::{self, printable};
use crate::{EntryPoint, apart, read_bytes};

/// Exit code if something that the plugin needs is missing.
const MISSING: u8 = 1;

/// Arguments of `ks-host check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 if nothing is missing, 1 if something is, 127 if the file is no \
                  plugin.\n\nExamples:\n  \
                  ks-host check examples/perf/group.ks\n  ks-host check --json examples/perf/page_faults.ks")]
pub(crate) struct Args {
    /// The plugin file, or a script (`.ks`).
    plugin: PathBuf,
    /// Writes JSON, for tools: a list of objects with `what` (program, attach-point, helper, kfunc, map,
    /// member), `name`, `program`, `state` (has, missing, optional, unknown), `since` where that is known,
    /// and where something is not there `because` and `do`.
    #[arg(long)]
    json: bool,
}

/// Asks the kernel and shows its answers. Loads no program of the plugin, and leaves nothing in the kernel.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let bytes = match read_bytes(&args.plugin, EntryPoint::Main, Compiling::uncached(Isolation::Process)) {
        Ok(bytes) => bytes,
        Err(code) => return Ok(code),
    };
    let asks = match apart::asks(&args.plugin, bytes) {
        Ok(asks) => asks,
        Err(error) => {
            write_stderr(format_args!("ks-host: {}", with_causes(&*error)));
            return Ok(crate::NOT_A_PLUGIN);
        }
    };
    let registers: Vec<Registers<'_>> = asks.registers.iter().map(registers).collect();
    let oldest = asks.objects.iter().map(oldest).min();
    let found = check(&chosen(asks.objects), &registers);
    if args.json {
        write_json(&found)?
    } else {
        let oldest = oldest.map(|oldest| format!("oldest kernel: {oldest}\n"));
        write_lines(&(text(&found) + &oldest.unwrap_or_default()))?
    }
    Ok(if missing(&found).is_empty() { 0 } else { MISSING })
}

fn registers(block: &ks_wit::manifest::StructOps) -> Registers<'_> {
    Registers { name: &block.name, ops: &block.ops, methods: &block.methods }
}

fn text(found: &[Need]) -> String {
    if found.is_empty() {
        return "the plugin has no kernel half: it needs nothing of the kernel\n".into();
    }
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let mut out = String::new();
    for (line, need) in output::aligned(&rows).lines().zip(found) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_start());
        for (label, text) in [("because", &need.because), ("do", &need.remedy)] {
            if let Some(text) = text {
                let _ = writeln!(out, "    {label}: {}", printable(text));
            }
        }
    }
    out
}

fn row(need: &Need) -> Vec<String> {
    let state = match need.state {
        State::Has => "has",
        State::Missing => "missing",
        State::Unknown => "unknown",
        State::Optional => "optional",
    };
    let what = match need.what {
        What::Program => "program",
        What::AttachPoint => "attach point",
        What::Helper => "helper",
        What::Kfunc => "kfunc",
        What::Variable => "variable",
        What::Map => "map",
        What::Member => "member",
    };
    let of = need.program.as_ref().map(|program| format!("of {program}")).unwrap_or_default();
    let since = need.since.as_ref().map(|since| format!("since {since}")).unwrap_or_default();
    vec![state.into(), what.into(), need.name.clone(), of, since]
}
