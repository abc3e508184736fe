//! Types of an object. Unlike in BTF, variables, functions and sections are not types but parts of the
//! object.

use super::super::limits::{MAX_NESTING, MAX_VALUE_BYTES};
use super::super::name::Name;
use super::super::table::Attribute;
use crate::object::btf::{FwdKind, IntEncoding, Signedness, TypeId};

/// Types that an object uses, and no others. [`TypeId`] 1 is the first.
///
/// Every reference is to a type of the list or to `void`; sizes fit; a type contains itself only through
/// pointers to structs, unions and functions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Types {
    /// Types by id, from id 1.
    pub list: Vec<Type>,
    /// Attributes of structs, unions, typedefs and members.
    pub notes: Vec<TypeNote>,
}

/// An attribute of a type or of one of its members.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TypeNote {
    /// Annotated type.
    pub ty: TypeId,
    /// Position of the member; none for the whole type.
    pub member: Option<u16>,
    /// Text of the attribute, from the closed list.
    pub attribute: Attribute,
}

/// A BTF type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// An integer of 1 to 16 bytes.
    Int {
        /// C name, which may have spaces.
        name: Name,
        /// Size in bytes: 1, 2, 4, 8 or 16.
        bytes: u32,
        /// Interpretation of the bits.
        encoding: IntEncoding,
    },
    /// A floating-point number of 2 to 16 bytes.
    Float {
        /// C name, which may have spaces.
        name: Name,
        /// Size in bytes: 2, 4, 8, 12 or 16.
        bytes: u32,
    },
    /// A pointer to a type, or to `void`.
    Pointer(TypeId),
    /// A type with `const`, `volatile` or `restrict`.
    Modified {
        /// `const`, `volatile` or `restrict`.
        modifier: Modifier,
        /// The unmodified type.
        ty: TypeId,
    },
    /// A type with an attribute.
    Tagged {
        /// Text of the attribute, from the closed list.
        attribute: Attribute,
        /// The type without the attribute.
        ty: TypeId,
    },
    /// An alias of a type.
    Typedef {
        /// Name of the alias.
        name: Name,
        /// The aliased type.
        ty: TypeId,
    },
    /// An array of a fixed length.
    Array {
        /// Type of the elements.
        element: TypeId,
        /// Number of elements; 0 for a flexible array member.
        len: u32,
    },
    /// A struct or union.
    Composite {
        /// Struct or union.
        kind: FwdKind,
        /// Name; none if anonymous.
        name: Option<Name>,
        /// Size in bytes.
        bytes: u32,
        /// Members, in the order of the file.
        members: Vec<Member>,
    },
    /// An enum with its values.
    Enum {
        /// Name; none if anonymous.
        name: Option<Name>,
        /// Size in bytes: 1, 2, 4 or 8.
        bytes: u32,
        /// Whether the values are signed.
        sign: Signedness,
        /// Whether each value has 64 bits in BTF (Linux 6.0).
        wide: bool,
        /// Names and values. Unsigned values above `i64::MAX` are stored as their two's complement.
        values: Vec<(Name, i64)>,
    },
    /// A struct or union without its body.
    Forward {
        /// Struct or union.
        kind: FwdKind,
        /// Name of the declared type.
        name: Name,
    },
    /// A function signature.
    Signature {
        /// Type of the result.
        result: TypeId,
        /// Names and types of the parameters. A final `...` has no name and type `void`.
        params: Vec<(Option<Name>, TypeId)>,
    },
}

/// A type qualifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Modifier {
    /// `volatile`
    Volatile,
    /// `const`
    Const,
    /// `restrict`
    Restrict,
}

/// A member of a struct or union.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Name; none for an anonymous struct, union or padding bit field.
    pub name: Option<Name>,
    /// Type of the member.
    pub ty: TypeId,
    /// Offset in bits from the start of the struct.
    pub bit_offset: u32,
    /// Width of a bit field; 0 if the member is none.
    pub bits: u8,
}

impl Type {
    /// Returns the types that it refers to, except those of its attributes.
    pub fn references(&self) -> impl Iterator<Item = TypeId> {
        let (first, members, params) = match self {
            Type::Pointer(ty)
            | Type::Modified { ty, .. }
            | Type::Tagged { ty, .. }
            | Type::Typedef { ty, .. }
            | Type::Array { element: ty, .. } => (Some(*ty), &[][..], &[][..]),
            Type::Composite { members, .. } => (None, &members[..], &[][..]),
            Type::Signature { result, params } => (Some(*result), &[][..], &params[..]),
            Type::Int { .. } | Type::Float { .. } | Type::Enum { .. } | Type::Forward { .. } => {
                (None, &[][..], &[][..])
            }
        };
        let members = members.iter().map(|member: &Member| member.ty);
        first.into_iter().chain(members).chain(params.iter().map(|(_, ty)| *ty))
    }
}

/// Size in bytes of a pointer of BPF.
const POINTER_BYTES: u32 = 8;

impl Types {
    /// Returns the type with an id; none for `void` and for unused ids.
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<&Type> {
        self.list.get((id.0 as usize).checked_sub(1)?)
    }

    /// Returns a type and its id without modifiers, attributes and typedefs.
    #[must_use]
    pub fn resolve(&self, id: TypeId) -> Option<(TypeId, &Type)> {
        let mut id = id;
        for _ in 0..=MAX_NESTING {
            match self.get(id)? {
                Type::Modified { ty, .. } | Type::Tagged { ty, .. } | Type::Typedef { ty, .. } => id = *ty,
                found => return Some((id, found)),
            }
        }
        None
    }

    /// Returns the size of a type in bytes; none if it has no size, or is an array of more than
    /// [`MAX_VALUE_BYTES`].
    #[must_use]
    pub fn bytes(&self, id: TypeId) -> Option<u32> {
        self.bytes_at(id, 0)
    }

    fn bytes_at(&self, id: TypeId, depth: u32) -> Option<u32> {
        if depth > MAX_NESTING {
            return None;
        }
        match self.resolve(id)?.1 {
            Type::Int { bytes, .. }
            | Type::Float { bytes, .. }
            | Type::Composite { bytes, .. }
            | Type::Enum { bytes, .. } => Some(*bytes),
            Type::Pointer(_) => Some(POINTER_BYTES),
            Type::Array { element, len } => {
                let bytes = self.bytes_at(*element, depth + 1)?.checked_mul(*len);
                bytes.filter(|&bytes| bytes <= MAX_VALUE_BYTES)
            }
            _ => None,
        }
    }
}
