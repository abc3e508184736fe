//! The cost of sampling for the sampled program: a loop that keeps a CPU busy, alone and while a profiler
//! takes the stacks of all CPUs 99 and 999 times a second: `profile.ks`, `perf record -a -g`, and bpftrace,
//! as far as they are installed.
//!
//! The figure is the CPU time of the loop's thread, interrupts included, divided by that of the undisturbed
//! loop in the same repetition; the median over several repetitions. Needs root.

use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ks_benches::commands;
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Repetitions of a measurement; a test runs one.
const REPETITIONS: usize = 9;

/// Samples a second; a test takes the first.
const FREQUENCIES: [u32; 2] = [99, 999];

/// Iterations of the busy loop: some tenths of a second.
const ITERATIONS: u64 = 200_000_000;

/// Time for a profiler to start sampling; bpftrace compiles first.
const START: Duration = Duration::from_millis(1500);

/// A profiler: its name and arguments.
struct Row {
    name: String,
    arguments: Vec<String>,
}

fn main() -> Result<()> {
    let (repetitions, frequencies) =
        if record::is_measured() { (REPETITIONS, &FREQUENCIES[..]) } else { (1, &FREQUENCIES[..1]) };
    let mut records = Vec::new();
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    println!("machine: {}\n", Machine::here());
    println!("{:<28} {:>12} {:>10}", "a busy loop beside", "median", "more than");
    println!("{:<28} {:>12} {:>10}", "", "", "alone");
    for row in rows(folder.path(), frequencies)? {
        let mut measured = Vec::new();
        for _ in 0..repetitions {
            let alone = busy();
            let Some(profiler) = start(&row)? else { break };
            let began = Instant::now();
            while began.elapsed() < START {
                busy();
            }
            let profiled_time = busy();
            stop(profiler)?;
            measured.push((profiled_time / alone, profiled_time));
        }
        measured.sort_by(|one, other| one.0.total_cmp(&other.0));
        match measured.get(measured.len() / 2) {
            Some((ratio, time)) => {
                let name = format!("sampled/{}", row.name.replace(", ", "-").replace(' ', "-"));
                records.push(Record::new(format!("{name}/beside"), time * 1e9, "ns"));
                records.push(Record::new(format!("{name}/alone"), time / ratio * 1e9, "ns"));
                println!("{:<28} {:>9.1} ms {:>8.2} %", row.name, time * 1e3, (ratio - 1.0) * 100.0);
            }
            None => println!("{:<28} {:>12}", row.name, "not installed"),
        }
    }
    record::leave("sampling", &records)
}

fn rows(folder: &Path, frequencies: &[u32]) -> Result<Vec<Row>> {
    let host = commands::path("ks-host")?.display().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/perf/profile.ks");
    let script = script.display().to_string();
    let data = folder.join("perf.data").display().to_string();
    let folded = format!("folded={}", folder.join("folded").display());
    let row =
        |name: &str, freq: u32, arguments: Vec<String>| Row { name: format!("{name}, {freq} Hz"), arguments };
    let arguments =
        |arguments: &[&str]| arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
    let mut rows = vec![Row { name: "nothing".into(), arguments: arguments(&["sleep", "60"]) }];
    for freq in frequencies.iter().copied() {
        let of_script = format!("--freq={freq}");
        rows.push(row("ks-host", freq, arguments(&[&host, "--stacks", &folded, &script, "--", &of_script])));
        let of_perf = freq.to_string();
        let perf = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", &of_perf, "-o", &data];
        rows.push(row("perf record", freq, arguments(&perf)));
        let program = format!("profile:hz:{freq} {{ @[kstack, ustack, comm] = count(); }}");
        rows.push(row("bpftrace", freq, arguments(&["bpftrace", "-o", "/dev/null", "-e", &program])));
    }
    Ok(rows)
}

/// Starts a profiler; returns none if it is not installed.
fn start(row: &Row) -> Result<Option<Child>> {
    let (program, arguments) = row.arguments.split_first().context("a command has a name")?;
    let command = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match command {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        child => child.map(Some).with_context(|| format!("cannot start {}", row.name)),
    }
}

fn stop(mut profiler: Child) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(profiler.id())?);
    kill(pid, Signal::SIGINT).context("the profiler has ended by itself")?;
    profiler.wait()?;
    Ok(())
}

/// Keeps the CPU busy, and returns the thread's CPU time for it in seconds.
fn busy() -> f64 {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    let before = now();
    let mut sum = 0_u64;
    for iteration in 0..ITERATIONS {
        sum = sum.wrapping_add(black_box(iteration));
    }
    assert_eq!(sum, ITERATIONS / 2 * (ITERATIONS - 1));
    (now() - before).as_secs_f64()
}
