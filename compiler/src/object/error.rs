//! Why an object is refused.

use super::limits::{MAX_NESTING, MAX_VALUE_BYTES};
use super::name::{NameError, visible};
use crate::bpf::DecodeError;

/// A refusal of the reader: where, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadError {
    /// The section, with control characters made visible; none for the headers of the file.
    pub section: Option<String>,
    /// Bytes from the start of the section, or of the file if there is no section.
    pub offset: u64,
    /// The reason.
    pub reason: Reason,
}

impl ReadError {
    /// A refusal in the headers of the file.
    pub(super) fn file(offset: u64, reason: impl Into<Reason>) -> Self {
        ReadError { section: None, offset, reason: reason.into() }
    }

    /// A refusal in a section.
    pub(super) fn section(section: &str, offset: u64, reason: impl Into<Reason>) -> Self {
        ReadError { section: Some(visible(section)), offset, reason: reason.into() }
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.section {
            Some(section) => write!(f, "section `{section}`, offset {:#x}: {}", self.offset, self.reason),
            None => write!(f, "file offset {:#x}: {}", self.offset, self.reason),
        }
    }
}

impl std::error::Error for ReadError {}

/// Why an object is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// More of something than the reader takes ([`super::limits`]).
    #[error("{found} {what}; the limit is {limit}")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Another kind of file.
    #[error("no relocatable little-endian BPF object: {0}")]
    NotBpf(&'static str),
    /// A header, table or record ends behind its container.
    #[error("{0} lies outside of its section or file")]
    Outside(&'static str),
    /// Two sections, or a section and a header, share bytes of the file.
    #[error("the section shares bytes of the file with `{0}`")]
    Overlap(String),
    /// A section that no compiler of BPF objects writes.
    #[error("the section is refused: {0}")]
    Section(&'static str),
    /// A second section of a name.
    #[error("there are two sections of this name")]
    SecondSection,
    /// A symbol that is none of a BPF object.
    #[error("symbol {index}: {reason}")]
    Symbol {
        /// Its index in the table.
        index: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Two things that libbpf looks up by name have the same one.
    #[error("{0} names two things of the object")]
    NameTwice(String),
    /// A name with other characters, or none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A relocation that does not belong there.
    #[error("relocation: {0}")]
    Relocation(&'static str),
    /// A second relocation of the same bytes.
    #[error("there are two relocations at this offset")]
    SecondRelocation,
    /// A type record without a meaning.
    #[error("type {id}: {fault}")]
    Type {
        /// Its id in the file.
        id: u32,
        /// What is wrong.
        fault: TypeFault,
    },
    /// The header of `.BTF` or `.BTF.ext`, or a table of `.BTF.ext`.
    #[error("{0}")]
    TypeHeader(&'static str),
    /// The offset of a string that is none.
    #[error("no string starts at offset {0} of the strings")]
    StringOffset(u32),
    /// A CO-RE record that has no meaning.
    #[error("CO-RE record: {0}")]
    Core(&'static str),
    /// Bytes that are no instructions.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// An instruction that names something in a way that no compiler does.
    #[error("instruction: {0}")]
    Instruction(&'static str),
    /// A function whose description contradicts itself.
    #[error("function `{name}`: {reason}")]
    Function {
        /// The function.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A map that the host does not create.
    #[error("map `{name}`: {fault}")]
    Map {
        /// The map.
        name: String,
        /// What is wrong.
        fault: MapFault,
    },
    /// A variable that lies wrong.
    #[error("variable `{name}`: {reason}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Something of the kernel that the object refers to in a way that is not known.
    #[error("extern `{name}`: {reason}")]
    Extern {
        /// The symbol.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A struct of the kernel that is filled in wrongly.
    #[error("struct `{name}` of the kernel: {reason}")]
    StructOps {
        /// The variable.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The licence is no text that a kernel compares.
    #[error("the licence is not a short text that ends with a zero")]
    License,
}

/// What is wrong with a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeFault {
    /// A kind number that is not documented, or is not for the types of an object.
    #[error("unknown kind {0}")]
    Kind(u32),
    /// Bits or fields that must be zero for the kind.
    #[error("a reserved field is not zero")]
    Reserved,
    /// A size that the kind does not have.
    #[error("{kind} of {bytes} bytes")]
    Size {
        /// The kind.
        kind: &'static str,
        /// Its size.
        bytes: u32,
    },
    /// A reference to a type that there is not, or that cannot stand there.
    #[error("a reference to type {0}, which does not exist or cannot stand there")]
    Reference(u32),
    /// A name that is missing, or that the kind does not have.
    #[error("a name is missing, or stands where none belongs")]
    Name,
    /// A member outside of its struct.
    #[error("member {0} lies outside of its struct")]
    Member(u32),
    /// A bit field that is no bit field.
    #[error("member {0} is a bit field of a type, size or offset that has none")]
    BitField(u32),
    /// A struct that contains itself, or a pointer that only points to itself.
    #[error("the type contains itself")]
    Cycle,
    /// Deeper than [`MAX_NESTING`].
    #[error("types are nested deeper than {MAX_NESTING}")]
    Nesting,
    /// Larger than [`MAX_VALUE_BYTES`].
    #[error("the type is larger than {MAX_VALUE_BYTES} bytes")]
    TooLarge,
    /// An array, member, variable, key or value of a type that has no size.
    #[error(
        "a type without a size, or an array of more than {MAX_VALUE_BYTES} bytes, stands where memory is needed"
    )]
    NoSize,
    /// An attribute that is not known.
    #[error(
        "an attribute that is not known: only those of include/bpf_helpers.h that have no side effect are"
    )]
    Attribute,
}

/// What is wrong with a map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapFault {
    /// A number that is no kind of map of Linux 6.18.
    #[error("kind number {0} is not known")]
    UnknownKind(u32),
    /// A kind that is not created for plugins.
    #[error("a map of kind {kind} is refused: {reason}")]
    RefusedKind {
        /// The kind.
        kind: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A member of the definition that libbpf does not know, or is not of its form.
    #[error(
        "member `{0}` of the definition is not known, not of the form of bpf_helpers.h, or stands in the wrong place"
    )]
    Member(String),
    /// `map_extra` where it has no known use.
    #[error("`map_extra` is {0:#x}, which has no use for this kind")]
    Extra(u64),
    /// Flags outside of the kind's list.
    #[error("flags {0:#x} are not for this kind")]
    Flags(u32),
    /// A size of keys that the kind does not have.
    #[error("keys of {0} bytes are not for this kind")]
    KeySize(u32),
    /// A size of values that the kind does not have.
    #[error("values of {0} bytes are not for this kind")]
    ValueSize(u32),
    /// A number of entries that the kind does not have.
    #[error("{0} entries are not for this kind")]
    Entries(u32),
    /// Two sizes that contradict each other.
    #[error("the size and the type of its keys or values contradict each other")]
    Conflict,
    /// Pinning in a way other than by name.
    #[error("pinning {0} is not `LIBBPF_PIN_BY_NAME`")]
    Pinning(u32),
    /// What fills a map of maps or an array of programs.
    #[error("its initial values: {0}")]
    Values(&'static str),
    /// A definition that is no variable of its section.
    #[error("its definition: {0}")]
    Definition(&'static str),
}

/// Refuses more of something than its limit.
pub(super) fn at_most(what: &'static str, found: usize, limit: usize) -> Result<(), Reason> {
    if found <= limit {
        return Ok(());
    }
    Err(Reason::TooMany { what, found: found as u64, limit: limit as u64 })
}
