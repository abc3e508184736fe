//! Calls that a worker answers itself: the time, texts of numbers and addresses and, with descriptors that its broker
//! has passed on, readings of counters, operations on maps of data, and taking records of ring buffers
//! ([`super::ring::worker`]). All others are messages to the broker, and so is every call that fails here.
//!
//! ```text
//! the broker: State -- take_passed_on --> PassedOn, a descriptor ..   (messages)   .. Direct: the worker
//! ```

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use ks_host_macros::Wire;
use wasmtime::component::Resource;

use super::maps::MapHandle;
use super::ring::worker::WorkerRings;
use super::state::State;
use crate::bpf::{Map, MapShape};
use crate::host_bytes::HostBytes;
use crate::perf::{AttachmentId, Change, Reading, SharedGroups, SharedState, Snapshot};
use crate::sorted::SortedMap;

/// Functions of maps that a worker answers itself, if it has the map.
const OF_MAPS: [&str; 14] = [
    "maps.[method]bpf-map.info",
    "maps.[method]bpf-map.lookup",
    "maps.[method]bpf-map.lookup-locked",
    "maps.[method]bpf-map.lookup-and-delete",
    "maps.[method]bpf-map.update",
    "maps.[method]bpf-map.update-locked",
    "maps.[method]bpf-map.update-sum",
    "maps.[method]bpf-map.update-batch",
    "maps.[method]bpf-map.delete",
    "maps.[method]bpf-map.delete-batch",
    "maps.[method]bpf-map.contains",
    "maps.[method]bpf-map.count",
    "maps.[method]bpf-map.clear",
    "maps.[method]bpf-map.iterate",
];

/// The function of a cursor, which a worker answers itself if it has made the cursor.
const OF_CURSOR: &str = "maps.[method]cursor.next";

/// Bytes of an entry's value, at most, in maps that are passed on: a worker has little memory beside its plugin's.
const MOST_VALUE_BYTES: u64 = 1 << 20;

/// Functions of the clock that a worker answers itself, unless its calls are recorded.
const OF_CLOCK: [&str; 3] = ["clock.now", "clock.boottime", "clock.wall-clock"];

/// The interface of texts that depend on their operands only, which a worker makes itself as it reads the clock.
const OF_DISPLAY: &str = "display.";

/// Attachments that a worker reads in one call. The broker charges memory for more.
const MOST_READ: usize = 4096;

/// Marks handles that a worker has made itself. No table of a broker has so many.
const OWN: u32 = 1 << 31;

/// Returns the handle in a worker's own table that a plugin's handle denotes; none if the broker has made it.
pub(super) fn own_handle(handle: u32) -> Option<u32> {
    (handle & OWN != 0).then_some(handle & !OWN)
}

/// Returns the handle in the table of this process that a plugin's handle denotes.
pub(super) fn in_table<T: 'static>(handle: &Resource<T>) -> Resource<T> {
    Resource::new_borrow(handle.rep() & !OWN)
}

/// Whether a worker answers a call itself, given the handle that its arguments begin with.
type IsDirect = fn(&Direct, Option<u32>) -> bool;

/// Returns which calls of a function a worker answers as a host does; none if it answers none so.
pub(super) fn answered_here(function: &str) -> Option<IsDirect> {
    match function {
        _ if OF_MAPS.contains(&function) => {
            Some(|direct, handle| handle.is_some_and(|handle| direct.map(handle).is_some()))
        }
        OF_CURSOR => Some(|_, handle| handle.and_then(own_handle).is_some()),
        // Only the broker has the time zone and the kernel's types.
        "display.time-of-day" | "display.enumerator" => None,
        _ if OF_CLOCK.contains(&function) || function.starts_with(OF_DISPLAY) => {
            Some(|direct, _| direct.has_clock)
        }
        _ => None,
    }
}

/// What the broker passes on to its worker.
#[derive(Debug, Wire)]
pub(crate) enum PassedOn {
    /// The clock.
    Clock(()),
    /// An event of a group, by the kernel's id, with its descriptor.
    Event(u64),
    /// The file that tells whether CPUs have come or gone, with its descriptor.
    CpuEvents(()),
    /// The state of a group.
    Group(PassedGroup),
    /// A handle of an attachment.
    Attachment(PassedAttachment),
    /// A map, with its descriptor.
    Map(PassedMap),
    /// A ring buffer, with its descriptor.
    Ring(PassedRing),
    /// The map of this name cannot be changed any more.
    Frozen(String),
}

