//! What reads as one counter and is several kernel events: one group for each place that an attachment observes. An
//! event of one task or one CPU has one place.
//!
//! CPUs that go take their counts with them into a sum, and CPUs that come get a group of their own, so that `cpu: all`
//! stays what it says; what was not counted meanwhile is told.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;

use super::attachments::AttachmentId;
use super::attr::Options;
use super::error::{PerfError, Refusal};
use super::group::{Counter, Group};
use super::notice::Notice;
use super::online::Online;
use super::places::{self, Place, Surroundings, Target};
use super::plan::Plan;
use super::scale::Tally;
use crate::explain::perf::{Action, Call};

/// How often the threads of a process are listed anew when some come while the others are opened.
const LISTINGS: u32 = 16;

/// A group at one place.
#[derive(Debug)]
struct Branch {
    place: Place,
    group: Group,
}

/// The sum of what one attachment counts at its places. A task on several CPUs is one; every task of a CPU is another.
#[derive(Debug, Default)]
struct Total {
    of_cpus: Tally,
    by_task: BTreeMap<i32, Tally>,
}

impl Total {
    fn add(&mut self, task: i32, tally: Tally) {
        match task {
            -1 => self.of_cpus = self.of_cpus.plus(tally),
            task => {
                let same = self.by_task.entry(task).or_default();
                *same = same.beside(tally);
            }
        }
    }

    fn add_all<'a>(&mut self, parts: impl IntoIterator<Item = &'a (i32, Tally)>) {
        parts.into_iter().for_each(|(task, tally)| self.add(*task, *tally));
    }

    fn sum(&self) -> Tally {
        self.by_task.values().fold(self.of_cpus, |sum, task| sum.plus(*task))
    }
}

/// A leader and its members at every place that they observe.
pub(super) struct Fan {
    pub(super) target: Target,
    /// The leader, then the members in the order in which they joined.
    plans: Vec<Plan>,
    /// Never none, but when every task has gone.
    branches: Vec<Branch>,
    /// What was counted on CPUs that have gone, with the task.
    gone: BTreeMap<AttachmentId, Vec<(i32, Tally)>>,
    online: Option<Online>,
    enabled: bool,
    /// Members that were stopped on their own.
    stopped: BTreeSet<AttachmentId>,
}

/// The members, newest first, then the leader; a Vec would drop them in order.
impl Drop for Fan {
    fn drop(&mut self) {
        let members: Vec<AttachmentId> = self.newest_members_first().collect();
        members.into_iter().for_each(|member| self.remove_member(member));
    }
}

impl Fan {
    /// Opens a leader at every place and starts it.
    pub(super) fn open(plan: Plan, target: Target, surroundings: &Surroundings) -> Result<Fan, PerfError> {
        // Before the CPUs are listed to open the event: what changes from now on is seen by the next call.
        let online = plan.options.every_cpu.then(|| Online::of(surroundings)).flatten();
        let branches = open_branches(&plan, surroundings)?;
        let mut fan = Fan {
            target,
            plans: vec![plan],
            branches,
            gone: BTreeMap::new(),
            online,
            enabled: true,
            stopped: BTreeSet::new(),
        };
        for branch in &mut fan.branches {
            branch.group.start()?;
        }
        Ok(fan)
    }

    /// The plans of the attachments: the leader's first, then in the order in which they joined.
    pub(super) fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The leader's plan.
    pub(super) fn leader(&self) -> &Plan {
        &self.plans[0]
    }

    /// How many kernel events the leader stands for.
    pub(super) fn places(&self) -> usize {
        self.branches.len()
    }

    /// The members, newest first.
    pub(super) fn newest_members_first(&self) -> impl Iterator<Item = AttachmentId> + use<> {
        let members: Vec<AttachmentId> = self.plans.iter().skip(1).map(|plan| plan.id).rev().collect();
        members.into_iter()
    }

    /// Opens a member in every group and starts all groups from zero, also what was stopped. If it cannot be opened at
    /// one of the places it is closed at all of them, and the groups go on as they were.
    pub(super) fn join(&mut self, plan: Plan, surroundings: &Surroundings) -> Result<(), PerfError> {
        self.check_pmu(&plan, surroundings)?;
        let action = Action::Join { leader: self.leader().event.name().to_owned(), size: self.plans.len() };
        let id = plan.id;
        self.admit(&plan, &action).inspect_err(|_| self.go_on_without(id))?;
        let restarted = self.branches.iter_mut().try_for_each(|branch| branch.group.restart(&action));
        restarted.inspect_err(|_| self.go_on_without(id))?;
        self.gone.clear();
        self.stopped.clear();
        self.enabled = true;
        self.plans.push(plan);
        Ok(())
    }

