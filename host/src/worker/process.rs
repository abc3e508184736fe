//! The process of a worker, as the broker sees it: started, interrupted, ended.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use ks_wit::CONTRACT;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, gettid};

use super::child::ARGUMENT;
use super::protocol::{FromWorker, Ready, Refused, Start, ToWorker, encoded, receive};
use super::sys::INTERRUPT;
use crate::apart;
use crate::confine::FileOfOne;
use crate::plugin::{Interrupt, Plugin, PluginError, TrustedCode};
use crate::processes::channel;

/// Bytes of the first message of a worker: names of functions that its component imports.
const MAX_READY_BYTES: usize = 16 << 20;

/// How to start workers: from a program whose `main` begins with [`super::serve_if_asked`].
#[derive(Debug, Clone)]
pub struct WorkerProgram {
    program: PathBuf,
    /// A process that was started ahead: it has no code yet.
    ahead: Arc<Mutex<Option<Started>>>,
}

impl WorkerProgram {
    /// Starts workers from this process's own program.
    pub fn of_this_program() -> WorkerProgram {
        WorkerProgram::of("/proc/self/exe")
    }

    /// Starts workers from another program, for example `ks-host` of the same version.
    pub fn of(program: impl Into<PathBuf>) -> WorkerProgram {
        WorkerProgram { program: program.into(), ahead: Arc::default() }
    }

    /// Starts the process of the next worker now, while its plugin is still read and judged. If that fails, the start
    /// of the worker says why.
    pub fn start_ahead(&self) {
        let mut ahead = self.ahead();
        if ahead.is_none() {
            *ahead = Started::new(&self.program).ok();
        }
    }

    fn ahead(&self) -> MutexGuard<'_, Option<Started>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that waits for its code, and the socket to it.
#[derive(Debug)]
struct Started {
    process: Process,
    socket: FileOfOne,
}

impl Started {
    fn new(program: &Path) -> io::Result<Started> {
        let mut theirs = None;
        let socket = FileOfOne::open(|| {
            let (ours, other) = UnixStream::pair()?;
            theirs = Some(other);
            Ok(OwnedFd::from(ours).into())
        })?;
        let theirs = theirs.ok_or(io::ErrorKind::Other)?;
        Ok(Started { process: Process::start(program, theirs.into())?, socket })
    }
}

/// The code of a plugin in memory that nobody can change, and what its workers need to know.
#[derive(Debug)]
pub(crate) struct PluginCode {
    memory: File,
    start: Start,
}

impl PluginCode {
    /// Copies the code to such memory.
    ///
    /// # Errors
    /// Of memfd_create(2) and write(2).
    pub(crate) fn new(code: &TrustedCode, plugin: &Plugin) -> io::Result<PluginCode> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut memory = File::from(memfd_create(c"ks-host code", flags)?);
        memory.write_all(code.bytes())?;
        let seals =
            SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
        let start = Start {
            imports: plugin.imports().to_vec(),
            lines: plugin.lines().iter().map(ks_wit::lines::Lines::to_bytes).collect(),
            shared_bytes: plugin.shared_bytes().map(|bytes| bytes as u64),
        };
        Ok(PluginCode { memory, start })
    }
}

/// Why there is no worker.
#[derive(Debug)]
pub(crate) enum NoWorker {
    /// Another engine compiled the code.
    OtherEngine(String),
    /// The plugin does not fit this host.
    Plugin(PluginError),
}

impl From<NoWorker> for PluginError {
    fn from(reason: NoWorker) -> PluginError {
        match reason {
            NoWorker::Plugin(error) => error,
            NoWorker::OtherEngine(reason) => PluginError::Component(reason),
        }
    }
}

/// A worker that has loaded its code; ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Process,
    socket: FileOfOne,
    pub(crate) functions: Vec<String>,
    pub(crate) lists_tests: bool,
}

