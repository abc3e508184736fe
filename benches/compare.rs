//! `bench-compare BASE NEW [--pairs N] BENCH..`: runs the benches of two builds alternately, and reports for
//! each row whether they differ. `make bench-compare BASE=rev` builds both and calls it.
//!
//! BASE and NEW are folders that `scripts/bench-build` creates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ks_benches::compare::{self, Comparison, Difference};
use ks_benches::machine::Machine;
use ks_benches::record;

/// Minimum of pairs; with fewer, a single pair could move the median.
const FEWEST_PAIRS: usize = 9;

/// Arguments for the benches that criterion measures. The runs are short because there are many.
const SHORT: [&str; 6] = ["--warm-up-time", "0.05", "--measurement-time", "0.1", "--sample-size", "10"];

fn main() -> Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let pairs = match arguments.iter().position(|argument| argument == "--pairs") {
        None => FEWEST_PAIRS,
        Some(index) => {
            let number: Vec<String> = arguments.drain(index..(index + 2).min(arguments.len())).collect();
            number.get(1).context("--pairs N")?.parse()?
        }
    };
    ensure!(pairs >= FEWEST_PAIRS, "{FEWEST_PAIRS} pairs at least");
    let [base, new, benches @ ..] = &arguments[..] else {
        bail!("usage: bench-compare BASE NEW [--pairs N] BENCH..")
    };
    ensure!(!benches.is_empty(), "name the benches to run");
    println!("machine: {}\n", Machine::here());
    println!("{:<44} {:>14} {:>14} {:>9} {:>9}", "row", "base", "new", "change", "spread");
    let mut larger = 0;
    for bench in benches {
        let mut runs = Vec::new();
        for pair in 0..pairs {
            eprint!("\r{bench}: pair {} of {pairs} ", pair + 1);
            runs.push([run(base, bench)?, run(new, bench)?, run(base, bench)?]);
        }
        eprint!("\r{:40}\r", "");
        for (name, pairs) in compare::pairs(&runs) {
            let row = Comparison::of(&pairs).context("there are pairs")?;
            println!(
                "{:<44} {:>14.3} {:>14.3} {:>+8.2}% {:>8.2}% {}",
                format!("{bench} {name}"),
                row.base,
                row.new,
                100.0 * (row.ratio - 1.0),
                100.0 * (row.spread - 1.0),
                row.difference(),
            );
            larger += usize::from(row.difference() == Difference::Larger);
        }
    }
    println!(
        "\n{larger} rows are larger in NEW by more than the spread of BASE against itself ({pairs} pairs)"
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs a bench once and returns its figures by name.
fn run(build: &str, bench: &str) -> Result<BTreeMap<String, f64>> {
    let folder = Path::new(build).canonicalize().with_context(|| format!("{build} is not a build"))?;
    let program: PathBuf = folder.join("release/deps").join(bench);
    let output = Command::new(&program)
        .arg("--bench")
        .args(SHORT)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}: {said}", program.display(), output.status);
    let records = record::of_file(&folder.join("bench").join(bench).with_extension("json"))?.1;
    Ok(records.into_iter().map(|one| (one.name, one.value)).collect())
}
