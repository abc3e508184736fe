//! Messages between the broker and its loader.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use ks_host_macros::Wire;

use super::{KernelPart, Order, Prepared, Refused};
use crate::processes::channel::{self, Received};
use crate::world::wire::{self, Input, Wire};

/// Bytes of a message of the loader at most, and of the memory that its values take: the instructions of all programs of an
/// object, or the verifier's log of one.
const MOST_BYTES: usize = 256 << 20;

/// What the broker sends.
#[derive(Debug, Wire)]
pub(super) enum ToLoader {
    /// The first message: what the loader keeps.
    Start(Rights),
    /// The second one.
    Begin(LoaderTask),
    /// Prepare this ahead, for a load that asks for the same. Nothing is answered.
    Prepare(Order),
    /// Load this. The maps to reuse follow.
    Load(Order),
    /// A map to reuse; its descriptor comes with the message.
    Reuse,
    /// The last look found nothing.
    GoOn,
    /// The last look found a difference: nothing is loaded.
    Leave,
    /// Register the struct of this name.
    Register(String),
}

/// What a loader begins with when its plugin runs.
#[derive(Debug, Wire)]
pub(super) struct LoaderTask {
    /// What libbpf needs of the kernel's types. None: it reads all of them if it needs some.
    pub(super) types: Option<KernelPart>,
    /// The CPU that the plugin's thread of the broker runs on.
    pub(super) broker_cpu: u32,
}

/// What the loader keeps.
#[derive(Debug, Wire)]
pub(crate) struct Rights {
    /// Capabilities, by their numbers.
    pub(crate) capabilities: Vec<u8>,
    /// Whether its system calls are filtered.
    pub(crate) is_confined: bool,
    /// Whether it creates links: those of kernel structs.
    pub(crate) registers: bool,
}

/// What the loader sends.
#[derive(Debug, Wire)]
pub(super) enum FromLoader {
    /// The object is prepared, and waits for the last look.
    Prepared(Prepared),
    /// It was not loaded.
    Refused(Refused),
    /// It was not prepared as it must be.
    Different(String),
    /// A map, with its descriptor.
    Map(String),
    /// A program, with its descriptor.
    Program(String),
    /// All maps and programs were sent.
    Loaded,
    /// A link, with its descriptor.
    Registered,
    /// There is none, with the errno.
    NotRegistered(i32),
}

/// Sends a message.
///
/// # Errors
/// Of sendmsg(2).
pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Wire,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    message.put(&mut bytes);
    channel::send(socket, &bytes, descriptor)
}

/// Waits for a message.
///
/// # Errors
/// Of recvmsg(2); `UnexpectedEof` if the other side has ended; `InvalidData`.
pub(super) fn receive<T: Wire>(socket: BorrowedFd<'_>) -> io::Result<(T, Option<OwnedFd>)> {
    let received = channel::receive(socket, MOST_BYTES)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let Received { bytes, file } = received;
    let message = wire::last(&mut Input::new(&bytes, MOST_BYTES));
    Ok((message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?, file))
}
