//! All perf attachments of one plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::Arc;

use nix::errno::Errno;

use super::attr::Options;
use super::error::{PerfError, Refusal};
use super::event::Event;
use super::event_array::EventArray;
use super::fan_out::FanOut;
use super::locations::{self, Surroundings, Target};
use super::notice::Notice;
use super::online::Online;
#[cfg(feature = "plugins")]
use super::output::{OutputError, OutputRings};
use super::plan::{LinkProgram, Plan};
use super::pmu::Sysfs;
use super::reading::{Entries, GroupEntry, Reading, Snapshot};
use super::scale::{State, Tally};
use super::sharing::Sharing;
use crate::explain::perf::{Action, Call};
#[cfg(feature = "plugins")]
use crate::host_bytes::HostBytes;
use crate::probed::ProbePoint;

/// Identifies an attachment. Numbers start at 1 and are never reused within one [`Attachments`], so a stale
/// id never names a newer attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(u64);

impl AttachmentId {
    /// Returns the id with this number; it is stale if no attachment has it.
    #[inline]
    pub fn of(number: u64) -> AttachmentId {
        AttachmentId(number)
    }

    /// The number, counted from 1 within one [`Attachments`].
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl AsRef<AttachmentId> for AttachmentId {
    #[inline]
    fn as_ref(&self) -> &AttachmentId {
        self
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Describes one live attachment for a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The id that [`Attachments`] assigned when it opened the event.
    pub id: AttachmentId,
    /// The event's name, as in [`Event::name`].
    pub event: String,
    /// The requested task: -1 is every task, 0 the thread that opened the event.
    pub pid: i32,
    /// The requested CPU; -1 is any CPU.
    pub cpu: i32,
    /// The leader of the group; None if this attachment leads a group or is alone.
    pub leader: Option<AttachmentId>,
    /// Whether a program is linked to it.
    pub has_program: bool,
    /// Number of kernel events that the attachment consists of.
    pub locations: usize,
}

/// All perf attachments of one plugin. Dropping it detaches all of them, newest first, so members go before
/// their leader.
#[derive(Default)]
#[must_use = "dropping it detaches everything"]
pub struct Attachments {
    last_id: u64,
    /// Groups, keyed by their leader.
    pub(super) fan_outs: BTreeMap<AttachmentId, FanOut>,
    /// The leader of every live member. Leaders are not in it: a read of one looks up one map.
    leader_of: BTreeMap<AttachmentId, AttachmentId>,
    surroundings: Surroundings,
    notices: Vec<Notice>,
    /// Notices that were already reported, so that each is reported once per attachment.
    reported: BTreeSet<(AttachmentId, ReportedState)>,
    /// What a worker reads itself; none without a worker.
    pub(super) sharing: Option<Sharing>,
}

/// A state that is reported once per attachment, however its counts change later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReportedState {
    NeverRan,
    LowShare,
    Partial,
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.detach_all();
    }
}

impl Attachments {
    /// Returns an empty set of attachments that looks up CPUs and PMUs in this machine's sysfs.
    pub fn new() -> Attachments {
        Attachments::default()
    }

    /// Returns an empty set of attachments that looks up CPUs and PMUs in `sysfs`.
    pub fn with_sysfs(sysfs: Sysfs) -> Attachments {
        let mut attachments = Attachments::default();
        attachments.surroundings.sysfs = sysfs;
        attachments
    }

    /// Sets the task that [`Options::command`] refers to. The task waits before its exec.
    pub fn set_command(&mut self, task: i32) {
        self.surroundings.command = Some(task);
    }

    /// Sets the task that pid 0 is; without it, pid 0 is the calling thread.
    pub fn set_own_task(&mut self, task: i32) {
        self.surroundings.own_task = Some(task);
    }

    /// Records that this task has reached its exec: its events count now, and events opened from now on count
    /// at once.
    pub fn note_exec(&mut self) {
        self.fan_outs.values_mut().for_each(FanOut::note_exec);
    }

