//! System calls of a child process on itself, and receiving descriptors with messages.
#![expect(
    unsafe_code,
    reason = "system calls without a safe wrapper, and descriptors that are numbers in messages"
)]

use std::ffi::CStr;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal as set_handler};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::Pid;

use super::cpu::Cpus;

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
    unsafe { set_handler(Signal::SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// Makes a copy of this process that is a child of this one's parent. Returns its number, and none in the copy.
///
/// Source: clone(2), CLONE_PARENT.
pub(crate) fn fork_sibling() -> Result<Option<Pid>, Errno> {
    // SAFETY: no pointers: the copy goes on with a copy of the stack. This process has one thread, so that nothing is half
    // done in the copy. The C library keeps its number of the thread only for locks that know their owner, which none
    // here does.
    let answer = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) };
    let pid = i32::try_from(Errno::result(answer)?).map_err(|_| Errno::EOVERFLOW)?;
    Ok((pid != 0).then(|| Pid::from_raw(pid)))
}

/// Makes a copy of this process. Returns a descriptor of it (pidfd_open(2)), and none in the copy.
///
/// Source: clone(2), CLONE_PIDFD; since Linux 5.2.
pub(crate) fn fork_child() -> Result<Option<OwnedFd>, Errno> {
    let mut descriptor: libc::c_int = -1;
    // SAFETY: as in `fork_sibling`; the kernel writes one number to the pointer before the call returns, in the parent.
    let answer = unsafe {
        libc::syscall(libc::SYS_clone, libc::CLONE_PIDFD | libc::SIGCHLD, 0, &raw mut descriptor, 0, 0)
    };
    if Errno::result(answer)? == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has just created this descriptor for this process, and nothing else knows its number.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// A program to start, with all that its process needs: a process that is a copy of one with several threads must not
/// allocate.
pub(crate) struct Start<'a> {
    pub(crate) program: &'a CStr,
    pub(crate) arguments: &'a [&'a CStr],
    pub(crate) environment: &'a [&'a CStr],
    /// Standard input. If the program does not start, its process writes `not_started` of the reason there.
    pub(crate) input: BorrowedFd<'a>,
    /// Standard output and standard error.
    pub(crate) output: BorrowedFd<'a>,
    /// Those of this process: it begins on another one.
    pub(crate) cpus: Option<&'a Cpus>,
    pub(crate) not_started: fn(Errno) -> [u8; NOT_STARTED_BYTES],
}

/// Bytes of the message of a program that does not start.
pub(crate) const NOT_STARTED_BYTES: usize = 8;

/// Starts a program in a new process group and the root folder, without waiting until it has begun.
///
/// Source: clone(2), execve(2), signal-safety(7).
pub(crate) fn start(start: &Start<'_>) -> Result<Pid, Errno> {
    let pointers = |texts: &[&CStr]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(start.arguments), pointers(start.environment));
    // SAFETY: no pointers: the copy goes on with a copy of the stack.
    let answer = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    let pid = i32::try_from(Errno::result(answer)?).map_err(|_| Errno::EOVERFLOW)?;
    if pid != 0 {
        return Ok(Pid::from_raw(pid));
    }
    start.cpus.iter().for_each(|cpus| cpus.move_away());
    // SAFETY: this process is a copy with this thread alone, and makes system calls only, which touch nothing that another
    // thread may have left half done. The pointers are to texts and lists that end with zero, and live on in the copy.
    unsafe {
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let (input, output) = (start.input.as_raw_fd(), start.output.as_raw_fd());
        let is_ready = libc::setpgid(0, 0) == 0
            && libc::chdir(c"/".as_ptr()) == 0
            && libc::dup2(input, 0) == 0
            && libc::dup2(output, 1) == 1
            && libc::dup2(output, 2) == 2;
        if is_ready {
            libc::execve(start.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        }
        let reason = (start.not_started)(Errno::last());
        libc::write(input, reason.as_ptr().cast(), reason.len());
        libc::_exit(127)
    }
}

/// Sends a signal to the process of a descriptor.
///
/// Source: pidfd_send_signal(2); since Linux 5.1.
pub(crate) fn signal(process: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let (process, signal) = (process.as_raw_fd(), signal as libc::c_int);
    // SAFETY: the third argument is null, and there are no other pointers.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process, signal, std::ptr::null::<libc::siginfo_t>(), 0)
    })
    .map(drop)
}

/// Fills these bytes with random ones. Crates for that ask the dynamic linker for the function, and a program without one
/// gets files instead, which a plugin's thread may not open.
///
/// Source: getrandom(2).
pub(crate) fn fill_randomly(mut bytes: &mut [u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        // SAFETY: the kernel writes at most as many bytes as there are.
        let filled = Errno::result(unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) });
        match filled {
            Ok(count) => bytes = &mut bytes[count.unsigned_abs()..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Leaves nothing of ended children of this process.
///
/// Source: wait(2), "NOTES".
pub(crate) fn forget_ended_children() -> Result<(), Errno> {
    // SAFETY: to ignore a signal runs no code of this process.
    unsafe { set_handler(Signal::SIGCHLD, SigHandler::SigIgn) }.map(drop)
}

/// Makes this process die with the thread that started it, untraceable, and without core files.
pub(crate) fn tie_to_parent() -> Result<(), Errno> {
    // SAFETY: prctl with integer arguments writes no memory of this process.
    unsafe {
        Errno::result(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        Errno::result(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0)).map(drop)
    }
}
