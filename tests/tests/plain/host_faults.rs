//! Failures around a plugin or in the host itself: they are reported and contained, and the other plugins
//! continue.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use ks_host::plugin::{Outcome, Plugin, StopHandle, StopReason};
use ks_host::{Host, RunOptions};
use ks_tests::plugins::{Capture, OWN_EVENT, component, run_with};
use ks_tests::{binary, command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Returns a component that prints `ready` and then runs this code.
fn ready_then(what: &str) -> Vec<u8> {
    component(&format!(
        r#"{OWN_EVENT}
        (data (i32.const 16) "ready")
        (func (export "run") (result i32)
          (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))
          {what})"#
    ))
}

const SLEEPS: &str = "(call $sleep (i64.const 3600000000000) (i32.const 1024)) (i32.const 9)";

/// Opens events until the host refuses one, and ends with the host's message.
const OPENS: &str =
    "(loop $more (drop (call $own_page_faults (i32.const 0) (i32.const 0))) (br $more)) (unreachable)";

/// A writer that panics, as a broken part of the host.
struct Broken;

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        panic!("nobody expected {}", "this")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a writer to a full device.
fn full() -> Box<dyn Write + Send> {
    Box::new(File::options().write(true).open("/dev/full").expect("Linux has it"))
}

#[test]
fn a_panic_of_the_host_ends_one_plugin_and_no_other() {
    let host = Host::new().expect("an engine");
    let plugin = Plugin::from_bytes(ready_then(SLEEPS)).expect("a plugin");
    let prepared = host.prepare(&plugin).expect("it fits");
    let (stop, stdout) = (StopHandle::new(), Capture::default());
    std::thread::scope(|scope| {
        let options =
            RunOptions { stdout: Box::new(stdout.clone()), stop: stop.clone(), ..RunOptions::new("beside") };
        let other_plugin = scope.spawn(|| prepared.run(options));
        for _ in 0..3 {
            let broken = RunOptions { stdout: Box::new(Broken), ..RunOptions::new("broken") };
            match prepared.run(broken) {
                Outcome::Failed(reason) => {
                    assert!(reason.contains("defect") && reason.contains("nobody expected this"), "{reason}")
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(!other_plugin.is_finished(), "the plugin beside goes on");
        stop.ask(StopReason::Asked);
        assert_eq!(other_plugin.join().expect("no panic"), Outcome::Returned(9));
    });
    assert_eq!(stdout.text(), "ready\n");
}

/// The host closes the events that the plugin had open.
#[test]
fn a_panic_releases_everything_that_a_plugin_held() {
    ks_tests::alone!();
    let events = || {
        let folder = std::fs::read_dir("/proc/self/fd").expect("procfs is there");
        let links = folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
    };
    let held = "(drop (call $own_page_faults (i32.const 0) (i32.const 0)))
        (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0)) (i32.const 0)";
    let file = component(&format!(
        r#"{OWN_EVENT} (data (i32.const 16) "ready") (func (export "run") (result i32) {held})"#
    ));
    let ran = run_with(file, |options| options.stdout = Box::new(Broken));
    assert!(matches!(ran.outcome, Outcome::Failed(_)), "{:?}", ran.outcome);
    assert_eq!(events(), 0, "events are open");
}

#[test]
fn a_full_disk_ends_the_plugin_with_a_reason() {
    for what in [SLEEPS, "(i32.const 0)", "(call $exit (i32.const 7)) (unreachable)"] {
        let ran = run_with(ready_then(what), |options| options.stdout = full());
        assert_eq!(ran.outcome.exit_code(), 125, "{:?}", ran.outcome);
        match ran.outcome {
            Outcome::Failed(reason) => assert!(
                reason.contains("cannot write to standard output") && reason.contains("No space left"),
                "{reason}"
            ),
            other => panic!("{what}: {other:?}"),
        }
    }
    // A plugin does not end because its warnings cannot be written.
    let warns = component(
        r#"(data (i32.const 16) "ready")
        (func (export "run") (result i32) (call $warn (i32.const 16) (i32.const 5)) (i32.const 3))"#,
    );
    assert_eq!(run_with(warns, |options| options.stderr = full()).outcome, Outcome::Returned(3));
}

/// A temporary plugin file, removed when dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, bytes: &[u8]) -> TempFile {
        let path = std::env::temp_dir().join(format!("ks-faults-{}-{name}.wasm", std::process::id()));
        std::fs::write(&path, bytes).expect("the folder for temporary files is writable");
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a plugin under a limit of the shell's `ulimit`.
fn below(limit: &str, plugin: &TempFile) -> Output {
    let run =
        format!("ulimit {limit} && exec {} --no-cache {}", binary("ks-host").display(), plugin.0.display());
    Command::new("sh").args(["-c", &run]).output().expect("the shell starts")
}

#[test]
fn exhausted_descriptors_are_reported() {
    let output = below("-n 40", &TempFile::new("descriptors", &ready_then(OPENS)));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    // Half of so few are the host's own.
    assert!(said.contains("the limit `descriptors` of the plugin is 20") && said.contains("do:"), "{said}");
}

#[test]
fn exhausted_address_space_is_reported() {
    // Enough for the program itself, not for the memory of a plugin (4 GiB are reserved).
    let output = below("-v 3000000", &TempFile::new("address", &ready_then("(i32.const 0)")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]), "{said}");
    assert!(said.contains("memory"), "{said}");
}

#[test]
fn a_full_disk_is_an_exit_code_of_the_command() {
    let plugin = TempFile::new("full", &ready_then(SLEEPS));
    let mut command = command("ks-host");
    command.arg(&plugin.0).stdout(File::options().write(true).open("/dev/full").expect("Linux has it"));
    let output = command.output().expect("ks-host starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
}

#[test]
fn the_limit_that_ended_a_run_is_named() {
    let plugin = TempFile::new("named", &ready_then(SLEEPS));
    for (arguments, named) in [
        (["--timeout", "0.05"], "stopped after the time limit: --timeout 0.05"),
        (["--limit", "run_ms=50"], "the limit `run_ms` of the plugin is 50; --limit run_ms=.. allows more"),
    ] {
        let output = command("ks-host").args(arguments).arg(&plugin.0).output().expect("ks-host starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(124) && said.contains(named), "{said}");
    }
}

/// Starts a plugin and waits until it has printed `ready`.
fn start(plugin: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = command("ks-host");
    command.arg(plugin).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ks-host starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("readable");
    assert_eq!(line, "ready\n");
    (child, stdout)
}

/// Sends signals that the host ignores, and repeats of the same request.
#[test]
fn a_storm_of_signals_changes_nothing() {
    let plugin = TempFile::new("storm", &ready_then(SLEEPS));
    let (mut child, _stdout) = start(&plugin.0);
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").count();
    // The first SIGHUP starts the thread that reloads plugins.
    let most = threads() + 1;
    for iteration in 0..2000 {
        for signal in [
            Signal::SIGHUP,
            Signal::SIGCHLD,
            Signal::SIGURG,
            Signal::SIGWINCH,
            Signal::SIGSTOP,
            Signal::SIGCONT,
        ] {
            kill(pid, signal).expect("it lives");
        }
        assert!(iteration % 100 != 0 || threads() <= most, "{} threads, not {most}", threads());
    }
    kill(pid, Signal::SIGTERM).expect("it lives");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(said, "", "the file has not changed");
}
