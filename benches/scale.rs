//! The cost of many plugins in one `ks-host`: memory and time for each, and how both grow with their number.
//!
//! Memory is the process's proportional share (Pss), less that of a process with one plugin, divided by the
//! number of plugins beyond the first. Time is from the start of the process until all plugins have attached,
//! with a warm cache. Every plugin has a kernel half and an attached event. Needs root.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::{commands, faults};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Numbers of concurrent plugins.
const PLUGINS: [usize; 3] = [10, 100, 1000];
/// The same in a test.
const FEW: [usize; 1] = [2];
/// Number of different plugin files.
const FILES: usize = 8;

/// Returns a script that prints a line once it has attached, then waits until it is stopped.
fn script(number: usize) -> String {
    faults::with_program(&format!("print(\"plugin {number} counts\")\n    sleep(600000)\n    detach(faults)"))
}

/// Resources that this many plugins used together.
struct Usage {
    bytes: u64,
    time: Duration,
}

fn main() -> Result<()> {
    println!("machine: {}\n", Machine::here());
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let files = (0..FILES)
        .map(|number| faults::build(folder.path(), &format!("scale{number}"), &script(number)))
        .collect::<Result<Vec<_>>>()?;
    let run = |plugins: usize| run(folder.path(), files.iter().cycle().take(plugins).cloned().collect());
    // Warms the cache with every file.
    run(FILES)?;
    let one = run(1)?;
    println!("{:>8} {:>16} {:>16}", "plugins", "memory of each", "time of each");
    println!("{:>8} {:>12} KiB {:>13.2} ms", 1, one.bytes >> 10, one.time.as_secs_f64() * 1e3);
    let mut records = Vec::new();
    for plugins in if record::is_measured() { &PLUGINS[..] } else { &FEW } {
        let all = run(*plugins)?;
        let more = *plugins as f64 - 1.0;
        let bytes = all.bytes.saturating_sub(one.bytes) as f64 / more;
        let ms = all.time.saturating_sub(one.time).as_secs_f64() * 1e3 / more;
        println!("{plugins:>8} {:>12.0} KiB {ms:>13.2} ms", bytes / 1024.0);
        let record =
            |what, who, value, unit| Record::new(format!("{what}/{plugins}-plugins/{who}"), value, unit);
        records.extend([
            record("memory", "plugin", bytes, "bytes"),
            record("memory", "mebibyte", f64::from(1 << 20), "bytes"),
            record("start", "plugin", ms, "ms"),
            record("start", "first-plugin", one.time.as_secs_f64() * 1e3, "ms"),
        ]);
    }
    record::leave("scale", &records)
}

/// Runs the files in one process until all have attached, and measures time and memory.
fn run(folder: &std::path::Path, files: Vec<PathBuf>) -> Result<Usage> {
    let began = Instant::now();
    let mut child = Command::new(commands::path("ks-host")?)
        .arg("--cache")
        .arg(folder.join("cache"))
        .args(&files)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("cannot start ks-host")?;
    // Closing the pipe would ask the plugins to stop: it stays open until they have ended.
    let mut stdout = BufReader::new(child.stdout.take().context("piped")?);
    let attached = wait_for_lines(&mut stdout, files.len());
    let time = began.elapsed();
    let bytes = attached.and_then(|()| memory(child.id()));
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
    let status = child.wait()?;
    ensure!(bytes.is_err() || status.success(), "ks-host ended with {status}");
    Ok(Usage { bytes: bytes?, time })
}

fn wait_for_lines(stdout: &mut impl BufRead, lines: usize) -> Result<()> {
    for index in 0..lines {
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        ensure!(line.ends_with(" counts\n"), "line {index} of {lines}: {line:?}");
    }
    Ok(())
}

/// Returns the process's memory in bytes: anonymous memory, and its share of mapped files.
fn memory(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find(|line| line.starts_with("Pss:")).context("the kernel says the share")?;
    let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib << 10)
}
