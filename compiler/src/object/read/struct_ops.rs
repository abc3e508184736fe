//! Parsing of struct_ops variables.
//!
//! Source: tools/lib/bpf/libbpf.c, `init_struct_ops_maps`, `bpf_object__collect_st_ops_relos` and
//! `bpf_map__init_kern_struct_ops`, v1.7.

use std::collections::HashMap;

use super::super::error::{ReadError, Reason, at_most};
use super::super::limits::MAX_ITEMS;
use super::super::model::{Member, ProgramId, StructOps, StructOpsMember, StructOpsValue, Type};
use super::super::name::Name;
use super::btf::RawTypes;
use super::btf::select::Selection;
use super::bytes::slice;
use super::data::{self, type_error};
use super::elf::{Elf, Role, Section, SymbolKind, SymbolSection};
use crate::object::btf::{FwdKind, VarLinkage};

/// Parses all struct_ops variables. `program` returns the struct_ops program that starts at an offset.
pub(super) fn read(
    elf: &Elf<'_>,
    types: Option<&RawTypes<'_>>,
    selection: &mut Selection<'_, '_>,
    program: &dyn Fn(usize, u64) -> Option<ProgramId>,
) -> Result<Vec<StructOps>, ReadError> {
    let mut found = Vec::new();
    for (at, section) in elf.sections.iter().enumerate() {
        let Role::StructOps { by_link, autocreate } = section.role else { continue };
        if section.size == 0 {
            continue;
        }
        let error = || {
            ReadError::section(section.name, 0, Reason::TypeHeader("its variables have no types in `.BTF`"))
        };
        let types = types.ok_or_else(error)?;
        let listed = types.section(section.name).ok_or_else(error)?;
        let limit =
            at_most("structs of the kernel", found.len().saturating_add(listed.entries.len()), MAX_ITEMS);
        limit.map_err(|reason| ReadError::section(section.name, 0, reason))?;
        let variables = elf.symbols_of(at).filter(|(_, symbol)| symbol.kind == SymbolKind::Variable);
        let symbols: HashMap<u64, &[u8]> = variables.map(|(_, symbol)| (symbol.value, symbol.name)).collect();
        let mut used = 0;
        let mut entries = Vec::with_capacity(listed.entries.len());
        for entry in &listed.entries {
            entries.push((data::offset(elf, at, entry)?, entry));
        }
        entries.sort_by_key(|(offset, _)| *offset);
        let mut last_end = 0;
        for (offset, entry) in entries {
            let (name, ty, linkage) = data::variable(types, entry)?;
            let wrong = |reason| type_error(entry, Reason::StructOps { name: name.to_string(), reason });
            let resolved = types.resolve(ty);
            let Some((id, Type::Composite { kind: FwdKind::Struct, name: Some(ops), bytes, members })) =
                resolved
            else {
                return Err(wrong("its type is not a named struct"));
            };
            let end = u64::from(offset) + u64::from(entry.bytes);
            if u64::from(offset) < last_end || *bytes == 0 || *bytes != entry.bytes || end > section.size {
                return Err(wrong("it shares bytes with another one, or is larger or smaller than its type"));
            }
            last_end = end;
            let symbol = symbols.get(&u64::from(offset)).copied();
            if linkage == VarLinkage::Extern || symbol != Some(name.as_str().as_bytes()) {
                return Err(wrong("no symbol of the section stands for it"));
            }
            let name = Name::new(name.as_str()).map_err(|reason| type_error(entry, reason.into()))?;
            let filled = Filled { elf, at, section, types, start: offset, program, used: &mut used };
            let members = filled.members(members, *bytes, &name)?;
            found.push(StructOps {
                name,
                ops: ops.clone(),
                ty: selection.keep(id),
                by_link,
                autocreate,
                members,
            });
        }
        if used != elf.relocations.of(at).count() {
            let reason = Reason::Relocation("not of a member that is a function");
            return Err(ReadError::section(section.name, 0, reason));
        }
    }
    Ok(found)
}

struct Filled<'f, 'a> {
    elf: &'f Elf<'a>,
    at: usize,
    section: &'f Section<'a>,
    types: &'f RawTypes<'a>,
    start: u32,
    program: &'f dyn Fn(usize, u64) -> Option<ProgramId>,
    /// Number of relocations that belong to members.
    used: &'f mut usize,
}

impl Filled<'_, '_> {
    fn members(self, members: &[Member], bytes: u32, name: &Name) -> Result<Vec<StructOpsMember>, ReadError> {
        let mut found = Vec::with_capacity(members.len());
        let mut end = 0;
        for member in members {
            let offset = member.bit_offset / 8;
            let member_offset = u64::from(self.start) + u64::from(offset);
            let error = |reason| {
                ReadError::section(
                    self.section.name,
                    member_offset,
                    Reason::StructOps { name: name.to_string(), reason },
                )
            };
            let size = self.types.bytes(member.ty).ok_or_else(|| error("a member has no size"))?;
            if member.bits != 0 || offset < end {
                return Err(error("a member is a bit field, or shares bytes with another one"));
            }
            self.require_zeros(end, offset).map_err(error)?;
            end = offset + size;
            let content = slice(self.section.bytes, member_offset, size.into())
                .ok_or_else(|| error("a member lies outside"))?;
            let pointee = match self.types.resolve(member.ty) {
                Some((_, Type::Pointer(to))) => Some(*to),
                _ => None,
            };
            let is_zero = content.iter().all(|&byte| byte == 0);
            if pointee.is_some() && !is_zero {
                return Err(error("a member is a pointer with a value"));
            }
            let value = match (self.elf.relocations.at(self.at, member_offset), pointee) {
                (None, _) => StructOpsValue::Bytes(content.to_vec()),
                (Some(relocation), Some(to))
                    if matches!(self.types.resolve(to), Some((_, Type::Signature { .. }))) =>
                {
                    *self.used += 1;
                    let symbol = self.elf.symbols.get(relocation.symbol);
                    let program = symbol.and_then(|symbol| match symbol.section {
                        SymbolSection::Section(section) => (self.program)(section, symbol.value),
                        SymbolSection::Undefined | SymbolSection::Absolute => None,
                    });
                    StructOpsValue::Program(
                        program
                            .ok_or_else(|| error("a member is not a program for structs of the kernel"))?,
                    )
                }
                (Some(_), _) => return Err(error("a member that is not a function has an address")),
            };
            found.push(StructOpsMember { name: member.name.clone(), offset, value });
        }
        let error = |reason| {
            let reason = Reason::StructOps { name: name.to_string(), reason };
            ReadError::section(self.section.name, self.start.into(), reason)
        };
        self.require_zeros(end, bytes).map_err(error)?;
        Ok(found)
    }

    /// Checks that the padding between members is zero.
    fn require_zeros(&self, from: u32, to: u32) -> Result<(), &'static str> {
        let start = u64::from(self.start) + u64::from(from);
        let between = slice(self.section.bytes, start, to.saturating_sub(from).into()).unwrap_or_default();
        if between.iter().all(|&byte| byte == 0) {
            Ok(())
        } else {
            Err("bytes between its members are not zero")
        }
    }
}
