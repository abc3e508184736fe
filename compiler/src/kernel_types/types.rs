//! What the checker is told about a type of the kernel.

use std::fmt;

/// A type of the kernel, as far as the language can tell types apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelType {
    /// No value.
    Void,
    /// An integer.
    Int {
        /// Its bytes: 1, 2, 4, 8 or, rarely, 16.
        bytes: u32,
        /// Whether it has a sign.
        signed: bool,
        /// How C spells it, where the language cares.
        spelling: Spelling,
    },
    /// `bool`: one byte.
    Bool,
    /// An enum.
    Enum {
        /// Its name; empty if anonymous.
        name: String,
        /// Its bytes.
        bytes: u32,
        /// Whether a value of it may be negative.
        signed: bool,
    },
    /// A pointer.
    Pointer(Pointee),
    /// A struct by value.
    Struct {
        /// Its name, or that of its typedef; empty if it has none.
        name: String,
        /// Its bytes.
        bytes: u32,
    },
    /// A union by value.
    Union {
        /// Its name, or that of its typedef; empty if it has none.
        name: String,
        /// Its bytes.
        bytes: u32,
    },
    /// An array.
    Array {
        /// What it holds.
        element: Box<KernelType>,
        /// How many; 0 for an array whose end only the kernel knows.
        len: u32,
    },
    /// A function itself, behind a pointer.
    Function,
    /// A floating-point number, or a record that could not be read.
    Unknown,
}

/// How C spells an integer, where the language has a word of its own for it (9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// Only width and sign matter.
    Number,
    /// `char`: `i8` alone, `char[N]` in an array.
    Char,
    /// `size_t`.
    Size,
}

/// What a pointer leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pointee {
    /// `void`.
    Void,
    /// `char`.
    Char,
    /// An integer, `bool` or enum.
    Int {
        /// Its bytes.
        bytes: u32,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A struct or union of this name; it may be one that the BTF does not describe.
    Struct(String),
    /// A function.
    Function,
    /// Another pointer.
    Pointer(Box<Pointee>),
    /// An array of a known length.
    Array {
        /// What it holds.
        element: Box<KernelType>,
        /// How many, at least 1.
        len: u32,
    },
    /// Anything else: a struct without a name, an array of unknown length.
    Other,
}

impl KernelType {
    /// An integer of which only width and sign matter.
    #[must_use]
    pub const fn int(bytes: u32, signed: bool) -> KernelType {
        KernelType::Int { bytes, signed, spelling: Spelling::Number }
    }

    /// Bytes and sign of what one register or load can hold as a number: integers, `bool` and enums.
    #[must_use]
    pub const fn scalar(&self) -> Option<(u32, bool)> {
        match *self {
            KernelType::Int { bytes, signed, .. } | KernelType::Enum { bytes, signed, .. } => {
                Some((bytes, signed))
            }
            KernelType::Bool => Some((1, false)),
            _ => None,
        }
    }

    /// Bytes in memory, if they are known.
    #[must_use]
    pub fn bytes(&self) -> Option<u32> {
        match self {
            KernelType::Int { bytes, .. }
            | KernelType::Enum { bytes, .. }
            | KernelType::Struct { bytes, .. }
            | KernelType::Union { bytes, .. } => Some(*bytes),
            KernelType::Bool => Some(1),
            KernelType::Pointer(_) => Some(8),
            KernelType::Array { element, len } => element.bytes()?.checked_mul(*len),
            KernelType::Void | KernelType::Function | KernelType::Unknown => None,
        }
    }

    /// Whether a function takes it in registers of its own, so that a program cannot declare it as a parameter (4.5).
    #[must_use]
    pub const fn is_aggregate(&self) -> bool {
        matches!(self, KernelType::Struct { .. } | KernelType::Union { .. } | KernelType::Array { .. })
    }
}

/// The language's spelling where it has one, C's where it has none.
impl fmt::Display for KernelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelType::Void => f.write_str("void"),
            KernelType::Int { spelling: Spelling::Size, .. } => f.write_str("size_t"),
            KernelType::Int { bytes, signed, .. } => write_int(f, *bytes, *signed),
            KernelType::Bool => f.write_str("bool"),
            KernelType::Enum { name, .. } => write_tagged(f, "enum", name),
            KernelType::Pointer(to) => write!(f, "*{to}"),
            KernelType::Struct { name, .. } => write_tagged(f, "struct", name),
            KernelType::Union { name, .. } => write_tagged(f, "union", name),
            KernelType::Array { element, len } => match **element {
                KernelType::Int { spelling: Spelling::Char, .. } => write!(f, "char[{len}]"),
                _ => write!(f, "{element}[{len}]"),
            },
            KernelType::Function => f.write_str("fn"),
            KernelType::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Pointee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pointee::Void | Pointee::Other => f.write_str("void"),
            Pointee::Char => f.write_str("char"),
            Pointee::Int { bytes, signed } => write_int(f, *bytes, *signed),
            Pointee::Struct(name) => f.write_str(name),
            Pointee::Function => f.write_str("fn"),
            Pointee::Pointer(to) => write!(f, "*{to}"),
            Pointee::Array { element, len } => write!(f, "{element}[{len}]"),
        }
    }
}

fn write_int(f: &mut fmt::Formatter<'_>, bytes: u32, signed: bool) -> fmt::Result {
    write!(f, "{}{}", if signed { 'i' } else { 'u' }, u64::from(bytes) * 8)
}

fn write_tagged(f: &mut fmt::Formatter<'_>, keyword: &str, name: &str) -> fmt::Result {
    if name.is_empty() { write!(f, "{keyword} without a name") } else { write!(f, "{keyword} {name}") }
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name in the kernel's source; `arg0`, `arg1`, ... where the kernel does not tell.
    pub name: String,
    /// Its type.
    pub ty: KernelType,
}

/// A signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proto {
    /// The parameters, in order.
    pub params: Vec<Param>,
    /// What it returns.
    pub result: KernelType,
    /// Whether more arguments may follow (`...`).
    pub variadic: bool,
}

/// A struct or union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u32,
    /// Whether it is a union, so that all members start at 0.
    pub is_union: bool,
    /// Its members, those of anonymous structs and unions in place.
    pub members: Vec<Member>,
}

impl Struct {
    /// The member of this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

/// A member of a struct, found directly or inside its anonymous members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: KernelType,
    /// Where it starts, in bytes from the start of the struct; for a bit-field the byte that holds its first bit.
    pub offset: u32,
    /// Where its bits are, if it is a bit-field (`KS0511` when it is used).
    pub bitfield: Option<BitField>,
    /// Whether an anonymous union holds it, so that others share its bytes.
    pub in_union: bool,
}

/// The bits of a bit-field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitField {
    /// The first, counted from the start of the struct.
    pub first_bit: u32,
    /// How many.
    pub bits: u8,
}
