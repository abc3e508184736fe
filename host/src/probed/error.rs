//! The errors of finding a probe point.

use std::path::PathBuf;

use crate::explain::FailureKind;
use crate::files::FileError;
use nix::errno::Errno;

/// The reason why a location in a file cannot be probed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbePointError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    File(#[from] FileError),
    /// The path reaches another file than the one that it names, and that one may not be probed.
    #[error("a link leads from there to a file that the policy does not name")]
    OtherFile,
    /// The file is not a program or library, for the given reason.
    #[error("{0}")]
    NoProgram(&'static str),
    /// The file is for another machine.
    #[error(
        "it is for a machine (e_machine {0}) whose programs this kernel does not run or puts no probes into"
    )]
    Machine(u16),
    /// The loader modifies the file's code, so that it differs in memory.
    #[error("the loader changes its code (text relocations): the kernel would run what the file has instead")]
    TextRelocations,
    /// The named part of the file exceeds its limit.
    #[error("its {0} is larger than any that is read")]
    TooLarge(&'static str),
    /// The file ends before a part that its headers declare.
    #[error("it is cut off: a part of it lies behind its end")]
    Cut,
    /// No symbol has this name.
    #[error("it has no function `{name}`{}", copied(.copies))]
    NoFunction {
        /// The function's name, as it was written.
        name: String,
        /// Symbols of copies that the compiler made of the function.
        copies: Vec<String>,
    },
    /// No symbol has this name, and only functions that other files may use have symbols.
    #[error("no function `{0}` is known in it: it is stripped of the table with its own functions")]
    Stripped(String),
    /// The named function is defined in another file.
    #[error("`{0}` is only imported by it: the function is in a library that it is linked with")]
    Imported(String),
    /// The symbol is an IFUNC resolver, which does not run when the function is called.
    #[error(
        "`{0}` chooses one of several functions when a program starts (IFUNC), and runs never after: a probe \
         there would count nothing"
    )]
    Chosen(String),
    /// The name exists, but not with this version or source file.
    #[error(
        "it has a function `{name}`, and none of version or source file `{of}`{}",
        those(.known)
    )]
    NoVersion {
        /// The function's name, as it was written.
        name: String,
        /// The requested version or source file.
        of: String,
        /// Versions and source files for which the name exists.
        known: Vec<String>,
    },
    /// More functions have this name than can be probed at once.
    #[error("it has more than {most} functions `{name}`")]
    TooMany {
        /// The function's name, as it was written.
        name: String,
        /// The limit of functions.
        most: usize,
    },
    /// The offset in bytes lies behind the end of the named function.
    #[error("offset {offset:#x} lies behind the end of the function `{name}`, which has {bytes:#x} bytes")]
    BehindFunction {
        /// The function's name, as it was written.
        name: String,
        /// The offset from its start, in bytes.
        offset: u64,
        /// The function's size in bytes.
        bytes: u64,
    },
    /// The location is a source line, which is not supported.
    #[error("{}", ks_wit::target::NO_LINES)]
    Line,
    /// The offset in the file is not loaded as code.
    #[error("offset {0:#x} of the file is not code that runs")]
    NoCode(u64),
    /// The offset in the file lies inside an instruction.
    #[error(
        "offset {0:#x} of the file lies inside an instruction: a probe there would change what the program \
         does"
    )]
    InsideInstruction(u64),
    /// It is unproven that an instruction begins at the offset in the file.
    #[error(
        "nothing proves that an instruction begins at offset {0:#x} of the file: it is not the start of a \
         function, and no direct jump reaches it from one"
    )]
    Unproven(u64),
    /// The offset in the file lies in a function that is too long to be decoded.
    #[error("offset {0:#x} of the file lies in a function that is too long to be decoded")]
    LongFunction(u64),
    /// A return probe at an offset that is not the start of a called function.
    #[error(
        "offset {0:#x} of the file is not the start of a function that is called: a probe of returns would \
         write over something else than the address to return to"
    )]
    NoCall(u64),
    /// The program reads arguments by another convention than the function is called by.
    #[error("{0}")]
    Convention(String),
    /// A return probe in a file that contains Go code.
    #[error(
        "it has code in Go (it has a {sign}): Go's runtime moves stacks and walks them, and ends the program \
         when it meets the return address that such a probe writes there (\"unexpected return pc\"), also \
         for functions in C; `--allow go-uretprobe={}` would risk that", .path.display()
    )]
    GoReturns {
        /// The part of the file that shows that it contains Go code.
        sign: &'static str,
        /// The file's absolute path.
        path: PathBuf,
    },
}

