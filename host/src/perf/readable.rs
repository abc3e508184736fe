//! What a reading needs of events, and the reading of a group of them: by the process that opened them, or by
//! a worker that was given their descriptors.

#[cfg(test)]
mod tests;

use std::iter;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::attachments::AttachmentId;
use super::page::Page;
use super::read::{Buffer, GroupCounts, ReadFailure};
use super::reading::{Entries, GroupEntry};
use super::scale::{Count, Times};

/// The kernel's count and times at the last restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Baseline {
    pub(super) count: u64,
    pub(super) times: Times,
}

/// An open event, and where its counts begin.
#[derive(Debug)]
pub(super) struct ReadableEvent {
    pub(super) id: AttachmentId,
    pub(super) kernel_id: u64,
    pub(super) baseline: Baseline,
    /// The leader's times when this member was stopped on its own; None if it is not stopped.
    pub(super) stopped: Option<Times>,
    /// The page for reading the event from user space; None if only the kernel can read it.
    pub(super) page: Option<Page>,
    /// Whether its task may read it from user space, and is another process.
    pub(super) has_page_elsewhere: bool,
    event: OwnedFd,
}

impl AsRef<ReadableEvent> for ReadableEvent {
    #[inline]
    fn as_ref(&self) -> &ReadableEvent {
        self
    }
}

impl ReadableEvent {
    /// Wraps an event that has not counted yet.
    pub(super) fn new(id: AttachmentId, kernel_id: u64, event: OwnedFd) -> ReadableEvent {
        ReadableEvent {
            id,
            kernel_id,
            baseline: Baseline::default(),
            stopped: None,
            page: None,
            has_page_elsewhere: false,
            event,
        }
    }

    #[inline]
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Returns the event's entry in a snapshot.
    #[inline]
    fn entry(&self, count: Count) -> GroupEntry {
        GroupEntry { id: self.id, kernel_id: self.kernel_id, raw: count.raw, scaled: count.scaled() }
    }

    /// Returns the leader's times as they apply to this event: they stand still while it is stopped on its
    /// own.
    #[inline]
    fn effective(&self, leader: Times) -> Times {
        self.stopped.unwrap_or(leader)
    }

    /// Returns count and times since the last restart. `index` is the event's position in the order of
    /// joining. None if `counts` lacks the event.
    #[inline]
    pub(super) fn measure(&self, counts: &GroupCounts<'_>, index: usize) -> Option<Count> {
        Some(self.since_restart(counts.count_at(index, self.kernel_id)?, counts.times))
    }

    /// As [`ReadableEvent::measure`], read from user space. None if the kernel must be asked.
    #[inline]
    fn measure_here(&self, leader: &ReadableEvent) -> Option<Count> {
        let (count, times) = self.page.as_ref()?.read(leader.page.as_ref()?)?;
        (count >= self.baseline.count).then(|| self.since_restart(count, times))
    }

    #[inline]
    fn since_restart(&self, count: u64, leader: Times) -> Count {
        let raw = count.saturating_sub(self.baseline.count);
        Count { raw, times: self.effective(leader).since(self.baseline.times) }
    }

    /// Makes this moment the start of count and times. None if `counts` lacks this event.
    pub(super) fn rebase(&mut self, counts: &GroupCounts<'_>) -> Option<()> {
        let count = counts.count(self.kernel_id)?;
        self.baseline = Baseline { count, times: self.effective(counts.times) };
        Some(())
    }

    /// Ends a stop: the leader's time since the stop does not count for this member.
    pub(super) fn resume(&mut self, leader: Times) {
        if let Some(stopped) = self.stopped.take() {
            self.baseline.times = self.baseline.times.plus(leader.since(stopped));
        }
    }
}

/// Returns the event at this position: the leader is 0, then the members in the order in which they joined.
#[inline]
fn at<'a, E: AsRef<ReadableEvent>>(leader: &'a E, members: &'a [E], index: usize) -> &'a ReadableEvent {
    index.checked_sub(1).map_or(leader, |member| &members[member]).as_ref()
}

