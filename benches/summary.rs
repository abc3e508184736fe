//! The records of the last run of each bench compared with the targets: one row for each target; everything
//! as JSON with `--json`; as `benches.json` and a chart, `benches.svg`, in a folder with `--into FOLDER`.
//! Exits with 1 if a target is missed or was not measured.
//!
//! Both figures of a ratio come from one run of one bench.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ks_benches::chart;
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::target::{self, TargetResult};
use serde::Serialize;

/// The JSON document of `--json` and `benches.json`.
#[derive(Serialize)]
struct Summary {
    machine: String,
    targets: Vec<TargetResult>,
    /// All records by the name of their bench.
    figures: BTreeMap<String, Vec<Record>>,
}

fn main() -> Result<ExitCode> {
    if !record::is_measured() {
        return Ok(ExitCode::SUCCESS);
    }
    let benches = record::all()?;
    let targets = target::judge(&benches);
    let machine = Machine::here().to_string();
    let summary = Summary { machine, targets, figures: benches.into_iter().collect() };
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(index) = arguments.iter().position(|argument| argument == "--into") {
        summary.write_into(Path::new(arguments.get(index + 1).context("--into FOLDER")?))?;
    }
    if arguments.iter().any(|argument| argument == "--json") {
        println!("{}", summary.json()?);
    } else {
        println!("machine: {}\n\n{:<46} {:>9} {:>9}", summary.machine, "target", "measured", "at most");
        summary.targets.iter().for_each(|result| println!("{result}"));
    }
    let missed = summary.targets.iter().filter(|result| !result.holds).count();
    if missed > 0 {
        eprintln!("{missed} of {} targets do not hold", summary.targets.len());
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Summary {
    fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    fn write_into(&self, folder: &Path) -> Result<()> {
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
        };
        write("benches.json", self.json()? + "\n")?;
        write("benches.svg", chart::svg(&self.targets, &self.machine))
    }
}