fn those(known: &[String]) -> String {
    /// A function of a C library may have several versions.
    const MOST: usize = 8;
    let display: Vec<String> = known.iter().take(MOST).map(|one| format!("`{one}`")).collect();
    if display.is_empty() { String::new() } else { format!(": it has it of {}", display.join(", ")) }
}

fn copied(copies: &[String]) -> String {
    let display: Vec<String> = copies.iter().map(|one| format!("`{one}`")).collect();
    if display.is_empty() {
        String::new()
    } else {
        format!(", only copies that the compiler made of it: {}", display.join(", "))
    }
}

impl ProbePointError {
    /// Returns the kind of failure, for programs.
    pub fn kind(&self) -> FailureKind {
        match self {
            ProbePointError::File(FileError::Kernel { errno, .. }) => match errno {
                Errno::ENOENT | Errno::ENOTDIR => FailureKind::NotFound,
                Errno::EACCES | Errno::EPERM => FailureKind::NotPermitted,
                errno if *errno == Errno::EWOULDBLOCK => FailureKind::Busy,
                _ => FailureKind::Kernel,
            },
            ProbePointError::File(FileError::Changed | FileError::Ended) => FailureKind::Busy,
            ProbePointError::NoFunction { .. }
            | ProbePointError::Stripped(_)
            | ProbePointError::Imported(_)
            | ProbePointError::NoVersion { .. } => FailureKind::NotFound,
            ProbePointError::TooLarge(_)
            | ProbePointError::LongFunction(_)
            | ProbePointError::TooMany { .. } => FailureKind::Limit,
            ProbePointError::Machine(_)
            | ProbePointError::TextRelocations
            | ProbePointError::Line
            | ProbePointError::Convention(_) => FailureKind::Unsupported,
            ProbePointError::OtherFile
            | ProbePointError::BehindFunction { .. }
            | ProbePointError::NoCode(_)
            | ProbePointError::InsideInstruction(_)
            | ProbePointError::Unproven(_)
            | ProbePointError::NoCall(_)
            | ProbePointError::GoReturns { .. } => FailureKind::DeniedByPolicy,
            _ => FailureKind::Invalid,
        }
    }

    /// Returns the remedy, for messages.
    pub fn remedy(&self) -> &'static str {
        match self {
            ProbePointError::File(FileError::Changed) => "try again when nobody writes the file",
            ProbePointError::Convention(_) => {
                "take no parameters there, or `regs: *pt_regs` alone and its members"
            }
            ProbePointError::OtherFile => {
                "name the file itself (`realpath` shows its path), in the policy and in the plugin"
            }
            ProbePointError::TextRelocations => "build it with position-independent code",
            ProbePointError::File(_)
            | ProbePointError::NoProgram(_)
            | ProbePointError::Machine(_)
            | ProbePointError::Cut => "name an executable file or a library",
            ProbePointError::NoFunction { .. } => {
                "name a function of its symbol table, or the start of one as an offset: `path:+0x1040`"
            }
            ProbePointError::Stripped(_) => {
                "take a build that is not stripped, or name the start of the function as an offset: `path:+0x1040`"
            }
            ProbePointError::Imported(_) => "name that library",
            ProbePointError::Chosen(_) => "name the function that it chooses, or the caller",
            ProbePointError::NoVersion { .. } => "name one that it has, or leave it out: `path:function`",
            ProbePointError::TooMany { .. } => {
                "name some by their source files (`path:function@file.c`) or offsets (`path:+0x1040`)"
            }
            ProbePointError::Line => "name the function, or an offset into the file: `path:+0x1040`",
            ProbePointError::BehindFunction { .. } => "name the function that is there",
            ProbePointError::TooLarge(_) => "name another file",
            ProbePointError::NoCode(_)
            | ProbePointError::InsideInstruction(_)
            | ProbePointError::Unproven(_)
            | ProbePointError::LongFunction(_) => {
                "put it at the start of a function, or at a static probe (USDT)"
            }
            ProbePointError::NoCall(_) | ProbePointError::GoReturns { .. } => {
                "put a probe at the function's start"
            }
        }
    }
}
