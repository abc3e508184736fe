//! Walks over the entries of a map, in batches where the kind has them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use nix::errno::Errno;

use super::error::BpfError;
use super::map::Map;

/// Entries that are asked for at once; a bucket of a hash must fit, or the kernel wants more room.
const BATCH: u32 = 256;

/// Most entries of a batch. Guards against a map whose buckets are made to collide.
const MAX_BATCH: u32 = 1 << 20;

/// A walk over the entries of a map.
#[derive(Debug)]
pub struct Cursor {
    map: Arc<Map>,
    /// Whether entries have their values.
    values: bool,
    place: Place,
    /// Entries that were read and not given out yet.
    ready: VecDeque<Vec<u8>>,
}

/// How a walk goes on.
#[derive(Debug)]
enum Place {
    /// With a batch from here.
    Batch(Option<Vec<u8>>),
    /// With these keys, one by one: the kind has no batches.
    Keys(VecDeque<Vec<u8>>),
    End,
}

impl Cursor {
    /// A walk that has not begun.
    ///
    /// # Errors
    /// [`BpfError::NoEntries`] for kinds without keys.
    pub fn new(map: Arc<Map>, values: bool) -> Result<Cursor, BpfError> {
        if map.shape().key_size == 0 {
            return Err(BpfError::NoEntries { name: map.name().into() });
        }
        Ok(Cursor { map, values, place: Place::Batch(None), ready: VecDeque::new() })
    }

    /// The next entries, key and value one after the other, as many as fit. Empty at the end.
    ///
    /// # Errors
    /// [`BpfError::Size`] if not even one fits; [`BpfError::Kernel`].
    pub fn next(&mut self, most: usize) -> Result<Vec<u8>, BpfError> {
        let mut entries = Vec::new();
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if entries.len() + entry.len() <= most {
                    entries.extend_from_slice(&entry);
                    continue;
                }
                let (name, expected) = (self.map.name().into(), entry.len());
                self.ready.push_front(entry);
                if entries.is_empty() {
                    return Err(BpfError::Size { what: "an entry", name, expected, given: most });
                }
                return Ok(entries);
            }
            if !self.read_more()? {
                return Ok(entries);
            }
        }
    }

    /// Reads more entries; false at the end.
    fn read_more(&mut self) -> Result<bool, BpfError> {
        match std::mem::replace(&mut self.place, Place::End) {
            Place::End => Ok(false),
            Place::Batch(from) => self.read_batch(from),
            Place::Keys(mut keys) => {
                while let Some(key) = keys.pop_front() {
                    let Some(value) = self.map.lookup(&key)? else { continue };
                    self.push(&key, &value);
                    self.place = Place::Keys(keys);
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }

    fn read_batch(&mut self, from: Option<Vec<u8>>) -> Result<bool, BpfError> {
        let mut most = BATCH;
        loop {
            match self.map.batch(from.as_deref(), most) {
                Ok(batch) => {
                    for (key, value) in batch.entries {
                        self.push(&key, &value);
                    }
                    self.place = batch.next.map_or(Place::End, |next| Place::Batch(Some(next)));
                    return Ok(true);
                }
                Err(Errno::ENOSPC) if most < MAX_BATCH => most *= 4,
                // ENOTSUPP has no name outside of the kernel.
                Err(errno) if from.is_none() && (errno == Errno::EINVAL || is_unsupported(errno)) => {
                    self.place = Place::Keys(self.keys()?);
                    return Ok(true);
                }
                Err(errno) => return Err(self.map.refused("list", "bpf(BPF_MAP_LOOKUP_BATCH)", errno)),
            }
        }
    }

    /// All keys, each once: where a key was removed meanwhile the kernel starts again.
    fn keys(&self) -> Result<VecDeque<Vec<u8>>, BpfError> {
        let mut seen = HashSet::new();
        let mut keys = VecDeque::new();
        let mut last: Option<Vec<u8>> = None;
        // Twice as many steps as entries are enough unless somebody removes entries all the time.
        for _ in 0..u64::from(self.map.shape().max_entries).saturating_mul(2).saturating_add(16) {
            match self.map.next_key(last.as_deref()) {
                Ok(key) => {
                    if seen.insert(key.clone()) {
                        keys.push_back(key.clone());
                    }
                    last = Some(key);
                }
                Err(Errno::ENOENT) => break,
                Err(errno) => return Err(self.map.refused("list", "bpf(BPF_MAP_GET_NEXT_KEY)", errno)),
            }
        }
        Ok(keys)
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let value = if self.values { value } else { &[] };
        self.ready.push_back([key, value].concat());
    }
}

/// Source: include/linux/errno.h, `ENOTSUPP` 524.
fn is_unsupported(errno: Errno) -> bool {
    // nix has no name for it and takes it for unknown.
    matches!(errno, Errno::EOPNOTSUPP | Errno::UnknownErrno)
}
