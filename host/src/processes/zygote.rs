//! The process that a plugin's processes are forked from.
//!
//! ```text
//! broker -- a kind, a socket --> zygote -- clone --> a process with the other end of the socket
//!       <-- its number, or its descriptor --/
//! ```
//!
//! A worker is a child of the broker (`CLONE_PARENT`), which says how it ended. A loader is a child of the zygote: when
//! it ends, nothing of it is left, also while its plugin runs. The zygote is this program itself, started with an
//! argument that no person types: it holds nothing, has one thread, and what every child needs is made in it once. So a
//! child begins in a fraction of the time of a program.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, dup2_stdin, getpid, gettid};

use super::channel::{self, Received};
use super::cpu::{self, Cpus};
use super::process::{Grandchild, Process};
use super::sys;
use crate::confine::FileOfOne;

/// The only argument of a zygote.
const ARGUMENT: &CStr = c"--ks-host-zygote";

/// Where libbpf takes a token from that delegates BPF to a user namespace. Nothing else of the environment is passed on.
pub(crate) const TOKEN_PATH: &str = "LIBBPF_BPF_TOKEN_PATH";

/// Bytes of an answer of a zygote.
const ANSWER_BYTES: usize = 4;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildKind {
    /// Runs a plugin (`worker`).
    Worker,
    /// Loads BPF objects (`loader`).
    Loader,
}

impl ChildKind {
    const ALL: [ChildKind; 2] = [ChildKind::Worker, ChildKind::Loader];

    fn number(self) -> u8 {
        self as u8
    }
}

/// A process, and the socket to it.
#[derive(Debug)]
pub(crate) struct Forked<P> {
    pub(crate) process: P,
    pub(crate) socket: FileOfOne,
}

/// What a zygote has made.
#[derive(Debug)]
enum ForkedChild {
    /// A child of this process.
    Child(Process),
    /// A child of the zygote.
    Grandchild(Grandchild),
}

/// A program whose `main` begins with [`serve_if_asked`], and its zygote, which is started when it is first needed.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    zygote: Arc<Mutex<Option<Zygote>>>,
}

impl Program {
    pub(crate) fn of(path: PathBuf) -> Program {
        Program { path, zygote: Arc::default() }
    }

    /// Asks for a process ahead, which [`Program::fork_worker`] or [`Program::fork_loader`] returns later. If that fails,
    /// they say why.
    pub(crate) fn fork_ahead(&self, kind: ChildKind) {
        let mut zygote = self.zygote();
        if let Ok(started) = Zygote::started(&mut zygote, &self.path)
            && started.asked.iter().all(|asked| asked.kind != kind)
            && started.ask(kind).is_err()
        {
            *zygote = None;
        }
    }

