//! What scripts can count and whom: event families, options, scopes, a command. These tests need root.

use std::process::Command;

use ks_tests::{Folder, Outcome, binary, compile, finish, repository, run_script};

/// Runs a script with a command to observe.
fn observe(script: &str, options: &[&str], exec: &[&str]) -> Outcome {
    let folder = Folder::new();
    let file = folder.write("observe.wasm", compile("observe", script).plugin);
    let mut command = Command::new(binary("ks-host"));
    finish(command.args(options).arg(file).arg("--exec").args(exec))
}

const KILLS: &str = "i=0; while [ $i -lt 100 ]; do kill -0 $$; i=$((i+1)); done";

/// Each line names an event in another way; the calls that are counted are those of the command.
const FAMILIES: &str = r#"
fn main() -> i32 {
    var kills = attach(perf_options { event: tracepoint("syscalls/sys_enter_kill"), command: true })
    var listed = attach(perf_options { event: pmu("syscalls:sys_enter_kill"), command: true })
    var faults = attach(perf_options { event: raw_event(1, 2), command: true, group: kills })
    var more = perf_options { event: page_faults, command: true }
    more.event = tracepoint("syscalls/sys_enter_kill")
    var assigned = attach(more)
    var none = attach(perf_options { event: pmu("cache-mis"), command: true })
    while (!stopping()) {
        sleep(1000)
    }
    print("kills %lld %lld %lld", read(kills).raw, read(listed).raw, read(assigned).raw)
    print("faults %u", read(faults).raw > 50)
    print("none %u", none == null)
    return 0
}
"#;

#[test]
fn root_lf_141_events_are_named_in_every_way_and_counted_from_the_exec() {
    let outcome = observe(FAMILIES, &[], &["sh", "-c", KILLS]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.numbers("kills"), [100, 100, 100]);
    assert_eq!(outcome.numbers("faults"), [1]);
    assert_eq!(outcome.numbers("none"), [1]);
    assert!(outcome.stderr.contains("cache_misses"), "{outcome:#?}");
}

/// A breakpoint by address and by symbol, a cache event, a probe: opened, or refused with the reason.
const OPENED: &str = r#"
fn main() -> i32 {
    var word = attach(perf_options { event: breakpoint(0x10000, 4, "w"), pid: 0, cpu: -1 })
    var symbol = attach(perf_options { event: breakpoint("__start_rodata", 8, "w"), pid: 0, cpu: -1 })
    var cache = attach(perf_options { event: hw_cache("ll", "read", "miss"), pid: 0, cpu: -1 })
    var shell = attach(perf_options { event: uprobe_event("/bin/sh:+0"), pid: 0, cpu: -1 })
    print("word %lld", read(word).raw)
    print("constant %lld", read(symbol).raw)
    print("cache %u", cache == null)
    print("shell %u", shell == null)
    return 0
}
"#;

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
const EVERY_CPU: &str = r#"
fn main() -> i32 {
    var clock = attach(perf_options { event: cpu_clock, cpu: all })
    var faults = attach(perf_options { event: page_faults, cpu: all, group: clock })
    if (clock == null || faults == null) {
        return 1
    }
    sleep(20)
    disable(clock)
    var all = read(clock)
    var sum: i64 = 0
    var running: u64 = 0
    for (cpu in 0..4096) {
        if (cpu < cpu_count()) {
            var one = read_cpu(clock, cpu)
            // A CPU that is offline has nothing to read.
            if (one.raw >= 0) {
                sum = sum + one.raw
                running = running + one.time_running
            }
        }
    }
    print("raw %lld %lld", all.raw, sum)
    print("running %llu %llu", all.time_running, running)
    print("members %u %u", all.count, read_cpu(faults, 0).count)
    print("first %u", all.ids[0] == read_cpu(faults, 0).ids[0])
    print("rate %u", rate(all, read(clock)))
    return 0
}
"#;

#[test]
fn root_a_fan_out_reads_as_one_and_per_cpu() {
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

const STAT: &str = r#"
fn main() -> i32 {
    var kills = attach(perf_options { event: tracepoint("syscalls/sys_enter_kill"), command: true, inherit: true })
    var forks = attach(perf_options { event: tracepoint("sched/sched_process_fork"), command: true, inherit: true })
    var faults = attach(perf_options { event: page_faults, command: true, inherit: true })
    var clock = attach(perf_options { event: task_clock, command: true, inherit: true })
    while (!stopping()) {
        sleep(1000)
    }
    print("kills %lld", read(kills).raw)
    print("forks %lld", read(forks).raw)
    print("faults %lld", read(faults).raw)
    var ran = read(clock)
    print("clock %lld %llu %llu", ran.raw, ran.time_enabled, ran.time_running)
    return 0
}
"#;

/// Exact for what the command alone decides; page faults depend on where the loader puts things.
#[test]
fn root_a_command_counts_as_perf_stat_counts_it() {
    let script = format!("{KILLS}; (true); sh -c '{}'", KILLS.replace("$$", "1"));
    let exec = ["sh", "-c", script.as_str()];
    // Tracefs may not be mounted, which perf needs: it is mounted for this one command.
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
    // What is counted in software is on a counter whenever its task runs, for both.
    let clock = ours.numbers("clock");
    assert!(clock[1] == clock[2] && clock[0] > 0, "on a counter all the time: {ours:#?}");
    let of_perf = rows.iter().find(|row| row[2].starts_with("task-clock")).expect("it was asked for");
    assert!(rows.iter().all(|row| row[4] == "100.00"), "{text}");
    // The clock counts the time that the command ran, which is also how long it was enabled.
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
    let script = r#"
fn main() -> i32 {
    var vendor = attach(perf_options { event: pmu("VENDOR.TSC"), cpu: 0 })
    print("vendor %u", vendor != null)
    print("listed %u", events("VENDOR.*"))
    return 0
}
"#;
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
