//! The symbols of a stripped file that distributions leave in it: a small ELF file, compressed, of which only the table of
//! symbols is of use.
//!
//! Source: the manual of GDB, "MiniDebugInfo".

use std::io::Read as _;

use lzma_rust2::XzReader;

use super::elf::{Image, Range};
use super::error::ProbePointError;

/// Longest section; that of the largest programs has some MB.
const MAX_SECTION_BYTES: u64 = 1 << 24;

/// Longest file in it. Guards the host's memory: some hundred bytes can say that they are any number of zeros.
const MAX_BYTES: u64 = 1 << 26;

/// Most memory that unpacking may take beside that.
const MAX_UNPACKER_KIB: u32 = 1 << 16;

/// The small file, if there is one that can be read.
pub(super) fn image(image: &Image<'_>) -> Result<Option<Image<'static>>, ProbePointError> {
    let Some(section) = image.section_named(|name| name == b".gnu_debugdata").map(Range::from) else {
        return Ok(None);
    };
    if section.bytes > MAX_SECTION_BYTES {
        return Err(ProbePointError::TooLarge("section .gnu_debugdata"));
    }
    let packed = image.bytes(section.offset, section.bytes)?;
    let mut bytes = Vec::new();
    let mut reader = XzReader::new_mem_limit(&packed[..], false, MAX_UNPACKER_KIB).take(MAX_BYTES + 1);
    // It is an extra: without it, the file has the symbols that it has.
    let is_read = reader.read_to_end(&mut bytes).is_ok() && bytes.len() as u64 <= MAX_BYTES;
    Ok(is_read.then(|| Image::unpacked(bytes).ok()).flatten())
}
