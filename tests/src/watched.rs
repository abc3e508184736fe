//! Observed threads: a test attaches a script, lets a thread work, and then reads what the script counted.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};

use crate::{Folder, Outcome, allowed, compile, cpus};

/// A script that runs in the background and has printed that it is ready.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    stdout: String,
    _folder: Option<Folder>,
}

impl Running {
    /// Compiles and starts a script with these arguments, and waits until it is ready. Its time limit is one
    /// minute.
    pub fn start<S: AsRef<OsStr>>(project: &str, script: &str, arguments: &[S]) -> Running {
        let mut host = allowed();
        host.args(["--timeout", "60"]);
        Running::begin(host, project, script, arguments, "ready")
    }

    /// Compiles a script and starts it with a given host command, for example in another network namespace.
    /// Waits for a first line that starts with `first`.
    pub fn begin<S: AsRef<OsStr>>(
        mut host: Command,
        project: &str,
        script: &str,
        arguments: &[S],
        first: &str,
    ) -> Running {
        let folder = Folder::new();
        let file = folder.write(&format!("{project}.wasm"), compile(project, script).plugin);
        let running = Running::of(host.arg(file).arg("--").args(arguments), first);
        Running { _folder: Some(folder), ..running }
    }

    /// Runs a command that runs a plugin, and waits for a first line that starts with `first`.
    pub fn of(host: &mut Command, first: &str) -> Running {
        let mut child = host
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ks-host starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut running = Running { child, lines, stdout: String::new(), _folder: None };
        running.lines.read_line(&mut running.stdout).expect("text");
        if !running.stdout.starts_with(first) {
            panic!("it does not get ready: {:#?}", running.finish());
        }
        running
    }

    /// Sends SIGINT, and waits until the process has ended.
    pub fn stop(self) -> Outcome {
        // The process was not waited for yet, so the signal is valid even if it has ended.
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT).expect("it is ours");
        self.finish()
    }

    /// Kills the process (SIGKILL), which must not have ended by itself.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        let status = self.child.wait().expect("it is ours");
        assert_eq!(status.code(), None, "it had not ended: {status}");
    }

    /// Waits until it has ended by itself.
    pub fn finish(mut self) -> Outcome {
        self.lines.read_to_string(&mut self.stdout).expect("text");
        let output = self.child.wait_with_output().expect("the child is ours");
        Outcome::of(output.status, self.stdout, &output.stderr)
    }
}

/// A thread on one CPU that works when it is started.
pub struct Worker {
    tid: i32,
    start: Sender<()>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Creates a thread that waits.
    pub fn new(cpu: usize, work: impl FnOnce() + Send + 'static) -> Worker {
        let (sender, receiver): (Sender<i32>, Receiver<i32>) = mpsc::channel();
        let (start, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            cpus::stay_on(cpu);
            sender.send(gettid().as_raw()).expect("the test listens");
            // The start never comes if the plugin fails.
            if started.recv().is_ok() {
                work();
            }
        });
        Worker { tid: receiver.recv().expect("the thread started"), start, thread }
    }

    /// Returns the thread's id, for `pid` of an event's options.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Starts the work and waits for its end.
    pub fn work(self) {
        self.start.send(()).expect("the thread waits");
        self.thread.join().expect("the thread does not panic");
    }
}
