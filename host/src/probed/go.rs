//! Functions of Go programs, which have no unwind information: the function table of Go's runtime.
//!
//! Source: `runtime/symtab.go` (`pcHeader`, `functab`) and `debug/gosym/pclntab.go` of Go 1.2 to 1.25.

use super::elf::{Fields, Image, Range};
use super::error::ProbePointError;
use super::notes;

/// Limit of the notes of a segment, in bytes; a few hundred are usual.
const MAX_NOTES_BYTES: u64 = 1 << 20;

/// Limit of functions; the largest programs have a few hundred thousand.
const MAX_FUNCTIONS: u64 = 1 << 22;

/// Returns the part of the file that shows that it contains Go code; None without one. Stripping may remove
/// some of them.
///
/// Source: cmd/link/internal/ld/elf.go (`ELF_NOTE_BUILDID_NAME`), debug/buildinfo/buildinfo.go
/// (`buildInfoMagic`), Go 1.25.
pub(super) fn sign(image: &Image<'_>) -> Result<Option<&'static str>, ProbePointError> {
    if section(image).is_some() {
        return Ok(Some("table of Go's functions"));
    }
    if image.section_named(|name| name == b".go.buildinfo").is_some() {
        return Ok(Some("section .go.buildinfo"));
    }
    if image.section_named(|name| name == b".note.go.buildid").is_some() || has_go_note(image)? {
        return Ok(Some("build id of Go"));
    }
    Ok(None)
}

/// Whether the file has a note of Go; works without section headers.
fn has_go_note(image: &Image<'_>) -> Result<bool, ProbePointError> {
    const BUILD_ID: u32 = 4;
    const GO: &[u8] = b"Go\0\0";
    for segment in image.note_segments().filter(|segment| segment.bytes <= MAX_NOTES_BYTES) {
        let bytes = image.bytes(segment.offset, segment.bytes)?;
        let is_of_go = |note: &notes::Note<'_>| note.kind == BUILD_ID && note.owner == GO;
        if notes::all(&bytes).any(|note| is_of_go(&note)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn section(image: &Image<'_>) -> Option<Range> {
    // In position-independent programs the section is named `.data.rel.ro.gopclntab`.
    image.section_named(|name| name.ends_with(b".gopclntab")).map(Range::from)
}

/// The function table (`.gopclntab`).
struct Table {
    range: Range,
    functions: u64,
    /// Address that the entries are relative to.
    text: u64,
    /// Offset of the entries in the table, in bytes.
    entries: u64,
    /// Size of a number in bytes; an entry consists of two.
    number_bytes: u64,
}

/// Returns the start and the length in bytes of the function that contains an address.
pub(super) fn function_of(image: &Image<'_>, address: u64) -> Result<Option<(u64, u64)>, ProbePointError> {
    let Some(table) = section(image).and_then(|range| Table::read(image, range)) else { return Ok(None) };
    let (mut from, mut to) = (0, table.functions);
    // The entries are in ascending order, and an extra one holds the end of the last function.
    while from < to {
        let middle = from + (to - from) / 2;
        if table.start(image, middle)? <= address { from = middle + 1 } else { to = middle }
    }
    let Some(last) = from.checked_sub(1) else { return Ok(None) };
    let (start, end) = (table.start(image, last)?, table.start(image, last + 1)?);
    Ok((start..end).contains(&address).then_some((start, end - start)))
}

impl Table {
    /// Parses the table. None if its format is unknown, or if it lacks the code's address: in
    /// position-independent programs the loader fills it in.
    fn read(image: &Image<'_>, range: Range) -> Option<Table> {
        let header = image.bytes(range.offset, 72.min(range.bytes)).ok()?;
        let fields = Fields { bytes: &header, wide: image.wide };
        let word = if image.wide { 8 } else { 4 };
        if fields.u16(4) != 0 || usize::from(fields.u8(7)) != word {
            return None;
        }
        let number = |index: usize| fields.word(8 + index * word);
        let (text, entries, number_bytes) = match fields.u32(0) {
            // Go 1.18 and 1.20
            0xffff_fff0 | 0xffff_fff1 => (Some(number(2)).filter(|text| *text != 0)?, number(7), 4),
            // Go 1.16
            0xffff_fffa => (0, number(6), word as u64),
            // Go 1.2
            0xffff_fffb => (0, 8 + word as u64, word as u64),
            _ => return None,
        };
        let functions = number(0);
        let bytes = functions.checked_mul(2)?.checked_add(1)?.checked_mul(number_bytes)?;
        let fits = functions <= MAX_FUNCTIONS && entries.checked_add(bytes)? <= range.bytes;
        (fits && functions > 0).then_some(Table { range, functions, text, entries, number_bytes })
    }

    fn start(&self, image: &Image<'_>, index: u64) -> Result<u64, ProbePointError> {
        let at = self.range.offset.saturating_add(self.entries + index * 2 * self.number_bytes);
        let number = image.bytes(at, self.number_bytes)?;
        let number = Fields { bytes: &number, wide: self.number_bytes == 8 }.word(0);
        Ok(image.narrow(self.text.wrapping_add(number)))
    }
}
