//! What another process has to know of a group to read it, beside the descriptors of its events.

use super::super::attachments::AttachmentId;
use super::super::fan_out::GoneCpu;
use super::super::locations::CpuAndTask;
use super::super::online::CpuMoment;
use super::super::readable::{Baseline, ReadableEvent};
use super::super::scale::{Tally, Times};

/// A group at all of its locations.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub struct SharedState {
    /// The leader, then the members in the order in which they joined.
    pub(in super::super) attachments: Vec<u64>,
    pub(in super::super) locations: Vec<LocationState>,
    /// The counts from CPUs that went offline.
    pub(in super::super) gone: Vec<GoneState>,
    /// Attachments that some of the requested kinds of core do not count.
    pub(in super::super) lacking: Vec<u64>,
    /// Whether a requested CPU is not counted.
    pub(in super::super) misses_cpus: bool,
    /// What tells that CPUs have come or gone, and the state is out of date; none if that does not matter.
    pub(in super::super) cpus: Option<CpuCheck>,
}

/// The group at one location.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(in super::super) struct LocationState {
    task: i32,
    cpu: i32,
    core: Option<String>,
    point: u64,
    /// The leader, then the members in the order in which they joined.
    pub(in super::super) events: Vec<EventState>,
}

impl LocationState {
    pub(in super::super) fn of<'a>(
        location: &CpuAndTask,
        events: impl Iterator<Item = &'a ReadableEvent>,
    ) -> LocationState {
        let CpuAndTask { task, cpu, core, point, .. } = location;
        let events = events.map(EventState::of).collect();
        LocationState { task: *task, cpu: *cpu, core: core.clone(), point: *point as u64, events }
    }

    pub(super) fn location(&self) -> CpuAndTask {
        let point = usize::try_from(self.point).unwrap_or(usize::MAX);
        CpuAndTask { task: self.task, cpu: self.cpu, core: self.core.clone(), point, cgroup: None }
    }
}

/// One kernel event.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(in super::super) struct EventState {
    id: u64,
    pub(super) kernel_id: u64,
    /// The kernel's count at the last restart.
    count: u64,
    /// The leader's times then.
    times: Times,
    /// The leader's times when the event was stopped on its own; none if it is not stopped.
    stopped: Option<Times>,
    /// Whether its task may read it without a system call.
    pub(super) has_page: bool,
}

impl EventState {
    fn of(event: &ReadableEvent) -> EventState {
        let Baseline { count, times } = event.baseline;
        let (id, stopped, has_page) = (event.id.get(), event.stopped, event.has_page_elsewhere);
        EventState { id, kernel_id: event.kernel_id, count, times, stopped, has_page }
    }

    pub(super) fn id(&self) -> AttachmentId {
        AttachmentId::of(self.id)
    }

    pub(super) fn apply(&self, event: &mut ReadableEvent) {
        event.baseline = Baseline { count: self.count, times: self.times };
        event.stopped = self.stopped;
    }
}

/// The count of an attachment from a CPU that went offline.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(in super::super) struct GoneState {
    id: u64,
    cpu: i32,
    point: u64,
    task: i32,
    tally: Tally,
}

impl GoneState {
    pub(in super::super) fn of(id: AttachmentId, gone: &GoneCpu) -> GoneState {
        let GoneCpu { cpu, point, task, tally } = *gone;
        GoneState { id: id.get(), cpu, point: point as u64, task, tally }
    }

    pub(super) fn gone(&self) -> (AttachmentId, GoneCpu) {
        let point = usize::try_from(self.point).unwrap_or(usize::MAX);
        let gone = GoneCpu { cpu: self.cpu, point, task: self.task, tally: self.tally };
        (AttachmentId::of(self.id), gone)
    }
}

/// When a state was right, and how often that has to be checked.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(feature = "plugins", derive(ks_host_macros::Wire))]
pub(in super::super) struct CpuCheck {
    pub(in super::super) at: CpuMoment,
    /// Whether each reading checks it.
    pub(in super::super) is_due_each_time: bool,
}
