//! Fields of records, and the values that they take in valid objects.
//!
//! Source: the ELF specification (gABI, chapter 4); Documentation/bpf/btf.rst, v6.18.

use std::collections::BTreeSet;

use super::Part;
use super::layout::{Layout, word};

/// A number in a record.
pub(super) struct Field {
    pub part: Part,
    /// Offset in the file.
    pub at: usize,
    /// Size in bytes: 1, 4 or 8.
    pub bytes: usize,
    pub values: FieldValues,
}

/// Other values of a field that often keep the object valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValues {
    /// The values of fields of the same meaning.
    Like(Meaning),
    /// The old value with these bits replaced by those of one of the numbers.
    Bits(u64, &'static [u64]),
    /// The old value plus or minus 1, 2, 4 or 8 times this.
    Steps(u64),
}

/// Meaning of a field whose values are exchanged with those of others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Name of a section of this type.
    SectionName(usize),
    /// Name of a symbol with this type and binding.
    SymbolName(u8),
    /// Target of a relocation of this kind in this section.
    Target(usize, usize),
    /// Name of a type of this kind.
    TypeName(usize),
    /// The type that a type of this kind refers to.
    Referent(usize),
    /// Name of a member, parameter or enumerator of a type of this kind.
    ElementName(usize),
    /// Type of a member or parameter of a type of this kind.
    ElementType(usize),
    /// Type of the member with the name at this offset, of a map's definition.
    MapMember(usize),
    /// Type of a function with instructions.
    FunctionType,
    /// Text or file of a source line.
    LineText,
    /// Root type of a CO-RE record.
    Root,
    /// Access string of a CO-RE record of this kind.
    Access(usize),
}

impl Field {
    /// Returns the field's value; none if it lies outside of the file.
    pub(super) fn read(&self, object: &[u8]) -> Option<u64> {
        let bytes = object.get(self.at..)?.get(..self.bytes)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Writes a value, cut to the field's size.
    pub(super) fn write(&self, object: &mut [u8], value: u64) {
        let target = object.iter_mut().skip(self.at).take(self.bytes);
        target.zip(value.to_le_bytes()).for_each(|(target, byte)| *target = byte);
    }
}

/// Sizes, counts and flags as they occur in definitions of maps.
const NUMBERS: &[u64] = &[0, 1, 2, 3, 4, 5, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024, 4096, 8192, 65536];

impl Layout {
    fn number(&mut self, part: Part, at: usize, bytes: usize, values: FieldValues) {
        self.fields.push(Field { part, at, bytes, values });
    }

