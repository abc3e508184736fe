//! Variables and their sections.

use std::fmt;

use super::super::name::Name;
use super::super::table::Attribute;
use crate::object::btf::TypeId;

/// A section of variables. The loader creates an array map of one value from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataSection {
    /// Access of programs to the section.
    pub kind: DataKind,
    /// Part of the section name after the kind: `pinned` of `.data.pinned`, `str1.1` of `.rodata.str1.1`.
    pub suffix: Option<Name>,
    /// Initial content.
    pub content: DataContent,
    /// Variables, sorted by offset. They do not overlap.
    pub variables: Vec<Variable>,
}

/// Access of programs to a section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataKind {
    /// `.data`: read and write.
    Data,
    /// `.rodata`: read only. The values are constants to the verifier.
    Rodata,
    /// `.bss`: read and write; initially zero.
    Bss,
}

/// Initial content of a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataContent {
    /// Explicit bytes.
    Bytes(Vec<u8>),
    /// A number of zero bytes.
    Zeros(u32),
}

/// Visibility of a variable or function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Linkage {
    /// Visible in this object. A function is verified at each call; a section with only static variables is
    /// not mapped into userspace.
    Static,
    /// Visible everywhere. A function is verified on its own, for all arguments of its types.
    Global,
}

/// A variable in a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Name, unique in its section, and among all global names if it is global.
    pub name: Name,
    /// Offset in bytes from the section's start.
    pub offset: u32,
    /// Size in bytes; not 0.
    pub bytes: u32,
    /// Visibility of the variable.
    pub linkage: Linkage,
    /// Type, if the object has it; not larger than the variable.
    pub ty: Option<TypeId>,
    /// Attributes of the declaration.
    pub attributes: Vec<Attribute>,
}

impl DataKind {
    /// Returns the section name without suffix.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            DataKind::Data => ".data",
            DataKind::Rodata => ".rodata",
            DataKind::Bss => ".bss",
        }
    }
}

impl DataContent {
    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match self {
            DataContent::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            DataContent::Zeros(bytes) => *bytes,
        }
    }
}

impl DataSection {
    /// Returns the full section name.
    #[must_use]
    pub fn name(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for DataSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.section())?;
        match &self.suffix {
            Some(suffix) => write!(f, ".{suffix}"),
            None => Ok(()),
        }
    }
}
