//! `ks-host doctor`: which features of plugins work on this machine.

use std::fmt::Write as _;

use ks_host::bpf::feature::{Answer, Features};
use ks_host::explain::Machine;
use ks_host::explain::doctor::{
    Finding, State, call, event_links, examine, free_counters, function_programs, loops,
};
use ks_host::perf::{Attachments, Catalog, Event, Options};
use ks_wit::command_output::{write_json, write_lines};

/// Arguments of `ks-host doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ks-host doctor\n  ks-host doctor --json --probe-pmu")]
pub(crate) struct Args {
    /// Counts the free counters of each PMU, too, by taking them: what others count may lose its counters for
    /// a moment.
    #[arg(long)]
    probe_pmu: bool,
    /// Writes JSON, for tools: a list of objects with `topic`, `state` (good, limited, missing, unknown),
    /// `found`, and where something is not good `means` and `do`.
    #[arg(long)]
    json: bool,
}

/// Shows the findings. The exit code is 0 whatever they are: the report itself succeeded.
pub(crate) fn doctor(args: &Args) -> anyhow::Result<u8> {
    let catalog = Catalog::default();
    let mut findings = examine(&Machine::read(catalog.core_names()));
    findings.push(call("perf_event_open(2)", refused_event()));
    let features = Features::of_running();
    findings.push(call("bpf(2)", refused_map(&features)));
    findings.extend(programs(&features));
    if args.probe_pmu {
        let free = catalog.free_counters().into_iter();
        findings.extend(free.map(|free| free_counters(&free.pmu, &free.event, free.counters)));
    }
    if args.json {
        write_json(&findings)?
    } else {
        write_lines(&text(&findings))?
    }
    Ok(0)
}

/// Counts this thread's own user-space page faults, which every user may do. Returns the reason if that
/// fails.
fn refused_event() -> Option<String> {
    let options = Options { pid: 0, cpu: -1, exclude_kernel: true, ..Options::default() };
    let opened =
        Event::named("page_faults").and_then(|event| Attachments::new().open(&event, &options, None, None));
    opened.err().map(|error| error.cause())
}

/// Creates an array map. Returns the reason if the kernel refuses.
fn refused_map(features: &Features) -> Option<String> {
    /// `BPF_MAP_TYPE_ARRAY` of `linux/bpf.h`.
    const ARRAY: u32 = 2;
    match features.map(ARRAY) {
        Answer::Yes => None,
        Answer::No(because) | Answer::Unknown(because) => Some(because),
    }
}

/// Tries what programs at perf events and at functions need.
fn programs(features: &Features) -> [Finding; 3] {
    let at_function =
        features.shape("fentry/vfs_open", None).map_or_else(|answer| answer, |shape| features.loads(&shape));
    let at_function = function_programs(at_function);
    match features.shape("perf_event", None) {
        Ok(shape) => {
            let callback =
                ks_wit::helper::named("bpf_loop").map(|(number, _)| features.helper(&shape, number));
            let callback = callback.unwrap_or_else(|| Answer::Unknown("it has no number".into()));
            let iterator = features.kfunc(&shape, "bpf_iter_num_new");
            [event_links(features.attach_point(&shape)), at_function, loops(iterator, callback)]
        }
        Err(answer) => [event_links(answer.clone()), at_function, loops(answer.clone(), answer)],
    }
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
