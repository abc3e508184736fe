//! Groups of events that another process reads: a worker, which gets their descriptors and where their counts begin.
//!
//! ```text
//! the broker: Attachments -- take_changes --> Change ..   (messages)   .. SharedGroups: the worker
//! ```
//!
//! Only groups at one location that nothing but the plugin's own calls changes: no CPU that may go offline, no event
//! that is missing somewhere, no program. All others are read by the broker, and so is whatever fails or must be
//! reported.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use super::attachments::{AttachmentId, Attachments, ReportedState, reported_state};
use super::read::Buffer;
use super::readable::{self, Baseline, ReadableEvent};
use super::reading::{Entries, Reading, Snapshot};
use super::scale::{Tally, Times};
use super::sys::{self, Scope};

/// A change of what another process reads.
#[derive(Debug)]
pub enum Change {
    /// An event that has joined the group of this leader, or leads it.
    Event {
        /// The leader.
        leader: AttachmentId,
        /// The event's own attachment.
        id: AttachmentId,
        /// The kernel's id of the event.
        kernel_id: u64,
        /// A descriptor of the event.
        descriptor: OwnedFd,
    },
    /// The events of a group, in their order; without any, the group is not shared any more.
    Group {
        /// The leader.
        leader: AttachmentId,
        /// Where the counts of its events begin.
        events: Vec<EventStart>,
    },
}

/// Where the counts of an event begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub struct EventStart {
    /// The attachment.
    pub id: u64,
    /// The kernel's count at the last restart.
    pub count: u64,
    /// The leader's time enabled and time running then, in nanoseconds.
    pub times: (u64, u64),
    /// The leader's times when the event was stopped on its own; none if it is not stopped.
    pub stopped: Option<(u64, u64)>,
}

impl EventStart {
    fn of(event: &ReadableEvent) -> EventStart {
        let pair = |times: Times| (times.enabled, times.running);
        let Baseline { count, times } = event.baseline;
        EventStart { id: event.id.get(), count, times: pair(times), stopped: event.stopped.map(pair) }
    }

    fn apply(&self, event: &mut ReadableEvent) {
        let times = |(enabled, running)| Times { enabled, running };
        event.baseline = Baseline { count: self.count, times: times(self.times) };
        event.stopped = self.stopped.map(times);
    }
}

/// What the broker has shared.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// Events whose descriptors were passed on, with their leaders.
    passed_on: BTreeMap<AttachmentId, AttachmentId>,
    /// Leaders of groups that have changed since.
    changed: BTreeSet<AttachmentId>,
}

impl Attachments {
    /// Keeps account of changes from now on, for [`Attachments::take_changes`].
    pub fn share(&mut self) {
        self.sharing.get_or_insert_default();
    }

    /// Records that the group of this leader has changed.
    pub(super) fn note_change(&mut self, leader: AttachmentId) {
        if let Some(sharing) = &mut self.sharing {
            sharing.changed.insert(leader);
        }
    }

    /// Returns what has changed since the last call.
    ///
    /// # Errors
    /// Of dup(2).
    pub fn take_changes(&mut self) -> io::Result<Vec<Change>> {
        let Some(sharing) = &mut self.sharing else { return Ok(Vec::new()) };
        let mut changes = Vec::new();
        for leader in std::mem::take(&mut sharing.changed) {
            let fan_out = self.fan_outs.get(&leader);
            let events = fan_out.and_then(|fan_out| fan_out.shareable()).unwrap_or_default();
            // The other process closes the others of the group.
            let stays = |id: &AttachmentId| events.iter().any(|event| event.id == *id);
            sharing.passed_on.retain(|id, led_by| *led_by != leader || stays(id));
            let mut starts = Vec::with_capacity(events.len());
            for event in events {
                if sharing.passed_on.insert(event.id, leader).is_none() {
                    let descriptor = event.descriptor().try_clone_to_owned()?;
                    let ReadableEvent { id, kernel_id, .. } = *event;
                    changes.push(Change::Event { leader, id, kernel_id, descriptor });
                }
                starts.push(EventStart::of(event));
            }
            changes.push(Change::Group { leader, events: starts });
        }
        Ok(changes)
    }
}

/// The groups that a worker reads itself.
#[derive(Debug, Default)]
pub struct SharedGroups {
    groups: BTreeMap<AttachmentId, SharedGroup>,
    /// The group of every event, and its position there.
    positions: BTreeMap<AttachmentId, (AttachmentId, usize)>,
    /// What the broker was asked to report.
    reported: BTreeSet<(AttachmentId, ReportedState)>,
}

/// Events in the order in which they joined; the first leads.
#[derive(Debug, Default)]
struct SharedGroup {
    events: Vec<ReadableEvent>,
    buffer: Buffer,
}

impl SharedGroups {
    /// Adds an event to the group of this leader. It is read once the group's starts are known.
    pub fn add(&mut self, leader: u64, id: u64, kernel_id: u64, descriptor: OwnedFd) {
        let group = self.groups.entry(AttachmentId::of(leader)).or_default();
        group.events.push(ReadableEvent::new(AttachmentId::of(id), kernel_id, descriptor));
    }

    /// Sets where the counts of a group's events begin. Events that are not among them are closed.
    pub fn start(&mut self, leader: u64, starts: &[EventStart]) {
        let leader = AttachmentId::of(leader);
        self.positions.retain(|_, (of, _)| *of != leader);
        let Some(group) = self.groups.get_mut(&leader) else { return };
        let mut before = std::mem::take(&mut group.events);
        for start in starts {
            let Some(at) = before.iter().position(|event| event.id.get() == start.id) else { continue };
            let mut event = before.remove(at);
            start.apply(&mut event);
            self.positions.insert(event.id, (leader, group.events.len()));
            group.events.push(event);
        }
        if group.events.is_empty() {
            self.groups.remove(&leader);
        }
        let positions = &self.positions;
        self.reported.retain(|(id, _)| positions.contains_key(id));
    }

    /// Reads an event. None if the broker must do it.
    pub fn read(&mut self, id: AttachmentId) -> Option<Reading> {
        let (leader, index) = self.positions.get(&id)?;
        let SharedGroup { events, buffer } = self.groups.get_mut(leader)?;
        let (leader, members) = events.split_first()?;
        let tally = readable::read(leader, members, buffer, *index).ok()?.tally();
        self.is_plain(id, &tally).then(|| Reading::of(&tally))
    }

    /// Reads the group of an event. None if the broker must do it.
    pub fn snapshot(&mut self, id: AttachmentId) -> Option<Snapshot> {
        let (leader, index) = *self.positions.get(&id)?;
        let SharedGroup { events, buffer } = self.groups.get_mut(&leader)?;
        let (leader, members) = events.split_first()?;
        let mut entries = Entries::new();
        let tally = readable::snapshot(leader, members, buffer, index, &mut entries).ok()?.tally();
        self.is_plain(id, &tally).then(|| Snapshot::of(&tally, index, entries))
    }

    /// Whether nothing has to be reported with a reading that was not reported before.
    fn is_plain(&mut self, id: AttachmentId, tally: &Tally) -> bool {
        reported_state(tally).is_none_or(|state| !self.reported.insert((id, state)))
    }

    /// Stops the group that an event leads, before the broker is asked to: what happens until it does is not
    /// counted.
    pub fn stop(&self, id: AttachmentId) {
        if let Some(leader) = self.groups.get(&id).and_then(|group| group.events.first()) {
            // If it fails, the broker's own attempt says why.
            let _ = sys::disable(leader.descriptor(), Scope::Group);
        }
    }
}
