//! Time from the start of each tool of `ks-host` to its first output, compiling included: with the cache that an earlier
//! start has filled, and without a cache, beside the start of bpftrace.
//!
//! A tool starts its command once its programs are attached, so the command's line is the first output of all of them.
//! Tools that do not run on this kernel are reported. The figure is the median of several starts. Needs root.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ks_benches::commands::{self, until_attached};
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use serde::Deserialize;

/// Starts of each command; a test starts every eighth tool once.
const STARTS: usize = 11;
const TESTED: usize = 8;
/// What 95 of 100 tools take at most, in milliseconds.
const PROMISED: f64 = 15.0;

/// The part of the list of tools that this bench takes.
#[derive(Deserialize)]
struct Tool {
    name: String,
}

fn main() -> Result<()> {
    let (starts, every) = if record::is_measured() { (STARTS, 1) } else { (1, TESTED) };
    let host = commands::path("ks-host")?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let listed = Command::new(&host).args(["tools", "--json"]).output().context("cannot start ks-host")?;
    let tools: Vec<Tool> = serde_json::from_slice(&listed.stdout).context("the list of tools is JSON")?;
    println!("machine: {}\n", Machine::here());
    println!("{:<40} {:>12} {:>12}", "start to first output", "warm", "cold");
    let cache: Vec<OsString> = vec!["--cache".into(), folder.path().join("cache").into()];
    let mut records = Vec::new();
    let mut warm_starts = Vec::new();
    for Tool { name } in tools.iter().step_by(every) {
        let start = |options: &[OsString]| {
            let mut words: Vec<OsString> = vec![host.clone().into(), "tool".into(), name.into()];
            words.extend_from_slice(options);
            words.extend(["--exec", "echo", "attached"].map(OsString::from));
            median(name, &words, starts)
        };
        let (warm, cold) = match start(&cache).and_then(|warm| Ok((warm, start(&["--no-cache".into()])?))) {
            Ok(times) => times,
            Err(error) => {
                let reason = error.to_string();
                println!("{name:<40} {}", reason.lines().next().unwrap_or_default());
                continue;
            }
        };
        println!("{name:<40} {warm:>9.2} ms {cold:>9.2} ms");
        records.push(Record::new(format!("tool/{name}/warm"), warm, "ms"));
        records.push(Record::new(format!("tool/{name}/cold"), cold, "ms"));
        warm_starts.push(warm);
    }
    ensure!(!warm_starts.is_empty(), "no tool has run");
    let bpftrace = ["bpftrace", "-e", "BEGIN { printf(\"attached\\n\"); exit(); }"].map(OsString::from);
    match median("bpftrace", &bpftrace, starts) {
        Ok(time) => {
            println!("{:<40} {time:>9.2} ms", "bpftrace");
            records.push(Record::new("tool/slowest-of-95/bpftrace", time, "ms"));
        }
        Err(error) => println!("{:<40} {error}", "bpftrace"),
    }
    warm_starts.sort_by(f64::total_cmp);
    let within = warm_starts.iter().filter(|time| **time <= PROMISED).count();
    println!("\n{within} of {} warm starts take at most {PROMISED} ms", warm_starts.len());
    if let Some(slowest) = warm_starts.get((warm_starts.len() * 95).div_ceil(100) - 1) {
        records.push(Record::new("tool/slowest-of-95/warm", *slowest, "ms"));
        records.push(Record::new("tool/slowest-of-95/promised", PROMISED, "ms"));
    }
    record::leave("tools", &records)
}

/// Returns the median of this many starts, in milliseconds. An earlier start fills caches.
fn median(name: &str, words: &[OsString], starts: usize) -> Result<f64> {
    let mut times = Vec::new();
    for start in 0..=starts {
        let time = until_attached(name, words)?.context("it is not installed")?;
        if start > 0 {
            times.push(time.as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("it was started")
}