    /// Returns a new worker, or the one that was asked for ahead.
    ///
    /// # Errors
    /// Of starting the program, of its socket, and of clone(2).
    pub(crate) fn fork_worker(&self) -> io::Result<Forked<Process>> {
        match self.fork(ChildKind::Worker)? {
            Forked { process: ForkedChild::Child(process), socket } => Ok(Forked { process, socket }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns a new loader.
    ///
    /// # Errors
    /// As [`Program::fork_worker`].
    pub(crate) fn fork_loader(&self) -> io::Result<Forked<Grandchild>> {
        match self.fork(ChildKind::Loader)? {
            Forked { process: ForkedChild::Grandchild(process), socket } => Ok(Forked { process, socket }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn fork(&self, kind: ChildKind) -> io::Result<Forked<ForkedChild>> {
        let mut zygote = self.zygote();
        let forked = Zygote::started(&mut zygote, &self.path).and_then(|zygote| zygote.fork(kind));
        if forked.is_err() {
            // Somebody may have ended it: another one may do better.
            *zygote = None;
            return Zygote::started(&mut zygote, &self.path).and_then(|zygote| zygote.fork(kind));
        }
        forked
    }

    /// Describes what is started, for messages.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}", self.path.display(), ARGUMENT.to_string_lossy())
    }

    fn zygote(&self) -> MutexGuard<'_, Option<Zygote>> {
        self.zygote.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child that was asked for.
#[derive(Debug)]
struct Asked {
    kind: ChildKind,
    socket: FileOfOne,
    /// None until the zygote has answered.
    process: Option<ForkedChild>,
}

#[derive(Debug)]
struct Zygote {
    socket: FileOfOne,
    /// In the order of the answers.
    asked: VecDeque<Asked>,
    /// Ended when this is dropped.
    _process: Process,
}

impl Zygote {
    fn started<'a>(zygote: &'a mut Option<Zygote>, program: &Path) -> io::Result<&'a mut Zygote> {
        match zygote {
            Some(zygote) => Ok(zygote),
            None => Ok(zygote.insert(Zygote::start(program)?)),
        }
    }

    fn start(program: &Path) -> io::Result<Zygote> {
        let (socket, theirs) = pair()?;
        let program = CString::new(program.as_os_str().as_bytes())?;
        let token = std::env::var_os(TOKEN_PATH);
        let token = token.map(|path| CString::new([TOKEN_PATH.as_bytes(), b"=", path.as_bytes()].concat()));
        let wanted = Wanted { program, token: token.transpose()?, input: theirs };
        let _process = Process::of_child(started(wanted)?);
        Ok(Zygote { socket, asked: VecDeque::new(), _process })
    }

    /// Asks for a child, without waiting for it.
    fn ask(&mut self, kind: ChildKind) -> io::Result<()> {
        let (socket, theirs) = pair()?;
        channel::send(self.socket.as_fd(), &[kind.number()], Some(theirs.as_fd()))?;
        self.asked.push_back(Asked { kind, socket, process: None });
        Ok(())
    }

    fn fork(&mut self, kind: ChildKind) -> io::Result<Forked<ForkedChild>> {
        if self.asked.iter().all(|asked| asked.kind != kind)
            && let Err(error) = self.ask(kind)
        {
            // One that did not start says why before it ends.
            return Err(self.answer().err().unwrap_or(error));
        }
        loop {
            let at = self.asked.iter().position(|asked| asked.kind == kind && asked.process.is_some());
            if let Some(Asked { socket, process: Some(process), .. }) =
                at.and_then(|at| self.asked.remove(at))
            {
                return Ok(Forked { process, socket });
            }
            let made = self.answer()?;
            let next = self.asked.iter_mut().find(|asked| asked.process.is_none());
            next.ok_or(io::ErrorKind::InvalidData)?.process = Some(made);
        }
    }

    fn answer(&self) -> io::Result<ForkedChild> {
        let received = channel::receive(self.socket.as_fd(), ANSWER_BYTES)?;
        let Received { bytes, file } = received.ok_or(io::ErrorKind::UnexpectedEof)?;
        let number = bytes.try_into().map(i32::from_le_bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        match (number, file) {
            (errno @ ..0, _) => Err(Errno::from_raw(errno.saturating_neg()).into()),
            (_, Some(descriptor)) => Ok(ForkedChild::Grandchild(Grandchild::new(descriptor))),
            (pid, None) => Ok(ForkedChild::Child(Process::of_child(Pid::from_raw(pid)))),
        }
    }
}

/// Returns our end of a new connection, which no plugin's thread writes to, and the other end.
fn pair() -> io::Result<(FileOfOne, OwnedFd)> {
    let mut theirs = None;
    let ours = FileOfOne::open(|| {
        let (ours, other) = UnixStream::pair()?;
        theirs = Some(OwnedFd::from(other));
        Ok(OwnedFd::from(ours).into())
    })?;
    Ok((ours, theirs.ok_or(io::ErrorKind::Other)?))
}

/// A zygote to start.
struct Wanted {
    program: CString,
    /// What it has of the environment.
    token: Option<CString>,
    input: OwnedFd,
}

impl Wanted {
    /// Starts the zygote; waits no longer than for the copy of this process. Ctrl-C shall end only the host, which then ends
    /// its children: so it is in a group of its own.
    fn start(&self) -> io::Result<Pid> {
        let null = File::options().write(true).open("/dev/null")?;
        let environment: Vec<&CStr> = self.token.as_deref().into_iter().collect();
        let started = sys::start(&sys::Start {
            program: &self.program,
            arguments: &[c"ks-host-child", ARGUMENT],
            environment: &environment,
            input: self.input.as_fd(),
            output: null.as_fd(),
            cpus: Cpus::now().as_ref(),
            not_started,
        });
        cpu::let_it_move();
        Ok(started?)
    }
}

/// The answer of a zygote that did not start.
fn not_started(errno: Errno) -> [u8; sys::NOT_STARTED_BYTES] {
    let [a, b, c, d] = (ANSWER_BYTES as u32).to_le_bytes();
    let [e, f, g, h] = (-(errno as i32)).to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

/// What the thread that starts zygotes waits for: one to start, and where its number is sent.
type Task = (Wanted, Sender<io::Result<Pid>>);

/// Starts a process from a thread that lives as long as this process: the kernel ends the zygote, and what it has forked,
/// with the thread that started it (prctl(2), `PR_SET_PDEATHSIG`). The first thread does.
fn started(wanted: Wanted) -> io::Result<Pid> {
    if gettid() == getpid() {
        return wanted.start();
    }
    static STARTER: OnceLock<Option<Sender<Task>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (tasks, all) = mpsc::channel::<Task>();
        let start = move || {
            for (wanted, pid) in all {
                // The receiver waits.
                let _ = pid.send(wanted.start());
            }
        };
        thread::Builder::new().name("workers".into()).spawn(start).ok().map(|_| tasks)
    });
    let no_thread = || io::Error::other("there is no thread that starts processes");
    let (sender, pid) = mpsc::channel();
    starter.as_ref().ok_or_else(no_thread)?.send((wanted, sender)).map_err(|_| no_thread())?;
    pid.recv().map_err(|_| no_thread())?
}

/// Runs a zygote and exits, if this process was started as one; returns otherwise. Each child calls `act` with what
/// `prepare` made in the zygote; its socket is the standard input.
pub(crate) fn serve_if_asked<P>(
    prepare: impl FnOnce() -> io::Result<P>,
    act: impl FnOnce(ChildKind, P) -> io::Result<()>,
) {
    let arguments: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    if arguments.iter().map(|argument| argument.as_bytes()).ne([ARGUMENT.to_bytes()]) {
        return;
    }
    let code = match serve(prepare, act) {
        Ok(()) => 0,
        // Standard error is only visible if a person starts the process.
        Err(error) => {
            let _ = writeln!(io::stderr(), "a process of ks-host cannot go on: {error}");
            1
        }
    };
    std::process::exit(code)
}

/// Makes a copy of this process. Returns what the broker gets to know of it, its number or its descriptor, and none in the
/// copy.
fn fork(kind: ChildKind) -> Result<Option<(i32, Option<OwnedFd>)>, Errno> {
    match kind {
        ChildKind::Worker => {
            let cpus = Cpus::now();
            let pid = sys::fork_sibling()?;
            match pid {
                Some(_) => cpu::let_it_move(),
                None => cpus.iter().for_each(Cpus::move_away),
            }
            Ok(pid.map(|pid| (pid.as_raw(), None)))
        }
        // It is asked for after a worker: then this process waits.
        ChildKind::Loader => {
            let process = cpu::start_here(|_| sys::fork_child())?;
            Ok(process.map(|process| (0, Some(process))))
        }
    }
}

fn serve<P>(
    prepare: impl FnOnce() -> io::Result<P>,
    act: impl FnOnce(ChildKind, P) -> io::Result<()>,
) -> io::Result<()> {
    sys::close_others()?;
    prctl::set_name(c"ks-host-child")?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    sys::forget_ended_children()?;
    let broker: File = io::stdin().as_fd().try_clone_to_owned()?.into();
    let prepared = prepare()?;
    while let Some(Received { bytes, file: Some(socket) }) = channel::receive(broker.as_fd(), 1)? {
        let kind = ChildKind::ALL.into_iter().find(|kind| bytes == [kind.number()]);
        let kind = kind.ok_or(io::ErrorKind::InvalidData)?;
        let (number, descriptor) = match fork(kind) {
            Ok(Some(made)) => made,
            Ok(None) => {
                drop(broker);
                dup2_stdin(socket)?;
                return act(kind, prepared);
            }
            Err(errno) => (-(errno as i32), None),
        };
        let descriptor = descriptor.as_ref().map(|descriptor| descriptor.as_fd());
        channel::send(broker.as_fd(), &number.to_le_bytes(), descriptor)?;
    }
    Ok(())
}
