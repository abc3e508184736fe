//! One process of a command.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::{self, Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, pipe2, write};

use super::{CommandLine, ExecStatus, sys};
use crate::plugin::{StopHandle, StopReason};

/// A process that waits before its exec, runs, or has ended. Dropping it asks it to end.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    /// The pipe that releases the exec; none once it is released.
    gate: Option<OwnedFd>,
    /// Whether it was released: a process that was not ends without an exec.
    released: Arc<AtomicBool>,
    /// Receives the result of the exec.
    started: Receiver<io::Result<()>>,
    ended: Arc<Mutex<bool>>,
    /// The thread that waits for the end of the process.
    waiter: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a process that waits before it executes this command line.
    ///
    /// # Errors
    /// Of fork(2) and pipe(2); `InvalidInput` if the command line is empty.
    pub(super) fn start(
        command_line: &CommandLine,
        stop: &StopHandle,
        status: &ExecStatus,
    ) -> io::Result<Process> {
        let (program, arguments) = command_line.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (pid_reader, pid_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (gate_reader, gate_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let mut command = process::Command::new(program);
        command.args(arguments);
        if command_line.is_silent {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        sys::wait_before_exec(&mut command, pid_writer, gate_reader, &gate_writer);
        let (sender, started) = mpsc::channel();
        let ended = Arc::new(Mutex::new(false));
        let has_ended = Arc::clone(&ended);
        let released = Arc::new(AtomicBool::new(false));
        let was_released = Arc::clone(&released);
        let (stop, status) = (stop.clone(), status.clone());
        // `spawn` returns when the exec has succeeded or failed. This thread is also the only one that waits
        // for the child.
        let waiter = thread::Builder::new().name("command".into()).spawn(move || {
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
                Ok(Process { pid, gate: Some(gate_writer), released, started, ended, waiter: Some(waiter) })
            }
            Err(error) => {
                // Closing the pipe ends a process that waits.
                drop(gate_writer);
                Err(started.recv().ok().and_then(Result::err).unwrap_or(error))
            }
        }
    }

    /// The process id, which is also the id of the task that execs.
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Releases the exec and waits for its result. Later calls do nothing.
    ///
    /// # Errors
    /// Of execve(2), for example that there is no such program.
    pub(super) fn release(&mut self) -> io::Result<()> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        self.released.store(true, Ordering::Relaxed);
        write(gate, &[1])?;
        self.started.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
    }

    /// Whether the process has ended and the plugin was asked to stop because of it.
    pub(super) fn has_ended(&mut self) -> bool {
        if !*self.ended.lock().unwrap_or_else(PoisonError::into_inner) {
            return false;
        }
        // The thread only has to report the end.
        self.waiter.take().is_none_or(|waiter| waiter.join().is_ok())
    }
}

impl Drop for Process {
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
    // The process has ended: this reaps it.
    if let Ok(ended) = child.wait() {
        status.set(ended);
    }
}
