//! The observed command. The host starts it, and it waits before its exec until the plugin has attached, so
//! that counting begins at the exec, as in `perf stat`.
//!
//! When the command ends, the plugin is asked to stop; when the plugin ends first, the command is asked to
//! end (SIGTERM). A plugin may have an ended command started again.
//!
//! ```text
//! Command, of the plugin's thread -- Request --> the keeper, a thread with the rights of the host
//!                                <-- answer ----/ starts, releases and ends one Process after the other
//! ```
//!
//! The plugin's thread is confined: it starts no processes, and sends no signals.

mod process;
mod sys;

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::plugin::StopHandle;
use process::Process;

/// The exit status of a command, once it has ended: of the last run, if it ran several times.
#[derive(Debug, Clone, Default)]
pub struct ExecStatus(Arc<Mutex<Option<ExitStatus>>>);

impl ExecStatus {
    /// Returns the exit status; none if the command never ran, or runs for the first time.
    pub fn get(&self) -> Option<ExitStatus> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, status: ExitStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }
}

/// A command line, and how it is run.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// A program, searched in `PATH`, and its arguments.
    pub words: Vec<OsString>,
    /// Whether its output is dropped; otherwise it has that of this process.
    pub is_silent: bool,
}

/// What the keeper is asked to do.
enum Request {
    /// Release the exec.
    Release(Sender<io::Result<()>>),
    /// Start a new process if the last one has ended: its id, or none.
    Restart(Sender<io::Result<Option<i32>>>),
}

/// A command that is being started. Dropping it has the command never run.
#[derive(Debug)]
pub struct StartingCommand {
    command_line: CommandLine,
    pid: Receiver<io::Result<i32>>,
    keeper: KeeperHandle,
}

impl StartingCommand {
    /// Starts a process that waits before it executes this command line. It inherits the terminal, the environment and
    /// the working directory. When it ends, its status is stored in `status` and `stop` is asked.
    ///
    /// # Errors
    /// Of clone(2).
    pub fn new(
        command_line: CommandLine,
        stop: StopHandle,
        status: ExecStatus,
    ) -> io::Result<StartingCommand> {
        let (requests, asked) = mpsc::channel();
        let (keeps, kept) = mpsc::channel();
        let (started, pid) = mpsc::channel();
        let line = command_line.clone();
        // The fork of a process as large as this one takes a millisecond, in which the caller goes on.
        thread::Builder::new().name("keeper".into()).spawn(move || {
            match Process::start(&line, &stop, &status) {
                Ok(process) => {
                    // Nobody waits for it if the command is not wanted any more.
                    let _ = started.send(Ok(process.pid()));
                    Keeper { command_line: line, stop, status, process, _keeps: keeps }.serve(asked);
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let keeper = KeeperHandle { requests: Some(requests), kept };
        Ok(StartingCommand { command_line, pid, keeper })
    }

    /// Waits until the process is there.
    ///
    /// # Errors
    /// Of fork(2) and pipe(2); `InvalidInput` if the command line is empty.
    pub fn started(self) -> io::Result<Command> {
        let StartingCommand { command_line, pid, keeper } = self;
        let pid = pid.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))??;
        Ok(Command { command_line, pid, is_waiting: true, keeper })
    }
}

/// The connection to the keeper. Dropping it ends the keeper, which asks its process to end before.
#[derive(Debug)]
struct KeeperHandle {
    /// None while it is dropped.
    requests: Option<Sender<Request>>,
    /// Ends when the keeper has.
    kept: Receiver<()>,
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        self.requests = None;
        // An error: the keeper has dropped its end, after it has ended the command.
        let _ = self.kept.recv();
    }
}

/// A started command. Dropping it asks the command to end; a command that still waits before its exec never
/// runs.
#[derive(Debug)]
pub struct Command {
    command_line: CommandLine,
    pid: i32,
    is_waiting: bool,
    keeper: KeeperHandle,
}

impl Command {
    /// Starts a command, and waits until its process is there.
    ///
    /// # Errors
    /// As [`StartingCommand::new`] and [`StartingCommand::started`].
    pub fn start(command_line: CommandLine, stop: StopHandle, status: ExecStatus) -> io::Result<Command> {
        StartingCommand::new(command_line, stop, status)?.started()
    }

