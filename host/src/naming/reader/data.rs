//! The bytes of a file, copied in parts. Later writes by the file's owner do not change bytes that were read,
//! and a truncated file results in a read error instead of a signal.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use object::ReadRef;

/// An untrusted file. Copies of its bytes are kept until the naming process ends, so they can be borrowed for
/// `'static`.
#[derive(Debug)]
pub(super) struct Data {
    file: File,
    length: u64,
}

impl Data {
    /// Wraps a file with its current length.
    pub(super) fn new(file: File) -> Option<&'static Data> {
        let length = file.metadata().ok()?.len();
        Some(Box::leak(Box::new(Data { file, length })))
    }

    /// Reads at most `most` bytes, fewer at the end of the file.
    pub(super) fn some_at(&self, offset: u64, most: usize) -> Option<Vec<u8>> {
        let left = usize::try_from(self.length.checked_sub(offset)?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(most)];
        self.file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    }
}

impl ReadRef<'static> for &'static Data {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'static [u8], ()> {
        let end = offset.checked_add(size).ok_or(())?;
        if end > self.length {
            return Err(());
        }
        let mut bytes = Vec::new();
        let size = usize::try_from(size).map_err(|_| ())?;
        bytes.try_reserve_exact(size).map_err(|_| ())?;
        bytes.resize(size, 0);
        self.file.read_exact_at(&mut bytes, offset).map_err(|_| ())?;
        Ok(bytes.leak())
    }

    fn read_bytes_at_until(self, range: std::ops::Range<u64>, delimiter: u8) -> Result<&'static [u8], ()> {
        /// Section names are shorter.
        const MOST: usize = 4096;
        let length = range.end.checked_sub(range.start).ok_or(())?;
        let most = usize::try_from(length).unwrap_or(MOST).min(MOST);
        let mut bytes = self.some_at(range.start, most).ok_or(())?;
        let end = bytes.iter().position(|byte| *byte == delimiter).ok_or(())?;
        bytes.truncate(end);
        Ok(bytes.leak())
    }
}