    /// Whether [`Attachments::take_notices`] would return anything.
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Returns the notices since the last call; each one is reported once per attachment.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    /// Opens an event and starts counting: alone, or as a member of the group that `leader` leads. Counts and
    /// times of the whole group then restart from zero, including members stopped by
    /// [`Attachments::disable`].
    ///
    /// With `link`, the linked program runs every `options.period` events; without it, the event is only
    /// counted. The attachment owns the link. Fields are checked before the system call, in the order event,
    /// pid, cpu, their combination, leader, group rules.
    ///
    /// `pid` 0 is the calling thread. Options that select several tasks or CPUs open one kernel event for
    /// each; they read as one. With `options.weak`, an event that does not fit into the group is opened
    /// alone.
    ///
    /// Errors: [`PerfError::Refused`] if a check fails; [`PerfError::Kernel`] if the kernel or `link`
    /// refuses, with the cause. After an error no new event stays open, and the group continues from its old
    /// start.
    ///
    /// Source: perf_event_open(2); bpf(2), BPF_LINK_CREATE with BPF_PERF_EVENT.
    #[doc(alias = "perf_event_open")]
    pub fn open(
        &mut self,
        event: &Event,
        options: &Options,
        leader: Option<AttachmentId>,
        link: Option<LinkProgram>,
    ) -> Result<AttachmentId, PerfError> {
        let options = event.options(options);
        let own_task = self.surroundings.own_task.filter(|_| options.pid == 0);
        let options = self.surroundings.of_own_task(options);
        let id = AttachmentId(self.last_id + 1);
        let descriptors = self.surroundings.descriptors.clone();
        let plan = Plan {
            id,
            event: Arc::new(event.clone()),
            options,
            own_task,
            link,
            event_array: None,
            descriptors,
        };
        let refused = |refusal| refused(&plan, refusal);
        locations::check(event, &plan.options).map_err(refused)?;
        if plan.link.is_some() && event.is_clock() {
            plan.options.check_clock().map_err(refused)?;
        }
        if plan.options.remove_on_exec && (plan.options.enable_on_exec || plan.options.command) {
            return Err(refused(Refusal::StartsAndEndsOnExec));
        }
        let target = Target::of(&plan.options);
        let mut reported = Notice::of_options(event, &plan.options);
        let points = event.probe_points();
        if points.len() > 1 {
            let (event, locations) = (event.name().to_owned(), ProbePoint::list(&points));
            reported.push(Notice::Functions { event, number: points.len(), locations });
        }
        if let Some(copies) = ProbePoint::copies(&points) {
            reported.push(Notice::Copies { event: event.name().to_owned(), copies });
        }
        let mut leader = leader;
        if let Some(led_by) = leader {
            self.note_change(led_by);
            match self.join(led_by, &plan, &target) {
                Err(error) if plan.options.weak && has_no_room(&error) => {
                    let named =
                        self.fan_outs.get(&led_by).map(|fan_out| fan_out.leader().event.name().to_owned());
                    let alone =
                        Notice::Alone { event: event.name().to_owned(), leader: named.unwrap_or_default() };
                    self.notices.push(alone);
                    leader = None;
                }
                joined => joined?,
            }
        }
        if leader.is_none() {
            let mut fan_out = FanOut::open(plan, target, &self.surroundings)?;
            fan_out.drain_notices(&mut self.notices);
            self.fan_outs.insert(id, fan_out);
            self.note_change(id);
        }
        self.last_id = id.0;
        if let Some(leader) = leader {
            self.leader_of.insert(id, leader);
        }
        self.notices.extend(reported);
        Ok(id)
    }

