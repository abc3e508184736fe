//! Polling in a worker: it takes records of the ring buffers that its broker has passed on itself. The broker waits,
//! since it keeps the timeouts, requests to stop and losses.
//!
//! ```text
//! poll of ring buffers only -> records there: no message, but each LOOK
//!                           \-> none: RING_WAIT, then again
//! poll with other rings     -> the broker takes the records of all of them, from then on
//! ```
//!
//! Each side goes on after the consumer position that the other one left, and a worker waits while its broker works: so
//! one of them consumes at a time. Records that were put back stay where their batch came from, and are taken first.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::{ComponentNamedList, Linker, LinkerInstance, Lower, Resource};

use super::super::bindings::kernelscript::host::types::{Error, Host as _};
use super::super::direct::{PassedOn, in_table, own_handle};
use super::super::error::HostError;
use super::super::linker::Numbers;
use super::super::served::{Number, Served};
use super::super::state::State;
use super::super::wire::{self, Wire};
use super::linker::INTERFACE;
use super::readers::{Reader, Rings, Source};
use super::{BatchHandle, Entries, MAX_POLLED, RingHandle, not_waited};
use crate::bpf::Ring;
use crate::host_bytes::HostBytes;

/// How long a worker takes records without asking whether its plugin is to stop.
const LOOK: Duration = Duration::from_millis(10);

/// The ring buffers that a worker reads.
#[derive(Default)]
pub(in super::super) struct WorkerRings {
    rings: Rings,
    /// Names by handles of the broker.
    names: BTreeMap<u32, Arc<str>>,
    /// When the broker was last asked whether the plugin is to stop; none if the next poll asks.
    looked: Option<Instant>,
}

impl WorkerRings {
    /// Adds a ring buffer with so many bytes for records. If it cannot be mapped, the broker reads it.
    pub(in super::super) fn add(
        &mut self,
        handle: u32,
        (name, bytes): (String, u32),
        ring: OwnedFd,
        host_bytes: &HostBytes,
    ) {
        let name: Arc<str> = name.into();
        if self.rings.reader(&name).is_none() {
            let Ok(ring) = Ring::passed_on(name.to_string(), ring, bytes) else { return };
            self.rings.add(Arc::clone(&name), Source::Buffer(ring), host_bytes);
        }
        self.names.insert(handle, name);
    }

    /// Forgets a handle. Its ring stays as it is for others.
    pub(in super::super) fn forget(&mut self, handle: u32) {
        self.names.remove(&handle);
    }

    fn name(&self, ring: &Resource<RingHandle>) -> Option<&Arc<str>> {
        self.names.get(&ring.rep())
    }

    /// Returns the ring buffer of a handle, if this worker takes its records.
    fn buffer(&self, ring: &Resource<RingHandle>) -> Option<&Reader> {
        let name = self.name(ring)?;
        self.rings.buffer(name).and_then(|_| self.rings.reader(name))
    }

    /// Returns the names of rings if this worker serves a poll of them: it has records of one of them that were put back,
    /// or takes those of all. Else the broker takes them all from now on.
    fn served_here(&mut self, rings: &[Resource<RingHandle>]) -> Option<Vec<Arc<str>>> {
        if rings.is_empty() || rings.len() > MAX_POLLED {
            return None;
        }
        // No ring is called so.
        let name = |ring| self.name(ring).cloned().unwrap_or_else(|| Arc::from(""));
        let names: Vec<_> = rings.iter().map(name).collect();
        let is_served = names.iter().any(|name| self.rings.has_kept(name))
            || rings.iter().all(|ring| self.buffer(ring).is_some());
        if !is_served {
            names.iter().for_each(|name| self.rings.leave_to_broker(name));
        }
        is_served.then_some(names)
    }
}

impl State {
    /// Passes a ring buffer on to the worker.
    pub(super) fn pass_ring_on(&mut self, handle: u32, name: &str) {
        let Some((ring, bytes)) = self.rings.buffer(name).and_then(Ring::to_pass_on) else { return };
        self.waiting.push(PassedOn::ring(handle, name, bytes), Some(ring));
    }

