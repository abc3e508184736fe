//! Events, options and scopes that scripts can count: event families, tasks and CPUs, a command. These tests
//! need root.

use std::process::Command;

use ks_tests::{Folder, Outcome, binary, compile, finish, repository, run_script};

/// Runs a script that observes a command.
fn observe(script: &str, options: &[&str], exec: &[&str]) -> Outcome {
    let folder = Folder::new();
    let file = folder.write("observe.wasm", compile("observe", script).plugin);
    let mut command = Command::new(binary("ks-host"));
    finish(command.args(options).arg(file).arg("--exec").args(exec))
}

const KILLS: &str = "i=0; while [ $i -lt 100 ]; do kill -0 $$; i=$((i+1)); done";

/// Each line names an event in a different form; the counted calls are those of the command.
const FAMILIES: &str = include_str!("scripts/counting_families.ks");

#[test]
fn root_lf_141_events_are_named_in_every_spelling_and_counted_from_the_exec() {
    let outcome = observe(FAMILIES, &[], &["sh", "-c", KILLS]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.numbers("kills"), [100, 100, 100]);
    assert_eq!(outcome.numbers("faults"), [1]);
    assert_eq!(outcome.numbers("none"), [1]);
    assert!(outcome.stderr.contains("cache_misses"), "{outcome:#?}");
}

/// A breakpoint by address and by symbol, a cache event, a probe: opened, or refused with the reason.
const OPENED: &str = include_str!("scripts/counting_opened.ks");

#[test]
fn root_breakpoints_open_and_what_does_not_is_explained() {
    let outcome = run_script("opened", OPENED, &[] as &[&str]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.numbers("word"), [0]);
    assert_eq!(outcome.numbers("constant"), [0], "{outcome:#?}");
    if outcome.numbers("cache") == [1] {
        assert!(outcome.stderr.contains("LLC-load-misses"), "{outcome:#?}");
    }
}

/// A group on all CPUs: the sum and the CPUs, each from one reading of a stopped group.
const EVERY_CPU: &str = include_str!("scripts/counting_every_cpu.ks");

#[test]
fn root_a_per_cpu_group_reads_as_one_and_per_cpu() {
    let outcome = run_script("every", EVERY_CPU, &[] as &[&str]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    for row in ["raw", "running"] {
        let numbers = outcome.numbers(row);
        assert!(numbers[0] == numbers[1] && numbers[0] > 0, "{outcome:#?}");
    }
    assert_eq!(outcome.numbers("members"), [2, 2]);
    assert_eq!(outcome.numbers("first"), [1]);
    assert_eq!(outcome.numbers("rate"), [0], "the clock was stopped");
}

const STAT: &str = include_str!("scripts/counting_stat.ks");

/// Counts that the command alone determines are exact; page faults depend on the loader's layout.
#[test]
fn root_a_command_counts_as_perf_stat_counts_it() {
    let script = format!("{KILLS}; (true); sh -c '{}'", KILLS.replace("$$", "1"));
    let exec = ["sh", "-c", script.as_str()];
    // perf needs tracefs, which may not be mounted: it is mounted for this one command.
    let mounted = "mount -t tracefs t /sys/kernel/tracing 2>/dev/null; exec perf stat -x ';' -o \"$0\" -e \
                   syscalls:sys_enter_kill,sched:sched_process_fork,page-faults,task-clock -- \"$@\"";
    let folder = Folder::new();
    let file = folder.path("stat");
    let status = Command::new("unshare")
        .args(["-m", "sh", "-c", mounted])
        .arg(&file)
        .args(exec)
        .status()
        .expect("unshare is there");
    if !status.success() {
        assert!(std::env::var_os("CI").is_none(), "perf is missing, which `scripts/packages perf` installs");
        eprintln!("NOT TESTED: `perf stat` does not run here");
        return;
    }
    let text = std::fs::read_to_string(file).expect("perf wrote it");
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| line.contains(';')).map(|line| line.split(';').collect()).collect();
    let theirs = |event: &str| -> f64 {
        let row = rows.iter().find(|row| row[2].starts_with(event)).unwrap_or_else(|| panic!("{text}"));
        row[0].parse().unwrap_or_else(|_| panic!("{text}"))
    };
    let ours = observe(STAT, &[], &exec);
    assert_eq!(ours.code, 0, "{ours:#?}");
    assert_eq!(ours.numbers("kills")[0] as f64, theirs("syscalls:sys_enter_kill"), "{ours:#?}\n{text}");
    assert_eq!(ours.numbers("forks")[0] as f64, theirs("sched:sched_process_fork"), "{ours:#?}\n{text}");
    let (faults, by_perf) = (ours.numbers("faults")[0] as f64, theirs("page-faults"));
    assert!((faults - by_perf).abs() <= by_perf * 0.1 + 20.0, "{faults} and {by_perf}");
    // Software events need no hardware counter: they run whenever their task runs, for both tools.
    let clock = ours.numbers("clock");
    assert!(clock[1] == clock[2] && clock[0] > 0, "on a counter all the time: {ours:#?}");
    let of_perf = rows.iter().find(|row| row[2].starts_with("task-clock")).expect("it was asked for");
    assert!(rows.iter().all(|row| row[4] == "100.00"), "{text}");
    // The clock counts the run time of the command, which is also its enabled time.
    assert!((clock[0] - clock[1]).abs() * 10 <= clock[1], "{ours:#?}");
    let times =
        [of_perf[0], of_perf[3]].map(|field| field.parse::<f64>().unwrap_or_else(|_| panic!("{text}")));
    assert!((times[0] * 1e6 - times[1]).abs() * 10.0 <= times[1], "{text}");
}

