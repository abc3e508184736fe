//! A child of this process, as its parent sees it: interrupted, ended.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::sys;
use crate::apart;

/// A child, ended when this is dropped. It is waited for only then, or when [`Process::end`] is called, so that its number
/// denotes no other process before.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    /// How it has ended, once it was waited for.
    ended: Mutex<Option<String>>,
}

impl Process {
    /// Takes over a child of this process, which nobody else waits for.
    pub(super) fn of_child(pid: Pid) -> Process {
        Process { pid, ended: Mutex::default() }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() {
            // Fails only if it has ended: it was not waited for, so the signal reaches nobody else.
            let _ = kill(self.pid, signal);
        }
    }

    /// Ends the process, if it has not ended, and says how it did.
    pub(crate) fn end(&self) -> String {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(|| wait_for(self.pid)).clone()
    }
}

/// A process that is no child of this one, ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Grandchild(OwnedFd);

impl Grandchild {
    /// Takes over a process by its descriptor (pidfd_open(2)).
    pub(super) fn new(descriptor: OwnedFd) -> Grandchild {
        Grandchild(descriptor)
    }
}

impl Drop for Grandchild {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = sys::signal(self.0.as_fd(), Signal::SIGKILL);
    }
}

fn wait_for(pid: Pid) -> String {
    let still = waitpid(pid, Some(WaitPidFlag::WNOHANG));
    if still == Ok(WaitStatus::StillAlive) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    let status = match still {
        Ok(WaitStatus::StillAlive) => loop {
            match waitpid(pid, None) {
                Err(Errno::EINTR) => {}
                ended => break ended,
            }
        },
        ended => ended,
    };
    match status {
        Ok(WaitStatus::Exited(_, code)) => apart::ended(ExitStatus::from_raw(code << 8)),
        Ok(WaitStatus::Signaled(_, signal, _)) => apart::ended(ExitStatus::from_raw(signal as i32)),
        Ok(other) => format!("changed its state to {other:?}"),
        Err(errno) => format!("cannot be waited for: {errno}"),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
