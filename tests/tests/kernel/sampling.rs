//! Sampling: programs that run at overflows, of several events, several plugins at once, and processes that
//! fork. Page faults are counted, which the kernel does exactly. Needs root, and a C compiler for the process
//! that faults.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use ks_tests::{Folder, command, compile, finish, run_script};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Executes each line of its standard input and answers with a line: `NUMBER` touches this many fresh pages,
/// `child` starts a child that touches a thousand and stays, `again` lets the last child touch a thousand
/// more, `name WORD` sets its name.
const WORKER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void touch(long pages) {
    long page = sysconf(_SC_PAGESIZE);
    char *memory = mmap(0, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, pages * page, MADV_NOHUGEPAGE);
    for (long i = 0; i < pages; i++) ((volatile char *)memory)[i * page] = 1;
    munmap(memory, pages * page);
}

int main(void) {
    char line[64], byte = 0;
    int to_child[2] = {-1, -1}, from_child[2] = {-1, -1};
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "child")) {
            if (pipe(to_child) || pipe(from_child)) return 1;
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, 9);
                do {
                    touch(1000);
                    if (write(from_child[1], &byte, 1) != 1) break;
                } while (read(to_child[0], &byte, 1) == 1);
                _exit(0);
            }
            if (read(from_child[0], &byte, 1) != 1) return 1;
        } else if (!strcmp(line, "again")) {
            if (write(to_child[1], &byte, 1) != 1 || read(from_child[0], &byte, 1) != 1) return 1;
        } else if (!strncmp(line, "name ", 5)) {
            prctl(PR_SET_NAME, line + 5);
        } else {
            touch(atol(line));
        }
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"#;

/// A process whose standard output is read line by line. It is killed when dropped.
struct PluginProcess {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl PluginProcess {
    fn start(command: &mut Command) -> PluginProcess {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        PluginProcess { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it is a pipe");
        line.trim_end().to_owned()
    }

    /// Sends a line, and waits for the answer.
    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{line}").expect("it reads");
        assert_eq!(self.line(), "done", "{line}");
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn ask_to_stop(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("pids are small"));
        kill(pid, Signal::SIGTERM).expect("it is ours");
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn worker(folder: &Folder) -> PluginProcess {
    let source = folder.write("worker.c", WORKER);
    let built: PathBuf = folder.path("worker");
    let outcome = finish(Command::new("cc").arg("-O1").arg("-o").arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    PluginProcess::start(&mut Command::new(built))
}

/// Starts a plugin and waits until it prints that it has attached.
fn plugin(folder: &Folder, name: &str, script: &str, arguments: &[String]) -> PluginProcess {
    let file = folder.write(&format!("{name}.wasm"), compile(name, script).plugin);
    let mut plugin =
        PluginProcess::start(command("ks-host").args(["--no-cache"]).arg(file).arg("--").args(arguments));
    assert_eq!(plugin.line(), "attached");
    plugin
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|field| field.parse().ok()).collect()
}

const PERIODS: &str = include_str!("scripts/sampling_periods.ks");

#[test]
fn root_ten_plugins_at_once_run_each_at_its_own_period() {
    let folder = Folder::new();
    let mut worker = worker(&folder);
    let periods = [1, 2, 3, 5, 7, 11, 50, 99, 500, 4999];
    let mut plugins: Vec<(u64, PluginProcess)> = periods
        .iter()
        .map(|period| {
            let arguments = [format!("--pid={}", worker.pid()), format!("--period={period}")];
            (*period, plugin(&folder, "periods", PERIODS, &arguments))
        })
        .collect();
    worker.say("20000");
    for (_, plugin) in &plugins {
        plugin.ask_to_stop();
    }
    for (period, plugin) in &mut plugins {
        let line = plugin.line();
        let [faults, handled] = numbers(&line)[..] else { panic!("{period}: {line}") };
        assert!((20_000..20_100).contains(&faults), "{period}: {line}");
        assert_eq!(handled, faults / *period, "period {period}");
    }
}

#[test]
fn root_one_program_distinguishes_its_events() {
    let script = include_str!("scripts/sampling_one_program_tells_its_events_apart.ks");
    let outcome = run_script::<&str>("apart", script, &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    // The first page may already be mapped.
    for (name, least) in [("faults", 1023), ("switches", 20), ("minor", 102)] {
        let [counted, runs] = outcome.numbers(name)[..] else { panic!("{outcome:#?}") };
        assert!(counted >= least && counted == runs, "{outcome:#?}");
    }
    assert_eq!(outcome.numbers("kinds"), [3]);
}

const INHERIT: &str = include_str!("scripts/sampling_inherit.ks");

#[test]
fn root_children_are_sampled_until_the_detach_and_not_after_it() {
    let folder = Folder::new();
    let mut worker = worker(&folder);
    let mut plugin = plugin(&folder, "inherit", INHERIT, &[format!("--pid={}", worker.pid())]);
    for _ in 0..10 {
        worker.say("child");
    }
    worker.say("again");
    worker.say("name forked");
    let line = plugin.line();
    let [faults, handled] = numbers(&line)[..] else { panic!("{line}") };
    assert!(faults >= 11_000, "{line}");
    // Only the second number includes a child's faults between the read of the counter and the read of the
    // variable.
    assert!(handled >= faults && handled - faults < 100, "{line}");
    assert_eq!(plugin.line(), "detached");
    worker.say("again");
    worker.say("name over");
    assert_eq!(plugin.line(), "0");
}
