//! Errors of the reader: why an object is rejected.

use super::limits::{MAX_NESTING, MAX_VALUE_BYTES};
use super::name::{NameError, visible};
use crate::bpf::DecodeError;

/// A rejection by the reader, with location and reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadError {
    /// The section, with control characters made visible; none for the headers of the file.
    pub section: Option<String>,
    /// Offset in bytes from the start of the section, or of the file if there is no section.
    pub offset: u64,
    /// Why the object is rejected.
    pub reason: Reason,
}

impl ReadError {
    /// Creates an error in the headers of the file.
    pub(super) fn file(offset: u64, reason: impl Into<Reason>) -> Self {
        ReadError { section: None, offset, reason: reason.into() }
    }

    /// Creates an error in a section.
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
    /// A count above a limit of the reader ([`super::limits`]).
    #[error("{found} {what}; the limit is {limit}")]
    TooMany {
        /// Name of the counted items, in the plural.
        what: &'static str,
        /// Number of items in the file.
        found: u64,
        /// Largest accepted number.
        limit: u64,
    },
    /// The file is not a relocatable ELF file for BPF.
    #[error("no relocatable little-endian BPF object: {0}")]
    NotBpf(&'static str),
    /// A header, table or record extends past the end of its container.
    #[error("{0} lies outside of its section or file")]
    Outside(&'static str),
    /// Two sections, or a section and a header, share bytes of the file.
    #[error("the section shares bytes of the file with `{0}`")]
    Overlap(String),
    /// A section that no compiler of BPF objects writes.
    #[error("the section is refused: {0}")]
    Section(&'static str),
    /// A second section with the same name.
    #[error("there are two sections of this name")]
    SecondSection,
    /// A symbol that is not valid in a BPF object.
    #[error("symbol {index}: {reason}")]
    Symbol {
        /// Index in the symbol table.
        index: u64,
        /// The violated rule.
        reason: &'static str,
    },
    /// A duplicate of a name that libbpf looks up.
    #[error("{0} names two things of the object")]
    NameTwice(String),
    /// An empty name, or one with characters outside the closed set.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A relocation of the wrong kind or at the wrong offset.
    #[error("relocation: {0}")]
    Relocation(&'static str),
    /// A second relocation of the same bytes.
    #[error("there are two relocations at this offset")]
    SecondRelocation,
    /// An invalid type record.
    #[error("type {id}: {fault}")]
    Type {
        /// Type id in the file.
        id: u32,
        /// The violated rule.
        fault: TypeFault,
    },
    /// An invalid header of `.BTF` or `.BTF.ext`, or an invalid table of `.BTF.ext`.
    #[error("{0}")]
    TypeHeader(&'static str),
    /// An offset that is not the start of a string.
    #[error("no string starts at offset {0} of the strings")]
    StringOffset(u32),
    /// An invalid CO-RE record.
    #[error("CO-RE record: {0}")]
    Core(&'static str),
    /// Bytes that do not decode as instructions.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// An instruction that refers to a symbol in a form that no compiler emits.
    #[error("instruction: {0}")]
    Instruction(&'static str),
    /// A function whose description contradicts itself.
    #[error("function `{name}`: {reason}")]
    Function {
        /// Name of the function.
        name: String,
        /// The contradiction.
        reason: &'static str,
    },
    /// A map that the host does not create.
    #[error("map `{name}`: {fault}")]
    Map {
        /// Name of the map.
        name: String,
        /// The violated rule.
        fault: MapFault,
    },
    /// A variable with an invalid offset, size or type.
    #[error("variable `{name}`: {reason}")]
    Variable {
        /// Name of the variable.
        name: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// An invalid reference to a symbol or setting of the kernel.
    #[error("extern `{name}`: {reason}")]
    Extern {
        /// Name of the symbol.
        name: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// An invalid struct_ops variable.
    #[error("struct `{name}` of the kernel: {reason}")]
    StructOps {
        /// Name of the variable.
        name: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// The licence is not a zero-terminated text of the allowed length.
    #[error("the licence is not a short text that ends with a zero")]
    License,
}

/// Reasons for the rejection of a type record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeFault {
    /// A kind number that is not documented, or is not allowed in an object.
    #[error("unknown kind {0}")]
    Kind(u32),
    /// Non-zero bits or fields that the kind reserves.
    #[error("a reserved field is not zero")]
    Reserved,
    /// A size that is not valid for the kind.
    #[error("{kind} of {bytes} bytes")]
    Size {
        /// BTF name of the kind.
        kind: &'static str,
        /// Size in bytes.
        bytes: u32,
    },
    /// A reference to a missing type, or to a type of a wrong kind.
    #[error("a reference to type {0}, which does not exist or cannot stand there")]
    Reference(u32),
    /// A missing name, or a name on a kind that has none.
    #[error("a name is missing, or stands where none belongs")]
    Name,
    /// A member outside its struct.
    #[error("member {0} lies outside of its struct")]
    Member(u32),
    /// An invalid bit field.
    #[error("member {0} is a bit field of a type, size or offset that has none")]
    BitField(u32),
    /// A struct that contains itself, or a pointer that only points to itself.
    #[error("the type contains itself")]
    Cycle,
    /// Types nested deeper than [`MAX_NESTING`].
    #[error("types are nested deeper than {MAX_NESTING}")]
    Nesting,
    /// A type larger than [`MAX_VALUE_BYTES`].
    #[error("the type is larger than {MAX_VALUE_BYTES} bytes")]
    TooLarge,
    /// An array, member, variable, key or value of a type that has no size.
    #[error(
        "a type without a size, or an array of more than {MAX_VALUE_BYTES} bytes, stands where memory is \
         needed"
    )]
    NoSize,
    /// An attribute outside the closed list.
    #[error(
        "an attribute that is not known: only those of include/bpf_helpers.h that have no side effect are"
    )]
    Attribute,
}

/// Reasons for the rejection of a map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapFault {
    /// A number that is not a map kind of Linux 6.18.
    #[error("kind number {0} is not known")]
    UnknownKind(u32),
    /// A kind that plugins may not have.
    #[error("a map of kind {kind} is refused: {reason}")]
    RefusedKind {
        /// The kernel's name of the kind.
        kind: &'static str,
        /// Why the kind is refused.
        reason: &'static str,
    },
    /// A member of the definition that libbpf does not know, or that has another form.
    #[error(
        "member `{0}` of the definition is not known, not of the form of bpf_helpers.h, or stands in the \
         wrong place"
    )]
    Member(String),
    /// A value of `map_extra` for a kind that does not use it.
    #[error("`map_extra` is {0:#x}, which has no use for this kind")]
    Extra(u64),
    /// Flags that the kind does not allow.
    #[error("flags {0:#x} are not for this kind")]
    Flags(u32),
    /// A key size that the kind does not allow.
    #[error("keys of {0} bytes are not for this kind")]
    KeySize(u32),
    /// A value size that the kind does not allow.
    #[error("values of {0} bytes are not for this kind")]
    ValueSize(u32),
    /// A number of entries that the kind does not allow.
    #[error("{0} entries are not for this kind")]
    Entries(u32),
    /// Two sizes that contradict each other.
    #[error("the size and the type of its keys or values contradict each other")]
    Conflict,
    /// A pinning mode other than by name.
    #[error("pinning {0} is not `LIBBPF_PIN_BY_NAME`")]
    Pinning(u32),
    /// Invalid initial values of a map of maps or an array of programs.
    #[error("its initial values: {0}")]
    Values(&'static str),
    /// A definition that is not a variable of its section.
    #[error("its definition: {0}")]
    Definition(&'static str),
}

/// Returns an error if a count exceeds its limit.
pub(super) fn at_most(what: &'static str, found: usize, limit: usize) -> Result<(), Reason> {
    if found <= limit {
        return Ok(());
    }
    Err(Reason::TooMany { what, found: found as u64, limit: limit as u64 })
}
