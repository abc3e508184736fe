//! Messages between the broker and a worker: a length (u32, little-endian) and that many bytes.
//!
//! The broker treats what a worker sends as hostile: every length is bounded, every value is checked.

use std::io::{self, Read, Write};

use ks_host_macros::Wire;

use crate::options::RunOptions;
use crate::plugin::{Abort, Exit, Outcome};
use crate::policy::{Limit, Policy};
use crate::text;
use crate::world::direct::PassedOn;
use crate::world::wire::{self, Input, Malformed, Wire};

/// Bytes of a message beside those that a call may copy.
const REST_BYTES: usize = 1 << 20;

/// Returns the bytes that a message of a worker has at most, given those that a call may copy.
pub(super) fn most_bytes(call_bytes: usize) -> usize {
    call_bytes.saturating_add(REST_BYTES).min(u32::MAX as usize)
}

/// What the broker sends.
#[derive(Debug, Wire)]
pub(super) enum ToWorker {
    /// The first message.
    Start(Start),
    /// The plugin runs now.
    Enter(ExportCall),
    /// The results of the last call.
    Answer(Vec<u8>),
    /// The last call ends the plugin.
    Trap(TrapReason),
    /// What the worker can use itself from now on. Its descriptor, if it has one, comes with the message.
    PassedOn(PassedOn),
    /// The last call goes on once these pages are mapped. The descriptor of their map comes with the message.
    Map(PagesToMap),
}

/// Pages of a map, for the plugin's memory.
#[derive(Debug, Wire)]
pub(super) struct PagesToMap {
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// What a worker needs to know of its plugin.
#[derive(Debug, Clone, Wire)]
pub(super) struct Start {
    pub(super) imports: Vec<String>,
    /// The lines of the script, in the form of their section.
    pub(super) lines: Vec<Vec<u8>>,
    pub(super) shared_bytes: Option<u64>,
}

/// An export of a plugin.
#[derive(Debug, Clone, Wire)]
pub(crate) enum Export {
    /// The plugin itself.
    Run,
    /// The names of its tests.
    Tests,
    /// The test of this name.
    Test(String),
}

/// The call of an export.
#[derive(Debug, Clone, Wire)]
pub(crate) struct ExportCall {
    pub(super) export: Export,
    /// The limits of the plugin, in the order of [`Limit::ALL`].
    limits: Vec<u64>,
    /// Whether the process filters its system calls before.
    pub(super) confined: bool,
    /// The plugin's name, for the process.
    pub(super) name: String,
    /// Whether the kernel half prints.
    pub(super) has_prints: bool,
}

impl ExportCall {
    /// Calls an export, within the limits of these options. The kernel half may print.
    pub(crate) fn of(export: Export, options: &RunOptions, has_prints: bool) -> ExportCall {
        let limits = Limit::ALL.map(|limit| options.policy.limit(limit)).to_vec();
        let name = options.name.clone();
        ExportCall { export, limits, confined: options.confine, name, has_prints }
    }

    /// Returns a policy with the limits. It allows nothing: whatever a worker asks for is judged by its broker.
    pub(super) fn policy(&self) -> Policy {
        let mut policy = Policy::nothing();
        for (limit, number) in Limit::ALL.into_iter().zip(&self.limits) {
            policy.set_limit(limit, *number);
        }
        policy
    }
}

/// Why a call does not return.
#[derive(Debug, Wire)]
pub(super) enum TrapReason {
    Exit(u8),
    Abort(String),
    Other(String),
}

impl TrapReason {
    pub(super) fn of(error: &wasmtime::Error) -> TrapReason {
        if let Some(Exit(code)) = error.downcast_ref::<Exit>() {
            TrapReason::Exit(*code)
        } else if let Some(Abort(message)) = error.downcast_ref::<Abort>() {
            TrapReason::Abort(message.clone())
        } else {
            TrapReason::Other(format!("{error:#}"))
        }
    }

