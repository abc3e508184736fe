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
mod readout;
mod share;
mod total;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;

pub(super) use self::cpus::CPU_CHECK_INTERVAL;
pub(super) use self::readout::{LocatedGroup, Readout};
pub(super) use self::total::GoneCpu;
use super::attachments::AttachmentId;
use super::attr::Options;
use super::error::PerfError;
use super::event_array::EventArray;
use super::group::Group;
use super::locations::{CpuAndTask, Surroundings, Target};
use super::notice::Notice;
use super::online::Online;
use super::plan::Plan;
use super::pmu::Sysfs;
use super::readable::ReadableEvent;
use super::reading::Entries;
use super::scale::{Count, Tally};

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

impl LocatedGroup for Branch {
    type Error = PerfError;

    fn location(&self) -> &CpuAndTask {
        &self.location
    }

    fn events(&self) -> impl Iterator<Item = &ReadableEvent> {
        self.group.counters().map(AsRef::as_ref)
    }

    fn read(&mut self, id: AttachmentId) -> Result<Count, PerfError> {
        self.group.read(id)
    }

    fn read_all(
        &mut self,
        mut report: impl FnMut(&CpuAndTask, &ReadableEvent, Count),
    ) -> Result<(), PerfError> {
        let Branch { location, group, .. } = self;
        group.read_all(|event, count| report(location, event, count))
    }

    fn snapshot(&mut self, own: usize, entries: &mut Entries) -> Result<Count, PerfError> {
        self.group.snapshot(own, entries)
    }
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
    /// How often CPUs that came or went, or a check for them, have changed this.
    revision: u64,
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
            revision: 0,
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

    /// As [`Readout::read`].
    pub(super) fn read(&mut self, id: AttachmentId) -> Result<Tally, PerfError> {
        self.readout().read(id)
    }

    /// As [`Readout::read_all`].
    pub(super) fn read_all(&mut self, report: impl FnMut(AttachmentId, u64, Tally)) -> Result<(), PerfError> {
        self.readout().read_all(report)
    }

    /// As [`Readout::snapshot`].
    pub(super) fn snapshot(
        &mut self,
        id: AttachmentId,
        entries: &mut Entries,
    ) -> Result<(usize, Tally), PerfError> {
        self.readout().snapshot(id, entries)?.ok_or(PerfError::Stale(id))
    }

    /// As [`Readout::read_cpu`].
    pub(super) fn read_cpu(
        &mut self,
        id: AttachmentId,
        cpu: i32,
        report: impl FnMut(AttachmentId, u64, Tally),
    ) -> Result<bool, PerfError> {
        self.readout().read_cpu(id, cpu, report)
    }

    fn readout(&mut self) -> Readout<'_, Branch, Plan> {
        let misses_cpus = self.misses_cpus();
        Readout {
            attachments: &self.plans,
            groups: &mut self.branches,
            gone: &self.gone,
            lacking: &self.lacking,
            misses_cpus,
        }
    }

    fn misses_cpus(&self) -> bool {
        !self.missing.is_empty() || !self.uncounted.is_empty()
    }

    /// Returns the kernel's id of an attachment at its first location.
    pub(super) fn kernel_id(&self, id: AttachmentId) -> u64 {
        readout::kernel_id(&self.branches, id, None)
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
