//! Output that nobody reads: a full pipe, socket or terminal. It keeps neither what a plugin holds nor the
//! command: the plugin that is ended leaves its write, and a second signal ends the command.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ks_host::Writer;
use ks_host::plugin::Outcome;
use ks_tests::plugins::{OWN_EVENT, component, run_with};
use ks_tests::{Folder, command, is_within, wait_until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LIMIT: Duration = Duration::from_secs(60);

/// Time after which a signal of the same kind is a request of its own.
const NEXT_SIGNAL: Duration = Duration::from_millis(300);

/// Returns a component that calls this function with a text, again and again.
fn flooding(function: &str) -> Vec<u8> {
    let call = match function {
        "print" => "(call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))",
        _ => "(call $warn (i32.const 16) (i32.const 5))",
    };
    component(&format!(
        r#"(data (i32.const 16) "flood")
        (func (export "run") (result i32) (loop $again {call} (br $again)) (unreachable))"#
    ))
}

/// A pipe that nobody reads.
fn unread() -> (PipeReader, OwnedFd) {
    let (reader, writer) = io::pipe().expect("a pipe");
    (reader, writer.into())
}

fn is_full(output: &impl AsFd) -> bool {
    poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO) == Ok(0)
}

/// Starts a command whose streams are both this output, and waits until that is full.
fn start(command: &mut Command, output: &OwnedFd) -> Child {
    let end = || Stdio::from(output.try_clone().expect("descriptors are left"));
    let child = command.stdin(Stdio::null()).stdout(end()).stderr(end()).spawn().expect("ks-host starts");
    wait_until(LIMIT, "the output is full", || is_full(output));
    child
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).expect("the child is ours");
}

/// Asks a command twice to stop, and returns its exit code.
fn stopped_twice(mut child: Child) -> Option<i32> {
    signal(&child, Signal::SIGTERM);
    std::thread::sleep(NEXT_SIGNAL);
    signal(&child, Signal::SIGTERM);
    ended(&mut child)
}

fn ended(child: &mut Child) -> Option<i32> {
    let mut status = None;
    let is_over = is_within(LIMIT, || {
        status = child.try_wait().expect("it is ours");
        status.is_some()
    });
    if !is_over {
        signal(child, Signal::SIGKILL);
    }
    status.unwrap_or_else(|| panic!("ks-host does not end")).code()
}

fn written(folder: &Folder) -> [std::path::PathBuf; 2] {
    ["print", "warn"].map(|function| folder.write(&format!("{function}.wasm"), flooding(function)))
}

#[test]
fn a_second_signal_ends_the_command_whatever_its_output_waits_for() {
    let folder = Folder::new();
    let [print, warn] = written(&folder);
    let cases: [&[&Path]; 4] = [&[&print], &[&warn], &[&print, &warn], &[&warn, &print, &print]];
    for (plugins, options) in cases.into_iter().zip([&[][..], &["--json"], &["-v"], &["--timeout", "1"]]) {
        let (_reader, output) = unread();
        let child = start(command("ks-host").args(options).args(plugins), &output);
        assert_eq!(stopped_twice(child), Some(130), "{options:?} {plugins:?}");
    }
}

#[test]
fn a_second_signal_ends_a_command_whose_output_is_a_socket() {
    let folder = Folder::new();
    for plugin in written(&folder) {
        let (_peer, output) = UnixStream::pair().expect("sockets");
        let child = start(command("ks-host").arg(plugin), &output.into());
        assert_eq!(stopped_twice(child), Some(130));
    }
}

/// The thread that replaces a plugin reports it on the full stream.
#[test]
fn a_plugin_that_was_replaced_does_not_keep_the_command() {
    let folder = Folder::new();
    for (function, next) in [("print", "warn"), ("warn", "print")] {
        let plugin = folder.write("changed.wasm", flooding(function));
        let (_reader, output) = unread();
        let child = start(command("ks-host").arg(&plugin), &output);
        folder.write("changed.wasm", flooding(next));
        signal(&child, Signal::SIGHUP);
        let tasks = format!("/proc/{}/task", child.id());
        let is_reloading = || {
            let tasks = std::fs::read_dir(&tasks).expect("it lives").flatten();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.into_iter().any(|name| name.trim() == "reload")
        };
        wait_until(LIMIT, "a thread reloads", is_reloading);
        // The replaced plugin is ended after its grace time.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(stopped_twice(child), Some(130), "{function}");
    }
}

