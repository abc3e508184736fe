//! Time from the start of each tool of `ks-host` to its first output, beside the start of bpftrace: `again`, with the cache
//! that an earlier start of it has filled; `compiled`, as a script with a new text each time, where the cache has the
//! kernel's types; and `cold`, without a cache.
//!
//! A tool starts its command once its programs are attached, so the command's line is the first output of all of them.
//! Tools that do not run on this kernel are reported. The figure is the median of several starts. Needs root.

use std::ffi::{OsStr, OsString};
use std::path::Path;
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
    println!("{:<40} {:>12} {:>12} {:>12}", "start to first output", "again", "compiled", "cold");
    let cache = folder.path().join("cache");
    let mut records = Vec::new();
    let mut warm_starts = Vec::new();
    for Tool { name } in tools.iter().step_by(every) {
        let times = match Times::measure(&host, &cache, name, starts) {
            Ok(times) => times,
            Err(error) => {
                let reason = error.to_string();
                println!("{name:<40} {}", reason.lines().next().unwrap_or_default());
                continue;
            }
        };
        let Times { again, compiled, cold } = times;
        println!("{name:<40} {again:>9.2} ms {compiled:>9.2} ms {cold:>9.2} ms");
        for (how, time) in [("again", again), ("compiled", compiled), ("cold", cold)] {
            records.push(Record::new(format!("tool/{name}/{how}"), time, "ms"));
        }
        warm_starts.push(again);
    }
    ensure!(!warm_starts.is_empty(), "no tool has run");
    let bpftrace = ["bpftrace", "-e", "BEGIN { printf(\"attached\\n\"); exit(); }"].map(OsString::from);
    match median("bpftrace", starts, |_| bpftrace.to_vec()) {
        Ok(time) => {
            println!("{:<40} {time:>9.2} ms", "bpftrace");
            records.push(Record::new("tool/slowest-of-95/bpftrace", time, "ms"));
        }
        Err(error) => println!("{:<40} {error}", "bpftrace"),
    }
    warm_starts.sort_by(f64::total_cmp);
    let within = warm_starts.iter().filter(|time| **time <= PROMISED).count();
    println!("\n{within} of {} tools, started again, are attached in {PROMISED} ms", warm_starts.len());
    if let Some(slowest) = warm_starts.get((warm_starts.len() * 95).div_ceil(100) - 1) {
        records.push(Record::new("tool/slowest-of-95/again", *slowest, "ms"));
        records.push(Record::new("tool/slowest-of-95/promised", PROMISED, "ms"));
    }
    record::leave("tools", &records)
}

/// Times of a tool, in milliseconds.
struct Times {
    again: f64,
    compiled: f64,
    cold: f64,
}

impl Times {
    fn measure(host: &Path, cache: &Path, name: &str, starts: usize) -> Result<Times> {
        let listed = Command::new(host).args(["tools", name, "--source"]).output()?;
        let source = String::from_utf8(listed.stdout)?;
        let words = |first: &[&str], options: &[&OsStr]| {
            let mut words = vec![host.as_os_str().to_owned()];
            words.extend(first.iter().map(OsString::from));
            words.extend(options.iter().map(OsString::from));
            words.extend(["--exec", "echo", "attached"].map(OsString::from));
            words
        };
        let (cached, uncached) = ([OsStr::new("--cache"), cache.as_os_str()], [OsStr::new("--no-cache")]);
        Ok(Times {
            again: median(name, starts, |_| words(&["tool", name], &cached))?,
            compiled: median(name, starts, |start| {
                words(&["-e", &format!("{source}\n// {start}\n")], &cached)
            })?,
            cold: median(name, starts, |_| words(&["tool", name], &uncached))?,
        })
    }
}

/// Returns the median of this many starts, in milliseconds. An earlier start fills caches.
fn median(name: &str, starts: usize, words: impl Fn(usize) -> Vec<OsString>) -> Result<f64> {
    let mut times = Vec::new();
    for start in 0..=starts {
        let time = until_attached(name, &words(start))?.context("it is not installed")?;
        if start > 0 {
            times.push(time.as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("it was started")
}
