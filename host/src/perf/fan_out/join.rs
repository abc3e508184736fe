//! Joining members to a group at every location of its leader.
//!
//! A group is on one PMU. If several kinds of core have a PMU each, a group has one branch for each kind. A
//! leader that no core PMU counts (a clock, a tracepoint) has one branch for a task that may run anywhere.
//! When a member binds the group to a kind of core, the group is opened for each kind. The kernel unschedules
//! a group, including its software events, while its task is on another kind, so nothing is counted twice.
//!
//! Source: `visit_groups_merge` in `kernel/events/core.c`, v6.18, which asks the filter of the PMU that the
//! group is on.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;

use super::super::attachments::AttachmentId;
use super::super::error::{PerfError, Refusal};
use super::super::event::Event;
use super::super::group::GroupStart;
use super::super::locations::{self, CpuAndTask, Surroundings};
use super::super::notice::Notice;
use super::super::plan::Plan;
use super::super::pmu::Sysfs;
use super::{Branch, FanOut, is_fleeting, lacks_event};
use crate::explain::Facts;
use crate::explain::perf::{Action, Call};

/// First kernel version that keeps a group on its kind of core after the member that bound it has left.
const SPLITS_SINCE: (u32, u32) = (6, 2);

/// Reasons why kinds of core do not count an event, keyed by their PMU's name.
pub(super) type Reasons = BTreeMap<String, String>;

impl FanOut {
    /// Opens a member in every group and restarts all groups from zero, including stopped members. If the
    /// member cannot be opened at one location, it is closed at all of them and the groups continue as
    /// before.
    pub(in super::super) fn join(
        &mut self,
        plan: Plan,
        surroundings: &Surroundings,
    ) -> Result<(), PerfError> {
        self.check_pmu(&plan, surroundings)?;
        let action = Action::Join { leader: self.leader().event.name().to_owned(), size: self.plans.len() };
        let id = plan.id;
        let before: Vec<Option<String>> =
            self.branches.iter().map(|branch| branch.location.core.clone()).collect();
        let admitted =
            self.split(&plan, surroundings).and_then(|()| self.admit(&plan, &action, &surroundings.sysfs));
        let reasons = admitted.inspect_err(|_| {
            self.branches.truncate(before.len());
            for (branch, core) in self.branches.iter_mut().zip(before) {
                branch.location.core = core;
            }
            self.go_on_without(id);
        })?;
        self.drop_doubles();
        let restarted = self.each_living(|group| group.restart(&action));
        restarted.inspect_err(|_| self.go_on_without(id))?;
        self.gone.clear();
        self.stopped.clear();
        self.enabled = true;
        self.note_lacking(&plan, &reasons, &surroundings.sysfs);
        self.plans.push(plan);
        Ok(())
    }

    /// Rejects a member whose PMU counts on other CPUs than the leader's: it would be missing there.
    fn check_pmu(&self, plan: &Plan, surroundings: &Surroundings) -> Result<(), PerfError> {
        let refused =
            |refusal| PerfError::Refused { attempt: Box::new(plan.attempt(Action::Open, None)), refusal };
        let leader = self.leader();
        let sysfs = &surroundings.sysfs;
        if plan.options.every_cpu {
            // Read once for both, since the list may change at any time.
            let online = sysfs.online_cpus();
            let counted = |event: &Event| match event.cpus(sysfs) {
                Some(cpus) => online.iter().copied().filter(|cpu| cpus.contains(cpu)).collect(),
                None => online.clone(),
            };
            let (own, of_leader): (Vec<i32>, Vec<i32>) = (counted(&plan.event), counted(&leader.event));
            return if own == of_leader { Ok(()) } else { Err(refused(Refusal::OtherPmuCpu { cpus: own })) };
        }
        let own = locations::cpus(&plan.event, &plan.options, sysfs).map_err(refused)?;
        let cores = |plan: &Plan| plan.event.cores().map(str::to_owned).collect::<BTreeSet<_>>();
        let (leader, member) = (cores(leader), cores(plan));
        if own == [-1] && !leader.is_empty() && !member.is_empty() && leader.is_disjoint(&member) {
            let list = |cores: BTreeSet<String>| cores.into_iter().collect::<Vec<_>>().join(", ");
            return Err(refused(Refusal::OtherCores { leader: list(leader), member: list(member) }));
        }
        Ok(())
    }

