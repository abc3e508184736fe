//! Static probes of a program (USDT), from its notes.
//!
//! Source: systemtap's `sys/sdt.h`, version 3 of the notes.

use super::elf::{Fields, Image, Range};
use super::error::ProbePointError;

/// Largest section of notes that is read, in bytes.
const MAX_SECTION_BYTES: u64 = 1 << 24;

/// Type and owner of the notes of static probes.
const TYPE: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";

/// Whether a static probe is at an address.
pub(super) fn is_probe(image: &Image<'_>, address: u64) -> Result<bool, ProbePointError> {
    let Some(section) = image.section_named(|name| name == b".note.stapsdt").map(Range::from) else {
        return Ok(false);
    };
    if section.bytes > MAX_SECTION_BYTES {
        return Err(ProbePointError::TooLarge("section .note.stapsdt"));
    }
    // A tool that moves the file's addresses after linking (prelink) also moves this section.
    let base = image.section_named(|name| name == b".stapsdt.base").map(|section| section.address);
    let notes = image.bytes(section.offset, section.bytes)?;
    for note in all(&notes).filter(|note| note.kind == TYPE && note.owner == OWNER) {
        let fields = Fields { bytes: note.described, wide: image.wide };
        let word = if image.wide { 8 } else { 4 };
        let moved = base.map_or(0, |base| base.wrapping_sub(fields.word(word)));
        if image.narrow(fields.word(0).wrapping_add(moved)) == address {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A note of an ELF file.
pub(super) struct Note<'a> {
    pub(super) kind: u32,
    /// The owner's name, with its terminating zero.
    pub(super) owner: &'a [u8],
    pub(super) described: &'a [u8],
}

/// Returns the notes of a section or segment, up to the first truncated one.
pub(super) fn all(mut rest: &[u8]) -> impl Iterator<Item = Note<'_>> {
    std::iter::from_fn(move || {
        let (note, after) = note(rest)?;
        rest = after;
        Some(note)
    })
}

/// Splits off the first note.
fn note(notes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    const HEADER_BYTES: usize = 12;
    let fields = Fields { bytes: notes.get(..HEADER_BYTES)?, wide: false };
    let [name, described] = [0, 4].map(|at| fields.u32(at) as usize);
    let name_end = HEADER_BYTES.checked_add(name.checked_next_multiple_of(4)?)?;
    let end = name_end.checked_add(described)?;
    let note = Note {
        kind: fields.u32(8),
        owner: notes.get(HEADER_BYTES..HEADER_BYTES.checked_add(name)?)?,
        described: notes.get(name_end..end)?,
    };
    Some((note, notes.get(end.checked_next_multiple_of(4)?..).unwrap_or_default()))
}
