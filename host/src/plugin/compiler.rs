//! Compiling in a process of its own: what it takes of memory and time has an end, and it has no rights.
//!
//! ```text
//! Engine::compile -> Compiler -- component --> child: limits, no capabilities, no files written, no sockets
//!                       ^------- code or why not --/
//! ```
//!
//! The child is this very program, started with a word that no person types ([`WORD`]). What it sends is believed as code
//! that this process compiled itself would be: the compiler that a component breaks would have been broken here.

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

use super::engine::{COMPILER_STACK_BYTES, Engine};
use super::file::{MAX_PLUGIN_BYTES, PluginError};
use crate::confine::Confinement;
use crate::policy::Limit;

/// The word that starts the child; the bytes of memory and the seconds of CPU time that it may take follow.
pub const WORD: &str = "compile-for-host";

/// Most bytes of code that are taken. Guards the host: code has some ten times the bytes of its component.
const MAX_CODE_BYTES: u64 = 16 * MAX_PLUGIN_BYTES;

/// The user of nothing. Source: include/linux/highuid.h, `DEFAULT_OVERFLOWUID`, v6.18.
const NOBODY: u32 = 65_534;

/// What precedes the answer of the child.
const CODE: u8 = 0;
const REASON: u8 = 1;

/// Starts the processes that compile.
#[derive(Debug, Clone)]
pub struct Compiler {
    program: PathBuf,
}

impl Compiler {
    /// One whose processes are this program, which hands its words over to [`serve`] if the first is [`WORD`].
    pub fn new(program: PathBuf) -> Compiler {
        Compiler { program }
    }

    /// Compiles a component.
    ///
    /// # Errors
    /// [`PluginError::Component`] if it is not valid, or takes more memory; [`PluginError::CompileTime`].
    pub(super) fn compile(
        &self,
        component: Vec<u8>,
        time: Duration,
        memory: u64,
    ) -> Result<Vec<u8>, PluginError> {
        let failed = |what: &str, error: io::Error| {
            PluginError::Component(format!("cannot compile it: {what} `{}`: {error}", self.program.display()))
        };
        let mut child = self.start(time, memory).map_err(|error| failed("start", error))?;
        let answered = exchange(&mut child, component, time);
        if answered.is_none() {
            // One that has ended is not there any more.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| failed("wait for", error))?;
        let Some(answer) = answered else {
            let number = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            return Err(PluginError::CompileTime(Limit::CompileMs.reached(number)));
        };
        match answer.split_first() {
            Some((&CODE, code)) if status.success() => Ok(code.to_vec()),
            Some((&REASON, reason)) if status.success() => {
                Err(PluginError::Component(String::from_utf8_lossy(reason).into_owned()))
            }
            _ => Err(PluginError::Component(died(status, memory))),
        }
    }

    fn start(&self, time: Duration, memory: u64) -> io::Result<Child> {
        // A second more than by the clock: the clock is asked first.
        let seconds = time.as_secs().saturating_add(2);
        let mut command = Command::new(&self.program);
        command.args([OsString::from(WORD), memory.to_string().into(), seconds.to_string().into()]);
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

/// Sends the component and takes the answer; none if there is none in time.
fn exchange(child: &mut Child, component: Vec<u8>, time: Duration) -> Option<Vec<u8>> {
    let (mut to, from) = (child.stdin.take()?, child.stdout.take()?);
    let (answered, answer) = mpsc::channel();
    let talk = move || {
        // A child that does not read has ended, and what it said is read below.
        let _ = to.write_all(&component);
        drop((to, component));
        let mut said = Vec::new();
        let _ = from.take(MAX_CODE_BYTES).read_to_end(&mut said);
        // Nobody waits any more if it took too long.
        let _ = answered.send(said);
    };
    thread::Builder::new().name("compiler".into()).spawn(talk).ok()?;
    answer.recv_timeout(time).ok()
}

/// Why there is no answer, for a person.
fn died(status: ExitStatus, memory: u64) -> String {
    let ended = match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("was ended by {}", signal.as_str()),
        Some(Err(_)) | None => format!("ended so: {status}"),
    };
    format!(
        "the process that compiles it {ended}, most likely because it takes more memory than it may: {}",
        Limit::CompileBytes.reached(memory)
    )
}

/// The child: takes its words, compiles what comes on standard input and answers on standard output.
///
/// # Errors
/// What it could not do; the parent only sees that there is no answer.
pub fn serve(words: &[OsString]) -> io::Result<()> {
    let number = |at: usize| words.get(at).and_then(|word| word.to_str()?.parse::<u64>().ok());
    let (Some(memory), Some(seconds)) = (number(0), number(1)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it takes bytes and seconds"));
    };
    let mut component = Vec::new();
    io::stdin().lock().take(MAX_PLUGIN_BYTES).read_to_end(&mut component)?;
    restrict(memory, seconds)?;
    let compile = move || -> Result<Vec<u8>, String> {
        let engine = Engine::new().map_err(|error| error.to_string())?;
        let compiled = engine.inner().precompile_component(&component);
        compiled.map_err(|error| format!("the component is not valid: {error:#}"))
    };
    let compiler = thread::Builder::new().name("compiler".into()).stack_size(COMPILER_STACK_BYTES);
    let compiled = compiler.spawn(compile)?.join();
    let (kind, said) = match compiled {
        Ok(Ok(code)) => (CODE, code),
        Ok(Err(reason)) => (REASON, reason.into_bytes()),
        Err(_) => (REASON, b"the compiler of the component has a defect: it panicked".to_vec()),
    };
    let mut out = io::stdout().lock();
    out.write_all(&[kind])?;
    out.write_all(&said)?;
    out.flush()
}

/// Gives up everything but memory, time and the two ends of the pipes.
fn restrict(memory: u64, seconds: u64) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    for (resource, most) in [
        (Resource::RLIMIT_AS, memory),
        (Resource::RLIMIT_CPU, seconds),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, 16),
    ] {
        setrlimit(resource, most, most)?;
    }
    if geteuid().is_root() {
        // In a user namespace that knows nobody, the user stays, without capabilities.
        let _ = setgroups(&[]);
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let _ = setresgid(group, group, group).and_then(|()| setresuid(user, user, user));
        // Changing the user takes it back.
        prctl::set_pdeathsig(Signal::SIGKILL)?;
    }
    Confinement::default().enter().map_err(io::Error::other)
}