    /// Opens the group for the kinds of core that a member counts on and that have no branch yet.
    fn split(&mut self, plan: &Plan, surroundings: &Surroundings) -> Result<(), PerfError> {
        let anywhere = plan.options.cpu == -1 && !plan.options.every_cpu;
        let cores: Vec<&str> = plan.event.cores().collect();
        let Some(first) = cores.first() else { return Ok(()) };
        if !anywhere || self.leader().event.cores().next().is_some() {
            return Ok(());
        }
        for branch in &mut self.branches {
            branch.location.core.get_or_insert_with(|| (*first).to_owned());
        }
        let here: BTreeSet<String> =
            self.branches.iter().filter_map(|branch| branch.location.core.clone()).collect();
        let new: Vec<&str> = cores.into_iter().filter(|core| !here.contains(*core)).collect();
        if !new.is_empty() && Facts::read(0).kernel.is_some_and(|version| version < SPLITS_SINCE) {
            let attempt = Box::new(plan.attempt(Action::Open, None));
            return Err(PerfError::Refused { attempt, refusal: Refusal::SplitGroup });
        }
        let mut tasks: BTreeMap<i32, (CpuAndTask, GroupStart)> = BTreeMap::new();
        for branch in &self.branches {
            tasks
                .entry(branch.location.task)
                .or_insert((branch.location.clone(), branch.group.group_start()));
        }
        for (location, start) in tasks.into_values() {
            for core in &new {
                let location = CpuAndTask { core: Some((*core).to_owned()), ..location.clone() };
                match self.open_group(&location, start, surroundings) {
                    Ok(group) => {
                        self.branches.push(Branch { location, incarnation: None, is_bound: false, group })
                    }
                    Err(error) if is_fleeting(&plan.options) && error.errno() == Some(Errno::ESRCH) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, plan: &Plan, action: &Action, sysfs: &Sysfs) -> Result<Reasons, PerfError> {
        let mut reasons = Reasons::new();
        let mut refused = None;
        let mut gone = Vec::new();
        for branch in &mut self.branches {
            match branch.admit(plan, action, sysfs) {
                Ok(_) => {}
                // A thread that has ended is not an error.
                Err(error) if is_fleeting(&plan.options) && error.errno() == Some(Errno::ESRCH) => {}
                Err(error) if plan.options.every_cpu && error.errno() == Some(Errno::ENODEV) => {
                    gone.push(branch.location.cpu);
                    refused = Some(error);
                }
                Err(error) => match lacks_event(plan, &error, &branch.location, sysfs) {
                    Some(core) => {
                        reasons.insert(core, error.cause());
                        refused = Some(error);
                    }
                    None => return Err(error),
                },
            }
        }
        if !self.branches.iter().any(|branch| branch.group.has(plan.id)) {
            let ended = || PerfError::kernel(plan.attempt(action.clone(), None), Call::Open, Errno::ESRCH);
            return Err(refused.unwrap_or_else(ended));
        }
        self.take_out(|branch| gone.contains(&branch.location.cpu));
        self.each_living(|group| group.prepare_restart(action))?;
        Ok(reasons)
    }

    /// Removes branches that no kind of core binds: they count their task everywhere, so next to bound
    /// branches they would count it twice.
    fn drop_doubles(&mut self) {
        let bound: BTreeSet<i32> = self
            .branches
            .iter()
            .filter(|branch| branch.is_bound)
            .map(|branch| branch.location.task)
            .collect();
        let is_split =
            |branch: &Branch| branch.location.core.is_some() && bound.contains(&branch.location.task);
        if self.leader().event.cores().next().is_none() {
            self.branches.retain(|branch| branch.is_bound || !is_split(branch));
        }
    }

    /// Reports the kinds of core that do not count an event which was requested for all of them.
    pub(super) fn note_lacking(&mut self, plan: &Plan, reasons: &Reasons, sysfs: &Sysfs) {
        let all = plan.options.every_cpu || plan.options.cpu == -1;
        if !plan.event.is_hybrid() || !all {
            return;
        }
        let counters = self.branches.iter().flat_map(|branch| branch.group.counters());
        let counting: BTreeSet<&str> = counters
            .filter(|counter| counter.id() == plan.id)
            .filter_map(|counter| counter.pmu.as_deref())
            .collect();
        let online = sysfs.online_cpus();
        let pmus = plan.event.encodings.iter().filter_map(|encoding| encoding.pmu.as_ref());
        let lacking = pmus.filter(|pmu| {
            !counting.contains(pmu.name.as_str())
                && pmu.cpus_now(sysfs).iter().any(|cpu| online.contains(cpu))
        });
        let reported: Vec<Notice> = lacking
            .map(|pmu| Notice::OtherCores {
                event: plan.event.name().to_owned(),
                pmu: pmu.name.clone(),
                because: reasons
                    .get(&pmu.name)
                    .cloned()
                    .unwrap_or_else(|| "its group is not counted there".into()),
            })
            .collect();
        if !reported.is_empty() {
            self.lacking.insert(plan.id);
        }
        self.notices.extend(reported);
    }

    fn go_on_without(&mut self, id: AttachmentId) {
        for Branch { group, .. } in &mut self.branches {
            group.remove_member(id);
            group.go_on();
        }
    }
}
