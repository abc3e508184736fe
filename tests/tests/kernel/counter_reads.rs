//! Counters that programs read (language reference, 11.5): page faults of the CPU that a program runs on,
//! which the kernel counts exactly. Needs root, and a C compiler for the process that faults.

use std::process::Command;

use ks_tests::{Folder, Outcome, command, compile, finish, run_script};

/// Calls `pages(n)`, which touches n fresh pages, ten times, on one CPU.
const WORKER: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((noinline)) long pages(long count) {
    static char *at;
    long page = sysconf(_SC_PAGESIZE), sum = 0;
    if (!at) {
        at = mmap(0, 4096 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(at, 4096 * page, MADV_NOHUGEPAGE);
    }
    for (long i = 0; i < count; i++, at += page) sum += ++*(volatile char *)at;
    return sum;
}

int main(int count, char **words) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    long calls = atol(words[1]);
    pages(1);
    getchar();
    for (long i = 0; i < calls; i++) pages(100);
    return 0;
}
"#;

/// Builds the worker and returns its path.
fn worker(folder: &Folder) -> String {
    let source = folder.write("worker.c", WORKER);
    let built = folder.path("worker");
    let outcome = finish(Command::new("cc").arg("-O1").arg("-o").arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    built.display().to_string()
}

const FAULTS: &str = include_str!("scripts/counter_reads_faults.ks");

#[test]
fn root_programs_read_the_counter_of_their_cpu() {
    let folder = Folder::new();
    let worker = worker(&folder);
    let script = FAULTS.replace("WORKER", &worker);
    let file = folder.write("faults.wasm", compile("faults", &script).plugin);
    // The worker waits for its input, which ends after the plugin has attached: the shell's sleep is longer
    // than that takes.
    let line = format!("(sleep 2; echo) | {worker} 10 & {} --timeout 40 {}; wait", host(), file.display());
    let outcome = finish(Command::new("sh").args(["-c", &line]));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let [calls, faults, least] = outcome.numbers("calls")[..] else { panic!("{outcome:#?}") };
    assert_eq!(calls, 10, "{outcome:#?}");
    // Other tasks on the CPU may fault in between; the test of func_cost.ks checks the cost of a single call.
    assert!(faults >= 1000 && least >= 100, "{outcome:#?}");
    let [raw, scaled, others] = outcome.numbers("raw")[..] else { panic!("{outcome:#?}") };
    assert!(raw >= faults && scaled == raw && others == 0, "{outcome:#?}");
    let times = outcome.numbers("times");
    assert!(times[0] > 0 && times[0] == times[1], "{outcome:#?}");
    let [minor, total, group] = outcome.numbers("minor")[..] else { panic!("{outcome:#?}") };
    assert!(minor >= 900 && minor <= total && total >= raw && group == 2, "{outcome:#?}");
    let [cpus, after] = outcome.numbers("cpus")[..] else { panic!("{outcome:#?}") };
    assert!((total..=after).contains(&cpus), "{outcome:#?}");
}

fn host() -> String {
    ks_tests::binary("ks-host").display().to_string()
}

const MISSING: &str = include_str!("scripts/counter_reads_missing.ks");

/// Without a PMU nothing counts raw events: a warning at the start says so, and every reading is -1.
#[test]
fn root_a_counter_that_cannot_be_opened_reads_as_minus_one() {
    let has_pmu = ["cpu", "armv8_pmuv3", "cpu_core"]
        .iter()
        .any(|name| std::path::Path::new("/sys/bus/event_source/devices").join(name).exists());
    if has_pmu {
        eprintln!("not run here: this machine has a PMU");
        return;
    }
    let outcome = run_script::<&str>("missing", MISSING, &[]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert_eq!(outcome.numbers("ran"), [1, -1, -1, 0], "{outcome:#?}");
    assert_eq!(outcome.numbers("here"), [-1, -1, -1], "{outcome:#?}");
    let first = outcome.stderr.lines().next().unwrap_or_default();
    assert!(first.contains("missing.ks:5") && first.contains("cannot open"), "{outcome:#?}");
}

const DENIED: &str = include_str!("scripts/counter_reads_denied.ks");

fn run_with(script: &str, arguments: &[&str]) -> Outcome {
    let folder = Folder::new();
    let file = folder.write("counted.wasm", compile("counted", script).plugin);
    finish(command("ks-host").arg("--no-cache").args(arguments).arg(file))
}

/// A policy treats a counter like any event that is opened on all CPUs.
#[test]
fn root_a_policy_decides_about_counters() {
    let folder = Folder::new();
    let import = "import = [\"*\"]";
    let policy = |allowed: &str| folder.write("policy.toml", format!("[allow]\n{import}\n{allowed}\n"));
    let file = policy("event = [\"software\"]\nscope = [\"own\"]");
    let denied = run_with(DENIED, &["--policy", file.to_str().expect("plain")]);
    assert_eq!(denied.numbers("here"), [-1], "{denied:#?}");
    assert!(denied.stderr.contains("--allow scope="), "{denied:#?}");
    let file = policy("event = [\"software\"]\nscope = [\"*\"]");
    let allowed = run_with(DENIED, &["--policy", file.to_str().expect("plain")]);
    assert_eq!((allowed.code, allowed.stderr.as_str()), (0, ""), "{allowed:#?}");
    assert!(allowed.numbers("here")[0] > 0, "{allowed:#?}");
}

/// Touches ten fresh pages in each call, and recurses: the cost of a call is ten times its depth.
const RECURSIVE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile char *at;
static long page;

__attribute__((noinline)) long work(long depth) {
    if (depth > 1) (void)*(volatile long *)__builtin_frame_address(0);
    for (int i = 0; i < 10 && depth > 0; i++, at += page) *at = 1;
    long below = depth > 1 ? work(depth - 1) : 0;
    __asm__ volatile("" ::: "memory");
    return below + 1;
}

int main(void) {
    page = sysconf(_SC_PAGESIZE);
    at = mmap(0, 8192 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)at, 8192 * page, MADV_NOHUGEPAGE);
    work(6);
    getchar();
    work(0);
    for (int i = 0; i < 25; i++) work(4);
    return 0;
}
"#;

/// Runs the example on that function, while other tasks fault on all CPUs.
#[test]
fn root_func_cost_reports_what_each_call_costs() {
    let folder = Folder::new();
    let source = folder.write("work.c", RECURSIVE);
    let worker = folder.path("work");
    let built = finish(Command::new("cc").arg("-O1").arg("-o").arg(&worker).arg(source));
    assert_eq!(built.code, 0, "{built:#?}");
    let example = ks_tests::repository().join("examples/perf/func_cost.ks");
    let script = std::fs::read_to_string(example).expect("the example is there");
    let own = format!("{}:work", worker.display());
    let script = script.replace("/bin/bash:execute_command_internal", &own);
    let file = folder.write("func_cost.wasm", compile("func_cost", &script).plugin);
    let noise = "(while :; do /bin/true; done) & noise=$!";
    let line = format!(
        "{noise}; (sleep 2; echo) | {} & {} --timeout 40 {} -- --seconds=30 --calls=101; kill $noise",
        worker.display(),
        host(),
        file.display()
    );
    let outside = finish(Command::new("sh").args(["-c", &line]));
    assert_eq!(outside.stderr, "", "{outside:#?}");
    check_costs(&outside);
    // The switches have the threads' numbers of the first PID namespace.
    let inside = finish(Command::new("unshare").args(["-pf", "--mount-proc", "sh", "-c", &line]));
    check_costs(&inside);
}

fn check_costs(outcome: &Outcome) {
    let row = |low: &str| -> i64 {
        let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let rows = outcome.stdout.lines().map(fields);
        let found = rows
            .filter(|fields| fields.first().is_some_and(|field| field == low))
            .find_map(|fields| fields.get(3).and_then(|count| count.parse().ok()));
        found.unwrap_or(0)
    };
    assert_eq!((row("8"), row("16"), row("32")), (25, 50, 25), "{outcome:#?}");
    // The first call of the process also faults on the page that the kernel maps for return probes.
    let warm = row("0") + row("1") + row("2") + row("4");
    assert_eq!(warm, 1, "{outcome:#?}");
    let end = outcome.stdout.lines().find(|line| line.contains("calls cost")).expect("the sum");
    let numbers: Vec<i64> =
        end.split(|char: char| !char.is_ascii_digit()).filter_map(|field| field.parse().ok()).collect();
    assert!(numbers[0] == 101 && (2500..2510).contains(&numbers[1]) && numbers[2] == 40, "{outcome:#?}");
}
