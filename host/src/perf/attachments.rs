//! All perf attachments of one plugin.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::unistd::gettid;

use super::attr::{Options, Purpose, attr};
use super::error::{PerfError, Refusal};
use super::event::Event;
use super::group::{Counter, Group, Reading, Snapshot, Target};
use super::sys::{self, Scope};
use crate::explain::perf::{Action, Attempt, Call};

/// Names an attachment. Numbers start at 1 and are not used again within one [`Attachments`], so that an old id never
/// means a new attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(u64);

impl AttachmentId {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Links a program to an opened event: from the event's descriptor to the link's. The event is disabled meanwhile.
pub type LinkProgram<'a> = dyn FnMut(BorrowedFd<'_>) -> Result<OwnedFd, Errno> + 'a;

/// One live attachment, as a person wants to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Its id.
    pub id: AttachmentId,
    /// The event's name.
    pub event: String,
    /// The task as it was given: -1 every task, 0 the thread that opened it.
    pub pid: i32,
    /// The CPU as it was given: -1 any.
    pub cpu: i32,
    /// The leader of its group; None if it leads one, or is alone.
    pub leader: Option<AttachmentId>,
    /// Whether a program is linked to it.
    pub has_program: bool,
}

/// All perf attachments of one plugin. Its drop detaches all of them, newest first; a leader is older than its members.
#[derive(Debug, Default)]
#[must_use = "dropping it detaches everything"]
pub struct Attachments {
    last_id: u64,
    /// By leader.
    groups: BTreeMap<AttachmentId, Group>,
    /// Of every live attachment, leaders included.
    leader_of: BTreeMap<AttachmentId, AttachmentId>,
}

impl Drop for Attachments {
    fn drop(&mut self) {
        while let Some((&newest, _)) = self.leader_of.last_key_value() {
            self.detach(newest);
        }
    }
}

impl Attachments {
    /// None yet.
    pub fn new() -> Attachments {
        Attachments::default()
    }

    /// Opens an event and starts counting: alone, or as a member of the group that `leader` leads. Then the whole group
    /// starts from zero, counts and times, also what was stopped by [`Attachments::disable`].
    ///
    /// With `link`, the program that it links runs every `options.period` events; without, the event is only counted.
    /// The link belongs to the attachment. Fields are checked before the kernel is asked, in the order event, pid, cpu,
    /// their combination, leader, rules of a group.
    ///
    /// `pid` 0 is the thread that calls this.
    ///
    /// Errors: [`PerfError::Refused`] by those checks; [`PerfError::Kernel`] for what the kernel or `link` refuses, with
    /// the cause. After an error nothing is left open, and the group counts on from its old start.
    ///
    /// Source: perf_event_open(2); bpf(2), BPF_LINK_CREATE with BPF_PERF_EVENT.
    #[doc(alias = "perf_event_open")]
    pub fn open(
        &mut self,
        event: &Event,
        options: &Options,
        leader: Option<AttachmentId>,
        link: Option<&mut LinkProgram<'_>>,
    ) -> Result<AttachmentId, PerfError> {
        let purpose = if link.is_some() { Purpose::Sampling } else { Purpose::Counting };
        let attempt = attempt(event, options, purpose);
        let id = AttachmentId(self.last_id + 1);
        let target = check_options(event, options).map_err(|refusal| refused(&attempt, refusal))?;
        match leader {
            None => {
                let counter = open_counter(id, attempt, event, options, None, link)?;
                self.groups.insert(id, Group::start_alone(counter, target)?);
            }
            Some(leader) => {
                let group = self.group_led_by(leader).map_err(|refusal| refused(&attempt, refusal))?;
                let action =
                    Action::Join { leader: group.leader().attempt.event.clone(), size: group.size() };
                let attempt = Attempt { action, ..attempt };
                group.check_target(&target).map_err(|refusal| refused(&attempt, refusal))?;
                group.join(|leader| open_counter(id, attempt, event, options, Some(leader), link))?;
            }
        }
        self.last_id = id.0;
        self.leader_of.insert(id, leader.unwrap_or(id));
        Ok(id)
    }

    /// Reads this attachment's own counter, now, without stopping it, by one system call. Nothing is allocated but, at
    /// the first read after a member joined, room for it.
    ///
    /// Units: events for `raw` and `scaled`, nanoseconds for the times, all since the last restart.
    ///
    /// Errors: [`PerfError::Stale`]; [`PerfError::EndOfFile`] if the event is in error state; [`PerfError::Kernel`]
    /// (ECHILD: a child inherited the group before its last member joined).
    ///
    /// Source: perf_event_open(2), "Reading results"; `enum perf_event_read_format`.
    pub fn read(&mut self, id: AttachmentId) -> Result<Reading, PerfError> {
        self.group_of(id)?.read(id)
    }

    /// Reads the whole group of this attachment, now, by one system call.
    ///
    /// Errors: as [`Attachments::read`].
    #[doc(alias = "PERF_FORMAT_GROUP")]
    pub fn snapshot(&mut self, id: AttachmentId) -> Result<Snapshot, PerfError> {
        self.group_of(id)?.snapshot(id)
    }

