//! `ring`: ring buffers of the plugin's BPF object.

mod batch;
pub mod linker;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use wasmtime::component::Resource;

use batch::{Batch, entry_bytes};

use super::error::{HostError, check_length};
use super::state::State;
use crate::bpf::{BpfError, ENTRY_BYTES, Ring, TooLong, split_entry};
use crate::host_bytes::{Charge, Charged};

/// Host side of a `ring` handle: the name of a ring buffer. All handles of one ring share its consumer.
pub struct RingHandle {
    name: Charged<String>,
}

/// The rings that a plugin has opened, by name.
#[derive(Default)]
pub(super) struct Rings {
    readers: BTreeMap<String, Reader>,
    /// Index of the polled ring that is read first; it rotates, so that a busy ring does not starve others.
    first_ring: usize,
}

impl Rings {
    /// Returns the descriptors that become readable when these rings have records.
    pub(super) fn descriptors(&self, names: &[String]) -> Vec<BorrowedFd<'_>> {
        names
            .iter()
            .filter_map(|name| self.readers.get(name))
            .map(|reader| reader.ring.descriptor())
            .collect()
    }
}

/// The consumer of a ring, with the records that the plugin has put back.
struct Reader {
    ring: Ring,
    kept: VecDeque<Vec<u8>>,
    /// Charge for `kept`.
    charge: Charge,
    /// Bytes of the last batch that came from this ring and may still be put back.
    given: usize,
}

/// Overhead in bytes of a record that was put back, in addition to its entry: the list's slot and the
/// allocation.
const KEPT_BYTES: usize = 48;

/// Returns the cost of a record that was put back to the host in bytes.
fn kept_bytes(record: &[u8]) -> u64 {
    (entry_bytes(record) + KEPT_BYTES) as u64
}

impl Reader {
    /// Adds records to a batch of at most `most` bytes. The first record of a batch must fit.
    fn take(&mut self, position: u32, most: usize, batch: &mut Batch) -> Result<(), BpfError> {
        let before = batch.len();
        let added = self.add(position, most, batch);
        self.given += batch.len() - before;
        added
    }

    fn add(&mut self, position: u32, most: usize, batch: &mut Batch) -> Result<(), BpfError> {
        while let Some(record) = self.kept.front() {
            if batch.len() + entry_bytes(record) > most {
                return self.leave(TooLong(entry_bytes(record)), most, batch);
            }
            self.charge.shrink(kept_bytes(record));
            batch.add_kept(position, self.kept.pop_front().unwrap_or_default());
        }
        match self.ring.take(most - batch.len()) {
            Ok(records) => batch.add(position, records),
            Err(long) => return self.leave(long, most, batch),
        }
        Ok(())
    }

    /// Leaves a record for the next poll. An error if the batch is empty: the record would never fit.
    fn leave(&self, long: TooLong, most: usize, batch: &Batch) -> Result<(), BpfError> {
        if batch.is_empty() { Err(long.in_batch_of(self.ring.name(), most)) } else { Ok(()) }
    }
}

/// Upper limit of rings in one call. Guards the host's memory against a list of millions, which may all be
/// the same.
const MAX_POLLED: usize = 1024;

/// Time to wait for a program that has reserved a record but not submitted it: the ring is readable then, but
/// has nothing to take.
const RESERVED: Duration = Duration::from_micros(100);

impl State {
    /// Returns the names of the rings that handles denote.
    fn ring_names(&self, rings: &[Resource<RingHandle>]) -> Result<Vec<String>, HostError> {
        if rings.len() > MAX_POLLED {
            return Err(HostError::invalid(format!(
                "{} rings are too many for one call: it takes {MAX_POLLED}",
                rings.len()
            )));
        }
        rings.iter().map(|ring| Ok(self.table.get(ring)?.name.to_string())).collect()
    }

    fn take(&mut self, names: &[String], most: usize) -> Result<Batch, BpfError> {
        let mut batch = Batch::default();
        self.rings.first_ring = self.rings.first_ring.wrapping_add(1);
        // A ring that is in the list twice contributes two parts to one batch.
        for name in names {
            self.rings.readers.get_mut(name).into_iter().for_each(|reader| reader.given = 0);
        }
        for at in 0..names.len() {
            let position = (self.rings.first_ring + at) % names.len();
            let Some(reader) = self.rings.readers.get_mut(&names[position]) else { continue };
            // The position fits: a call polls at most 1024 rings.
            match reader.take(position as u32, most, &mut batch) {
                Err(error) if batch.is_empty() => return Err(error),
                _ if batch.len() + ENTRY_BYTES >= most => break,
                _ => {}
            }
        }
        Ok(batch)
    }
}