#[derive(Debug, Wire)]
pub(crate) struct PassedGroup {
    leader: u64,
    state: Option<SharedState>,
}

#[derive(Debug, Wire)]
pub(crate) struct PassedAttachment {
    handle: u32,
    id: u64,
}

#[derive(Debug, Wire)]
pub(crate) struct PassedMap {
    handle: u32,
    name: String,
    shape: MapShape,
    slots: u64,
}

#[derive(Debug, Wire)]
pub(crate) struct PassedRing {
    handle: u32,
    name: String,
    bytes: u32,
}

impl PassedOn {
    /// Returns a ring buffer with so many bytes for records.
    pub(super) fn ring(handle: u32, name: &str, bytes: u32) -> PassedOn {
        PassedOn::Ring(PassedRing { handle, name: name.to_owned(), bytes })
    }
}

/// What waits in the broker to be passed on; none without a worker that may have it.
#[derive(Debug, Default)]
pub(super) struct Waiting(Option<Vec<(PassedOn, Option<OwnedFd>)>>);

impl Waiting {
    /// Records what the next message to the worker follows.
    pub(super) fn push(&mut self, what: PassedOn, descriptor: Option<OwnedFd>) {
        if let Some(waiting) = &mut self.0 {
            waiting.push((what, descriptor));
        }
    }
}

impl State {
    /// Passes on to the worker what it can use itself.
    pub(crate) fn pass_on(&mut self) {
        self.waiting = Waiting(Some(vec![(PassedOn::Clock(()), None)]));
        self.attachments.share();
    }

    /// Records the handle of an attachment.
    pub(super) fn pass_attachment_on(&mut self, handle: u32, id: AttachmentId) {
        self.waiting.push(PassedOn::Attachment(PassedAttachment { handle, id: id.get() }), None);
    }

    /// Records the handle of a map.
    pub(super) fn pass_map_on(&mut self, handle: u32, map: &Map) {
        if self.waiting.0.is_none() {
            return;
        }
        let Some(descriptor) = map.to_pass_on().filter(|_| map.value_bytes() <= MOST_VALUE_BYTES) else {
            return;
        };
        let passed =
            PassedMap { handle, name: map.name().to_owned(), shape: map.shape(), slots: map.slots() as u64 };
        self.waiting.push(PassedOn::Map(passed), Some(descriptor));
    }

    /// Returns the handle that the plugin gets for one in the table of this process.
    pub(super) fn for_plugin<T: 'static>(&self, made: Resource<T>) -> Resource<T> {
        if self.broker.is_some() { Resource::new_own(made.rep() | OWN) } else { made }
    }

    /// Returns what has to be passed on before the worker goes on.
    ///
    /// # Errors
    /// Of dup(2).
    pub(crate) fn take_passed_on(&mut self) -> io::Result<Vec<(PassedOn, Option<OwnedFd>)>> {
        let Some(waiting) = &mut self.waiting.0 else { return Ok(Vec::new()) };
        let changes = self.attachments.take_changes()?;
        let of_change = |change| match change {
            Change::Event { kernel_id, descriptor } => (PassedOn::Event(kernel_id), Some(descriptor)),
            Change::CpuEvents { descriptor } => (PassedOn::CpuEvents(()), Some(descriptor)),
            Change::Group { leader, state } => {
                (PassedOn::Group(PassedGroup { leader: leader.get(), state }), None)
            }
        };
        waiting.extend(changes.into_iter().map(of_change));
        Ok(std::mem::take(waiting))
    }
}

/// What a worker has of its broker.
#[derive(Default)]
pub(crate) struct Direct {
    /// Whether calls need no record: it reads the clock and makes texts itself.
    has_clock: bool,
    groups: SharedGroups,
    /// Attachments by their handles.
    attachments: SortedMap<u32, AttachmentId>,
    /// Maps by their handles.
    maps: BTreeMap<u32, MapHandle>,
    pub(super) rings: WorkerRings,
}

