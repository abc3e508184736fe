//! Descriptions of events that can be counted.

use std::fmt;
#[cfg(feature = "plugins")]
use std::sync::Weak;

use perf_event_open_sys::bindings;

use super::attr::Options;
use super::catalog::Catalog;
use super::encoding::{Encoding, EventName};
use super::error::PerfError;
use super::locations::CpuAndTask;
use super::modifiers::Modifiers;
use super::names;
use super::pmu::Sysfs;
use super::probe::ProbeLocation;
use crate::explain::FailureKind;
use crate::explain::perf::EventClass;
#[cfg(feature = "plugins")]
use crate::files::RegularFile;
use crate::near::remedy;
use crate::probed::ProbePoint;

/// The accesses that a breakpoint counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Count loads from the address.
    #[doc(alias = "HW_BREAKPOINT_R")]
    pub read: bool,
    /// Count stores to the address.
    #[doc(alias = "HW_BREAKPOINT_W")]
    pub write: bool,
    /// Count instruction fetches; excludes the other two.
    #[doc(alias = "HW_BREAKPOINT_X")]
    pub execute: bool,
}

impl Access {
    /// Converts to `HW_BREAKPOINT_*` of `include/uapi/linux/hw_breakpoint.h`.
    pub(super) fn bits(self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { bindings::HW_BREAKPOINT_EMPTY };
        bit(self.read, bindings::HW_BREAKPOINT_R)
            | bit(self.write, bindings::HW_BREAKPOINT_W)
            | bit(self.execute, bindings::HW_BREAKPOINT_X)
    }
}

/// Formats as `r`, `w`, `rw` or `x`.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, letter) in [(self.read, "r"), (self.write, "w"), (self.execute, "x")] {
            if set {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

/// An event that is not opened yet: its type, its configuration, and the name that messages show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub(super) name: String,
    /// One encoding, or one for each kind of core, or one for each probed function. Never empty.
    pub(super) encodings: Vec<Encoding>,
    pub(super) modifiers: Modifiers,
}

/// The fields of `perf_event_attr` that select the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventKind {
    /// `config`, `config1` and `config2`. `config3` and later fields are not supported.
    Counter { type_: u32, config: [u64; 3] },
    /// An address, a length in bytes, and the accesses.
    Breakpoint { address: u64, len: u32, access: Access },
    /// The type of the probe PMU, and an instruction of the kernel or of a program.
    Probe { type_: u32, location: ProbeLocation },
}

/// The reason why a description of an event is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// Type 5 (breakpoint) has no address here.
    #[error("a breakpoint needs an address, a length and an access: it has a constructor of its own")]
    NumberedBreakpoint,
    /// Type 2 (tracepoint) has a function of its own.
    #[error("a tracepoint is opened by its name: it has a constructor of its own")]
    NumberedTracepoint,
    /// `config1` or `config2` for the given type, which has none.
    #[error("events of type {0} have neither `config1` nor `config2`")]
    ExtraConfig(u32),
    /// The PMU's events are created by another function.
    #[error("events of the PMU `{pmu}` are not made of terms and numbers\n  do: use {call}")]
    OwnCall {
        /// The PMU's name in sysfs.
        pmu: String,
        /// The function that creates its events.
        call: &'static str,
    },
    /// The named PMU does not describe its terms.
    #[error(
        "the PMU `{0}` does not say what the numbers of its events mean: it has no terms (folder `format`)"
    )]
    NoFormat(String),
    /// Bits are set that belong to no term of the PMU.
    #[error("the PMU `{pmu}` has no term for the bits {bits:#x} of `{word}`")]
    Bits {
        /// The PMU's name in sysfs.
        pmu: String,
        /// The config word: `config`, `config1` or `config2`.
        word: &'static str,
        /// The bits that belong to no term.
        bits: u64,
    },
    /// A hardware, software or cache config outside the kernel's enumeration.
    #[error("the kernel's header defines no event {config:#x} of type {type_} ({})", type_text(*.type_))]
    UndefinedConfig {
        /// The `perf_event_attr.type` that was requested.
        type_: u32,
        /// The `perf_event_attr.config` that was requested.
        config: u64,
    },
    /// A breakpoint's length in bytes is not 1, 2, 4 or 8.
    #[error("a breakpoint covers 1, 2, 4 or 8 bytes, not {0}")]
    BreakpointLength(u32),
    /// The breakpoint counts no access.
    #[error("a breakpoint counts loads, stores or instruction fetches: none was named")]
    NoAccess,
    /// The breakpoint counts both fetches and other accesses.
    #[error("a breakpoint on instruction fetches cannot count loads or stores too")]
    MixedAccess,
    /// A breakpoint for fetches has another length than 8 bytes.
    #[error("a breakpoint on instruction fetches has the length 8, not {0}")]
    ExecuteLength(u32),
    /// An event modifier is unknown, or repeated too often.
    #[error(
        "`{letter}` in `:{letters}` is not a modifier: the letters are u, k, h, G, H, I, p (up to three), D, \
         e, W"
    )]
    Modifier {
        /// The letter that is unknown or repeated.
        letter: char,
        /// All modifier letters of the event.
        letters: String,
    },
    /// The PMU has no such term.
    #[error("the PMU `{pmu}` has no term `{term}`{}", did_you_mean(.near))]
    UnknownTerm {
        /// The PMU's name in sysfs.
        pmu: String,
        /// The unknown term, as it was written.
        term: String,
        /// Similar terms, the most similar first.
        near: Vec<String>,
    },
    /// The value of a term is not a number, or does not fit into the bits of the term.
    #[error("`{term}={value}` of the PMU `{pmu}` is not a number up to {largest:#x}")]
    TermValue {
        /// The PMU's name in sysfs.
        pmu: String,
        /// The name of the PMU's term.
        term: String,
        /// The value, as it was written.
        value: String,
        /// The largest number that the term's bits hold.
        largest: u64,
    },
    /// The text does not describe a location in a file.
    #[error("`{text}` is not a probe location: {reason}")]
    ProbeLocation {
        /// The text, as it was written.
        text: String,
        /// The reason, for messages.
        reason: String,
    },
    /// The text does not have the form of an event.
    #[error("`{text}` is not {form}")]
    Form {
        /// The text, as it was written.
        text: String,
        /// The expected form in words, for example "an event of a PMU, `pmu/terms/`".
        form: &'static str,
    },
}