    fn word(&mut self, part: Part, at: usize, values: FieldValues) {
        self.number(part, at, 4, values);
    }
}

/// Adds the fields of the file's header that may differ: the bytes after the version, and the flags.
pub(super) fn file_header(layout: &mut Layout) {
    layout.number(Part::Header, 8, 1, FieldValues::Steps(1));
    layout.word(Part::Header, 48, FieldValues::Steps(1));
}

/// Adds the fields of a section's header.
pub(super) fn section_header(layout: &mut Layout, header: usize, ty: usize) {
    /// `SHF_WRITE`, `SHF_ALLOC`, `SHF_MERGE`, `SHF_STRINGS`, `SHF_INFO_LINK` and `SHF_GNU_RETAIN`.
    const FLAGS: &[u64] = &[0, 1, 2, 3, 0x10, 0x20, 0x32, 0x40, 0x20_0000];
    const ALIGNMENTS: &[u64] = &[0, 1, 2, 4, 8, 16, 64, 4096];
    layout.word(Part::Header, header, FieldValues::Like(Meaning::SectionName(ty)));
    layout.number(Part::Header, header + 8, 8, FieldValues::Bits(!4, FLAGS));
    layout.number(Part::Header, header + 48, 8, FieldValues::Bits(u64::MAX, ALIGNMENTS));
    // Symbols and relocations have entries of a fixed size.
    if !matches!(ty, 2 | 9) {
        layout.number(Part::Header, header + 56, 8, FieldValues::Bits(u64::MAX, NUMBERS));
        layout.word(Part::Header, header + 44, FieldValues::Steps(1));
    }
    // The size of a section without content may change alone.
    if ty == 8 {
        for _ in 0..8 {
            layout.number(Part::Header, header + 32, 8, FieldValues::Steps(8));
        }
    }
}

/// Adds the fields of a symbol table.
pub(super) fn symbols(layout: &mut Layout, object: &[u8], start: usize, end: usize) {
    const BINDINGS: &[u64] = &[0, 0x10, 0x20];
    const VISIBILITIES: &[u64] = &[0, 1, 2, 3];
    // The first symbol is empty.
    for at in (start + 24..end).step_by(24) {
        let info = object.get(at + 4).copied().unwrap_or_default();
        layout.word(Part::Symbol, at, FieldValues::Like(Meaning::SymbolName(info)));
        layout.number(Part::Symbol, at + 4, 1, FieldValues::Bits(0xf0, BINDINGS));
        layout.number(Part::Symbol, at + 5, 1, FieldValues::Bits(0xff, VISIBILITIES));
        layout.number(Part::Symbol, at + 16, 8, FieldValues::Bits(u64::MAX, NUMBERS));
        layout.number(Part::Symbol, at + 16, 8, FieldValues::Steps(1));
    }
}

/// Adds the targets of a relocation section, whose type is in the lower half of `r_info`.
pub(super) fn relocations(layout: &mut Layout, object: &[u8], section: usize, start: usize, end: usize) {
    for at in (start..end).step_by(16) {
        let kind = word(object, at + 8).unwrap_or_default();
        layout.word(Part::Relocation, at + 12, FieldValues::Like(Meaning::Target(section, kind)));
    }
}

/// Adds the numbers of the definitions in `maps`: kind, sizes, entries and flags.
pub(super) fn numbered_maps(layout: &mut Layout, start: usize, end: usize) {
    for at in (start..end).step_by(4) {
        layout.word(Part::Map, at, FieldValues::Bits(u64::MAX, NUMBERS));
    }
}

/// Numbers of the kinds. Source: include/uapi/linux/btf.h, v6.18.
mod kind {
    pub const INT: usize = 1;
    pub const PTR: usize = 2;
    pub const ARRAY: usize = 3;
    pub const STRUCT: usize = 4;
    pub const UNION: usize = 5;
    pub const ENUM: usize = 6;
    pub const FWD: usize = 7;
    pub const TYPEDEF: usize = 8;
    pub const VOLATILE: usize = 9;
    pub const CONST: usize = 10;
    pub const RESTRICT: usize = 11;
    pub const FUNC: usize = 12;
    pub const FUNC_PROTO: usize = 13;
    pub const VAR: usize = 14;
    pub const DATASEC: usize = 15;
    pub const FLOAT: usize = 16;
    pub const DECL_TAG: usize = 17;
    pub const TYPE_TAG: usize = 18;
    pub const ENUM64: usize = 19;
}

/// A record of `.BTF`.
#[derive(Clone, Copy)]
struct TypeRecord {
    /// Offset in the file.
    at: usize,
    kind: usize,
    elements: usize,
    /// Size in bytes, or the id of a type.
    size_or_type: usize,
}

impl TypeRecord {
    fn read(object: &[u8], at: usize) -> Option<TypeRecord> {
        let info = word(object, at + 4)?;
        let (kind, elements) = (info >> 24 & 0x1f, info & 0xffff);
        Some(TypeRecord { at, kind, elements, size_or_type: word(object, at + 8)? })
    }

    /// Returns the size of one element in bytes, and the number of elements.
    fn tail(&self) -> (usize, usize) {
        match self.kind {
            kind::INT | kind::VAR | kind::DECL_TAG => (4, 1),
            kind::ARRAY => (12, 1),
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => (12, self.elements),
            kind::ENUM | kind::FUNC_PROTO => (8, self.elements),
            _ => (0, 0),
        }
    }

    fn end(&self) -> usize {
        let (bytes, count) = self.tail();
        self.at + 12 + bytes * count
    }

