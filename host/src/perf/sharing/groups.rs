//! The groups that a worker reads itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::super::attachments::{AttachmentId, ReportedState, reported_state};
use super::super::fan_out::{CPU_CHECK_INTERVAL, GoneCpu, LocatedGroup, Readout};
use super::super::locations::CpuAndTask;
use super::super::online::CpuMoment;
use super::super::page::Page;
use super::super::read::{Buffer, ReadFailure};
use super::super::readable::{self, ReadableEvent};
use super::super::reading::{Entries, GroupEntry, Reading, Snapshot};
use super::super::scale::{Count, Tally};
use super::super::sys::{self, Scope};
use super::Change;
use super::state::{CpuCheck, EventState, LocationState, SharedState};
use crate::sorted::SortedMap;

/// The groups that a worker reads itself.
#[derive(Debug, Default)]
pub struct SharedGroups {
    /// Groups that are shared no more leave their places to others.
    groups: Vec<Option<SharedGroup>>,
    /// The position of the group of every attachment.
    positions: SortedMap<AttachmentId, usize>,
    /// Events, by the kernel's id, that no group has yet.
    arrived: BTreeMap<u64, OwnedFd>,
    /// The file that has the number of device events.
    uevents: Option<File>,
    /// What the broker was asked to report.
    reported: BTreeSet<(AttachmentId, ReportedState)>,
}

/// A group at all of its locations.
#[derive(Debug)]
struct SharedGroup {
    attachments: Vec<AttachmentId>,
    locations: Vec<SharedLocation>,
    gone: BTreeMap<AttachmentId, Vec<GoneCpu>>,
    lacking: BTreeSet<AttachmentId>,
    misses_cpus: bool,
    cpus: Option<CpuCheck>,
    /// Time of the last check for CPUs that went offline or came online.
    looked: Instant,
}

/// The events of a group at one location, in the order in which they joined; the first leads.
#[derive(Debug)]
struct SharedLocation {
    location: CpuAndTask,
    events: Vec<ReadableEvent>,
    buffer: Buffer,
}

impl SharedLocation {
    /// Collects the events of a location. None if one of them is not there: what is left would be another group.
    fn of(
        state: &LocationState,
        mut event: impl FnMut(&EventState) -> Option<ReadableEvent>,
    ) -> Option<Self> {
        let events = state.events.iter().map(&mut event).collect::<Option<Vec<_>>>()?;
        Some(SharedLocation { location: state.location(), events, buffer: Buffer::default() })
    }
}

impl LocatedGroup for SharedLocation {
    type Error = ReadFailure;

    #[inline]
    fn location(&self) -> &CpuAndTask {
        &self.location
    }

    #[inline]
    fn events(&self) -> impl Iterator<Item = &ReadableEvent> {
        self.events.iter()
    }

    #[inline]
    fn read(&mut self, id: AttachmentId) -> Result<Count, ReadFailure> {
        let index = self.events.iter().position(|event| event.id == id).ok_or(ReadFailure::Malformed)?;
        let (leader, members) = self.events.split_first().ok_or(ReadFailure::Malformed)?;
        readable::read(leader, members, &mut self.buffer, index)
    }

    fn read_all(
        &mut self,
        mut report: impl FnMut(&CpuAndTask, &ReadableEvent, Count),
    ) -> Result<(), ReadFailure> {
        let (leader, members) = self.events.split_first().ok_or(ReadFailure::Malformed)?;
        let location = &self.location;
        readable::read_all(leader, members, &mut self.buffer, |event, count| report(location, event, count))
    }

    #[inline]
    fn snapshot(&mut self, own: usize, entries: &mut Entries) -> Result<Count, ReadFailure> {
        let (leader, members) = self.events.split_first().ok_or(ReadFailure::Malformed)?;
        readable::snapshot(leader, members, &mut self.buffer, own, entries)
    }
}

impl SharedGroup {
    #[inline]
    fn readout(&mut self) -> Readout<'_, SharedLocation, AttachmentId> {
        Readout {
            attachments: &self.attachments,
            groups: &mut self.locations,
            gone: &self.gone,
            lacking: &self.lacking,
            misses_cpus: self.misses_cpus,
        }
    }

    /// Whether the state may be out of date, because CPUs went offline or came online. It is looked at as often as
    /// the broker looks.
    #[inline]
    fn is_outdated(&mut self, uevents: Option<&File>) -> bool {
        let Some(CpuCheck { at, is_due_each_time }) = self.cpus else { return false };
        if !is_due_each_time && self.looked.elapsed() < CPU_CHECK_INTERVAL {
            return false;
        }
        self.looked = Instant::now();
        uevents.is_none_or(|uevents| CpuMoment::now(uevents).differs_from(at))
    }
}

impl SharedGroups {
    /// Takes a change. An event is read once the state of its group is known.
    pub fn take(&mut self, change: Change) {
        match change {
            Change::Event { kernel_id, descriptor } => {
                self.arrived.insert(kernel_id, descriptor);
            }
            Change::CpuEvents { descriptor } => self.uevents = Some(descriptor.into()),
            Change::Group { leader, state } => self.set(leader, state),
        }
    }

    /// Sets the state of the group of this leader; none if only the broker reads it from now on. Events that are not
    /// among its own are closed.
    fn set(&mut self, leader: AttachmentId, state: Option<SharedState>) {
        let mut known = BTreeMap::new();
        let before = self.positions.get(leader).and_then(|at| self.groups[*at].take());
        if let Some(SharedGroup { attachments, locations, .. }) = before {
            for id in attachments {
                self.positions.remove(id);
            }
            let events = locations.into_iter().flat_map(|location| location.events);
            known.extend(events.map(|event| (event.kernel_id, event)));
        }
        if let Some(group) = state.and_then(|state| self.group(&state, &mut known)) {
            let free = self.groups.iter().position(Option::is_none);
            let at = free.unwrap_or(self.groups.len());
            group.attachments.iter().for_each(|id| self.positions.insert(*id, at));
            if free.is_none() {
                self.groups.push(None);
            }
            self.groups[at] = Some(group);
        }
        let positions = &self.positions;
        self.reported.retain(|(id, _)| positions.get(*id).is_some());
    }