impl Worker {
    /// Starts a worker and waits until it has loaded the code.
    ///
    /// # Errors
    /// [`NoWorker`].
    pub(crate) fn start(program: &WorkerProgram, code: &PluginCode) -> Result<Worker, NoWorker> {
        let failed = |error: io::Error| {
            let program = program.program.display();
            NoWorker::Plugin(PluginError::NoProcess(format!("`{program} {ARGUMENT}`: {error}")))
        };
        let ahead = program.ahead().take();
        let started = ahead.map_or_else(|| Started::new(&program.program), Ok).map_err(failed)?;
        let Started { process, socket } = started;
        let start = encoded(&ToWorker::Start(code.start.clone()));
        let ready = channel::send(socket.as_fd(), &start, Some(code.memory.as_fd()))
            .and_then(|()| receive(&*socket, MAX_READY_BYTES));
        match ready {
            Ok(FromWorker::Ready(Ready { functions, lists_tests })) => {
                Ok(Worker { process, socket, functions, lists_tests })
            }
            Ok(FromWorker::Refused(Refused::Code(reason))) => Err(NoWorker::OtherEngine(reason)),
            Ok(FromWorker::Refused(Refused::Contract(contract))) => {
                Err(NoWorker::Plugin(PluginError::Contract { contract, served: CONTRACT }))
            }
            Ok(FromWorker::Refused(Refused::Process(reason))) => {
                Err(NoWorker::Plugin(PluginError::NoProcess(reason)))
            }
            Ok(FromWorker::Refused(Refused::Component(reason))) => {
                Err(NoWorker::Plugin(PluginError::Component(reason)))
            }
            Ok(_) => Err(failed(io::ErrorKind::InvalidData.into())),
            Err(error) => {
                Err(failed(io::Error::new(error.kind(), format!("{error}; the process {}", process.end()))))
            }
        }
    }

    /// Its process, which is its only thread.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid.as_raw()
    }

    /// The socket to it, and what ends it.
    pub(crate) fn into_parts(self) -> (FileOfOne, Process) {
        (self.socket, self.process)
    }
}

/// The process of a worker. It is waited for only when this is dropped or [`Process::end`] is called, so that its
/// number denotes no other process before.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    child: Mutex<Child>,
}

impl Process {
    fn start(program: &Path, socket: OwnedFd) -> io::Result<Process> {
        let mut command = Command::new(program);
        command.arg0("ks-host-worker").arg(ARGUMENT).env_clear().current_dir("/");
        // Ctrl-C shall end only the host, which then ends the worker.
        command.process_group(0).stdin(socket).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn(command)?;
        let pid = i32::try_from(child.id()).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Process { pid: Pid::from_raw(pid), child: Mutex::new(child) })
    }

    /// Interrupts the worker: one that has ended is not waited for, so the signal reaches nobody else.
    pub(crate) fn interrupt(&self, how: Interrupt) {
        let signal = match how {
            Interrupt::Look => INTERRUPT,
            Interrupt::End => Signal::SIGKILL,
        };
        // Fails only if it has ended.
        let _ = kill(self.pid, signal);
    }

    /// Ends the process, if it has not ended, and says how it did.
    pub(crate) fn end(&self) -> String {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match child.try_wait() {
            Ok(Some(status)) => Ok(status),
            _ => child.kill().and_then(|()| child.wait()),
        };
        match ended {
            Ok(status) => apart::ended(status),
            Err(error) => format!("cannot be waited for: {error}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program to start, and where the child is sent.
type Wanted = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as this process: the kernel ends a worker with the thread
/// that started it (prctl(2), `PR_SET_PDEATHSIG`). The first thread does.
fn spawn(mut command: Command) -> io::Result<Child> {
    if gettid() == getpid() {
        return command.spawn();
    }
    static STARTER: OnceLock<Option<Sender<Wanted>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (wanted, all) = mpsc::channel::<Wanted>();
        let start = move || {
            for (mut command, child) in all {
                // The receiver waits.
                let _ = child.send(command.spawn());
            }
        };
        thread::Builder::new().name("workers".into()).spawn(start).ok().map(|_| wanted)
    });
    let no_thread = || io::Error::other("there is no thread that starts processes");
    let (sender, child) = mpsc::channel();
    starter.as_ref().ok_or_else(no_thread)?.send((command, sender)).map_err(|_| no_thread())?;
    child.recv().map_err(|_| no_thread())?
}
