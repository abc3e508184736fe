//! `.BTF`: the records, and whether they make sense together.
//!
//! In: the section. Out: [`RawTypes`], still with the ids of the file; [`select`] then takes what the object uses and
//! numbers it again.
//!
//! Source: Documentation/bpf/btf.rst and kernel/bpf/btf.c, the `btf_*_check_meta` functions, v6.18.

mod check;
mod record;
pub(super) mod select;
mod strings;

use std::collections::HashMap;

use super::super::error::{ReadError, Reason, TypeFault, at_most};
use super::super::limits::MAX_TYPE_BYTES;
use super::super::model::Type;
use super::super::name::Name;
use super::super::table::Attribute;
use super::bytes::{slice, u8_at, u16_at, u32_at};
use super::elf::Section;
use crate::btf::{FuncLinkage, TypeId, VarLinkage};

pub(super) use strings::Strings;

/// Bytes of `struct btf_header`, before Linux 7.1 the only size.
const HEADER_BYTES: u32 = 24;
/// Bytes of one that names a section of layouts.
const LAYOUT_HEADER_BYTES: u32 = 32;
/// `BTF_MAGIC`
const MAGIC: u16 = 0xeb9f;

/// All records of an object, checked. Ids are those of the file.
pub(super) struct RawTypes<'a> {
    pub records: Vec<RawType>,
    /// Bytes from the section's start to each record.
    pub offsets: Vec<u32>,
    pub strings: Strings<'a>,
    /// The size of each type; none if it has none.
    pub sizes: Vec<Option<u32>>,
    /// The attributes of each record that has some.
    notes: HashMap<TypeId, Vec<(Option<u16>, Attribute)>>,
    /// The records of sections, by name.
    by_name: HashMap<String, usize>,
}

/// A record.
pub(super) enum RawType {
    Type(Type),
    Func { name: Name, signature: TypeId, linkage: FuncLinkage },
    Var { name: Name, ty: TypeId, linkage: VarLinkage },
    Section(RawSection),
    Note { attribute: Attribute, ty: TypeId, component: Option<u16> },
}

/// The variables of a section.
pub(super) struct RawSection {
    pub name: String,
    pub entries: Vec<RawEntry>,
}

/// A variable of a section.
pub(super) struct RawEntry {
    /// A `VAR`; of `.ksyms` also a `FUNC`.
    pub var: TypeId,
    pub offset: u32,
    pub bytes: u32,
    /// Where the offset lies in the section: a relocation may belong to it.
    pub reloc_offset: u64,
}

impl<'a> RawTypes<'a> {
    /// Reads and checks `.BTF`.
    pub(super) fn read(section: &Section<'a>) -> Result<RawTypes<'a>, ReadError> {
        let error = |offset: u64, reason| ReadError::section(section.name, offset, reason);
        at_most("bytes of types", section.bytes.len(), MAX_TYPE_BYTES).map_err(|reason| error(0, reason))?;
        let (types, strings) = header(section.bytes, HEADER_BYTES..=HEADER_BYTES).map_err(|r| error(0, r))?;
        let start = HEADER_BYTES;
        let mut strings = Strings::new(strings).map_err(|reason| error(0, reason))?;
        let (records, offsets) = record::read(types, start, &mut strings)
            .map_err(|(offset, reason)| error(offset.into(), reason))?;
        let sizes = check::check(&records).map_err(|(id, fault)| {
            let at = (id as usize).checked_sub(1).and_then(|index| offsets.get(index));
            error(at.copied().unwrap_or_default().into(), Reason::Type { id, fault })
        })?;
        let mut notes: HashMap<_, Vec<_>> = HashMap::new();
        let mut by_name = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            match record {
                RawType::Note { attribute, ty, component } => {
                    notes.entry(*ty).or_default().push((*component, attribute.clone()));
                }
                RawType::Section(section) => _ = by_name.insert(section.name.clone(), at),
                _ => {}
            }
        }
        Ok(RawTypes { records, offsets, strings, sizes, notes, by_name })
    }

