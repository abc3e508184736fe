//! Kernel types as the checker sees them.

use std::fmt;

/// A kernel type, as far as the language distinguishes types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelType {
    /// No value (`void`).
    Void,
    /// An integer that is not a bool or enum.
    Int {
        /// Size in bytes: 1, 2, 4, 8 or, rarely, 16.
        bytes: u32,
        /// Whether the integer is signed.
        signed: bool,
        /// C spelling, where the language distinguishes it.
        spelling: Spelling,
    },
    /// `bool`: one byte.
    Bool,
    /// An enum, used as an integer.
    Enum {
        /// Name; empty if anonymous.
        name: String,
        /// Size in bytes.
        bytes: u32,
        /// Whether the values are signed.
        signed: bool,
    },
    /// A pointer, with its pointee.
    Pointer(Pointee),
    /// A struct by value.
    Struct {
        /// Name, or that of its typedef; empty if it has none.
        name: String,
        /// Size in bytes.
        bytes: u32,
    },
    /// A union by value.
    Union {
        /// Name, or that of its typedef; empty if it has none.
        name: String,
        /// Size in bytes.
        bytes: u32,
    },
    /// An array by value.
    Array {
        /// Type of the elements.
        element: Box<KernelType>,
        /// Number of elements; 0 for a flexible array.
        len: u32,
    },
    /// A function itself, as the pointee of a pointer.
    Function,
    /// A floating-point number, or a record that could not be read.
    Unknown,
}

/// C spelling of an integer, where the language has a separate type for it (9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// A number with only width and signedness.
    Number,
    /// `char`: `i8` alone, `char[N]` in an array.
    Char,
    /// `size_t`, of pointer width.
    Size,
}

/// Pointee of a pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pointee {
    /// `void`, of unknown size.
    Void,
    /// `char`, often text.
    Char,
    /// An integer, `bool` or enum.
    Int {
        /// Size in bytes.
        bytes: u32,
        /// Whether the integer is signed.
        signed: bool,
    },
    /// A struct or union of this name; it may be one that the BTF does not describe.
    Struct(String),
    /// A function, called through the pointer.
    Function,
    /// Another pointer.
    Pointer(Box<Pointee>),
    /// An array of a known length.
    Array {
        /// Type of the elements.
        element: Box<KernelType>,
        /// Number of elements, at least 1.
        len: u32,
    },
    /// Any other type: a struct without a name, an array of unknown length.
    Other,
}

impl KernelType {
    /// Returns a signed integer of which only the width matters.
    #[must_use]
    pub const fn signed_int(bytes: u32) -> KernelType {
        KernelType::Int { bytes, signed: true, spelling: Spelling::Number }
    }

    /// Returns an unsigned integer of which only the width matters.
    #[must_use]
    pub const fn unsigned_int(bytes: u32) -> KernelType {
        KernelType::Int { bytes, signed: false, spelling: Spelling::Number }
    }

    /// Returns size in bytes and signedness of a type that fits a register as a number: integers, `bool` and
    /// enums.
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

    /// Returns the size in bytes, if it is known.
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

    /// Returns whether it is passed by value as an aggregate, so that a program cannot declare it as a
    /// parameter (4.5).
    #[must_use]
    pub const fn is_aggregate(&self) -> bool {
        matches!(self, KernelType::Struct { .. } | KernelType::Union { .. } | KernelType::Array { .. })
    }
}

/// Prints the language's spelling where it has one, else C's.
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

/// A parameter of a kernel function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Name in the kernel's source; `arg0`, `arg1`, ... if the kernel's types have none.
    pub name: String,
    /// Type of the parameter.
    pub ty: KernelType,
}

/// Signature of a kernel function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proto {
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Type of the result.
    pub result: KernelType,
    /// Whether more arguments may follow (`...`).
    pub variadic: bool,
}

/// A struct or union with its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Struct {
    /// Name in the kernel's types.
    pub name: String,
    /// Size in bytes.
    pub bytes: u32,
    /// Whether it is a union, so that all members start at 0.
    pub is_union: bool,
    /// Members, with those of anonymous structs and unions expanded.
    pub members: Vec<Member>,
}

impl Struct {
    /// Returns the member of this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

/// A member of a struct, direct or inside its anonymous members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Name in the kernel's types.
    pub name: String,
    /// Type of the member.
    pub ty: KernelType,
    /// Offset in bytes from the start of the struct; for a bit-field that of the byte that holds its first
    /// bit.
    pub offset: u32,
    /// Position of its bits, if it is a bit-field (`KS0511` when it is used).
    pub bitfield: Option<BitField>,
    /// Whether it is in an anonymous union, so that other members share its bytes.
    pub in_union: bool,
}

/// Position of a bit-field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitField {
    /// First bit, counted from the start of the struct.
    pub first_bit: u32,
    /// Number of bits.
    pub bits: u8,
}
