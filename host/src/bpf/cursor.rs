//! Map iteration, in batches if the kind of map supports them.
//!
//! A cursor reads the requested entries, plus up to a few KiB ahead if entries are small. Its buffers, and
//! the temporary memory of a read, are charged to the plugin ([`HostBytes`]).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use nix::errno::Errno;

use super::error::BpfError;
use super::map::Map;
use crate::host_bytes::{Charge, HostBytes};

/// Target size of a batch in bytes; a batch has at least one entry. If a bucket of a hash does not fit, the
/// kernel returns ENOSPC and the batch grows.
const BATCH_BYTES: usize = 32 << 10;

/// Upper limit of entries in a batch. Guards against a map with deliberately colliding buckets.
const MAX_BATCH: u32 = 1 << 20;

/// Upper limit of listed keys for kinds without batches. Guards the host's time: in some of these kinds every
/// number is a key.
const MAX_KEYS: usize = 1 << 20;

/// Overhead of a listed key in bytes, in addition to its content: the allocation and its slot in a
/// collection.
const KEY_BYTES: u64 = 48;

/// What a [`Cursor`] returns of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorContent {
    /// The key alone.
    Keys,
    /// The key, then the value in the form of [`Map::lookup`].
    KeysAndValues,
}

/// An iteration over the entries of a map.
#[derive(Debug)]
pub struct Cursor {
    map: Arc<Map>,
    content: CursorContent,
    state: CursorState,
    /// Entries that were read ahead, concatenated.
    ready: Vec<u8>,
    /// Bytes at the start of `ready` that were returned to the caller.
    given: usize,
    host_bytes: HostBytes,
    /// Charge for `ready`.
    charge: Charge,
}

/// How the iteration continues.
#[derive(Debug)]
enum CursorState {
    /// With the batch at this position; none for the first batch.
    Batch(Option<Vec<u8>>),
    /// With these keys, one by one: the kind has no batches. The charge is theirs.
    Keys(VecDeque<Vec<u8>>, Charge),
    End,
}

impl Cursor {
    /// Starts an iteration. Reads nothing yet.
    ///
    /// # Errors
    /// [`BpfError::NoEntries`] for kinds without keys.
    pub fn new(map: Arc<Map>, content: CursorContent, host_bytes: &HostBytes) -> Result<Cursor, BpfError> {
        if map.shape().key_size == 0 {
            return Err(BpfError::NoEntries { name: map.name().into() });
        }
        let (host_bytes, charge) = (host_bytes.clone(), host_bytes.start());
        Ok(Cursor {
            map,
            content,
            state: CursorState::Batch(None),
            ready: Vec::new(),
            given: 0,
            host_bytes,
            charge,
        })
    }

