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
pub use error::ProbePointError;
use ks_wit::target::{Spot, UprobeTarget};
use names::{NamedOffset, NamedOffsets};

use crate::files::{FileError, RegularFile};

/// When a probe runs.
#[derive(Clone, Copy)]
pub(crate) enum When<'a> {
    /// Before the instruction.
    Instruction,
    /// When the function that starts there returns. Not in a file with code in Go, unless this is allowed for its path.
    #[cfg_attr(
        not(feature = "plugins"),
        expect(dead_code, reason = "asked for by programs of the kernel half")
    )]
    Return(&'a dyn Fn(&Path) -> bool),
}

/// An instruction of a file that a probe may be put at. It holds the file open.
#[derive(Debug, Clone)]
pub struct ProbePoint {
    file: Arc<RegularFile>,
    offset: u64,
    source: Option<String>,
    copies: Arc<[String]>,
}

impl ProbePoint {
    /// Opens a file and finds the instructions of a place in it: at least one, by their offsets.
    ///
    /// # Errors
    /// [`ProbePointError`].
    pub(crate) fn find(
        target: &UprobeTarget<'_>,
        when: When<'_>,
    ) -> Result<Vec<ProbePoint>, ProbePointError> {
        let file = RegularFile::open(Path::new(target.path))?;
        let image = Image::read(&file)?;
        if let When::Return(allows_go) = when
            && let Some(sign) = go::sign(&image)?
        {
            let path = file.real_path();
            if !path.as_deref().is_some_and(allows_go) {
                let path = path.unwrap_or_else(|| file.path().to_owned());
                return Err(ProbePointError::GoReturns { sign, path });
            }
        }
        let NamedOffsets { offsets, copies } = match target.spot {
            Spot::Offset(offset) => {
                NamedOffsets { offsets: vec![NamedOffset { offset, source: None }], copies: Vec::new() }
            }
            Spot::Function { name, of, offset } => names::offsets_of(&image, name, of, offset)?,
            Spot::Line { .. } => return Err(ProbePointError::Line),
        };
        let at_return = matches!(when, When::Return(_));
        offsets.iter().try_for_each(|target| starts::prove(&image, target.offset, at_return))?;
        let (file, copies) = (Arc::new(file), Arc::from(copies));
        let point = |target: NamedOffset| ProbePoint {
            file: Arc::clone(&file),
            offset: target.offset,
            source: target.source,
            copies: Arc::clone(&copies),
        };
        Ok(offsets.into_iter().map(point).collect())
    }

    /// Where the probes of a place in words ([`ks_wit::target`]) would lie, for people who want to know.
    ///
    /// # Errors
    /// Why no probe would be put there.
    #[cfg(feature = "plugins")]
    pub fn named(target: &str, at_return: bool) -> Result<Vec<ProbePoint>, String> {
        let target = UprobeTarget::parse(target).map_err(|error| error.to_string())?;
        let when = if at_return { When::Return(&|_| false) } else { When::Instruction };
        ProbePoint::find(&target, when).map_err(|error| error.to_string())
    }

    /// Where probes of a place lie, as people read it: `+0x116f (dup_a.c), +0x11a7 (dup_b.c)`.
    pub fn list(points: &[ProbePoint]) -> String {
        let label = |point: &ProbePoint| match &point.source {
            Some(source) => format!("+{:#x} ({source})", point.offset),
            None => format!("+{:#x}", point.offset),
        };
        points.iter().map(label).collect::<Vec<_>>().join(", ")
    }

    /// Copies that the compiler made of the function, in words; none if there are none. Calls of them are no calls of it.
    pub fn copies(points: &[ProbePoint]) -> Option<String> {
        let copies = &points.first()?.copies;
        let display: Vec<String> = copies.iter().map(|one| format!("`{one}`")).collect();
        (!display.is_empty()).then(|| display.join(", "))
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