    /// A member whose PMU counts on other CPUs than the leader's would be missing there.
    fn check_pmu(&self, plan: &Plan, surroundings: &Surroundings) -> Result<(), PerfError> {
        if !plan.options.every_cpu || plan.event.cpus() == self.leader().event.cpus() {
            return Ok(());
        }
        let cpus = plan.event.cpus().map_or_else(|| surroundings.sysfs.online_cpus(), <[i32]>::to_vec);
        let refusal = Refusal::OtherPmuCpu { cpus };
        Err(PerfError::Refused { attempt: Box::new(plan.attempt(Action::Open, None)), refusal })
    }

    fn admit(&mut self, plan: &Plan, action: &Action) -> Result<(), PerfError> {
        let fleeting = is_fleeting(&plan.options);
        for Branch { place, group } in &mut self.branches {
            match group.admit(|leader| plan.open(action, place, Some(leader))) {
                // A thread that has ended counts no more.
                Err(error) if fleeting && error.errno() == Some(Errno::ESRCH) => {}
                admitted => admitted?,
            }
        }
        if !self.branches.iter().any(|branch| branch.group.has(plan.id)) {
            return Err(PerfError::kernel(plan.attempt(action.clone(), None), Call::Open, Errno::ESRCH));
        }
        self.branches.iter_mut().try_for_each(|branch| branch.group.prepare_restart(action))
    }

    fn go_on_without(&mut self, id: AttachmentId) {
        for Branch { group, .. } in &mut self.branches {
            group.remove_member(id);
            group.go_on();
        }
    }

    /// Closes a member. The others go on.
    pub(super) fn remove_member(&mut self, id: AttachmentId) {
        self.branches.iter_mut().for_each(|branch| branch.group.remove_member(id));
        self.plans.retain(|plan| plan.id != id);
        self.gone.remove(&id);
        self.stopped.remove(&id);
    }

    /// The command that was waited for has reached its exec.
    pub(super) fn note_exec(&mut self) {
        if self.leader().options.command {
            self.branches.iter_mut().for_each(|branch| branch.group.note_exec());
        }
    }

    /// Reads one attachment, at all places.
    pub(super) fn read(&mut self, id: AttachmentId) -> Result<Tally, PerfError> {
        if let ([only], true) = (&mut self.branches[..], self.gone.is_empty()) {
            return only.group.read(id);
        }
        let mut total = Total::default();
        total.add_all(self.gone.get(&id).into_iter().flatten());
        for branch in self.branches.iter_mut().filter(|branch| branch.group.has(id)) {
            total.add(branch.place.task, branch.group.read(id)?);
        }
        Ok(total.sum())
    }

    /// Reads the whole group, at all places, with one system call at each: for each attachment the kernel's id at the
    /// first place and the sum, in the order of [`Fan::plans`].
    pub(super) fn read_all(&mut self) -> Result<Vec<(u64, Tally)>, PerfError> {
        let mut totals: BTreeMap<AttachmentId, Total> = BTreeMap::new();
        for (id, gone) in &self.gone {
            totals.entry(*id).or_default().add_all(gone);
        }
        for branch in &mut self.branches {
            for (id, tally) in branch.group.read_all()? {
                totals.entry(id).or_default().add(branch.place.task, tally);
            }
        }
        Ok(self.in_order(&totals, None))
    }

    /// As [`Fan::read_all`], of the places on one CPU. None if there is none.
    pub(super) fn read_cpu(&mut self, cpu: i32) -> Result<Option<Vec<(u64, Tally)>>, PerfError> {
        let mut totals: BTreeMap<AttachmentId, Total> = BTreeMap::new();
        let mut found = false;
        for branch in self.branches.iter_mut().filter(|branch| branch.place.cpu == cpu) {
            found = true;
            for (id, tally) in branch.group.read_all()? {
                totals.entry(id).or_default().add(branch.place.task, tally);
            }
        }
        Ok(found.then(|| self.in_order(&totals, Some(cpu))))
    }

    fn in_order(&self, totals: &BTreeMap<AttachmentId, Total>, cpu: Option<i32>) -> Vec<(u64, Tally)> {
        let branches = || self.branches.iter().filter(|branch| cpu.is_none_or(|cpu| branch.place.cpu == cpu));
        let kernel_id = |id| {
            let mut counters = branches().flat_map(|branch| branch.group.counters());
            counters.find(|counter| counter.id == id).map_or(0, Counter::kernel_id)
        };
        let sum = |id| totals.get(&id).map(Total::sum).unwrap_or_default();
        self.plans.iter().map(|plan| (kernel_id(plan.id), sum(plan.id))).collect()
    }

