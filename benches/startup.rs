//! Time from the start of the process to the first attached event: `ks-host` with a warm and a cold cache,
//! compared with `perf stat` and `bpftrace`, where they are installed. Two more rows are lower bounds: a
//! process that only prints its line, and one that loads and attaches the same object with libbpf and does
//! nothing else.
//!
//! Each prints a line as soon as its event is attached (`perf stat` starts a command that does, bpftrace its
//! `BEGIN`), and the bench waits for that line. It reports tools that are not installed; `make bench`
//! installs them where it can. The figure is the median of several starts; the last column is the ratio to
//! the first row of `ks-host`.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ks_benches::baseline::perf::page_faults;
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::{commands, faults};
use libbpf_rs::ObjectBuilder;

/// Starts of each command per measurement; a test starts each once.
const STARTS: usize = 50;

/// The statements of a plugin after it has attached.
const THEN: &str = "print(\"attached\")\n    detach(faults)";

/// The argument that makes this program the one with libbpf; the object's file follows.
const WITH_LIBBPF: &str = "--with-libbpf";

/// A command that prints a line once its event is attached.
struct Row {
    name: &'static str,
    /// The name in the records.
    short: &'static str,
    arguments: Vec<OsString>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, argument, object] = &arguments[..]
        && argument == WITH_LIBBPF
    {
        return attach_with_libbpf(Path::new(object));
    }
    let starts = if record::is_measured() { STARTS } else { 1 };
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let rows = rows(folder.path())?;
    println!("machine: {}\n", Machine::here());
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
        if row.short == "ks-host" {
            first = Some(ms);
        }
        let ratio = first.map_or("-".to_owned(), |first| format!("{:.2}x", ms / first));
        println!("{:<36} {ms:>9.2} ms {ratio:>9}", row.name);
    }
    record::leave("startup", &records)
}

fn rows(folder: &Path) -> Result<Vec<Row>> {
    let host = commands::path("ks-host")?;
    let cache = folder.join("cache");
    let script = folder.join("runs.ks");
    std::fs::write(&script, faults::with_program(THEN))?;
    let counts = faults::build(folder, "counts", &faults::counting(THEN))?;
    let runs = faults::build(folder, "runs", &faults::with_program(THEN))?;
    let object = folder.join("runs.bpf.o");
    std::fs::write(&object, faults::object(&faults::with_program(THEN))?)?;
    let with_cache =
        |file: &Path| vec![host.clone().into(), "--cache".into(), cache.clone().into(), OsString::from(file)];
    let arguments = |arguments: &[&str]| arguments.iter().map(OsString::from).collect::<Vec<_>>();
    Ok(vec![
        Row {
            name: "a process that only prints",
            short: "echo",
            arguments: arguments(&["echo", "attached"]),
        },
        Row {
            name: "libbpf alone, with the BPF program",
            short: "libbpf",
            arguments: vec![std::env::current_exe()?.into(), WITH_LIBBPF.into(), object.into()],
        },
        Row { name: "ks-host, counting", short: "ks-host", arguments: with_cache(&counts) },
        Row {
            name: "ks-host, with a BPF program",
            short: "ks-host-with-program",
            arguments: with_cache(&runs),
        },
        Row {
            name: "ks-host, from the script",
            short: "ks-host-from-script",
            arguments: with_cache(&script),
        },
        Row {
            name: "ks-host, without cache",
            short: "ks-host-without-cache",
            arguments: vec![host.into(), "--no-cache".into(), runs.into()],
        },
        Row {
            name: "perf stat",
            short: "perf-stat",
            arguments: arguments(&[
                "perf",
                "stat",
                "-e",
                "page-faults",
                "-o",
                "/dev/null",
                "echo",
                "attached",
            ]),
        },
        Row {
            name: "bpftrace",
            short: "bpftrace",
            arguments: arguments(&["bpftrace", "-e", "BEGIN { printf(\"attached\\n\"); exit(); }"]),
        },
    ])
}

/// Loads and attaches with libbpf alone, as the host does for a plugin with a program.
fn attach_with_libbpf(object: &Path) -> Result<()> {
    let object = ObjectBuilder::default().open_file(object)?.load()?;
    let program = object.progs_mut().next().context("the object has a program")?;
    let _link = program.attach_perf_event(page_faults()?.into_raw_fd())?;
    println!("attached");
    Ok(())
}

/// Returns the median over this many starts, or none if the command is not installed. An earlier start fills
/// caches.
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
    let (program, arguments) = row.arguments.split_first().context("a command has a name")?;
    let began = Instant::now();
    let mut command = Command::new(program);
    let pipes = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = pipes.spawn();
    let mut child = match child {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        child => child.with_context(|| format!("cannot start {}", row.name))?,
    };
    let mut stdout = child.stdout.take().context("it was piped")?;
    // bpftrace first prints how many probes it attaches.
    let mut printed = Vec::new();
    while !String::from_utf8_lossy(&printed).contains("attached") {
        let mut byte = [0];
        ensure!(stdout.read(&mut byte)? == 1, "{} ended without its line", row.name);
        printed.push(byte[0]);
    }
    let time = began.elapsed();
    std::io::copy(&mut stdout, &mut std::io::sink())?;
    // Standard error matters only if the command fails: bpftrace warns wherever a limit may not be raised.
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} ended with {}: {said}", row.name, output.status);
    Ok(Some(time))
}
