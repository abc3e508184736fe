//! Output to standard output, standard error and open files that never keeps a plugin's thread: a write that
//! nobody reads fails once the plugin is killed.
//!
//! | descriptor                   | written by                                                          |
//! |------------------------------|---------------------------------------------------------------------|
//! | pipe, FIFO, terminal         | write(2) to an open file description of its own, with `O_NONBLOCK`  |
//! | socket                       | send(2) with `MSG_DONTWAIT`                                         |
//! | one that cannot be reopened  | write(2) of at most `PIPE_BUF` bytes after poll(2)                  |
//! | any other (file, device)     | write(2): it does not wait for a reader                             |
//!
//! `O_NONBLOCK` is a property of the open file description, which other processes share: setting it on the
//! given descriptor would change theirs. A terminal that cannot be reopened (another user's, without
//! CAP_DAC_OVERRIDE) may keep the thread while its output is stopped.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use crate::killed;

/// Interval in milliseconds at which a write that waits asks whether its plugin was killed. Much shorter than
/// the time after which a killed plugin's thread is abandoned.
const LOOK_EVERY_MS: u16 = 50;

/// Bytes that a pipe which is writable takes without waiting. Source: pipe(7), `PIPE_BUF`.
const ATOMIC_BYTES: usize = 4096;

/// Device number of `/dev/ptmx`: opening it again makes another terminal. Source: Documentation/admin-guide/
/// devices.txt, 5 char.
const NEW_TERMINAL: u64 = libc::makedev(5, 2);

/// A descriptor for output. Clones write to the same one; each write is one piece, whatever its length, among
/// those of all clones.
#[derive(Clone)]
pub struct Writer(Arc<Inner>);

struct Inner {
    to: Box<dyn AsFd + Send + Sync>,
    manner: Manner,
    state: Mutex<WriteState>,
    freed: Condvar,
}

/// How a descriptor is written.
enum Manner {
    /// Directly; EAGAIN means that a write would wait.
    Direct,
    /// By another open file description of the same file, which is not blocking.
    Reopened(File),
    Socket,
    /// By small writes after poll(2).
    Polled,
}

#[derive(Default)]
struct WriteState {
    is_taken: bool,
    /// A write ended in the middle, because its plugin was killed: what follows begins a new line.
    is_torn: bool,
}

impl Writer {
    /// Standard output, as it is at the first call.
    pub fn stdout() -> Writer {
        static STDOUT: OnceLock<Writer> = OnceLock::new();
        STDOUT.get_or_init(|| Writer::new(io::stdout())).clone()
    }

    /// Standard error, as it is at the first call.
    pub fn stderr() -> Writer {
        static STDERR: OnceLock<Writer> = OnceLock::new();
        STDERR.get_or_init(|| Writer::new(io::stderr())).clone()
    }

    /// Writes to an open descriptor.
    pub fn new(to: impl AsFd + Send + Sync + 'static) -> Writer {
        let manner = Manner::of(to.as_fd());
        let (to, state, freed) = (Box::new(to), Mutex::default(), Condvar::new());
        Writer(Arc::new(Inner { to, manner, state, freed }))
    }

    /// Writes as much as is possible without waiting, for threads that must not wait. Whether all was written
    /// is not reported.
    pub fn write_at_once(&self, bytes: &[u8]) {
        let Some(mut taken) = self.0.begin_if_free() else { return };
        // What a reader that waits for nothing loses cannot be reported anywhere.
        let _ = taken.write(bytes, |_| Err(ErrorKind::WouldBlock.into()));
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.0.begin()?;
        taken.write(bytes, Inner::wait)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({})", self.0.to.as_fd().as_raw_fd())
    }
}

