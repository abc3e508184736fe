//! What the last run of each bench left, beside what the project promises: one row for each target, and all of it as JSON
//! with `--json`. Ends with 1 if a target is missed or was not measured.
//!
//! Both figures of a ratio come from one run of one bench.

use std::process::ExitCode;

use anyhow::Result;
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::target::{self, Verdict};
use serde::Serialize;

/// The output of `--json`.
#[derive(Serialize)]
struct Summary<'a> {
    machine: String,
    targets: &'a [Verdict],
    /// Every figure, by bench.
    figures: std::collections::BTreeMap<String, Vec<Record>>,
}

fn main() -> Result<ExitCode> {
    if !record::is_measured() {
        return Ok(ExitCode::SUCCESS);
    }
    let benches = record::all()?;
    let verdicts = target::judge(&benches);
    let machine = Machine::here().to_string();
    if std::env::args().any(|word| word == "--json") {
        let summary = Summary { machine, targets: &verdicts, figures: benches.into_iter().collect() };
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        println!("{machine}\n\n{:<46} {:>9} {:>9}", "target", "measured", "at most");
        verdicts.iter().for_each(|verdict| println!("{verdict}"));
    }
    let missed = verdicts.iter().filter(|verdict| !verdict.holds).count();
    if missed > 0 {
        eprintln!("{missed} of {} targets do not hold", verdicts.len());
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