impl InvalidEvent {
    /// Returns the kind of failure, for programs. Events whose numbers nobody describes are allowed to nobody:
    /// to some PMUs a number is an address of the host's memory.
    pub fn kind(&self) -> FailureKind {
        match self {
            InvalidEvent::NumberedBreakpoint
            | InvalidEvent::NumberedTracepoint
            | InvalidEvent::ExtraConfig(_)
            | InvalidEvent::OwnCall { .. }
            | InvalidEvent::NoFormat(_)
            | InvalidEvent::Bits { .. } => FailureKind::DeniedByPolicy,
            _ => FailureKind::Invalid,
        }
    }
}

pub(super) fn did_you_mean(near: &[String]) -> String {
    remedy(near).map_or_else(String::new, |remedy| format!("\n  do: {remedy}"))
}

impl Event {
    /// As [`Catalog::numbered`], on this machine.
    ///
    /// # Errors
    /// As [`Catalog::numbered`].
    pub fn numbered(type_: u32, config: u64) -> Result<Event, PerfError> {
        Catalog::default().numbered(type_, config)
    }

    /// As [`Catalog::named`], on this machine.
    ///
    /// # Errors
    /// As [`Catalog::named`].
    pub fn named(name: &str) -> Result<Event, PerfError> {
        Catalog::default().named(name)
    }

    /// Returns an event on every CPU, without modifiers.
    pub(super) fn plain(name: impl Into<String>, kind: EventKind) -> Event {
        Event::encoded(name, vec![Encoding::everywhere(kind)])
    }

    /// Returns an event with these encodings, at least one, without modifiers.
    pub(super) fn encoded(name: impl Into<String>, encodings: Vec<Encoding>) -> Event {
        Event { name: name.into(), encodings, modifiers: Modifiers::default() }
    }

    /// Returns a hardware breakpoint that counts accesses to `len` bytes (1, 2, 4 or 8) at an address of the
    /// observed task.
    ///
    /// Errors: [`PerfError::InvalidEvent`] (length, no access, fetches together with another access or with a
    /// length other than 8). Opening the event determines whether the CPU can watch that address.
    ///
    /// Source: `include/uapi/linux/hw_breakpoint.h`; perf_event_open(2), `bp_type`, `bp_addr`, `bp_len`.
    #[doc(alias = "PERF_TYPE_BREAKPOINT")]
    pub fn breakpoint(address: u64, len: u32, access: Access) -> Result<Event, PerfError> {
        let refusal = match access {
            _ if ![1, 2, 4, 8].contains(&len) => Some(InvalidEvent::BreakpointLength(len)),
            Access { read: false, write: false, execute: false } => Some(InvalidEvent::NoAccess),
            Access { execute: true, read, write } if read || write => Some(InvalidEvent::MixedAccess),
            Access { execute: true, .. } if len != 8 => Some(InvalidEvent::ExecuteLength(len)),
            _ => None,
        };
        match refusal {
            Some(reason) => Err(reason.into()),
            None => Ok(Event::plain(
                breakpoint_name(address, len, access),
                EventKind::Breakpoint { address, len, access },
            )),
        }
    }

