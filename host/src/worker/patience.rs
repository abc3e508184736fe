//! The broker's end of a worker's socket. A worker that sends half a message, or reads nothing, keeps only itself waiting:
//! the broker looks after what the plugin has attached all the same.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;
use nix::unistd::read;

use super::protocol::{FromWorker, ToWorker, encoded, from_bytes};
use crate::processes::channel;

/// How often the broker looks at what a plugin has attached: CPUs that came, lost records, budgets.
const LOOK: Duration = Duration::from_millis(500);

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Why the exchange ends.
pub(super) enum Broken {
    /// The socket, or a message that is none.
    Io(io::Error),
    /// What the broker found when it looked.
    Trap(wasmtime::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Io(error)
    }
}

impl From<Errno> for Broken {
    fn from(errno: Errno) -> Broken {
        Broken::Io(errno.into())
    }
}

/// The socket, with what was read of the next messages.
pub(super) struct PatientSocket<'a> {
    socket: BorrowedFd<'a>,
    unread: Vec<u8>,
    /// Where each read puts what it has read.
    chunk: Box<[u8]>,
    /// Bytes that a message has at most.
    most: usize,
    looked: Instant,
}

impl<'a> PatientSocket<'a> {
    pub(super) fn new(socket: BorrowedFd<'a>, most: usize) -> PatientSocket<'a> {
        let chunk = vec![0; CHUNK].into_boxed_slice();
        PatientSocket { socket, unread: Vec::new(), chunk, most, looked: Instant::now() }
    }

    /// Waits for a message; calls `look` from time to time.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) fn receive(
        &mut self,
        mut look: impl FnMut() -> wasmtime::Result<()>,
    ) -> Result<FromWorker, Broken> {
        loop {
            if let Some((len, rest)) = self.unread.split_first_chunk() {
                let len = u32::from_le_bytes(*len) as usize;
                if len > self.most {
                    return Err(io::Error::from(io::ErrorKind::InvalidData).into());
                }
                if let Some(message) = rest.get(..len) {
                    let message = from_bytes(message, self.most)?;
                    self.unread.drain(..4 + len);
                    return Ok(message);
                }
            }
            self.wait(PollFlags::POLLIN, &mut look)?;
            // It is readable, so that this does not wait.
            match read(self.socket, &mut self.chunk) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => self.unread.extend_from_slice(&self.chunk[..count]),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends messages, each with its descriptor if it has one; calls `look` from time to time. As many as possible go
    /// together: each wakes the worker otherwise, and a task with many events takes long to be switched to.
    ///
    /// # Errors
    /// [`Broken`].
    pub(super) fn send<'d>(
        &mut self,
        messages: impl IntoIterator<Item = (ToWorker, Option<BorrowedFd<'d>>)>,
        mut look: impl FnMut() -> wasmtime::Result<()>,
    ) -> Result<(), Broken> {
        let (mut together, mut descriptor) = (Vec::new(), None);
        for (message, own) in messages {
            // A descriptor comes with the first byte of what is sent at once.
            if own.is_some() {
                self.send_together(&together, descriptor, &mut look)?;
                together.clear();
                descriptor = own;
            }
            channel::frame(&encoded(&message), &mut together)?;
        }
        self.send_together(&together, descriptor, &mut look)
    }

    fn send_together(
        &mut self,
        messages: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        look: &mut impl FnMut() -> wasmtime::Result<()>,
    ) -> Result<(), Broken> {
        let socket = self.socket;
        channel::send_waiting(socket, messages, descriptor, MsgFlags::MSG_DONTWAIT, || {
            self.wait(PollFlags::POLLOUT, look)
        })
    }

    /// Waits until the socket is ready, or it is time to look.
    fn wait(
        &mut self,
        what: PollFlags,
        look: &mut impl FnMut() -> wasmtime::Result<()>,
    ) -> Result<(), Broken> {
        loop {
            let rest = LOOK.saturating_sub(self.looked.elapsed());
            if rest.is_zero() {
                look().map_err(Broken::Trap)?;
                self.looked = Instant::now();
                continue;
            }
            // Rounded up, so that the loop does not spin at the end.
            let rest = rest + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), what)], timeout) {
                // A worker that was killed has hung up.
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Looks once, and ends the exchange then.
    fn once(looked: &mut u32) -> impl FnMut() -> wasmtime::Result<()> {
        || {
            *looked += 1;
            Err(wasmtime::Error::msg("it was looked"))
        }
    }

    #[test]
    fn half_a_message_keeps_nobody_from_looking() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(&[100, 0, 0, 0, 2, 0]).expect("there is room");
        let (mut socket, mut looked) = (PatientSocket::new(ours.as_fd(), 1000), 0);
        let broken = socket.receive(once(&mut looked));
        assert!(matches!(broken, Err(Broken::Trap(_))));
        assert_eq!(looked, 1);
    }

    #[test]
    fn a_worker_that_does_not_read_keeps_nobody_from_looking() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let (mut socket, mut looked) = (PatientSocket::new(ours.as_fd(), 1000), 0);
        let broken = socket.send([(ToWorker::Answer(vec![0; 8 << 20]), None)], once(&mut looked));
        assert!(matches!(broken, Err(Broken::Trap(_))));
        assert_eq!(looked, 1);
    }

    #[test]
    fn messages_that_come_together_are_read_one_by_one() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        let framed =
            |body: &[u8]| [&u32::try_from(body.len()).expect("short").to_le_bytes()[..], body].concat();
        let call = |byte: u8| framed(&[2, 1, 0, 0, 0, byte]);
        theirs.write_all(&[call(7), call(8)].concat()).expect("there is room");
        drop(theirs);
        let mut socket = PatientSocket::new(ours.as_fd(), 1000);
        for byte in [7, 8] {
            let message = socket.receive(|| Ok(())).unwrap_or_else(|_| panic!("a message"));
            assert!(matches!(message, FromWorker::Call(call) if call == [byte]));
        }
        assert!(matches!(socket.receive(|| Ok(())), Err(Broken::Io(_))));
        let (ours, mut theirs) = UnixStream::pair().expect("sockets");
        theirs.write_all(&framed(&[0; 1001])).expect("there is room");
        let mut socket = PatientSocket::new(ours.as_fd(), 1000);
        assert!(matches!(socket.receive(|| Ok(())), Err(Broken::Io(_))), "it is too long");
    }
}
