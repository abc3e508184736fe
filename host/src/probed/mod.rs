//! Where probes are put into programs and libraries.
//!
//! ```text
//! path:function+0x10 -> RegularFile -> Image -> names -> address --\
//! path:+0x1040 ------------------------------> segments -> address -+-> proof -> ProbePoint
//! ```
//!
//! The kernel puts a breakpoint over one byte of the file's code, in every process that runs it, and trusts whoever asks
//! that an instruction begins there. If none does, the programs do something else from then on. So a place is given to the
//! kernel only if it is proven that an instruction begins there:
//!
//! - the start of a function, of `.symtab`, `.dynsym`, `.gnu_debugdata`, Go's `.gopclntab`, or an entry of `.eh_frame`;
//! - what direct jumps lead to from such a start ([`code`]);
//! - a static probe of the file's notes ([`notes`]);
//!
//! and if no instruction that is known lies over it. A probe at returns writes over the address to return to: it is put
//! only where a call has just put that.
//!
//! Everything is read from one descriptor, by which the kernel finds the file, too. The file's owner may still write it;
//! whatever he makes of it, he does to programs that run his code anyway. Pieces are read, and nothing is mapped: memory
//! and time are bounded however long the file is.

mod code;
mod debugdata;
mod elf;
mod error;
mod frames;
mod go;
mod names;
mod notes;
mod starts;

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "plugins")]
use std::sync::Weak;

use elf::Image;
pub use error::PlaceError;

use crate::files::{FileError, RegularFile};

/// Which instruction of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot<'a> {
    /// So many bytes behind the start of a function.
    Function(&'a str, u64),
    /// So many bytes behind the start of the file.
    Offset(u64),
}

/// When a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the instruction.
    Instruction,
    /// When the function that starts there returns.
    #[cfg_attr(
        not(feature = "plugins"),
        expect(dead_code, reason = "asked for by programs of the kernel half")
    )]
    Return,
}

/// An instruction of a file that a probe may be put at. It holds the file open.
#[derive(Debug, Clone)]
pub struct ProbePoint {
    file: Arc<RegularFile>,
    offset: u64,
}

impl ProbePoint {
    /// Opens a file and finds an instruction in it.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub(crate) fn find(path: &Path, spot: Spot<'_>, when: When) -> Result<ProbePoint, PlaceError> {
        let file = RegularFile::open(path)?;
        let image = Image::read(&file)?;
        let offset = match spot {
            Spot::Offset(offset) => offset,
            Spot::Function(name, more) => names::offset_of(&image, name, more)?,
        };
        starts::prove(&image, offset, when)?;
        Ok(ProbePoint { file: Arc::new(file), offset })
    }

    /// The file's path, as it was given: for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The open file, as long as something holds it.
    #[cfg(feature = "plugins")]
    pub(crate) fn file(&self) -> Weak<RegularFile> {
        Arc::downgrade(&self.file)
    }

    /// Bytes from the start of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What leads the kernel to the file, in system calls of this process, while this lives.
    pub(crate) fn kernel_path(&self) -> CString {
        self.file.kernel_path()
    }

    /// Makes sure that what was proven still holds. To be asked when the probe is there: it is taken away if not.
    ///
    /// # Errors
    /// [`FileError::Changed`]; of fstat(2).
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        self.file.check_unchanged()
    }
}

/// The same instruction of the same open file.
impl PartialEq for ProbePoint {
    fn eq(&self, other: &ProbePoint) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.offset == other.offset
    }
}

impl Eq for ProbePoint {}