    /// Waits for a worker until one of its rings is readable. With a timeout of 0, only says whether the plugin is to
    /// stop. `is_reserved` if a ring was readable without a record to take.
    fn ring_wait(
        &mut self,
        rings: &[Resource<RingHandle>],
        timeout: Option<u64>,
        is_reserved: bool,
    ) -> Result<bool, HostError> {
        self.release_command()?;
        let names = self.ring_names(rings)?;
        let mut is_readable = false;
        if timeout != Some(0) && !self.stop.stopping() {
            let deadline =
                timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout)));
            if is_reserved {
                self.stop.wait(super::RESERVED);
            }
            is_readable = self.wait(&names, deadline).map_err(not_waited)?;
        }
        if self.stop.stopping() { Err(HostError::interrupted()) } else { Ok(is_readable) }
    }

    /// Has the broker wait.
    fn wait_by_broker(
        &mut self,
        rings: &[Resource<RingHandle>],
        timeout: Option<u64>,
        is_reserved: bool,
    ) -> Result<bool, HostError> {
        self.direct.rings.looked = None;
        let rings: Vec<_> = rings.iter().map(|ring| Resource::<RingHandle>::new_borrow(ring.rep())).collect();
        let answer = self.ask_broker(Number::RING_WAIT, |call| (rings, timeout, is_reserved).put(call))?;
        let (answer,): (Result<bool, Error>,) = wire::read(&answer).map_err(wasmtime::Error::from)?;
        let is_readable = answer.map_err(|error| HostError::Guest(Box::new(error)))?;
        self.direct.rings.looked = Some(Instant::now());
        Ok(is_readable)
    }

    /// Polls rings in a worker.
    fn poll_in_worker(
        &mut self,
        number: Number,
        params: &(Vec<Resource<RingHandle>>, Option<u64>, u32),
    ) -> Result<(Resource<BatchHandle>, Entries), HostError> {
        let (rings, timeout, most) = params;
        let Some(names) = self.direct.rings.served_here(rings) else {
            let answer = self.ask_broker(number, |call| params.put(call))?;
            type Answer = Result<(Resource<BatchHandle>, Entries), Error>;
            let (answer,): (Answer,) = wire::read(&answer).map_err(wasmtime::Error::from)?;
            return answer.map_err(|error| HostError::Guest(Box::new(error)));
        };
        // Before records are taken, so that none is lost if there is no room for a handle.
        let batch = self.new_batch(&names)?;
        match self.take_in_worker(rings, &names, *timeout, *most as usize) {
            Ok((entries, given)) => {
                self.table.get_mut(&batch)?.give(given);
                Ok((self.for_plugin(batch), entries))
            }
            Err(error) => {
                self.table.delete(batch)?;
                Err(error)
            }
        }
    }

    fn take_in_worker(
        &mut self,
        rings: &[Resource<RingHandle>],
        names: &[Arc<str>],
        timeout: Option<u64>,
        most: usize,
    ) -> Result<(Entries, Vec<usize>), HostError> {
        // A deadline that overflows the clock means no deadline.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout)));
        let mut looks = self.direct.rings.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        let mut is_readable = false;
        loop {
            // Without a wait, what is there is taken also by a plugin that is to stop.
            if looks && timeout != Some(0) {
                self.wait_by_broker(rings, Some(0), false)?;
                looks = false;
            }
            let (entries, given) = self.direct.rings.rings.take(names, most)?;
            if looks && entries.is_empty() {
                self.wait_by_broker(rings, Some(0), false)?;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !entries.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Ok((entries, given));
            }
            let left = left.map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
            is_readable = self.wait_by_broker(rings, left, is_readable)?;
        }
    }

    /// Puts records back into the rings of a batch that this worker has returned. None if the broker has.
    fn put_back_in_worker(
        &mut self,
        batch: &Resource<BatchHandle>,
        records: &[u8],
    ) -> Option<Result<(), HostError>> {
        own_handle(batch.rep())?;
        Some(match self.table.get_mut(&in_table(batch)) {
            Ok(BatchHandle { given }) => self.direct.rings.rings.put_back(given, records, &self.host_bytes),
            Err(error) => Err(error.into()),
        })
    }

    /// Answers a call of a worker, or has the broker answer it.
    fn or_ask_broker<R: Wire>(
        &mut self,
        answer: Option<R>,
        number: Number,
        params: &impl Wire,
    ) -> wasmtime::Result<(R,)> {
        match answer {
            Some(answer) => Ok((answer,)),
            None => Ok(wire::read(&self.ask_broker(number, |call| params.put(call))?)?),
        }
    }
}

/// Adds what a worker asks for to poll rings.
pub(in super::super) fn serve(served: &mut Served<State>) {
    type Wait = (Vec<Resource<RingHandle>>, Option<u64>, bool);
    served.add_own(Number::RING_WAIT, |state, (rings, timeout, is_reserved): Wait| {
        match state.ring_wait(&rings, timeout, is_reserved) {
            Ok(is_readable) => Ok((Ok(is_readable),)),
            Err(error) => Ok((Err(state.convert_error(error)?),)),
        }
    });
}

