//! Semantic checks of the types: references, sizes, members, nesting.

use super::super::super::error::TypeFault;
use super::super::super::limits::{MAX_NESTING, MAX_VALUE_BYTES};
use super::super::super::model::{Member, Type};
use super::{RawType, TypeError};
use crate::object::btf::{FwdKind, TypeId};

/// Checks all records; returns the size of each type, none for types without a size.
pub(super) fn check(records: &[RawType]) -> Result<Vec<Option<u32>>, TypeError> {
    let mut layouts = TypeVisitor::new(records, Edges::ByValue);
    let mut chains = TypeVisitor::new(records, Edges::Chains);
    let ids = || (1u32..).zip(records);
    for (id, record) in ids() {
        check_references(records, record).map_err(|fault| (id, fault))?;
    }
    for (id, _) in ids() {
        layouts.visit(TypeId(id), 0).map_err(|fault| (id, fault))?;
        chains.visit(TypeId(id), 0).map_err(|fault| (id, fault))?;
    }
    let sizes: Vec<_> = layouts.done.iter().map(|found| found.and_then(|(_, size)| size)).collect();
    for (id, record) in ids() {
        check_value_types(&sizes, records, record).map_err(|fault| (id, fault))?;
    }
    Ok(sizes)
}

/// Checks that every reference is to a record of a permitted kind.
fn check_references(records: &[RawType], record: &RawType) -> Result<(), TypeFault> {
    let find = |id: TypeId| records.get((id.0 as usize).wrapping_sub(1));
    let is_type = |id: TypeId| id == TypeId::VOID || matches!(find(id), Some(RawType::Type(_)));
    let require = |id: TypeId, holds: bool| if holds { Ok(()) } else { Err(TypeFault::Reference(id.0)) };
    match record {
        RawType::Type(ty) => ty.references().try_for_each(|id| require(id, is_type(id))),
        RawType::Func { signature, .. } => {
            require(*signature, matches!(find(*signature), Some(RawType::Type(Type::Signature { .. }))))
        }
        RawType::Var { ty, .. } => require(*ty, is_type(*ty)),
        RawType::Section(section) => section.entries.iter().try_for_each(|entry| {
            let found = find(entry.var);
            let is_extern = section.name == ".ksyms" && matches!(found, Some(RawType::Func { .. }));
            require(entry.var, is_extern || matches!(found, Some(RawType::Var { .. })))
        }),
        RawType::Note { ty, component, .. } => {
            let components = match find(*ty) {
                Some(RawType::Type(Type::Composite { members, .. })) => members.len(),
                Some(RawType::Type(Type::Typedef { .. }) | RawType::Var { .. }) => 0,
                Some(RawType::Func { signature, .. }) => match find(*signature) {
                    Some(RawType::Type(Type::Signature { params, .. })) => params.len(),
                    _ => 0,
                },
                _ => return Err(TypeFault::Reference(ty.0)),
            };
            require(*ty, component.is_none_or(|at| usize::from(at) < components))
        }
    }
}

/// Selection of references that a traversal follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edges {
    /// References to contained types. Stops at pointers.
    ByValue,
    /// References through pointers and modifiers. Stops at structs, unions and signatures.
    Chains,
}

/// Nesting depth of a type, and its size if it has one.
type DepthAndSize = (u32, Option<u32>);

/// Recursive traversal of types, bounded by the maximum nesting.
struct TypeVisitor<'a> {
    records: &'a [RawType],
    edges: Edges,
    done: Vec<Option<DepthAndSize>>,
    is_open: Vec<bool>,
}

impl<'a> TypeVisitor<'a> {
    fn new(records: &'a [RawType], edges: Edges) -> Self {
        TypeVisitor { records, edges, done: vec![None; records.len()], is_open: vec![false; records.len()] }
    }

    fn visit(&mut self, id: TypeId, level: u32) -> Result<DepthAndSize, TypeFault> {
        let Some(at) = (id.0 as usize).checked_sub(1) else { return Ok((0, None)) };
        if let Some(Some(found)) = self.done.get(at) {
            return Ok(*found);
        }
        let Some(RawType::Type(ty)) = self.records.get(at) else { return Ok((0, None)) };
        if level > MAX_NESTING {
            return Err(TypeFault::Nesting);
        }
        match self.is_open.get_mut(at) {
            Some(open) if !*open => *open = true,
            _ => return Err(TypeFault::Cycle),
        }
        let found = match self.edges {
            Edges::ByValue => self.contents(ty, level)?,
            Edges::Chains => self.chain(ty, level)?,
        };
        if found.0 > MAX_NESTING {
            return Err(TypeFault::Nesting);
        }
        if let Some(memo) = self.done.get_mut(at) {
            *memo = Some(found);
        }
        Ok(found)
    }

