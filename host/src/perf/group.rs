//! One group of kernel events: a leader and its members, started, stopped and read together. A single event
//! is a group of one. [`super::fan_out`] combines several groups that read as one.
//!
//! Properties of the kernel that this module compensates for (seen on 6.18):
//!
//! - The RESET ioctl clears counts, but not times and not the counts of ended children. It also corrupts the
//!   page of an event that is read from user space. So counts AND times of every restart are stored, from one
//!   read, and subtracted from later readings ([`ReadableEvent`]).
//! - A group read reports the leader's times, also through a member's descriptor. The times of a member that
//!   was stopped or reset on its own are computed from the leader's ([`ReadableEvent::stopped`]).
//! - Enabling a member of a running group does not put it on a counter before the task's next context switch
//!   if its PMU differs from the leader's (`__perf_event_enable` reschedules the member's PMU only;
//!   `page_faults` in a group led by `task_clock` is an example), and PERF_IOC_FLAG_GROUP enables the leader
//!   first. So members are enabled while the leader is off, and the leader last: then all of them start at
//!   the same instant.

use std::iter;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;

use super::attachments::AttachmentId;
use super::descriptors::CountedDescriptors;
use super::error::PerfError;
use super::event_array::{EventArray, EventArrayEntry};
use super::read::{Buffer, GroupCounts, ReadFailure};
use super::readable::{self, ReadableEvent};
use super::reading::Entries;
use super::records::Throttling;
use super::scale::Count;
use super::sys::{self, Scope};
use crate::explain::perf::{Action, Attempt, Call};

/// One kernel event. Dropping it stops it, unlinks the program and closes the event, in this order: the link
/// holds a reference to the event, and children of an inheriting event run the program until the event is
/// closed.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) attempt: Attempt,
    link: Option<OwnedFd>,
    /// The PMU, if it counts only on some CPUs.
    pub(super) pmu: Option<String>,
    /// The ring into which the kernel writes throttling records.
    pub(super) throttling: Option<Throttling>,
    /// The entry through which programs read the event.
    event_array: Option<EventArrayEntry>,
    pub(super) readable: ReadableEvent,
    /// The count of its descriptors; none in tests.
    pub(super) descriptors: Option<CountedDescriptors>,
}

impl Drop for Counter {
    fn drop(&mut self) {
        // Closing ends the event regardless of the result; stopping it first keeps its program from running
        // while it unlinks.
        let _ = sys::disable(self.event(), Scope::Event);
    }
}

impl Counter {
    /// Wraps an event that was opened disabled.
    pub(super) fn new(id: AttachmentId, attempt: Attempt, kernel_id: u64, event: OwnedFd) -> Counter {
        Counter {
            attempt,
            link: None,
            pmu: None,
            throttling: None,
            event_array: None,
            readable: ReadableEvent::new(id, kernel_id, event),
            descriptors: None,
        }
    }

    /// The attachment that it belongs to.
    pub(super) fn id(&self) -> AttachmentId {
        self.readable.id
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.readable.descriptor()
    }

    /// Keeps the link of a program until this event is closed.
    pub(super) fn own_link(&mut self, link: OwnedFd) {
        self.link = Some(link);
    }

    /// Keeps the event readable by programs until it is closed.
    pub(super) fn publish(&mut self, event_array: EventArrayEntry) {
        self.event_array = Some(event_array);
    }

    /// Builds the error for a call that failed during `action`.
    fn error(&self, action: Action, call: Call, errno: Errno) -> PerfError {
        PerfError::kernel(Attempt { action, ..self.attempt.clone() }, call, errno)
    }

    fn read_error(&self, action: Action, failure: ReadFailure) -> PerfError {
        match failure {
            ReadFailure::Errno(errno) => self.error(action, Call::Read, errno),
            ReadFailure::EndOfFile => {
                PerfError::EndOfFile(Box::new(Attempt { action, ..self.attempt.clone() }))
            }
            ReadFailure::Malformed => self.answer_error(action),
        }
    }

    fn answer_error(&self, action: Action) -> PerfError {
        PerfError::MalformedRead(Box::new(Attempt { action, ..self.attempt.clone() }))
    }

