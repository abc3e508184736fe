//! Members of kernel types, whose offsets and sizes the loader takes from the running kernel (CO-RE).

use crate::defect::narrow;
use std::collections::BTreeMap;

/// A struct or union of the kernel, identified by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreComposite {
    /// The name in the kernel's BTF.
    pub name: String,
    /// Whether it is a union.
    pub is_union: bool,
    /// Whether the name is that of a typedef of an anonymous struct or union.
    pub is_typedef: bool,
}

/// The type of a member, as far as the loader compares it with the kernel's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreType {
    /// An integer or a bool.
    Int {
        /// The size in bytes: 1, 2, 4 or 8.
        bytes: u32,
        /// Whether the type is signed.
        signed: bool,
    },
    /// An enum, of which the loader compares the kind only.
    Enum {
        /// The size in bytes: 1, 2, 4 or 8.
        bytes: u32,
        /// Whether the type is signed.
        signed: bool,
    },
    /// A pointer of 8 bytes.
    Pointer,
    /// An array of this many elements of one type.
    Array(Box<CoreType>, u32),
    /// An embedded struct or union.
    Composite(CoreComposite),
}

/// One step of an access path into a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreStep {
    /// A member of a struct or union, found by its name.
    Member(String, CoreType),
    /// An element of an array.
    Element(u32),
    /// An enumerator of an enum, the only step: the root is the enum.
    Enumerator {
        /// The name in the kernel's BTF.
        name: String,
        /// The value in the kernel that the script is compiled for.
        value: i64,
        /// The size of the enum in bytes: 4 or 8.
        bytes: u32,
        /// Whether the enum has values below zero.
        signed: bool,
    },
}

/// A part of a kernel struct, as a root type and an access path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreField {
    /// The struct at which the path starts.
    pub root: CoreComposite,
    /// The steps from the start of the struct to the part; the first names a member.
    pub steps: Vec<CoreStep>,
}

/// A question to the loader about a part. Source: include/uapi/linux/bpf.h, `enum bpf_core_relo_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CoreQuestion {
    /// The offset in bytes from the start of the struct.
    Offset,
    /// The size in bytes.
    Size,
    /// The size in bytes of the struct itself; the part is all of it.
    TypeSize,
    /// Whether it exists: 1 or 0.
    Exists,
    /// The value of an enumerator.
    Enumerator,
    /// The left shift in bits that moves the part's highest bit to bit 63, after its bytes were loaded as a
    /// 64-bit number.
    ShiftLeft,
    /// The right shift in bits that moves the part back to bit 0.
    ShiftRight,
}

/// The kernel types as the object declares them: only the members that it uses, laid out one after another.
/// The loader corrects all offsets.
#[derive(Debug, Default)]
pub struct CoreTypes {
    /// The members of each struct and union.
    members: BTreeMap<CoreComposite, BTreeMap<String, CoreType>>,
    enums: BTreeMap<String, CoreEnum>,
}

/// An enum, with the enumerators that the object uses.
#[derive(Debug, Default, Clone)]
pub struct CoreEnum {
    /// The size in bytes: 4 or 8.
    pub bytes: u32,
    /// Whether it has values below zero.
    pub signed: bool,
    /// Names and values.
    pub values: BTreeMap<String, i64>,
}

impl CoreTypes {
    /// Adds the struct and the members that a part needs. A member that is used with two types keeps the first.
    pub fn add(&mut self, field: &CoreField) {
        let mut composite = Some(field.root.clone());
        if field.steps.is_empty() {
            self.members.entry(field.root.clone()).or_default();
        }
        for step in &field.steps {
            if let CoreStep::Enumerator { name, value, bytes, signed } = step {
                let owner = self.enums.entry(field.root.name.clone()).or_default();
                (owner.bytes, owner.signed) = (*bytes, *signed);
                owner.values.insert(name.clone(), *value);
            }
            let (CoreStep::Member(name, ty), Some(owner)) = (step, &composite) else { continue };
            let members = self.members.entry(owner.clone()).or_default();
            members.entry(name.clone()).or_insert_with(|| ty.clone());
            let mut element = ty;
            while let CoreType::Array(inner, _) = element {
                element = inner;
            }
            composite = match element {
                CoreType::Composite(inner) => Some(inner.clone()),
                _ => None,
            };
        }
    }

    /// The enum of a name.
    pub fn enumeration(&self, name: &str) -> CoreEnum {
        self.enums.get(name).cloned().unwrap_or_default()
    }

    /// The members of a struct or union in order, with their offsets in bytes.
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

    /// The size of a type in bytes.
    pub fn bytes(&self, ty: &CoreType) -> u32 {
        match ty {
            CoreType::Int { bytes, .. } | CoreType::Enum { bytes, .. } => *bytes,
            CoreType::Pointer => 8,
            CoreType::Array(element, len) => self.bytes(element).saturating_mul(*len),
            CoreType::Composite(composite) => self.composite_bytes(composite),
        }
    }

    /// The size of a struct or union in bytes.
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

    /// The offset and size of a part in bytes, and its access path as indices into the object's types.
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
                    path.push(narrow(index));
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
