//! Fan-out groups: several kernel events that read as one counter, one group for each location (CPU and task)
//! that an attachment observes. An event of one task or one CPU has one location.
//!
//! When a CPU goes offline, its counts are kept in a sum; when a CPU comes online, it gets a group of its
//! own. So `cpu: all` stays complete, and so does an event of one CPU. Gaps are reported, and readings are
//! then partial.
//!
//! If several kinds of core have a PMU each, a group on one CPU uses the PMU of that CPU, and a task that may
//! run anywhere has one group for each kind. These groups are started in order, and read and stopped in the
//! reverse order. The enabled span of the last one is then the shortest and lies within the spans of all
//! others, and within it one of the groups ran whenever the task did.

mod cpus;
mod join;
mod open;
mod total;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;

use self::total::{GoneCpu, Total};
use super::attachments::AttachmentId;
use super::attr::Options;
use super::error::PerfError;
use super::event_array::EventArray;
use super::group::{Counter, Group};
use super::locations::{CpuAndTask, Surroundings, Target};
use super::notice::Notice;
use super::online::Online;
use super::plan::Plan;
use super::pmu::Sysfs;
use super::readable::ReadableEvent;
use super::reading::{Entries, GroupEntry};
use super::scale::Tally;

/// The group at one location.
#[derive(Debug)]
struct Branch {
    location: CpuAndTask,
    /// [`Sysfs::incarnation`] of the CPU when the group was opened there.
    incarnation: Option<u64>,
    /// Whether the kernel keeps the group on one kind of core, even after the member that bound it there has
    /// left.
    is_bound: bool,
    group: Group,
}

/// A leader and its members at every observed location.
pub(super) struct FanOut {
    pub(super) target: Target,
    /// The leader, then the members in the order in which they joined.
    plans: Vec<Plan>,
    /// Empty only if every task has ended.
    branches: Vec<Branch>,
    /// The counts from CPUs that went offline.
    gone: BTreeMap<AttachmentId, Vec<GoneCpu>>,
    online: Option<Online>,
    /// CPUs that should be counted but are not yet.
    missing: BTreeSet<i32>,
    /// CPUs that came online and cannot be counted; each was reported.
    uncounted: BTreeSet<i32>,
    /// Attachments that some of the requested kinds of core do not count.
    lacking: BTreeSet<AttachmentId>,
    notices: Vec<Notice>,
    enabled: bool,
    /// Members that were stopped on their own.
    stopped: BTreeSet<AttachmentId>,
    /// Time of the last check for CPUs that went offline or came online.
    looked: Instant,
}

/// Drops the members, newest first, then the leader; a Vec would drop them in order.
impl Drop for FanOut {
    fn drop(&mut self) {
        let members: Vec<AttachmentId> = self.newest_members_first().collect();
        members.into_iter().for_each(|member| self.remove_member(member));
    }
}

impl FanOut {
    /// Opens a leader at every location and starts it.
    pub(super) fn open(plan: Plan, target: Target, surroundings: &Surroundings) -> Result<FanOut, PerfError> {
        // Read before the CPUs are listed for opening, so that the next call sees every later change.
        let online = cpus::follows(&plan).then(|| Online::of(surroundings)).flatten();
        let open::OpenedGroups { branches, missing, reasons } = open::open_branches(&plan, surroundings)?;
        let mut fan_out = FanOut {
            target,
            plans: vec![plan.clone()],
            branches,
            gone: BTreeMap::new(),
            online,
            missing,
            uncounted: BTreeSet::new(),
            lacking: BTreeSet::new(),
            notices: Vec::new(),
            enabled: !plan.options.start_disabled,
            stopped: BTreeSet::new(),
            looked: Instant::now(),
        };
        for branch in &mut fan_out.branches {
            branch.group.start()?;
        }
        fan_out.note_lacking(&plan, &reasons, &surroundings.sysfs);
        Ok(fan_out)
    }

    /// Returns the plans of the attachments: the leader's first, then the members' in the order in which they
    /// joined.
    pub(super) fn plans(&self) -> &[Plan] {
        &self.plans
    }

    pub(super) fn leader(&self) -> &Plan {
        &self.plans[0]
    }

    /// Number of kernel events of the leader.
    pub(super) fn locations(&self) -> usize {
        self.branches.len()
    }

    /// Returns the members, newest first.
    pub(super) fn newest_members_first(&self) -> impl Iterator<Item = AttachmentId> + use<> {
        let members: Vec<AttachmentId> = self.plans.iter().skip(1).map(|plan| plan.id).rev().collect();
        members.into_iter()
    }

    /// Moves the notices since the last call into `notices`.
    pub(super) fn drain_notices(&mut self, notices: &mut Vec<Notice>) {
        if !self.notices.is_empty() {
            notices.append(&mut self.notices);
        }
    }

    /// Closes a member; the others keep counting.
    pub(super) fn remove_member(&mut self, id: AttachmentId) {
        self.branches.iter_mut().for_each(|branch| branch.group.remove_member(id));
        self.plans.retain(|plan| plan.id != id);
        self.gone.remove(&id);
        self.stopped.remove(&id);
        self.lacking.remove(&id);
    }

