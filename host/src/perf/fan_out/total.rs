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
pub(in super::super) struct GoneCpu {
    pub(in super::super) cpu: i32,
    pub(in super::super) point: usize,
    pub(in super::super) task: i32,
    pub(in super::super) tally: Tally,
}

#[cfg(test)]
mod tests {
    use super::super::super::scale::{State, Times};
    use super::*;

    fn at(task: i32, cpu: i32, core: Option<&str>, point: usize) -> CpuAndTask {
        CpuAndTask { task, cpu, core: core.map(str::to_owned), point, cgroup: None }
    }

    fn half(raw: u64) -> Tally {
        Tally::of(raw, Times { enabled: 100, running: 50 })
    }

    fn sum(parts: &[(CpuAndTask, Tally)], gone: &[GoneCpu]) -> Tally {
        let mut total = Total::default();
        parts.iter().for_each(|(location, tally)| total.add(location, *tally));
        total.add_gone(gone);
        total.sum()
    }

    #[test]
    fn cpus_are_independent_and_a_task_is_one_on_all_of_them() {
        assert_eq!(sum(&[], &[]).raw, 0);
        let cpus = sum(&[(at(-1, 0, None, 0), half(3)), (at(-1, 1, None, 0), half(4))], &[]);
        assert_eq!((cpus.raw, cpus.scaled(), cpus.times.enabled), (7, Some(14), 200));
        let task = sum(&[(at(7, 0, None, 0), half(3)), (at(7, 1, None, 0), half(4))], &[]);
        assert_eq!((task.raw, task.scaled(), task.times.enabled), (7, Some(7), 100));
        let tasks = sum(&[(at(7, 0, None, 0), half(3)), (at(8, 0, None, 0), half(4))], &[]);
        assert_eq!((tasks.raw, tasks.scaled(), tasks.times.enabled), (7, Some(14), 200));
        let core =
            |core, raw, running| (at(7, -1, Some(core), 0), Tally::of(raw, Times { enabled: 100, running }));
        let cores = sum(&[core("big", 3, 100), core("small", 0, 0)], &[]);
        assert_eq!((cores.raw, cores.state(), cores.is_partial()), (3, State::Counted, false));
    }

    #[test]
    fn cpus_that_are_gone_count() {
        let gone = GoneCpu { cpu: 1, point: 0, task: -1, tally: half(4) };
        let cpus = sum(&[(at(-1, 0, None, 0), half(3))], &[gone]);
        assert_eq!((cpus.raw, cpus.scaled(), cpus.times.enabled), (7, Some(14), 200));
        let of_task = sum(&[(at(7, 0, None, 0), half(3))], &[GoneCpu { task: 7, ..gone }]);
        assert_eq!((of_task.raw, of_task.scaled(), of_task.times.enabled), (7, Some(7), 100));
    }

    #[test]
    fn probed_instructions_share_one_time() {
        let points = sum(&[(at(7, -1, None, 0), half(3)), (at(7, -1, None, 1), half(4))], &[]);
        assert_eq!((points.raw, points.scaled(), points.times.enabled), (7, Some(14), 100));
    }
}
