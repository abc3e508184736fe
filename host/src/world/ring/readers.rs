//! The consumers of rings, with what plugins have put back.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::super::error::HostError;
use super::entries::{Entries, entry_bytes};
use crate::bpf::{BpfError, ENTRY_BYTES, Ring, TooLong, split_entry};
use crate::host_bytes::{Charge, HostBytes};
use crate::perf::{OutputError, OutputRings};

/// The rings that a plugin has opened, by name.
#[derive(Default)]
pub(in super::super) struct Rings {
    readers: BTreeMap<Arc<str>, Reader>,
    /// Index of the polled ring that is read first; it rotates, so that a busy ring does not starve others.
    first_ring: usize,
}

impl Rings {
    /// Returns the descriptors that become readable when these rings have records.
    pub(in super::super) fn descriptors(&self, names: &[Arc<str>]) -> Vec<BorrowedFd<'_>> {
        let readers = names.iter().filter_map(|name| self.readers.get(name));
        let mut descriptors = Vec::with_capacity(names.len());
        for reader in readers {
            match &reader.source {
                Source::Buffer(ring) => descriptors.push(ring.descriptor()),
                Source::Events(rings) => descriptors.extend(rings.descriptors()),
                Source::Broker => {}
            }
        }
        descriptors
    }

    /// Adds a ring, or reads the one of this name from another source.
    pub(super) fn add(&mut self, name: Arc<str>, source: Source, host_bytes: &HostBytes) {
        self.readers.insert(name, Reader { source, kept: VecDeque::new(), charge: host_bytes.start() });
    }

    pub(super) fn reader(&self, name: &str) -> Option<&Reader> {
        self.readers.get(name)
    }

    /// Returns the ring buffer of this name.
    pub(super) fn buffer(&self, name: &str) -> Option<&Ring> {
        match &self.readers.get(name)?.source {
            Source::Buffer(ring) => Some(ring),
            Source::Events(_) | Source::Broker => None,
        }
    }

    /// Returns the rings of the array of events of this name.
    pub(super) fn events(&self, name: &str) -> Option<&OutputRings> {
        match &self.readers.get(name)?.source {
            Source::Events(rings) => Some(rings),
            Source::Buffer(_) | Source::Broker => None,
        }
    }

    /// Whether the array of events of this name is read.
    pub(in super::super) fn reads_events_of(&self, array: &str) -> bool {
        self.events(array).is_some()
    }

    /// Whether a record of this ring was put back.
    pub(super) fn has_kept(&self, name: &str) -> bool {
        self.readers.get(name).is_some_and(|reader| !reader.kept.is_empty())
    }

    /// Leaves the records of a ring to the broker, but those that were put back.
    pub(super) fn leave_to_broker(&mut self, name: &str) {
        if let Some(reader) = self.readers.get_mut(name) {
            reader.source = Source::Broker;
        }
    }

    /// Takes records out of rings. Returns them with the bytes that came from each ring.
    pub(super) fn take(
        &mut self,
        names: &[Arc<str>],
        most: usize,
    ) -> Result<(Entries, Vec<usize>), BpfError> {
        let mut entries = Entries::default();
        let mut given = vec![0; names.len()];
        self.first_ring = self.first_ring.wrapping_add(1);
        // A ring that is in the list twice contributes two parts to one batch.
        for at in 0..names.len() {
            let position = (self.first_ring + at) % names.len();
            let Some(reader) = self.readers.get_mut(&names[position]) else { continue };
            // The position fits: a call polls at most 1024 rings.
            given[position] = reader
                .take(position as u32, most, &mut entries)
                .map_err(|long| long.in_batch_of(&names[position], most))?;
            if entries.len() + ENTRY_BYTES >= most {
                break;
            }
        }
        Ok((entries, given))
    }

    /// Puts records of a batch back into their rings. `given` has, for each ring of the batch, the bytes that came from
    /// it and may still be put back.
    ///
    /// # Errors
    /// [`BpfError::Batch`] if the records are not of this batch; [`crate::host_bytes::Full`].
    pub(super) fn put_back(
        &mut self,
        given: &mut [(Arc<str>, usize)],
        records: &[u8],
        host_bytes: &HostBytes,
    ) -> Result<(), HostError> {
        let mut entries = Vec::new();
        // What is put back of each ring of the batch, and what that costs.
        let mut sums = vec![(0, 0); given.len()];
        let mut rest = records;
        while let Some((position, record, after)) = split_entry(rest) {
            let (name, _) = given.get(position as usize).ok_or(BpfError::Batch)?;
            let (bytes, kept) = &mut sums[position as usize];
            *bytes += entry_bytes(record);
            *kept += kept_bytes(record);
            entries.push((Arc::clone(name), record));
            rest = after;
        }
        // A plugin can put back at most what it received, so that it cannot fill the host's memory.
        let exceeds = given.iter().zip(&sums).any(|((_, given), (bytes, _))| bytes > given);
        if !rest.is_empty() || exceeds {
            return Err(BpfError::Batch.into());
        }
        let cost = sums.iter().map(|(_, kept)| kept).sum();
        let mut charge = host_bytes.charge(cost)?;
        for ((_, given), (bytes, _)) in given.iter_mut().zip(&sums) {
            *given -= bytes;
        }
        for (name, record) in entries.into_iter().rev() {
            if let Some(reader) = self.readers.get_mut(&name) {
                reader.charge.merge(charge.split(kept_bytes(record)));
                reader.kept.push_front(record.to_vec());
            }
        }
        Ok(())
    }

    /// Handles CPUs that went offline or came online since the last call. Returns the failures, and whether a
    /// ring depends on CPUs.
    pub(in super::super) fn follow_cpus(&mut self) -> (Vec<(Arc<str>, OutputError)>, bool) {
        let (mut failures, mut any) = (Vec::new(), false);
        for (name, reader) in &mut self.readers {
            if let Source::Events(rings) = &mut reader.source {
                any = true;
                failures.extend(rings.follow_cpus().into_iter().map(|error| (Arc::clone(name), error)));
            }
        }
        (failures, any)
    }
}

