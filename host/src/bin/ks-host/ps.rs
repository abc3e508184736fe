//! `ks-host ps`: lists running plugins, their attachments, and how often and how long their programs ran.
//!
//! All of it is read from the kernel: a plugin's thread has its name, and the process's descriptors are its
//! programs, links and events. So no state is kept that could become stale. A thread's name alone proves
//! nothing, since any user may choose it. So a process is listed only if it runs this program's file or holds
//! descriptors of BPF or perf, and its user is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ks_host::bpf::statistics::{CountedRuns, Registered, Statistics, counted, registered};
use ks_host::plugin::THREAD_PREFIX;
use ks_host::text::visible;
use ks_wit::command_output::{write_json, write_lines, write_stderr};
use serde::Serialize;

use crate::{output, progress, run};

/// Arguments of `ks-host ps`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ks-host ps\n  ks-host ps --json --seconds 0.2")]
pub(crate) struct Args {
    /// For how long to count the programs' runs; the kernel does not count them by default.
    #[arg(long, value_name = "TIME", value_parser = run::time, default_value = "1")]
    seconds: Duration,
    /// Writes JSON, for tools.
    #[arg(long)]
    json: bool,
}

/// Most bytes of a name that are shown.
const MAX_NAME_BYTES: usize = 256;

/// A process that runs plugins.
#[derive(Serialize)]
struct Process {
    pid: u32,
    /// Effective user id.
    user: u32,
    /// The plugins' names, which the kernel truncates to the thread name's length.
    plugins: Vec<String>,
    /// Number of open perf events.
    events: usize,
    /// The struct_ops maps that are registered with the kernel: `NAME (STRUCT)`.
    registered: Vec<String>,
    programs: Vec<Program>,
}

#[derive(Serialize)]
struct Program {
    id: u32,
    name: String,
    kind: String,
    /// The types of its links, each with its target if the kernel reports it.
    attached: Vec<String>,
    /// Number of runs in the counted seconds; null if the kernel refused to count.
    runs: Option<u64>,
    time_ns: Option<u64>,
    missed: Option<u64>,
}

/// Lists the processes. The exit code is 0 even if there are none.
pub(crate) fn ps(args: &Args) -> anyhow::Result<u8> {
    let mut processes = processes();
    let ids: BTreeSet<u32> =
        processes.iter().flat_map(|process| &process.programs).map(|program| program.id).collect();
    let began = Instant::now();
    let runs = progress::during("counting", || count(&ids, args.seconds));
    let seconds = began.elapsed().as_secs_f64();
    for program in processes.iter_mut().flat_map(|process| &mut process.programs) {
        let Some((before, after)) = runs.get(&program.id) else { continue };
        program.name.clone_from(&after.name);
        program.kind = after.kind.to_string();
        program.runs = Some(after.runs.saturating_sub(before.runs));
        program.time_ns = Some(after.run_time_ns.saturating_sub(before.run_time_ns));
        let missed = before.missed.zip(after.missed);
        program.missed = missed.map(|(before, after)| after.saturating_sub(before));
    }
    if args.json {
        write_json(&processes)?
    } else {
        write_lines(&text(&processes, seconds))?
    }
    Ok(0)
}

/// Counts the runs of these programs for this time. Programs that cannot be counted are left out; a line on
/// standard error gives the reason.
fn count(ids: &BTreeSet<u32>, seconds: Duration) -> BTreeMap<u32, (CountedRuns, CountedRuns)> {
    if ids.is_empty() {
        return BTreeMap::new();
    }
    let statistics = match Statistics::enable() {
        Ok(statistics) => statistics,
        Err(error) => {
            write_stderr(format_args!("ks-host: runs are not counted: {error}; it takes CAP_SYS_ADMIN"));
            return BTreeMap::new();
        }
    };
    let all = || ids.iter().filter_map(|id| Some((*id, counted(*id).ok()?))).collect::<BTreeMap<_, _>>();
    let before = all();
    std::thread::sleep(seconds);
    let mut after = all();
    drop(statistics);
    before.into_iter().filter_map(|(id, before)| Some((id, (before, after.remove(&id)?)))).collect()
}

