//! Groups of events that another process reads: a worker, which gets their descriptors, where they count, and where
//! their counts begin.
//!
//! ```text
//! the broker: Attachments -- take_changes --> Change ..   (messages)   .. SharedGroups: the worker
//! ```
//!
//! Only groups that reading needs nothing but read(2) for ([`FanOut::shared_state`]). All others are read by the broker,
//! and so is whatever fails or must be reported. The broker alone follows CPUs: a worker that sees by the kernel's number
//! of device events that its state may be out of date asks the broker, and gets the new state with the answer.

mod groups;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use super::attachments::{AttachmentId, Attachments};
#[cfg(doc)]
use super::fan_out::FanOut;
pub use groups::SharedGroups;
pub use state::SharedState;
pub(super) use state::{CpuCheck, GoneState, LocationState};

/// A change of what another process reads.
#[derive(Debug)]
pub enum Change {
    /// An event that the next state of a group has.
    Event {
        /// The kernel's id of the event.
        kernel_id: u64,
        /// A descriptor of the event.
        descriptor: OwnedFd,
    },
    /// The file that tells whether CPUs have come or gone.
    CpuEvents {
        /// Its descriptor, for reading.
        descriptor: OwnedFd,
    },
    /// The state of a group; none if it is not shared any more.
    Group {
        /// The leader.
        leader: AttachmentId,
        /// Where it counts, and since when.
        state: Option<SharedState>,
    },
}

/// What the broker has shared.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// The kernel's ids of the events whose descriptors were passed on, by leader.
    passed_on: BTreeMap<AttachmentId, BTreeSet<u64>>,
    /// Leaders of groups that have changed since.
    changed: BTreeSet<AttachmentId>,
    /// Whether the other process knows when CPUs come and go.
    sees_cpus: bool,
    /// Tracepoints with whose readings the broker reports something.
    reported: BTreeSet<u64>,
}

impl Attachments {
    /// Keeps account of changes from now on, for [`Attachments::take_changes`].
    pub fn share(&mut self) {
        self.sharing.get_or_insert_default();
    }

    /// Reads counters of this tracepoint here from now on: something is reported with each reading.
    pub fn report_with_readings_of(&mut self, tracepoint: u64) {
        let Some(sharing) = &mut self.sharing else { return };
        if sharing.reported.insert(tracepoint) {
            let counting = self.fan_outs.iter().filter(|(_, fan_out)| {
                fan_out.plans().iter().any(|plan| plan.event.tracepoint() == Some(tracepoint))
            });
            sharing.changed.extend(counting.map(|(leader, _)| *leader));
        }
    }

    /// Records that the group of this leader has changed.
    pub(super) fn note_change(&mut self, leader: AttachmentId) {
        if let Some(sharing) = &mut self.sharing {
            sharing.changed.insert(leader);
        }
    }

    /// Returns what has changed since the last call.
    ///
    /// # Errors
    /// Of dup(2).
    pub fn take_changes(&mut self) -> io::Result<Vec<Change>> {
        let Some(sharing) = &mut self.sharing else { return Ok(Vec::new()) };
        let mut changes = Vec::new();
        for leader in std::mem::take(&mut sharing.changed) {
            let fan_out = self.fan_outs.get(&leader);
            let state = fan_out.and_then(|fan_out| fan_out.shared_state(&sharing.reported));
            // The other process closes those that the state does not have.
            let before = sharing.passed_on.remove(&leader).unwrap_or_default();
            if let (Some(fan_out), Some(state)) = (fan_out, &state) {
                if let (false, Some(uevents)) =
                    (sharing.sees_cpus, fan_out.cpu_events().filter(|_| state.cpus.is_some()))
                {
                    changes.push(Change::CpuEvents { descriptor: uevents.try_clone_to_owned()? });
                    sharing.sees_cpus = true;
                }
                for event in fan_out.events().filter(|event| !before.contains(&event.kernel_id)) {
                    let descriptor = event.descriptor().try_clone_to_owned()?;
                    changes.push(Change::Event { kernel_id: event.kernel_id, descriptor });
                }
                sharing.passed_on.insert(leader, fan_out.events().map(|event| event.kernel_id).collect());
            }
            changes.push(Change::Group { leader, state });
        }
        Ok(changes)
    }
}
