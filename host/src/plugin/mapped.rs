//! Files as memory.
#![expect(unsafe_code, reason = "mmap(2) of a file")]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps a file of the cache for reading.
///
/// # Errors
/// Those of mmap(2); an empty file.
pub(super) fn file(file: &File) -> io::Result<Mmap> {
    // SAFETY: nobody but this user can write the file, and this program changes none that has its name: `write_file`
    // writes another one and renames it, and an old one is only unlinked, which leaves its pages.
    unsafe { Mmap::map(file) }
}
