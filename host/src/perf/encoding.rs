//! Encoding of an event for the kernel: the fields of `perf_event_attr`, and the CPUs on which its PMU
//! counts.

use super::event::EventKind;
use super::pmu::Sysfs;

/// One encoding of an event for `perf_event_open(2)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) kind: EventKind,
    /// The PMU, if it counts only on some CPUs.
    pub(super) pmu: Option<Located>,
    /// The event's policy name, if its numbers do not determine it.
    pub(super) named: Option<EventName>,
}

/// The name of an event in policies and messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventName {
    /// The family, as in [`super::Event::family`].
    pub(super) family: &'static str,
    /// The canonical name, the same for all spellings: `msr/tsc/`, `cpu/config=0x1cd,config1=0x3/`,
    /// `sched/sched_switch`.
    pub(super) name: String,
}

/// A PMU that counts only on some CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    /// The PMU's name in sysfs.
    pub(super) name: String,
    /// Whether the PMU counts one kind of core, rather than a package or another unit.
    pub(super) is_core: bool,
    /// The PMU's CPUs when the event was looked up.
    pub(super) cpus: Vec<i32>,
}

impl Encoding {
    /// Returns an encoding whose PMU counts on every CPU.
    pub(super) fn everywhere(kind: EventKind) -> Encoding {
        Encoding { kind, pmu: None, named: None }
    }

    /// Returns the PMU's name if the PMU counts one kind of core.
    pub(super) fn core(&self) -> Option<&str> {
        self.pmu.as_ref().filter(|pmu| pmu.is_core).map(|pmu| pmu.name.as_str())
    }

    /// Whether the PMU counts on a CPU now.
    pub(super) fn is_on(&self, cpu: i32, sysfs: &Sysfs) -> bool {
        self.pmu.as_ref().is_none_or(|pmu| pmu.cpus_now(sysfs).contains(&cpu))
    }
}

impl Located {
    /// Returns the PMU's current CPUs; the list changes as CPUs go offline and come online.
    pub(super) fn cpus_now(&self, sysfs: &Sysfs) -> Vec<i32> {
        sysfs.cpus_of(&self.name).unwrap_or_else(|| self.cpus.clone())
    }
}