    /// The name that messages show, for example `page_faults` or `breakpoint:0x7f00:4:w`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of event; with several kinds of core, that of the first.
    pub(super) fn kind(&self) -> &EventKind {
        &self.encodings[0].kind
    }

    /// Whether the kinds of core have different encodings of the event.
    pub(super) fn is_hybrid(&self) -> bool {
        self.encodings.len() > 1 && !self.is_probe()
    }

    /// Number of instructions that the event probes; 1 for an event that is not a probe.
    pub(super) fn points(&self) -> usize {
        if self.is_probe() { self.encodings.len() } else { 1 }
    }

    /// Returns the instructions of a file that the event probes.
    pub(super) fn probe_points(&self) -> Vec<ProbePoint> {
        let point = |encoding: &Encoding| match &encoding.kind {
            EventKind::Probe { location: ProbeLocation::File(point), .. } => Some(point.clone()),
            _ => None,
        };
        self.encodings.iter().filter_map(point).collect()
    }

    /// Returns the core PMUs that the event is bound to; empty if it counts on all kinds of core alike.
    pub(super) fn cores(&self) -> impl Iterator<Item = &str> {
        self.encodings.iter().filter_map(Encoding::core)
    }

    /// Returns the event's encoding at a location; None if its PMU does not count there.
    pub(super) fn encoding_at(&self, location: &CpuAndTask, sysfs: &Sysfs) -> Option<&Encoding> {
        match &self.encodings[..] {
            encodings if self.is_probe() => encodings.get(location.point),
            // For a CPU that no PMU counts on, the system call reports the reason.
            encodings if location.cpu >= 0 => {
                let there = encodings.iter().find(|encoding| encoding.is_on(location.cpu, sysfs));
                there.or(encodings.first())
            }
            encodings => encodings.iter().find(|encoding| match (encoding.core(), &location.core) {
                (Some(core), Some(of_location)) => core == of_location,
                (Some(_), None) => !self.is_hybrid(),
                (None, _) => true,
            }),
        }
    }

    /// Returns the name of the part that is counted at one location: prefixed with its PMU if other PMUs
    /// count the rest, as in `perf stat`.
    pub(super) fn label(&self, encoding: &Encoding) -> String {
        match encoding.core() {
            Some(core) if self.is_hybrid() => format!("{core}/{}/", self.name),
            _ => self.name.clone(),
        }
    }

    /// Returns the options with the event's own modifiers applied.
    pub(super) fn options(&self, options: &Options) -> Options {
        self.modifiers.apply(options)
    }

    /// Returns the CPUs on which the event's PMUs count; None is all CPUs.
    pub(super) fn cpus(&self, sysfs: &Sysfs) -> Option<Vec<i32>> {
        let of_each = self.encodings.iter().map(|encoding| Some(encoding.pmu.as_ref()?.cpus_now(sysfs)));
        let mut cpus = of_each.collect::<Option<Vec<_>>>()?.concat();
        cpus.sort_unstable();
        cpus.dedup();
        Some(cpus)
    }

    /// Returns the tracepoint with an id, named `category/event`.
    ///
    /// Source: `events/CATEGORY/EVENT/id` in tracefs.
    pub fn of_tracepoint(name: &str, id: u64) -> Event {
        let kind = EventKind::Counter { type_: bindings::PERF_TYPE_TRACEPOINT, config: [id, 0, 0] };
        let named = Some(EventName { family: "tracepoint", name: name.to_owned() });
        Event::encoded(name, vec![Encoding { named, ..Encoding::everywhere(kind) }])
    }

    /// Returns the names by which policies may allow the event: one for each kind of core, the same for all
    /// spellings: `page_faults`, `LLC-load-misses`, `r1a8`, `msr/tsc/`, `sched/sched_switch`,
    /// `breakpoint:0x7f00:4:w`, `uprobe:/bin/sh:main`.
    pub fn targets(&self) -> Vec<String> {
        let mut targets: Vec<String> = self.encodings.iter().map(|one| self.target(one)).collect();
        targets.dedup();
        targets
    }

