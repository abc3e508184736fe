//! Walks over the entries of a map, in batches where the kind has them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use nix::errno::Errno;

use super::error::BpfError;
use super::map::Map;

/// Entries that are asked for at once; a bucket of a hash must fit, or the kernel wants more room.
const BATCH: u32 = 256;

/// Small entries are asked for in larger numbers: as many as fit so many bytes.
const BATCH_BYTES: usize = 32 << 10;

/// Most entries of a batch. Guards against a map whose buckets are made to collide.
const MAX_BATCH: u32 = 1 << 20;

/// Most keys that are listed of a kind without batches. Guards the host's memory: in some of these kinds every number is a
/// key.
const MAX_KEYS: usize = 1 << 20;

/// A walk over the entries of a map.
#[derive(Debug)]
pub struct Cursor {
    map: Arc<Map>,
    /// Whether entries have their values.
    values: bool,
    place: Place,
    /// Entries that were read, one after the other.
    ready: Vec<u8>,
    /// How much of `ready` was given out.
    given: usize,
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
        Ok(Cursor { map, values, place: Place::Batch(None), ready: Vec::new(), given: 0 })
    }

    /// The next entries, key and value one after the other, as many as fit. Empty at the end.
    ///
    /// # Errors
    /// [`BpfError::Size`] if not even one fits; [`BpfError::TooManyEntries`]; [`BpfError::Kernel`].
    pub fn next(&mut self, most: usize) -> Result<Vec<u8>, BpfError> {
        let room = most - most % self.entry_len();
        let mut entries = Vec::new();
        loop {
            let waiting = &self.ready[self.given..];
            let taken = waiting.len().min(room - entries.len());
            entries.extend_from_slice(&waiting[..taken]);
            self.given += taken;
            if self.given < self.ready.len() {
                return self.check_some(entries, most);
            }
            self.ready.clear();
            self.given = 0;
            if !self.read_more()? {
                return Ok(entries);
            }
        }
    }

    /// Bytes of an entry: every one of a walk has the same.
    fn entry_len(&self) -> usize {
        let value = if self.values { self.map.looked_up_len() } else { 0 };
        self.map.shape().key_size as usize + value
    }

    /// Reads more entries; false at the end.
    fn read_more(&mut self) -> Result<bool, BpfError> {
        match std::mem::replace(&mut self.place, Place::End) {
            Place::End => Ok(false),
            Place::Batch(from) => self.read_batch(from),
            Place::Keys(mut keys) => {
                while let Some(key) = keys.pop_front() {
                    let Some(value) = self.map.lookup(&key)? else { continue };
                    self.ready.extend(key);
                    if self.values {
                        self.ready.extend(value);
                    }
                    self.place = Place::Keys(keys);
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }

    fn read_batch(&mut self, from: Option<Vec<u8>>) -> Result<bool, BpfError> {
        let fitting = u32::try_from(BATCH_BYTES / self.entry_len()).unwrap_or(BATCH);
        let mut most = self.map.at_once(fitting.max(BATCH));
        loop {
            match self.map.batch(from.as_deref(), most, self.values, &mut self.ready) {
                Ok(next) => {
                    self.place = next.map_or(Place::End, |next| Place::Batch(Some(next)));
                    return Ok(true);
                }
                Err(Errno::ENOSPC) if most < self.map.at_once(MAX_BATCH) => most = self.map.at_once(most * 4),
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
                Ok(_) if keys.len() == MAX_KEYS => {
                    return Err(BpfError::TooManyEntries { name: self.map.name().into(), most: MAX_KEYS });
                }
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

    /// What was taken of entries that waited; an error if the first of them has no room.
    fn check_some(&self, entries: Vec<u8>, given: usize) -> Result<Vec<u8>, BpfError> {
        if !entries.is_empty() {
            return Ok(entries);
        }
        Err(BpfError::Size {
            what: "an entry",
            name: self.map.name().into(),
            expected: self.entry_len(),
            given,
        })
    }
}

/// Source: include/linux/errno.h, `ENOTSUPP` 524.
fn is_unsupported(errno: Errno) -> bool {
    // nix has no name for it and takes it for unknown.
    matches!(errno, Errno::EOPNOTSUPP | Errno::UnknownErrno)
}
