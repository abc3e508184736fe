//! The observed command. The host starts it, and it waits before its exec until the plugin has attached, so
//! that counting begins at the exec, as in `perf stat`.
//!
//! When the command ends, the plugin is asked to stop; when the plugin ends first, the command is asked to
//! end (SIGTERM).

mod sys;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{self, Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, pipe2, write};

use crate::plugin::{StopHandle, StopReason};

/// The exit status of a command, once it has ended.
#[derive(Debug, Clone, Default)]
pub struct ExecStatus(Arc<OnceLock<ExitStatus>>);

impl ExecStatus {
    /// Returns the exit status; none if the command never ran, or still runs.
    pub fn get(&self) -> Option<ExitStatus> {
        self.0.get().copied()
    }
}

/// A started command. Dropping it asks the command to end; a command that still waits before its exec never
/// runs.
#[derive(Debug)]
pub struct Command {
    command_line: Vec<OsString>,
    pid: Pid,
    /// The pipe that releases the exec; none once it is released.
    gate: Option<OwnedFd>,
    /// Whether it was released: a process that was not ends without an exec.
    released: Arc<AtomicBool>,
    /// Receives the result of the exec.
    started: Receiver<io::Result<()>>,
    ended: Arc<Mutex<bool>>,
}

impl Command {
    /// Starts a process that waits before it executes this command line: a program, searched in `PATH`, and
    /// its arguments. It inherits the terminal, the environment and the working directory. When it ends, its
    /// status is stored in `status` and `stop` is asked.
    ///
    /// # Errors
    /// Of fork(2) and pipe(2); `InvalidInput` if the command line is empty.
    pub fn start(command_line: &[OsString], stop: StopHandle, status: ExecStatus) -> io::Result<Command> {
        let (program, arguments) = command_line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (pid_reader, pid_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (gate_reader, gate_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let mut command = process::Command::new(program);
        command.args(arguments);
        sys::wait_before_exec(&mut command, pid_writer, gate_reader, &gate_writer);
        let (sender, started) = mpsc::channel();
        let ended = Arc::new(Mutex::new(false));
        let has_ended = Arc::clone(&ended);
        let released = Arc::new(AtomicBool::new(false));
        let was_released = Arc::clone(&released);
        // `spawn` returns when the exec has succeeded or failed. This thread is also the only one that waits
        // for the child.
        thread::Builder::new().name("command".into()).spawn(move || {
            let child = command.spawn();
            // Closes this process's ends of the pipes.
            drop(command);
            match child {
                Ok(mut child) if !was_released.load(Ordering::Relaxed) => {
                    // It ends at once, and nobody waits for its result.
                    let _ = child.wait();
                }
                Ok(child) => {
                    // The receiver is gone if the plugin has ended.
                    let _ = sender.send(Ok(()));
                    wait_for(child, &has_ended, &status);
                    stop.ask(StopReason::CommandEnded);
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
        let mut pid = [0; 4];
        match File::from(pid_reader).read_exact(&mut pid) {
            Ok(()) => {
                let pid = Pid::from_raw(i32::from_ne_bytes(pid));
                Ok(Command {
                    command_line: command_line.to_vec(),
                    pid,
                    gate: Some(gate_writer),
                    released,
                    started,
                    ended,
                })
            }
            Err(error) => {
                // Closing the pipe ends a process that waits.
                drop(gate_writer);
                Err(started.recv().ok().and_then(Result::err).unwrap_or(error))
            }
        }
    }

    /// The process id, which is also the id of the task that execs.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Releases the exec and waits for its result. Returns true for the first call, false for later ones.
    ///
    /// # Errors
    /// Of execve(2), for example that there is no such program.
    pub fn release(&mut self) -> io::Result<bool> {
        let Some(gate) = self.gate.take() else { return Ok(false) };
        self.released.store(true, Ordering::Relaxed);
        write(gate, &[1])?;
        let started = self.started.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        started.map(|()| true)
    }

    /// Whether the process still waits before its exec.
    pub fn is_waiting(&self) -> bool {
        self.gate.is_some()
    }

    /// The descriptor that releases the exec; none once it is released.
    pub fn gate(&self) -> Option<BorrowedFd<'_>> {
        self.gate.as_ref().map(AsFd::as_fd)
    }

    /// Formats the command line for messages.
    pub fn command_line(&self) -> String {
        self.command_line.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if self.gate.is_none() && !*ended {
            // EPERM if the process belongs to another user by now (set-user-id); then it continues.
            let _ = kill(self.pid, Signal::SIGTERM);
        }
    }
}

/// Waits for the end of the command. Its process id is not reused until `ended` is true.
fn wait_for(mut child: Child, ended: &Mutex<bool>, status: &ExecStatus) {
    let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else { return };
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(pid), flags) == Err(nix::errno::Errno::EINTR) {}
    *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
    // The process has ended: this reaps it. A command is started once, so nothing else has set the status.
    if let Ok(ended) = child.wait() {
        let _ = status.0.set(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn command_line(command_line: &[&str]) -> Vec<OsString> {
        command_line.iter().map(OsString::from).collect()
    }

    fn exists(pid: i32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_command_waits_until_it_may_run_and_asks_the_plugin_to_stop_when_it_ends() {
        let (stop, status) = (StopHandle::new(), ExecStatus::default());
        let mut command =
            Command::start(&command_line(&["sh", "-c", "exit 7"]), stop.clone(), status.clone()).unwrap();
        assert!(exists(command.pid()) && command.is_waiting() && !stop.stopping());
        assert!(command.release().unwrap());
        assert!(stop.wait(std::time::Duration::MAX));
        assert_eq!(status.get().and_then(|status| status.code()), Some(7));
        assert!(!command.release().unwrap());
    }

    #[test]
    fn a_missing_program_is_reported_when_it_should_run() {
        let mut command =
            Command::start(&command_line(&["ks-no-such-program"]), StopHandle::new(), ExecStatus::default())
                .unwrap();
        assert_eq!(command.release().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(Command::start(&[], StopHandle::new(), ExecStatus::default()).is_err());
    }

    #[test]
    fn dropped_commands_are_killed() {
        for run in [false, true] {
            let mut command =
                Command::start(&command_line(&["sleep", "1000"]), StopHandle::new(), ExecStatus::default())
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
