//! Tools that lose what they observe, and tools whose process ends: they say so, or show what was there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use ks_tests::{Folder, command, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{RunningTool, histogram, rows};

/// A shell that works when a line comes.
pub(super) fn shell(work: &str) -> (Child, String) {
    let mut child = Command::new("sh")
        .args(["-c", &format!("echo; read go; {work}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = child.id().to_string();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut String::new()).expect("a line");
    (child, pid)
}

/// Lets the shell work, and waits for its end.
pub(super) fn work(shell: &mut Child) -> std::process::ExitStatus {
    shell.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
    shell.wait().expect("it is ours")
}

/// The lines that are shown and those that are lost are all that there were.
#[test]
fn root_a_tool_that_does_not_read_says_how_many_lines_are_lost() {
    const OPENS: usize = 20_000;
    let (mut shell, pid) =
        shell(&format!("i=0; while [ $i -lt {OPENS} ]; do : < /dev/null; i=$((i + 1)); done"));
    let beside = RunningTool::begin("opensnoop", &["--pid", &pid]);
    let host = Pid::from_raw(beside.child.id().cast_signed());
    kill(host, Signal::SIGSTOP).expect("it is ours");
    let status = work(&mut shell);
    kill(host, Signal::SIGCONT).expect("it is ours");
    assert!(status.success(), "{status}");
    let ran = beside.end();
    let lost = ran.number_before(" lines that programs printed were lost");
    let shown = rows(&ran, " /dev/null").len();
    assert!(lost > 0 && shown > 0, "{shown} shown, {}", ran.stderr);
    assert_eq!(shown as u64 + lost, OPENS as u64, "{shown} shown, {}", ran.stderr);
}

#[test]
fn root_a_tool_whose_map_is_full_says_how_many_updates_are_lost() {
    let source = finish(command("ks-host").args(["tools", "syscount", "--source"])).stdout;
    let small = source.replace("numbers : hash<i64, Calls>(512)", "numbers : hash<i64, Calls>(4)");
    assert_ne!(small, source);
    let folder = Folder::new();
    let run = ["--timeout", "60", "--exec-code", "--exec", "cat", "/dev/null"];
    let ran = finish(command("ks-host").arg(folder.write("small.ks", small)).args(run));
    // A loss does not end a tool: what it shows is right, and what it says tells that it is not all.
    assert_eq!(ran.code, 0, "{ran:#?}");
    let lost = ran.number_before(" updates by programs were lost, because it was full");
    assert!(lost > 0 && ran.stderr.contains("map `numbers`"), "{ran:#?}");
    // A title, a heading, and the map's four entries.
    assert_eq!(ran.stdout.lines().count(), 6, "{ran:#?}");
}

#[test]
fn root_tools_outlive_the_process_that_they_observe() {
    let (mut shell, pid) = shell(": < /dev/null; kill -9 $$");
    let [opened, called, ran] =
        ["opensnoop", "syscount", "cpudist"].map(|name| RunningTool::begin(name, &["--pid", &pid]));
    assert_eq!(work(&mut shell).signal(), Some(9));
    // The process is gone, and its number is free.
    assert!(kill(Pid::from_raw(pid.parse().expect("a number")), None).is_err());
    let [opened, called, ran] = [opened, called, ran].map(RunningTool::end);
    for one in [&opened, &called, &ran] {
        assert_eq!(one.stderr, "", "{one:#?}");
    }
    assert_eq!(rows(&opened, " /dev/null").len(), 1, "{opened:#?}");
    // Opening is counted once; the signal ends the call that sends it, which the kernel counts as one that returned.
    assert_eq!(called.numbers("openat")[..2], [1, 0], "{called:#?}");
    assert_eq!(called.numbers("kill")[..2], [1, 0], "{called:#?}");
    assert!(histogram(&ran, "us ").0 > 0, "{ran:#?}");
}
