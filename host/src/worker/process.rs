//! The process of a worker, as the broker sees it: started and interrupted.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use ks_wit::CONTRACT;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;

use super::protocol::{ExportCall, FromWorker, Ready, Refused, Start, ToWorker, encoded, receive};
use super::sys::INTERRUPT;
use crate::confine::FileOfOne;
use crate::plugin::{Interrupt, Plugin, PluginError, TrustedCode};
use crate::processes::zygote::{ChildKind, Forked, Program};
use crate::processes::{Grandchild, Process, channel};

/// Bytes of the first message of a worker: names of functions that its component imports.
const MAX_READY_BYTES: usize = 16 << 20;

/// How to start workers: from a program whose `main` begins with [`super::serve_if_asked`].
#[derive(Debug, Clone)]
pub struct WorkerProgram(Program);

impl WorkerProgram {
    /// Starts workers from this process's own program.
    pub fn of_this_program() -> WorkerProgram {
        WorkerProgram::of("/proc/self/exe")
    }

    /// Starts workers from another program, for example `ks-host` of the same version.
    pub fn of(program: impl Into<PathBuf>) -> WorkerProgram {
        WorkerProgram(Program::of(program.into()))
    }

    /// Starts the process of the next worker now, while its plugin is still read and judged. If that fails, the start
    /// of the worker says why.
    pub fn start_ahead(&self) {
        self.0.fork_ahead(ChildKind::Worker);
    }

    /// As [`WorkerProgram::start_ahead`], for the process that loads the plugin's object.
    pub(crate) fn start_loader_ahead(&self) {
        self.0.fork_ahead(ChildKind::Loader);
    }

    /// Starts a process that loads BPF objects.
    ///
    /// # Errors
    /// As of [`Program::fork_loader`].
    pub(crate) fn start_loader(&self) -> io::Result<Forked<Grandchild>> {
        self.0.fork_loader()
    }
}

/// The code of a plugin in memory that nobody can change, and what its workers need to know.
#[derive(Debug)]
pub(crate) struct PluginCode {
    memory: File,
    /// The message that starts each of them.
    start: Vec<u8>,
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
        Ok(PluginCode { memory, start: encoded(&ToWorker::Start(start)) })
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
        Worker::start_and(program, code, || {})
    }

    /// As [`Worker::start`]; acts while the worker loads.
    ///
    /// # Errors
    /// [`NoWorker`].
    pub(crate) fn start_and(
        program: &WorkerProgram,
        code: &PluginCode,
        act: impl FnOnce(),
    ) -> Result<Worker, NoWorker> {
        let failed = |error: io::Error| {
            NoWorker::Plugin(PluginError::NoProcess(format!("`{}`: {error}", program.0.shown())))
        };
        let Forked { process, socket } = program.0.fork_worker().map_err(failed)?;
        let sent = channel::send(socket.as_fd(), &code.start, Some(code.memory.as_fd()));
        act();
        let ready = sent.and_then(|()| receive(&*socket, MAX_READY_BYTES));
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
        self.process.pid()
    }

    /// Lets the plugin run. What it does until its broker is ready are computations: its first call waits.
    ///
    /// # Errors
    /// Of sendmsg(2).
    pub(crate) fn enter(&self, entry: ExportCall) -> io::Result<()> {
        channel::send(self.socket.as_fd(), &encoded(&ToWorker::Enter(entry)), None)
    }

    /// The socket to it, and its process.
    pub(crate) fn into_parts(self) -> (FileOfOne, Process) {
        (self.socket, self.process)
    }
}

/// Interrupts a worker.
pub(crate) fn interrupt(worker: &Process, how: Interrupt) {
    worker.signal(match how {
        Interrupt::Look => INTERRUPT,
        Interrupt::End => Signal::SIGKILL,
    });
}
