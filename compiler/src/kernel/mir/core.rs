//! Members of the kernel's types, whose places and sizes the loader takes from the kernel that runs.

use std::collections::BTreeMap;

/// A struct or union of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreComposite {
    /// Its name there.
    pub name: String,
    /// Its members lie over each other.
    pub is_union: bool,
    /// The name is that of a typedef, and it has none itself.
    pub is_typedef: bool,
}

/// What a member is, as far as the loader compares it with the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreType {
    /// An integer or a bool.
    Int {
        /// 1, 2, 4 or 8.
        bytes: u32,
        /// It has a sign.
        signed: bool,
    },
    /// An enum.
    Enum {
        /// 1, 2, 4 or 8.
        bytes: u32,
        /// It has a sign.
        signed: bool,
    },
    /// An address.
    Pointer,
    /// So many of one type.
    Array(Box<CoreType>, u32),
    /// A struct or union within the struct.
    Composite(CoreComposite),
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreStep {
    /// A member of a struct or union, found by its name.
    Member(String, CoreType),
    /// An element of an array.
    Element(u32),
}

/// A part of a struct of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreField {
    /// The struct.
    pub root: CoreComposite,
    /// From its start to the part; the first names a member.
    pub steps: Vec<CoreStep>,
}

/// What the loader is asked about a part. Source: include/uapi/linux/bpf.h, `enum bpf_core_relo_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreQuestion {
    /// Bytes from the start of the struct.
    Offset,
    /// Its bytes.
    Size,
    /// By how much its bytes, loaded as a 64-bit number, are shifted to the left so that its highest bit is the highest.
    ShiftLeft,
    /// By how much they are then shifted back.
    ShiftRight,
}

/// What a type of the kernel is in an object that uses some members of it: laid out one after another, since the loader
/// knows better.
#[derive(Debug, Default)]
pub struct CoreTypes {
    /// The members of each struct and union.
    members: BTreeMap<CoreComposite, BTreeMap<String, CoreType>>,
}

impl CoreTypes {
    /// Takes in the members that a part needs. A member that is used with two types keeps the first.
    pub fn add(&mut self, field: &CoreField) {
        let mut composite = Some(field.root.clone());
        for step in &field.steps {
            let (CoreStep::Member(name, ty), Some(owner)) = (step, &composite) else { continue };
            let members = self.members.entry(owner.clone()).or_default();
            members.entry(name.clone()).or_insert_with(|| ty.clone());
            composite = match ty {
                CoreType::Composite(inner) => Some(inner.clone()),
                _ => None,
            };
        }
    }

    /// The members of a struct or union in order, with their places in bytes.
    pub fn members(&self, composite: &CoreComposite) -> Vec<(&str, &CoreType, u32)> {
        let mut end = 0u32;
        let members = self.members.get(composite).into_iter().flatten();
        members
            .map(|(name, ty)| {
                let at = if composite.is_union { 0 } else { end.next_multiple_of(self.align(ty)) };
                end = at + self.bytes(ty);
                (name.as_str(), ty, at)
            })
            .collect()
    }

    /// The bytes of a type.
    pub fn bytes(&self, ty: &CoreType) -> u32 {
        match ty {
            CoreType::Int { bytes, .. } | CoreType::Enum { bytes, .. } => *bytes,
            CoreType::Pointer => 8,
            CoreType::Array(element, len) => self.bytes(element).saturating_mul(*len),
            CoreType::Composite(composite) => self.composite_bytes(composite),
        }
    }

    /// The bytes of a struct or union.
    pub fn composite_bytes(&self, composite: &CoreComposite) -> u32 {
        let ends = self.members(composite).into_iter().map(|(_, ty, at)| at + self.bytes(ty));
        ends.max().unwrap_or(0).next_multiple_of(8)
    }

    fn align(&self, ty: &CoreType) -> u32 {
        match ty {
            CoreType::Array(element, _) => self.align(element),
            CoreType::Int { bytes, .. } | CoreType::Enum { bytes, .. } => *bytes,
            CoreType::Pointer | CoreType::Composite(_) => 8,
        }
    }

    /// The place of a part in bytes, its size, and the indices that name it in the object's types.
    pub fn find(&self, field: &CoreField) -> (u32, u32, Vec<u32>) {
        let mut offset = 0;
        let mut path = vec![0];
        let mut ty = CoreType::Composite(field.root.clone());
        for step in &field.steps {
            match (step, &ty) {
                (CoreStep::Member(name, _), CoreType::Composite(composite)) => {
                    let members = self.members(composite);
                    let found = members.iter().position(|(member, ..)| member == name);
                    let Some((index, (_, member, at))) = found.map(|index| (index, members[index])) else {
                        continue;
                    };
                    offset += at;
                    path.push(u32::try_from(index).unwrap_or(u32::MAX));
                    ty = member.clone();
                }
                (CoreStep::Element(index), CoreType::Array(element, _)) => {
                    offset += index * self.bytes(element);
                    path.push(*index);
                    ty = (**element).clone();
                }
                _ => {}
            }
        }
        (offset, self.bytes(&ty), path)
    }
}
