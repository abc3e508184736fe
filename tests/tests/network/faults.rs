//! Attachments whose target goes away: the plugin continues and ends cleanly, and a count stays a number or
//! becomes an error. These tests need root.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use ks_tests::net::{LEFT, Wire};
use ks_tests::{Folder, compile, wait_until_gone};

/// Starts the host, and returns it with its standard output.
fn start(mut host: Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child =
        host.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    (child, stdout)
}

fn line(stdout: &mut impl BufRead) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).expect("text");
    line
}

/// Asks the host to stop; returns its exit code and its standard error.
fn stop(child: Child) -> (Option<i32>, String) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it lives");
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn root_an_interface_that_is_removed_takes_its_programs_along() {
    let script = include_str!("scripts/faults_an_interface_that_is_removed_takes_its_programs_along.ks");
    let wire = Wire::new();
    let folder = Folder::new();
    let plugin = folder.write("ksflt.wasm", compile("ksflt", script).plugin);
    let mut host = wire.allowed();
    host.arg(&plugin);
    let (child, mut stdout) = start(host);
    assert_eq!(line(&mut stdout), "0 0\n");
    let removed = wire.in_left(|| {
        // A thread's children are in the thread's namespace.
        Command::new("ip").args(["link", "del", LEFT]).status().expect("ip starts").success()
    });
    assert!(removed);
    let (code, said) = stop(child);
    assert_eq!((code, line(&mut stdout)), (Some(7), "again true\n".into()), "{said}");
    wait_until_gone("ksflt");
}

#[test]
fn root_a_watched_task_that_ends_keeps_its_count() {
    let script = include_str!("scripts/faults_a_watched_task_that_ends_keeps_its_count.ks");
    // The task waits once for each line that it reads.
    let mut cat =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat is there");
    let folder = Folder::new();
    let script = script.replace("PID", &cat.id().to_string());
    let plugin = folder.write("ksflp.wasm", compile("ksflp", &script).plugin);
    let mut host = ks_tests::allowed();
    host.arg(&plugin);
    let (child, mut stdout) = start(host);
    assert_eq!(line(&mut stdout), "true\n");
    let mut answers = BufReader::new(cat.stdout.take().expect("piped"));
    for _ in 0..10 {
        cat.stdin.as_mut().expect("piped").write_all(b"line\n").expect("it reads");
        assert_eq!(line(&mut answers), "line\n");
    }
    drop(cat.stdin.take());
    assert!(cat.wait().expect("it ends").success());
    let (code, said) = stop(child);
    let printed = [line(&mut stdout), line(&mut stdout)];
    assert_eq!((code, printed), (Some(7), ["true\n".into(), "again false\n".into()]), "{said}");
}
