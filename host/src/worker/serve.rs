//! The broker's side of a run: answers the calls of a worker until the plugin has ended.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use wasmtime::Store;

use super::protocol::{
    ExportCall, FromWorker, PagesToMap, ToWorker, TrapReason, encoded, most_bytes, receive, send,
};
use crate::confine::FileOfOne;
use crate::plugin::{Limits, Outcome, PluginState as _};
use crate::processes::channel;
use crate::text;
use crate::world::served::MapPages;
use crate::world::{self, State};

/// How often the broker looks at what a plugin has attached: CPUs that came, lost records, budgets.
const LOOK: Duration = Duration::from_millis(500);

/// Tests that a plugin has at most.
const MAX_TESTS: usize = 10_000;

/// Bytes of the answer to [`ToWorker::Map`], at most.
const MAPPED_BYTES: usize = 16;

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
}

/// Runs the plugin in its worker.
pub(crate) fn serve(serving: &mut Serving<'_>, entry: ExportCall) -> Served {
    match exchange(serving, entry) {
        Ok(served) => served,
        Err(error) => Served::Gone(error.to_string()),
    }
}

fn exchange(serving: &mut Serving<'_>, entry: ExportCall) -> io::Result<Served> {
    let most = most_bytes(Limits::of(&entry.policy()).call_bytes);
    send(serving.socket, &ToWorker::Enter(entry))?;
    let mut looked = Instant::now();
    loop {
        if let Err(trap) = wait(serving, &mut looked) {
            return Ok(Served::Ended(ended_by(&trap)));
        }
        match receive(serving.socket, most)? {
            FromWorker::Call(call) => {
                let answer = match serving.functions.answer(serving.store, &call, most) {
                    Ok(answer) => ToWorker::Answer(answer),
                    Err(trap) => ToWorker::Trap(TrapReason::of(&trap)),
                };
                for (passed, descriptor) in serving.store.data_mut().take_passed_on()? {
                    let message = encoded(&ToWorker::PassedOn(passed));
                    channel::send(
                        serving.socket.as_fd(),
                        &message,
                        descriptor.as_ref().map(|it| it.as_fd()),
                    )?;
                }
                send(serving.socket, &answer)?;
            }
            FromWorker::Tell(call) => {
                if let Err(trap) = serving.functions.answer(serving.store, &call, most) {
                    return Ok(Served::Ended(ended_by(&trap)));
                }
            }
            FromWorker::Ended(end) => return Ok(Served::Ended(end.outcome())),
            FromWorker::Tests(mut names) => {
                names.truncate(MAX_TESTS);
                return Ok(Served::Tests(names));
            }
            FromWorker::Ready(_) | FromWorker::Refused(_) | FromWorker::Mapped(_) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// Waits for a message, and looks after what the plugin has attached, whether the worker is silent or not.
///
/// # Errors
/// The trap that ends the plugin.
fn wait(serving: &mut Serving<'_>, looked: &mut Instant) -> wasmtime::Result<()> {
    loop {
        let rest = LOOK.saturating_sub(looked.elapsed());
        if rest.is_zero() {
            serving.store.data_mut().tick()?;
            *looked = Instant::now();
            continue;
        }
        // Rounded up, so that the loop does not spin at the end.
        let timeout = PollTimeout::try_from(rest + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(serving.socket.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            // A worker that was killed has hung up.
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
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
        channel::send(self.0.as_fd(), &encoded(&pages), Some(from)).ok()?;
        match receive(&*self.0, MAPPED_BYTES).ok()? {
            FromWorker::Mapped(address) => address,
            // The worker then waits for an answer that is none: its plugin ends.
            _ => None,
        }
    }
}
