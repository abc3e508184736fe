//! The types of an object. Variables, functions and sections are no types here, as they are in BTF: they are parts of the
//! object.

use super::super::limits::{MAX_NESTING, MAX_VALUE_BYTES};
use super::super::name::Name;
use super::super::table::Attribute;
use crate::btf::{FwdKind, IntEncoding, Signedness, TypeId};

/// The types that an object uses, and nothing else. [`TypeId`] 1 is the first.
///
/// Every reference is to a type of the list or to `void`; sizes fit; a type contains itself only through pointers to
/// structs, unions and functions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Types {
    /// The types.
    pub list: Vec<Type>,
    /// Attributes of structs, unions, typedefs and members.
    pub notes: Vec<TypeNote>,
}

/// An attribute of a type or of one of its members.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TypeNote {
    /// The type.
    pub ty: TypeId,
    /// The member's position; none for the whole type.
    pub member: Option<u16>,
    /// The attribute.
    pub attribute: Attribute,
}

/// A type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// An integer.
    Int {
        /// Its name.
        name: Name,
        /// Its size: 1, 2, 4, 8 or 16.
        bytes: u32,
        /// How its bits are meant.
        encoding: IntEncoding,
    },
    /// A floating-point number.
    Float {
        /// Its name.
        name: Name,
        /// Its size: 2, 4, 8, 12 or 16.
        bytes: u32,
    },
    /// A pointer.
    Pointer(TypeId),
    /// A type with `const`, `volatile` or `restrict`.
    Modified {
        /// Which of the three.
        modifier: Modifier,
        /// The type without it.
        ty: TypeId,
    },
    /// A type with an attribute.
    Tagged {
        /// The attribute.
        attribute: Attribute,
        /// The type without it.
        ty: TypeId,
    },
    /// Another name of a type.
    Typedef {
        /// The name.
        name: Name,
        /// The type.
        ty: TypeId,
    },
    /// An array.
    Array {
        /// Its elements.
        element: TypeId,
        /// How many; 0 for a member at the end of a struct whose length is not known.
        len: u32,
    },
    /// A struct or union.
    Composite {
        /// Which of the two.
        kind: FwdKind,
        /// Its name; none if anonymous.
        name: Option<Name>,
        /// Its size.
        bytes: u32,
        /// Its members.
        members: Vec<Member>,
    },
    /// An enum.
    Enum {
        /// Its name; none if anonymous.
        name: Option<Name>,
        /// Its size: 1, 2, 4 or 8.
        bytes: u32,
        /// Whether its values are signed.
        sign: Signedness,
        /// Whether each value has 64 bits in BTF (Linux 6.0).
        wide: bool,
        /// Its values. Unsigned values above `i64::MAX` are given as their two's complement.
        values: Vec<(Name, i64)>,
    },
    /// A struct or union without its body.
    Forward {
        /// Which of the two.
        kind: FwdKind,
        /// Its name.
        name: Name,
    },
    /// The signature of a function.
    Signature {
        /// Its result.
        result: TypeId,
        /// Its parameters. The last of a function with `...` has no name and type `void`.
        params: Vec<(Option<Name>, TypeId)>,
    },
}

/// A keyword in front of a type.
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
    /// Its name; none for an anonymous struct, union or padding bit field.
    pub name: Option<Name>,
    /// Its type.
    pub ty: TypeId,
    /// Bits from the start of the struct.
    pub bit_offset: u32,
    /// The bits of a bit field; 0 if it is none.
    pub bits: u8,
}

impl Type {
    /// The types that it refers to; not those of its attributes.
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

/// Bytes of a pointer of BPF.
const POINTER_BYTES: u32 = 8;

impl Types {
    /// The type with an id; none for `void` and for ids that there are not.
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<&Type> {
        self.list.get((id.0 as usize).checked_sub(1)?)
    }

    /// A type without its modifiers, attributes and typedefs, and its id.
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

    /// Bytes of a type; none if it has no size, or is an array of more than [`MAX_VALUE_BYTES`].
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
