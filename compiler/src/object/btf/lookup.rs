//! Lookup by name, sizes, and members through anonymous structs. Every traversal of types is bounded: hostile
//! types may contain themselves.

use super::names::{EnumeratorIndex, NameIndex, NamedEnumerator};
use super::read::{Btf, BtfReadError, Members, Type};
use super::{BtfKind, FuncLinkage, TypeId};

/// Maximum chain of typedefs, modifiers or array elements, and maximum nesting of anonymous members. Those of
/// real kernels stay below ten; a cycle would never end.
const MAX_DEPTH: usize = 64;
/// Maximum number of members visited in one search: anonymous members that share types could double the work
/// with every level.
const MAX_MEMBERS: usize = 100_000;

/// Reasons for the failure of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LookupError {
    /// A record that cannot be read.
    #[error(transparent)]
    Read(#[from] BtfReadError),
    /// A type that contains itself, or is nested deeper than any real one.
    #[error("type {} contains itself or is nested too deeply", _0.0)]
    TooDeep(TypeId),
    /// A type without a size (functions, forward declarations, `void`), or one larger than 64 bits count.
    #[error("type {} has no size", _0.0)]
    NoSize(TypeId),
    /// A type without members, where a struct or union is required.
    #[error("type {} is not a struct or union", _0.0)]
    NotComposite(TypeId),
}

/// A member that was found by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Type of the member.
    pub ty: TypeId,
    /// Offset in bits from the start of the searched struct.
    pub bit_offset: u32,
    /// Width of a bitfield; 0 if the member is none.
    pub bitfield_bits: u8,
    /// Index of the member in each nested struct, anonymous ones included.
    pub path: Vec<u32>,
}

/// A function that was found by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BtfFunction<'a> {
    /// Id of the `FUNC`.
    pub id: TypeId,
    /// Visibility of the function.
    pub linkage: FuncLinkage,
    /// Type of the result.
    pub result: TypeId,
    /// Names and types of the parameters; a last one without name and type is `...`.
    pub params: Vec<(&'a str, TypeId)>,
}

impl Btf {
    /// Returns the first type of this name and kind.
    #[must_use]
    pub fn find(&self, name: &str, kind: BtfKind) -> Option<TypeId> {
        self.find_all(name, kind).next()
    }

