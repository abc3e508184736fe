//! Reading what a stranger wrote in a process of its own: what it takes of memory and time has an end, and it has no rights.
//!
//! ```text
//! Apart::ask -- word, input --> child: limits, user nobody, no capabilities, no files written, no sockets
//!       ^---- kind, answer ----/
//! ```
//!
//! The child is this very program, started with a word that no person types. Not here: what is read.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

use crate::confine::Confinement;

/// The user of nothing. Source: include/linux/highuid.h, `DEFAULT_OVERFLOWUID`, v6.18.
const NOBODY: u32 = 65_534;

/// What precedes the answer of a child.
const DONE: u8 = 0;
const REFUSED: u8 = 1;

/// Starts the processes.
#[derive(Debug, Clone)]
pub struct Apart {
    program: PathBuf,
}

/// What a process may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes of memory.
    pub memory: u64,
    /// Time, by the clock; of the CPU, a little more.
    pub time: Duration,
    /// Most bytes of the answer.
    pub answer: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApartError {
    /// The process says why.
    #[error("{0}")]
    Refused(String),
    /// It has not answered in time.
    #[error("it took too long")]
    Time,
    /// It has ended without an answer.
    #[error("the process that reads it {0}")]
    Died(String),
    /// It was not started, or cannot be waited for.
    #[error("cannot {tried} `{}`: {source}", .program.display())]
    Io {
        /// What was tried.
        tried: &'static str,
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Apart {
    /// Processes of this program, which calls [`serve`] if its first word is one that it knows.
    pub fn new(program: PathBuf) -> Apart {
        Apart { program }
    }

    /// Has a process read an input.
    ///
    /// # Errors
    /// [`ApartError`].
    pub fn ask(&self, argument: &str, input: Vec<u8>, bounds: Bounds) -> Result<Vec<u8>, ApartError> {
        let failed = |tried| move |source| ApartError::Io { tried, program: self.program.clone(), source };
        let mut child = self.start(argument, bounds).map_err(failed("start"))?;
        let answered = exchange(&mut child, input, bounds);
        if answered.is_none() {
            // One that has ended is not there any more.
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
        // Two seconds more than by the clock: the clock is asked first.
        let seconds = bounds.time.as_secs().saturating_add(2);
        let mut command = Command::new(&self.program);
        command.args([argument.to_owned(), bounds.memory.to_string(), seconds.to_string()]);
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // What a person's Ctrl-C ends is the host, and the host ends this.
        command.arg0("ks-host").process_group(0).spawn()
    }
}

/// Sends the input and takes the answer; none if there is none in time.
fn exchange(child: &mut Child, input: Vec<u8>, bounds: Bounds) -> Option<Vec<u8>> {
    let (mut to, from) = (child.stdin.take()?, child.stdout.take()?);
    let (answered, answer) = mpsc::channel();
    let talk = move || {
        // A child that does not read has ended, and what it said is read below.
        let _ = to.write_all(&input);
        drop((to, input));
        let mut said = Vec::new();
        let _ = from.take(bounds.answer).read_to_end(&mut said);
        // Nobody waits any more if it took too long.
        let _ = answered.send(said);
    };
    thread::Builder::new().name("apart".into()).spawn(talk).ok()?;
    answer.recv_timeout(bounds.time).ok()
}

/// How a process ended, for a person.
fn ended(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("was ended by {}", signal.as_str()),
        Some(Err(_)) | None => format!("ended with {status}"),
    }
}

/// The child: takes the two words behind its own and the input, of at most so many bytes, drops its rights, and sends back
/// the answer.
///
/// # Errors
/// What it could not do; the parent only sees that there is no answer.
pub fn serve(
    arguments: &[OsString],
    most: u64,
    read: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, String>,
) -> io::Result<()> {
    let number = |at: usize| arguments.get(at).and_then(|argument| argument.to_str()?.parse::<u64>().ok());
    let (Some(memory), Some(seconds)) = (number(0), number(1)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it takes bytes and seconds"));
    };
    let mut input = Vec::new();
    io::stdin().lock().take(most).read_to_end(&mut input)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    bound(memory, seconds)?;
    become_nobody();
    // After that, which takes it back.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    Confinement::default().enter().map_err(io::Error::other)?;
    let (kind, said) = match read(input) {
        Ok(answer) => (DONE, answer),
        Err(reason) => (REFUSED, reason.into_bytes()),
    };
    let mut out = io::stdout().lock();
    out.write_all(&[kind])?;
    out.write_all(&said)?;
    out.flush()
}

/// Drops every right of this process but its open descriptors, and limits its memory and CPU time.
///
/// # Errors
/// What the kernel said.
pub fn drop_rights(memory: u64, seconds: u64) -> io::Result<()> {
    bound(memory, seconds)?;
    become_nobody();
    Confinement::default().enter().map_err(io::Error::other)
}

fn bound(memory: u64, seconds: u64) -> io::Result<()> {
    for (resource, most) in
        [(Resource::RLIMIT_AS, memory), (Resource::RLIMIT_CPU, seconds), (Resource::RLIMIT_CORE, 0)]
    {
        // Who started the host may have said less.
        let most = most.min(getrlimit(resource)?.1);
        setrlimit(resource, most, most)?;
    }
    Ok(())
}

fn become_nobody() {
    if geteuid().is_root() {
        // In a user namespace that knows nobody, the user stays, without capabilities.
        let _ = setgroups(&[]);
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let _ = setresgid(group, group, group).and_then(|()| setresuid(user, user, user));
    }
}