    /// Returns the offsets of the elements.
    fn elements(&self) -> impl Iterator<Item = usize> + use<> {
        let (bytes, count) = self.tail();
        let first = self.at + 12;
        (0..count).map(move |index| first + index * bytes)
    }
}

/// Adds `.BTF`: its header, the records and the strings.
pub(super) fn types(layout: &mut Layout, object: &[u8], start: usize, end: usize) -> Option<()> {
    let first = start + word(object, start + 4)?;
    let strings = first.checked_add(word(object, start + 12)?)?.min(end);
    layout.push(Part::Header, start, first);
    let mut records = Vec::new();
    let mut at = first;
    while at < strings {
        let record = TypeRecord::read(object, at)?;
        at = record.end();
        records.push(record);
    }
    let maps = map_types(object, &records, strings);
    for (index, record) in records.iter().enumerate() {
        let part = if maps.contains(&index) { Part::Map } else { Part::Type };
        layout.push(part, record.at, record.end());
        type_fields(layout, object, part, record);
    }
    layout.push(Part::String, strings, end);
    Some(())
}

/// Returns the positions of the records that define maps: the section `.maps`, its variables, their structs,
/// and the pointers and arrays of the members.
fn map_types(object: &[u8], records: &[TypeRecord], strings: usize) -> BTreeSet<usize> {
    let name = |record: &TypeRecord| {
        let text = object.get(strings + word(object, record.at)?..)?;
        text.split(|&byte| byte == 0).next()
    };
    let is_maps = |record: &TypeRecord| record.kind == kind::DATASEC && name(record) == Some(b".maps");
    let mut found = BTreeSet::new();
    let mut pending: Vec<usize> =
        records.iter().enumerate().filter(|(_, record)| is_maps(record)).map(|(index, _)| index).collect();
    while let Some(index) = pending.pop() {
        let Some(record) = records.get(index).filter(|_| found.insert(index)) else { continue };
        let mut visit = |id: usize, kinds: &[usize]| {
            let index = id.wrapping_sub(1);
            if records.get(index).is_some_and(|record| kinds.contains(&record.kind)) {
                pending.push(index);
            }
        };
        match record.kind {
            kind::DATASEC => {
                record.elements().for_each(|at| visit(word(object, at).unwrap_or_default(), &[kind::VAR]));
            }
            kind::STRUCT => {
                let members = record.elements().filter_map(|at| word(object, at + 4));
                members.for_each(|id| visit(id, &[kind::PTR, kind::ARRAY]));
            }
            kind::VAR | kind::TYPEDEF => visit(record.size_or_type, &[kind::STRUCT, kind::TYPEDEF]),
            // The pointee of `key` and `value` is a type of the program.
            kind::PTR => visit(record.size_or_type, &[kind::ARRAY]),
            _ => {}
        }
    }
    found
}

/// Kinds that only refer to another type.
const REFERENCES: &[u64] = &[(2 << 24), (9 << 24), (10 << 24), (11 << 24)];

fn type_fields(layout: &mut Layout, object: &[u8], part: Part, record: &TypeRecord) {
    let TypeRecord { at, kind, .. } = *record;
    let is_map = part == Part::Map;
    let kind_bits = 0x1f00_0000;
    let has_name = word(object, at).is_some_and(|name| name != 0);
    if has_name && !is_map {
        layout.word(part, at, FieldValues::Like(Meaning::TypeName(kind)));
    }
    match kind {
        kind::INT => {
            layout.word(part, at + 12, FieldValues::Bits(0xff00_0000, &[0, 1 << 24, 2 << 24, 4 << 24]));
        }
        kind::PTR | kind::CONST | kind::VOLATILE | kind::RESTRICT if !is_map => {
            layout.word(part, at + 4, FieldValues::Bits(kind_bits, REFERENCES));
        }
        kind::STRUCT | kind::UNION if !is_map => {
            layout.word(part, at + 4, FieldValues::Bits(kind_bits, &[4 << 24, 5 << 24]));
            layout.word(part, at + 8, FieldValues::Steps(8));
        }
        kind::ENUM | kind::ENUM64 => layout.word(part, at + 4, FieldValues::Bits(1 << 31, &[0, 1 << 31])),
        kind::FWD => layout.word(part, at + 4, FieldValues::Bits(1 << 31, &[0, 1 << 31])),
        kind::FUNC => layout.word(part, at + 4, FieldValues::Bits(3, &[0, 1, 2])),
        kind::DATASEC => layout.word(part, at + 8, FieldValues::Steps(8)),
        kind::FLOAT => layout.word(part, at + 8, FieldValues::Bits(0xffff_ffff, &[2, 4, 8, 12, 16])),
        _ => {}
    }
    let refers = matches!(
        kind,
        kind::PTR..=kind::PTR | kind::TYPEDEF..=kind::FUNC_PROTO | kind::VAR | kind::TYPE_TAG | kind::DECL_TAG
    );
    if refers {
        // The pointers of a map's definition point to types and to arrays, which are not exchanged.
        let meaning = if is_map && kind == kind::PTR { kind::ARRAY } else { kind };
        layout.word(part, at + 8, FieldValues::Like(Meaning::Referent(meaning)));
    }
    record.elements().for_each(|at| element_fields(layout, object, part, kind, at));
}

fn element_fields(layout: &mut Layout, object: &[u8], part: Part, kind: usize, at: usize) {
    let is_map = part == Part::Map;
    match kind {
        kind::ARRAY => {
            layout.word(part, at + 8, FieldValues::Bits(0xffff_ffff, NUMBERS));
            layout.word(part, at + 8, FieldValues::Steps(1));
        }
        kind::STRUCT | kind::UNION if is_map => {
            let name = word(object, at).unwrap_or_default();
            layout.word(part, at + 4, FieldValues::Like(Meaning::MapMember(name)));
        }
        kind::STRUCT | kind::UNION => {
            layout.word(part, at, FieldValues::Like(Meaning::ElementName(kind)));
            layout.word(part, at + 4, FieldValues::Like(Meaning::ElementType(kind)));
            layout.word(part, at + 8, FieldValues::Steps(8));
        }
        kind::FUNC_PROTO => {
            layout.word(part, at, FieldValues::Like(Meaning::ElementName(kind)));
            layout.word(part, at + 4, FieldValues::Like(Meaning::ElementType(kind)));
        }
        kind::ENUM | kind::ENUM64 => {
            layout.word(part, at, FieldValues::Like(Meaning::ElementName(kind)));
            layout.word(part, at + 4, FieldValues::Steps(1));
        }
        kind::VAR if !is_map => layout.word(part, at, FieldValues::Bits(3, &[0, 1])),
        kind::DATASEC if !is_map => {
            layout.word(part, at + 4, FieldValues::Steps(4));
            layout.word(part, at + 8, FieldValues::Steps(4));
        }
        _ => {}
    }
}

/// Adds `.BTF.ext`: its header and the records of functions, lines and CO-RE.
pub(super) fn extension(layout: &mut Layout, object: &[u8], start: usize, end: usize) -> Option<()> {
    let header_bytes = word(object, start + 4)?;
    layout.push(Part::Header, start, start + header_bytes);
    for table in 0..3 {
        let header = start + 8 + 8 * table;
        if header >= start + header_bytes {
            break;
        }
        let first = start + header_bytes + word(object, header)?;
        let table_end = first.checked_add(word(object, header + 4)?)?.min(end);
        let part = if table == 2 { Part::Core } else { Part::Ext };
        layout.push(part, first, table_end);
        if first < table_end {
            let bytes = word(object, first)?;
            records(object, first + 4, table_end, bytes, &mut |at| match table {
                0 => layout.word(part, at + 4, FieldValues::Like(Meaning::FunctionType)),
                1 => line_fields(layout, at),
                _ => core_fields(layout, object, at),
            })?;
        }
    }
    Some(())
}

/// Calls a function with the offset of each record of a table: lists of a section's name, a count and so many
/// records.
fn records(object: &[u8], start: usize, end: usize, bytes: usize, add: &mut dyn FnMut(usize)) -> Option<()> {
    let mut at = start;
    while at < end {
        let count = word(object, at + 4)?;
        at += 8;
        for _ in 0..count {
            if at >= end {
                return None;
            }
            add(at);
            at += bytes;
        }
    }
    Some(())
}

fn line_fields(layout: &mut Layout, at: usize) {
    layout.word(Part::Ext, at, FieldValues::Steps(8));
    layout.word(Part::Ext, at + 4, FieldValues::Like(Meaning::LineText));
    layout.word(Part::Ext, at + 8, FieldValues::Like(Meaning::LineText));
    // The lower ten bits are the column.
    layout.word(Part::Ext, at + 12, FieldValues::Steps(1));
    layout.word(Part::Ext, at + 12, FieldValues::Steps(1 << 10));
}

fn core_fields(layout: &mut Layout, object: &[u8], at: usize) {
    let kind = word(object, at + 12).unwrap_or_default();
    layout.word(Part::Core, at, FieldValues::Steps(8));
    layout.word(Part::Core, at + 4, FieldValues::Like(Meaning::Root));
    layout.word(Part::Core, at + 8, FieldValues::Like(Meaning::Access(kind)));
    // Questions about fields, about types, and about enumerators.
    layout.word(
        Part::Core,
        at + 12,
        FieldValues::Bits(
            0xf,
            match kind {
                0..=5 => &[0, 1, 2, 3, 4, 5],
                10 | 11 => &[10, 11],
                _ => &[6, 7, 8, 9, 12],
            },
        ),
    );
}
