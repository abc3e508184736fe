//! Attachments of the plugin's programs, in the order of attaching.

use std::collections::BTreeMap;

use crate::bpf::Link;
use crate::perf::{AttachmentId, Probe};

/// All attachments of the plugin's programs, by their ids.
#[derive(Default)]
pub(super) struct AttachedPrograms {
    last: u64,
    attached: BTreeMap<u64, AttachedProgram>,
}

struct AttachedProgram {
    program: String,
    /// None for a perf event: a program may run on many of them.
    target: Option<String>,
    held: Held,
}

/// The resource that keeps a program attached.
pub(super) enum Held {
    /// A perf event, or the event of a tracepoint. Dropping the id does not detach.
    Event(AttachmentId),
    /// A link. Dropping it detaches.
    Link(Link),
    /// The link of a registered kernel struct (struct_ops). Dropping it unregisters.
    Registered(Link),
    /// Probes. Dropping them removes them.
    Probes(Vec<Probe>),
}

impl AttachedPrograms {
    /// Records an attachment. Returns its id, which is never reused.
    pub(super) fn insert(&mut self, program: String, target: Option<String>, held: Held) -> u64 {
        self.last += 1;
        self.attached.insert(self.last, AttachedProgram { program, target, held });
        self.last
    }

    /// Returns whether a program is attached to this target.
    pub(super) fn is_at(&self, program: &str, target: &str) -> bool {
        self.attached.values().any(|attach_point| {
            attach_point.program == program && attach_point.target.as_deref() == Some(target)
        })
    }

    /// Returns the number of probes in all attachments.
    pub(super) fn probes(&self) -> usize {
        let probes_of = |attach_point: &AttachedProgram| match &attach_point.held {
            Held::Probes(probes) => probes.len(),
            _ => 0,
        };
        self.attached.values().map(probes_of).sum()
    }

    /// Returns the number of descriptors of all attachments, but those of perf events.
    pub(super) fn descriptors(&self) -> usize {
        let of = |attach_point: &AttachedProgram| match &attach_point.held {
            Held::Event(_) => 0,
            Held::Link(_) | Held::Registered(_) => 1,
            // An event and its link.
            Held::Probes(probes) => 2 * probes.len(),
        };
        self.attached.values().map(of).sum()
    }

    /// Returns the names of the registered structs.
    pub(super) fn registered(&self) -> Vec<&str> {
        let registered =
            self.attached.values().filter(|attach_point| matches!(attach_point.held, Held::Registered(_)));
        registered.map(|attach_point| attach_point.program.as_str()).collect()
    }

    /// Removes an attachment by its id. None if it was removed before.
    pub(super) fn remove(&mut self, attach_point: u64) -> Option<Held> {
        self.attached.remove(&attach_point).map(|attach_point| attach_point.held)
    }

    /// Removes the newest attachment.
    pub(super) fn remove_newest(&mut self) -> Option<Held> {
        self.attached.pop_last().map(|(_, attach_point)| attach_point.held)
    }

    /// Removes all attachments of a program, the newest first.
    pub(super) fn remove_program(&mut self, program: &str) -> Vec<Held> {
        let mut held: Vec<Held> = self
            .attached
            .extract_if(.., |_, attach_point| attach_point.program == program)
            .map(|(_, attach_point)| attach_point.held)
            .collect();
        held.reverse();
        held
    }

    /// Removes all registered structs.
    pub(super) fn remove_registered(&mut self) -> Vec<Held> {
        let registered =
            |attach_point: &mut AttachedProgram| matches!(attach_point.held, Held::Registered(_));
        self.attached
            .extract_if(.., |_, attach_point| registered(attach_point))
            .map(|(_, attach_point)| attach_point.held)
            .collect()
    }

    /// Describes an attachment as text: the program and its target. None if it was removed.
    pub(super) fn description(&self, attach_point: u64) -> Option<String> {
        let attach_point = self.attached.get(&attach_point)?;
        Some(match &attach_point.target {
            Some(target) => format!("{} at {target}", attach_point.program),
            None => attach_point.program.clone(),
        })
    }

    /// Removes the attachments of a closed event.
    pub(super) fn forget_event(&mut self, id: AttachmentId) {
        self.attached
            .retain(|_, attach_point| !matches!(attach_point.held, Held::Event(event) if event == id));
    }
}