    /// The record of an id.
    pub(super) fn get(&self, id: TypeId) -> Option<&RawType> {
        self.records.get((id.0 as usize).checked_sub(1)?)
    }

    /// The type of an id; none for `void` and other records.
    pub(super) fn ty(&self, id: TypeId) -> Option<&Type> {
        match self.get(id)? {
            RawType::Type(ty) => Some(ty),
            _ => None,
        }
    }

    /// A type without modifiers, attributes and typedefs. It ends: cycles were refused.
    pub(super) fn resolve(&self, id: TypeId) -> Option<(TypeId, &Type)> {
        let mut id = id;
        loop {
            match self.ty(id)? {
                Type::Modified { ty, .. } | Type::Tagged { ty, .. } | Type::Typedef { ty, .. } => id = *ty,
                ty => return Some((id, ty)),
            }
        }
    }

    /// The size of a type.
    pub(super) fn bytes(&self, id: TypeId) -> Option<u32> {
        *self.sizes.get((id.0 as usize).checked_sub(1)?)?
    }

    /// The variables of the section of a name.
    pub(super) fn section(&self, name: &str) -> Option<&RawSection> {
        match self.records.get(*self.by_name.get(name)?)? {
            RawType::Section(section) => Some(section),
            _ => None,
        }
    }

    /// The sections, with the places of their records.
    pub(super) fn sections(&self) -> impl Iterator<Item = (u64, &RawSection)> {
        self.records.iter().zip(&self.offsets).filter_map(|(record, &at)| match record {
            RawType::Section(section) => Some((u64::from(at), section)),
            _ => None,
        })
    }

    /// The attributes of a record, sorted.
    pub(super) fn notes(&self, of: TypeId) -> Vec<(Option<u16>, Attribute)> {
        let mut notes = self.notes.get(&of).cloned().unwrap_or_default();
        notes.sort_unstable();
        notes.dedup();
        notes
    }
}

/// The types and the strings after a header.
fn header(bytes: &[u8], sizes: std::ops::RangeInclusive<u32>) -> Result<(&[u8], &[u8]), Reason> {
    let short = Reason::TypeHeader("the header is cut off");
    if u16_at(bytes, 0) != Some(MAGIC) || u8_at(bytes, 2) != Some(1) || u8_at(bytes, 3) != Some(0) {
        return Err(Reason::TypeHeader("the magic number, version or flags are others"));
    }
    let field = |at: usize| u32_at(bytes, at).ok_or(short.clone());
    let header_bytes = field(4)?;
    if !sizes.contains(&header_bytes) {
        return Err(Reason::TypeHeader(match header_bytes {
            LAYOUT_HEADER_BYTES => {
                "the header has 32 bytes, with a section of layouts as since Linux 7.1: build the object without one"
            }
            _ => "the header has another size",
        }));
    }
    let (type_start, type_bytes, string_start, string_bytes) =
        (field(8)?, field(12)?, field(16)?, field(20)?);
    // The types come first and the strings follow at once: what lies between would be read by nobody.
    let is_plain = type_start == 0 && string_start == type_bytes && type_bytes.is_multiple_of(4);
    if !is_plain {
        return Err(Reason::TypeHeader("the types and the strings do not follow the header in this order"));
    }
    let part = |start: u32, len: u32| slice(bytes, u64::from(header_bytes) + u64::from(start), len.into());
    let types = part(0, type_bytes).ok_or(Reason::Outside("the list of types"))?;
    let strings = part(string_start, string_bytes).ok_or(Reason::Outside("the strings"))?;
    let end = u64::from(header_bytes) + u64::from(string_start) + u64::from(string_bytes);
    if end != bytes.len() as u64 {
        return Err(Reason::TypeHeader("bytes follow the strings"));
    }
    Ok((types, strings))
}

/// The number of a type that a fault is about.
type TypeError = (u32, TypeFault);