    /// The process id, which is also the id of the task that execs.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Releases the exec and waits for its result. Returns true for the first call after a start, false for later
    /// ones.
    ///
    /// # Errors
    /// Of execve(2), for example that there is no such program.
    pub fn release(&mut self) -> io::Result<bool> {
        if !std::mem::take(&mut self.is_waiting) {
            return Ok(false);
        }
        self.ask(Request::Release).map(|()| true)
    }

    /// Starts the command again if it has ended: a new process that waits before its exec. Returns whether it did.
    ///
    /// # Errors
    /// As [`Command::start`].
    pub fn restart(&mut self) -> io::Result<bool> {
        let Some(pid) = self.ask(Request::Restart)? else { return Ok(false) };
        (self.pid, self.is_waiting) = (pid, true);
        Ok(true)
    }

    /// Whether the process still waits before its exec.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Formats the command line for messages.
    pub fn command_line(&self) -> String {
        self.command_line.words.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<io::Result<T>>) -> Request) -> io::Result<T> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (answer, answered) = mpsc::channel();
        let requests = self.keeper.requests.as_ref().ok_or_else(gone)?;
        requests.send(request(answer)).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

/// The thread that owns the process.
struct Keeper {
    command_line: CommandLine,
    stop: StopHandle,
    status: ExecStatus,
    process: Process,
    /// Dropped last: tells [`Command`] that the process was asked to end.
    _keeps: Sender<()>,
}

impl Keeper {
    /// Answers until the command is dropped. An asker that is gone needs no answer.
    fn serve(mut self, asked: Receiver<Request>) {
        for request in asked {
            match request {
                Request::Release(answer) => {
                    let _ = answer.send(self.process.release());
                }
                Request::Restart(answer) => {
                    let _ = answer.send(self.restart());
                }
            }
        }
    }

    fn restart(&mut self) -> io::Result<Option<i32>> {
        if !self.process.has_ended() || !self.stop.forget_end_of_command() {
            return Ok(None);
        }
        self.process = Process::start(&self.command_line, &self.stop, &self.status)?;
        Ok(Some(self.process.pid()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use crate::plugin::StopReason;

    fn command_line(words: &[&str]) -> CommandLine {
        CommandLine { words: words.iter().map(OsString::from).collect(), is_silent: false }
    }

    fn exists(pid: i32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_command_waits_until_it_may_run_and_asks_the_plugin_to_stop_when_it_ends() {
        let (stop, status) = (StopHandle::new(), ExecStatus::default());
        let mut command =
            Command::start(command_line(&["sh", "-c", "exit 7"]), stop.clone(), status.clone()).unwrap();
        assert!(exists(command.pid()) && command.is_waiting() && !stop.stopping());
        assert!(command.release().unwrap());
        assert!(stop.wait(std::time::Duration::MAX));
        assert_eq!(status.get().and_then(|status| status.code()), Some(7));
        assert!(!command.release().unwrap());
    }

    #[test]
    fn an_ended_command_runs_again_unless_somebody_wants_the_plugin_to_stop() {
        let (stop, status) = (StopHandle::new(), ExecStatus::default());
        let mut command =
            Command::start(command_line(&["sh", "-c", "exit 3"]), stop.clone(), status.clone()).unwrap();
        assert!(!command.restart().unwrap(), "it waits");
        let first = command.pid();
        assert!(command.release().unwrap() && stop.wait(std::time::Duration::MAX));
        assert!(command.restart().unwrap() && command.is_waiting() && !stop.stopping());
        assert!(command.pid() != first && exists(command.pid()));
        assert!(command.release().unwrap() && stop.wait(std::time::Duration::MAX));
        assert_eq!(status.get().and_then(|status| status.code()), Some(3));
        stop.ask(StopReason::Asked);
        assert!(!command.restart().unwrap() && stop.stopping());
    }

    #[test]
    fn a_missing_program_is_reported_when_it_should_run() {
        let mut command =
            Command::start(command_line(&["ks-no-such-program"]), StopHandle::new(), ExecStatus::default())
                .unwrap();
        assert_eq!(command.release().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(Command::start(CommandLine::default(), StopHandle::new(), ExecStatus::default()).is_err());
    }

    #[test]
    fn dropped_commands_are_killed() {
        for run in [false, true] {
            let mut command =
                Command::start(command_line(&["sleep", "1000"]), StopHandle::new(), ExecStatus::default())
                    .unwrap();
            if run {
                command.release().unwrap();
            }
            let pid = command.pid();
            drop(command);
            while exists(pid) {
                thread::yield_now();
            }
        }
    }
}
