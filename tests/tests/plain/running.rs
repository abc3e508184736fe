//! Several plugins in one `ks-host`: each is independent, is restarted, and is replaced when its file
//! changes; and the formats of their output.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use ks_tests::{Folder, command, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Returns a script that prints this line and then waits until it is asked to stop.
fn waits(line: &str) -> String {
    format!("fn main() -> i32 {{\n    print(\"{line}\")\n    sleep(600000)\n    return 5\n}}\n")
}

/// Returns a script that prints this line and ends with this code.
fn ends(line: &str, code: u8) -> String {
    format!("fn main() -> i32 {{\n    print(\"{line}\")\n    return {code}\n}}\n")
}

/// A running `ks-host`, killed when dropped.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    fn start<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Running {
        let mut child = command("ks-host")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ks-host starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        Running { child, stdout, stderr }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line
    }

    fn stderr_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("text");
        line
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the child is ours");
    }

    /// Asks the host to stop; returns its exit code and the rest of standard output and standard error.
    fn stop(mut self) -> (Option<i32>, String, String) {
        self.signal(Signal::SIGTERM);
        let code = self.child.wait().expect("the child is ours").code();
        let mut rest = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest.0).expect("text");
        self.stderr.read_to_string(&mut rest.1).expect("text");
        (code, rest.0, rest.1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Cleans up after a failed test; a child that has ended cannot be killed.
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
    }
}

#[test]
fn one_plugin_that_ends_or_traps_does_not_end_the_others() {
    let folder = Folder::new();
    let stays = folder.write("stays.ks", waits("here"));
    let short = folder.write("short.ks", ends("gone", 0));
    let trap = folder.write(
        "trap.ks",
        "fn main() -> i32 {\n    var a: u32[4] = []\n    var i: u32 = 9\n    \
         if (time_ns() == 0) { i = 1 }\n    \
         return a[i]\n}\n",
    );
    let mut running = Running::start(&[&short, &trap, &stays]);
    let mut lines = [running.line(), running.line()];
    lines.sort();
    assert_eq!(lines, ["short.ks: gone\n", "stays.ks: here\n"]);
    // The trap is reported while the third plugin runs.
    assert!(running.stderr_line().starts_with("trap.ks: "));
    let (code, _, _) = running.stop();
    assert_eq!(code, Some(125), "the first code in the order given that is not 0");
}

#[test]
fn prints_are_objects_with_time_plugin_and_line() {
    let folder = Folder::new();
    let one = folder.write("one.ks", ends("say \\\"one\\\"", 0));
    let two = folder.write("two.ks", ends("two", 4));
    let ran = finish(command("ks-host").arg("--json").args([&one, &two]));
    assert_eq!((ran.code, ran.stderr.as_str()), (4, ""), "{ran:#?}");
    let mut printed: Vec<(String, String)> = Vec::new();
    for line in ran.stdout.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("one object a line");
        assert!(object["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        let text = |name: &str| object[name].as_str().expect("text").to_owned();
        printed.push((text("plugin"), text("line")));
    }
    printed.sort();
    let expected = [("one.ks", "say \"one\""), ("two.ks", "two")];
    assert_eq!(printed, expected.map(|(plugin, line)| (plugin.to_owned(), line.to_owned())));
}

#[test]
fn errors_that_end_a_plugin_are_json_objects() {
    let folder = Folder::new();
    let traps = folder.write("traps.ks", include_str!("scripts/streams_trap.ks"));
    let waits = folder.write("waits.ks", include_str!("scripts/commands_waits.ks"));
    let ran = finish(command("ks-host").args(["--json", "--timeout", "300ms"]).args([&traps, &waits]));
    let mut errors: Vec<(String, String)> = Vec::new();
    for line in ran.stderr.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("one object a line");
        assert!(object["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        let text = |name: &str| object[name].as_str().expect("text").to_owned();
        errors.push((text("plugin"), text("error")));
    }
    errors.sort();
    let [(first, trap), (second, limit)] = &errors[..] else { panic!("{ran:#?}") };
    assert_eq!((first.as_str(), second.as_str()), ("traps.ks", "waits.ks"), "{ran:#?}");
    assert!(trap.contains("KS-TRAP") && limit.contains("--timeout 0.3"), "{ran:#?}");
}

#[test]
fn a_plugin_that_failed_starts_again_until_it_is_asked_to_stop() {
    let folder = Folder::new();
    let fails = folder.write("fails.ks", ends("once more", 3));
    let mut running = Running::start(&["--restart".as_ref(), "on-failure".as_ref(), fails.as_os_str()]);
    for _ in 0..3 {
        assert_eq!(running.line(), "once more\n");
    }
    assert_eq!(running.stderr_line(), "ks-host: fails.ks starts again in 0.1 s\n");
    let (code, _, _) = running.stop();
    assert_eq!(code, Some(3));
    let ran = finish(
        command("ks-host")
            .args(["run", "--restart", "on-failure"])
            .arg(folder.write("succeeds.ks", ends("done", 0))),
    );
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "done\n", ""), "{ran:#?}");
}

