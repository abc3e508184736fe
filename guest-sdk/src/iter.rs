//! Map iterators, which fetch entries in batches.

use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::error::Result;
use crate::plain::Plain;
use crate::sys::maps;

/// Limit on the bytes of a batch, except for larger entries: enough to make the call cheap, few enough to fit
/// any plugin's memory.
const BATCH: usize = 64 << 10;

/// Entries of a fixed size, as the host returns them.
#[derive(Debug)]
struct RawEntries {
    cursor: maps::Cursor,
    batch: Vec<u8>,
    at: usize,
    entry: usize,
    over: bool,
}

impl RawEntries {
    fn new(cursor: maps::Cursor, entry: usize) -> RawEntries {
        RawEntries { cursor, batch: Vec::new(), at: 0, entry, over: false }
    }

    /// Returns the next entry; none at the end, and after an error.
    fn next<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<Result<T>> {
        if self.at == self.batch.len() && !self.over {
            // No map has entries so large that the size exceeds this.
            let most = u32::try_from(self.entry.max(BATCH)).unwrap_or(u32::MAX);
            match self.cursor.next(most) {
                Ok(batch) => (self.batch, self.at) = (batch, 0),
                Err(error) => {
                    self.over = true;
                    return Some(Err(error.into()));
                }
            }
            self.over = self.batch.is_empty();
        }
        let entry = self.batch.get(self.at..self.at + self.entry)?;
        self.at += self.entry;
        Some(Ok(read(entry)))
    }
}

/// Iterator over the entries of a [`Map`](crate::Map): key and value, or the error that ends the iteration.
#[derive(Debug)]
pub struct Entries<K, V> {
    raw_entries: RawEntries,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> Entries<K, V> {
    pub(crate) fn new(cursor: maps::Cursor) -> Entries<K, V> {
        Entries { raw_entries: RawEntries::new(cursor, K::SIZE + V::SIZE), types: PhantomData }
    }
}

impl<K: Plain, V: Plain> Iterator for Entries<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Result<(K, V)>> {
        self.raw_entries.next(|bytes| (K::from_bytes(bytes), V::from_bytes(&bytes[K::SIZE..])))
    }
}

/// Iterator over the keys of a map: a key, or the error that ends the iteration.
#[derive(Debug)]
pub struct Keys<K> {
    raw_entries: RawEntries,
    types: PhantomData<fn() -> K>,
}

impl<K: Plain> Keys<K> {
    pub(crate) fn new(cursor: maps::Cursor) -> Keys<K> {
        Keys { raw_entries: RawEntries::new(cursor, K::SIZE), types: PhantomData }
    }
}

impl<K: Plain> Iterator for Keys<K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Result<K>> {
        self.raw_entries.next(K::from_bytes)
    }
}
