//! What of the plugin's programs is attached where, in the order of attaching.

use std::collections::BTreeMap;

use crate::bpf::Link;
use crate::perf::{AttachmentId, Probe};

/// Everything that a program of the plugin runs at.
#[derive(Default)]
pub(super) struct AttachedPrograms {
    last: u64,
    places: BTreeMap<u64, Place>,
}

struct Place {
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
        self.places.insert(self.last, Place { program, target, held });
        self.last
    }

    /// Whether a program is attached to this target.
    pub(super) fn is_at(&self, program: &str, target: &str) -> bool {
        self.places.values().any(|place| place.program == program && place.target.as_deref() == Some(target))
    }

    /// How many probes there are.
    pub(super) fn probes(&self) -> usize {
        let of_place = |place: &Place| match &place.held {
            Held::Probes(probes) => probes.len(),
            _ => 0,
        };
        self.places.values().map(of_place).sum()
    }

    /// The names of the structs that are registered.
    pub(super) fn registered(&self) -> Vec<&str> {
        let registered = self.places.values().filter(|place| matches!(place.held, Held::Registered(_)));
        registered.map(|place| place.program.as_str()).collect()
    }

    /// Takes one place out. None if it was taken out before.
    pub(super) fn remove(&mut self, place: u64) -> Option<Held> {
        self.places.remove(&place).map(|place| place.held)
    }

    /// Takes all places of a program out, the newest first.
    pub(super) fn remove_program(&mut self, program: &str) -> Vec<Held> {
        let mut held: Vec<Held> = self
            .places
            .extract_if(.., |_, place| place.program == program)
            .map(|(_, place)| place.held)
            .collect();
        held.reverse();
        held
    }

    /// Takes all structs out that are registered.
    pub(super) fn remove_registered(&mut self) -> Vec<Held> {
        let registered = |place: &mut Place| matches!(place.held, Held::Registered(_));
        self.places.extract_if(.., |_, place| registered(place)).map(|(_, place)| place.held).collect()
    }

    /// What is at a place, in words: the program and its target. None if it was taken out.
    pub(super) fn words(&self, place: u64) -> Option<String> {
        let place = self.places.get(&place)?;
        Some(match &place.target {
            Some(target) => format!("{} at {target}", place.program),
            None => place.program.clone(),
        })
    }

    /// An event was closed.
    pub(super) fn forget_event(&mut self, id: AttachmentId) {
        self.places.retain(|_, place| !matches!(place.held, Held::Event(event) if event == id));
    }
}
