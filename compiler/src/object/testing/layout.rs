//! The parts of an object and its fields, as far as its headers are valid.

use std::collections::BTreeSet;

use super::Part;
use super::fields::{self, Field};

/// Byte range of a part.
pub(super) struct PartRange {
    pub part: Part,
    pub start: usize,
    pub end: usize,
}

/// Ranges of all parts, and the fields of their records.
#[derive(Default)]
pub(super) struct Layout {
    pub ranges: Vec<PartRange>,
    pub fields: Vec<Field>,
}

/// A section of the file, and the start of its header.
struct SectionRange {
    index: usize,
    header: usize,
    start: usize,
    end: usize,
}

/// `SHF_EXECINSTR`
const CODE: usize = 4;

impl Layout {
    /// Returns the layout of an object.
    pub(super) fn of(object: &[u8]) -> Layout {
        let mut layout = Layout::default();
        layout.push(Part::Header, 0, object.len().min(64));
        // Each section ends the layout of a damaged file: what was found before it remains.
        let _ = layout.sections(object);
        layout.ranges.retain(|range| range.start < range.end && range.end <= object.len());
        layout.fields.retain(|field| field.read(object).is_some());
        layout
    }

    /// Returns the parts whose bytes differ between an object with this layout and another file.
    pub(super) fn changed_parts(&self, object: &[u8], other: &[u8]) -> BTreeSet<Part> {
        if object.len() != other.len() {
            return BTreeSet::from([Part::Shape]);
        }
        let differs =
            |range: &&PartRange| object.get(range.start..range.end) != other.get(range.start..range.end);
        self.ranges.iter().filter(differs).map(|range| range.part).collect()
    }

    pub(super) fn push(&mut self, part: Part, start: usize, end: usize) {
        match self.ranges.last_mut() {
            Some(last) if last.part == part && last.end == start => last.end = end,
            _ => self.ranges.push(PartRange { part, start, end }),
        }
    }

    fn sections(&mut self, object: &[u8]) -> Option<()> {
        let (table, count, names) = (word(object, 40)?, half(object, 60)?, half(object, 62)?);
        let names = word(object, table + names * 64 + 24)?;
        fields::file_header(self);
        for index in 0..count {
            let header = table + index * 64;
            let (ty, flags) = (word(object, header + 4)?, word(object, header + 8)?);
            let (start, size) = (word(object, header + 24)?, word(object, header + 32)?);
            let name = object.get(names + word(object, header)?..)?.split(|&byte| byte == 0).next()?;
            self.push(Part::Header, header, header + 64);
            let section =
                SectionRange { index, header, start, end: start.checked_add(size)?.min(object.len()) };
            self.section(object, &section, ty, name, flags & CODE != 0);
        }
        Some(())
    }

    fn section(&mut self, object: &[u8], section: &SectionRange, ty: usize, name: &[u8], is_code: bool) {
        let SectionRange { index, header, start, end } = *section;
        fields::section_header(self, header, ty);
        match (ty, name) {
            // NULL and NOBITS have no bytes.
            (0 | 8, _) => {}
            (2, _) => {
                self.push(Part::Symbol, start, end);
                fields::symbols(self, object, start, end);
            }
            (3, _) => self.push(Part::String, start, end),
            (9, _) => {
                self.push(Part::Relocation, start, end);
                fields::relocations(self, object, index, start, end);
            }
            (_, b".BTF") => drop(fields::types(self, object, start, end)),
            (_, b".BTF.ext") => drop(fields::extension(self, object, start, end)),
            (_, b".maps") => self.push(Part::Map, start, end),
            (_, b"maps") => {
                self.push(Part::Map, start, end);
                fields::numbered_maps(self, start, end);
            }
            _ if is_code => self.push(Part::Code, start, end),
            _ => self.push(Part::Data, start, end),
        }
    }
}

/// Returns the little-endian number of four bytes at an offset.
pub(super) fn word(object: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*object.get(at..)?.first_chunk()?) as usize)
}

fn half(object: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(*object.get(at..)?.first_chunk()?).into())
}
