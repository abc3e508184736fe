//! Finds and verifies the instructions of programs and libraries at which probes are placed.
//!
//! ```text
//! path:function+0x10 -> RegularFile -> Image -> names -> address --\
//! path:+0x1040 ------------------------------> segments -> address -+-> proof -> ProbePoint
//! ```
//!
//! The kernel puts a breakpoint over one byte of the file's code, in every process that runs it, and trusts
//! the caller that an instruction begins there. Otherwise these programs silently misbehave. So an offset is
//! only passed to the kernel if it is proven that an instruction begins there:
//!
//! - the start of a function, from `.symtab`, `.dynsym`, `.gnu_debugdata`, Go's `.gopclntab`, or an entry of
//!   `.eh_frame`;
//! - an address that direct jumps reach from such a start ([`code`]);
//! - a static probe of the file's notes ([`notes`]);
//!
//! and if no other known instruction overlaps it. A return probe overwrites the return address, so it is only
//! placed where a call has just stored that address.
//!
//! Everything is read from one descriptor, through which the kernel finds the file too. The file's owner can
//! still modify it, which affects the programs that run its code in any case. The file is read in pieces
//! rather than mapped: memory and time are bounded however long it is.

mod code;
mod debugdata;
mod elf;
mod error;
mod frames;
mod go;
#[cfg(feature = "plugins")]
mod language;
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
#[cfg(feature = "plugins")]
pub(crate) use language::Convention;
use names::{NamedOffset, NamedOffsets};

#[cfg(feature = "plugins")]
use crate::files;
use crate::files::{FileError, NoProgram, RegularFile};

/// The moment at which a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeMoment {
    /// Before the instruction executes.
    Instruction,
    /// When the function that starts there returns.
    Return,
}

/// The moment at which a probe runs, with the permission that it may need.
#[derive(Clone, Copy)]
pub(crate) enum When<'a> {
    /// Before the instruction executes.
    Instruction,
    /// Before the instruction executes, for a program that reads arguments by this convention. Rejected if the
    /// function is called by another one.
    #[cfg(feature = "plugins")]
    Arguments(Convention),
    /// When the function that starts there returns. Rejected for a file with Go code unless the closure
    /// allows its path.
    #[cfg_attr(
        not(feature = "plugins"),
        expect(dead_code, reason = "asked for by programs of the kernel half")
    )]
    Return(&'a dyn Fn(&Path) -> bool),
}

impl When<'_> {
    fn moment(self) -> ProbeMoment {
        match self {
            When::Instruction => ProbeMoment::Instruction,
            #[cfg(feature = "plugins")]
            When::Arguments(_) => ProbeMoment::Instruction,
            When::Return(_) => ProbeMoment::Return,
        }
    }
}

/// Decides whether a file may be probed, by its path without links; none if it has no such path.
pub(crate) type AllowsFile<'a> = dyn Fn(Option<&Path>) -> bool + 'a;

/// Allows every file: nobody but the person who named the file is to be protected.
pub(crate) const ANY_FILE: &AllowsFile<'static> = &|_| true;

/// An instruction of a file at which a probe may be placed. It holds the file open.
#[derive(Debug, Clone)]
pub struct ProbePoint {
    file: Arc<RegularFile>,
    offset: u64,
    source: Option<String>,
    copies: Arc<[String]>,
}

