//! Why a place in a file is not probed.

use crate::explain::Kind;
use crate::files::FileError;
use nix::errno::Errno;

/// Why a place in a file is not probed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The file cannot be used.
    #[error("{0}")]
    File(#[from] FileError),
    /// It is nothing that runs.
    #[error("{0}")]
    NoProgram(&'static str),
    /// It is for other machines.
    #[error(
        "it is for a machine (e_machine {0}) whose programs this kernel does not run or puts no probes into"
    )]
    Machine(u16),
    /// Its code in memory is another than in the file.
    #[error("the loader changes its code (text relocations): the kernel would run what the file has instead")]
    TextRelocations,
    /// A part of it is longer than any that is read.
    #[error("its {0} is larger than any that is read")]
    TooLarge(&'static str),
    /// It says of a part that it is where the file has ended.
    #[error("it is cut off: a part of it lies behind its end")]
    Cut,
    /// No symbol has this name.
    #[error("it has no function `{0}`")]
    NoFunction(String),
    /// The function is another file's.
    #[error("`{0}` is only imported by it: the function is in a library that it is linked with")]
    Imported(String),
    /// The function that does the work is chosen by what is there.
    #[error(
        "`{0}` chooses one of several functions when a program starts (IFUNC), and runs never after: a probe there would \
         count nothing"
    )]
    Chosen(String),
    /// Several functions have this name.
    #[error("it has several functions `{name}`, at {}", list(.offsets))]
    Ambiguous {
        /// The name.
        name: String,
        /// Where they are in the file.
        offsets: Vec<u64>,
    },
    /// No code is there.
    #[error("offset {0:#x} of the file is not code that runs")]
    NoCode(u64),
    /// Inside an instruction.
    #[error(
        "offset {0:#x} of the file lies inside an instruction: a probe there would change what the program does"
    )]
    InsideInstruction(u64),
    /// Nothing shows that an instruction begins there.
    #[error(
        "nothing proves that an instruction begins at offset {0:#x} of the file: it is no function's start, and no direct \
         jump leads there from one"
    )]
    Unproven(u64),
    /// The function is too long to be decoded.
    #[error("offset {0:#x} of the file lies in a function that is too long to be decoded")]
    LongFunction(u64),
    /// A probe at returns that is not at the start of a function that is called.
    #[error(
        "offset {0:#x} of the file is not the start of a function that is called: a probe of returns would write over \
         something else than the address to return to"
    )]
    NoCall(u64),
    /// A probe at returns in a program in Go.
    #[error(
        "its functions are in Go, whose runtime moves stacks and ends a program with a probe of returns on one"
    )]
    GoReturns,
}

fn list(offsets: &[u64]) -> String {
    let shown: Vec<String> = offsets.iter().map(|offset| format!("+{offset:#x}")).collect();
    shown.join(", ")
}

impl PlaceError {
    /// The kind, to decide by.
    pub fn kind(&self) -> Kind {
        match self {
            PlaceError::File(FileError::Kernel { errno, .. }) => match errno {
                Errno::ENOENT | Errno::ENOTDIR => Kind::NotFound,
                Errno::EACCES | Errno::EPERM => Kind::NotPermitted,
                errno if *errno == Errno::EWOULDBLOCK => Kind::Busy,
                _ => Kind::Kernel,
            },
            PlaceError::File(FileError::Changed) => Kind::Busy,
            PlaceError::NoFunction(_) | PlaceError::Imported(_) => Kind::NotFound,
            PlaceError::TooLarge(_) | PlaceError::LongFunction(_) => Kind::Limit,
            PlaceError::Machine(_) | PlaceError::TextRelocations | PlaceError::GoReturns => Kind::Unsupported,
            _ => Kind::Invalid,
        }
    }

    /// What helps.
    pub fn remedy(&self) -> &'static str {
        match self {
            PlaceError::File(FileError::Changed) => "try again when nobody writes the file",
            PlaceError::TextRelocations => "build it with position-independent code",
            PlaceError::File(_) | PlaceError::NoProgram(_) | PlaceError::Machine(_) | PlaceError::Cut => {
                "name an executable file or a library"
            }
            PlaceError::NoFunction(_) => {
                "name a function of its symbol table, or the start of one as an offset: `path:+0x1040`"
            }
            PlaceError::Imported(_) => "name that library",
            PlaceError::Chosen(_) => "name the function that it chooses, or the caller",
            PlaceError::Ambiguous { .. } => "name one by its offset: `path:+0x1040`",
            PlaceError::TooLarge(_) => "name another file",
            PlaceError::NoCode(_)
            | PlaceError::InsideInstruction(_)
            | PlaceError::Unproven(_)
            | PlaceError::LongFunction(_) => "put it at the start of a function, or at a static probe (USDT)",
            PlaceError::NoCall(_) | PlaceError::GoReturns => "put a probe at the function's start",
        }
    }
}