    /// Returns every type of this name and kind: static functions of several files may share one.
    pub fn find_all(&self, name: &str, kind: BtfKind) -> impl Iterator<Item = TypeId> {
        let index = self.names.get_or_init(|| NameIndex::build(self));
        index.candidates(self.bytes(), name).filter(move |&id| {
            let found = self.name_of(id, kind).and_then(|offset| self.string_bytes(offset));
            let rest = found.and_then(|found| found.strip_prefix(name.as_bytes()));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    /// Returns whether there is a type of this name and kind. Builds no index for that if there is none.
    #[must_use]
    pub fn contains(&self, name: &str, kind: BtfKind) -> bool {
        match self.names.get() {
            Some(_) => self.find(name, kind).is_some(),
            None => self.starting(kind, name).any(|(_, found)| found == name),
        }
    }

    /// Returns every type of a kind that has a readable name, in order.
    pub fn named(&self, kind: BtfKind) -> impl Iterator<Item = (TypeId, &str)> {
        (1..=self.len()).map(TypeId).filter_map(move |id| {
            let name = self.string(self.name_of(id, kind)?).ok().filter(|name| !name.is_empty())?;
            Some((id, name))
        })
    }

    /// Returns every type of a kind whose name starts with `prefix`, in order.
    pub fn starting(&self, kind: BtfKind, prefix: &str) -> impl Iterator<Item = (TypeId, &str)> {
        (1..=self.len()).map(TypeId).filter_map(move |id| {
            let offset = self.name_of(id, kind)?;
            // Most names are rejected at their first letter.
            self.string_bytes(offset).filter(|name| name.starts_with(prefix.as_bytes()))?;
            Some((id, self.string(offset).ok()?))
        })
    }

    /// Returns the first struct of this name.
    #[must_use]
    pub fn find_struct(&self, name: &str) -> Option<TypeId> {
        self.find(name, BtfKind::Struct)
    }

    /// Returns the first enum of this name, of 32 or 64 bits.
    #[must_use]
    pub fn find_enum(&self, name: &str) -> Option<TypeId> {
        self.find(name, BtfKind::Enum).or_else(|| self.find(name, BtfKind::Enum64))
    }

    /// Returns the first enum of this name, or without a name of its own but with a typedef of this name.
    #[must_use]
    pub fn find_named_enum(&self, name: &str) -> Option<TypeId> {
        self.find_enum(name).or_else(|| {
            let id = self.resolve(self.find(name, BtfKind::Typedef)?).ok()?;
            matches!(self.get(id), Ok(Type::Enum { .. })).then_some(id)
        })
    }

    /// Returns the enum of this name; else the first one that has an enumerator of this name.
    #[must_use]
    pub fn find_enum_of(&self, name: &str) -> Option<TypeId> {
        self.find_named_enum(name).or_else(|| self.find_enumerator(name).map(|found| found.owner))
    }

    /// Returns the first enumerator of this name.
    #[must_use]
    pub fn find_enumerator(&self, name: &str) -> Option<NamedEnumerator> {
        let index = self.enumerators.get_or_init(|| EnumeratorIndex::build(self));
        index.find(self, name)
    }

    /// Returns the first function of this name, with its signature; `None` if there is none.
    ///
    /// # Errors
    /// Records that cannot be read.
    pub fn find_function(&self, name: &str) -> Result<Option<BtfFunction<'_>>, BtfReadError> {
        let Some(id) = self.find(name, BtfKind::Func) else {
            return Ok(None);
        };
        let malformed = BtfReadError::Malformed { id, what: "a function without a signature" };
        let Type::Func { proto, linkage, .. } = self.get(id)? else {
            return Err(malformed);
        };
        let Type::FuncProto { result, params } = self.get(proto)? else {
            return Err(malformed);
        };
        Ok(Some(BtfFunction { id, linkage, result, params: params.collect::<Result<_, _>>()? }))
    }

    /// Returns the type without typedefs, `const`, `volatile`, `restrict` and attributes.
    ///
    /// # Errors
    /// Records that cannot be read, or a chain that never ends.
    pub fn resolve(&self, id: TypeId) -> Result<TypeId, LookupError> {
        let mut current = id;
        for _ in 0..MAX_DEPTH {
            match self.get(current)? {
                Type::Typedef { ty, .. } | Type::Modifier(ty) => current = ty,
                _ => return Ok(current),
            }
        }
        Err(LookupError::TooDeep(id))
    }

    /// Returns the size of a type in bytes.
    ///
    /// # Errors
    /// A type without a size, records that cannot be read, or a chain that never ends.
    pub fn size_of(&self, id: TypeId) -> Result<u64, LookupError> {
        let mut elements = 1u64;
        let mut current = id;
        for _ in 0..MAX_DEPTH {
            let resolved = self.resolve(current)?;
            let bytes = match self.get(resolved)? {
                Type::Array { element, len } => {
                    elements = elements.checked_mul(len.into()).ok_or(LookupError::NoSize(id))?;
                    current = element;
                    continue;
                }
                Type::Ptr(_) => 8,
                Type::Int { bytes, .. }
                | Type::Float { bytes, .. }
                | Type::Enum { bytes, .. }
                | Type::Struct { bytes, .. }
                | Type::Union { bytes, .. }
                | Type::Datasec { bytes, .. } => bytes.into(),
                Type::Var { ty, .. } => {
                    current = ty;
                    continue;
                }
                _ => return Err(LookupError::NoSize(id)),
            };
            return elements.checked_mul(bytes).ok_or(LookupError::NoSize(id));
        }
        Err(LookupError::TooDeep(id))
    }

    /// Returns the member of this name of a struct or union, also inside its anonymous members; `None` if
    /// there is none. The struct may have typedefs and modifiers.
    ///
    /// # Errors
    /// Not a struct or union, records that cannot be read, or nesting without end.
    pub fn field(&self, composite: TypeId, name: &str) -> Result<Option<Field>, LookupError> {
        let composite = self.resolve(composite)?;
        let members = self.members(composite)?.ok_or(LookupError::NotComposite(composite))?;
        let mut search = Search { btf: self, root: composite, name, path: Vec::new(), budget: MAX_MEMBERS };
        search.members(members, 0)
    }

    /// Returns the offset of a type's name if it is of this kind.
    fn name_of(&self, id: TypeId, kind: BtfKind) -> Option<u32> {
        self.name_and_kind(id).filter(|&(_, found)| found == Some(kind)).map(|(name, _)| name)
    }

    fn members(&self, id: TypeId) -> Result<Option<Members<'_>>, LookupError> {
        Ok(match self.get(id)? {
            Type::Struct { members, .. } | Type::Union { members, .. } => Some(members),
            _ => None,
        })
    }

    /// Returns the members of an anonymous member's type. A type of an unknown kind has no known members.
    fn inner_members(&self, ty: TypeId) -> Result<Option<Members<'_>>, LookupError> {
        match self.resolve(ty).and_then(|inner| self.members(inner)) {
            Err(LookupError::Read(BtfReadError::UnknownKind { .. })) => Ok(None),
            found => found,
        }
    }
}

struct Search<'a> {
    btf: &'a Btf,
    root: TypeId,
    name: &'a str,
    path: Vec<u32>,
    budget: usize,
}

impl Search<'_> {
    /// Searches the members of a struct that starts at a bit offset from the root.
    fn members(&mut self, members: Members<'_>, base: u32) -> Result<Option<Field>, LookupError> {
        let too_deep = LookupError::TooDeep(self.root);
        if self.path.len() >= MAX_DEPTH {
            return Err(too_deep);
        }
        for (index, member) in (0u32..).zip(members) {
            self.budget = self.budget.checked_sub(1).ok_or(too_deep)?;
            let member = member?;
            let bit_offset = base.checked_add(member.bit_offset).ok_or(too_deep)?;
            self.path.push(index);
            if member.name == self.name {
                let path = std::mem::take(&mut self.path);
                return Ok(Some(Field {
                    ty: member.ty,
                    bit_offset,
                    bitfield_bits: member.bitfield_bits,
                    path,
                }));
            }
            if member.name.is_empty()
                && let Some(members) = self.btf.inner_members(member.ty)?
                && let Some(field) = self.members(members, bit_offset)?
            {
                return Ok(Some(field));
            }
            self.path.pop();
        }
        Ok(None)
    }
}