impl Direct {
    /// Takes what the broker passes on. What is unusable here stays with the broker.
    pub(crate) fn take(&mut self, passed: PassedOn, descriptor: Option<OwnedFd>, host_bytes: &HostBytes) {
        match (passed, descriptor) {
            (PassedOn::Clock(()), _) => self.has_clock = true,
            (PassedOn::Event(kernel_id), Some(descriptor)) => {
                self.groups.take(Change::Event { kernel_id, descriptor });
            }
            (PassedOn::CpuEvents(()), Some(descriptor)) => self.groups.take(Change::CpuEvents { descriptor }),
            (PassedOn::Group(PassedGroup { leader, state }), _) => {
                self.groups.take(Change::Group { leader: AttachmentId::of(leader), state });
            }
            (PassedOn::Attachment(PassedAttachment { handle, id }), _) => {
                self.attachments.insert(handle, AttachmentId::of(id));
            }
            (PassedOn::Map(PassedMap { handle, name, shape, slots }), Some(map)) => {
                let slots = usize::try_from(slots).unwrap_or(usize::MAX);
                let map = Map::passed_on(name, shape, slots, map);
                if map.is_reachable()
                    && let Ok(handle_of_map) = MapHandle::keep(map.into(), host_bytes)
                {
                    self.maps.insert(handle, handle_of_map);
                }
            }
            (PassedOn::Ring(PassedRing { handle, name, bytes }), Some(ring)) => {
                self.rings.add(handle, (name, bytes), ring, host_bytes);
            }
            (PassedOn::Frozen(name), _) => {
                self.maps.values().filter(|map| map.name() == name).for_each(MapHandle::note_frozen);
            }
            (PassedOn::Event(_) | PassedOn::CpuEvents(()) | PassedOn::Map(_) | PassedOn::Ring(_), None) => {}
        }
    }

    /// Closes what belongs to a handle that ends.
    pub(super) fn forget(&mut self, handle: u32) {
        self.maps.remove(&handle);
        self.attachments.remove(handle);
        self.rings.forget(handle);
    }

    /// Returns the map of a handle; none if the broker must be asked.
    pub(super) fn map(&self, handle: u32) -> Option<&MapHandle> {
        self.maps.get(&handle)
    }

    /// Reads the attachment of a handle; none if the broker must do it.
    #[inline]
    pub(super) fn read(&mut self, handle: u32) -> Option<Reading> {
        self.groups.read(*self.attachments.get(handle)?)
    }

    /// Reads the group of a handle; none if the broker must do it.
    #[inline]
    pub(super) fn snapshot(&mut self, handle: u32) -> Option<Snapshot> {
        self.groups.snapshot(*self.attachments.get(handle)?)
    }

    /// Reads the group of a handle on one CPU; none if the broker must do it.
    pub(super) fn snapshot_cpu(&mut self, handle: u32, cpu: u32) -> Option<Snapshot> {
        // No CPU has a larger number.
        self.groups.snapshot_cpu(*self.attachments.get(handle)?, i32::try_from(cpu).ok()?)
    }

    /// As [`Direct::read`], by the id of the attachment.
    #[inline]
    pub(super) fn read_by_id(&mut self, id: u64) -> Option<Reading> {
        self.groups.read(AttachmentId::of(id))
    }

    /// Reads several attachments by their ids; none if the broker must do it.
    pub(super) fn read_many(&mut self, ids: &[u64]) -> Option<Vec<Reading>> {
        if ids.len() > MOST_READ {
            return None;
        }
        self.groups.read_many(&ids.iter().copied().map(AttachmentId::of).collect::<Vec<_>>())
    }

    /// As [`Direct::snapshot`], by the id of the attachment.
    #[inline]
    pub(super) fn snapshot_by_id(&mut self, id: u64) -> Option<Snapshot> {
        self.groups.snapshot(AttachmentId::of(id))
    }

    /// Stops the group that the attachment of a handle leads, before the broker does.
    pub(super) fn stop(&self, handle: u32) {
        self.attachments.get(handle).into_iter().for_each(|id| self.groups.stop(*id));
    }
}
