//! Number of counters of each PMU that are free now, determined by occupying them for a moment.

use std::sync::atomic::AtomicU64;

use perf_event_open_sys::bindings;

use super::attachments::Attachments;
use super::attr::Options;
use super::catalog::Catalog;
use super::error::ErrorKind;
use super::event::{Access, Event};
use super::pmu::Pmu;

/// No PMU has more counters; a PMU that accepts more events counts without counters.
const MOST: u32 = 64;

/// The free counters of one PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeCounters {
    /// The PMU's name in sysfs.
    pub pmu: String,
    /// The event that was opened to find out. Other events of the PMU may have fewer counters, or a dedicated
    /// one.
    pub event: String,
    /// Number of these events that the PMU counts at once in addition to those that others already count.
    pub counters: u32,
}

impl Catalog {
    /// Returns the free counters of the core PMUs, of PMUs whose CPUs the kernel lists, and of the CPU's
    /// breakpoints. PMUs that accept any number of events are left out: they need no counters.
    ///
    /// Unpinned events of others may lose their counters for the duration of this call.
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

    /// Returns an event that every counter of the PMU can count, and the options to open it with.
    fn probed(&self, pmu: &Pmu) -> Option<(Event, Options)> {
        let own = Options { pid: 0, cpu: -1, exclude_kernel: true, ..Options::default() };
        if pmu.core {
            let config = [u64::from(bindings::PERF_COUNT_HW_INSTRUCTIONS), 0, 0];
            let mut event = self.of_cores("instructions", bindings::PERF_TYPE_HARDWARE, config);
            event.encodings.retain(|encoding| encoding.core().is_none_or(|core| core == pmu.name));
            // A task does not stay on one kind of core during this call.
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

    /// Returns how many instances of an event count at once; None if opening them is not permitted.
    fn fitting(&self, event: &Event, options: &Options) -> Option<u32> {
        let mut attachments = Attachments::with_sysfs(self.sysfs.clone());
        for taken in 0..MOST {
            match attachments.open(event, options, None, None) {
                // A pinned event without a counter is in error state.
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
        // x86-64 has four breakpoints, some of which other tests use briefly; arm64 has up to sixteen.
        assert!((0..=16).contains(&free), "{free}");
        assert!(Catalog::default().free_counters().iter().all(|free| free.pmu != "software"));
    }
}