impl Manner {
    fn of(to: BorrowedFd<'_>) -> Manner {
        // Follows the link to the open file itself, not to a path.
        let path = format!("/proc/self/fd/{}", to.as_raw_fd());
        let Ok(facts) = std::fs::metadata(&path) else { return Manner::Polled };
        let kind = facts.file_type();
        if kind.is_socket() {
            return Manner::Socket;
        }
        let is_terminal = kind.is_char_device() && to.is_terminal();
        if !kind.is_fifo() && !is_terminal {
            return Manner::Direct;
        }
        if facts.rdev() == NEW_TERMINAL && is_terminal {
            return Manner::Polled;
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let reopened = OpenOptions::new().write(true).custom_flags(flags).open(&path);
        reopened.map_or(Manner::Polled, Manner::Reopened)
    }
}

impl Inner {
    /// Waits until no other thread writes.
    fn begin(&self) -> io::Result<ExclusiveWrite<'_>> {
        let mut state = self.lock();
        while state.is_taken {
            if killed::is_killed() {
                return Err(ended());
            }
            let look = Duration::from_millis(LOOK_EVERY_MS.into());
            state = self.freed.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_taken = true;
        Ok(ExclusiveWrite { inner: self })
    }

    fn begin_if_free(&self) -> Option<ExclusiveWrite<'_>> {
        let mut state = self.lock();
        let is_free = !std::mem::replace(&mut state.is_taken, true);
        is_free.then_some(ExclusiveWrite { inner: self })
    }

    fn lock(&self) -> MutexGuard<'_, WriteState> {
        // Every change is one assignment: a panic cannot leave it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes as much as there is room for; `WouldBlock` if there is none.
    fn attempt(&self, bytes: &[u8]) -> io::Result<usize> {
        let to = self.to.as_fd();
        let written = match &self.manner {
            Manner::Direct => nix::unistd::write(to, bytes),
            Manner::Reopened(own) => nix::unistd::write(own, bytes),
            Manner::Socket => send(to.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL),
            Manner::Polled if is_writable(to, PollTimeout::ZERO)? => {
                nix::unistd::write(to, &bytes[..bytes.len().min(ATOMIC_BYTES)])
            }
            Manner::Polled => Err(Errno::EAGAIN),
        };
        Ok(written?)
    }

    /// Waits until there may be room, or the plugin of this thread is killed.
    fn wait(&self) -> io::Result<()> {
        let to = match &self.manner {
            Manner::Reopened(own) => own.as_fd(),
            _ => self.to.as_fd(),
        };
        while !killed::is_killed() {
            if is_writable(to, PollTimeout::from(LOOK_EVERY_MS))? {
                return Ok(());
            }
        }
        Err(ended())
    }
}

/// The right to write, until it is dropped.
struct ExclusiveWrite<'inner> {
    inner: &'inner Inner,
}

