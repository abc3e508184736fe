//! CPUs that go offline and come online while they are counted.
//!
//! When a CPU goes offline, the kernel permanently takes its groups apart. A CPU that returns, also after the
//! machine has slept, needs new groups. For a moment the groups are already apart while the CPU is still
//! listed as online, and later the CPU is listed as online but accepts no events yet.
//!
//! Source: `perf_event_exit_cpu`, `perf_event_init_cpu` in `kernel/events/core.c`, v6.18.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::super::error::PerfError;
use super::super::group::Group;
use super::super::locations::{self, Surroundings};
use super::super::notice::Notice;
use super::super::online::Online;
use super::super::plan::Plan;
use super::total::GoneCpu;
use super::{Branch, FanOut, is_fleeting};
use crate::explain::perf::EventClass;

/// Shortest interval between two checks whether the CPU of a one-CPU event went offline; checked by reads.
pub(in super::super) const CPU_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Whether the kernel ends the events of an attachment when a CPU goes offline. Events of tasks stay with
/// their tasks, and events of units that CPUs share (`uncore`, `power`) are moved to another CPU. A program
/// at a tracepoint or a probe runs on every CPU, regardless of its event's CPU.
///
/// Source: kernel/events/core.c, `perf_event_exit_cpu_context` and `perf_pmu_migrate_context`, v6.18.
pub(super) fn follows(plan: &Plan) -> bool {
    let options = &plan.options;
    let of_task = options.pid != -1 || options.command || !options.process.is_empty();
    let runs_everywhere = plan.link.is_some()
        && matches!(plan.event.class(), EventClass::Tracepoint | EventClass::Probe { .. });
    let mut pmus = plan.event.encodings.iter().filter_map(|encoding| encoding.pmu.as_ref());
    let is_shared = pmus.any(|pmu| !pmu.is_core);
    options.every_cpu || options.cpu >= 0 && !of_task && !runs_everywhere && !is_shared
}

impl FanOut {
    /// Handles CPUs that went offline or came online since the last call. Returns whether anything changed.
    pub(in super::super) fn follow_cpus(&mut self, surroundings: &Surroundings) -> bool {
        let is_due = self.looks_each_time() || self.looked.elapsed() >= CPU_CHECK_INTERVAL;
        let Some(online) = self.online.as_mut().filter(|_| is_due) else { return false };
        self.looked = Instant::now();
        let mut done = false;
        if online.has_changed() {
            self.revision += 1;
            let now = online.cpus();
            let sysfs = &surroundings.sysfs;
            done = self.take_out(|branch| {
                let cpu = branch.location.cpu;
                !now.contains(&cpu) || branch.incarnation != sysfs.incarnation(cpu)
            });
            let known = |cpu: &i32| self.branches.iter().any(|branch| branch.location.cpu == *cpu);
            let plan = self.leader();
            let cpus = locations::cpus(&plan.event, &plan.options, sysfs).unwrap_or_default();
            let is_new = |cpu: &i32| !known(cpu) && !self.uncounted.contains(cpu);
            self.missing = cpus.into_iter().filter(is_new).collect();
            self.uncounted.retain(|cpu| now.contains(cpu));
        }
        // The fast path: nearly every reading returns here.
        if self.missing.is_empty() {
            return done;
        }
        let online = self.online.as_ref().map(Online::cpus).unwrap_or_default();
        let here: Vec<i32> = self.missing.iter().copied().filter(|cpu| online.contains(cpu)).collect();
        self.revision += u64::from(!here.is_empty());
        for cpu in here {
            done |= self.add_cpu(cpu, surroundings);
        }
        done
    }

    /// Whether each reading looks for CPUs that came or went. One of a CPU's event must not cost a check of all CPUs
    /// each time.
    pub(super) fn looks_each_time(&self) -> bool {
        self.leader().options.every_cpu || !self.missing.is_empty()
    }

    /// Returns a number that is another one after [`FanOut::follow_cpus`] or [`FanOut::remove_dead_groups`] has changed
    /// anything.
    pub(in super::super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the attachment has to follow CPUs that go offline and come online.
    pub(in super::super) fn follows(&self) -> bool {
        self.online.is_some()
    }

    /// Removes groups that the kernel has taken apart although their CPUs are still listed as online. Returns
    /// whether there were any.
    pub(in super::super) fn remove_dead_groups(&mut self) -> bool {
        self.online.is_some() && self.take_out(|branch| branch.group.is_apart())
    }

    /// Applies `what` to every group, and removes groups that turn out to have been taken apart.
    pub(super) fn each_living(
        &mut self,
        mut what: impl FnMut(&mut Group) -> Result<(), PerfError>,
    ) -> Result<(), PerfError> {
        let follows = self.online.is_some();
        let mut apart = Vec::new();
        for Branch { location, group, .. } in &mut self.branches {
            match what(group) {
                Err(PerfError::MalformedRead(_)) if follows => apart.push(location.cpu),
                done => done?,
            }
        }
        self.take_out(|branch| apart.contains(&branch.location.cpu));
        Ok(())
    }

    /// Removes branches and keeps their counts. Returns whether there were any.
    pub(super) fn take_out(&mut self, which: impl FnMut(&mut Branch) -> bool) -> bool {
        let event = self.leader().event.name().to_owned();
        let out: Vec<Branch> = self.branches.extract_if(.., which).collect();
        let any = !out.is_empty();
        self.revision += u64::from(any);
        for Branch { location, mut group, .. } in out {
            if self.missing.insert(location.cpu) {
                self.notices.push(Notice::CpuGone { event: event.clone(), cpu: location.cpu });
            }
            for (id, count) in group.read_apart() {
                let gone = GoneCpu {
                    cpu: location.cpu,
                    point: location.point,
                    task: location.task,
                    tally: count.tally(),
                };
                self.gone.entry(id).or_default().push(gone);
            }
        }
        any
    }

    /// Opens the groups of a CPU that came online. Returns whether it produced a notice.
    fn add_cpu(&mut self, cpu: i32, surroundings: &Surroundings) -> bool {
        let plan = self.leader();
        let event = plan.event.name().to_owned();
        let fleeting = is_fleeting(&plan.options);
        let locations = locations::locations(&plan.event, &plan.options, surroundings).unwrap_or_default();
        let mut came = None;
        for location in locations.into_iter().filter(|location| location.cpu == cpu) {
            match self.open_branch(location, surroundings) {
                Ok(()) => came = Some(Notice::CpuCame { event: event.clone(), cpu }),
                Err(error) if fleeting && error.errno() == Some(Errno::ESRCH) => {}
                // The CPU is not ready yet, or offline again: the next call retries.
                Err(error) if error.errno() == Some(Errno::ENODEV) => return false,
                Err(error) => {
                    let because = error.to_string();
                    came = Some(Notice::CpuMissed { event: event.clone(), cpu, because });
                    self.uncounted.insert(cpu);
                    break;
                }
            }
        }
        self.missing.remove(&cpu);
        self.notices.extend(came.clone());
        came.is_some()
    }
}
