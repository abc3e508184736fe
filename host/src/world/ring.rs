//! `ring`: ring buffers and arrays of perf events of the plugin's BPF object.

mod entries;
pub mod linker;
mod readers;
pub(super) mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use wasmtime::component::Resource;

pub use entries::Entries;
pub(super) use readers::Rings;
use readers::{Reader, Source};

use super::error::{HostError, check_length};
use super::perf::Events;
use super::state::State;
use crate::bpf::BpfError;
use crate::host_bytes::Charged;
use crate::perf::OutputError;

/// Host side of a `ring` handle: the name of a ring. All handles of one ring share its consumer.
pub struct RingHandle {
    name: Charged<Arc<str>>,
}

/// Host side of a `batch` handle: for each ring of the poll its name, and the bytes that came from it and may
/// still be put back.
pub struct BatchHandle {
    given: Charged<Vec<(Arc<str>, usize)>>,
}

impl BatchHandle {
    /// Sets the bytes that came from each ring.
    fn give(&mut self, given: Vec<usize>) {
        self.given.iter_mut().zip(given).for_each(|((_, bytes), given)| *bytes = given);
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
        let batch = self.new_batch(&names)?;
        match self.poll_into(&batch, &names, timeout, most as usize) {
            Ok(entries) => Ok((batch, entries)),
            Err(error) => {
                self.table.delete(batch)?;
                Err(error)
            }
        }
    }

    /// Returns a handle of a batch of rings that has no records yet.
    fn new_batch(&mut self, names: &[Arc<str>]) -> Result<Resource<BatchHandle>, HostError> {
        let list = names.iter().map(|name| (Arc::clone(name), 0)).collect::<Vec<_>>();
        let bytes = size_of_val(list.as_slice());
        Ok(self.table.push(BatchHandle { given: self.host_bytes.keep(list, bytes)? })?)
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
            let is_stopping = self.stop.stopping();
            if is_stopping && timeout != Some(0) {
                return Err(HostError::interrupted());
            }
            let (entries, given) = self.rings.take(names, most)?;
            if is_stopping && entries.is_empty() {
                return Err(HostError::interrupted());
            }
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if !entries.is_empty() || is_over {
                self.table.get_mut(batch)?.give(given);
                return Ok(entries);
            }
            if readable {
                self.stop.wait(RESERVED);
            }
            readable = self.wait(names, deadline).map_err(not_waited)?;
        }
    }

    pub(super) fn batch_put_back(
        &mut self,
        this: &Resource<BatchHandle>,
        records: &[u8],
    ) -> Result<(), HostError> {
        let given = &mut self.table.get_mut(this)?.given;
        self.rings.put_back(given, records, &self.host_bytes)
    }

    pub(super) fn batch_drop(&mut self, this: Resource<BatchHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }

    pub(super) fn ring_open(&mut self, name: String) -> Result<Resource<RingHandle>, HostError> {
        check_length("ring buffer", &name)?;
        if self.rings.buffer(&name).is_none() {
            let ring = self.audited("ring", &name, |_| None, |state| Ok(state.object()?.ring(&name)?))?;
            self.read_ring(&name, Source::Buffer(ring));
        }
        let handle = self.ring_handle(&name)?;
        self.pass_ring_on(handle.rep(), &name);
        Ok(handle)
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
        self.rings.add(name.into(), source, &self.host_bytes);
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
        Ok(self.rings.reader(&self.table.get(this)?.name).map_or(0, Reader::size))
    }

    pub(super) fn ring_waiting(&self, this: &Resource<RingHandle>) -> wasmtime::Result<u64> {
        Ok(self.rings.reader(&self.table.get(this)?.name).map_or(0, Reader::waiting))
    }

    pub(super) fn ring_lost(&mut self, this: &Resource<RingHandle>) -> wasmtime::Result<Option<u64>> {
        let name = Arc::clone(&self.table.get(this)?.name);
        if let Some(rings) = self.rings.events(&name) {
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

fn not_waited(errno: Errno) -> BpfError {
    BpfError::Kernel { tried: "wait for records of a ring".into(), call: "ppoll", errno }
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
