//! The worker itself: loads the code, drops its rights, runs the plugin once.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use ks_wit::lines::Lines;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use wasmtime::component::Component;

use super::protocol::{
    End, Export, ExportCall, FromWorker, Ready, Refused, Start, ToWorker, decoded, encoded, send,
};
use super::{confine, sys};
use crate::bpf::loader;
use crate::options::RunOptions;
use crate::plugin::{
    Engine, Facts, Instance, Limits, Outcome, PluginError, Prepared, STACK_BYTES, TrustedCode, thread_name,
};
use crate::policy::Policy;
use crate::processes::channel::{self, Received};
use crate::processes::zygote::{self, ChildKind};
use crate::world::served::{Broker, When, WorkerOwn};
use crate::world::{self, Answers, State};

/// Runs a process of [`super::WorkerProgram`] and exits, if this process was started as one; returns otherwise.
/// `main` calls it first, before it starts threads or opens files.
pub fn serve_if_asked() {
    work_if_asked(|loaded, entry, broker| run(&loaded.prepared, entry, broker), |_| None);
}

/// As [`serve_if_asked`], but calls these, with all that a process holds: for tests of what somebody reaches who runs code
/// of his own in it.
///
/// `in_worker` is called after the plugin has run, with the socket to the broker and the name of the test that is to run;
/// what it returns becomes the reason of the plugin's end. `in_loader` is called when an object of this name is to be loaded;
/// if it returns something, that is the difference that kept the object from being loaded.
#[doc(hidden)]
pub fn serve_taken_over_if_asked(
    in_worker: impl FnOnce(&File, &str) -> String,
    in_loader: impl Fn(&str) -> Option<String>,
) {
    let act = |loaded: &Loaded, entry: &ExportCall, broker: Connection| {
        let socket = Arc::clone(&broker.0);
        let mut instance = match instance(&loaded.prepared, entry, broker) {
            Ok(instance) => instance,
            Err(outcome) => return FromWorker::Ended(End::of(outcome)),
        };
        // It may end by a trap, and then still holds everything.
        if let outcome @ Outcome::Failed(_) = instance.run() {
            return FromWorker::Ended(End::of(outcome));
        }
        let test = if let Export::Test(name) = &entry.export { name } else { "" };
        FromWorker::Ended(End::Failed(in_worker(&socket, test)))
    };
    work_if_asked(act, in_loader);
}

/// Confines this process as one that runs a plugin: for measuring what the filter of system calls costs.
///
/// # Errors
/// If the kernel refuses a limit or the filter.
#[doc(hidden)]
pub fn confine_like_a_worker() -> io::Result<()> {
    let filter = confine::drop_rights().map_err(io::Error::other)?;
    confine::enter(&filter, &Policy::nothing()).map_err(io::Error::other)
}

fn work_if_asked(
    act: impl FnOnce(&Loaded, &ExportCall, Connection) -> FromWorker,
    attack: impl Fn(&str) -> Option<String>,
) {
    zygote::serve_if_asked(
        || Engine::new().map_err(io::Error::other),
        |kind, engine| match kind {
            ChildKind::Worker => work(&engine, act),
            ChildKind::Loader => loader::serve(attack),
        },
    );
}

/// The socket to the broker.
#[derive(Clone)]
struct Connection(Arc<File>);

impl Connection {
    fn send(&self, message: &FromWorker) -> io::Result<()> {
        send(&*self.0, message)
    }

    /// Waits for a message, with its descriptor if it has one. The broker is trusted: a worker is nothing without
    /// it.
    fn receive(&self) -> io::Result<(ToWorker, Option<OwnedFd>)> {
        let received = channel::receive(self.0.as_fd(), u32::MAX as usize)?;
        let Received { bytes, file } = received.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((decoded(&bytes)?, file))
    }
}

/// Bytes of calls that wait for the next one, at most.
const MOST_WAITING_BYTES: usize = 16 << 10;

/// A connection, with calls that are sent with the next one.
struct Calls {
    connection: Connection,
    waiting: Vec<u8>,
}

impl Calls {
    fn send_all(&mut self, message: &FromWorker) -> io::Result<()> {
        channel::frame(&encoded(message), &mut self.waiting)?;
        let sent = (&*self.connection.0).write_all(&self.waiting);
        self.waiting.clear();
        sent
    }
}

impl Broker for Calls {
    fn tell(&mut self, call: Vec<u8>, when: When) -> wasmtime::Result<()> {
        let message = FromWorker::Tell(call);
        if when == When::WithNext && self.waiting.len() < MOST_WAITING_BYTES {
            return Ok(channel::frame(&encoded(&message), &mut self.waiting)?);
        }
        Ok(self.send_all(&message)?)
    }

