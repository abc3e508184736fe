//! Sums over the locations of an attachment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::locations::CpuAndTask;
use super::super::scale::Tally;

/// The sum of an attachment's counts at its locations. Counts of one task on several CPUs or kinds of core
/// belong to one enabled span; counts of different CPUs are independent. An event that probes several
/// instructions is enabled over the same time at all of them.
#[derive(Debug, Default)]
pub(super) struct Total {
    by_point: BTreeMap<usize, Point>,
}

/// The counts at one of the probed instructions.
#[derive(Debug, Default)]
struct Point {
    of_cpus: Tally,
    by_task: BTreeMap<i32, Tally>,
}

impl Total {
    /// Adds the count at a location.
    pub(super) fn add(&mut self, location: &CpuAndTask, tally: Tally) {
        let join = if location.core.is_some() { Tally::on_other_core } else { Tally::on_other_cpu };
        self.add_by(location.point, location.task, tally, join);
    }

    /// Adds the counts from CPUs that went offline.
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

    /// Returns the sum of all counts.
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

/// A count from a CPU that went offline.
#[derive(Debug, Clone, Copy)]
pub(super) struct GoneCpu {
    pub(super) cpu: i32,
    pub(super) point: usize,
    pub(super) task: i32,
    pub(super) tally: Tally,
}