    fn join(&mut self, leader: AttachmentId, plan: &Plan, target: &Target) -> Result<(), PerfError> {
        let refused = |refusal| refused(plan, refusal);
        let led_by = self.leader(leader).ok_or(Refusal::StaleLeader(leader)).map_err(refused)?;
        if led_by != leader {
            return Err(refused(Refusal::MemberAsLeader { leader: led_by }));
        }
        let fan_out = self.fan_outs.get_mut(&leader).ok_or(Refusal::StaleLeader(leader)).map_err(refused)?;
        let for_leaders = match &plan.options {
            Options { pinned: true, .. } => Err(Refusal::ForLeaders("pinned")),
            Options { exclusive: true, .. } => Err(Refusal::ForLeaders("exclusive")),
            Options { start_disabled: true, .. } => Err(Refusal::ForLeaders("start_disabled")),
            _ => Ok(()),
        };
        let several = [fan_out.leader(), plan].into_iter().find(|plan| plan.event.points() > 1);
        let alone = several.map_or(Ok(()), |plan| {
            Err(Refusal::SeveralFunctions { locations: ProbePoint::list(&plan.event.probe_points()) })
        });
        let checked = fan_out.target.check_member(target).and(for_leaders).and(alone);
        if let Err(refusal) = checked {
            let mut plan = plan.clone();
            let action = Action::Join {
                leader: fan_out.leader().event.name().to_owned(),
                size: fan_out.plans().len(),
            };
            plan.link = None;
            return Err(PerfError::Refused { attempt: Box::new(plan.attempt(action, None)), refusal });
        }
        self.with_cpus(leader, |fan_out, surroundings| fan_out.join(plan.clone(), surroundings))
    }

    /// Reads this attachment's own counter without stopping it. It takes one system call for each observed
    /// location (task and CPU), or none for a hardware event of the calling thread if the kernel allows
    /// user-space reads. Only the first read after a member has joined allocates.
    ///
    /// Units: events for `raw` and `scaled`, nanoseconds for the times, all since the last restart. With
    /// several locations, every field is a sum; `scaled` sums the values that were scaled at each location by
    /// its own times.
    ///
    /// Errors: [`PerfError::Stale`]; [`PerfError::EndOfFile`] if the event is in error state;
    /// [`PerfError::Kernel`] (ECHILD: a child inherited the group before its last member joined).
    ///
    /// Source: perf_event_open(2), "Reading results"; `enum perf_event_read_format`.
    pub fn read(&mut self, id: AttachmentId) -> Result<Reading, PerfError> {
        let tally = self.with_cpus(id, |fan_out, _| fan_out.read(id))?;
        self.note(id, &tally);
        Ok(Reading::of(&tally))
    }

    /// Reads the whole group of this attachment, with one system call for each observed location.
    ///
    /// Errors: as [`Attachments::read`].
    #[doc(alias = "PERF_FORMAT_GROUP")]
    pub fn snapshot(&mut self, id: AttachmentId) -> Result<Snapshot, PerfError> {
        let mut entries = Entries::new();
        let (own, tally) = self.with_cpus(id, |fan_out, _| fan_out.snapshot(id, &mut entries))?;
        self.note(id, &tally);
        Ok(Snapshot::of(&tally, own, entries))
    }

    /// Reads the counters of several attachments. Attachments of one group share one system call for each
    /// location that the group observes. Results are in the order of `ids`, which may contain duplicates.
    ///
    /// Errors: as [`Attachments::read`], for the first attachment that cannot be read.
    pub fn read_many(&mut self, ids: &[AttachmentId]) -> Result<Vec<Reading>, PerfError> {
        let leader = |id: &AttachmentId| self.leader(*id).ok_or(PerfError::Stale(*id));
        let mut by_group = ids
            .iter()
            .enumerate()
            .map(|(index, id)| Ok((leader(id)?, index)))
            .collect::<Result<Vec<(AttachmentId, usize)>, PerfError>>()?;
        by_group.sort_unstable();
        let mut tallies = vec![Tally::default(); ids.len()];
        for group in by_group.chunk_by(|(one, _), (other, _)| one == other) {
            if let [(_, index)] = group {
                tallies[*index] = self.with_cpus(ids[*index], |fan_out, _| fan_out.read(ids[*index]))?;
                continue;
            }
            let mut all: Vec<(AttachmentId, Tally)> = Vec::new();
            self.with_cpus(group[0].0, |fan_out, _| {
                all.clear();
                fan_out.read_all(|id, _, tally| all.push((id, tally)))
            })?;
            for (_, index) in group {
                // Members are sorted: a later member has a higher id.
                let found = all.binary_search_by_key(&ids[*index], |(id, _)| *id);
                tallies[*index] = all[found.map_err(|_| PerfError::Stale(ids[*index]))?].1;
            }
        }
        for (id, tally) in ids.iter().zip(&tallies) {
            self.note(*id, tally);
        }
        Ok(tallies.iter().map(Reading::of).collect())
    }