    fn target(&self, encoding: &Encoding) -> String {
        if let Some(named) = &encoding.named {
            return named.name.clone();
        }
        match &encoding.kind {
            EventKind::Breakpoint { address, len, access } => breakpoint_name(*address, *len, *access),
            // A probe has no other name than the one that its function passed.
            EventKind::Probe { .. } => self.name.clone(),
            EventKind::Counter { type_, config: [config, config1, config2] } => {
                let general = config & u64::from(bindings::PERF_HW_EVENT_MASK);
                names::name_of(*type_, general)
                    .unwrap_or_else(|| format!("{type_}/{config:#x},{config1:#x},{config2:#x}"))
            }
        }
    }

    /// Returns the family that policies use: `hardware`, `cache`, `raw`, `software`, `tracepoint`,
    /// `breakpoint`, `kprobe`, `uprobe`. PMUs other than the cores' are `aux` if they write traces, `msr`,
    /// `power`, `uncore` if they count units that CPUs share, and `pmu` otherwise.
    pub fn family(&self) -> &'static str {
        if let Some(named) = &self.encodings[0].named {
            return named.family;
        }
        match self.kind() {
            EventKind::Breakpoint { .. } => "breakpoint",
            EventKind::Probe { location: ProbeLocation::Kernel { .. }, .. } => "kprobe",
            EventKind::Probe { location: ProbeLocation::File(_), .. } => "uprobe",
            EventKind::Counter { type_, .. } => match *type_ {
                bindings::PERF_TYPE_HARDWARE => "hardware",
                bindings::PERF_TYPE_HW_CACHE => "cache",
                bindings::PERF_TYPE_RAW => "raw",
                bindings::PERF_TYPE_SOFTWARE => "software",
                bindings::PERF_TYPE_TRACEPOINT => "tracepoint",
                _ => "pmu",
            },
        }
    }

    /// Whether the event is a kprobe or uprobe.
    pub(super) fn is_probe(&self) -> bool {
        matches!(self.kind(), EventKind::Probe { .. })
    }

    /// Returns the probed file, which the event holds open; None if the event is not a uprobe.
    #[cfg(feature = "plugins")]
    pub(crate) fn probed_file(&self) -> Option<Weak<RegularFile>> {
        match self.kind() {
            EventKind::Probe { location: ProbeLocation::File(point), .. } => Some(point.file()),
            _ => None,
        }
    }

    /// Returns the facts about the event that explain a refusal.
    pub(super) fn class(&self) -> EventClass {
        match self.kind() {
            EventKind::Breakpoint { address, len, access } => EventClass::Breakpoint {
                address: *address,
                len: *len,
                loads_only: access.read && !access.write,
            },
            EventKind::Probe { location, .. } => {
                EventClass::Probe { in_kernel: matches!(location, ProbeLocation::Kernel { .. }) }
            }
            EventKind::Counter { type_, .. } => match *type_ {
                bindings::PERF_TYPE_HARDWARE | bindings::PERF_TYPE_HW_CACHE | bindings::PERF_TYPE_RAW => {
                    EventClass::Hardware
                }
                bindings::PERF_TYPE_SOFTWARE => {
                    EventClass::Software { in_kernel_only: self.is_in_kernel_only() }
                }
                bindings::PERF_TYPE_TRACEPOINT => EventClass::Tracepoint,
                _ => EventClass::Pmu,
            },
        }
    }

    /// Returns the id of the tracepoint; None for other events.
    pub(super) fn tracepoint(&self) -> Option<u64> {
        match self.kind() {
            EventKind::Counter { type_: bindings::PERF_TYPE_TRACEPOINT, config: [number, ..] } => {
                Some(*number)
            }
            _ => None,
        }
    }

    /// Whether the event only happens in the kernel: context, migration and cgroup switches, tracepoints, and
    /// probes of kernel functions. With `exclude_kernel` they would always count 0.
    ///
    /// Source: `perf_sw_event_sched` in `include/linux/perf_event.h`, which passes kernel registers;
    /// `perf_tp_event_match` in `kernel/events/core.c`.
    pub(super) fn is_in_kernel_only(&self) -> bool {
        match self.kind() {
            EventKind::Counter { type_: bindings::PERF_TYPE_SOFTWARE, config: [config, ..] } => [
                bindings::PERF_COUNT_SW_CONTEXT_SWITCHES,
                bindings::PERF_COUNT_SW_CPU_MIGRATIONS,
                bindings::PERF_COUNT_SW_CGROUP_SWITCHES,
            ]
            .map(u64::from)
            .contains(config),
            EventKind::Counter { type_: bindings::PERF_TYPE_TRACEPOINT, .. } => true,
            EventKind::Probe { location, .. } => matches!(location, ProbeLocation::Kernel { .. }),
            EventKind::Counter { .. } | EventKind::Breakpoint { .. } => false,
        }
    }

    /// Whether the event is a kernel clock. It counts time in user code and in the kernel alike, regardless
    /// of the exclusion options, which only affect whether a sample is taken.
    ///
    /// Source: `task_clock_event_init`, `task_clock_event_update` and `perf_swevent_hrtimer` in
    /// `kernel/events/core.c`, v6.18.
    pub(super) fn is_clock(&self) -> bool {
        let clocks = [bindings::PERF_COUNT_SW_CPU_CLOCK, bindings::PERF_COUNT_SW_TASK_CLOCK].map(u64::from);
        match self.kind() {
            EventKind::Counter { type_: bindings::PERF_TYPE_SOFTWARE, config: [config, ..] } => {
                clocks.contains(config)
            }
            _ => false,
        }
    }

    /// Whether the CPU counts the event, so that CPU modes can be excluded.
    pub(super) fn is_counted_by_hardware(&self) -> bool {
        matches!(self.class(), EventClass::Hardware | EventClass::Pmu)
    }
}

