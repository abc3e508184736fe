//! System calls of a child process on itself, and receiving descriptors with messages.
#![expect(
    unsafe_code,
    reason = "system calls without a safe wrapper, and descriptors that are numbers in messages"
)]

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// Receives bytes, and at most one descriptor; further descriptors are closed.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 4]);
    let mut parts = [IoSliceMut::new(bytes)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut file = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for descriptor in descriptors {
                // SAFETY: the kernel has just created this descriptor for this process, and nothing else
                // knows its number.
                let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
                file.get_or_insert(owned);
            }
        }
    }
    Ok((message.bytes, file))
}

/// Closes all descriptors except the three standard ones.
pub(crate) fn close_others() -> Result<(), Errno> {
    // SAFETY: no value of this process owns a descriptor above 2: it has just begun.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) }).map(drop)
}

/// Has ended children of this process wait for it, also if its parent ignores SIGCHLD, which is inherited: the kernel would
/// reap them itself, and their numbers could denote other processes.
///
/// Source: wait(2), "NOTES".
pub(crate) fn keep_ended_children() -> Result<(), Errno> {
    // SAFETY: the default action runs no code of this process.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// Makes this process die with the thread that started it, untraceable, and without core files.
pub(crate) fn tie_to_parent() -> Result<(), Errno> {
    // SAFETY: prctl with integer arguments writes no memory of this process.
    unsafe {
        Errno::result(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        Errno::result(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0)).map(drop)
    }
}
