//! Variables.

use std::fmt;

use super::super::name::Name;
use super::super::table::Attribute;
use crate::btf::TypeId;

/// A section of variables. The loader makes an array of one value of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataSection {
    /// What programs may do with it.
    pub kind: DataKind,
    /// What follows the kind in its name: `pinned` of `.data.pinned`, `str1.1` of `.rodata.str1.1`.
    pub suffix: Option<Name>,
    /// Its first content.
    pub content: DataContent,
    /// Its variables, by offset. They do not overlap.
    pub variables: Vec<Variable>,
}

/// What programs may do with a section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataKind {
    /// `.data`: read and write.
    Data,
    /// `.rodata`: read. The values are constants to the verifier.
    Rodata,
    /// `.bss`: read and write; zero at first.
    Bss,
}

/// The first content of a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataContent {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many zeros.
    Zeros(u32),
}

/// Who sees a variable or function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Linkage {
    /// This object. A function is verified at each call; a section of only such variables is not mapped into userspace.
    Static,
    /// Everyone. A function is verified on its own, for all arguments of its types.
    Global,
}

/// A variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name, unique in its section, and among all global names if it is global.
    pub name: Name,
    /// Bytes from the section's start.
    pub offset: u32,
    /// Its size; not 0.
    pub bytes: u32,
    /// Who sees it.
    pub linkage: Linkage,
    /// Its type, if the object tells it; not larger than the variable.
    pub ty: Option<TypeId>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

impl DataKind {
    /// The name of the section without suffix.
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
    /// The size.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match self {
            DataContent::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            DataContent::Zeros(bytes) => *bytes,
        }
    }
}

impl DataSection {
    /// The name of the section.
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