    /// As [`Attachments::snapshot`], restricted to one CPU.
    ///
    /// Errors: as [`Attachments::read`]; [`PerfError::NotOnCpu`] if the attachment has no kernel event for
    /// that CPU alone.
    pub fn snapshot_cpu(&mut self, id: AttachmentId, cpu: i32) -> Result<Snapshot, PerfError> {
        self.with_cpus(id, |fan_out, _| {
            let (mut entries, mut own) = (Entries::new(), None);
            let is_there = fan_out.read_cpu(id, cpu, |one, kernel_id, tally| {
                if one == id {
                    own = Some((entries.len(), tally));
                }
                entries.push(GroupEntry::of(one, kernel_id, &tally));
            })?;
            if let (Some((own, tally)), true) = (own, is_there) {
                return Ok(Snapshot::of(&tally, own, entries));
            }
            let plan = fan_out.plans().iter().find(|plan| plan.id == id).ok_or(PerfError::Stale(id))?;
            Err(PerfError::NotOnCpu { attempt: Box::new(plan.attempt(Action::Read, None)), cpu })
        })
    }

    /// Resumes counting after [`Attachments::disable`]. For a leader, this starts the whole group, including
    /// members that were stopped on their own. For a member, it starts this event, which counts only while
    /// its leader does. A running event is unaffected.
    ///
    /// A member can only be started together with its group, so the counts and times of the group stop for a
    /// moment.
    ///
    /// Errors: [`PerfError::Stale`], [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_ENABLE")]
    pub fn enable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        self.note_change(self.leader_of.get(&id).copied().unwrap_or(id));
        self.with_cpus(id, |fan_out, _| fan_out.enable(id))
    }

    /// Stops counting; counts and times stay readable. For a leader, this stops the whole group. For a
    /// member, it stops this event, whose times then stand still while those of the group continue.
    ///
    /// Errors: [`PerfError::Stale`], [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_DISABLE")]
    pub fn disable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        self.note_change(self.leader_of.get(&id).copied().unwrap_or(id));
        self.with_cpus(id, |fan_out, _| fan_out.disable(id))
    }

    /// Sets counts and times to zero: of the whole group for a leader, else of this event. Running events
    /// keep running and stopped events stay stopped.
    ///
    /// Errors: [`PerfError::Stale`], [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_RESET")]
    pub fn reset(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        self.note_change(self.leader_of.get(&id).copied().unwrap_or(id));
        self.with_cpus(id, |fan_out, _| fan_out.reset(id))
    }

    /// Changes the events between two samples, or the samples per second of an event with a frequency.
    ///
    /// Errors: [`PerfError::Stale`]; [`PerfError::Refused`] for 0, without a program, and for a clock that
    /// would leave its CPU no time; [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_PERIOD")]
    pub fn set_period(&mut self, id: AttachmentId, events: u64) -> Result<(), PerfError> {
        self.with_cpus(id, |fan_out, _| {
            let plan = fan_out.plans().iter().find(|plan| plan.id == id).ok_or(PerfError::Stale(id))?;
            let mut options = plan.options.clone();
            options.set_period(events);
            let checked = match () {
                () if plan.link.is_none() => Err(Refusal::NotSampled),
                () if events == 0 => Err(Refusal::NoPeriod),
                () if plan.event.is_clock() => options.check_clock(),
                () => Ok(()),
            };
            checked.map_err(|refusal| {
                let attempt = Box::new(plan.attempt(Action::SetPeriod, None));
                PerfError::Refused { attempt, refusal }
            })?;
            fan_out.set_period(id, events)
        })
    }

    /// Returns the kernel's id of an event, of several that of the first.
    ///
    /// Errors: [`PerfError::Stale`].
    #[doc(alias = "PERF_EVENT_IOC_ID")]
    pub fn kernel_id(&mut self, id: AttachmentId) -> Result<u64, PerfError> {
        self.with_cpus(id, |fan_out, _| Ok(fan_out.kernel_id(id)))
    }

    /// Makes this attachment readable by programs of the kernel half: puts the kernel event of each CPU into
    /// the array, including CPUs that come online later. The entries are removed with the attachment.
    ///
    /// Errors: [`PerfError::Stale`]; [`PerfError::Refused`] for an event of a task, which the kernel lets
    /// programs read only while that task runs, for an inherited event (EOPNOTSUPP), and for an array that
    /// already exposes another attachment; [`PerfError::Kernel`].
    ///
    /// Source: `perf_event_read_local` in `kernel/events/core.c`, v6.18.
    #[doc(alias = "BPF_MAP_TYPE_PERF_EVENT_ARRAY")]
    pub fn publish(&mut self, id: AttachmentId, array: &Arc<dyn EventArray>) -> Result<(), PerfError> {
        let occupied = self.published_in(array.name()).any(|other| other != id);
        self.with_cpus(id, |fan_out, _| {
            let plan = fan_out.plans().iter().find(|plan| plan.id == id).ok_or(PerfError::Stale(id))?;
            let options = &plan.options;
            let of_cpus = options.pid == -1 && (options.every_cpu || options.cpu >= 0);
            let of_all = options.process.is_empty() && options.cgroup.is_empty() && !options.command;
            let refusal = match () {
                () if !of_cpus || !of_all || options.inherit => Refusal::NotOfCpus,
                () if occupied => Refusal::EventArrayInUse(array.name().to_owned()),
                () => return fan_out.publish(id, array),
            };
            let attempt = Box::new(plan.attempt(Action::Publish, None));
            Err(PerfError::Refused { attempt, refusal })
        })
    }

    /// Returns the attachments that are published in the array of this name.
    fn published_in(&self, array: &str) -> impl Iterator<Item = AttachmentId> {
        let plans = self.fan_outs.values().flat_map(FanOut::plans);
        let is_there =
            move |plan: &&Plan| plan.event_array.as_ref().is_some_and(|there| there.name() == array);
        plans.filter(is_there).map(|plan| plan.id)
    }

    /// Whether an attachment is published in the array of this name.
    pub fn is_published_in(&self, array: &str) -> bool {
        self.published_in(array).next().is_some()
    }

    /// Creates rings on all online CPUs for what programs write into an array of events: so many bytes for
    /// records in each, a power of two of whole pages.
    ///
    /// # Errors
    /// [`OutputError`].
    #[cfg(feature = "plugins")]
    pub fn output_rings(
        &self,
        array: Arc<dyn EventArray>,
        bytes: u32,
        host_bytes: &HostBytes,
    ) -> Result<OutputRings, OutputError> {
        OutputRings::open(array, bytes, host_bytes, &self.surroundings)
    }

    /// Handles CPUs that went offline or came online since the last call, for all attachments: samplers that
    /// are never read, events that programs read, and all others. Returns whether any attachment follows
    /// CPUs.
    pub fn follow_cpus(&mut self) -> bool {
        let mut any = false;
        let mut changed = Vec::new();
        for (leader, fan_out) in self.fan_outs.iter_mut().filter(|(_, fan_out)| fan_out.follows()) {
            let before = fan_out.revision();
            fan_out.follow_cpus(&self.surroundings);
            fan_out.drain_notices(&mut self.notices);
            changed.extend((fan_out.revision() != before).then_some(*leader));
            any = true;
        }
        changed.into_iter().for_each(|leader| self.note_change(leader));
        any
    }

    /// Detaches everything, newest first.
    pub fn detach_all(&mut self) {
        let newest = |attachments: &Attachments| {
            let member = attachments.leader_of.last_key_value().map(|(&member, _)| member);
            member.max(attachments.fan_outs.last_key_value().map(|(&leader, _)| leader))
        };
        while let Some(newest) = newest(self) {
            self.detach(newest);
        }
    }

    /// Returns the attachments that run programs, each with its event and how often the kernel has throttled it.
    pub fn throttled(&mut self) -> Vec<(AttachmentId, String, u64)> {
        let mut all = Vec::new();
        for fan_out in self.fan_outs.values_mut() {
            let sampling = fan_out.plans().iter().filter(|plan| plan.link.is_some());
            let sampling: Vec<_> = sampling.map(|plan| (plan.id, plan.event.name().to_owned())).collect();
            all.extend(sampling.into_iter().map(|(id, event)| (id, event, fan_out.throttled(id))));
        }
        all
    }

    /// Records a notice if the kernel throttled the attachment.
    fn note_throttled(&mut self, id: AttachmentId, fan_out: &mut FanOut) {
        let times = fan_out.throttled(id);
        if let (Some(plan), 1..) = (fan_out.plans().iter().find(|plan| plan.id == id), times) {
            self.notices.push(Notice::Throttled { event: plan.event.name().to_owned(), times });
        }
    }

    /// Stops, unlinks and closes an event. For a leader, it first detaches the members, newest first. The
    /// other members of a group keep counting. Afterwards the id is stale. A stale id has no effect.
    pub fn detach(&mut self, id: AttachmentId) {
        let leader = self.leader_of.remove(&id).unwrap_or(id);
        self.note_change(leader);
        self.forget(id);
        let Some(mut fan_out) = self.fan_outs.remove(&leader) else { return };
        if leader != id {
            self.note_throttled(id, &mut fan_out);
            fan_out.remove_member(id);
            self.fan_outs.insert(leader, fan_out);
            return;
        }
        for member in fan_out.newest_members_first() {
            self.note_throttled(member, &mut fan_out);
            self.leader_of.remove(&member);
            self.forget(member);
        }
        self.note_throttled(id, &mut fan_out);
    }

    /// Returns the ids of the tracepoints that the attachment's group counts.
    pub(crate) fn tracepoints(&self, id: AttachmentId) -> impl Iterator<Item = u64> {
        let fan_out = self.group(id);
        fan_out.into_iter().flat_map(FanOut::plans).filter_map(|plan| plan.event.tracepoint())
    }

    /// Number of live attachments, members included.
    pub fn count(&self) -> usize {
        self.leader_of.len() + self.fan_outs.len()
    }

    /// Number of descriptors of all open kernel events and their links.
    pub fn descriptors(&self) -> usize {
        self.surroundings.descriptors.number()
    }

    /// Number of descriptors that opening an event would add at most. Counts one location if they cannot be
    /// determined: opening then reports the error.
    pub fn descriptors_of(
        &self,
        event: &Event,
        options: &Options,
        leader: Option<AttachmentId>,
        is_linked: bool,
    ) -> usize {
        let each = 1 + usize::from(is_linked);
        if let Some(group) = leader.and_then(|leader| self.fan_outs.get(&leader)) {
            return each * group.locations();
        }
        let locations = locations::locations(event, &event.options(options), &self.surroundings);
        each * locations.map_or(1, |locations| locations.len()) + Online::DESCRIPTORS
    }

    /// Number of open kernel events that are probes.
    pub fn probes(&self) -> usize {
        let probes_of_fan_out = |fan_out: &FanOut| {
            let probes = fan_out.plans().iter().filter(|plan| plan.event.is_probe()).count();
            probes * fan_out.locations()
        };
        self.fan_outs.values().map(probes_of_fan_out).sum()
    }

    /// Number of probe events that opening an event would add. Returns 1 if the locations cannot be
    /// determined: opening then reports the error.
    pub fn probes_of(&self, event: &Event, options: &Options) -> usize {
        let options = event.options(options);
        let locations = || {
            locations::locations(event, &options, &self.surroundings).map_or(1, |locations| locations.len())
        };
        if event.is_probe() { locations() } else { 0 }
    }

    /// Returns all live attachments in the order of opening.
    pub fn live(&self) -> Vec<Live> {
        let mut live: Vec<Live> = self
            .fan_outs
            .iter()
            .flat_map(|(&leader, fan_out)| {
                fan_out.plans().iter().map(move |plan| describe(plan, leader, fan_out))
            })
            .collect();
        live.sort_by_key(|live| live.id);
        live
    }

    /// Runs `what` on the current CPUs, and repeats it after a failure if CPUs went offline meanwhile.
    fn with_cpus<T>(
        &mut self,
        id: AttachmentId,
        mut what: impl FnMut(&mut FanOut, &Surroundings) -> Result<T, PerfError>,
    ) -> Result<T, PerfError> {
        let leader = self.leader_of.get(&id).copied().unwrap_or(id);
        let Some(fan_out) = self.fan_outs.get_mut(&leader) else { return Err(PerfError::Stale(id)) };
        let before = fan_out.revision();
        fan_out.follow_cpus(&self.surroundings);
        let mut done = what(fan_out, &self.surroundings);
        for _ in 0..MAX_ATTEMPTS {
            // `|`, not `||`: both have to run.
            if done.is_ok() || !(fan_out.remove_dead_groups() | fan_out.follow_cpus(&self.surroundings)) {
                break;
            }
            done = what(fan_out, &self.surroundings);
        }
        fan_out.drain_notices(&mut self.notices);
        if fan_out.revision() != before {
            self.note_change(leader);
        }
        done
    }

    /// Returns the leader of a live attachment; a leader is its own.
    fn leader(&self, id: AttachmentId) -> Option<AttachmentId> {
        let leader = self.leader_of.get(&id).copied().unwrap_or(id);
        self.fan_outs.contains_key(&leader).then_some(leader)
    }

    fn group(&self, id: AttachmentId) -> Option<&FanOut> {
        self.fan_outs.get(self.leader_of.get(&id).unwrap_or(&id))
    }

    fn forget(&mut self, id: AttachmentId) {
        self.reported.retain(|(reported, _)| *reported != id);
    }

    /// Records a notice if a reading needs one.
    fn note(&mut self, id: AttachmentId, tally: &Tally) {
        let Some(reported) = reported_state(tally) else { return };
        if !self.reported.insert((id, reported)) {
            return;
        }
        let plans = self.group(id).map(FanOut::plans);
        let plan = plans.into_iter().flatten().find(|plan| plan.id == id);
        let event = plan.map(|plan| plan.event.name().to_owned()).unwrap_or_default();
        self.notices.push(match reported {
            ReportedState::NeverRan => Notice::NeverRan { event },
            ReportedState::LowShare => Notice::LowShare { event, share: share(tally) },
            ReportedState::Partial => {
                Notice::Partial { event, enabled: tally.enabled, never_ran: tally.never_ran }
            }
        });
    }
}