    /// Makes an attachment readable by programs on every CPU that it counts on, including CPUs that come
    /// online later.
    pub(super) fn publish(&mut self, id: AttachmentId, array: &Arc<dyn EventArray>) -> Result<(), PerfError> {
        for Branch { location, group, .. } in &mut self.branches {
            group.publish(id, location.cpu, array)?;
        }
        let plan = self.plans.iter_mut().find(|plan| plan.id == id);
        plan.into_iter().for_each(|plan| plan.event_array = Some(Arc::clone(array)));
        Ok(())
    }

    /// Returns how often the kernel has throttled an attachment, summed over all locations.
    pub(super) fn throttled(&mut self, id: AttachmentId) -> u64 {
        self.branches.iter_mut().map(|branch| branch.group.throttled(id)).sum()
    }

    /// Records that the awaited command has reached its exec.
    pub(super) fn note_exec(&mut self) {
        if self.leader().options.command {
            self.branches.iter_mut().for_each(|branch| branch.group.note_exec());
        }
    }

    /// Reads one attachment at all locations.
    pub(super) fn read(&mut self, id: AttachmentId) -> Result<Tally, PerfError> {
        let lacks = self.lacks(id);
        if let ([only], true) = (&mut self.branches[..], self.gone.is_empty()) {
            return Ok(only.group.read(id)?.tally().lacking(lacks));
        }
        let mut total = Total::default();
        total.add_gone(self.gone.get(&id).map_or(&[], Vec::as_slice));
        for branch in self.branches.iter_mut().rev().filter(|branch| branch.group.has(id)) {
            total.add(&branch.location, branch.group.read(id)?.tally());
        }
        Ok(total.sum().lacking(lacks))
    }

    /// Reads the whole group at all locations, with one system call at each. Calls `report` for each
    /// attachment with the kernel's id at the first location and the sum, in the order of [`FanOut::plans`].
    pub(super) fn read_all(
        &mut self,
        mut report: impl FnMut(AttachmentId, u64, Tally),
    ) -> Result<(), PerfError> {
        let (lacking, misses) = (&self.lacking, self.misses_cpus());
        if let Some(only) = only_group(&mut self.branches, &self.gone, &self.plans) {
            return only.read_all(|counter, count| {
                let tally = count.tally().lacking(misses || lacking.contains(&counter.id()));
                report(counter.id(), counter.kernel_id(), tally);
            });
        }
        let mut totals: BTreeMap<AttachmentId, Total> = BTreeMap::new();
        for (id, gone) in &self.gone {
            totals.entry(*id).or_default().add_gone(gone);
        }
        for Branch { location, group, .. } in self.branches.iter_mut().rev() {
            group.read_all(|counter, count| {
                totals.entry(counter.id()).or_default().add(location, count.tally());
            })?;
        }
        for Plan { id, .. } in &self.plans {
            let sum = totals.get(id).map(Total::sum).unwrap_or_default();
            report(*id, self.kernel_id(*id, None), sum.lacking(self.lacks(*id)));
        }
        Ok(())
    }

    /// Reads the whole group at all locations. Fills `entries` in the order of [`FanOut::plans`], and returns
    /// the index and the tally of `id`.
    pub(super) fn snapshot(
        &mut self,
        id: AttachmentId,
        entries: &mut Entries,
    ) -> Result<(usize, Tally), PerfError> {
        let Some(own) = self.plans.iter().position(|plan| plan.id == id) else {
            return Err(PerfError::Stale(id));
        };
        if let Some(only) = only_group(&mut self.branches, &self.gone, &self.plans) {
            let count = only.snapshot(own, entries)?;
            return Ok((own, count.tally().lacking(self.lacks(id))));
        }
        let mut tallies = Vec::new();
        self.read_all(|id, kernel_id, tally| tallies.push((id, kernel_id, tally)))?;
        entries.clear();
        entries.extend(tallies.iter().map(|(id, kernel_id, tally)| GroupEntry::of(*id, *kernel_id, tally)));
        Ok((own, tallies[own].2))
    }

    /// Returns the events, the leader's first, if only calls of their owner change what reading them yields: they
    /// are at one location and no CPU's, none is missing, the kernel skips none for a program, and none is a probe, which stays
    /// in its program for as long as anybody has its descriptor.
    pub(super) fn shareable(&self) -> Option<Vec<&ReadableEvent>> {
        let [only] = &self.branches[..] else { return None };
        let is_steady = self.online.is_none() && self.gone.is_empty() && self.lacking.is_empty();
        let is_plain =
            |plan: &Plan| plan.link.is_none() && plan.event.tracepoint().is_none() && !plan.event.is_probe();
        let all = only.group.size() == self.plans.len() && self.plans.iter().all(is_plain);
        (is_steady && all).then(|| only.group.counters().map(AsRef::as_ref).collect())
    }