#[test]
fn root_an_example_shows_what_a_command_does() {
    let folder = Folder::new();
    let plugin = folder.path("stat.wasm");
    let example = repository().join("examples/perf/stat.ks");
    let built = finish(Command::new(binary("ks")).arg("build").arg(example).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let mut host = Command::new(binary("ks-host"));
    let outcome = finish(host.arg(&plugin).args(["--exec", "sh", "-c", KILLS]));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.numbers("task_clock")[0] > 0 && outcome.numbers("page_faults")[0] > 50, "{outcome:#?}");
    assert_eq!(outcome.row("task_clock")[2..], ["100.00", "%"], "{outcome:#?}");
    let missing = finish(Command::new(binary("ks-host")).arg(&plugin).args(["--exec", "/no/such/program"]));
    assert_eq!(missing.code, 125, "{missing:#?}");
    assert!(missing.stderr.contains("/no/such/program"), "{missing:#?}");
    let without = finish(Command::new(binary("ks-host")).arg(&plugin));
    assert_eq!(without.code, 1, "{without:#?}");
    assert!(without.stderr.contains("--exec"), "{without:#?}");
}

/// A vendor's table names a software event here, so that it can be counted.
#[test]
fn root_a_table_of_events_adds_names() {
    let script = include_str!("scripts/counting_a_table_of_events_adds_names.ks");
    if !std::path::Path::new("/sys/bus/event_source/devices/msr").exists() {
        assert_ne!(std::env::consts::ARCH, "x86_64", "no PMU `msr`");
        return;
    }
    let folder = Folder::new();
    let table = folder.write(
        "table.json",
        r#"[{ "EventName": "VENDOR.TSC", "EventCode": "0x0", "Unit": "MSR", "BriefDescription": "Time stamps." }]"#,
    );
    let file = folder.write("table.wasm", compile("table", script).plugin);
    let outcome = finish(Command::new(binary("ks-host")).arg("--event-table").arg(&table).arg(&file));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.numbers("listed"), [1], "{outcome:#?}");
    let broken = folder.write("broken.json", "{}");
    let refused = finish(Command::new(binary("ks-host")).arg("--event-table").arg(&broken).arg(&file));
    assert_eq!(refused.code, 125, "{refused:#?}");
    assert!(refused.stderr.contains("broken.json"), "{refused:#?}");
}
