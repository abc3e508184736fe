//! Opening groups at their locations.

use std::collections::BTreeSet;

use nix::errno::Errno;

use super::super::attr::Options;
use super::super::error::{PerfError, Refusal};
use super::super::group::{Counter, Group, GroupStart};
use super::super::locations::{self, CpuAndTask, Surroundings};
use super::super::plan::Plan;
use super::super::pmu::Sysfs;
use super::join::Reasons;
use super::{Branch, FanOut, is_fleeting, lacks_event};
use crate::explain::perf::Action;

/// Limit on listing the threads of a process again when new ones appear while the others are opened.
const LISTINGS: u32 = 16;

/// Result of opening a leader at its locations.
#[derive(Debug, Default)]
pub(super) struct OpenedGroups {
    pub(super) branches: Vec<Branch>,
    /// CPUs that accepted no event.
    pub(super) missing: BTreeSet<i32>,
    pub(super) reasons: Reasons,
}

impl Branch {
    /// Opens a member if its PMU counts at this location. Returns whether it does.
    pub(super) fn admit(&mut self, plan: &Plan, action: &Action, sysfs: &Sysfs) -> Result<bool, PerfError> {
        let Branch { location, group, is_bound, .. } = self;
        let Some(encoding) = plan.event.encoding_at(location, sysfs) else { return Ok(false) };
        group.admit(|leader| plan.open(action, location, encoding, Some(leader)))?;
        *is_bound |= encoding.core().is_some();
        Ok(true)
    }
}

impl FanOut {
    /// Opens the whole group at one more location, and starts it if the other groups are started.
    pub(super) fn open_branch(
        &mut self,
        location: CpuAndTask,
        surroundings: &Surroundings,
    ) -> Result<(), PerfError> {
        let incarnation = surroundings.sysfs.incarnation(location.cpu);
        let mut group = self.open_group(&location, GroupStart::Immediate, surroundings)?;
        if self.enabled {
            group.restart(&Action::Open)?;
        }
        self.stopped
            .iter()
            .filter(|member| group.has(**member))
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|member| group.disable(member))?;
        self.branches.push(Branch { location, incarnation, is_bound: false, group });
        Ok(())
    }

    /// Opens the group at one more location. Members that are not counted there are left out.
    pub(super) fn open_group(
        &self,
        location: &CpuAndTask,
        start: GroupStart,
        surroundings: &Surroundings,
    ) -> Result<Group, PerfError> {
        let sysfs = &surroundings.sysfs;
        let (leader, members) = self.plans.split_first().expect("a leader is there until its fan ends");
        let group = Group::alone(open_leader(leader, location, sysfs)?, start);
        let mut branch = Branch { location: location.clone(), incarnation: None, is_bound: false, group };
        for member in members {
            let admitted = branch.admit(member, &Action::Open, sysfs);
            admitted.map(drop).or_else(|error| match lacks_event(member, &error, location, sysfs) {
                Some(_) => Ok(()),
                None => Err(error),
            })?;
        }
        Ok(branch.group)
    }
}

/// Opens a leader at every location. The threads of a process are listed again afterwards. If new threads
/// appeared, it is unknown whether they inherited the event, so everything is opened again.
pub(super) fn open_branches(plan: &Plan, surroundings: &Surroundings) -> Result<OpenedGroups, PerfError> {
    let refused =
        |refusal| PerfError::Refused { attempt: Box::new(plan.attempt(Action::Open, None)), refusal };
    let list = || locations::locations(&plan.event, &plan.options, surroundings).map_err(refused);
    let mut locations = list()?;
    for _ in 0..LISTINGS {
        let opened = open_at(plan, &locations, surroundings)?;
        if !plan.options.follow {
            return Ok(opened);
        }
        let now = list()?;
        let known = |location: &CpuAndTask| locations.iter().any(|known| known.task == location.task);
        if now.iter().all(known) {
            return Ok(opened);
        }
        locations = now;
    }
    Err(refused(Refusal::TooManyThreads(plan.options.pid)))
}

fn open_at(
    plan: &Plan,
    locations: &[CpuAndTask],
    surroundings: &Surroundings,
) -> Result<OpenedGroups, PerfError> {
    let fleeting = is_fleeting(&plan.options);
    let start = match plan.options {
        Options { command: true, .. } | Options { enable_on_exec: true, .. } => GroupStart::Exec,
        Options { start_disabled: true, .. } => GroupStart::Request,
        _ => GroupStart::Immediate,
    };
    let sysfs = &surroundings.sysfs;
    let mut opened =
        OpenedGroups { branches: Vec::with_capacity(locations.len()), ..OpenedGroups::default() };
    let mut refused = None;
    for location in locations {
        // Read before the event is opened: a CPU that goes offline later has another incarnation when it
        // returns.
        let incarnation = super::cpus::follows(plan).then(|| sysfs.incarnation(location.cpu)).flatten();
        let error = match open_leader(plan, location, sysfs) {
            Ok(leader) => {
                let is_bound = leader.pmu.is_some();
                let group = Group::alone(leader, start);
                opened.branches.push(Branch { location: location.clone(), incarnation, is_bound, group });
                continue;
            }
            Err(error) => error,
        };
        match lacks_event(plan, &error, location, sysfs) {
            Some(core) => {
                opened.reasons.insert(core, error.cause());
            }
            None if fleeting && error.errno() == Some(Errno::ESRCH) => {}
            // The CPU went offline after it was listed.
            None if plan.options.every_cpu && error.errno() == Some(Errno::ENODEV) => {
                opened.missing.insert(location.cpu);
            }
            None => return Err(error),
        }
        refused = Some(error);
    }
    match refused {
        Some(error) if opened.branches.is_empty() => Err(error),
        _ => Ok(opened),
    }
}

fn open_leader(plan: &Plan, location: &CpuAndTask, sysfs: &Sysfs) -> Result<Counter, PerfError> {
    // Every location of a leader comes from an encoding of its event.
    let encoding = plan.event.encoding_at(location, sysfs).unwrap_or(&plan.event.encodings[0]);
    plan.open(&Action::Open, location, encoding, None)
}
