//! Time from the start of the process to the first attached event: `ks-host` with a warm and a cold cache,
//! compared with `perf stat` and `bpftrace`, where they are installed. Two more rows are lower bounds: a
//! process that only prints its line, and one that loads and attaches the same object with libbpf and does
//! nothing else.
//!
//! Each prints a line as soon as its event is attached (`perf stat` starts a command that does, bpftrace its
//! `BEGIN`), and the bench waits for that line. It reports tools that are not installed; `make bench`
//! installs them where it can. The figure is the median of several starts, of which each is between those of other
//! commands; the last column is the ratio to libbpf alone. Rows of a running host measure what it takes to read a plugin's
//! file, judge it, and run it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::{commands, faults};
use ks_host::plugin::{Cache, Outcome, Plugin};
use ks_host::worker::WorkerProgram;
use ks_host::{Host, RunOptions};
use perf_event::Builder;
use perf_event::events::Software;

/// Starts of each command per measurement; a test starts each once.
const STARTS: usize = 50;

/// The statements of a plugin after it has attached.
const THEN: &str = "print(\"attached\")\n    detach(faults)";

/// What is started: it prints a line once its event is attached.
struct Row {
    name: &'static str,
    /// The name in the records.
    short: &'static str,
    start: Start,
}

enum Start {
    /// A command, with its arguments.
    Command(Vec<OsString>),
    /// This plugin, in a host that runs already.
    Plugin(Box<Host>, PathBuf),
}

fn main() -> Result<()> {
    // Processes of this bench's hosts are this program, too.
    ks_host::worker::serve_if_asked();
    let starts = if record::is_measured() { STARTS } else { 1 };
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let rows = rows(folder.path())?;
    println!("machine: {}\n", Machine::here());
    // The first event of a task on the machine enables a part of the scheduler, which takes 4 ms, and a second after the
    // last one it is disabled again (kernel/events/core.c, `account_event` and `perf_sched_delayed`, v6.18). With other
    // commands between them, the same row would pay for that at each start.
    let _keeps_it_enabled = Builder::new(Software::DUMMY).build().context("cannot open an event")?;
    let times = alternating(&rows, starts)?;
    println!("{:<40} {:>12} {:>9}", "start to first attach", "median", "ratio");
    let mut libbpf = None;
    let mut records = Vec::new();
    for (row, times) in rows.iter().zip(times) {
        let Some(median) = median(times) else {
            println!("{:<40} {:>12}", row.name, "not installed");
            continue;
        };
        let ms = median.as_secs_f64() * 1e3;
        records.push(Record::new(format!("start/{}", row.short), ms, "ms"));
        if row.short == "libbpf" {
            libbpf = Some(ms);
        }
        let ratio = libbpf.map_or("-".to_owned(), |libbpf| format!("{:.2}x", ms / libbpf));
        println!("{:<40} {ms:>9.2} ms {ratio:>9}", row.name);
    }
    record::leave("startup", &records)
}

fn rows(folder: &Path) -> Result<Vec<Row>> {
    // As it is installed: the linker leaves its file in memory page by page, and a copy, or one that is read from a disk,
    // is there in larger pieces, which take fewer page faults.
    let host = folder.join("ks-host");
    std::fs::copy(commands::path("ks-host")?, &host)?;
    let cache = folder.join("cache");
    let script = folder.join("runs.ks");
    std::fs::write(&script, faults::with_program(THEN))?;
    let counts = faults::build(folder, "counts", &faults::counting(THEN))?;
    let runs = faults::build(folder, "runs", &faults::with_program(THEN))?;
    let object = folder.join("runs.bpf.o");
    std::fs::write(&object, faults::object(&faults::with_program(THEN))?)?;
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let with_cache = |options: &[&str], file: &Path| {
        let all = [vec![host.clone().into(), "--cache".into(), cache.clone().into()], words(options)];
        let mut all = all.concat();
        all.push(file.into());
        all
    };
    let in_host = |workers: Option<WorkerProgram>, file: &Path| {
        let host = workers.map_or_else(Host::new, |workers| Ok(Host::of_workers(workers)))?;
        let host = host.with_cache(Cache::open(&cache)?);
        anyhow::Ok(Start::Plugin(Box::new(host), file.to_owned()))
    };
    let row = |name, short, arguments| Row { name, short, start: Start::Command(arguments) };
    let on_thread = ["--isolation", "thread"];
    let perf_stat = ["perf", "stat", "-e", "page-faults", "-o", "/dev/null", "echo", "attached"];
    let bpftrace = ["bpftrace", "-e", "BEGIN { printf(\"attached\\n\"); exit(); }"];
    Ok(vec![
        row("a process that only prints", "echo", words(&["echo", "attached"])),
        row(
            "libbpf alone, with the BPF program",
            "libbpf",
            vec![env!("CARGO_BIN_EXE_bench-libbpf").into(), object.into()],
        ),
        row("ks-host, counting", "ks-host", with_cache(&[], &counts)),
        row("ks-host, with a BPF program", "ks-host-with-program", with_cache(&[], &runs)),
        row("ks-host, from the script", "ks-host-from-script", with_cache(&[], &script)),
        row(
            "ks-host, without cache",
            "ks-host-without-cache",
            vec![host.clone().into(), "--no-cache".into(), runs.clone().into()],
        ),
        row("on a thread, counting", "thread", with_cache(&on_thread, &counts)),
        row("on a thread, with a BPF program", "thread-with-program", with_cache(&on_thread, &runs)),
        Row {
            name: "in a running host, counting",
            short: "running",
            start: in_host(Some(WorkerProgram::of_this_program()), &counts)?,
        },
        Row {
            name: "in a running host, with a BPF program",
            short: "running-with-program",
            start: in_host(Some(WorkerProgram::of_this_program()), &runs)?,
        },
        Row {
            name: "in a running host, on a thread, program",
            short: "running-thread-with-program",
            start: in_host(None, &runs)?,
        },
        row("perf stat", "perf-stat", words(&perf_stat)),
        row("bpftrace", "bpftrace", words(&bpftrace)),
    ])
}

/// Returns the times of this many starts of each row; none of a command that is not installed. The rows alternate, so
/// that what slows the machine down for a while slows all of them. A start before the first fills caches.
fn alternating(rows: &[Row], starts: usize) -> Result<Vec<Vec<Duration>>> {
    let mut times = vec![Vec::new(); rows.len()];
    for start in 0..=starts {
        for (row, times) in rows.iter().zip(&mut times) {
            let time = match &row.start {
                Start::Command(words) => commands::until_attached(row.name, words)?,
                Start::Plugin(host, file) => Some(until_printed(host, file)?),
            };
            times.extend(time.filter(|_| start > 0));
        }
    }
    Ok(times)
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort();
    times.get(times.len() / 2).copied()
}

/// Sends the moment of its first line.
struct FirstLine(Sender<Instant>);

impl Write for FirstLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only the first one is waited for.
        let _ = self.0.send(Instant::now());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn until_printed(host: &Host, file: &Path) -> Result<Duration> {
    let (line, printed) = mpsc::channel();
    let began = Instant::now();
    let prepared = host.prepare(&Plugin::from_bytes(std::fs::read(file)?)?)?;
    let options = RunOptions { stdout: Box::new(FirstLine(line)), confine: true, ..RunOptions::new("bench") };
    let outcome = prepared.run(options);
    ensure!(outcome == Outcome::Returned(0), "{}: {outcome:?}", file.display());
    Ok(printed.recv().context("it prints a line")?.duration_since(began))
}
