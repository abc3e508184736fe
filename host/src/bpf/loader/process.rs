//! The loader as a process, as the broker sees it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sched::sched_getcpu;

use super::protocol::{FromLoader, LoaderTask, Rights, ToLoader, receive, send};
use super::{KernelPart, Named, NotLoaded, Order, Prepared, Product};
use crate::confine::FileOfOne;
use crate::processes::cpu;

/// The connection to a process that loads objects, which has the rights to load and no others. It ends with the connection.
#[derive(Debug)]
pub(crate) struct LoaderProcess {
    socket: FileOfOne,
    /// Maps, and programs, that it may deliver at once.
    most: usize,
}

/// A process that drops its rights but those to load.
#[derive(Debug)]
pub(crate) struct StartingLoader(FileOfOne);

impl StartingLoader {
    /// Tells a new process, at the other end of this socket, which rights it keeps.
    ///
    /// # Errors
    /// Of sendmsg(2).
    pub(crate) fn of(socket: FileOfOne, rights: Rights) -> io::Result<StartingLoader> {
        send(socket.as_fd(), &ToLoader::Start(rights), None)?;
        Ok(StartingLoader(socket))
    }

    /// Sends what it needs of the kernel's types. It delivers at most so many maps and programs at once.
    ///
    /// # Errors
    /// Of sendmsg(2).
    pub(crate) fn with_types(self, types: Option<KernelPart>, most: usize) -> io::Result<LoaderProcess> {
        let StartingLoader(socket) = self;
        let broker_cpu = u32::try_from(sched_getcpu()?).map_err(|_| io::ErrorKind::InvalidData)?;
        send(socket.as_fd(), &ToLoader::Begin(LoaderTask { types, broker_cpu }), None)?;
        cpu::let_it_move();
        Ok(LoaderProcess { socket, most })
    }
}

impl LoaderProcess {
    /// The socket to it, which the plugin's thread writes to.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn load(
        &self,
        order: Order,
        reused: &[BorrowedFd<'_>],
        look: impl FnOnce(&Prepared) -> Result<(), String>,
    ) -> Result<Product, NotLoaded> {
        let exchanged = self.exchange(order, reused, look);
        exchanged.unwrap_or_else(|error| Err(NotLoaded::NoLoader(error.to_string())))
    }

    fn exchange(
        &self,
        order: Order,
        reused: &[BorrowedFd<'_>],
        look: impl FnOnce(&Prepared) -> Result<(), String>,
    ) -> io::Result<Result<Product, NotLoaded>> {
        self.send(&ToLoader::Load(order), None)?;
        for map in reused {
            self.send(&ToLoader::Reuse, Some(*map))?;
        }
        let prepared = match self.receive()? {
            (FromLoader::Prepared(prepared), _) => prepared,
            (FromLoader::Refused(refused), _) => return Ok(Err(NotLoaded::Refused(refused))),
            (FromLoader::Different(reason), _) => return Ok(Err(NotLoaded::Different(reason))),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        if let Err(difference) = look(&prepared) {
            self.send(&ToLoader::Leave, None)?;
            return Ok(Err(NotLoaded::Different(difference)));
        }
        self.send(&ToLoader::GoOn, None)?;
        let mut product = Product::default();
        loop {
            match self.receive()? {
                (FromLoader::Map(name), Some(descriptor)) if product.maps.len() < self.most => {
                    product.maps.push(Named { name, descriptor });
                }
                (FromLoader::Program(name), Some(descriptor)) if product.programs.len() < self.most => {
                    product.programs.push(Named { name, descriptor });
                }
                (FromLoader::Loaded, _) => return Ok(Ok(product)),
                (FromLoader::Refused(refused), _) => return Ok(Err(NotLoaded::Refused(refused))),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Has it prepare an order. If it has ended, the load says why.
    pub(in crate::bpf) fn prepare_ahead(&self, order: Order) {
        let _ = self.send(&ToLoader::Prepare(order), None);
    }

    pub(super) fn register(&self, name: &str) -> Result<OwnedFd, Errno> {
        let asked = self.send(&ToLoader::Register(name.to_owned()), None).and_then(|()| self.receive());
        match asked {
            Ok((FromLoader::Registered, Some(link))) => Ok(link),
            Ok((FromLoader::NotRegistered(errno), _)) => Err(Errno::from_raw(errno)),
            // It has ended, or says what is no answer.
            _ => Err(Errno::ESRCH),
        }
    }

    fn send(&self, message: &ToLoader, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send(self.socket.as_fd(), message, descriptor)
    }

    fn receive(&self) -> io::Result<(FromLoader, Option<OwnedFd>)> {
        receive(self.socket.as_fd())
    }
}
