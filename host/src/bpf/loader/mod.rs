//! Loading an object: what the loader is asked, what it answers, and what it delivers.
//!
//! ```text
//! Object -- the order that is expected --> libbpf: as below, up to prepare, before the plugin asks
//!
//! Object -- Order, maps to reuse --> libbpf: open, fill in values, select, prepare
//!        <- Prepared ---------------/   the instructions as they are, and what they refer to
//!     last look (super::look)
//!        -- go on -----------------> libbpf: load
//!        <- Product: descriptors --/    or Refused: errno, the verifier's log, libbpf's messages
//! ```
//!
//! libbpf keeps nothing afterwards but structs that can be registered: maps, programs and the pages of variables are
//! used through the descriptors.

mod child;
mod kernel_part;
mod libbpf;
mod process;
mod protocol;
mod selection;

use std::os::fd::{BorrowedFd, OwnedFd};

use ks_host_macros::Wire;
use nix::errno::Errno;

pub(crate) use self::child::serve;
pub(crate) use self::kernel_part::KernelPart;
pub(super) use self::libbpf::{LibbpfLoader, parse};
pub(crate) use self::process::{LoaderProcess, StartingLoader};
pub(crate) use self::protocol::Rights;
pub(super) use self::selection::Selection;
use super::verifier_log::VerifierLog;

/// What is to be loaded.
#[derive(Debug, PartialEq, Eq, Wire)]
pub(crate) struct Order {
    /// Name of the object.
    pub(super) name: String,
    /// The object, written from the judged model.
    pub(super) elf: Vec<u8>,
    /// Values of variables that differ from the object's.
    pub(super) written: Vec<Written>,
    /// Maps that exist already, in the order of their descriptors.
    pub(super) reused: Vec<String>,
    pub(super) programs: ChosenPrograms,
}

/// Bytes of a section that were written before the load.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub(crate) struct Written {
    pub(super) section: String,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// The programs to load.
#[derive(Debug, PartialEq, Eq, Wire)]
pub(crate) enum ChosenPrograms {
    /// Those that the object loads by default.
    Default,
    /// These and no others.
    Only(OnlyPrograms),
}

/// Programs by their names.
#[derive(Debug, PartialEq, Eq, Wire)]
pub(crate) struct OnlyPrograms {
    pub(super) names: Vec<String>,
    /// Whether kernel structs (struct_ops) are created.
    pub(super) structs: bool,
}

/// An object before it is loaded: relocated instructions, and what their numbers mean.
#[derive(Debug, Wire)]
pub(crate) struct Prepared {
    pub(super) programs: Vec<PreparedProgram>,
    pub(super) maps: Vec<PreparedMap>,
    pub(super) modules: Vec<PreparedModule>,
}

/// The instructions of a program, and of the functions that it calls.
#[derive(Debug, Wire)]
pub(crate) struct PreparedProgram {
    pub(super) name: String,
    pub(super) code: Vec<u8>,
}

/// The descriptor by which instructions refer to a map; none if it was not created.
#[derive(Debug, Wire)]
pub(crate) struct PreparedMap {
    pub(super) name: String,
    pub(super) descriptor: Option<i32>,
}

/// The descriptor by which instructions refer to the types of a kernel module.
#[derive(Debug, Wire)]
pub(crate) struct PreparedModule {
    pub(super) descriptor: i32,
    pub(super) name: String,
}

/// A loaded object, as the loader hands it over: names and descriptors, which are checked (`super::delivered`).
#[derive(Debug, Default)]
pub(crate) struct Product {
    /// Created maps, also those of sections of variables and of kernel structs, in the object's order.
    pub(super) maps: Vec<Named>,
    pub(super) programs: Vec<Named>,
}

/// A descriptor, and the name in the object of what it denotes.
#[derive(Debug)]
pub(crate) struct Named {
    pub(super) name: String,
    pub(super) descriptor: OwnedFd,
}

/// libbpf or the kernel refused.
#[derive(Debug, Wire)]
pub(crate) struct Refused {
    errno: i32,
    log: Option<ProgramLog>,
    /// What libbpf said.
    pub(super) libbpf: Vec<String>,
}

/// What the verifier said of a program.
#[derive(Debug, Wire)]
struct ProgramLog {
    program: String,
    text: Vec<u8>,
}

impl Refused {
    fn new(errno: Errno, log: Option<ProgramLog>, libbpf: Vec<String>) -> Refused {
        Refused { errno: errno as i32, log, libbpf }
    }

    pub(super) fn errno(&self) -> Errno {
        Errno::from_raw(self.errno)
    }

    /// Returns the program that the verifier refused, and what it said.
    pub(super) fn verifier(&self) -> Option<(String, VerifierLog)> {
        let ProgramLog { program, text } = self.log.as_ref()?;
        let log = VerifierLog::from_buffer(text)?;
        tracing::debug!(target: "verifier", "{program}:\n{}", log.text());
        Some((program.clone(), log))
    }
}

/// Why nothing was loaded.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    Refused(Refused),
    /// The last look found a difference.
    Different(String),
    /// The process of the loader has ended.
    NoLoader(String),
}

/// Loads objects, and registers the structs of those that it has loaded.
#[derive(Debug)]
pub(super) enum Loader {
    /// libbpf in this process.
    Here(LibbpfLoader),
    /// libbpf in a process of its own.
    Apart(LoaderProcess),
}

impl Loader {
    /// Loads an object on these maps, once `look` has found nothing wrong in what libbpf prepared.
    ///
    /// # Errors
    /// [`NotLoaded`].
    pub(super) fn load(
        &mut self,
        order: Order,
        reused: &[BorrowedFd<'_>],
        look: impl FnOnce(&Prepared) -> Result<(), String>,
    ) -> Result<Product, NotLoaded> {
        match self {
            Loader::Here(loader) => loader.load(&order, reused, |prepared| look(&prepared)),
            Loader::Apart(process) => process.load(order, reused, look),
        }
    }

    /// Registers the kernel struct of this name. It is registered until the descriptor is closed.
    ///
    /// # Errors
    /// Of bpf(2), BPF_LINK_CREATE; ENOENT if there is none.
    pub(super) fn register(&mut self, name: &str) -> Result<OwnedFd, Errno> {
        match self {
            Loader::Here(loader) => loader.register(name),
            Loader::Apart(process) => process.register(name),
        }
    }
}