    /// Whether a requested kind of core or CPU is not counted.
    fn lacks(&self, id: AttachmentId) -> bool {
        self.misses_cpus() || self.lacking.contains(&id)
    }

    fn misses_cpus(&self) -> bool {
        !self.missing.is_empty() || !self.uncounted.is_empty()
    }

    /// As [`FanOut::read_all`], for the locations on one CPU, including what was counted there before the CPU
    /// went offline. Returns false, without calling `report`, if `id` was never counted there.
    pub(super) fn read_cpu(
        &mut self,
        id: AttachmentId,
        cpu: i32,
        mut report: impl FnMut(AttachmentId, u64, Tally),
    ) -> Result<bool, PerfError> {
        let mut totals: BTreeMap<AttachmentId, Total> = BTreeMap::new();
        for (id, gone) in &self.gone {
            let here: Vec<GoneCpu> = gone.iter().copied().filter(|gone| gone.cpu == cpu).collect();
            if !here.is_empty() {
                totals.entry(*id).or_default().add_gone(&here);
            }
        }
        let is_away = !self.branches.iter().any(|branch| branch.location.cpu == cpu);
        for Branch { location, group, .. } in
            self.branches.iter_mut().filter(|branch| branch.location.cpu == cpu)
        {
            group.read_all(|counter, count| {
                totals.entry(counter.id()).or_default().add(location, count.tally());
            })?;
        }
        if !totals.contains_key(&id) {
            return Ok(false);
        }
        for Plan { id, .. } in &self.plans {
            // A member that this kind of core does not count has no value.
            let sum = totals.get(id).map_or_else(Tally::nothing, Total::sum);
            report(*id, self.kernel_id(*id, Some(cpu)), sum.lacking(is_away));
        }
        Ok(true)
    }

    /// Returns the kernel's id of an attachment at its first location, or at the first one on `cpu`.
    pub(super) fn kernel_id(&self, id: AttachmentId, cpu: Option<i32>) -> u64 {
        let branches = self.branches.iter().filter(|branch| cpu.is_none_or(|cpu| branch.location.cpu == cpu));
        let mut counters = branches.flat_map(|branch| branch.group.counters());
        counters.find(|counter| counter.id() == id).map_or(0, Counter::kernel_id)
    }

    /// Starts the whole group if `id` is the leader, including members that were stopped on their own; else
    /// this member.
    pub(super) fn enable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader().id {
            self.enabled = true;
            self.stopped.clear();
        } else {
            self.stopped.remove(&id);
        }
        self.each(id, |group| group.enable(id))
    }

    /// Stops the whole group if `id` is the leader, else this member.
    pub(super) fn disable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader().id {
            self.enabled = false;
        } else {
            self.stopped.insert(id);
        }
        let groups = self.branches.iter_mut().rev().map(|branch| &mut branch.group);
        groups.filter(|group| group.has(id)).try_for_each(|group| group.disable(id))
    }

    /// Changes the events between two samples of an attachment, or its samples per second, also on CPUs that
    /// come online later.
    pub(super) fn set_period(&mut self, id: AttachmentId, events: u64) -> Result<(), PerfError> {
        self.each(id, |group| group.set_period(id, events))?;
        for Plan { options, .. } in self.plans.iter_mut().filter(|plan| plan.id == id) {
            options.set_period(events);
        }
        Ok(())
    }

    /// Sets counts and times to zero: of the whole group if `id` is the leader, else of this member.
    pub(super) fn reset(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader().id {
            self.gone.clear();
        } else {
            self.gone.remove(&id);
        }
        self.each(id, |group| group.reset(id))
    }

    fn each(
        &mut self,
        id: AttachmentId,
        what: impl FnMut(&mut Group) -> Result<(), PerfError>,
    ) -> Result<(), PerfError> {
        let groups = self.branches.iter_mut().map(|branch| &mut branch.group);
        groups.filter(|group| group.has(id)).try_for_each(what)
    }
}

/// Returns the group if there is only one and it counts every attachment: the sum is then its own count.
fn only_group<'a>(
    branches: &'a mut [Branch],
    gone: &BTreeMap<AttachmentId, Vec<GoneCpu>>,
    plans: &[Plan],
) -> Option<&'a mut Group> {
    match branches {
        // A branch contains the attachments that count there, in the order of the plans.
        [only] if gone.is_empty() && only.group.size() == plans.len() => Some(&mut only.group),
        _ => None,
    }
}

/// Whether tasks may end while their events are opened without this being an error.
fn is_fleeting(options: &Options) -> bool {
    options.follow || !options.process.is_empty()
}

/// Returns the kind of core that does not count an event, if the error means that and other kinds may count
/// it.
fn lacks_event(plan: &Plan, error: &PerfError, location: &CpuAndTask, sysfs: &Sysfs) -> Option<String> {
    let unknown = matches!(error.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP));
    let elsewhere = plan.options.every_cpu || location.cpu == -1;
    let encoding =
        plan.event.encoding_at(location, sysfs).filter(|_| unknown && elsewhere && plan.event.is_hybrid());
    encoding?.core().map(str::to_owned)
}
