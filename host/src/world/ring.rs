//! `ring`: ring buffers and arrays of perf events of the plugin's BPF object.

mod entries;
pub mod linker;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use wasmtime::component::Resource;

pub use entries::Entries;
use entries::entry_bytes;

use super::error::{HostError, check_length};
use super::perf::Events;
use super::state::State;
use crate::bpf::{BpfError, ENTRY_BYTES, Ring, TooLong, split_entry};
use crate::host_bytes::{Charge, Charged};
use crate::perf::{OutputError, OutputRings};

/// Host side of a `ring` handle: the name of a ring. All handles of one ring share its consumer.
pub struct RingHandle {
    name: Charged<Arc<str>>,
}

/// Host side of a `batch` handle: for each ring of the poll its name, and the bytes that came from it and may
/// still be put back.
pub struct BatchHandle {
    given: Charged<Vec<(Arc<str>, usize)>>,
}

/// The rings that a plugin has opened, by name.
#[derive(Default)]
pub(super) struct Rings {
    readers: BTreeMap<Arc<str>, Reader>,
    /// Index of the polled ring that is read first; it rotates, so that a busy ring does not starve others.
    first_ring: usize,
}

impl Rings {
    /// Returns the descriptors that become readable when these rings have records.
    pub(super) fn descriptors(&self, names: &[Arc<str>]) -> Vec<BorrowedFd<'_>> {
        let readers = names.iter().filter_map(|name| self.readers.get(name));
        let mut descriptors = Vec::with_capacity(names.len());
        for reader in readers {
            match &reader.source {
                Source::Buffer(ring) => descriptors.push(ring.descriptor()),
                Source::Events(rings) => descriptors.extend(rings.descriptors()),
            }
        }
        descriptors
    }

    /// Whether the array of events of this name is read.
    pub(super) fn reads_events_of(&self, array: &str) -> bool {
        self.readers.get(array).is_some_and(|reader| matches!(reader.source, Source::Events(_)))
    }

    /// Handles CPUs that went offline or came online since the last call. Returns the failures, and whether a
    /// ring depends on CPUs.
    pub(super) fn follow_cpus(&mut self) -> (Vec<(Arc<str>, OutputError)>, bool) {
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
enum Source {
    /// A ring buffer.
    Buffer(Ring),
    /// An array of perf events.
    Events(OutputRings),
}

/// The consumer of a ring, with the records that the plugin has put back.
struct Reader {
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
        };
        match long {
            Some(long) if entries.is_empty() => Err(long),
            _ => Ok(entries.len() - before),
        }
    }

    fn size(&self) -> u32 {
        match &self.source {
            Source::Buffer(ring) => ring.size(),
            Source::Events(rings) => rings.size(),
        }
    }

    fn waiting(&self) -> u64 {
        let kept: usize = self.kept.iter().map(|record| entry_bytes(record)).sum();
        kept as u64
            + match &self.source {
                Source::Buffer(ring) => ring.waiting(),
                Source::Events(rings) => rings.waiting(),
            }
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
    fn ring_names(&self, rings: &[Resource<RingHandle>]) -> Result<Vec<Arc<str>>, HostError> {
        if rings.len() > MAX_POLLED {
            return Err(HostError::invalid(format!(
                "{} rings are too many for one call: it takes {MAX_POLLED}",
                rings.len()
            )));
        }
        rings.iter().map(|ring| Ok(Arc::clone(&self.table.get(ring)?.name))).collect()
    }

    /// Takes records out of rings. Returns them with the bytes that came from each ring.
    fn take(&mut self, names: &[Arc<str>], most: usize) -> Result<(Entries, Vec<usize>), BpfError> {
        let mut entries = Entries::default();
        let mut given = vec![0; names.len()];
        self.rings.first_ring = self.rings.first_ring.wrapping_add(1);
        // A ring that is in the list twice contributes two parts to one batch.
        for at in 0..names.len() {
            let position = (self.rings.first_ring + at) % names.len();
            let Some(reader) = self.rings.readers.get_mut(&names[position]) else { continue };
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
}

/// Implementation of the interface, see `wit/ring.wit`.
impl State {
    pub(super) fn ring_poll(
        &mut self,
        rings: &[Resource<RingHandle>],
        timeout: Option<u64>,
        most: u32,
    ) -> Result<(Resource<BatchHandle>, Entries), HostError> {
        self.release_command()?;
        let names = self.ring_names(rings)?;
        // Before records are taken, so that none is lost if there is no room for a handle.
        let list = names.iter().map(|name| (Arc::clone(name), 0)).collect::<Vec<_>>();
        let bytes = size_of_val(list.as_slice());
        let batch = self.table.push(BatchHandle { given: self.host_bytes.keep(list, bytes)? })?;
        match self.poll_into(&batch, &names, timeout, most as usize) {
            Ok(entries) => Ok((batch, entries)),
            Err(error) => {
                self.table.delete(batch)?;
                Err(error)
            }
        }
    }

    fn poll_into(
        &mut self,
        batch: &Resource<BatchHandle>,
        names: &[Arc<str>],
        timeout: Option<u64>,
        most: usize,
    ) -> Result<Entries, HostError> {
        // A deadline that overflows the clock means no deadline.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout)));
        let mut readable = false;
        loop {
            if self.stop.stopping() {
                return Err(HostError::interrupted());
            }
            let (entries, given) = self.take(names, most)?;
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if !entries.is_empty() || is_over {
                let of_rings = &mut self.table.get_mut(batch)?.given;
                of_rings.iter_mut().zip(given).for_each(|((_, bytes), given)| *bytes = given);
                return Ok(entries);
            }
            if readable {
                self.stop.wait(RESERVED);
            }
            readable = self.wait(names, deadline).map_err(|errno| BpfError::Kernel {
                tried: "wait for records of a ring".into(),
                call: "ppoll",
                errno,
            })?;
        }
    }

    pub(super) fn batch_put_back(
        &mut self,
        this: &Resource<BatchHandle>,
        records: &[u8],
    ) -> Result<(), HostError> {
        let given = &mut self.table.get_mut(this)?.given;
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
        let mut charge = self.host_bytes.charge(cost)?;
        for ((_, given), (bytes, _)) in given.iter_mut().zip(&sums) {
            *given -= bytes;
        }
        for (name, record) in entries.into_iter().rev() {
            if let Some(reader) = self.rings.readers.get_mut(&name) {
                reader.charge.merge(charge.split(kept_bytes(record)));
                reader.kept.push_front(record.to_vec());
            }
        }
        Ok(())
    }

    pub(super) fn batch_drop(&mut self, this: Resource<BatchHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }

    pub(super) fn ring_open(&mut self, name: String) -> Result<Resource<RingHandle>, HostError> {
        check_length("ring buffer", &name)?;
        if !matches!(self.rings.readers.get(name.as_str()), Some(Reader { source: Source::Buffer(_), .. })) {
            let ring = self.audited("ring", &name, |_| None, |state| Ok(state.object()?.ring(&name)?))?;
            self.read_ring(&name, Source::Buffer(ring));
        }
        self.ring_handle(&name)
    }

    pub(super) fn ring_open_events(
        &mut self,
        name: String,
        bytes: u32,
    ) -> Result<Resource<RingHandle>, HostError> {
        check_length("array of events", &name)?;
        if !self.rings.reads_events_of(&name) {
            let rings = self.audited(
                "ring",
                &name,
                |_| None,
                |state| {
                    let array = Arc::new(Events(state.object()?.event_array(&name)?));
                    if state.attachments.is_published_in(&name) {
                        return Err(BpfError::ArrayInUse { name: name.clone() }.into());
                    }
                    let opened = state.attachments.output_rings(array, bytes, &state.host_bytes);
                    opened.map_err(|error| not_opened(&name, error))
                },
            )?;
            self.watch_output(&name, rings.losses());
            self.read_ring(&name, Source::Events(rings));
        }
        self.ring_handle(&name)
    }

    fn read_ring(&mut self, name: &str, source: Source) {
        let reader = Reader { source, kept: VecDeque::new(), charge: self.host_bytes.start() };
        self.rings.readers.insert(name.into(), reader);
    }

    fn ring_handle(&mut self, name: &str) -> Result<Resource<RingHandle>, HostError> {
        let name = self.host_bytes.keep(Arc::from(name), name.len())?;
        Ok(self.table.push(RingHandle { name })?)
    }

    /// Follows changes of online CPUs, and reports those whose records cannot be read. Returns whether a ring
    /// depends on CPUs.
    pub(super) fn follow_cpus_of_rings(&mut self) -> bool {
        let (failures, any) = self.rings.follow_cpus();
        for (name, error) in failures {
            self.output.report(&format!("records of a CPU cannot be read from `{name}`: {error}"));
        }
        any
    }

    pub(super) fn ring_size(&self, this: &Resource<RingHandle>) -> wasmtime::Result<u32> {
        Ok(self.rings.readers.get(&**self.table.get(this)?.name).map_or(0, Reader::size))
    }

    pub(super) fn ring_waiting(&self, this: &Resource<RingHandle>) -> wasmtime::Result<u64> {
        Ok(self.rings.readers.get(&**self.table.get(this)?.name).map_or(0, Reader::waiting))
    }

    pub(super) fn ring_lost(&mut self, this: &Resource<RingHandle>) -> wasmtime::Result<Option<u64>> {
        let name = Arc::clone(&self.table.get(this)?.name);
        if let Some(Reader { source: Source::Events(rings), .. }) = self.rings.readers.get(&name) {
            return Ok(Some(rings.losses().count()));
        }
        let object = self.object().map_err(wasmtime::Error::new)?;
        Ok(object.lost(&name))
    }

    pub(super) fn ring_drop(&mut self, this: Resource<RingHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

fn not_opened(name: &str, error: OutputError) -> HostError {
    let tried = |cpu: i32| format!("open the ring of CPU {cpu} of the array of events `{name}`");
    match error {
        OutputError::Size { .. } => HostError::invalid(error.to_string()),
        OutputError::Full(full) => BpfError::from(full).into(),
        OutputError::LockedMemory { cpu } => {
            BpfError::LockedMemory { tried: tried(cpu), call: "mmap", errno: Errno::EPERM }.into()
        }
        OutputError::Kernel { cpu, call, errno } => {
            BpfError::Kernel { tried: tried(cpu), call, errno }.into()
        }
    }
}
