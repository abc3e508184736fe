//! The broker's side of a run: answers the calls of a worker until the plugin has ended.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wasmtime::Store;

use super::patience::{Broken, PatientSocket};
use super::protocol::{FromWorker, PagesToMap, ToWorker, TrapReason, most_bytes};
use crate::confine::FileOfOne;
use crate::plugin::{Outcome, PluginState as _};
use crate::text;
use crate::world::served::MapPages;
use crate::world::{self, State};

/// Tests that a plugin has at most.
const MAX_TESTS: usize = 10_000;

/// Bytes of the answer to [`ToWorker::Map`], at most.
const MAPPED_BYTES: usize = 16;

/// How long a worker may take to map pages.
const MAPPING: Duration = Duration::from_secs(10);

/// What a worker has answered in the end.
pub(crate) enum Served {
    /// The plugin has ended.
    Ended(Outcome),
    /// The names of its tests.
    Tests(Vec<String>),
    /// The process has ended, or what it sent is no message.
    Gone(String),
}

/// What the broker needs for a run.
pub(crate) struct Serving<'a> {
    pub(crate) socket: &'a File,
    pub(crate) functions: &'a world::Served<State>,
    pub(crate) store: &'a mut Store<State>,
    /// Bytes that one call may take.
    pub(crate) call_bytes: usize,
    /// Whether a call is being answered: the worker waits then, and need not look at anything.
    pub(crate) answers: &'a AtomicBool,
}

/// Answers a worker that was sent what it runs ([`super::Worker::enter`]), until the plugin has ended.
pub(crate) fn serve(serving: &mut Serving<'_>) -> Served {
    match exchange(serving) {
        Ok(served) => served,
        Err(Broken::Trap(trap)) => Served::Ended(ended_by(&trap)),
        Err(Broken::Io(error)) => Served::Gone(error.to_string()),
    }
}

fn exchange(serving: &mut Serving<'_>) -> Result<Served, Broken> {
    let most = most_bytes(serving.call_bytes);
    let mut socket = PatientSocket::new(serving.socket.as_fd(), most);
    loop {
        match socket.receive(|| serving.store.data_mut().tick())? {
            FromWorker::Call(call) => {
                serving.answers.store(true, Ordering::Relaxed);
                let answer = match serving.functions.answer(serving.store, &call, most) {
                    Ok(answer) => ToWorker::Answer(answer),
                    Err(trap) => ToWorker::Trap(TrapReason::of(&trap)),
                };
                serving.answers.store(false, Ordering::Relaxed);
                let (passed, descriptors): (Vec<_>, Vec<_>) =
                    serving.store.data_mut().take_passed_on()?.into_iter().unzip();
                let descriptors = descriptors.iter().map(|it| it.as_ref().map(|it| it.as_fd()));
                let passed = passed.into_iter().map(ToWorker::PassedOn).zip(descriptors);
                socket.send(passed.chain([(answer, None)]), || serving.store.data_mut().tick())?;
            }
            FromWorker::Tell(call) => {
                serving.functions.obey(serving.store, &call, most).map_err(Broken::Trap)?;
            }
            FromWorker::Ended(end) => return Ok(Served::Ended(end.outcome())),
            FromWorker::Tests(mut names) => {
                names.truncate(MAX_TESTS);
                return Ok(Served::Tests(names));
            }
            FromWorker::Ready(_) | FromWorker::Refused(_) | FromWorker::Mapped(_) => {
                return Err(std::io::Error::from(std::io::ErrorKind::InvalidData).into());
            }
        }
    }
}

fn ended_by(trap: &wasmtime::Error) -> Outcome {
    Outcome::Trapped(text::lines(&format!("{trap:#}")))
}

/// The memory of a plugin in its worker.
pub(crate) struct RemoteMemory(pub(crate) FileOfOne);

impl MapPages for RemoteMemory {
    fn map_pages(&mut self, name: &str, bytes: usize, from: BorrowedFd<'_>) -> Option<u32> {
        let pages = ToWorker::Map(PagesToMap { name: name.to_owned(), bytes: bytes as u64 });
        let deadline = Instant::now() + MAPPING;
        let is_late = || match Instant::now() < deadline {
            true => Ok(()),
            false => Err(wasmtime::Error::msg("the pages are not mapped")),
        };
        let mut socket = PatientSocket::new(self.0.as_fd(), MAPPED_BYTES);
        socket.send([(pages, Some(from))], is_late).ok()?;
        match socket.receive(is_late).ok()? {
            FromWorker::Mapped(address) => address,
            // The worker then waits for an answer that is none: its plugin ends.
            _ => None,
        }
    }
}