    fn contents(&mut self, ty: &Type, level: u32) -> Result<DepthAndSize, TypeFault> {
        match ty {
            Type::Int { bytes, .. } | Type::Float { bytes, .. } | Type::Enum { bytes, .. } => {
                Ok((0, Some(*bytes)))
            }
            Type::Pointer(_) => Ok((0, Some(8))),
            Type::Forward { .. } | Type::Signature { .. } => Ok((0, None)),
            Type::Modified { ty, .. } | Type::Tagged { ty, .. } | Type::Typedef { ty, .. } => {
                let (depth, size) = self.visit(*ty, level + 1)?;
                Ok((depth + 1, size))
            }
            Type::Array { element, len } => {
                let (depth, size) = self.visit(*element, level + 1)?;
                // Map definitions encode numbers as lengths of arrays that never exist in memory.
                let size = size.ok_or(TypeFault::NoSize)?.checked_mul(*len);
                Ok((depth + 1, size.filter(|&bytes| bytes <= MAX_VALUE_BYTES)))
            }
            Type::Composite { kind, bytes, members, .. } => {
                let mut deepest = 0;
                for (index, member) in (0u32..).zip(members) {
                    let (depth, size) = self.visit(member.ty, level + 1)?;
                    let size = size.ok_or(TypeFault::NoSize)?;
                    self.check_member(*kind, *bytes, index, member, size)?;
                    deepest = deepest.max(depth + 1);
                }
                if *bytes > MAX_VALUE_BYTES {
                    return Err(TypeFault::TooLarge);
                }
                Ok((deepest, Some(*bytes)))
            }
        }
    }

    fn chain(&mut self, ty: &Type, level: u32) -> Result<DepthAndSize, TypeFault> {
        match ty {
            Type::Pointer(ty)
            | Type::Modified { ty, .. }
            | Type::Tagged { ty, .. }
            | Type::Typedef { ty, .. }
            | Type::Array { element: ty, .. } => Ok((self.visit(*ty, level + 1)?.0 + 1, None)),
            _ => Ok((0, None)),
        }
    }

    fn check_member(
        &self,
        kind: FwdKind,
        bytes: u32,
        index: u32,
        member: &Member,
        size: u32,
    ) -> Result<(), TypeFault> {
        let outside = TypeFault::Member(index);
        let (start, struct_bits) = (u64::from(member.bit_offset), u64::from(bytes) * 8);
        let bits = match member.bits {
            0 if !start.is_multiple_of(8) => return Err(outside),
            0 => u64::from(size) * 8,
            bits => {
                let is_number =
                    matches!(self.underlying_type(member.ty), Some(Type::Int { .. } | Type::Enum { .. }));
                if !is_number || u32::from(bits) > size.saturating_mul(8) {
                    return Err(TypeFault::BitField(index));
                }
                bits.into()
            }
        };
        let is_inside = start + bits <= struct_bits;
        if !is_inside || kind == FwdKind::Union && start != 0 { Err(outside) } else { Ok(()) }
    }

    /// Returns the type without modifiers and typedefs. The traversal has proven that the chain ends.
    fn underlying_type(&self, id: TypeId) -> Option<&'a Type> {
        let mut id = id;
        loop {
            match self.records.get((id.0 as usize).checked_sub(1)?)? {
                RawType::Type(
                    Type::Modified { ty, .. } | Type::Tagged { ty, .. } | Type::Typedef { ty, .. },
                ) => {
                    id = *ty;
                }
                RawType::Type(ty) => return Some(ty),
                _ => return None,
            }
        }
    }
}

/// Checks that types have a size where memory is needed, and that a signature has its `...` only at the end.
fn check_value_types(sizes: &[Option<u32>], records: &[RawType], record: &RawType) -> Result<(), TypeFault> {
    let has_size = |id: TypeId| (id.0 as usize).checked_sub(1).and_then(|at| *sizes.get(at)?).is_some();
    match record {
        RawType::Type(Type::Signature { result, params }) => {
            let is_value = |id: TypeId| has_size(id) && !is_array(records, id);
            let last = params.len().saturating_sub(1);
            let dots =
                |at: usize, name: &Option<_>, ty: TypeId| at == last && ty == TypeId::VOID && name.is_none();
            let mut all = params.iter().enumerate();
            if let Some((_, (_, ty))) = all.find(|(at, (name, ty))| !is_value(*ty) && !dots(*at, name, *ty)) {
                return Err(TypeFault::Reference(ty.0));
            }
            let is_result = is_value(*result) || is_void(records, *result);
            if is_result { Ok(()) } else { Err(TypeFault::Reference(result.0)) }
        }
        _ => Ok(()),
    }
}

fn is_array(records: &[RawType], id: TypeId) -> bool {
    let at = (id.0 as usize).wrapping_sub(1);
    matches!(records.get(at), Some(RawType::Type(Type::Array { .. })))
}

/// Returns whether a type is `void`, possibly with modifiers and typedefs.
fn is_void(records: &[RawType], id: TypeId) -> bool {
    let mut id = id;
    while let Some(at) = (id.0 as usize).checked_sub(1) {
        match records.get(at) {
            Some(RawType::Type(
                Type::Modified { ty, .. } | Type::Tagged { ty, .. } | Type::Typedef { ty, .. },
            )) => {
                id = *ty;
            }
            _ => return false,
        }
    }
    true
}
