//! `ring`: ring buffers of the plugin's BPF object.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use wasmtime::component::Resource;

use super::bindings::kernelscript::host::ring::{Host, HostRing};
use super::error::HostError;
use super::state::State;
use crate::bpf::{BpfError, ENTRY_BYTES, Ring, push_entry, split_entry};

/// What a `ring` denotes: a ring buffer of the loaded object, by its name. All handles of one ring read from one place.
pub struct RingHandle {
    name: String,
}

/// The rings that a plugin has opened.
#[derive(Default)]
pub(super) struct Rings {
    readers: BTreeMap<String, Reader>,
    /// Bytes of the last batch that may still be put back.
    last_batch: usize,
    /// Which of the polled rings is looked at first, so that a busy one does not keep others waiting.
    turn: usize,
}

impl Rings {
    /// What becomes readable when these rings have records.
    pub(super) fn descriptors(&self, names: &[String]) -> Vec<BorrowedFd<'_>> {
        names
            .iter()
            .filter_map(|name| self.readers.get(name))
            .map(|reader| reader.ring.descriptor())
            .collect()
    }
}

/// A ring, and records that were taken out of it and not given to the plugin yet.
struct Reader {
    ring: Ring,
    kept: VecDeque<Vec<u8>>,
}

impl Reader {
    /// Appends entries to a batch of at most `most` bytes.
    fn take(&mut self, position: u32, most: usize, batch: &mut Vec<u8>) -> Result<(), BpfError> {
        while let Some(record) = self.kept.pop_front() {
            if batch.len() + ENTRY_BYTES + record.len().next_multiple_of(8) > most {
                return self.keep(record, batch.is_empty(), most);
            }
            push_entry(batch, position, &record);
        }
        let mut end = batch.len();
        self.ring.take(position, most, batch)?;
        while let Some((_, record, rest)) = split_entry(&batch[end..]) {
            let next = batch.len() - rest.len();
            if next > most {
                // At most one: the ring stops as soon as there is enough.
                let record = record.to_vec();
                batch.truncate(end);
                return self.keep(record, batch.is_empty(), most);
            }
            end = next;
        }
        Ok(())
    }

    /// Keeps a record for the next poll, which must be able to take it.
    fn keep(&mut self, record: Vec<u8>, is_first: bool, most: usize) -> Result<(), BpfError> {
        let needed = ENTRY_BYTES + record.len().next_multiple_of(8);
        self.kept.push_front(record);
        if is_first && needed > most {
            return Err(BpfError::Size {
                what: "the next record",
                name: self.ring.name().into(),
                expected: needed,
                given: most,
            });
        }
        Ok(())
    }
}

/// How long to wait for a program that has reserved a record and not yet given it back: the ring is readable then, but
/// has nothing to take.
const RESERVED: Duration = Duration::from_micros(100);

impl State {
    /// The names of the rings that handles denote.
    fn ring_names(&self, rings: &[Resource<RingHandle>]) -> Result<Vec<String>, HostError> {
        rings.iter().map(|ring| Ok(self.table.get(ring)?.name.clone())).collect()
    }

    fn take(&mut self, names: &[String], most: usize) -> Result<Vec<u8>, BpfError> {
        let mut batch = Vec::new();
        self.rings.turn = self.rings.turn.wrapping_add(1);
        for at in 0..names.len() {
            let position = (self.rings.turn + at) % names.len();
            let Some(reader) = self.rings.readers.get_mut(&names[position]) else { continue };
            // A plugin polls as many rings as it has handles, which 16 bits can count.
            match reader.take(position as u32, most, &mut batch) {
                Err(error) if batch.is_empty() => return Err(error),
                _ if batch.len() + ENTRY_BYTES >= most => break,
                _ => {}
            }
        }
        self.rings.last_batch = batch.len();
        Ok(batch)
    }
}

impl Host for State {
    fn poll(
        &mut self,
        rings: Vec<Resource<RingHandle>>,
        timeout: Option<u64>,
        most: u32,
    ) -> Result<Vec<u8>, HostError> {
        self.release_command()?;
        self.release_command()?;
        let names = self.ring_names(&rings)?;
        // A time beyond what the clock can say is a wait without end.
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

    fn put_back(&mut self, rings: Vec<Resource<RingHandle>>, records: Vec<u8>) -> Result<(), HostError> {
        let names = self.ring_names(&rings)?;
        let mut entries = Vec::new();
        let mut rest = &records[..];
        while let Some((position, record, after)) = split_entry(rest) {
            entries.extend(names.get(position as usize).map(|name| (name, record)));
            rest = after;
        }
        // A plugin gets back what it was given, and cannot fill the host's memory with more.
        if !rest.is_empty() || records.len() > self.rings.last_batch {
            return Err(BpfError::Batch.into());
        }
        self.rings.last_batch -= records.len();
        for (name, record) in entries.into_iter().rev() {
            if let Some(reader) = self.rings.readers.get_mut(name) {
                reader.kept.push_front(record.to_vec());
            }
        }
        Ok(())
    }
}

impl HostRing for State {
    fn open(&mut self, name: String) -> Result<Resource<RingHandle>, HostError> {
        if !self.rings.readers.contains_key(&name) {
            let ring = self.object()?.ring(&name)?;
            self.rings.readers.insert(name.clone(), Reader { ring, kept: VecDeque::new() });
        }
        Ok(self.table.push(RingHandle { name })?)
    }

    fn size(&mut self, this: Resource<RingHandle>) -> wasmtime::Result<u32> {
        let name = &self.table.get(&this)?.name;
        Ok(self.rings.readers.get(name).map_or(0, |reader| reader.ring.size()))
    }

    fn waiting(&mut self, this: Resource<RingHandle>) -> wasmtime::Result<u64> {
        let name = &self.table.get(&this)?.name;
        Ok(self.rings.readers.get(name).map_or(0, |reader| {
            let kept = reader.kept.iter().map(|record| ENTRY_BYTES + record.len().next_multiple_of(8));
            reader.ring.waiting() + kept.sum::<usize>() as u64
        }))
    }

    fn lost(&mut self, this: Resource<RingHandle>) -> wasmtime::Result<Option<u64>> {
        let name = self.table.get(&this)?.name.clone();
        let object = self.object().map_err(wasmtime::Error::new)?;
        Ok(object.lost(&name))
    }

    fn drop(&mut self, this: Resource<RingHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
