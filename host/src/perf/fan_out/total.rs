//! Sums over the places of an attachment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::locations::CpuAndTask;
use super::super::scale::Tally;

/// The sum of what one attachment counts at its places. A task on several CPUs, or on several kinds of core, is one; every
/// task of a CPU is another. What probes several places of a program is counted over the same time at all of them.
#[derive(Debug, Default)]
pub(super) struct Total {
    by_point: BTreeMap<usize, Point>,
}

/// What is counted at one of the places that are probed.
#[derive(Debug, Default)]
struct Point {
    of_cpus: Tally,
    by_task: BTreeMap<i32, Tally>,
}

impl Total {
    /// What was counted at a place.
    pub(super) fn add(&mut self, location: &CpuAndTask, tally: Tally) {
        let join = if location.core.is_some() { Tally::on_other_core } else { Tally::on_other_cpu };
        self.add_by(location.point, location.task, tally, join);
    }

    /// What was counted on CPUs that have gone, with the point and the task.
    pub(super) fn add_gone(&mut self, parts: &[GoneCpu]) {
        for GoneCpu { point, task, tally, .. } in parts {
            self.add_by(*point, *task, *tally, Tally::on_other_cpu);
        }
    }

    fn add_by(&mut self, point: usize, task: i32, tally: Tally, join: fn(Tally, Tally) -> Tally) {
        let point = self.by_point.entry(point).or_default();
        if task == -1 {
            point.of_cpus = point.of_cpus.plus(tally);
            return;
        }
        match point.by_task.entry(task) {
            Entry::Vacant(none) => {
                none.insert(tally);
            }
            Entry::Occupied(mut same) => *same.get_mut() = join(*same.get(), tally),
        }
    }

    /// All of it.
    pub(super) fn sum(&self) -> Tally {
        let mut points = self.by_point.values().map(Point::sum);
        let first = points.next().unwrap_or_default();
        points.fold(first, Tally::at_other_point)
    }
}

impl Point {
    fn sum(&self) -> Tally {
        self.by_task.values().fold(self.of_cpus, |sum, task| sum.plus(*task))
    }
}

/// What was counted on a CPU that has gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct GoneCpu {
    pub(super) cpu: i32,
    pub(super) point: usize,
    pub(super) task: i32,
    pub(super) tally: Tally,
}
