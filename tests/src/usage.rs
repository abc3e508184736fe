//! The end of a process, with its resource usage.
#![expect(unsafe_code, reason = "wait4(2) has no safe wrapper")]

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::libc;

/// Waits for a child. Returns its status and its peak resident memory in KiB.
///
/// # Errors
/// If it was waited for already.
///
/// Source: wait4(2), getrusage(2), `ru_maxrss`.
pub fn wait(child: Child) -> io::Result<(ExitStatus, i64)> {
    let id = child.id() as libc::pid_t;
    loop {
        let mut status = 0;
        // SAFETY: a struct of numbers, for which zero is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes both, which live until the call returns.
        let waited = unsafe { libc::wait4(id, &raw mut status, 0, &raw mut usage) };
        match Errno::result(waited) {
            Ok(_) => return Ok((ExitStatus::from_raw(status), usage.ru_maxrss)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
