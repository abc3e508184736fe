//! How the kernel is asked for an event: the fields of `perf_event_attr`, and on which CPUs its PMU counts.

use super::event::EventKind;
use super::pmu::Sysfs;

/// One way to ask the kernel for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) kind: EventKind,
    /// The PMU that counts it, if that counts on some CPUs only.
    pub(super) pmu: Option<Located>,
    /// What it is, if its numbers do not tell.
    pub(super) named: Option<EventName>,
}

/// An event as others than the kernel know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventName {
    /// See [`super::Event::family`].
    pub(super) family: &'static str,
    /// The same for all spellings of it: `msr/tsc/`, `cpu/config=0x1cd,config1=0x3/`, `sched/sched_switch`.
    pub(super) name: String,
}

/// A PMU that counts on some CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    /// As sysfs names it.
    pub(super) name: String,
    /// It counts one kind of core, not one package or the like.
    pub(super) is_core: bool,
    /// Those CPUs, when the event was named.
    pub(super) cpus: Vec<i32>,
}

impl Encoding {
    /// On every CPU.
    pub(super) fn everywhere(kind: EventKind) -> Encoding {
        Encoding { kind, pmu: None, named: None }
    }

    /// The PMU, if it counts one kind of core.
    pub(super) fn core(&self) -> Option<&str> {
        self.pmu.as_ref().filter(|pmu| pmu.is_core).map(|pmu| pmu.name.as_str())
    }

    /// Whether its PMU counts on a CPU, now.
    pub(super) fn is_on(&self, cpu: i32, sysfs: &Sysfs) -> bool {
        self.pmu.as_ref().is_none_or(|pmu| pmu.cpus_now(sysfs).contains(&cpu))
    }
}

impl Located {
    /// Its CPUs now: some are added and taken away as CPUs come and go.
    pub(super) fn cpus_now(&self, sysfs: &Sysfs) -> Vec<i32> {
        sysfs.cpus_of(&self.name).unwrap_or_else(|| self.cpus.clone())
    }
}
