//! Reads untrusted input in a separate process with limited memory and time and without rights.
//!
//! ```text
//! Apart::ask -- argument, input --> child: limits, user nobody, no capabilities, a filter of system calls
//!       ^---- kind, answer ----/
//! ```
//!
//! The child is this program itself, started with an argument that no person types. The caller defines how
//! the input is read.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

use crate::confine::{self, ReaderFiles};
use crate::processes::{self, limits};
use crate::text::indented;

/// The user id `nobody`. Source: include/linux/highuid.h, `DEFAULT_OVERFLOWUID`, v6.18.
const NOBODY: u32 = 65_534;

/// First byte of a child's answer: success.
const DONE: u8 = 0;
const REFUSED: u8 = 1;

/// Starts child processes of one program.
#[derive(Debug, Clone)]
pub struct Apart {
    program: PathBuf,
    /// Arguments after those that [`serve`] takes.
    arguments: Vec<OsString>,
}

/// Limits of a child process.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of address space.
    pub memory: u64,
    /// Wall-clock time; the limit on CPU time is two seconds more, for each thread.
    pub time: Duration,
    /// Threads that compute at the same time.
    pub threads: u32,
    /// Limit on the bytes of the answer.
    pub answer: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApartError {
    /// The child refuses the input, for the reason in the text, which holds words of the input.
    #[error("{}", indented(.0))]
    Refused(String),
    /// The child did not answer in time.
    #[error("it took too long")]
    Time,
    /// The child ended without an answer; the text says how.
    #[error("the process that reads it {0}")]
    Died(String),
    /// The child could not be started, or waiting for it failed.
    #[error("cannot {tried} `{}`: {source}", .program.display())]
    Io {
        /// The operation that failed.
        tried: &'static str,
        /// Path of the program.
        program: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
}

impl Apart {
    /// Starts children of this program, which must call [`serve`] if its first argument is one that it knows.
    pub fn new(program: PathBuf) -> Apart {
        Apart { program, arguments: Vec::new() }
    }

    /// Adds an argument after those that [`serve`] takes.
    #[must_use]
    pub fn with_argument(mut self, argument: impl Into<OsString>) -> Apart {
        self.arguments.push(argument.into());
        self
    }

    /// Sends an input to a new child and returns its answer.
    ///
    /// # Errors
    /// [`ApartError`].
    pub fn ask(&self, argument: &str, input: Vec<u8>, bounds: Bounds) -> Result<Vec<u8>, ApartError> {
        let failed = |tried| move |source| ApartError::Io { tried, program: self.program.clone(), source };
        let mut child = self.start(argument, bounds).map_err(failed("start"))?;
        let answered = exchange(&mut child, input, bounds);
        if answered.is_none() {
            // Fails if the child has ended already.
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed("wait for"))?;
        let answer = answered.ok_or(ApartError::Time)?;
        match answer.split_first() {
            Some((&DONE, answer)) if status.success() => Ok(answer.to_vec()),
            Some((&REFUSED, reason)) if status.success() => {
                Err(ApartError::Refused(String::from_utf8_lossy(reason).into_owned()))
            }
            _ => Err(ApartError::Died(ended(status))),
        }
    }

    fn start(&self, argument: &str, bounds: Bounds) -> io::Result<Child> {
        // Two seconds more than the wall-clock limit, so that the latter is reached first.
        let seconds = bounds.time.as_secs().saturating_add(2).saturating_mul(bounds.threads.into());
        let mut command = Command::new(&self.program);
        command.args([argument.to_owned(), bounds.memory.to_string(), seconds.to_string()]);
        command.args(&self.arguments);
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // Ctrl-C shall end only the host, which then ends the child.
        command.arg0("ks-host").process_group(0).spawn()
    }
}

/// Sends the input and reads the answer; returns none if it does not arrive in time.
fn exchange(child: &mut Child, input: Vec<u8>, bounds: Bounds) -> Option<Vec<u8>> {
    let (mut to, from) = (child.stdin.take()?, child.stdout.take()?);
    let (answered, answer) = mpsc::channel();
    let talk = move || {
        // A child that does not read has ended; its last output is read below.
        let _ = to.write_all(&input);
        drop((to, input));
        let mut said = Vec::new();
        let _ = from.take(bounds.answer).read_to_end(&mut said);
        // The receiver is gone after the time limit.
        let _ = answered.send(said);
    };
    thread::Builder::new().name("apart".into()).spawn(talk).ok()?;
    answer.recv_timeout(bounds.time).ok()
}

/// Prepares this process for having children, whatever its parent has set: `main` calls it first.
///
/// # Errors
/// Of sigaction(2).
pub fn expect_children() -> io::Result<()> {
    Ok(processes::sys::keep_ended_children()?)
}

/// Describes how a process ended.
pub(crate) fn ended(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("was ended by {}", signal.as_str()),
        Some(Err(_)) | None => format!("ended with {status}"),
    }
}

/// Runs the child: takes the two arguments that follow its own and an input of at most this many bytes, drops
/// its rights except to open these files, and sends back the answer.
///
/// # Errors
/// The step that failed; the parent only sees that there is no answer.
pub fn serve(
    arguments: &[OsString],
    most: u64,
    files: ReaderFiles,
    read: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, String>,
) -> io::Result<()> {
    let number = |at: usize| arguments.get(at).and_then(|argument| argument.to_str()?.parse::<u64>().ok());
    let (Some(memory), Some(seconds)) = (number(0), number(1)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it takes bytes and seconds"));
    };
    let mut input = Vec::new();
    io::stdin().lock().take(most).read_to_end(&mut input)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    limits::lower(&[
        (Resource::RLIMIT_AS, memory),
        (Resource::RLIMIT_CPU, seconds),
        (Resource::RLIMIT_CORE, 0),
    ])?;
    become_nobody();
    // After the change of user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    confine::enter_reader(files).map_err(io::Error::other)?;
    let (kind, said) = match read(input) {
        Ok(answer) => (DONE, answer),
        Err(reason) => (REFUSED, reason.into_bytes()),
    };
    let mut out = io::stdout().lock();
    out.write_all(&[kind])?;
    out.write_all(&said)?;
    out.flush()
}

/// Drops the user and groups of root. In a user namespace without a mapping for nobody, the user id stays.
pub(crate) fn become_nobody() {
    if geteuid().is_root() {
        // The capabilities are dropped apart.
        let _ = setgroups(&[]);
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let _ = setresgid(group, group, group).and_then(|()| setresuid(user, user, user));
    }
}
