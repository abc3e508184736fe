//! What a read gives.

use std::cell::Cell;
use std::mem;
use std::ops::Deref;
use std::slice;

use super::scale::{State, Tally};

/// One counter, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Events of this attachment since its last restart, as the kernel counted them.
    pub raw: u64,
    /// `raw * time_enabled / time_running`, rounded toward zero, worked out in 128 bits. None if the event never ran.
    pub scaled: Option<u64>,
    /// `scaled` would be above `u64::MAX`, which it is instead.
    pub saturated: bool,
    /// Nanoseconds since the restart in which the event was enabled and its task, if it has one, ran.
    pub time_enabled: u64,
    /// Nanoseconds of these in which the event was on a counter.
    pub time_running: u64,
    /// What the two times say.
    pub state: State,
    /// Only some of the CPUs, tasks or core kinds that were asked for have counted.
    pub partial: bool,
}

impl Reading {
    pub(super) fn of(tally: &Tally) -> Reading {
        Reading {
            raw: tally.raw,
            scaled: tally.scaled(),
            saturated: tally.saturated,
            time_enabled: tally.times.enabled,
            time_running: tally.times.running,
            state: tally.state(),
            partial: tally.is_partial(),
        }
    }
}

/// One event of a group in a [`Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupEntry {
    /// The kernel's id of the event (PERF_EVENT_IOC_ID); of several places that of the first.
    pub id: u64,
    /// As in [`Reading`].
    pub raw: u64,
    /// As in [`Reading`]. A member that was stopped or reset on its own is scaled by its own times.
    pub scaled: Option<u64>,
}

/// A whole group, read at one moment by one system call; of several places by one at each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Of the attachment that was read, as in [`Reading`]. All events of a group have the same times, but those that
    /// were stopped or reset on their own.
    pub time_enabled: u64,
    /// As `time_enabled`.
    pub time_running: u64,
    /// What the two times say.
    pub state: State,
    /// As in [`Reading`].
    pub partial: bool,
    /// The index in `entries` of the attachment that was read.
    pub own: usize,
    /// The leader, then the live members in the order in which they joined.
    pub entries: Entries,
}

/// The entries of a [`Snapshot`], a slice of them. Their memory serves the next snapshot that the thread takes once these
/// are dropped, so that one after the other allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries(Vec<GroupEntry>);

thread_local! {
    /// The memory of the entries that were dropped last.
    static KEPT: Cell<Vec<GroupEntry>> = const { Cell::new(Vec::new()) };
}

impl Entries {
    /// None yet.
    pub(super) fn new() -> Entries {
        let mut entries = Entries(KEPT.take());
        entries.clear();
        entries
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Puts these behind the others.
    #[inline]
    pub(super) fn extend(&mut self, entries: impl Iterator<Item = GroupEntry>) {
        self.0.extend(entries);
    }

    /// Puts one behind the others.
    #[inline]
    pub(super) fn push(&mut self, entry: GroupEntry) {
        self.0.push(entry);
    }
}

impl Deref for Entries {
    type Target = [GroupEntry];

    fn deref(&self) -> &[GroupEntry] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Entries {
    type Item = &'a GroupEntry;
    type IntoIter = slice::Iter<'a, GroupEntry>;

    fn into_iter(self) -> slice::Iter<'a, GroupEntry> {
        self.iter()
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        let entries = mem::take(&mut self.0);
        // A thread that ends keeps nothing any more.
        let _ = KEPT.try_with(|kept| kept.set(entries));
    }
}

impl GroupEntry {
    /// Of an event with this id of the kernel's.
    #[inline]
    pub(super) fn of(id: u64, tally: &Tally) -> GroupEntry {
        GroupEntry { id, raw: tally.raw, scaled: tally.scaled() }
    }
}

impl Snapshot {
    /// Of all entries; that at `own` was read, and has this tally.
    pub(super) fn of(tally: &Tally, own: usize, entries: Entries) -> Snapshot {
        let Reading { time_enabled, time_running, state, partial, .. } = Reading::of(tally);
        Snapshot { time_enabled, time_running, state, partial, own, entries }
    }
}
