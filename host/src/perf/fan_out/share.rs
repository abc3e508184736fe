//! Sharing a fan-out group with a worker that reads it.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use super::super::attachments::AttachmentId;
use super::super::online::Online;
use super::super::plan::Plan;
use super::super::readable::ReadableEvent;
use super::super::sharing::{CpuCheck, GoneState, LocationState, SharedState};
use super::{Branch, FanOut, LocatedGroup as _};

impl FanOut {
    /// Returns what another process needs to read the groups as this one does; none if only this process can:
    ///
    /// - Something is reported with a reading, as for these tracepoints.
    /// - An event is a probe, which stays in its program, or has a program, which stays in children of its task, for
    ///   as long as anybody has its descriptor. Through it, somebody could also write the ring in which this process
    ///   finds how often a program was throttled.
    /// - A CPU is online and accepts no events yet: each reading tries again.
    pub(in super::super) fn shared_state(&self, reported: &BTreeSet<u64>) -> Option<SharedState> {
        let is_plain = |plan: &Plan| {
            let tracepoint = plan.event.tracepoint();
            plan.link.is_none()
                && !plan.event.is_probe()
                && tracepoint.is_none_or(|number| !reported.contains(&number))
        };
        if !self.plans.iter().all(is_plain) {
            return None;
        }
        let cpus = match &self.online {
            None => None,
            Some(online) => Some(self.cpu_check(online)?),
        };
        let ids = |ids: &mut dyn Iterator<Item = AttachmentId>| ids.map(AttachmentId::get).collect();
        let of_location = |branch: &Branch| LocationState::of(&branch.location, branch.events());
        let gone = self.gone.iter().flat_map(|(id, gone)| gone.iter().map(|gone| GoneState::of(*id, gone)));
        Some(SharedState {
            attachments: ids(&mut self.plans.iter().map(|plan| plan.id)),
            locations: self.branches.iter().map(of_location).collect(),
            gone: gone.collect(),
            lacking: ids(&mut self.lacking.iter().copied()),
            misses_cpus: self.misses_cpus(),
            cpus,
        })
    }

    /// Returns what tells another process that CPUs have come or gone; none if only this one can know.
    fn cpu_check(&self, online: &Online) -> Option<CpuCheck> {
        let (at, _) = online.checked()?;
        let is_awaited = online.cpus().iter().any(|cpu| self.missing.contains(cpu));
        (!is_awaited).then_some(CpuCheck { at, is_due_each_time: self.looks_each_time() })
    }

    /// Returns the file that has the number of device events, if CPUs are followed by it.
    pub(in super::super) fn cpu_events(&self) -> Option<BorrowedFd<'_>> {
        self.online.as_ref()?.checked().map(|(_, uevents)| uevents)
    }

    /// Returns the events at all locations.
    pub(in super::super) fn events(&self) -> impl Iterator<Item = &ReadableEvent> {
        self.branches.iter().flat_map(|branch| branch.events())
    }
}