/// Where the records of a ring come from.
pub(super) enum Source {
    /// A ring buffer.
    Buffer(Ring),
    /// An array of perf events.
    Events(OutputRings),
    /// In a worker: its broker takes them.
    Broker,
}

/// The consumer of a ring, with the records that the plugin has put back.
pub(super) struct Reader {
    source: Source,
    kept: VecDeque<Vec<u8>>,
    /// Charge for `kept`.
    charge: Charge,
}

/// Overhead in bytes of a record that was put back, in addition to its entry: the list's slot and the
/// allocation.
const KEPT_BYTES: usize = 48;

/// Returns the cost of a record that was put back to the host in bytes.
fn kept_bytes(record: &[u8]) -> u64 {
    (entry_bytes(record) + KEPT_BYTES) as u64
}

impl Reader {
    /// Adds records to entries of at most `most` bytes. The first record of all must fit. Returns the bytes
    /// that were added.
    fn take(&mut self, position: u32, most: usize, entries: &mut Entries) -> Result<usize, TooLong> {
        let before = entries.len();
        while let Some(record) = self.kept.front() {
            let needed = entry_bytes(record);
            if before == entries.len() && entries.is_empty() && needed > most {
                return Err(TooLong(needed));
            }
            if entries.len() + needed > most {
                return Ok(entries.len() - before);
            }
            self.charge.shrink(kept_bytes(record));
            entries.add_kept(position, self.kept.pop_front().unwrap_or_default());
        }
        let long = match &mut self.source {
            Source::Buffer(ring) => match ring.take(most - entries.len()) {
                Ok(records) => {
                    entries.add(position, records);
                    None
                }
                Err(long) => Some(long),
            },
            Source::Events(rings) => {
                let mut long = None;
                rings.take(&mut |record| {
                    let needed = entry_bytes(record);
                    let fits = entries.len() + needed <= most;
                    if fits {
                        entries.add_kept(position, record.to_vec());
                    } else {
                        long = Some(TooLong(needed));
                    }
                    fits
                });
                long
            }
            Source::Broker => None,
        };
        match long {
            Some(long) if entries.is_empty() => Err(long),
            _ => Ok(entries.len() - before),
        }
    }

    pub(super) fn size(&self) -> u32 {
        match &self.source {
            Source::Buffer(ring) => ring.size(),
            Source::Events(rings) => rings.size(),
            Source::Broker => 0,
        }
    }

    pub(super) fn waiting(&self) -> u64 {
        let kept: usize = self.kept.iter().map(|record| entry_bytes(record)).sum();
        kept as u64
            + match &self.source {
                Source::Buffer(ring) => ring.waiting(),
                Source::Events(rings) => rings.waiting(),
                Source::Broker => 0,
            }
    }
}