/// Implementation of the interface, see `wit/ring.wit`.
impl State {
    pub(super) fn ring_poll(
        &mut self,
        rings: &[Resource<RingHandle>],
        timeout: Option<u64>,
        most: u32,
    ) -> Result<Batch, HostError> {
        self.release_command()?;
        let names = self.ring_names(rings)?;
        // A deadline that overflows the clock means no deadline.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout)));
        let mut readable = false;
        loop {
            if self.stop.stopping() {
                return Err(HostError::interrupted());
            }
            let batch = self.take(&names, most as usize)?;
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if !batch.is_empty() || is_over {
                return Ok(batch);
            }
            if readable {
                self.stop.wait(RESERVED);
            }
            readable = self.wait(&names, deadline).map_err(|errno| BpfError::Kernel {
                tried: "wait for records of a ring buffer".into(),
                call: "ppoll",
                errno,
            })?;
        }
    }

    pub(super) fn ring_put_back(
        &mut self,
        rings: &[Resource<RingHandle>],
        records: &[u8],
    ) -> Result<(), HostError> {
        let names = self.ring_names(rings)?;
        let mut entries = Vec::new();
        // Summed by name: several positions of the list may denote one ring.
        let mut sums: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        let mut rest = records;
        while let Some((position, record, after)) = split_entry(rest) {
            let name = names.get(position as usize).ok_or(BpfError::Batch)?;
            let (bytes, kept) = sums.entry(name).or_default();
            *bytes += entry_bytes(record);
            *kept += kept_bytes(record);
            entries.push((name, record));
            rest = after;
        }
        // A plugin can put back at most what it received, so that it cannot fill the host's memory. Batches
        // of different rings may be open at once: a handler may poll others.
        let readers = &mut self.rings.readers;
        let given = |name| readers.get(name).map_or(0, |reader: &Reader| reader.given);
        if !rest.is_empty() || sums.iter().any(|(name, (bytes, _))| *bytes > given(*name)) {
            return Err(BpfError::Batch.into());
        }
        let mut charges = Vec::new();
        for (name, (_, kept)) in &sums {
            charges.push((*name, self.host_bytes.charge(*kept)?));
        }
        for (name, charge) in charges {
            if let Some(reader) = readers.get_mut(name) {
                reader.charge.merge(charge);
            }
        }
        for (name, record) in entries.into_iter().rev() {
            if let Some(reader) = readers.get_mut(name) {
                reader.given = reader.given.saturating_sub(entry_bytes(record));
                reader.kept.push_front(record.to_vec());
            }
        }
        Ok(())
    }

    pub(super) fn ring_open(&mut self, name: String) -> Result<Resource<RingHandle>, HostError> {
        check_length("ring buffer", &name)?;
        if !self.rings.readers.contains_key(&name) {
            let ring = self.audited("ring", &name, |_| None, |state| Ok(state.object()?.ring(&name)?))?;
            let (kept, charge) = (VecDeque::new(), self.host_bytes.start());
            let reader = Reader { ring, kept, charge, given: 0 };
            self.rings.readers.insert(name.clone(), reader);
        }
        let bytes = name.len();
        let name = self.host_bytes.keep(name, bytes)?;
        Ok(self.table.push(RingHandle { name })?)
    }

    pub(super) fn ring_size(&self, this: &Resource<RingHandle>) -> wasmtime::Result<u32> {
        let name = self.table.get(this)?.name.as_str();
        Ok(self.rings.readers.get(name).map_or(0, |reader| reader.ring.size()))
    }

    pub(super) fn ring_waiting(&self, this: &Resource<RingHandle>) -> wasmtime::Result<u64> {
        let name = self.table.get(this)?.name.as_str();
        Ok(self.rings.readers.get(name).map_or(0, |reader| {
            let kept: usize = reader.kept.iter().map(|record| entry_bytes(record)).sum();
            reader.ring.waiting() + kept as u64
        }))
    }

    pub(super) fn ring_lost(&mut self, this: &Resource<RingHandle>) -> wasmtime::Result<Option<u64>> {
        let name = self.table.get(this)?.name.to_string();
        let object = self.object().map_err(wasmtime::Error::new)?;
        Ok(object.lost(&name))
    }

    pub(super) fn ring_drop(&mut self, this: Resource<RingHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
