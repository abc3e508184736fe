//! From the start of the process to the first attached event: `ks-host` beside `perf stat` and `bpftrace`, where they are
//! installed.
//!
//! Each prints a line as soon as its event is attached (`perf stat` starts a command that does, bpftrace its `BEGIN`), and
//! that line is waited for. What is not installed is said to be; `make bench` installs it where it can. The figure is the
//! median of several starts; the last column is the median beside that of the first row.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ks_benches::commands;
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_compiler::pipeline::{self, Options, Target};

/// Starts of each in a measurement; a test starts each once.
const STARTS: usize = 50;

/// Counts its own page faults, without a kernel half.
const COUNTS: &str = "\
fn main() -> i32 {
    var faults = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })
    print(\"attached\")
    detach(faults)
    return 0
}
";

/// The same, with a program that runs at every hundred millionth.
const RUNS: &str = "\
var hits : u64 = 0

@perf_event
fn on_fault(ctx: *bpf_perf_event_data) -> i32 {
    hits += 1
    return 0
}

fn main() -> i32 {
    var program = load(on_fault)
    var faults = attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 100000000 }, 0)
    print(\"attached\")
    detach(faults)
    return 0
}
";

/// A command that prints a line once its event is attached.
struct Row {
    name: &'static str,
    /// In the records.
    short: &'static str,
    words: Vec<OsString>,
}

fn main() -> Result<()> {
    let starts = if record::is_measured() { STARTS } else { 1 };
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let rows = rows(folder.path())?;
    println!("{}\n", Machine::here());
    println!("{:<36} {:>12} {:>9}", "start to first attach", "median", "ratio");
    let mut first = None;
    let mut records = Vec::new();
    for row in rows {
        let Some(median) = median(&row, starts)? else {
            println!("{:<36} {:>12}", row.name, "not installed");
            continue;
        };
        let ms = median.as_secs_f64() * 1e3;
        records.push(Record::new(format!("start/{}", row.short), ms, "ms"));
        let ratio = ms / *first.get_or_insert(ms);
        println!("{:<36} {ms:>9.2} ms {ratio:>8.2}x", row.name);
    }
    record::leave("startup", &records)
}

fn rows(folder: &Path) -> Result<Vec<Row>> {
    let host = commands::path("ks-host")?;
    let cache = folder.join("cache");
    let script = folder.join("runs.ks");
    std::fs::write(&script, RUNS)?;
    let counts = plugin(folder, "counts", COUNTS)?;
    let runs = plugin(folder, "runs", RUNS)?;
    let with_cache =
        |file: &Path| vec![host.clone().into(), "--cache".into(), cache.clone().into(), OsString::from(file)];
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    Ok(vec![
        Row { name: "ks-host, counting", short: "ks-host", words: with_cache(&counts) },
        Row { name: "ks-host, with a BPF program", short: "ks-host-with-program", words: with_cache(&runs) },
        Row { name: "ks-host, from the script", short: "ks-host-from-script", words: with_cache(&script) },
        Row {
            name: "ks-host, without cache",
            short: "ks-host-without-cache",
            words: vec![host.into(), "--no-cache".into(), runs.into()],
        },
        Row {
            name: "perf stat",
            short: "perf-stat",
            words: words(&["perf", "stat", "-e", "page-faults", "-o", "/dev/null", "echo", "attached"]),
        },
        Row {
            name: "bpftrace",
            short: "bpftrace",
            words: words(&["bpftrace", "-e", "BEGIN { printf(\"attached\\n\"); exit(); }"]),
        },
    ])
}

fn plugin(folder: &Path, name: &str, script: &str) -> Result<PathBuf> {
    let mut checked = pipeline::parse(&format!("{name}.ks"), script.as_bytes(), Options::new(name))?.check();
    let built =
        checked.build(Target::default().for_users()).map_err(|_| anyhow::anyhow!("{name}.ks has errors"))?;
    let file = folder.join(name).with_extension("wasm");
    std::fs::write(&file, built.plugin)?;
    Ok(file)
}

/// The median over so many starts; none if the command is not installed. One start before them fills caches.
fn median(row: &Row, starts: usize) -> Result<Option<Duration>> {
    let mut times = Vec::new();
    for start in 0..=starts {
        let Some(time) = until_first_line(row)? else { return Ok(None) };
        if start > 0 {
            times.push(time);
        }
    }
    times.sort();
    Ok(times.get(times.len() / 2).copied())
}

fn until_first_line(row: &Row) -> Result<Option<Duration>> {
    let (program, words) = row.words.split_first().context("a command has a name")?;
    let began = Instant::now();
    let mut command = Command::new(program);
    let pipes = command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = pipes.spawn();
    let mut child = match child {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        child => child.with_context(|| format!("cannot start {}", row.name))?,
    };
    let mut stdout = child.stdout.take().context("it was piped")?;
    // bpftrace says first how many probes it attaches.
    let mut printed = Vec::new();
    while !String::from_utf8_lossy(&printed).contains("attached") {
        let mut byte = [0];
        ensure!(stdout.read(&mut byte)? == 1, "{} ended without its line", row.name);
        printed.push(byte[0]);
    }
    let time = began.elapsed();
    std::io::copy(&mut stdout, &mut std::io::sink())?;
    // What is said beside it matters only if it fails: bpftrace warns wherever a limit may not be raised.
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}: {said}", row.name, output.status);
    Ok(Some(time))
}