    /// Whether the kernel may set the count to zero while the event runs. A reset rewrites the page with an
    /// offset relative to the counter as last read, zero-extended from its own width, while the page's reader
    /// sign-extends it: the two differ by 2 to the power of the width (`_perf_event_reset`,
    /// `armpmu_event_update`, `x86_perf_event_update`; seen on arm64, 6.12). The baseline subtracts the
    /// earlier count in any case.
    fn may_be_cleared(&self) -> bool {
        self.readable.page.is_none() && !self.readable.has_page_elsewhere
    }
}

impl AsRef<ReadableEvent> for Counter {
    fn as_ref(&self) -> &ReadableEvent {
        &self.readable
    }
}

/// How a group starts to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupStart {
    /// This process enables the events.
    Immediate,
    /// The kernel enables the events at the exec of their task.
    Exec,
    /// Nothing enables the events before [`Group::enable`].
    Request,
}

/// A leader with its members.
#[derive(Debug)]
pub(super) struct Group {
    /// In the order in which they joined. Before `leader`, so that they are dropped first.
    members: Vec<Counter>,
    leader: Counter,
    enabled: bool,
    /// [`GroupStart::Immediate`] after the exec of the task or the request, too.
    start: GroupStart,
    buffer: Buffer,
}

impl Group {
    /// Returns a group of one event that does not count yet.
    pub(super) fn alone(leader: Counter, start: GroupStart) -> Group {
        Group { members: Vec::new(), leader, enabled: false, start, buffer: Buffer::default() }
    }

    pub(super) fn start(&mut self) -> Result<(), PerfError> {
        if self.start == GroupStart::Immediate {
            let action = self.leader.attempt.action.clone();
            sys::enable(self.leader.event())
                .map_err(|errno| self.leader.error(action, Call::Enable, errno))?;
        }
        self.enabled = self.start != GroupStart::Request;
        Ok(())
    }

    /// Returns what enables the group's events.
    pub(super) fn group_start(&self) -> GroupStart {
        self.start
    }

    /// Records that the task has reached its exec, or has ended.
    pub(super) fn note_exec(&mut self) {
        self.start = GroupStart::Immediate;
    }

