//! `ks-host doctor`: what this machine lets plugins do.

use std::fmt::Write as _;

use ks_host::explain::Machine;
use ks_host::explain::doctor::{Finding, State, examine, free_counters};
use ks_host::perf::Catalog;

use crate::output;

/// How to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ks-host doctor\n  ks-host doctor --json --probe-pmu")]
pub(crate) struct Args {
    /// Counts the free counters of each PMU, too, by taking them: what others count may lose its counters for a moment.
    #[arg(long)]
    probe_pmu: bool,
    /// Writes JSON, for tools: a list of objects with `topic`, `state` (good, limited, missing, unknown), `found`, and
    /// where something is not good `means` and `do`.
    #[arg(long)]
    json: bool,
}

/// Shows the findings. The exit code is 0 whatever they are: the report is what was asked for.
pub(crate) fn doctor(args: &Args) -> anyhow::Result<u8> {
    let catalog = Catalog::default();
    let mut findings = examine(&Machine::read(catalog.core_names()));
    if args.probe_pmu {
        let free = catalog.free_counters().into_iter();
        findings.extend(free.map(|free| free_counters(&free.pmu, &free.event, free.counters)));
    }
    if args.json {
        output::show_json(&findings)?
    } else {
        output::show(&text(&findings))?
    }
    Ok(0)
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.topic.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for Finding { topic, state, found, means, remedy } in findings {
        let state = match state {
            State::Good => "good",
            State::Limited => "limited",
            State::Missing => "missing",
            State::Unknown => "unknown",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{state:<7}  {topic:<width$}  {found}");
        for (label, line) in [("so", means), ("do", remedy)] {
            if let Some(line) = line {
                let _ = writeln!(out, "{:<7}  {label}: {line}", "");
            }
        }
    }
    out
}
