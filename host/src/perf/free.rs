//! How many counters of each PMU nobody uses now: found out by taking them for a moment.

use std::sync::atomic::AtomicU64;

use perf_event_open_sys::bindings;

use super::attachments::Attachments;
use super::attr::Options;
use super::catalog::Catalog;
use super::error::ErrorKind;
use super::event::{Access, Event};
use super::pmu::Pmu;

/// No PMU has more counters; what takes more events than these counts without counters.
const MOST: u32 = 64;

/// The free counters of a PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeCounters {
    /// The PMU, as sysfs names it.
    pub pmu: String,
    /// The event that was counted to find out; others of the PMU may have fewer counters, or one of their own.
    pub event: String,
    /// How many of these the PMU counts at once beside what is counted already.
    pub counters: u32,
}

impl Catalog {
    /// The free counters of the PMUs of the cores, of those of which the kernel says on which CPUs they count, and of
    /// the CPU's breakpoints. PMUs whose events can be opened without end are left out: they need no counters.
    ///
    /// What others count without having pinned it may lose its counters for the moment that this takes.
    pub fn free_counters(&self) -> Vec<FreeCounters> {
        let pmus = self.sysfs.pmu_names().into_iter().filter_map(|name| self.sysfs.pmu(&name));
        pmus.filter_map(|pmu| {
            let (event, options) = self.probed(&pmu)?;
            let counters = self.fitting(&event, &Options { pinned: true, ..options })?;
            (counters < MOST).then(|| FreeCounters {
                pmu: pmu.name,
                event: event.name().to_owned(),
                counters,
            })
        })
        .collect()
    }

    /// An event of a PMU that any of its counters counts, and whom to count.
    fn probed(&self, pmu: &Pmu) -> Option<(Event, Options)> {
        let own = Options { pid: 0, cpu: -1, exclude_kernel: true, ..Options::default() };
        if pmu.core {
            let config = [u64::from(bindings::PERF_COUNT_HW_INSTRUCTIONS), 0, 0];
            let mut event = self.of_cores("instructions", bindings::PERF_TYPE_HARDWARE, config);
            event.encodings.retain(|encoding| encoding.core().is_none_or(|core| core == pmu.name));
            // A task is not on one kind of core as long as this takes.
            let of_kind = event.encodings.first()?.pmu.as_ref().map(|pmu| pmu.cpus.clone());
            return Some(match of_kind {
                Some(cpus) => (event, Options { cpu: *cpus.first()?, ..Options::default() }),
                None => (event, own),
            });
        }
        if pmu.type_ == bindings::PERF_TYPE_BREAKPOINT {
            static WORD: AtomicU64 = AtomicU64::new(0);
            let stores = Access { write: true, ..Access::default() };
            let event = Event::breakpoint(WORD.as_ptr() as u64, 8, stores).ok()?;
            return Some((Event { name: "stores to an address".into(), ..event }, own));
        }
        let cpu = *pmu.cpus.as_ref()?.first()?;
        let name = pmu.events.keys().next()?;
        let event = self.named(&format!("{}/{name}/", pmu.name)).ok()?;
        Some((event, Options { pid: -1, cpu, ..Options::default() }))
    }

    /// How many of an event are counted at once. None if that may not be tried.
    fn fitting(&self, event: &Event, options: &Options) -> Option<u32> {
        let mut attachments = Attachments::with_sysfs(self.sysfs.clone());
        for taken in 0..MOST {
            match attachments.open(event, options, None, None) {
                // One without a counter is in error state.
                Ok(id) if attachments.read(id).is_ok() => {}
                Err(error) if error.kind() == ErrorKind::NotPermitted => return None,
                Ok(_) | Err(_) => return Some(taken),
            }
        }
        Some(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_breakpoints_are_counted_and_given_back() {
        let breakpoints = || {
            let found = Catalog::default().free_counters();
            found.into_iter().find(|free| free.pmu == "breakpoint").map(|free| free.counters)
        };
        let free = breakpoints().expect("every CPU that tests run on has breakpoints");
        // x86-64 has four, of which other tests use some for a moment; arm64 up to sixteen.
        assert!((0..=16).contains(&free), "{free}");
        assert!(Catalog::default().free_counters().iter().all(|free| free.pmu != "software"));
    }
}