    /// Returns the content of the next entries, concatenated, as many as fit in `most` bytes. Empty at the
    /// end.
    ///
    /// # Errors
    /// [`BpfError::Size`] if not even one entry fits; [`BpfError::TooManyEntries`]; [`BpfError::HostBytes`];
    /// [`BpfError::Kernel`].
    pub fn next(&mut self, most: usize) -> Result<Vec<u8>, BpfError> {
        let room = most - most % self.entry_len();
        let mut entries = Vec::new();
        let mut charge = self.host_bytes.start();
        loop {
            let waiting = &self.ready[self.given..];
            let taken = waiting.len().min(room - entries.len());
            // A growing vector may have twice the capacity it needs.
            match charge.grow(2 * taken as u64) {
                Ok(()) => {}
                // The remaining entries wait for the next call.
                Err(_) if !entries.is_empty() => return Ok(entries),
                Err(full) => return Err(full.into()),
            }
            entries.extend_from_slice(&waiting[..taken]);
            self.given += taken;
            if self.given < self.ready.len() {
                return self.check_some(entries, most);
            }
            self.ready.clear();
            self.given = 0;
            if entries.len() == room && !entries.is_empty() {
                self.free();
                return Ok(entries);
            }
            match self.read_more() {
                Ok(true) => self.charge.set(self.ready.capacity() as u64)?,
                Ok(false) => {
                    self.free();
                    return Ok(entries);
                }
                // There is no room for an entry anyway; report that instead.
                Err(BpfError::HostBytes(_)) if room == 0 => return self.check_some(entries, most),
                // The iteration keeps its position; the next call reports the error.
                Err(BpfError::HostBytes(_)) if !entries.is_empty() => return Ok(entries),
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees the buffer of entries that were read ahead.
    fn free(&mut self) {
        self.ready = Vec::new();
        self.charge.shrink(u64::MAX);
    }

    /// Returns the size of an entry in bytes, the same for all entries of the iteration.
    fn entry_len(&self) -> usize {
        let value = match self.content {
            CursorContent::Keys => 0,
            CursorContent::KeysAndValues => self.map.looked_up_len(),
        };
        self.map.shape().key_size as usize + value
    }

    /// Reads more entries into `ready`. False at the end.
    fn read_more(&mut self) -> Result<bool, BpfError> {
        match std::mem::replace(&mut self.state, CursorState::End) {
            CursorState::End => Ok(false),
            CursorState::Batch(from) => self.read_batch(from),
            CursorState::Keys(mut keys, mut charge) => {
                let read = match self.host_bytes.during_call(2 * self.map.batch_bytes(1)) {
                    Ok(read) => read,
                    Err(full) => {
                        self.state = CursorState::Keys(keys, charge);
                        return Err(full.into());
                    }
                };
                while let Some(key) = keys.pop_front() {
                    charge.shrink(key_bytes(&key));
                    let Some(value) = self.map.lookup(&key)? else { continue };
                    self.ready.extend(key);
                    if self.content == CursorContent::KeysAndValues {
                        self.ready.extend(value);
                    }
                    self.state = CursorState::Keys(keys, charge);
                    drop(read);
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }

    fn read_batch(&mut self, from: Option<Vec<u8>>) -> Result<bool, BpfError> {
        let fitting = u32::try_from(BATCH_BYTES / self.entry_len()).unwrap_or(MAX_BATCH);
        let mut most = self.map.at_once(fitting);
        loop {
            // Twice: the kernel's buffers, and the entries built from them.
            let read = match self.host_bytes.during_call(2 * self.map.batch_bytes(most)) {
                Ok(read) => read,
                Err(full) => {
                    self.state = CursorState::Batch(from);
                    return Err(full.into());
                }
            };
            let answer = self.map.batch(from.as_deref(), most, self.content, &mut self.ready);
            drop(read);
            match answer {
                Ok(next) => {
                    self.state = next.map_or(CursorState::End, |next| CursorState::Batch(Some(next)));
                    return Ok(true);
                }
                Err(Errno::ENOSPC) if most < self.map.at_once(MAX_BATCH) => most = self.map.at_once(most * 4),
                // The kernel returns ENOTSUPP, which user space has no name for.
                Err(errno) if from.is_none() && (errno == Errno::EINVAL || is_unsupported(errno)) => {
                    self.state = CursorState::Batch(None);
                    let (keys, charge) = self.keys()?;
                    self.state = CursorState::Keys(keys, charge);
                    return Ok(true);
                }
                Err(errno) => return Err(self.map.refused("list", "bpf(BPF_MAP_LOOKUP_BATCH)", errno)),
            }
        }
    }

    /// Returns all keys, each once. The kernel restarts from the first key if the last one was removed
    /// meanwhile.
    fn keys(&self) -> Result<(VecDeque<Vec<u8>>, Charge), BpfError> {
        let mut charge = self.host_bytes.start();
        let mut seen = HashSet::new();
        let mut keys = VecDeque::new();
        let mut last: Option<Vec<u8>> = None;
        // Twice the number of entries is enough unless another process keeps removing entries.
        for _ in 0..u64::from(self.map.shape().max_entries).saturating_mul(2).saturating_add(16) {
            match self.map.next_key(last.as_deref()) {
                Ok(_) if keys.len() == MAX_KEYS => {
                    return Err(BpfError::TooManyEntries { name: self.map.name().into(), most: MAX_KEYS });
                }
                Ok(key) => {
                    if seen.insert(key.clone()) {
                        charge.grow(2 * key_bytes(&key))?;
                        keys.push_back(key.clone());
                    }
                    last = Some(key);
                }
                Err(Errno::ENOENT) => break,
                Err(errno) => return Err(self.map.refused("list", "bpf(BPF_MAP_GET_NEXT_KEY)", errno)),
            }
        }
        // `seen` is no longer needed; keep the charge for `keys` only.
        charge.set(keys.iter().map(|key| key_bytes(key)).sum())?;
        Ok((keys, charge))
    }

    /// Returns the entries if there are some, else the error that not even one fits.
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

/// Returns the cost of a listed key to the host in bytes.
fn key_bytes(key: &[u8]) -> u64 {
    key.len() as u64 + KEY_BYTES
}

/// Whether the kernel lacks an operation. Source: include/linux/errno.h, `ENOTSUPP` 524.
pub(super) fn is_unsupported(errno: Errno) -> bool {
    // `nix` does not know the number and returns `UnknownErrno`.
    matches!(errno, Errno::EOPNOTSUPP | Errno::UnknownErrno)
}