/// Limit of retries while CPUs go offline one after the other.
const MAX_ATTEMPTS: u32 = 16;

/// A scaled count whose event ran for a smaller share of the enabled time gets a warning; in hundredths of a
/// percent.
const LOW_SHARE: u32 = 1000;

/// Returns what has to be reported with a reading.
#[inline]
pub(super) fn reported_state(tally: &Tally) -> Option<ReportedState> {
    // The fast path: nearly every reading returns here.
    if tally.never_ran == 0 && tally.times.enabled == tally.times.running {
        return None;
    }
    match tally.state() {
        State::NeverRan => Some(ReportedState::NeverRan),
        // A core kind that does not count the event was reported when the event was opened.
        _ if tally.is_partial() && !tally.lacks => Some(ReportedState::Partial),
        State::Multiplexed if share(tally) < LOW_SHARE => Some(ReportedState::LowShare),
        _ => None,
    }
}

/// Share of the enabled time that the event was on a counter, in hundredths of a percent.
fn share(tally: &Tally) -> u32 {
    let (enabled, running) = (u128::from(tally.times.enabled), u128::from(tally.times.running));
    let share = (running * 10_000).checked_div(enabled).unwrap_or(10_000);
    u32::try_from(share).unwrap_or(u32::MAX)
}

fn refused(plan: &Plan, refusal: Refusal) -> PerfError {
    PerfError::Refused { attempt: Box::new(plan.attempt(Action::Open, None)), refusal }
}

/// Whether the kernel refused the group because of its size or its combination of PMUs.
fn has_no_room(error: &PerfError) -> bool {
    match error {
        PerfError::Kernel(failure) => {
            failure.call == Call::Open
                && matches!(failure.errno, Errno::EINVAL | Errno::ENOSPC | Errno::E2BIG)
        }
        _ => false,
    }
}

fn describe(plan: &Plan, leader: AttachmentId, fan_out: &FanOut) -> Live {
    Live {
        id: plan.id,
        event: plan.event.name().to_owned(),
        pid: plan.options.pid,
        cpu: plan.options.cpu,
        leader: (leader != plan.id).then_some(leader),
        has_program: plan.link.is_some(),
        locations: fan_out.locations(),
    }
}
