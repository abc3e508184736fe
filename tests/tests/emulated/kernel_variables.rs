//! Variables of the kernel by name, compared with what procfs says. The test runs on the emulated kernels, and here if this
//! kernel lists its data. It needs root.

use std::fs;
use std::process::Command;

use ks_tests::emulated::{Kernel, Machine, here_or_inside};
use ks_tests::watched::Running;
use ks_tests::{Folder, command, compile, finish, run_script, wait_until_gone};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).seconds(400).run_tests(module_path!(), &["variables_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).seconds(400).run_tests(module_path!(), &["variables_"]);
}

/// Returns whether the kernel lists a variable among its symbols.
fn lists(name: &str) -> bool {
    let symbols = fs::read_to_string("/proc/kallsyms").expect("procfs is there");
    symbols.lines().any(|line| line.split(' ').nth(2) == Some(name))
}

/// Forks since the boot. Source: fs/proc/stat.c, `show_stat`, v6.12: `total_forks`.
fn forks() -> i64 {
    let text = fs::read_to_string("/proc/stat").expect("procfs is there");
    let line = text.lines().find_map(|line| line.strip_prefix("processes "));
    line.and_then(|number| number.parse().ok()).expect("it counts forks")
}

/// Threads of all processes. Source: fs/proc/loadavg.c, v6.12: `nr_threads`.
fn threads() -> i64 {
    let text = fs::read_to_string("/proc/loadavg").expect("procfs is there");
    let threads = text.split(' ').nth(3).and_then(|tasks| tasks.split('/').nth(1));
    threads.and_then(|number| number.parse().ok()).expect("it counts threads")
}

/// Processes that procfs lists.
fn processes() -> i64 {
    let entries = fs::read_dir("/proc").expect("procfs is there").flatten();
    entries.filter(|one| one.file_name().to_string_lossy().parse::<u32>().is_ok()).count() as i64
}

#[test]
fn variables_are_read_by_name() {
    if !here_or_inside("the symbols of variables", lists("total_forks")) {
        return;
    }
    let script = include_str!("scripts/kernel_variables_are_read_by_name.ks");
    let running = Running::start("variables", script, &[format!("--wanted={}", nix::unistd::gettid())]);
    let before = forks();
    assert!(Command::new("/bin/true").status().expect("it is there").success());
    let (after, threads, processes) = (forks(), threads(), processes());
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let forks = outcome.numbers("forks")[0];
    assert!(before < forks && forks <= after, "{before} {after} {outcome:#?}");
    // The child was there when the program ran. Others may come and go meanwhile.
    let is_near = |number: i64, known: i64| (number - known).abs() <= 4;
    assert!(is_near(outcome.numbers("threads")[0], threads), "{threads} {outcome:#?}");
    // The idle task is not listed.
    assert!(is_near(outcome.numbers("tasks")[0], processes + 1), "{processes} {outcome:#?}");
    assert_eq!((outcome.numbers("own"), outcome.numbers("first")), (vec![0], vec![0]), "{outcome:#?}");
    let version = fs::read_to_string("/proc/version").expect("procfs is there");
    let expected = format!("name swapper/0\nbanner {}\n", &version[..63]);
    assert!(outcome.stdout.ends_with(&expected), "{expected} {outcome:#?}");
    wait_until_gone("ksvars");
}

/// Each CPU has a value, which is that of the CPU that the program runs on, or of the one that it names.
#[test]
fn variables_of_each_cpu_are_read() {
    if !here_or_inside("the symbols of variables", lists("runqueues")) {
        return;
    }
    let script = include_str!("scripts/kernel_variables_of_each_cpu.ks");
    let running = Running::start("percpu", script, &[format!("--wanted={}", nix::unistd::gettid())]);
    let processes = processes();
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let number = |name: &str| outcome.numbers(name)[0];
    assert!(number("right") > 0 && number("wrong") == 0, "{outcome:#?}");
    // CPUs that may come later have values, too.
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").expect("sysfs is there");
    let last: i64 =
        possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse().ok()).expect("a list");
    assert_eq!((number("cpus"), number("absent")), (last + 1, 1), "{possible} {outcome:#?}");
    assert!((number("counted") - processes).abs() <= 4, "{processes} {outcome:#?}");
    wait_until_gone("kscpus");
}

/// A policy names each variable.
#[test]
fn variables_need_a_policy() {
    let script = include_str!("scripts/kernel_variables_are_read_by_name.ks");
    let folder = Folder::new();
    let file = folder.write("variables.wasm", compile("variables", script).plugin);
    let denied = finish(command("ks-host").arg(file).args(["--", "--wanted=1"]));
    assert_eq!(denied.code, 126, "{denied:#?}");
    let asked = "--allow kernel_variable=total_forks";
    assert!(denied.stderr.contains(asked), "{denied:#?}");
}

/// Without the symbol there is no load, and the reason is named.
#[test]
fn variables_that_the_kernel_does_not_list_are_an_error() {
    let script = "extern ks_is_nowhere: u64
        @raw_tracepoint(\"sched_switch\") fn ksvarnone(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            return ks_is_nowhere as i32
        }
        fn main() -> i32 { return attach(load(ksvarnone), \"\", 0) as i32 }";
    let outcome = run_script("nowhere", script, &[] as &[&str]);
    assert_ne!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("`ks_is_nowhere`"), "{outcome:#?}");
    let folder = Folder::new();
    let file = folder.write("nowhere.wasm", compile("nowhere", script).plugin);
    let checked = finish(command("ks-host").arg("check").arg(file));
    let line = checked.stdout.lines().find(|line| line.contains("ks_is_nowhere"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    assert_eq!(words, ["missing", "variable", "ks_is_nowhere", "of", "ksvarnone"], "{checked:#?}");
    assert_eq!(checked.code, 1, "{checked:#?}");
}