    /// Starts counting again after [`Attachments::disable`]: the whole group if this is a leader, also members that
    /// were stopped on their own; else this event, which counts while its leader does. No effect on what is counting.
    ///
    /// A member can start only together with its group: the group stops for the moment that this takes, in counts and
    /// times alike.
    ///
    /// Errors: [`PerfError::Stale`], [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_ENABLE")]
    pub fn enable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        self.group_of(id)?.enable(id)
    }

    /// Stops counting; counts and times stay readable: the whole group if this is a leader, else this event, whose
    /// times then stand still while the group's go on.
    ///
    /// Errors: [`PerfError::Stale`], [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_DISABLE")]
    pub fn disable(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        self.group_of(id)?.disable(id)
    }

    /// Sets counts and times to zero, of the whole group if this is a leader, else of this event. What counts goes on
    /// counting; what is stopped stays stopped.
    ///
    /// Errors: [`PerfError::Stale`], [`PerfError::Kernel`].
    #[doc(alias = "PERF_EVENT_IOC_RESET")]
    pub fn reset(&mut self, id: AttachmentId) -> Result<(), PerfError> {
        self.group_of(id)?.reset(id)
    }

    /// Stops, unlinks and closes an event; if it leads a group, its members first, newest first. The other members of
    /// a group count on. From then on the id is stale. No effect on a stale id.
    pub fn detach(&mut self, id: AttachmentId) {
        let Some(leader) = self.leader_of.remove(&id) else { return };
        if leader != id {
            if let Some(group) = self.groups.get_mut(&leader) {
                group.remove_member(id);
            }
            return;
        }
        let Some(mut group) = self.groups.remove(&id) else { return };
        let members: Vec<AttachmentId> = group.newest_members_first().collect();
        for member in members {
            self.leader_of.remove(&member);
            group.remove_member(member);
        }
    }

    /// What is attached, in the order of opening.
    pub fn live(&self) -> Vec<Live> {
        let mut live: Vec<Live> = self
            .groups
            .iter()
            .flat_map(|(&leader, group)| group.counters().map(move |counter| describe(counter, leader)))
            .collect();
        live.sort_by_key(|live| live.id);
        live
    }

    fn group_of(&mut self, id: AttachmentId) -> Result<&mut Group, PerfError> {
        let leader = self.leader_of.get(&id);
        leader.and_then(|leader| self.groups.get_mut(leader)).ok_or(PerfError::Stale(id))
    }

    fn group_led_by(&mut self, id: AttachmentId) -> Result<&mut Group, Refusal> {
        match self.leader_of.get(&id) {
            Some(&leader) if leader != id => Err(Refusal::MemberAsLeader { leader }),
            Some(_) => self.groups.get_mut(&id).ok_or(Refusal::StaleLeader(id)),
            None => Err(Refusal::StaleLeader(id)),
        }
    }
}

fn attempt(event: &Event, options: &Options, purpose: Purpose) -> Attempt {
    Attempt {
        action: Action::Open,
        event: event.name().to_owned(),
        class: event.class(),
        pid: options.pid,
        cpu: options.cpu,
        inherit: options.inherit,
        exclude_kernel: options.exclude_kernel,
        sampling: purpose == Purpose::Sampling,
    }
}

fn refused(attempt: &Attempt, refusal: Refusal) -> PerfError {
    PerfError::Refused { attempt: Box::new(attempt.clone()), refusal }
}

fn describe(counter: &Counter, leader: AttachmentId) -> Live {
    Live {
        id: counter.id,
        event: counter.attempt.event.clone(),
        pid: counter.attempt.pid,
        cpu: counter.attempt.cpu,
        leader: (leader != counter.id).then_some(leader),
        has_program: counter.has_program(),
    }
}

/// The checks that need no kernel, in the order that the language promises.
fn check_options(event: &Event, options: &Options) -> Result<Target, Refusal> {
    let Options { pid, cpu, inherit, exclude_kernel, .. } = *options;
    if pid < -1 {
        return Err(Refusal::Pid(pid));
    }
    if cpu < -1 {
        return Err(Refusal::Cpu(cpu));
    }
    if pid == -1 && cpu == -1 {
        return Err(Refusal::EveryTaskOnEveryCpu);
    }
    if exclude_kernel && event.is_in_kernel_only() {
        return Err(Refusal::InKernelOnly);
    }
    let task = if pid == 0 { gettid().as_raw() } else { pid };
    Ok(Target { pid, task, cpu, inherit })
}

/// Opens an event disabled, asks for its id, clears it and links its program. What was done is undone by the drop of
/// the counter if a later step fails.
fn open_counter(
    id: AttachmentId,
    attempt: Attempt,
    event: &Event,
    options: &Options,
    leader: Option<BorrowedFd<'_>>,
    link: Option<&mut LinkProgram<'_>>,
) -> Result<Counter, PerfError> {
    let failed = |call| {
        let attempt = attempt.clone();
        move |errno| PerfError::kernel(attempt, call, errno)
    };
    let purpose = if attempt.sampling { Purpose::Sampling } else { Purpose::Counting };
    let attr = attr(event, options, purpose);
    let descriptor = sys::open(&attr, options.pid, options.cpu, leader).map_err(failed(Call::Open))?;
    let kernel_id = sys::id(descriptor.as_fd()).map_err(failed(Call::Id))?;
    let mut counter = Counter::new(id, attempt.clone(), kernel_id, descriptor);
    sys::reset(counter.event(), Scope::Event).map_err(failed(Call::Reset))?;
    if let Some(link) = link {
        let link = link(counter.event()).map_err(failed(Call::Link))?;
        counter.own_link(link);
    }
    Ok(counter)
}
