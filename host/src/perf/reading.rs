//! Results of reads.

use std::cell::Cell;
use std::mem;
use std::ops::Deref;
use std::slice;

use super::attachments::AttachmentId;
use super::scale::{State, Tally};

/// The result of reading one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Events of this attachment since its last restart, as the kernel counted them.
    pub raw: u64,
    /// `raw * time_enabled / time_running`, rounded toward zero, computed in 128 bits. None if the event
    /// never ran.
    pub scaled: Option<u64>,
    /// Whether `scaled` exceeds `u64::MAX` and was limited to it.
    pub saturated: bool,
    /// Nanoseconds since the restart during which the event was enabled and its task, if it has one, ran.
    pub time_enabled: u64,
    /// Nanoseconds of `time_enabled` during which the event was on a counter.
    pub time_running: u64,
    /// The state that follows from the two times.
    pub state: State,
    /// Whether only some of the requested CPUs, tasks or kinds of core have counted.
    pub partial: bool,
}

impl Reading {
    #[inline]
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
    /// The attachment.
    pub id: AttachmentId,
    /// The kernel's id of the event (PERF_EVENT_IOC_ID); with several locations, that of the first.
    pub kernel_id: u64,
    /// Events since the last restart, as in [`Reading::raw`].
    pub raw: u64,
    /// The scaled count, as in [`Reading::scaled`]. A member that was stopped or reset on its own is scaled
    /// by its own times.
    pub scaled: Option<u64>,
}

/// A whole group, read at one moment by one system call; with several locations, by one at each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Nanoseconds that the attachment that was read was enabled, as in [`Reading`]. All events of a group
    /// have the same times, except those that were stopped or reset on their own.
    pub time_enabled: u64,
    /// Nanoseconds of `time_enabled` during which this attachment's event was on a counter.
    pub time_running: u64,
    /// The state that follows from the two times.
    pub state: State,
    /// Whether only part of the request has counted, as in [`Reading::partial`].
    pub partial: bool,
    /// The index in `entries` of the attachment that was read.
    pub own: usize,
    /// The leader, then the live members in the order in which they joined.
    pub entries: Entries,
}

/// The entries of a [`Snapshot`], as a slice. When they are dropped, the thread keeps their memory for its
/// next snapshot, so that consecutive snapshots allocate nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries(Vec<GroupEntry>);

thread_local! {
    /// The memory of the entries that were dropped last.
    static KEPT: Cell<Vec<GroupEntry>> = const { Cell::new(Vec::new()) };
}

impl Entries {
    /// Returns an empty list that reuses the thread's kept memory.
    #[inline]
    pub(super) fn new() -> Entries {
        let mut entries = Entries(KEPT.take());
        entries.clear();
        entries
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends several entries.
    #[inline]
    pub(super) fn extend(&mut self, entries: impl Iterator<Item = GroupEntry>) {
        self.0.extend(entries);
    }

    /// Appends an entry.
    #[inline]
    pub(super) fn push(&mut self, entry: GroupEntry) {
        self.0.push(entry);
    }
}

impl FromIterator<GroupEntry> for Entries {
    fn from_iter<I: IntoIterator<Item = GroupEntry>>(entries: I) -> Entries {
        let mut all = Entries::new();
        all.extend(entries.into_iter());
        all
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
        // Fails only while the thread ends; the memory is then freed.
        let _ = KEPT.try_with(|kept| kept.set(entries));
    }
}

impl GroupEntry {
    /// Returns the entry of an event with this kernel id.
    #[inline]
    pub(super) fn of(id: AttachmentId, kernel_id: u64, tally: &Tally) -> GroupEntry {
        GroupEntry { id, kernel_id, raw: tally.raw, scaled: tally.scaled() }
    }
}

impl Snapshot {
    /// Returns a snapshot of these entries; the entry at `own` was read, and has this tally.
    pub(super) fn of(tally: &Tally, own: usize, entries: Entries) -> Snapshot {
        let Reading { time_enabled, time_running, state, partial, .. } = Reading::of(tally);
        Snapshot { time_enabled, time_running, state, partial, own, entries }
    }
}
