//! A thousand plugins in one `ks-host`, or two hundred in processes of their own: all run, and each costs little.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use ks_tests::{Folder, command, compile, finish, wait_until, wait_until_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Number of concurrent plugins.
const PLUGINS: usize = 1000;
/// Number of concurrent plugins in processes of their own.
const PROCESSES: usize = 200;
/// Number of different plugin files.
const FILES: usize = 8;

/// Returns a plugin with a kernel half: it counts the page faults of its own thread; every hundred millionth
/// runs the program.
fn script(program: &str, number: usize) -> String {
    format!(
        "var hits : u64 = 0\n\n@perf_event\nfn {program}(ctx: *bpf_perf_event_data) -> i32 {{\n    \
         hits += 1\n    \
         return 0\n}}\n\nfn main() -> i32 {{\n    var p = load({program})\n    \
         var a = attach(p, perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 100000000 }}, \
         0)\n    \
         print(\"plugin {number} counts\")\n    sleep(600000)\n    if (read(a).raw < 0) {{\n        \
         return 1\n    }}\n    \
         return 0\n}}\n"
    )
}

/// Starts these files and waits until each has printed its line.
fn start(isolation: &str, files: &[std::path::PathBuf]) -> Child {
    let mut child = command("ks-host")
        .args(["--isolation", isolation])
        .args(files)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("ks-host starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    for index in 0..files.len() {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        assert!(line.ends_with(" counts\n"), "line {index}: {line:?}");
    }
    // Closing the pipe would ask the plugins to stop.
    child.stdout = Some(stdout.into_inner());
    child
}

/// Returns the process's memory in bytes: anonymous memory, and its share of mapped files.
fn memory(child: &Child) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", child.id());
    let text = std::fs::read_to_string(path).expect("the process runs");
    let line = text.lines().find(|line| line.starts_with("Pss:")).expect("the kernel says it");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|field| field.parse().ok()).expect("a number");
    kib << 10
}

fn stop(mut child: Child) -> Option<i32> {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("the child is ours");
    child.wait().expect("the child is ours").code()
}

/// Writes plugins with this program, and compiles them ahead.
fn compiled(folder: &Folder, program: &str) -> Vec<std::path::PathBuf> {
    let write = |number| {
        let name = format!("many{number}");
        folder.write(&format!("{name}.wasm"), compile(&name, &script(program, number)).plugin)
    };
    let files: Vec<_> = (0..FILES).map(write).collect();
    let compiled = finish(command("ks-host").arg("precompile").args(&files));
    assert_eq!(compiled.code, 0, "{compiled:#?}");
    files
}

#[test]
fn root_a_thousand_plugins_run_and_each_takes_less_than_a_mebibyte() {
    let folder = Folder::new();
    let program = format!("many_{}", std::process::id());
    let files = compiled(&folder, &program);
    let one = start("thread", &files[..1]);
    let alone = memory(&one);
    assert_eq!(stop(one), Some(0));

    let all: Vec<_> = files.iter().cycle().take(PLUGINS).cloned().collect();
    let many = start("thread", &all);
    let each = (memory(&many) - alone) / (PLUGINS as u64 - 1);
    println!("one plugin: {} KiB; each of {} more: {} KiB", alone >> 10, PLUGINS - 1, each >> 10);
    assert!(each < 1 << 20, "each plugin beyond the first takes {each} bytes");
    assert_eq!(stop(many), Some(0));
    wait_until_gone(&program);
}

/// Returns the processes that a `ks-host` has started: a worker for each plugin, and the one that they are forked from.
fn children(child: &Child) -> Vec<u32> {
    own_children(child.id())
}

/// Returns the children of all threads of a process.
fn own_children(pid: u32) -> Vec<u32> {
    // One that has ended has none.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let all = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    all.flat_map(|children| children.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .map(|pid| pid.parse().expect("a number"))
        .collect()
}

#[test]
fn root_two_hundred_plugins_run_in_processes_and_leave_none() {
    let folder = Folder::new();
    let program = format!("many_own_{}", std::process::id());
    let files = compiled(&folder, &program);
    let all: Vec<_> = files.iter().cycle().take(PROCESSES).cloned().collect();
    let many = start("process", &all);
    // What has loaded the programs has ended.
    let loaders = |of: &[u32]| of.iter().filter(|pid| !own_children(**pid).is_empty()).count();
    wait_until(Duration::from_secs(10), "no loader is left", || loaders(&children(&many)) == 0);
    let children = children(&many);
    assert_eq!(children.len(), PROCESSES + 1);
    let threads = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").count();
    let numbers: Vec<usize> = children.iter().map(threads).collect();
    assert_eq!(numbers, vec![1; PROCESSES + 1]);
    // Where other tests keep the CPUs busy, some are ended when their time to stop is over.
    let code = stop(many);
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    let is_there = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}")).exists();
    wait_until(Duration::from_secs(10), "the processes have ended", || !children.iter().any(is_there));
    wait_until_gone(&program);
}
