//! What of the plugin's programs is attached where, in the order of attaching.

use std::collections::BTreeMap;

use crate::bpf::Link;
use crate::perf::{AttachmentId, Probe};

/// Everything that a program of the plugin runs at.
#[derive(Default)]
pub(super) struct AttachedPrograms {
    last: u64,
    attached: BTreeMap<u64, AttachedProgram>,
}

struct AttachedProgram {
    program: String,
    /// None for a perf event, of which one program may have many.
    target: Option<String>,
    held: Held,
}

/// What keeps a program at its place.
pub(super) enum Held {
    /// A perf event, or the event of a tracepoint.
    Event(AttachmentId),
    /// A link of its own, which its drop closes.
    Link(Link),
    /// The link of a struct that is registered, which its drop closes.
    Registered(Link),
    /// Probes, which their drop takes away.
    Probes(Vec<Probe>),
}

impl AttachedPrograms {
    /// Notes where a program is attached now. The number names the place; it is not used again.
    pub(super) fn insert(&mut self, program: String, target: Option<String>, held: Held) -> u64 {
        self.last += 1;
        self.attached.insert(self.last, AttachedProgram { program, target, held });
        self.last
    }

    /// Whether a program is attached to this target.
    pub(super) fn is_at(&self, program: &str, target: &str) -> bool {
        self.attached.values().any(|attach_point| {
            attach_point.program == program && attach_point.target.as_deref() == Some(target)
        })
    }

    /// How many probes there are.
    pub(super) fn probes(&self) -> usize {
        let probes_of = |attach_point: &AttachedProgram| match &attach_point.held {
            Held::Probes(probes) => probes.len(),
            _ => 0,
        };
        self.attached.values().map(probes_of).sum()
    }

    /// The names of the structs that are registered.
    pub(super) fn registered(&self) -> Vec<&str> {
        let registered =
            self.attached.values().filter(|attach_point| matches!(attach_point.held, Held::Registered(_)));
        registered.map(|attach_point| attach_point.program.as_str()).collect()
    }

    /// Takes one place out. None if it was taken out before.
    pub(super) fn remove(&mut self, attach_point: u64) -> Option<Held> {
        self.attached.remove(&attach_point).map(|attach_point| attach_point.held)
    }

    /// Takes all places of a program out, the newest first.
    pub(super) fn remove_program(&mut self, program: &str) -> Vec<Held> {
        let mut held: Vec<Held> = self
            .attached
            .extract_if(.., |_, attach_point| attach_point.program == program)
            .map(|(_, attach_point)| attach_point.held)
            .collect();
        held.reverse();
        held
    }

    /// Takes all structs out that are registered.
    pub(super) fn remove_registered(&mut self) -> Vec<Held> {
        let registered =
            |attach_point: &mut AttachedProgram| matches!(attach_point.held, Held::Registered(_));
        self.attached
            .extract_if(.., |_, attach_point| registered(attach_point))
            .map(|(_, attach_point)| attach_point.held)
            .collect()
    }

    /// What is at a place, in words: the program and its target. None if it was taken out.
    pub(super) fn description(&self, attach_point: u64) -> Option<String> {
        let attach_point = self.attached.get(&attach_point)?;
        Some(match &attach_point.target {
            Some(target) => format!("{} at {target}", attach_point.program),
            None => attach_point.program.clone(),
        })
    }

    /// An event was closed.
    pub(super) fn forget_event(&mut self, id: AttachmentId) {
        self.attached
            .retain(|_, attach_point| !matches!(attach_point.held, Held::Event(event) if event == id));
    }
}
