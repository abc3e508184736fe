//! `ks check` in process: how its time grows with the length of the script.
//!
//! - `parse`: from bytes to the syntax tree;
//! - `check`: the whole front end, including parsing;
//! - `fmt`: from the syntax tree to text, including the comparison of the trees.
//!
//! Each figure is the best of several runs. The last column compares the time per line with that of the
//! shortest script: 1.0 means linear growth.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::script;
use ks_compiler::{fmt, pipeline};

/// Script lengths, in lines.
const LINES: [usize; 3] = [1_000, 10_000, 100_000];

/// A stage's name, and a function that runs it on a text.
type Stage = (&'static str, fn(&str) -> Result<()>);

const STAGES: [Stage; 3] = [("parse", parse), ("check", check), ("fmt", format)];

fn main() -> Result<()> {
    println!("machine: {}\n", Machine::here());
    println!("{:<8} {:>8} {:>12} {:>10} {:>9}", "stage", "lines", "time", "per line", "per line");
    let mut records = Vec::new();
    for (name, run) in STAGES {
        let mut shortest = None;
        for wanted in LINES {
            let text = script::of_lines(wanted);
            let lines = text.lines().count();
            let time = best(|| run(&text), LINES[2] / lines + 3)?;
            let per_line = time.as_nanos() as f64 / lines as f64;
            records.push(Record::new(format!("{name}/line/of-{wanted}"), per_line, "ns"));
            let ratio = per_line / *shortest.get_or_insert(per_line);
            println!(
                "{name:<8} {lines:>8} {:>9.2} ms {per_line:>7.0} ns {ratio:>8.2}x",
                time.as_secs_f64() * 1e3
            );
        }
    }
    record::leave("check", &records)
}

/// Returns the shortest time of this many runs.
fn best(mut run: impl FnMut() -> Result<()>, runs: usize) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn options() -> pipeline::Options {
    pipeline::Options::new("bench")
}

fn parse(text: &str) -> Result<()> {
    let parsed = pipeline::parse("bench.ks", text.as_bytes(), options())?;
    ensure!(!parsed.diagnostics.has_errors(), "the script can be read");
    Ok(())
}

fn check(text: &str) -> Result<()> {
    let checked = pipeline::parse("bench.ks", text.as_bytes(), options())?.check();
    ensure!(checked.hir.is_some(), "the script has no errors");
    Ok(())
}

fn format(text: &str) -> Result<()> {
    let parsed = pipeline::parse("bench.ks", text.as_bytes(), options())?;
    let formatted = fmt::format(&parsed.tokens, text.as_bytes(), &parsed.ast)?;
    ensure!(formatted == text.as_bytes(), "the script is in the one style");
    Ok(())
}