#[test]
fn a_hang_up_reads_changed_files_again() {
    let folder = Folder::new();
    let build = |name: &str, line: &str, plugin: &Path| {
        let script = folder.write(name, waits(line));
        let built = finish(command("ks").arg("build").arg(script).arg("-o").arg(plugin));
        assert_eq!(built.code, 0, "{built:#?}");
    };
    let (changes, stays) = (folder.path("changes.wasm"), folder.path("stays.wasm"));
    build("changes.ks", "first", &changes);
    build("stays.ks", "only", &stays);
    let limited = ["--limit".as_ref(), "compile_bytes=150000000".as_ref()];
    let mut running = Running::start(&[&limited[..], &[changes.as_os_str(), stays.as_os_str()]].concat());
    let mut lines = [running.line(), running.line()];
    lines.sort();
    assert_eq!(lines, ["changes.wasm: first\n", "stays.wasm: only\n"]);

    std::fs::write(&changes, "no plugin").expect("the folder is ours");
    running.signal(Signal::SIGHUP);
    assert!(running.stderr_line().contains("is not a plugin"));
    assert!(running.stderr_line().contains("runs on as it was"));

    // A separate process compiles a component that exceeds its limits; that process ends, and no plugin's
    // process does.
    std::fs::write(&changes, super::compiling::large(30_000)).expect("the folder is ours");
    running.signal(Signal::SIGHUP);
    assert!(running.stderr_line().contains("is not a plugin"));
    assert!(running.stderr_line().contains("do: --limit compile_bytes="));
    assert!(running.stderr_line().contains("runs on as it was"));

    build("changes.ks", "second", &changes);
    running.signal(Signal::SIGHUP);
    assert_eq!(running.line(), "changes.wasm: second\n");
    assert_eq!(running.stderr_line(), "ks-host: changes.wasm has changed and is started again\n");

    let (code, rest, stderr) = running.stop();
    assert_eq!((code, rest.as_str(), stderr.as_str()), (Some(5), "", ""));
}

#[test]
fn arguments_are_for_one_plugin() {
    let folder = Folder::new();
    let one = folder.write("one.ks", ends("one", 0));
    let ran = finish(command("ks-host").args([&one, &one]).args(["--", "--level", "3"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{ran:#?}");
    assert!(ran.stderr.contains("arguments after `--` are for one plugin"), "{ran:#?}");
}

/// A component of nothing.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

/// Whether it fits shows when its run has begun.
#[test]
fn a_component_that_does_not_fit_is_reported_and_runs_no_command() {
    let folder = Folder::new();
    let (file, made) = (folder.write("empty.wasm", EMPTY), folder.path("made"));
    for isolation in ["process", "thread"] {
        let mut host = command("ks-host");
        let ran =
            finish(host.args(["--isolation", isolation]).arg(&file).args(["--exec", "touch"]).arg(&made));
        assert_eq!((ran.code, ran.stdout.as_str()), (127, ""), "{isolation}: {ran:#?}");
        assert!(ran.stderr.contains("empty.wasm is not a plugin: "), "{isolation}: {ran:#?}");
        assert!(ran.stderr.contains("does not export `run`"), "{isolation}: {ran:#?}");
        assert!(!made.exists() && ran.stderr.lines().count() == 1, "{isolation}: {ran:#?}");
    }
}
