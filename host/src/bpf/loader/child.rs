//! The process of a loader: drops its rights but those to load, and serves one plugin's object.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::libbpf::LibbpfLoader;
use super::protocol::{FromLoader, LoaderTask, ToLoader, receive, send};
use super::{Named, NotLoaded, Order, Prepared, Product};
use crate::apart;
use crate::confine;
use crate::processes::cpu;

/// Loads what the broker at the standard input asks for, until it has ended. `attack` is asked first, with the object's
/// name, and may answer instead: for tests of what somebody reaches who runs code of his own here.
///
/// # Errors
/// Of its socket, and of dropping rights; a message that was not expected.
pub(crate) fn serve(attack: impl Fn(&str) -> Option<String>) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    prctl::set_name(c"ks-loader")?;
    let socket = io::stdin();
    let socket = socket.as_fd();
    let (ToLoader::Start(rights), _) = receive(socket)? else { return Err(unexpected()) };
    // Capabilities stay permitted when the user changes, until they are dropped apart.
    prctl::set_keepcaps(true)?;
    apart::become_nobody();
    // After the change of user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    prctl::set_dumpable(false)?;
    let filter = confine::leave_rights_to_load(&rights).map_err(io::Error::other)?;
    let (ToLoader::Begin(LoaderTask { types, broker_cpu }), _) = receive(socket)? else {
        return Err(unexpected());
    };
    // The broker goes on there.
    cpu::leave_to_other(broker_cpu);
    // Before it may write no file.
    let mut loader = types.map_or_else(|| Ok(LibbpfLoader::default()), LibbpfLoader::of_part)?;
    filter.enter().map_err(io::Error::other)?;
    loop {
        match receive(socket) {
            Ok((ToLoader::Load(order), _)) => match attack(&order.name) {
                Some(answer) => send(socket, &FromLoader::Different(answer), None)?,
                None => load(&mut loader, &order, socket)?,
            },
            Ok((ToLoader::Prepare(order), _)) => loader.prepare_ahead(order),
            Ok((ToLoader::Register(name), _)) => match loader.register(&name) {
                Ok(link) => send(socket, &FromLoader::Registered, Some(link.as_fd()))?,
                Err(errno) => send(socket, &FromLoader::NotRegistered(errno as i32), None)?,
            },
            Ok(_) => return Err(unexpected()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "another message was expected")
}

fn load(loader: &mut LibbpfLoader, order: &Order, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut reused: Vec<OwnedFd> = Vec::new();
    while reused.len() < order.reused.len() {
        match receive(socket)? {
            (ToLoader::Reuse, Some(map)) => reused.push(map),
            _ => return Err(unexpected()),
        }
    }
    let reused: Vec<_> = reused.iter().map(|map| map.as_fd()).collect();
    let mut looked = Ok(true);
    let loaded = loader.load(order, &reused, |prepared| {
        looked = go_on(prepared, socket);
        if let Ok(true) = looked { Ok(()) } else { Err(String::new()) }
    });
    // Otherwise the broker waits for nothing.
    if !looked? {
        return Ok(());
    }
    match loaded {
        Ok(Product { maps, programs }) => {
            for Named { name, descriptor } in maps {
                send(socket, &FromLoader::Map(name), Some(descriptor.as_fd()))?;
            }
            for Named { name, descriptor } in programs {
                send(socket, &FromLoader::Program(name), Some(descriptor.as_fd()))?;
            }
            send(socket, &FromLoader::Loaded, None)
        }
        Err(NotLoaded::Refused(refused)) => send(socket, &FromLoader::Refused(refused), None),
        Err(NotLoaded::Different(reason) | NotLoaded::NoLoader(reason)) => {
            send(socket, &FromLoader::Different(reason), None)
        }
    }
}

/// Asks the broker whether it has found no difference.
fn go_on(prepared: Prepared, socket: BorrowedFd<'_>) -> io::Result<bool> {
    send(socket, &FromLoader::Prepared(prepared), None)?;
    match receive(socket)? {
        (ToLoader::GoOn, _) => Ok(true),
        (ToLoader::Leave, _) => Ok(false),
        _ => Err(unexpected()),
    }
}