/// Substitutes a function of a ring whose answer a worker reads where it takes the records itself.
fn answer_of_reader<R>(
    linker: &mut LinkerInstance<'_, State>,
    numbers: &Numbers,
    function: &'static str,
    read: fn(&Reader) -> R,
) -> wasmtime::Result<()>
where
    R: Wire + Lower + Send + Sync + 'static,
    (R,): ComponentNamedList + Lower,
{
    let Some(number) = numbers.get(&format!("ring.{function}")).copied() else { return Ok(()) };
    linker.func_wrap(function, move |mut store, params: (Resource<RingHandle>,)| {
        let state = store.data_mut().called();
        let answer = state.direct.rings.buffer(&params.0).map(read);
        state.or_ask_broker(answer, number, &params)
    })
}

/// Substitutes the functions of rings that a worker answers itself.
///
/// # Errors
/// Those of the linker.
pub(in super::super) fn add_to_linker_of_worker(
    linker: &mut Linker<State>,
    numbers: &Numbers,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut ring = linker.instance(INTERFACE)?;
    let number = |function: &str| numbers.get(&format!("ring.{function}")).copied();
    if let Some(number) = number("poll") {
        type Params = (Vec<Resource<RingHandle>>, Option<u64>, u32);
        ring.func_wrap("poll", move |mut store, params: Params| {
            let state = store.data_mut().called();
            match state.poll_in_worker(number, &params) {
                Ok(polled) => Ok((Ok(polled),)),
                Err(error) => Ok((Err(state.convert_error(error)?),)),
            }
        })?;
    }
    answer_of_reader(&mut ring, numbers, "[method]ring.size", Reader::size)?;
    answer_of_reader(&mut ring, numbers, "[method]ring.waiting", Reader::waiting)?;
    if let Some(number) = number("[method]batch.put-back") {
        type Batch = (Resource<BatchHandle>, Vec<u8>);
        ring.func_wrap("[method]batch.put-back", move |mut store, params: Batch| {
            let state = store.data_mut().called();
            let answer = match state.put_back_in_worker(&params.0, &params.1) {
                Some(Err(error)) => Some(Err(state.convert_error(error)?)),
                Some(Ok(())) => Some(Ok(())),
                None => None,
            };
            state.or_ask_broker::<Result<(), Error>>(answer, number, &params)
        })?;
    }
    linker.allow_shadowing(false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;
    use std::os::fd::AsFd as _;

    use libbpf_rs::{MapHandle, MapType, libbpf_sys};

    use super::*;

    fn handles(numbers: &[u32]) -> Vec<Resource<RingHandle>> {
        numbers.iter().map(|number| Resource::new_borrow(*number)).collect()
    }

    /// Returns the rings of a worker that has `one` as 1 and `two` as 2.
    fn two_rings() -> WorkerRings {
        let (mut rings, host_bytes) = (WorkerRings::default(), HostBytes::new(1 << 20));
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        for (handle, name) in [(1, "one"), (2, "two")] {
            let map = MapHandle::create(MapType::RingBuf, Some(name), 0, 0, 1 << 16, &options);
            let ring = map.expect("root creates it").as_fd().try_clone_to_owned().expect("a descriptor");
            rings.add(handle, (name.to_owned(), 1 << 16), ring, &host_bytes);
        }
        rings
    }

    #[test]
    fn root_a_worker_takes_records_until_another_ring_is_polled_with_them() {
        let mut rings = two_rings();
        let size =
            |rings: &WorkerRings, handle| rings.buffer(&Resource::new_borrow(handle)).map(Reader::size);
        assert_eq!(rings.served_here(&handles(&[1, 2, 1])).map(|names| names.len()), Some(3));
        assert_eq!([1, 2, 3].map(|handle| size(&rings, handle)), [Some(1 << 16), Some(1 << 16), None]);
        assert!(rings.served_here(&[]).is_none(), "the broker waits for nothing");
        assert!(rings.served_here(&handles(&[1, 3])).is_none(), "the worker has no ring 3");
        assert!(rings.served_here(&handles(&[1])).is_none(), "the broker may have records of it");
        assert!(rings.served_here(&handles(&[2])).is_some());
        rings.forget(2);
        assert!(rings.served_here(&handles(&[2])).is_none());
    }

    #[test]
    fn root_records_that_a_worker_has_come_before_those_of_the_broker() {
        let mut rings = two_rings();
        let mut given = [(Arc::from("one"), 16)];
        let record = [[0, 0, 0, 0, 8, 0, 0, 0], *b"a record"].concat();
        let host_bytes = HostBytes::new(1 << 20);
        rings
            .rings
            .put_back(&mut given, &record, &host_bytes)
            .unwrap_or_else(|_| panic!("it came from there"));
        let both = handles(&[3, 1]);
        let names = rings.served_here(&both).expect("it has a record");
        let (entries, given) = rings.rings.take(&names, 1 << 10).expect("it fits");
        assert_eq!((entries.len(), given), (16, vec![0, 16]));
        assert!(rings.served_here(&both).is_none());
    }
}