    /// Starts everything if `id` leads, with the members that were stopped on their own; else this member.
    pub(super) fn enable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader().id {
            self.enabled = true;
            self.stopped.clear();
        } else {
            self.stopped.remove(&id);
        }
        self.each(id, |group| group.enable(id))
    }

    /// Stops everything if `id` leads, else this member.
    pub(super) fn disable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        if id == self.leader().id {
            self.enabled = false;
        } else {
            self.stopped.insert(id);
        }
        self.each(id, |group| group.disable(id))
    }

    /// Sets counts and times to zero: of everything if `id` leads, else of this member.
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

    /// Follows CPUs that went or came since the last time. What happened is told.
    pub(super) fn follow_cpus(&mut self, surroundings: &Surroundings) -> Vec<Notice> {
        let Some(online) = &mut self.online else { return Vec::new() };
        if !online.has_changed() {
            return Vec::new();
        }
        let now = online.cpus();
        let mut notices = Vec::new();
        let event = self.leader().event.name().to_owned();
        for branch in self.branches.extract_if(.., |branch| !now.contains(&branch.place.cpu)) {
            notices.push(Notice::CpuGone { event: event.clone(), cpu: branch.place.cpu });
            let mut group = branch.group;
            for (id, tally) in group.read_apart() {
                self.gone.entry(id).or_default().push((branch.place.task, tally));
            }
        }
        let places = places::places(&self.leader().event, &self.leader().options, surroundings);
        let known: Vec<i32> = self.branches.iter().map(|branch| branch.place.cpu).collect();
        for place in places.unwrap_or_default().into_iter().filter(|place| !known.contains(&place.cpu)) {
            let cpu = place.cpu;
            notices.push(match self.open_branch(place) {
                Ok(()) => Notice::CpuCame { event: event.clone(), cpu },
                Err(error) => Notice::CpuMissed { event: event.clone(), cpu, because: error.to_string() },
            });
        }
        notices
    }

    /// Opens the whole group at one more place.
    fn open_branch(&mut self, place: Place) -> Result<(), PerfError> {
        let (leader, members) = self.plans.split_first().expect("a leader is there until its fan ends");
        let mut group = Group::alone(leader.open(&Action::Open, &place, None)?, false);
        for member in members {
            group.admit(|leader| member.open(&Action::Open, &place, Some(leader)))?;
        }
        if self.enabled {
            group.restart(&Action::Open)?;
        }
        self.stopped.iter().try_for_each(|member| group.disable(*member))?;
        self.branches.push(Branch { place, group });
        Ok(())
    }
}

/// Whether tasks may end while they are opened, without anything being wrong.
fn is_fleeting(options: &Options) -> bool {
    options.follow || !options.process.is_empty()
}

/// Opens a leader at every place. The threads of a process are listed again after they were opened: as long as others
/// came meanwhile, nobody knows whether they have inherited the event, so that all of it is done again.
fn open_branches(plan: &Plan, surroundings: &Surroundings) -> Result<Vec<Branch>, PerfError> {
    let refused =
        |refusal| PerfError::Refused { attempt: Box::new(plan.attempt(Action::Open, None)), refusal };
    let list = || places::places(&plan.event, &plan.options, surroundings).map_err(refused);
    let mut places = list()?;
    for _ in 0..LISTINGS {
        let branches = open_at(plan, &places, surroundings)?;
        if !plan.options.follow {
            return Ok(branches);
        }
        let now = list()?;
        let known = |place: &Place| places.iter().any(|known| known.task == place.task);
        if now.iter().all(known) {
            return Ok(branches);
        }
        places = now;
    }
    Err(refused(Refusal::TooManyThreads(plan.options.pid)))
}

fn open_at(plan: &Plan, places: &[Place], surroundings: &Surroundings) -> Result<Vec<Branch>, PerfError> {
    let fleeting = is_fleeting(&plan.options);
    // A CPU may go after it was listed.
    let is_gone = |cpu| plan.options.every_cpu && !surroundings.sysfs.online_cpus().contains(&cpu);
    let mut branches = Vec::with_capacity(places.len());
    let mut ended = None;
    for place in places {
        match plan.open(&Action::Open, place, None) {
            Ok(leader) => {
                let group = Group::alone(leader, plan.options.command);
                branches.push(Branch { place: place.clone(), group });
            }
            Err(error) if fleeting && error.errno() == Some(Errno::ESRCH) => ended = Some(error),
            Err(error) if error.errno() == Some(Errno::ENODEV) && is_gone(place.cpu) => ended = Some(error),
            Err(error) => return Err(error),
        }
    }
    match ended {
        Some(error) if branches.is_empty() => Err(error),
        _ => Ok(branches),
    }
}