    pub(super) fn into_error(self) -> wasmtime::Error {
        match self {
            TrapReason::Exit(code) => wasmtime::Error::new(Exit(code)),
            TrapReason::Abort(message) => wasmtime::Error::new(Abort(message)),
            TrapReason::Other(text) => wasmtime::Error::msg(text),
        }
    }
}

/// What a worker sends.
#[derive(Debug, Wire)]
pub(super) enum FromWorker {
    /// The code is loaded, and fits this host.
    Ready(Ready),
    /// It does not, for this reason.
    Refused(Refused),
    /// A call of the plugin.
    Call(Vec<u8>),
    /// A call of the plugin, which waits for no answer.
    Tell(Vec<u8>),
    /// The address of the pages that were to be mapped.
    Mapped(Option<u32>),
    /// The last message.
    Ended(End),
    /// The names of the tests, instead of an end.
    Tests(Vec<String>),
}

/// What a worker says of its component.
#[derive(Debug, Wire)]
pub(super) struct Ready {
    /// The functions of the contract that it imports.
    pub(super) functions: Vec<String>,
    pub(super) lists_tests: bool,
}

/// Why a worker cannot run a plugin.
#[derive(Debug, Wire)]
pub(super) enum Refused {
    /// Another engine compiled the code.
    Code(String),
    /// The component was built against this contract.
    Contract(String),
    /// The component does not fit.
    Component(String),
    /// The process is not as it must be.
    Process(String),
}

/// How the plugin ended, as its worker saw it.
#[derive(Debug, Wire)]
pub(super) enum End {
    Returned(i32),
    Exited(u8),
    Trapped(String),
    Killed(()),
    Failed(String),
}

impl End {
    pub(super) fn of(outcome: Outcome) -> End {
        match outcome {
            Outcome::Returned(code) => End::Returned(code),
            Outcome::Exited(code) => End::Exited(code),
            Outcome::Trapped(reason) => End::Trapped(reason),
            Outcome::Killed | Outcome::TimedOut => End::Killed(()),
            Outcome::Denied(reason) | Outcome::Failed(reason) => End::Failed(reason),
        }
    }

    /// Returns the outcome. The texts come from a process that may have been taken over.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            End::Returned(code) => Outcome::Returned(code),
            End::Exited(code) => Outcome::Exited(code),
            End::Trapped(reason) => Outcome::Trapped(text::lines(&reason)),
            End::Killed(()) => Outcome::Killed,
            // Not `Failed`, whose text is the host's own.
            End::Failed(reason) => Outcome::Trapped(text::lines(&reason)),
        }
    }
}

/// Returns the bytes of a message.
pub(super) fn encoded(message: &impl Wire) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.put(&mut bytes);
    bytes
}

/// Sends a message.
///
/// # Errors
/// Of write(2); `InvalidInput` for one of 4 GiB.
pub(super) fn send(mut to: impl Write, message: &impl Wire) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    message.put(&mut bytes);
    let len = u32::try_from(bytes.len() - 4).map_err(|_| io::ErrorKind::InvalidInput)?;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    to.write_all(&bytes)
}

/// Waits for a message of at most this many bytes, whose values take at most as much memory.
///
/// # Errors
/// Of read(2); `UnexpectedEof` if the other side has ended; `InvalidData`.
pub(super) fn receive<T: Wire>(mut from: impl Read, most: usize) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    from_bytes(&bytes, most)
}

/// Reads a message whose values take at most so much memory.
///
/// # Errors
/// `InvalidData`.
pub(super) fn from_bytes<T: Wire>(bytes: &[u8], most: usize) -> io::Result<T> {
    wire::last(&mut Input::new(bytes, most)).map_err(unsound)
}

/// Reads a message of the broker.
///
/// # Errors
/// `InvalidData`.
pub(super) fn decoded<T: Wire>(bytes: &[u8]) -> io::Result<T> {
    wire::read(bytes).map_err(unsound)
}

fn unsound(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}