fn breakpoint_name(address: u64, len: u32, access: Access) -> String {
    format!("breakpoint:{address:#x}:{len}:{access}")
}

fn type_text(type_: u32) -> &'static str {
    match type_ {
        bindings::PERF_TYPE_HARDWARE => "hardware",
        bindings::PERF_TYPE_SOFTWARE => "software",
        _ => "hardware cache",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORES: Access = Access { read: false, write: true, execute: false };
    const FETCHES: Access = Access { read: false, write: false, execute: true };

    fn refused(event: Result<Event, PerfError>) -> InvalidEvent {
        match event {
            Err(PerfError::InvalidEvent(reason)) => reason,
            other => panic!("not refused as invalid: {other:?}"),
        }
    }

    #[test]
    fn a_name_is_displayed_as_written() {
        assert_eq!(Event::named("page-faults").unwrap().name(), "page-faults");
        assert_eq!(Event::named("page-faults").unwrap().kind(), Event::named("page_faults").unwrap().kind());
    }

    #[test]
    fn numeric_events_are_displayed_by_name() {
        for (type_, config, name) in [
            (0, 3, "cache_misses"),
            (1, 2, "page_faults"),
            (3, 0x1_00_02, "LLC-load-misses"),
            (4, 0x3c, "r3c"),
        ] {
            assert_eq!(Event::numbered(type_, config).unwrap().name(), name);
        }
    }

    #[test]
    fn undefined_numbers_are_refused() {
        assert_eq!(refused(Event::numbered(0, 10)), InvalidEvent::UndefinedConfig { type_: 0, config: 10 });
        assert_eq!(refused(Event::numbered(1, 12)), InvalidEvent::UndefinedConfig { type_: 1, config: 12 });
        assert_eq!(
            refused(Event::numbered(1, 1 << 32)),
            InvalidEvent::UndefinedConfig { type_: 1, config: 1 << 32 }
        );
        assert_eq!(refused(Event::numbered(3, 7)), InvalidEvent::UndefinedConfig { type_: 3, config: 7 });
        assert_eq!(refused(Event::numbered(5, 0)), InvalidEvent::NumberedBreakpoint);
        assert_eq!(refused(Event::numbered(2, 77)), InvalidEvent::NumberedTracepoint);
        assert!(matches!(Event::numbered(0xffff_fff0, 0), Err(PerfError::UnknownPmu { type_: 0xffff_fff0 })));
        assert!(matches!(Event::numbered(0, 0xffff_fff0_0000_0001), Err(PerfError::UnknownPmu { .. })));
    }

    #[test]
    fn breakpoints_are_checked() {
        assert_eq!(Event::breakpoint(0x7f00, 4, STORES).unwrap().name(), "breakpoint:0x7f00:4:w");
        assert!(Event::breakpoint(0x7f00, 8, FETCHES).is_ok());
        assert_eq!(refused(Event::breakpoint(0x7f00, 3, STORES)), InvalidEvent::BreakpointLength(3));
        assert_eq!(refused(Event::breakpoint(0x7f00, 4, FETCHES)), InvalidEvent::ExecuteLength(4));
        assert_eq!(refused(Event::breakpoint(0x7f00, 4, Access::default())), InvalidEvent::NoAccess);
        let both = Access { execute: true, ..STORES };
        assert_eq!(refused(Event::breakpoint(0x7f00, 8, both)), InvalidEvent::MixedAccess);
    }
}