    /// Returns the leader, then the members in the order in which they joined.
    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        iter::once(&self.leader).chain(&self.members)
    }

    /// Number of live events, the leader included.
    pub(super) fn size(&self) -> usize {
        1 + self.members.len()
    }

    /// Makes the event of this attachment readable by programs on `cpu`, if the group contains it.
    pub(super) fn publish(
        &mut self,
        id: AttachmentId,
        cpu: i32,
        array: &Arc<dyn EventArray>,
    ) -> Result<(), PerfError> {
        let mut counters = iter::once(&mut self.leader).chain(&mut self.members);
        let Some(counter) = counters.find(|counter| counter.id() == id) else { return Ok(()) };
        let event_array = EventArrayEntry::put(array, cpu, counter.event())
            .map_err(|errno| counter.error(Action::Publish, Call::Publish, errno))?;
        counter.publish(event_array);
        Ok(())
    }

    /// Returns how often the kernel has throttled the event of this attachment.
    pub(super) fn throttled(&mut self, id: AttachmentId) -> u64 {
        let counters =
            iter::once(&mut self.leader).chain(&mut self.members).filter(|counter| counter.id() == id);
        counters.filter_map(|counter| counter.throttling.as_mut()).map(Throttling::times).sum()
    }

    /// Whether the group contains an event of this attachment.
    pub(super) fn has(&self, id: AttachmentId) -> bool {
        self.counters().any(|counter| counter.id() == id)
    }

    /// Opens a member with the leader's descriptor. It counts only after [`Group::restart`]; the others keep
    /// counting.
    pub(super) fn admit(
        &mut self,
        open: impl FnOnce(BorrowedFd<'_>) -> Result<Counter, PerfError>,
    ) -> Result<(), PerfError> {
        let opened = open(self.leader.event()).map(|member| self.members.push(member));
        if opened.is_err() {
            self.go_on();
        }
        opened
    }

    /// Resumes the events that were running before a failed join.
    pub(super) fn go_on(&self) {
        if self.enabled {
            // A hardware member may have moved a software group to another context before it was refused.
            // Events that run already are unaffected; a failure here adds nothing to the error at hand.
            let _ = self.switch_on(&Action::Enable);
        }
    }

    /// Closes a member; the others keep counting.
    pub(super) fn remove_member(&mut self, id: AttachmentId) {
        self.members.retain(|member| member.id() != id);
    }

    /// Stops the whole group before it is restarted. Nothing is lost if this fails: a group that children
    /// have inherited can no longer be read after a member has joined (ECHILD).
    pub(super) fn prepare_restart(&mut self, action: &Action) -> Result<(), PerfError> {
        self.switch_off(action)?;
        self.counts(action).map(drop)
    }

    /// Sets the stopped group to zero and starts it, including members that were stopped on their own.
    pub(super) fn restart(&mut self, action: &Action) -> Result<(), PerfError> {
        for member in &mut self.members {
            member.readable.stopped = None;
        }
        self.rebase_all(action)?;
        self.switch_on(action)?;
        self.enabled = self.start != GroupStart::Request;
        Ok(())
    }

    fn switch_off(&self, action: &Action) -> Result<(), PerfError> {
        sys::disable(self.leader.event(), Scope::Group)
            .map_err(|errno| self.leader.error(action.clone(), Call::Disable, errno))
    }

    /// Enables all events that are not stopped on their own, the leader last.
    fn switch_on(&self, action: &Action) -> Result<(), PerfError> {
        if self.start != GroupStart::Immediate {
            return Ok(());
        }
        let members = self.members.iter().filter(|member| member.readable.stopped.is_none());
        for counter in members.chain(iter::once(&self.leader)) {
            sys::enable(counter.event())
                .map_err(|errno| counter.error(action.clone(), Call::Enable, errno))?;
        }
        Ok(())
    }

    /// Sets all counts to zero where that is harmless, and stores the remaining counts and times as the
    /// baseline.
    fn rebase_all(&mut self, action: &Action) -> Result<(), PerfError> {
        if self.counters().all(Counter::may_be_cleared) {
            sys::reset(self.leader.event(), Scope::Group)
                .map_err(|errno| self.leader.error(action.clone(), Call::Reset, errno))?;
        }
        let live = self.size();
        let Group { leader, members, buffer, .. } = self;
        let counts = buffer
            .read(leader.event(), live)
            .map_err(|failure| leader.read_error(action.clone(), failure))?;
        for counter in iter::once(leader).chain(members) {
            counter.readable.rebase(&counts).ok_or_else(|| counter.answer_error(action.clone()))?;
        }
        Ok(())
    }

    fn counts(&mut self, action: &Action) -> Result<GroupCounts<'_>, PerfError> {
        let live = self.size();
        let leader = &self.leader;
        self.buffer.read(leader.event(), live).map_err(|failure| leader.read_error(action.clone(), failure))
    }

    /// Reads the event of `id`: from the pages that the kernel shares for it and its leader, else with a read
    /// of the group.
    pub(super) fn read(&mut self, id: AttachmentId) -> Result<Count, PerfError> {
        let Some(index) = self.counters().position(|counter| counter.id() == id) else {
            return Err(PerfError::Stale(id));
        };
        let Group { leader, members, buffer, .. } = self;
        readable::read(leader, members, buffer, index).map_err(|failure| {
            let own = index.checked_sub(1).map_or(&*leader, |member| &members[member]);
            own.read_error(Action::Read, failure)
        })
    }

    /// Reads the group and calls `report` for each event, in the order of [`Group::counters`].
    pub(super) fn read_all(&mut self, report: impl FnMut(&ReadableEvent, Count)) -> Result<(), PerfError> {
        let Group { leader, members, buffer, .. } = self;
        readable::read_all(leader, members, buffer, report)
            .map_err(|failure| leader.read_error(Action::Read, failure))
    }

    /// Reads the group and fills `entries` with one entry for each event, in the order of
    /// [`Group::counters`]. Returns the count of the event at index `own`.
    pub(super) fn snapshot(&mut self, own: usize, entries: &mut Entries) -> Result<Count, PerfError> {
        let Group { leader, members, buffer, .. } = self;
        readable::snapshot(leader, members, buffer, own, entries)
            .map_err(|failure| leader.read_error(Action::Read, failure))
    }

    /// Whether the kernel took the group apart: a read of it lacks events.
    pub(super) fn is_apart(&mut self) -> bool {
        matches!(self.read_all(|_, _| ()), Err(PerfError::MalformedRead(_)))
    }

    /// Returns the count of each event after the kernel took the group apart because its CPU went offline.
    /// Every event is read on its own; unreadable ones are left out.
    pub(super) fn read_apart(&mut self) -> Vec<(AttachmentId, Count)> {
        let Group { leader, members, buffer, .. } = self;
        let live = 1 + members.len();
        iter::once(&*leader)
            .chain(&*members)
            .enumerate()
            .filter_map(|(index, counter)| {
                let counts = buffer.read(counter.event(), live).ok()?;
                Some((counter.id(), counter.readable.measure(&counts, index)?))
            })
            .collect()
    }

    /// Starts the whole group if `id` leads it, including members that were stopped on their own; else this
    /// member.
    pub(super) fn enable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        let whole = id == self.leader.id();
        if whole && self.start == GroupStart::Request {
            self.start = GroupStart::Immediate;
        }
        let is_stopped = self
            .members
            .iter()
            .any(|member| (whole || member.id() == id) && member.readable.stopped.is_some());
        if is_stopped {
            let resumed = self.resume(id);
            if self.enabled {
                self.enable_leader()?;
            }
            resumed?;
        }
        if whole {
            self.switch_on(&Action::Enable)?;
            self.enabled = true;
        }
        Ok(())
    }

    /// Enables stopped members while the leader is off and its times stand still.
    fn resume(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        sys::disable(self.leader.event(), Scope::Event)
            .map_err(|errno| self.leader.error(Action::Enable, Call::Disable, errno))?;
        let now = self.counts(&Action::Enable)?.times;
        let whole = id == self.leader.id();
        for member in self.members.iter_mut().filter(|member| whole || member.id() == id) {
            sys::enable(member.event()).map_err(|errno| member.error(Action::Enable, Call::Enable, errno))?;
            member.readable.resume(now);
        }
        Ok(())
    }

    fn enable_leader(&self) -> Result<(), PerfError> {
        sys::enable(self.leader.event())
            .map_err(|errno| self.leader.error(Action::Enable, Call::Enable, errno))
    }

    /// Changes the events between two samples of an attachment.
    pub(super) fn set_period(&self, id: AttachmentId, events: u64) -> Result<(), PerfError> {
        self.counters().filter(|counter| counter.id() == id).try_for_each(|counter| {
            sys::set_period(counter.event(), events)
                .map_err(|errno| counter.error(Action::SetPeriod, Call::Period, errno))
        })
    }

    /// Stops the whole group if `id` leads it, else this member.
    pub(super) fn disable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader.id() {
            self.switch_off(&Action::Disable)?;
            self.enabled = false;
            return Ok(());
        }
        let live = self.size();
        let member = self.members.iter_mut().find(|member| member.id() == id).ok_or(PerfError::Stale(id))?;
        sys::disable(member.event(), Scope::Event)
            .map_err(|errno| member.error(Action::Disable, Call::Disable, errno))?;
        let counts = self
            .buffer
            .read(member.event(), live)
            .map_err(|failure| member.read_error(Action::Disable, failure))?;
        member.readable.stopped.get_or_insert(counts.times);
        Ok(())
    }

    /// Sets counts and times to zero: of the whole group if `id` leads it, else of this member. Running
    /// events keep running.
    pub(super) fn reset(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader.id() {
            return self.rebase_all(&Action::Reset);
        }
        let live = self.size();
        let member = self.members.iter_mut().find(|member| member.id() == id).ok_or(PerfError::Stale(id))?;
        if member.may_be_cleared() {
            sys::reset(member.event(), Scope::Event)
                .map_err(|errno| member.error(Action::Reset, Call::Reset, errno))?;
        }
        let counts = self
            .buffer
            .read(member.event(), live)
            .map_err(|failure| member.read_error(Action::Reset, failure))?;
        member.readable.rebase(&counts).ok_or_else(|| member.answer_error(Action::Reset))
    }
}
