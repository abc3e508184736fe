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
    // SAFETY: nobody but this user can write the file, and no program of ours writes one that has its name already, or
    // makes it shorter: `write_file` gives a name to a file that is complete, and only ever removes it.
    unsafe { Mmap::map(file) }
}
