//! Supervision of a command's system calls by seccomp notifications: the kernel reports each call of the
//! chosen kinds, and the test may answer it with an error. Nothing of the command is replaced.
//!
//! Calls are counted from the start of the command's own `main`; the loader's earlier calls do not count.
//!
//! Source: seccomp_unotify(2); include/uapi/linux/seccomp.h, v6.12.
#![expect(unsafe_code, reason = "seccomp(2), and what a child may do between fork and exec")]

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;

use crate::{Outcome, finish};

/// A kind of system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The call's name in the manual.
    pub name: &'static str,
    /// The call's number on this architecture.
    pub number: libc::c_long,
}

/// A call to refuse, and the error it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of call.
    pub call: Call,
    /// Index among the calls of this kind, from 0.
    pub nth: usize,
    /// The error that the command receives.
    pub errno: Errno,
}

/// A call that waits for its answer.
pub struct PendingCall {
    /// Index of its kind among the supervised kinds.
    pub kind: usize,
    /// The raw arguments of the call.
    pub args: [u64; 6],
    thread: u32,
}

impl PendingCall {
    /// Returns the number of the thread that makes the call.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Reads bytes of the caller's memory.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn memory(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        File::open(format!("/proc/{}/mem", self.thread))?.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }
}

/// Runs a command to its end while it supervises these kinds of calls. Returns how many calls of each kind
/// the command made, in the same order.
///
/// # Errors
/// If the kernel has no notifications, which it has since 5.9.
pub fn run(
    command: &mut Command,
    watched: &[Call],
    refusal: Option<Refusal>,
) -> io::Result<(Outcome, Vec<usize>)> {
    let mut counts = vec![0; watched.len()];
    let outcome = observe(command, watched, |asked| {
        let nth = counts[asked.kind];
        counts[asked.kind] += 1;
        refusal.filter(|one| one.call == watched[asked.kind] && one.nth == nth).map(|one| one.errno)
    })?;
    Ok((outcome, counts))
}

/// Runs a command to its end, and passes each call of these kinds to a function before the kernel executes
/// it. The function may answer the call with an error.
///
/// # Errors
/// If the kernel has no notifications, which it has since 5.9.
pub fn observe(
    command: &mut Command,
    watched: &[Call],
    look: impl FnMut(&PendingCall) -> Option<Errno> + Send,
) -> io::Result<Outcome> {
    let (ours, theirs) = UnixDatagram::pair()?;
    let filter = filter(watched);
    let socket = theirs.as_raw_fd();
    // SAFETY: the closure only makes system calls, on memory that was allocated before the fork.
    unsafe { command.pre_exec(move || watch(&filter, socket)) };
    std::thread::scope(|scope| {
        let supervisor = scope.spawn(|| supervise(&ours, watched, look));
        let outcome = finish(command);
        supervisor.join().map_err(|_| io::Error::other("the supervisor panicked"))??;
        Ok(outcome)
    })
}

/// The first call of Rust's runtime, before `main`.
const MARK: libc::c_long = libc::SYS_sigaltstack;

/// Returns a filter that notifies about these calls and allows all others.
fn filter(watched: &[Call]) -> Vec<libc::sock_filter> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The number of the call is the first word of `struct seccomp_data`.
    let mut steps = vec![step(load, 0, 0, 0)];
    let numbers = watched.iter().map(|call| call.number).chain([MARK]);
    for number in numbers {
        steps.push(step(equal, 0, 1, number as u32));
        steps.push(step(answer, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps
}

/// In the child: installs the filter, sends the supervisor the number of the listener descriptor, and waits
/// until the supervisor has it.
fn watch(filter: &[libc::sock_filter], socket: RawFd) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let mut message = [0_i32; 2];
    // SAFETY: the program lives until the call returns; the socket belongs to this process; the buffers are
    // on this stack frame.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        message[0] = libc::getpid();
        message[1] = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        ) as i32;
        message[1] >= 0
            && libc::send(socket, message.as_ptr().cast(), size_of_val(&message), 0) == 8
            && libc::recv(socket, message.as_mut_ptr().cast(), 1, 0) == 1
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn supervise(
    socket: &UnixDatagram,
    watched: &[Call],
    mut look: impl FnMut(&PendingCall) -> Option<Errno>,
) -> io::Result<()> {
    let mut message = [0; 8];
    socket.recv(&mut message)?;
    let number = |bytes: &[u8]| i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let listener = taken(number(&message[..4]), number(&message[4..]))?;
    socket.send(&[1])?;
    let mut started = false;
    while let Some(asked) = next(&listener)? {
        let kind = watched.iter().position(|call| call.number == libc::c_long::from(asked.data.nr));
        started |= libc::c_long::from(asked.data.nr) == MARK;
        let errno = kind
            .filter(|_| started)
            .and_then(|kind| look(&PendingCall { kind, args: asked.data.args, thread: asked.pid }));
        answer(&listener, asked.id, errno)?;
    }
    Ok(())
}

/// Duplicates a descriptor of another process into this one.
fn taken(pid: i32, descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: both calls take numbers; the descriptors that they return have no owner yet.
    unsafe {
        let process = checked(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        let process = OwnedFd::from_raw_fd(process);
        let ours = checked(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0))?;
        Ok(OwnedFd::from_raw_fd(ours))
    }
}

fn checked(answer: libc::c_long) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

/// Returns the next call that the command makes, or none when it has ended.
fn next(listener: &OwnedFd) -> io::Result<Option<libc::seccomp_notif>> {
    loop {
        let mut polled = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives until the call returns.
        checked(libc::c_long::from(unsafe { libc::poll(&raw mut polled, 1, -1) }))?;
        if polled.revents & libc::POLLIN == 0 {
            return Ok(None);
        }
        // SAFETY: a struct of numbers, for which zero is valid.
        let mut asked: libc::seccomp_notif = unsafe { zeroed() };
        // SAFETY: the kernel writes one such struct, which must be zero before.
        let answer =
            unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
        match Errno::result(answer) {
            Ok(_) => return Ok(Some(asked)),
            // The thread was killed, or a signal interrupted it.
            Err(Errno::ENOENT | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Lets the call continue, or refuses it.
fn answer(listener: &OwnedFd, id: u64, errno: Option<Errno>) -> io::Result<()> {
    let error = errno.map_or(0, |errno| -(errno as i32));
    let flags = if errno.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 };
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads one such struct.
    let sent = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    match Errno::result(sent) {
        // The thread was killed in the meantime.
        Ok(_) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
