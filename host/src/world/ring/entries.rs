//! The records of a poll: copied once, from the pages of their rings to the plugin's memory
//! ([`super::super::lower`]). Generated bindings would need the list as a vector, which is one more copy.

use super::super::value::{Handles, Misfit, Recorded};
use super::super::wire::{Input, Malformed, Wire};
use crate::bpf::{ENTRY_BYTES, Records, split_entry};

/// A `list<u8>` of entries, see `wit/ring.wit`. Dropping it releases the records' space in their rings.
#[derive(Default)]
pub struct Entries {
    parts: Vec<Part>,
    bytes: usize,
}

enum Part {
    /// Records in the pages of a ring, and the ring's position in the poll.
    Taken(u32, Records),
    /// A record that was copied before, and its ring's position in the poll.
    Kept(u32, Vec<u8>),
    /// Entries as [`Entries::copy_to`] writes them.
    Whole(Vec<u8>),
}

impl Entries {
    /// Takes entries as [`Entries::copy_to`] writes them; returns none for other bytes.
    fn of(entries: Vec<u8>) -> Option<Entries> {
        let mut rest = &entries[..];
        while let Some((_, _, after)) = split_entry(rest) {
            rest = after;
        }
        let bytes = entries.len();
        rest.is_empty().then(|| Entries { parts: vec![Part::Whole(entries)], bytes })
    }

    /// Returns the size in bytes.
    pub(in super::super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds records taken from the ring at this position of the poll.
    pub(super) fn add(&mut self, position: u32, records: Records) {
        self.bytes += records.bytes();
        self.parts.push(Part::Taken(position, records));
    }

    /// Adds a record that was put back, or that lies in the pages of an event.
    pub(in super::super) fn add_kept(&mut self, position: u32, record: Vec<u8>) {
        self.bytes += entry_bytes(&record);
        self.parts.push(Part::Kept(position, record));
    }

    /// Writes all entries; `out` has [`Entries::len`] bytes.
    pub(in super::super) fn copy_to(&self, out: &mut [u8]) {
        let mut rest = out;
        for part in &self.parts {
            let bytes = match part {
                Part::Taken(_, records) => records.bytes(),
                Part::Kept(_, record) => entry_bytes(record),
                Part::Whole(entries) => entries.len(),
            };
            let (own, after) = rest.split_at_mut(bytes);
            match part {
                Part::Taken(position, records) => records.copy_to(*position, own),
                Part::Kept(position, record) => {
                    own[..4].copy_from_slice(&position.to_le_bytes());
                    // The length fits in 32 bits: a ring has at most 128 MiB.
                    own[4..8].copy_from_slice(&(record.len() as u32).to_le_bytes());
                    let (text, padding) = own[ENTRY_BYTES..].split_at_mut(record.len());
                    text.copy_from_slice(record);
                    padding.fill(0);
                }
                Part::Whole(entries) => own.copy_from_slice(entries),
            }
            rest = after;
        }
    }
}

impl Recorded for Entries {
    fn write(&self, handles: &mut Handles) -> serde_json::Value {
        let mut bytes = vec![0; self.bytes];
        self.copy_to(&mut bytes);
        bytes.write(handles)
    }

    fn read(value: &serde_json::Value) -> Result<Entries, Misfit> {
        let bytes = Vec::<u8>::read(value)?;
        Entries::of(bytes).ok_or_else(|| Misfit::wanted("whole records of a ring buffer"))
    }
}

impl Wire for Entries {
    fn put(&self, to: &mut Vec<u8>) {
        let mut bytes = vec![0; self.bytes];
        self.copy_to(&mut bytes);
        bytes.put(to);
    }

    fn take(from: &mut Input<'_>) -> Result<Entries, Malformed> {
        Entries::of(Vec::take(from)?).ok_or(Malformed)
    }
}

/// Returns the size of a record in a batch in bytes.
pub(super) fn entry_bytes(record: &[u8]) -> usize {
    ENTRY_BYTES + record.len().next_multiple_of(8)
}
