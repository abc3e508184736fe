//! Messages on a socket: a length, then that many bytes. A file descriptor is attached to the first byte.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};

use super::sys;

/// A received message, with its file descriptor if it had one.
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: Option<OwnedFd>,
}

/// Sends a message; blocks until the socket accepts it.
///
/// # Errors
/// Of sendmsg(2).
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_until(socket, bytes, file, None)
}

/// Waits for a message of at most `most` bytes. None if the other end is closed.
///
/// # Errors
/// Of recvmsg(2); `InvalidData` for a message that is too long or ends early.
pub(crate) fn receive(socket: BorrowedFd<'_>, most: usize) -> io::Result<Option<Received>> {
    let mut length = [0; 4];
    let mut have = 0;
    let mut file = None;
    while have < length.len() {
        let (count, came) = match sys::receive(socket, &mut length[have..]) {
            Err(Errno::EINTR) => continue,
            answer => answer?,
        };
        if count == 0 {
            return if have == 0 { Ok(None) } else { Err(unsound()) };
        }
        have += count;
        file = file.or(came);
    }
    let mut bytes = vec![0; checked(length, most)?];
    fill(socket, &mut bytes, None)?;
    Ok(Some(Received { bytes, file }))
}

/// Sends a message; waits at most until `deadline`.
///
/// # Errors
/// Of sendmsg(2); `TimedOut`.
pub(crate) fn send_until(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
    deadline: Option<Instant>,
) -> io::Result<()> {
    let mut framed = Vec::new();
    frame(bytes, &mut framed)?;
    send_waiting(socket, &framed, file, flags(deadline), || wait(socket, PollFlags::POLLOUT, deadline))
}

/// Appends a message, with its length, to others.
///
/// # Errors
/// `InvalidData` for one of 4 GiB.
pub(crate) fn frame(bytes: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    to.extend(u32::try_from(bytes.len()).map_err(|_| unsound())?.to_le_bytes());
    to.extend_from_slice(bytes);
    Ok(())
}

/// Sends framed messages, the first of them with this descriptor; calls `wait` whenever the socket has no room for more,
/// which it reports with MSG_DONTWAIT only.
///
/// # Errors
/// Of sendmsg(2), and of `wait`.
pub(crate) fn send_waiting<E: From<io::Error>>(
    socket: BorrowedFd<'_>,
    messages: &[u8],
    file: Option<BorrowedFd<'_>>,
    flags: MsgFlags,
    mut wait: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let descriptors: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
    let mut sent = 0;
    while sent < messages.len() {
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights = if sent == 0 && file.is_some() { &rights[..] } else { &[] };
        let parts = [IoSlice::new(&messages[sent..])];
        match sendmsg::<()>(socket.as_raw_fd(), &parts, rights, flags | MsgFlags::MSG_NOSIGNAL, None) {
            Ok(count) => sent += count,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait()?,
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    Ok(())
}

/// Waits until `deadline` for a message without a descriptor.
///
/// # Errors
/// Those of [`receive`]; `UnexpectedEof` if the other end is closed, `TimedOut`.
pub(crate) fn receive_until(socket: BorrowedFd<'_>, most: usize, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    fill(socket, &mut length, Some(deadline))?;
    let mut bytes = vec![0; checked(length, most)?];
    fill(socket, &mut bytes, Some(deadline))?;
    Ok(bytes)
}

fn checked(length: [u8; 4], most: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(length) as usize;
    if length > most { Err(unsound()) } else { Ok(length) }
}

fn unsound() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn fill(socket: BorrowedFd<'_>, bytes: &mut [u8], deadline: Option<Instant>) -> io::Result<()> {
    let mut have = 0;
    while have < bytes.len() {
        wait(socket, PollFlags::POLLIN, deadline)?;
        match recv(socket.as_raw_fd(), &mut bytes[have..], flags(deadline)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// With a deadline, the call itself must not block.
fn flags(deadline: Option<Instant>) -> MsgFlags {
    if deadline.is_some() { MsgFlags::MSG_DONTWAIT } else { MsgFlags::empty() }
}

fn wait(socket: BorrowedFd<'_>, what: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Rounded up by a millisecond, so that the loop does not spin at the end.
        let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(socket.as_fd(), what)], left) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