/// A terminal whose output is stopped, as by Ctrl-S.
#[test]
fn a_second_signal_ends_a_command_whose_terminal_is_not_read() {
    let folder = Folder::new();
    for plugin in written(&folder) {
        let pid = plugin.with_extension("pid");
        // `exec` keeps the id.
        let line = format!(
            "echo $$ > {}; exec {} {}",
            pid.display(),
            ks_tests::binary("ks-host").display(),
            plugin.display()
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qfec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut terminal = terminal.process_group(0).spawn().expect("script starts");
        // Nobody reads what `script` copies from the terminal, so that `script` waits, too.
        let host = || std::fs::read_to_string(&pid).ok()?.trim().parse().ok().map(Pid::from_raw);
        wait_until(LIMIT, "the command starts", || host().is_some());
        let host = host().expect("it has started");
        // Until the terminal and the pipe behind it are full.
        std::thread::sleep(Duration::from_secs(2));
        let began = kill(host, Signal::SIGTERM);
        std::thread::sleep(NEXT_SIGNAL);
        // It may have ended after the first one.
        let _ = kill(host, Signal::SIGTERM);
        let is_over = is_within(LIMIT, || {
            let stat = std::fs::read_to_string(format!("/proc/{host}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
        let _ = kill(host, Signal::SIGKILL);
        let _ = terminal.kill();
        terminal.wait().expect("it is ours");
        assert!(began.is_ok() && is_over, "ks-host did not wait ({began:?}), or does not end");
    }
}

/// Whether the output of a plugin that was ended waited for a reader.
fn is_lost(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(reason) if reason.contains("waited for a reader"))
}

/// Opens an event, and then writes for ever.
#[test]
fn a_plugin_that_is_ended_in_a_write_holds_nothing() {
    ks_tests::alone!();
    let events = || {
        let folder = std::fs::read_dir("/proc/self/fd").expect("procfs is there");
        let links = folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
    };
    for (call, is_reported) in [
        ("(call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))", true),
        ("(call $warn (i32.const 16) (i32.const 5))", false),
    ] {
        let file = component(&format!(
            r#"{OWN_EVENT} (data (i32.const 16) "flood")
            (func (export "run") (result i32)
              (drop (call $own_page_faults (i32.const 0) (i32.const 0)))
              (loop $again {call} (br $again)) (unreachable))"#
        ));
        let (_reader, pipe) = unread();
        let (_peer, socket) = UnixStream::pair().expect("sockets");
        for writer in [Writer::new(pipe), Writer::new(socket)] {
            let ran = run_with(file.clone(), |options| {
                options.stdout = Box::new(writer.clone());
                options.stderr = Box::new(writer);
                options.timeout = Some(Duration::from_millis(50));
                options.grace = Duration::from_millis(50);
                options.output_wait = Duration::from_millis(50);
            });
            // What was printed is lost, which is worse than a time that is over.
            if is_reported {
                assert!(is_lost(&ran.outcome), "{:?}", ran.outcome);
            } else {
                assert_eq!(ran.outcome, Outcome::TimedOut);
            }
            assert_eq!(events(), 0, "events are open after {call}");
        }
    }
}

/// The second plugin waits until the first one has left the stream.
#[test]
fn a_plugin_that_was_ended_lets_the_next_one_write() {
    let (reader, pipe) = unread();
    let writer = Writer::new(pipe);
    let run = |file: Vec<u8>| {
        run_with(file, |options| {
            options.stdout = Box::new(writer.clone());
            options.timeout = Some(Duration::from_millis(50));
            options.grace = Duration::from_millis(50);
            options.output_wait = Duration::from_millis(50);
        })
    };
    let flooded = run(flooding("print")).outcome;
    assert!(is_lost(&flooded), "{flooded:?}");
    drop(reader);
    let says = component(
        r#"(data (i32.const 16) "flood")
        (func (export "run") (result i32)
          (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0)) (i32.const 3))"#,
    );
    // The reader is gone, which asks the plugin to stop.
    assert_eq!(run(says).outcome, Outcome::Returned(3));
}

/// A reader that pauses longer than the grace after the time limit gets every line.
#[test]
fn a_reader_that_pauses_gets_what_was_printed() {
    let (mut reader, pipe) = unread();
    let lines = 100_000;
    let counts = component(&format!(
        r#"(data (i32.const 16) "line\n")
        (func (export "run") (result i32) (local $n i32)
          (loop $again
            (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const {lines}))))
          (i32.const 3))"#
    ));
    let reading = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        io::read_to_string(&mut reader).expect("it is text").lines().count()
    });
    let ran = run_with(counts, |options| {
        options.stdout = Box::new(Writer::new(pipe));
        options.timeout = Some(Duration::from_millis(50));
        options.grace = Duration::from_millis(50);
    });
    assert_eq!(ran.outcome, Outcome::TimedOut);
    assert_eq!(reading.join().expect("no panic"), lines);
}