/// The processes that run plugins, by pid.
fn processes() -> Vec<Process> {
    let Ok(listed) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<Process> = pids.filter_map(process).collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn process(pid: u32) -> Option<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    let mut plugins: Vec<String> = fs::read_dir(folder.join("task"))
        .ok()?
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .filter_map(|name| Some(name.trim_end().strip_prefix(THREAD_PREFIX)?.to_owned()))
        .collect();
    if plugins.is_empty() {
        return None;
    }
    plugins.sort();
    let descriptors = descriptors(&folder);
    let holds = |one: &Descriptor| one.kind.contains("bpf") || one.kind.contains("perf_event");
    if !is_this_program(&folder) && !descriptors.iter().any(holds) {
        return None;
    }
    let user = fs::metadata(&folder).ok()?.uid();
    let of = |kind: &'static str| descriptors.iter().filter(move |one| one.kind.contains(kind));
    let number = |one: &Descriptor, name: &str| one.facts.get(name)?.parse::<u32>().ok();
    let mut attached: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut structs = Vec::new();
    for link in of("bpf_link").chain(of("bpf-link")) {
        if link.facts.get("link_type").is_some_and(|kind| kind == "struct_ops") {
            structs.extend(number(link, "map_id").map(registered_text));
        } else if let Some(program) = number(link, "prog_id") {
            attached.entry(program).or_default().push(link_text(&link.facts));
        }
    }
    let ids: BTreeSet<u32> = of("bpf-prog").filter_map(|one| number(one, "prog_id")).collect();
    let program = |id: u32| Program {
        id,
        name: format!("program {id}"),
        kind: String::new(),
        attached: attached.remove(&id).unwrap_or_default(),
        runs: None,
        time_ns: None,
        missed: None,
    };
    let events = of("perf_event").count();
    let programs = ids.into_iter().map(program).collect();
    Some(Process { pid, user, plugins, events, registered: structs, programs })
}

/// Whether a process runs the same executable file as this one.
fn is_this_program(process: &Path) -> bool {
    let file = |process: &Path| fs::metadata(process.join("exe")).map(|file| (file.dev(), file.ino())).ok();
    file(process).is_some_and(|theirs| file(Path::new("/proc/self")) == Some(theirs))
}

/// Formats a registered struct: `steady (tcp_congestion_ops)`; only the id of its map if the kernel reports
/// no more.
fn registered_text(map: u32) -> String {
    match registered(map) {
        Ok(Registered { name, ops: Some(ops) }) => format!("{name} ({ops})"),
        Ok(Registered { name, ops: None }) => name,
        Err(_) => format!("map {map}"),
    }
}

/// A descriptor of BPF or perf, with the facts that the kernel reports.
struct Descriptor {
    kind: String,
    facts: BTreeMap<String, String>,
}

/// Reads the descriptors of a process; returns none if this user may not read them.
fn descriptors(process: &Path) -> Vec<Descriptor> {
    let Ok(listed) = fs::read_dir(process.join("fd")) else { return Vec::new() };
    let descriptor = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let kind = target.to_str()?.strip_prefix("anon_inode:")?.to_owned();
        let facts = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default();
        let facts = facts.lines().filter_map(|line| line.split_once(':'));
        let facts = facts.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        Some(Descriptor { kind, facts: facts.collect() })
    };
    listed.flatten().filter_map(descriptor).collect()
}

/// Formats the type and target of a link: `raw_tracepoint sched_switch`, `xdp interface 2`.
fn link_text(facts: &BTreeMap<String, String>) -> String {
    let mut text = facts.get("link_type").cloned().unwrap_or_else(|| "link".into());
    for (name, prefix) in [("tp_name", ""), ("name", ""), ("ifindex", "interface "), ("cgroup_id", "cgroup ")]
    {
        if let Some(value) = facts.get(name) {
            // Writing to a string cannot fail.
            let _ = write!(text, " {prefix}{value}");
        }
    }
    text
}

fn text(processes: &[Process], seconds: f64) -> String {
    if processes.is_empty() {
        return "no plugin runs that this user may see\n".into();
    }
    let mut out = String::new();
    for Process { pid, user, plugins, events, registered, programs } in processes {
        let names = plugins.iter().map(|name| visible(name, MAX_NAME_BYTES)).collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "process {pid} of user {user}: {names}; perf events: {events}");
        for one in registered {
            let _ = writeln!(out, "  registered: {}", visible(one, MAX_NAME_BYTES));
        }
        let mut rows = vec![vec![
            "program".into(),
            "kind".into(),
            "attached by".into(),
            format!("runs in {seconds:.1} s"),
            "time".into(),
            "each".into(),
        ]];
        rows.extend(programs.iter().map(program_row));
        if rows.len() > 1 {
            out.push_str(&output::aligned(&rows));
        }
    }
    out
}

fn program_row(program: &Program) -> Vec<String> {
    let attached = if program.attached.is_empty() { "-".into() } else { program.attached.join(", ") };
    let unknown = || "not counted".to_owned();
    let (runs, time) = (program.runs, program.time_ns);
    let each = match (runs, time) {
        (Some(runs), Some(time)) if runs > 0 => format!("{} ns", time / runs),
        _ => "-".into(),
    };
    vec![
        program.name.clone(),
        program.kind.clone(),
        attached,
        runs.map_or_else(unknown, |runs| runs.to_string()),
        time.map_or_else(unknown, |time| format!("{:.3} ms", time as f64 / 1e6)),
        each,
    ]
}
