//! MiniDebugInfo: symbols that distributions leave in a stripped file, as a compressed ELF file of which only
//! the symbol table is used.
//!
//! Source: the manual of GDB, "MiniDebugInfo".

use std::io::Read as _;

use lzma_rust2::XzReader;

use super::elf::{Image, Range};
use super::error::ProbePointError;

/// Largest compressed section that is read, in bytes; those of the largest programs have a few MB.
const MAX_SECTION_BYTES: u64 = 1 << 24;

/// Largest uncompressed file, in bytes. Bounds the host's memory: a few hundred bytes can expand to any
/// number of zeros.
const MAX_BYTES: u64 = 1 << 26;

/// Limit of the decompressor's own memory, in KiB.
const MAX_UNPACKER_KIB: u32 = 1 << 16;

/// Decompresses the embedded ELF file; None if there is none or it cannot be read.
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
    // The section is optional: if it is unreadable, the file's own symbols are used.
    let is_read = reader.read_to_end(&mut bytes).is_ok() && bytes.len() as u64 <= MAX_BYTES;
    Ok(is_read.then(|| Image::unpacked(bytes).ok()).flatten())
}
