//! The same groups as [`super::perf`], read with the crate `perf-event2`, as an ordinary Rust program would.

use std::time::Instant;

use anyhow::{Context, Result};
use perf_event::events::Software;
use perf_event::{Builder, Counter, GroupData, ReadFormat};

use super::perf::{ADVICE, Observed};
use crate::answer::Answer;

/// A group of running software events: `task_clock`, the leader, and `page_faults`.
pub struct CrateGroup {
    leader: perf_event::Group,
    // Owns the members; they are closed with the group.
    _members: Vec<Counter>,
}

impl CrateGroup {
    /// Opens a group of this many events, including the leader.
    ///
    /// # Errors
    /// If the kernel refuses an event.
    pub fn open(members: u32, observed: Observed) -> Result<CrateGroup> {
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let mut clock = builder(Software::TASK_CLOCK, observed);
        clock.read_format(ReadFormat::GROUP | ReadFormat::ID | times);
        let mut leader = clock.build_group().context(ADVICE)?;
        let faults = builder(Software::PAGE_FAULTS, observed);
        let members = (1..members).map(|_| leader.add(&faults)).collect::<Result<_, _>>().context(ADVICE)?;
        leader.enable().context(ADVICE)?;
        Ok(CrateGroup { leader, _members: members })
    }

    /// Reads the group this many times.
    ///
    /// # Errors
    /// If a read fails.
    pub fn measure(&mut self, iterations: u64) -> Result<Answer> {
        let mut group = self.leader.read()?;
        let mut last = self.count(&group);
        let mut right = 0;
        let start = Instant::now();
        for _ in 0..iterations {
            group = self.leader.read()?;
            let count = self.count(&group);
            right += u64::from(count > last);
            last = count;
        }
        let elapsed = start.elapsed();
        let time_enabled = group.time_enabled().map_or(0, |time| time.as_nanos() as u64);
        // The crate lists the members without the leader.
        Ok(Answer { elapsed, right, members: u32::try_from(1 + group.len())?, time_enabled })
    }

    fn count(&self, group: &GroupData) -> u64 {
        group.get(self.leader.as_counter()).map_or(0, |entry| entry.value())
    }
}

fn builder(event: Software, observed: Observed) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder.include_kernel().include_hv();
    match observed {
        Observed::OwnTask => builder.observe_self().any_cpu(),
        Observed::Cpu(cpu) => builder.any_pid().one_cpu(cpu as usize),
    };
    builder
}