impl ProbePoint {
    /// Opens a file and returns the instructions of a location in it: at least one, in ascending order of
    /// offsets. Reads nothing from the file but whether it is a program before `allows` has
    /// accepted it.
    ///
    /// # Errors
    /// [`ProbePointError`].
    pub(crate) fn find(
        target: &UprobeTarget<'_>,
        when: When<'_>,
        allows: &AllowsFile<'_>,
    ) -> Result<Vec<ProbePoint>, ProbePointError> {
        let file = open(Path::new(target.path), allows)?;
        let image = Image::read(&file)?;
        if let When::Return(allows_go) = when
            && let Some(sign) = go::sign(&image)?
        {
            let path = file.real_path();
            if !path.is_some_and(allows_go) {
                let path = path.unwrap_or_else(|| file.path()).to_owned();
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
        offsets.iter().try_for_each(|target| starts::prove(&image, target.offset, when.moment()))?;
        #[cfg(feature = "plugins")]
        if let When::Arguments(convention) = when {
            let addresses = offsets.iter().filter_map(|target| image.address_of(target.offset));
            language::check(&image, addresses, convention)?;
        }
        let (file, copies) = (Arc::new(file), Arc::from(copies));
        let point = |target: NamedOffset| ProbePoint {
            file: Arc::clone(&file),
            offset: target.offset,
            source: target.source,
            copies: Arc::clone(&copies),
        };
        Ok(offsets.into_iter().map(point).collect())
    }

    /// Finds the probe points of a textual location ([`ks_wit::target`]), for listings.
    ///
    /// # Errors
    /// The reason why no probe can be placed there.
    #[cfg(feature = "plugins")]
    pub fn named(target: &str, moment: ProbeMoment) -> Result<Vec<ProbePoint>, String> {
        let target = UprobeTarget::parse(target).map_err(|error| error.to_string())?;
        let when = match moment {
            ProbeMoment::Instruction => When::Instruction,
            ProbeMoment::Return => When::Return(&|_| false),
        };
        ProbePoint::find(&target, when, ANY_FILE).map_err(|error| error.to_string())
    }

    /// Returns the names by which a policy is asked about a textual location: the path without dots, and now the
    /// one without links.
    #[cfg(feature = "plugins")]
    pub fn known_as(location: &str) -> Vec<String> {
        let real =
            UprobeTarget::parse(location).ok().and_then(|target| std::fs::canonicalize(target.path).ok());
        let real = real.map(|path| with_path(location, &path));
        [Some(without_dots(location)), real].into_iter().flatten().collect()
    }

    /// Formats the offsets of probe points: `+0x116f (dup_a.c), +0x11a7 (dup_b.c)`.
    pub fn list(points: &[ProbePoint]) -> String {
        let label = |point: &ProbePoint| match &point.source {
            Some(source) => format!("+{:#x} ({source})", point.offset),
            None => format!("+{:#x}", point.offset),
        };
        points.iter().map(label).collect::<Vec<_>>().join(", ")
    }

    /// Formats the copies that the compiler made of the function; None if there are none. A probe does not
    /// see their calls.
    pub fn copies(points: &[ProbePoint]) -> Option<String> {
        let copies = &points.first()?.copies;
        let display: Vec<String> = copies.iter().map(|one| format!("`{one}`")).collect();
        (!display.is_empty()).then(|| display.join(", "))
    }

    /// Returns the file's path as it was given, for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the open file, without holding it open.
    #[cfg(feature = "plugins")]
    pub(crate) fn file(&self) -> Weak<RegularFile> {
        Arc::downgrade(&self.file)
    }

    /// Returns a textual location of the point with the path by which policies know the file: the one without
    /// links, if there is one.
    pub(crate) fn real_target(&self, location: &str) -> String {
        match self.file.real_path() {
            Some(path) => with_path(location, path),
            None => location.to_owned(),
        }
    }

    /// Offset of the instruction in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns a path by which the kernel finds the file, in system calls of this process while `self` lives.
    pub(crate) fn kernel_path(&self) -> CString {
        self.file.kernel_path()
    }

    /// Checks that the file is unchanged since the proof. The caller asks after placing the probe, and
    /// removes it on an error.
    ///
    /// # Errors
    /// [`FileError::Changed`]; of fstat(2).
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        self.file.check_unchanged()
    }
}

/// Equal if both are the same instruction of the same open file.
impl PartialEq for ProbePoint {
    fn eq(&self, other: &ProbePoint) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && self.offset == other.offset
    }
}

impl Eq for ProbePoint {}

/// Returns a textual location ([`ks_wit::target`]) with another path of its file.
pub(crate) fn with_path(location: &str, path: &Path) -> String {
    let Ok(target) = UprobeTarget::parse(location) else { return location.to_owned() };
    let spot = location.strip_prefix(target.path).unwrap_or_default();
    format!("{}{spot}", path.display())
}

/// Returns a textual location with the path that its own path denotes if no part of it is a link. The file system
/// is not asked.
#[cfg(feature = "plugins")]
pub(crate) fn without_dots(location: &str) -> String {
    let path = UprobeTarget::parse(location).map(|target| files::without_dots(Path::new(target.path)));
    path.map_or_else(|_| location.to_owned(), |path| with_path(location, &path))
}

/// Opens a file that may be probed. The error of a path that leads through a link to anything else is the same,
/// whatever is there.
fn open(path: &Path, allows: &AllowsFile<'_>) -> Result<RegularFile, ProbePointError> {
    match RegularFile::program(path) {
        Ok(file) if allows(file.real_path()) => Ok(file),
        Ok(_) => Err(ProbePointError::OtherFile),
        Err(NoProgram { is_behind_link: true, .. }) if !allows(None) => Err(ProbePointError::OtherFile),
        Err(NoProgram { error: FileError::NotElf, .. }) => {
            Err(ProbePointError::NoProgram("it is not an ELF file"))
        }
        Err(NoProgram { error, .. }) => Err(error.into()),
    }
}
