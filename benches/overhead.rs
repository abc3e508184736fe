//! The cost of observation for the observed program: one that takes page faults and sleeps, alone, and while
//! a plugin, `perf stat` or bpftrace counts its faults and context switches. A tool that is not installed is
//! left out.
//!
//! There are two kinds: counters of the kernel, which run no program (a plugin, `perf stat`), and a program
//! at every event (a plugin, bpftrace). The figure is the CPU time of the observed loop divided by that of
//! the unobserved loop in the same repetition; the median over several repetitions. Needs root.

use std::ffi::OsString;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ks_benches::machine::Machine;
use ks_benches::record::{self, Record};
use ks_benches::{commands, faults};
use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// Repetitions of a measurement; a test runs one.
const REPETITIONS: usize = 15;
/// The argument that makes this program the observed one.
const WATCHED: &str = "--watched";
/// The first output of the observed program.
const SAID: &str = "watched ";
/// Number of sleeps; each causes at least one context switch.
const SLEEPS: i64 = 1000;
/// Bytes that the observed program allocates, the distance of its writes, and its number of allocations. An
/// allocation is larger than an allocator keeps, so its pages are fresh.
const BYTES: usize = 64 << 20;
const PAGE: usize = 4096;
const ITERATIONS: usize = 4;

const COUNTING: &str = "\
fn main() -> i32 {
    var faults = attach(perf_options { event: page_faults, command: true, cpu: -1 })
    var switches = attach(perf_options { event: context_switches, command: true, cpu: -1, group: faults })
    while (!stopping()) {
        sleep(1000)
    }
    print(\"counted %llu %llu\", read(faults).raw, read(switches).raw)
    return 0
}
";

const AT_EVERY_EVENT: &str = "\
var faults : u64 = 0
var switches : u64 = 0

@perf_event
fn on_fault(ctx: *bpf_perf_event_data) -> i32 {
    faults += 1
    return 0
}

@perf_event
fn on_switch(ctx: *bpf_perf_event_data) -> i32 {
    switches += 1
    return 0
}

fn main() -> i32 {
    var at_fault = load(on_fault)
    var at_switch = load(on_switch)
    var one = attach(at_fault, perf_options { event: page_faults, command: true, cpu: -1, period: 1 }, 0)
    var other = attach(at_switch, \
perf_options { event: context_switches, command: true, cpu: -1, period: 1 }, 0)
    while (!stopping()) {
        sleep(1000)
    }
    print(\"counted %llu %llu\", faults, switches)
    detach(one)
    detach(other)
    return 0
}
";

/// An observing tool: its arguments before those of the observed program.
struct Row {
    name: &'static str,
    /// The name in the records.
    short: &'static str,
    arguments: Vec<OsString>,
}

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == WATCHED) {
        return watched();
    }
    let repetitions = if record::is_measured() { REPETITIONS } else { 1 };
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    println!("machine: {}\n", Machine::here());
    println!("{:<40} {:>12} {:>10}", "a program of faults and sleeps under", "median", "more than");
    println!("{:<40} {:>12} {:>10}", "", "", "alone");
    let mut records = Vec::new();
    for row in rows(folder.path())? {
        let mut measured = Vec::new();
        for _ in 0..repetitions {
            let alone = run(&[])?.context("this program is there")?;
            let Some(watched_time) = run(&row.arguments)? else { break };
            measured.push((watched_time.as_secs_f64() / alone.as_secs_f64(), watched_time));
        }
        measured.sort_by(|one, other| one.0.total_cmp(&other.0));
        let Some((ratio, time)) = measured.get(measured.len() / 2) else {
            println!("{:<40} {:>12}", row.name, "not installed");
            continue;
        };
        let ms = time.as_secs_f64() * 1e3;
        println!("{:<40} {ms:>9.1} ms {:>8.2} %", row.name, (ratio - 1.0) * 100.0);
        let record = |who, value| Record::new(format!("watched/{}/{who}", row.short), value, "ms");
        records.extend([record("beside", ms), record("alone", ms / ratio)]);
    }
    record::leave("overhead", &records)
}

fn rows(folder: &Path) -> Result<Vec<Row>> {
    let host = commands::path("ks-host")?;
    let counting = faults::build(folder, "counting", COUNTING)?;
    let programs = faults::build(folder, "programs", AT_EVERY_EVENT)?;
    let plugin = |file: &Path| vec![host.clone().into(), "--no-cache".into(), file.into(), "--exec".into()];
    let arguments = |arguments: &[&str]| arguments.iter().map(OsString::from).collect::<Vec<_>>();
    let program = "software:page-faults:1 /pid == cpid/ { @faults = count(); } \
                   software:context-switches:1 /pid == cpid/ { @switches = count(); }";
    Ok(vec![
        Row { name: "nothing", short: "nothing", arguments: Vec::new() },
        Row { name: "ks-host, counters", short: "ks-host-counters", arguments: plugin(&counting) },
        Row {
            name: "perf stat, counters",
            short: "perf-stat",
            arguments: arguments(&["perf", "stat", "-e", "page-faults,context-switches", "-o", "/dev/null"]),
        },
        Row {
            name: "ks-host, a program at every event",
            short: "ks-host-programs",
            arguments: plugin(&programs),
        },
        Row {
            name: "bpftrace, a program at every event",
            short: "bpftrace",
            arguments: arguments(&["bpftrace", "-e", program, "-c"]),
        },
    ])
}

/// Runs the observed program, prefixed by these arguments if there are any, and returns the time that it
/// prints. None if the observing tool is not installed.
fn run(arguments: &[OsString]) -> Result<Option<Duration>> {
    let own = std::env::current_exe()?;
    // bpftrace takes the command as one argument.
    let takes_one_argument = arguments.last().is_some_and(|argument| argument == "-c");
    let watched = if takes_one_argument {
        vec![OsString::from(format!("{} {WATCHED}", own.display()))]
    } else {
        vec![own.into(), WATCHED.into()]
    };
    let all: Vec<_> = arguments.iter().chain(&watched).collect();
    let output = match Command::new(all[0]).args(&all[1..]).stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        output => output.with_context(|| format!("cannot start {}", all[0].display()))?,
    };
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} ended with {}: {said}", all[0].display(), output.status);
    let line = printed.lines().find_map(|line| line.strip_prefix(SAID));
    let nanos = line.with_context(|| format!("{}: {printed}{said}", all[0].display()))?;
    Ok(Some(Duration::from_nanos(nanos.parse()?)))
}

/// Takes faults and sleeps, and prints the CPU time of doing so.
fn watched() -> Result<()> {
    prctl::set_thp_disable(true).context("cannot ask for small pages")?;
    let faults = || getrusage(UsageWho::RUSAGE_SELF).map(|usage| usage.minor_page_faults());
    let now = || clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from);
    let (faults_before, before) = (faults()?, now()?);
    for _ in 0..ITERATIONS {
        let mut memory = vec![0_u8; BYTES];
        memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        black_box(memory);
    }
    for _ in 0..SLEEPS {
        std::thread::sleep(Duration::from_nanos(1));
    }
    let taken = now()? - before;
    let pages = (ITERATIONS * BYTES / PAGE) as i64;
    ensure!(faults()? - faults_before >= pages, "fewer faults than pages");
    println!("{SAID}{}", taken.as_nanos());
    Ok(())
}