/// Reads the event at a position: from the pages that the kernel shares for it and its leader, else with a
/// read of the group.
#[inline]
pub(super) fn read<E: AsRef<ReadableEvent>>(
    leader: &E,
    members: &[E],
    buffer: &mut Buffer,
    index: usize,
) -> Result<Count, ReadFailure> {
    let own = at(leader, members, index);
    if let Some(count) = own.measure_here(leader.as_ref()) {
        return Ok(count);
    }
    let live = 1 + members.len();
    // Through the leader: a pinned group that lost its counter is in error state there only, and a member
    // reads as if it had not been enabled.
    let counts = buffer.read(leader.as_ref().descriptor(), live)?;
    if let Some(count) = own.measure(&counts, index) {
        return Ok(count);
    }
    // The kernel took the group apart, and each event is its own leader.
    let counts = buffer.read(own.descriptor(), live)?;
    own.measure(&counts, index).ok_or(ReadFailure::Malformed)
}

/// Reads the group and calls `report` for each event: the leader, then the members in the order in which they joined.
pub(super) fn read_all<E: AsRef<ReadableEvent>>(
    leader: &E,
    members: &[E],
    buffer: &mut Buffer,
    mut report: impl FnMut(&ReadableEvent, Count),
) -> Result<(), ReadFailure> {
    let counts = buffer.read(leader.as_ref().descriptor(), 1 + members.len())?;
    for (index, event) in iter::once(leader).chain(members).map(AsRef::as_ref).enumerate() {
        report(event, event.measure(&counts, index).ok_or(ReadFailure::Malformed)?);
    }
    Ok(())
}

/// Reads the group and fills `entries` with one entry for each event: the leader's, then the members' in the
/// order in which they joined. Returns the count of the event at position `own`.
#[inline]
pub(super) fn snapshot<E: AsRef<ReadableEvent>>(
    leader: &E,
    members: &[E],
    buffer: &mut Buffer,
    own: usize,
    entries: &mut Entries,
) -> Result<Count, ReadFailure> {
    let counts = buffer.read(leader.as_ref().descriptor(), 1 + members.len())?;
    fill(entries, leader, members, &counts)?;
    at(leader, members, own).measure(&counts, own).ok_or(ReadFailure::Malformed)
}

/// Fills `entries` from a read: one for each event, in their order.
#[inline]
fn fill<E: AsRef<ReadableEvent>>(
    entries: &mut Entries,
    leader: &E,
    members: &[E],
    counts: &GroupCounts<'_>,
) -> Result<(), ReadFailure> {
    if fill_in_place(entries, leader, members, counts) {
        return Ok(());
    }
    entries.clear();
    for (index, event) in iter::once(leader).chain(members).map(AsRef::as_ref).enumerate() {
        entries.push(event.entry(event.measure(counts, index).ok_or(ReadFailure::Malformed)?));
    }
    Ok(())
}

/// Fills `entries` from a read whose events are in the order in which they joined, the usual case, without
/// searching. Returns whether the order was right; if not, the entries are meaningless.
#[inline]
fn fill_in_place<E: AsRef<ReadableEvent>>(
    entries: &mut Entries,
    leader: &E,
    members: &[E],
    counts: &GroupCounts<'_>,
) -> bool {
    let ([of_leader, of_members @ ..], times) = (counts.entries(), counts.times) else { return false };
    let mut in_place = of_members.len() == members.len();
    let mut entry = |event: &ReadableEvent, [count, kernel_id]: &[u64; 2]| {
        in_place &= *kernel_id == event.kernel_id;
        event.entry(event.since_restart(*count, times))
    };
    entries.clear();
    entries.push(entry(leader.as_ref(), of_leader));
    entries.extend(members.iter().zip(of_members).map(|(member, answer)| entry(member.as_ref(), answer)));
    in_place
}