impl ExclusiveWrite<'_> {
    /// Writes all bytes, and calls `wait` where there is no room.
    fn write(&mut self, bytes: &[u8], wait: impl Fn(&Inner) -> io::Result<()>) -> io::Result<()> {
        if self.inner.lock().is_torn {
            self.write_piece(b"\n", &wait)?;
            self.inner.lock().is_torn = false;
        }
        self.write_piece(bytes, &wait)
    }

    fn write_piece(&mut self, bytes: &[u8], wait: &impl Fn(&Inner) -> io::Result<()>) -> io::Result<()> {
        let mut rest = bytes;
        let mut is_refused = false;
        while !rest.is_empty() {
            match self.inner.attempt(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    is_refused = false;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if is_refused {
                        // A terminal may report room for one byte and refuse a line feed, which takes two.
                        std::thread::sleep(Duration::from_millis(LOOK_EVERY_MS.into()));
                    }
                    is_refused = true;
                    wait(self.inner).inspect_err(|_| self.inner.lock().is_torn = rest.len() < bytes.len())?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for ExclusiveWrite<'_> {
    fn drop(&mut self) {
        self.inner.lock().is_taken = false;
        self.inner.freed.notify_one();
    }
}

/// Returns whether a write may succeed or fail at once.
fn is_writable(to: BorrowedFd<'_>, within: PollTimeout) -> io::Result<bool> {
    match poll(&mut [PollFd::new(to, PollFlags::POLLOUT)], within) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The error of a write by a plugin that was killed. Not `Interrupted`, after which callers try again.
fn ended() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the plugin was ended while its output waited for a reader")
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::killed::KillFlag;

    /// Writes without end on the thread of a plugin, and returns the error that ends it after a kill.
    fn killed_while_it_writes(writer: &Writer, kill: impl FnOnce(KillFlag)) -> io::Error {
        killed_while_it_writes_pieces(3000, writer, kill)
    }

    /// The same with pieces of so many bytes.
    fn killed_while_it_writes_pieces(
        bytes: usize,
        writer: &Writer,
        kill: impl FnOnce(KillFlag),
    ) -> io::Error {
        let (flag, mut writer) = (KillFlag::default(), writer.clone());
        let own = flag.clone();
        let thread = thread::spawn(move || {
            own.belongs_to_this_thread();
            loop {
                if let Err(error) = writer.write_all(&vec![b'x'; bytes]) {
                    return error;
                }
            }
        });
        kill(flag);
        // Without the check of the flag this would never return.
        thread.join().expect("no panic")
    }

    #[test]
    fn a_killed_plugin_leaves_a_write_that_nobody_reads() {
        let (_reader, pipe) = io::pipe().expect("a pipe");
        let (_peer, socket) = UnixStream::pair().expect("sockets");
        for writer in [Writer::new(pipe), Writer::new(socket)] {
            let error = killed_while_it_writes(&writer, |flag| {
                // The write waits by now, or finds the flag as soon as it would.
                thread::sleep(Duration::from_millis(20));
                flag.set();
            });
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{writer:?}: {error}");
        }
    }

    #[test]
    fn a_killed_plugin_leaves_the_queue_behind_another_one() {
        let (_reader, pipe) = io::pipe().expect("a pipe");
        let writer = Writer::new(pipe);
        killed_while_it_writes(&writer, |first| {
            thread::sleep(Duration::from_millis(20));
            killed_while_it_writes(&writer, |second| second.set());
            first.set();
        });
    }

    #[test]
    fn a_pipe_that_cannot_be_reopened_is_written_without_waiting() {
        let (_reader, pipe) = io::pipe().expect("a pipe");
        let inner = Inner {
            to: Box::new(pipe),
            manner: Manner::Polled,
            state: Mutex::default(),
            freed: Condvar::new(),
        };
        let error = killed_while_it_writes(&Writer(Arc::new(inner)), |flag| flag.set());
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn a_line_after_one_that_was_torn_is_a_line_of_its_own() {
        let (mut reader, pipe) = io::pipe().expect("a pipe");
        let mut writer = Writer::new(pipe);
        // More than a pipe takes at once or not at all.
        killed_while_it_writes_pieces(1 << 20, &writer, |flag| {
            thread::sleep(Duration::from_millis(20));
            flag.set();
        });
        let thread = thread::spawn(move || writer.write_all(b"whole\n"));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        thread.join().expect("no panic").expect("somebody reads");
        assert!(text.ends_with("x\nwhole\n"), "{}", text.len());
    }

    #[test]
    fn other_processes_keep_a_blocking_descriptor() {
        let (_reader, pipe) = io::pipe().expect("a pipe");
        let other = pipe.try_clone().expect("descriptors are left");
        let _writer = Writer::new(pipe);
        let flags = nix::fcntl::fcntl(&other, nix::fcntl::FcntlArg::F_GETFL).expect("it is open");
        assert_eq!(flags & libc::O_NONBLOCK, 0);
    }

    #[test]
    fn a_thread_that_must_not_wait_writes_what_fits() {
        let (_reader, pipe) = io::pipe().expect("a pipe");
        let writer = Writer::new(pipe);
        // More than a pipe holds.
        writer.write_at_once(&[b'x'; 1 << 21]);
        writer.write_at_once(b"more");
    }
}
