//! Plugins of a host inside a PID namespace, as in a container, or inside a time namespace. These tests need
//! root.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::plugins::{PRINTS_BOOTTIME, component};
use ks_tests::{Folder, Outcome, binary, command, compile, finish, repository};
use nix::time::{ClockId, clock_gettime};

/// Counts calls of the process with a given id, by a counter and by a program.
const SCRIPT: &str = include_str!("scripts/namespaces_numbers.ks");

/// Calls getppid(2) repeatedly once a file exists, in the process and in a child with its own PID namespace.
const CALLS: &str = include_str!("scripts/namespaces_calls.c");

fn program(folder: &Folder, name: &str, source: &str) -> String {
    let source = folder.write(&format!("{name}.c"), source);
    let built = folder.path(name);
    let cc = ["-O1", "-fno-omit-frame-pointer", "-o"];
    let outcome = finish(Command::new("cc").args(cc).arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    built.display().to_string()
}

/// Runs shell lines in a PID namespace with its own procfs.
fn inside(lines: &str) -> Outcome {
    finish(Command::new("unshare").args(["-pf", "--mount-proc", "sh", "-c", lines]))
}

/// Runs shell lines inside a PID namespace and outside.
fn on_both_sides(lines: &str) -> [(&'static str, Outcome); 2] {
    [("inside", inside(lines)), ("outside", finish(Command::new("sh").args(["-c", lines])))]
}

#[test]
fn root_numbers_of_tasks_are_those_of_the_hosts_pid_namespace() {
    let folder = Folder::new();
    let calls = program(&folder, "calls", CALLS);
    let plugin = folder.write("numbers.wasm", compile("numbers", SCRIPT).plugin);
    // The plugin's first output starts the calls.
    let go = folder.path("go").display().to_string();
    let run = format!(
        "{calls} 50 {go} & X=$!; {} {} -- --pid=$X --name=calls --inside=100 | while read line; do \
         echo \"$line\"; case $line in ready) touch {go};; esac; done; rm -f {go}; echo pid $X; wait",
        binary("ks-host").display(),
        plugin.display()
    );
    for (side, outcome) in on_both_sides(&run) {
        assert_eq!(outcome.code, 0, "{side}: {outcome:#?}");
        let [pid] = outcome.numbers("pid")[..] else { panic!("{side}: {outcome:#?}") };
        // The counter of the process, the program's hits, the ids of process and thread; and the child's id
        // in this namespace.
        let [counted, hits, process, thread] = outcome.numbers("own")[..] else {
            panic!("{side}: {outcome:#?}")
        };
        assert_eq!((counted, hits, process, thread), (50, 50, pid, pid), "{side}: {outcome:#?}");
        let [nested, number] = outcome.numbers("nested")[..] else { panic!("{side}: {outcome:#?}") };
        assert_eq!(nested, 50, "{side}: {outcome:#?}");
        assert!(
            number > pid,
            "a child has a number here, too, and not the one of its own namespace: {outcome:#?}"
        );
        assert_eq!(outcome.row("name")[1], "calls", "{side}: {outcome:#?}");
        let warnings = outcome.stderr.matches("those of the PID namespace that ks-host runs in").count();
        assert_eq!(warnings, usize::from(side == "inside"), "{side}: {outcome:#?}");
    }
}

/// Tasks outside of the namespace have no id in it, and their stacks no names.
#[test]
fn root_a_task_outside_of_the_namespace_has_no_number() {
    let folder = Folder::new();
    let calls = program(&folder, "outside", CALLS);
    let plugin = folder.write("numbers.wasm", compile("numbers", SCRIPT).plugin);
    let go = folder.path("go").display().to_string();
    let outside = Command::new(&calls).args(["70", &go]).spawn();
    let mut outside = outside.expect("it was just built");
    let outcome = inside(&format!(
        "{} {} -- --pid=1 --name=outside --outside=140 | while read line; do \
         echo \"$line\"; case $line in ready) touch {go};; esac; done; rm -f {go}",
        binary("ks-host").display(),
        plugin.display()
    ));
    outside.wait().expect("it is ours");
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let [none] = outcome.numbers("none")[..] else { panic!("{outcome:#?}") };
    assert!(none >= 140, "{outcome:#?}");
}

#[test]
fn root_the_profiler_sees_the_process_that_it_is_asked_for_inside_a_pid_namespace() {
    let folder = Folder::new();
    let spins = program(
        &folder,
        "spins",
        "#include <time.h>\n__attribute__((noinline)) void work(void) { for (volatile int i = 0; i < \
         100000; i++); }\n\
         int main(void) { time_t end = time(0) + 60; while (time(0) < end) work(); return 0; }\n",
    );
    let outcome = inside(&format!(
        "{spins} & X=$!; {} --no-cache --stacks folded {} -- --pid=$X --seconds=1; kill $X",
        binary("ks-host").display(),
        repository().join("examples/perf/profile.ks").display()
    ));
    assert!(
        outcome.stdout.lines().any(|line| line.starts_with("spins;") && line.contains(";work ")),
        "{outcome:#?}"
    );
}

/// The fields of a switch have the numbers of the first namespace, the process that is asked for one of its own.
#[test]
fn root_waits_of_a_process_have_its_stacks_inside_a_pid_namespace() {
    let folder = Folder::new();
    let naps = "#include <unistd.h>\n__attribute__((noinline)) int nap(void) { return usleep(20000) \
                + 1; }\n\
                int main(void) { for (int i = 0; i < 500; i++) nap(); return 0; }\n";
    let naps = program(&folder, "naps", naps);
    let lines = format!(
        "{naps} & X=$!; {} --no-cache --stacks folded {} -- --pid=$X --seconds=1; kill $X",
        binary("ks-host").display(),
        repository().join("examples/trace/offcpu.ks").display()
    );
    for (side, outcome) in on_both_sides(&lines) {
        let of_naps = outcome.stdout.lines().filter(|line| line.starts_with("naps;"));
        let micros = of_naps.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>();
        // A second of naps of 20 ms, and the time between them.
        assert!((500_000..1_500_000).contains(&micros), "{side}: {micros} of {outcome:#?}");
    }
}

/// Two processes share a CPU. Other tests run there, too, so it takes a while until each has waited a few times.
#[test]
fn root_waits_for_a_cpu_are_counted_for_the_process_that_is_asked_for_inside_a_pid_namespace() {
    let lines = format!(
        "spin() {{ exec taskset 1 sh -c 'while :; do :; done'; }}\n\
         spin & X=$!; spin & Y=$!; sleep 1000 & Z=$!\n\
         for pid in $X $Z; do {} --no-cache {} -- --pid=$pid --seconds=4; done; kill $X $Y $Z",
        binary("ks-host").display(),
        repository().join("examples/trace/runqlat.ks").display()
    );
    for (side, outcome) in on_both_sides(&lines) {
        let waits = |line: &str| line.strip_suffix(" waits")?.parse::<u64>().ok();
        let waits: Vec<u64> = outcome.stdout.lines().filter_map(waits).collect();
        let [shares, sleeps] = waits[..] else { panic!("{side}: {outcome:#?}") };
        assert!(shares > 5 && sleeps == 0, "{side}: {outcome:#?}");
    }
}

#[test]
fn root_doctor_names_the_pid_namespace() {
    let line = |outcome: Outcome| {
        let line = outcome.stdout.lines().find(|line| line.contains("PID namespace")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{outcome:#?}"))
    };
    assert!(line(finish(command("ks-host").arg("doctor"))).contains("the first one"));
    let inside = line(inside(&format!("{} doctor", binary("ks-host").display())));
    assert!(inside.contains("pid:["), "{inside}");
    assert!(Path::new("/proc/self/ns/pid").exists());
}

/// A procfs of another namespace has other tasks under the ids of this one.
#[test]
fn root_a_procfs_of_another_pid_namespace_gives_no_names() {
    let folder = Folder::new();
    let calls = program(&folder, "calls", CALLS);
    let plugin = folder.write("numbers.wasm", compile("numbers", SCRIPT).plugin);
    let go = folder.path("go").display().to_string();
    let run = format!(
        "{calls} 50 {go} & X=$!; {} {} -- --pid=$X --name=calls --inside=100 | while read line; do \
         echo \"$line\"; case $line in ready) touch {go};; esac; done; rm -f {go}; echo pid $X; wait",
        binary("ks-host").display(),
        plugin.display()
    );
    let outcome = finish(Command::new("unshare").args(["-pf", "sh", "-c", &run]));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let [pid] = outcome.numbers("pid")[..] else { panic!("{outcome:#?}") };
    // The ids are right, and no task gets the names of another.
    assert_eq!(outcome.numbers("own"), [50, 50, pid, pid], "{outcome:#?}");
    assert_eq!(outcome.row("name"), ["name"], "{outcome:#?}");
    assert_eq!(
        outcome.stderr.matches("/proc shows the tasks of another PID namespace").count(),
        1,
        "{outcome:#?}"
    );
    let doctor = finish(Command::new("unshare").arg("-pf").arg(binary("ks-host")).arg("doctor"));
    assert!(doctor.stdout.contains("/proc shows another one"), "{doctor:#?}");
}

/// The offset of a time namespace separates CLOCK_BOOTTIME from CLOCK_MONOTONIC, as suspending the machine
/// does.
#[test]
fn root_boottime_is_not_the_monotonic_clock() {
    const OFFSET: Duration = Duration::from_secs(1_000_000);
    let folder = Folder::new();
    let plugin = folder.write("boottime.wasm", component(PRINTS_BOOTTIME));
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("the kernel has this clock"));
    let before = now();
    let outcome = finish(
        Command::new("unshare")
            .args(["--fork", "--time", "--boottime", &OFFSET.as_secs().to_string()])
            .arg(binary("ks-host"))
            .arg("--no-cache")
            .arg(plugin),
    );
    let after = now();
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let time = Duration::from_nanos(outcome.stdout.trim_end().parse().expect(&outcome.stdout));
    assert!(before + OFFSET <= time && time <= after + OFFSET, "{before:?} {time:?} {after:?}");
}