    fn group(
        &mut self,
        state: &SharedState,
        known: &mut BTreeMap<u64, ReadableEvent>,
    ) -> Option<SharedGroup> {
        let mut event = |state: &EventState| {
            let known = known.remove(&state.kernel_id);
            let arrived = || {
                let event = self.arrived.remove(&state.kernel_id)?;
                let mut event = ReadableEvent::new(state.id(), state.kernel_id, event);
                event.page = state.has_page.then(|| Page::map(event.descriptor())).flatten();
                Some(event)
            };
            let mut event = known.or_else(arrived)?;
            state.apply(&mut event);
            Some(event)
        };
        let locations = state.locations.iter().map(|location| SharedLocation::of(location, &mut event));
        let locations = locations.collect::<Option<Vec<_>>>()?;
        let mut gone: BTreeMap<AttachmentId, Vec<GoneCpu>> = BTreeMap::new();
        for (id, count) in state.gone.iter().map(|gone| gone.gone()) {
            gone.entry(id).or_default().push(count);
        }
        Some(SharedGroup {
            attachments: state.attachments.iter().copied().map(AttachmentId::of).collect(),
            locations,
            gone,
            lacking: state.lacking.iter().copied().map(AttachmentId::of).collect(),
            misses_cpus: state.misses_cpus,
            cpus: state.cpus,
            looked: Instant::now(),
        })
    }

    /// Reads an attachment. None if the broker must do it.
    #[inline]
    pub fn read(&mut self, id: AttachmentId) -> Option<Reading> {
        let tally = self.current(id)?.readout().read(id).ok()?;
        self.is_plain(id, &tally).then(|| Reading::of(&tally))
    }

    /// Reads the group of an attachment. None if the broker must do it.
    #[inline]
    pub fn snapshot(&mut self, id: AttachmentId) -> Option<Snapshot> {
        let mut entries = Entries::new();
        let (own, tally) = self.current(id)?.readout().snapshot(id, &mut entries).ok()??;
        self.is_plain(id, &tally).then(|| Snapshot::of(&tally, own, entries))
    }

    /// Reads several attachments, those of one group with one system call for each of its locations. None if the broker
    /// must do it.
    pub fn read_many(&mut self, ids: &[AttachmentId]) -> Option<Vec<Reading>> {
        let position = |(index, id): (usize, &AttachmentId)| Some((*self.positions.get(*id)?, index));
        let mut by_group = ids.iter().enumerate().map(position).collect::<Option<Vec<_>>>()?;
        by_group.sort_unstable();
        let mut tallies = vec![Tally::default(); ids.len()];
        for group in by_group.chunk_by(|(one, _), (other, _)| one == other) {
            let mut readout = self.current(ids[group[0].1])?.readout();
            if let [(_, index)] = group {
                tallies[*index] = readout.read(ids[*index]).ok()?;
                continue;
            }
            let mut all = Vec::new();
            readout.read_all(|id, _, tally| all.push((id, tally))).ok()?;
            for (_, index) in group {
                tallies[*index] = all.iter().find(|(id, _)| *id == ids[*index])?.1;
            }
        }
        // All of them are asked for if one is: what others report is reported with it.
        let plain =
            ids.iter().zip(&tallies).fold(true, |plain, (id, tally)| plain & self.is_plain(*id, tally));
        plain.then(|| tallies.iter().map(Reading::of).collect())
    }

    /// Reads the group of an attachment on one CPU. None if the broker must do it, which also says why nothing is
    /// counted there.
    pub fn snapshot_cpu(&mut self, id: AttachmentId, cpu: i32) -> Option<Snapshot> {
        let (mut entries, mut own) = (Entries::new(), None);
        let report = |one: AttachmentId, kernel_id: u64, tally: Tally| {
            if one == id {
                own = Some((entries.len(), tally));
            }
            entries.push(GroupEntry::of(one, kernel_id, &tally));
        };
        let is_there = self.current(id)?.readout().read_cpu(id, cpu, report).ok()?;
        let (own, tally) = own.filter(|_| is_there)?;
        Some(Snapshot::of(&tally, own, entries))
    }

    /// Returns the group of an attachment; none if the broker must read it.
    #[inline]
    fn current(&mut self, id: AttachmentId) -> Option<&mut SharedGroup> {
        let group = self.groups[*self.positions.get(id)?].as_mut()?;
        (!group.is_outdated(self.uevents.as_ref())).then_some(group)
    }

    /// Whether nothing has to be reported with a reading that was not reported before.
    #[inline]
    fn is_plain(&mut self, id: AttachmentId, tally: &Tally) -> bool {
        reported_state(tally).is_none_or(|state| !self.reported.insert((id, state)))
    }

    /// Stops the group that an attachment leads, before the broker is asked to: what happens until it does is not
    /// counted.
    pub fn stop(&self, id: AttachmentId) {
        let group = self.positions.get(id).and_then(|at| self.groups[*at].as_ref());
        let group = group.filter(|group| group.attachments.first() == Some(&id));
        let locations = group.map_or(&[][..], |group| &group.locations);
        for leader in locations.iter().rev().filter_map(|location| location.events.first()) {
            // If it fails, the broker's own attempt says why.
            let _ = sys::disable(leader.descriptor(), Scope::Group);
        }
    }
}
