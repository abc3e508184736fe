//! Code that a child runs between fork and exec.
#![expect(
    unsafe_code,
    reason = "between fork and exec only some system calls are allowed, which nobody checks"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

/// Makes the child write its process id (a native-endian i32) to `tell` and wait for a byte from `gate`
/// before its exec. If the other end of `gate` is closed without one, the child ends: its parent may be gone, and then an
/// error that it returned to the standard library would abort it with a message. `parents_end` is that other end, which the
/// child must close.
///
/// The child begins with no signal blocked: this process takes those that ask it to stop by sigwait(3), on a thread for
/// that, and blocks them on all others.
pub(super) fn wait_before_exec(
    command: &mut Command,
    pid_pipe: OwnedFd,
    gate: OwnedFd,
    parents_end: &OwnedFd,
) {
    let parents_end = parents_end.as_raw_fd();
    let wait = move || {
        // SAFETY: getpid, close, write, read, sigemptyset, sigprocmask and _exit are async-signal-safe; nothing is
        // allocated. The descriptors are those of the parent at the fork, and the child uses `parents_end` for nothing
        // else. The buffers live on this stack frame.
        unsafe {
            libc::close(parents_end);
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            if libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(pid_pipe.as_raw_fd(), pid.as_ptr().cast(), pid.len()) != 4 {
                return Err(io::Error::last_os_error());
            }
            let mut byte = 0_u8;
            loop {
                match libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) {
                    1 => return Ok(()),
                    -1 if *libc::__errno_location() == libc::EINTR => {}
                    _ => libc::_exit(0),
                }
            }
        }
    };
    // SAFETY: the closure only does what a child of a multi-threaded process may do, see above.
    unsafe { command.pre_exec(wait) };
}
