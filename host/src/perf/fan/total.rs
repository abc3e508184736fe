//! Sums over the places of an attachment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::places::Place;
use super::super::scale::Tally;

/// The sum of what one attachment counts at its places. A task on several CPUs, or on several kinds of core, is one; every
/// task of a CPU is another.
#[derive(Debug, Default)]
pub(super) struct Total {
    of_cpus: Tally,
    by_task: BTreeMap<i32, Tally>,
}

impl Total {
    /// What was counted at a place.
    pub(super) fn add(&mut self, place: &Place, tally: Tally) {
        let join = if place.core.is_some() { Tally::on_other_core } else { Tally::beside };
        self.add_by(place.task, tally, join);
    }

    /// What was counted on CPUs that have gone.
    pub(super) fn add_gone(&mut self, parts: &[Gone]) {
        for Gone { task, tally, .. } in parts {
            self.add_by(*task, *tally, Tally::beside);
        }
    }

    fn add_by(&mut self, task: i32, tally: Tally, join: fn(Tally, Tally) -> Tally) {
        if task == -1 {
            self.of_cpus = self.of_cpus.plus(tally);
            return;
        }
        match self.by_task.entry(task) {
            Entry::Vacant(none) => {
                none.insert(tally);
            }
            Entry::Occupied(mut same) => *same.get_mut() = join(*same.get(), tally),
        }
    }

    /// All of it.
    pub(super) fn sum(&self) -> Tally {
        self.by_task.values().fold(self.of_cpus, |sum, task| sum.plus(*task))
    }
}

/// What was counted on a CPU that has gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone {
    pub(super) cpu: i32,
    pub(super) task: i32,
    pub(super) tally: Tally,
}
