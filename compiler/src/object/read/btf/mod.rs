//! `.BTF`: parsing and checking of the type records.
//!
//! In: the section. Out: [`RawTypes`], still with the ids of the file; [`select`] then picks the types that
//! the object uses and renumbers them.
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
use crate::object::btf::{FuncLinkage, TypeId, VarLinkage};

pub(super) use strings::Strings;

/// Size in bytes of `struct btf_header`; the only one before Linux 7.1.
const HEADER_BYTES: u32 = 24;
/// Size in bytes of a header with a layout section.
const LAYOUT_HEADER_BYTES: u32 = 32;
/// `BTF_MAGIC`
const MAGIC: u16 = 0xeb9f;

/// All checked records of an object, with the ids of the file.
pub(super) struct RawTypes<'a> {
    pub records: Vec<RawType>,
    /// Offset in bytes of each record from the section's start.
    pub offsets: Vec<u32>,
    pub strings: Strings<'a>,
    /// Size of each type in bytes; none if it has no size.
    pub sizes: Vec<Option<u32>>,
    /// Attributes of each annotated record.
    notes: HashMap<TypeId, Vec<(Option<u16>, Attribute)>>,
    /// Positions of the section records, by name.
    by_name: HashMap<String, usize>,
}

/// A parsed record.
pub(super) enum RawType {
    Type(Type),
    Func { name: Name, signature: TypeId, linkage: FuncLinkage },
    Var { name: Name, ty: TypeId, linkage: VarLinkage },
    Section(RawSection),
    Note { attribute: Attribute, ty: TypeId, component: Option<u16> },
}

/// Variables of a section (`DATASEC`).
pub(super) struct RawSection {
    pub name: String,
    pub entries: Vec<RawEntry>,
}

/// A variable of a section.
pub(super) struct RawEntry {
    /// A `VAR`; in `.ksyms` also a `FUNC`.
    pub var: TypeId,
    pub offset: u32,
    pub bytes: u32,
    /// Offset in `.BTF` of the entry's offset field, to which a relocation may apply.
    pub reloc_offset: u64,
}

impl<'a> RawTypes<'a> {
    /// Parses and checks `.BTF`.
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

    /// Returns the record with an id.
    pub(super) fn get(&self, id: TypeId) -> Option<&RawType> {
        self.records.get((id.0 as usize).checked_sub(1)?)
    }

    /// Returns the type with an id; none for `void` and other records.
    pub(super) fn ty(&self, id: TypeId) -> Option<&Type> {
        match self.get(id)? {
            RawType::Type(ty) => Some(ty),
            _ => None,
        }
    }

    /// Returns a type without modifiers, attributes and typedefs. It terminates: cycles were rejected.
    pub(super) fn resolve(&self, id: TypeId) -> Option<(TypeId, &Type)> {
        let mut id = id;
        loop {
            match self.ty(id)? {
                Type::Modified { ty, .. } | Type::Tagged { ty, .. } | Type::Typedef { ty, .. } => id = *ty,
                ty => return Some((id, ty)),
            }
        }
    }

    /// Returns the size of a type in bytes.
    pub(super) fn bytes(&self, id: TypeId) -> Option<u32> {
        *self.sizes.get((id.0 as usize).checked_sub(1)?)?
    }

    /// Returns the variables of the section with this name.
    pub(super) fn section(&self, name: &str) -> Option<&RawSection> {
        match self.records.get(*self.by_name.get(name)?)? {
            RawType::Section(section) => Some(section),
            _ => None,
        }
    }

    /// Returns the sections, each with the offset of its record.
    pub(super) fn sections(&self) -> impl Iterator<Item = (u64, &RawSection)> {
        self.records.iter().zip(&self.offsets).filter_map(|(record, &at)| match record {
            RawType::Section(section) => Some((u64::from(at), section)),
            _ => None,
        })
    }

    /// Returns the attributes of a record, sorted.
    pub(super) fn notes(&self, of: TypeId) -> Vec<(Option<u16>, Attribute)> {
        let mut notes = self.notes.get(&of).cloned().unwrap_or_default();
        notes.sort_unstable();
        notes.dedup();
        notes
    }
}

/// Splits a section into its types and its strings.
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
                "the header has 32 bytes, with a section of layouts as since Linux 7.1: build the object \
                 without one"
            }
            _ => "the header has another size",
        }));
    }
    let (type_start, type_bytes, string_start, string_bytes) =
        (field(8)?, field(12)?, field(16)?, field(20)?);
    // The strings must follow the types directly: nothing would read bytes between them.
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

/// Id and fault of a type.
type TypeError = (u32, TypeFault);
