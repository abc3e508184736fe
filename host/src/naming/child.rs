//! The naming process as the host sees it: started on demand, queried with a deadline, killed when it fails.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::protocol::{Answer, MAX_ANSWER_BYTES, Request};
use super::{confine, reader};
use crate::processes::channel;

/// The only argument of a naming process.
const ARGUMENT: &str = "--ks-host-naming-process";

/// Limit of the wait for a killed process to end. A process that reads from a file system that does not
/// answer ends later.
const END: Duration = Duration::from_secs(1);

/// How to start a naming process: from a program that calls [`serve_if_asked`] before anything else.
#[derive(Debug, Clone)]
pub struct NamingProcess {
    start: Start,
}

#[derive(Debug, Clone)]
enum Start {
    Program(PathBuf),
    /// A thread of this process, for tests of this library: the test program does not call
    /// [`serve_if_asked`].
    #[cfg(test)]
    Thread,
}

impl NamingProcess {
    /// Starts naming processes from this process's own program, whose `main` must begin with
    /// [`serve_if_asked`].
    pub fn of_this_program() -> NamingProcess {
        NamingProcess::of("/proc/self/exe")
    }

    /// Starts naming processes from another program whose `main` begins with [`serve_if_asked`], for example
    /// `ks-host`.
    pub fn of(program: impl Into<PathBuf>) -> NamingProcess {
        NamingProcess { start: Start::Program(program.into()) }
    }

    #[cfg(test)]
    pub(crate) fn in_a_thread() -> NamingProcess {
        NamingProcess { start: Start::Thread }
    }
}

/// Runs the naming process and exits, if this process was started as one ([`NamingProcess`]); returns
/// otherwise. A program that uses this library to name functions calls it first in `main`, before it starts
/// threads or opens files.
pub fn serve_if_asked() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).take(2).collect();
    if arguments != [ARGUMENT] {
        return;
    }
    let code = match confine::enter() {
        Ok(()) => {
            reader::serve(io::stdin().as_fd());
            0
        }
        // Standard error is only visible if a person starts the process.
        Err(reason) => {
            // A write error changes nothing: the host notices the exit.
            let _ = writeln!(io::stderr(), "the naming process cannot be confined: {reason}");
            1
        }
    };
    std::process::exit(code)
}

/// Confines this process as the naming process: for tests of what somebody reaches who runs code of his own in it.
///
/// # Errors
/// The step that failed.
#[doc(hidden)]
pub fn confine_like_the_naming_process() -> Result<(), String> {
    confine::enter()
}

/// The reason why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The process has ended: it ran out of memory, or crashed on a file.
    Ended,
    /// No answer before the deadline.
    Late,
    /// The answer was malformed.
    Unsound,
}

/// A running naming process; killed on drop.
#[derive(Debug)]
pub(super) struct Child {
    process: Option<std::process::Child>,
    socket: OwnedFd,
}

impl Child {
    /// Starts a naming process with a socket to it.
    ///
    /// # Errors
    /// Of socketpair(2) and of starting a program.
    pub(super) fn start(how: &NamingProcess) -> io::Result<Child> {
        let (ours, theirs) = UnixStream::pair()?;
        let socket = OwnedFd::from(ours);
        match &how.start {
            Start::Program(program) => {
                let mut command = Command::new(program);
                command.arg0("ks-host-naming").arg(ARGUMENT).env_clear().current_dir("/").process_group(0);
                command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
                Ok(Child { process: Some(command.spawn()?), socket })
            }
            #[cfg(test)]
            Start::Thread => {
                std::thread::spawn(move || reader::serve(theirs.as_fd()));
                Ok(Child { process: None, socket })
            }
        }
    }

    /// Sends a request about this many locations and waits for the answer.
    ///
    /// # Errors
    /// The reason why there is no answer; later requests would fail too.
    pub(super) fn ask(
        &mut self,
        request: &Request,
        file: Option<BorrowedFd<'_>>,
        locations: usize,
        deadline: Instant,
    ) -> Result<Answer, Lost> {
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => Lost::Late,
            io::ErrorKind::InvalidData => Lost::Unsound,
            _ => Lost::Ended,
        };
        channel::send_until(self.socket.as_fd(), &request.encode(), file, Some(deadline)).map_err(lost)?;
        let bytes = channel::receive_until(self.socket.as_fd(), MAX_ANSWER_BYTES, deadline).map_err(lost)?;
        Answer::decode(&bytes, locations).ok_or(Lost::Unsound)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        // It may have ended already.
        let _ = process.kill();
        let until = Instant::now() + END;
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
