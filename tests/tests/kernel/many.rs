//! A thousand plugins in one `ks-host`: all run, and each costs little.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use ks_tests::{Folder, command, compile, finish, wait_until_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Number of concurrent plugins.
const PLUGINS: usize = 1000;
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

/// Starts these files in one process and waits until each has printed its line.
fn start(files: &[std::path::PathBuf]) -> Child {
    let mut child = command("ks-host")
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

#[test]
fn root_a_thousand_plugins_run_and_each_takes_less_than_a_mebibyte() {
    let folder = Folder::new();
    let program = format!("many_{}", std::process::id());
    let files: Vec<_> = (0..FILES)
        .map(|number| {
            let name = format!("many{number}");
            folder.write(&format!("{name}.wasm"), compile(&name, &script(&program, number)).plugin)
        })
        .collect();
    let compiled = finish(command("ks-host").arg("precompile").args(&files));
    assert_eq!(compiled.code, 0, "{compiled:#?}");

    let one = start(&files[..1]);
    let alone = memory(&one);
    assert_eq!(stop(one), Some(0));

    let all: Vec<_> = files.iter().cycle().take(PLUGINS).cloned().collect();
    let many = start(&all);
    let each = (memory(&many) - alone) / (PLUGINS as u64 - 1);
    println!("one plugin: {} KiB; each of {} more: {} KiB", alone >> 10, PLUGINS - 1, each >> 10);
    assert!(each < 1 << 20, "each plugin beyond the first takes {each} bytes");
    assert_eq!(stop(many), Some(0));
    wait_until_gone(&program);
}
