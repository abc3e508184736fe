//! The plan of an attachment: its requested event and options, and how it is opened at one location.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;

use super::attachments::AttachmentId;
use super::attr::{Options, Purpose, attr};
use super::descriptors::DescriptorCount;
use super::encoding::Encoding;
use super::error::PerfError;
use super::event::{Event, EventKind};
use super::event_array::{EventArray, EventArrayEntry};
use super::group::Counter;
use super::locations::CpuAndTask;
use super::page::{self, Page};
use super::records::Throttling;
use super::sys::{self, Scope};
use crate::explain::perf::{Action, Attempt, Call, EventClass};
use crate::files::FileError;
use crate::probed::ProbePointError;

/// Links a program to an opened event of an attachment: takes the event's descriptor and returns the link's.
/// The event is disabled meanwhile. Called once for each kernel event, including those of CPUs that come
/// online later.
pub type LinkProgram = Arc<dyn Fn(BorrowedFd<'_>, AttachmentId) -> Result<OwnedFd, Errno> + Send + Sync>;

/// The request that created an attachment: everything that is needed to open it at another location.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) id: AttachmentId,
    pub(super) event: Arc<Event>,
    pub(super) options: Options,
    /// The task that pid 0 was replaced by; none if it was not.
    pub(super) own_task: Option<i32>,
    pub(super) link: Option<LinkProgram>,
    /// The array through which programs read the event.
    pub(super) event_array: Option<Arc<dyn EventArray>>,
    pub(super) descriptors: DescriptorCount,
}

impl AsRef<AttachmentId> for Plan {
    fn as_ref(&self) -> &AttachmentId {
        &self.id
    }
}

impl Plan {
    /// Describes an attempted action for an error: at a location, or as requested if `location` is None.
    pub(super) fn attempt(&self, action: Action, location: Option<&CpuAndTask>) -> Attempt {
        let options = &self.options;
        let task = location.map_or(options.pid, |location| location.task);
        Attempt {
            action,
            event: self.event.name().to_owned(),
            class: self.event.class(),
            pid: if self.own_task == Some(task) { 0 } else { task },
            cpu: location.map_or(options.cpu, |location| location.cpu),
            cgroup: options.cgroup.clone(),
            inherit: options.inherit || options.follow,
            threads_only: options.follow && !options.inherit,
            exclude_kernel: options.exclude_kernel,
            sampling: self.link.is_some(),
            freq: options.freq,
            precise: options.precise,
        }
    }

    /// Opens an event at a location, disabled: reads its id, clears it and links its program. If a later step
    /// fails, dropping the counter undoes the earlier ones.
    pub(super) fn open(
        &self,
        action: &Action,
        location: &CpuAndTask,
        encoding: &Encoding,
        leader: Option<BorrowedFd<'_>>,
    ) -> Result<Counter, PerfError> {
        let event = self.event.label(encoding);
        let attempt = Attempt { event, ..self.attempt(action.clone(), Some(location)) };
        let failed = |call| {
            let attempt = attempt.clone();
            move |errno| PerfError::kernel(attempt, call, errno)
        };
        let purpose = if self.link.is_some() { Purpose::Sampling } else { Purpose::Counting };
        // Not what some kinds of core count only: a thread that moves to another kind between two instructions
        // would name a counter that does not exist there, which ends the process.
        let readable = self.link.is_none()
            && encoding.pmu.is_none()
            && page::is_for(&self.event, &self.options, self.own_task);
        let mut attr = attr(&encoding.kind, &self.options, purpose);
        if readable {
            page::ask(&encoding.kind, &mut attr);
        }
        let target =
            sys::Observed { pid: location.pid(), cpu: location.cpu, is_cgroup: location.cgroup.is_some() };
        let probe_text = match &encoding.kind {
            EventKind::Probe { location, .. } => Some(location.text()),
            EventKind::Counter { .. } | EventKind::Breakpoint { .. } => None,
        };
        let descriptor =
            sys::open(&attr, probe_text.as_deref(), target, leader).map_err(failed(Call::Open))?;
        if let EventKind::Probe { location, .. } = &encoding.kind {
            location.check_unchanged().map_err(|error| changed(self.event.name(), error))?;
        }
        let kernel_id = sys::id(descriptor.as_fd()).map_err(failed(Call::Id))?;
        let mut counter = Counter::new(self.id, attempt.clone(), kernel_id, descriptor);
        counter.descriptors = Some(self.descriptors.hold(1 + usize::from(self.link.is_some())));
        counter.pmu = encoding.pmu.as_ref().map(|pmu| pmu.name.clone());
        if readable && self.own_task.is_some() {
            counter.readable.has_page_elsewhere = true;
        } else if readable {
            counter.readable.page = Page::map(counter.event());
        }
        // Events of tracepoints and probes are never throttled.
        if self.link.is_some()
            && !matches!(self.event.class(), EventClass::Tracepoint | EventClass::Probe { .. })
        {
            counter.throttling = Throttling::of(counter.event());
        }
        sys::reset(counter.event(), Scope::Event).map_err(failed(Call::Reset))?;
        if let Some(link) = &self.link {
            counter.own_link(link(counter.event(), self.id).map_err(failed(Call::Link))?);
        }
        if let Some(array) = &self.event_array {
            counter.publish(
                EventArrayEntry::put(array, location.cpu, counter.event()).map_err(failed(Call::Publish))?,
            );
        }
        Ok(counter)
    }
}

/// Builds the error for a file that was changed between the check of a probed instruction and its probe.
fn changed(event: &str, error: FileError) -> PerfError {
    let error = ProbePointError::from(error);
    PerfError::ProbeLocation {
        location: event.to_owned(),
        kind: error.kind(),
        because: error.to_string(),
        remedy: error.remedy(),
    }
}