    fn ask(&mut self, call: Vec<u8>, mut own: WorkerOwn<'_>) -> wasmtime::Result<Vec<u8>> {
        self.send_all(&FromWorker::Call(call))?;
        loop {
            match self.connection.receive()? {
                (ToWorker::Answer(answer), _) => return Ok(answer),
                (ToWorker::Trap(reason), _) => return Err(reason.into_error()),
                (ToWorker::Map(pages), map) => {
                    let mapped = own.memory.as_deref_mut().zip(map).and_then(|(memory, map)| {
                        memory.map_pages(&pages.name, usize::try_from(pages.bytes).ok()?, map.as_fd())
                    });
                    self.connection.send(&FromWorker::Mapped(mapped))?;
                }
                (ToWorker::PassedOn(passed), descriptor) => {
                    own.direct.take(passed, descriptor, own.host_bytes);
                }
                (ToWorker::Start(_) | ToWorker::Enter(_), _) => return Err(unexpected().into()),
            }
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "another message was expected")
}

fn work(engine: &Engine, act: impl FnOnce(&Loaded, &ExportCall, Connection) -> FromWorker) -> io::Result<()> {
    // Until it drops its rights, which may change the user: that resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let broker = Connection(Arc::new(io::stdin().as_fd().try_clone_to_owned()?.into()));
    // Before the broker knows that it is ready: until then the signal would end it.
    sys::interrupt_by_signal(engine.inner().map_err(io::Error::other)?)?;
    // Before anything of the plugin is looked at: another process has made its code.
    let dropped = have_stack().and_then(|()| confine::drop_rights().map_err(|error| error.to_string()));
    let (ToWorker::Start(start), Some(code)) = broker.receive()? else { return Err(unexpected()) };
    let filter = match dropped {
        Ok(filter) => filter,
        Err(reason) => return broker.send(&FromWorker::Refused(Refused::Process(reason))),
    };
    let loaded = match load(engine, &start, &code.into()) {
        Ok(loaded) => loaded,
        Err(refused) => return broker.send(&FromWorker::Refused(refused)),
    };
    let functions = loaded.functions.iter().cloned().collect();
    broker.send(&FromWorker::Ready(Ready { functions, lists_tests: loaded.prepared.lists_tests() }))?;
    let (ToWorker::Enter(entry), _) = broker.receive()? else { return Err(unexpected()) };
    let name = CString::new(thread_name(&entry.name)).unwrap_or_default();
    prctl::set_name(&name)?;
    if entry.confined {
        confine::enter(&filter, &entry.policy()).map_err(io::Error::other)?;
    }
    broker.send(&act(&loaded, &entry, broker.clone()))
}

/// Lets the stack of this thread grow as that of a plugin's thread, whatever the shell's limit is.
///
/// # Errors
/// A hard limit below that, which only CAP_SYS_RESOURCE raises.
fn have_stack() -> Result<(), String> {
    let wanted = STACK_BYTES as u64;
    let (soft, hard) = getrlimit(Resource::RLIMIT_STACK).map_err(|errno| errno.to_string())?;
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_STACK, wanted, hard.max(wanted)).map_err(|errno| {
        format!(
            "it needs a stack of {} KiB, and the limit is {} KiB: {errno}\n  do: raise the limit (ulimit -s)",
            wanted >> 10,
            hard >> 10
        )
    })
}

/// A component that fits.
struct Loaded {
    prepared: Prepared<State>,
    functions: Arc<BTreeSet<String>>,
}

fn load(engine: &Engine, start: &Start, code: &File) -> Result<Loaded, Refused> {
    let code = read(code).map_err(|error| Refused::Code(error.to_string()))?;
    let component =
        engine.loaded(&TrustedCode::own(code)).map_err(|error| Refused::Code(error.to_string()))?;
    let functions = Arc::new(engine.functions(&component));
    let prepared = link(engine, &component, &functions, start).map_err(|error| match error {
        PluginError::Contract { contract, .. } => Refused::Contract(contract),
        PluginError::Component(reason) => Refused::Component(reason),
        error => Refused::Component(error.to_string()),
    })?;
    Ok(Loaded { prepared, functions })
}

fn link(
    engine: &Engine,
    component: &Component,
    functions: &Arc<BTreeSet<String>>,
    start: &Start,
) -> Result<Prepared<State>, PluginError> {
    let linker = world::linker_for(engine, Answers::Broker, functions, (&start.imports, component))?;
    let lines: Result<Vec<Lines>, _> = start.lines.iter().map(|lines| Lines::from_bytes(lines)).collect();
    let lines = lines.map_err(|error| PluginError::Component(error.to_string()))?;
    let shared_bytes = start.shared_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    Prepared::new(&linker, component, &Facts { imports: &start.imports, lines: &lines, shared_bytes })
}

/// Reads the whole file. All workers of a plugin have it, with one position.
fn read(code: &File) -> io::Result<Vec<u8>> {
    let len = usize::try_from(code.metadata()?.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut bytes = vec![0; len];
    code.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Creates the instance, whose calls the broker answers.
fn instance(
    prepared: &Prepared<State>,
    entry: &ExportCall,
    broker: Connection,
) -> Result<Instance<State>, Outcome> {
    let policy = entry.policy();
    let limits = Limits::of(&policy);
    // Nothing is written here: output is a call.
    let options = RunOptions {
        stdout: Box::new(io::sink()),
        stderr: Box::new(io::sink()),
        policy,
        ..RunOptions::new("")
    };
    let state = State::new(options, None, None)
        .asking(Box::new(Calls { connection: broker, waiting: Vec::new() }), entry.has_prints);
    prepared.instantiate(state, &limits)
}

fn run(prepared: &Prepared<State>, entry: &ExportCall, broker: Connection) -> FromWorker {
    let mut instance = match instance(prepared, entry, broker) {
        Ok(instance) => instance,
        Err(outcome) => return FromWorker::Ended(End::of(outcome)),
    };
    let ended = |outcome: Outcome| FromWorker::Ended(End::of(outcome));
    match &entry.export {
        Export::Run => ended(instance.run()),
        Export::Test(name) => ended(instance.run_test(name)),
        Export::Tests => instance.tests().map_or_else(ended, FromWorker::Tests),
    }
}
