//! What is counted.

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
use crate::explain::perf::EventClass;
#[cfg(feature = "plugins")]
use crate::files::RegularFile;
use crate::probed::ProbePoint;

/// How an access to a breakpoint's address is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Loads.
    #[doc(alias = "HW_BREAKPOINT_R")]
    pub read: bool,
    /// Stores.
    #[doc(alias = "HW_BREAKPOINT_W")]
    pub write: bool,
    /// Instruction fetches; excludes the other two.
    #[doc(alias = "HW_BREAKPOINT_X")]
    pub execute: bool,
}

impl Access {
    /// `HW_BREAKPOINT_*` of `include/uapi/linux/hw_breakpoint.h`.
    pub(super) fn bits(self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { bindings::HW_BREAKPOINT_EMPTY };
        bit(self.read, bindings::HW_BREAKPOINT_R)
            | bit(self.write, bindings::HW_BREAKPOINT_W)
            | bit(self.execute, bindings::HW_BREAKPOINT_X)
    }
}

/// `r`, `w`, `rw` or `x`.
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

/// What is counted: the type and configuration of an event, not yet opened, and the name under which messages show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub(super) name: String,
    /// How the kernel is asked for it: in one way, in one for each kind of core, or in one for each function that it
    /// probes. Never empty.
    pub(super) encodings: Vec<Encoding>,
    pub(super) modifiers: Modifiers,
}

/// The fields of `perf_event_attr` that choose the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventKind {
    /// `config`, `config1`, `config2`. What PMUs make of `config3` and later fields, nobody asks for.
    Counter { type_: u32, config: [u64; 3] },
    /// An address, a length in bytes, the accesses.
    Breakpoint { address: u64, len: u32, access: Access },
    /// An instruction of the kernel or of a program, and the type of the PMU for it.
    Probe { type_: u32, location: ProbeLocation },
}

/// Why a description of an event can never be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// Type 5 without an address.
    #[error("a breakpoint needs an address, a length and an access: it has a constructor of its own")]
    NumberedBreakpoint,
    /// Type 2.
    #[error("a tracepoint is opened by its name: it has a constructor of its own")]
    NumberedTracepoint,
    /// Numbers that a type does not have.
    #[error("events of type {0} have neither `config1` nor `config2`")]
    ExtraConfig(u32),
    /// A PMU whose events are made by other calls.
    #[error("events of the PMU `{pmu}` are not made of terms and numbers\n  do: use {call}")]
    OwnCall {
        /// The PMU.
        pmu: String,
        /// What makes its events.
        call: &'static str,
    },
    /// A PMU of which nobody knows what it takes.
    #[error(
        "the PMU `{0}` does not say what the numbers of its events mean: it has no terms (folder `format`)"
    )]
    NoFormat(String),
    /// Bits that no term of the PMU has.
    #[error("the PMU `{pmu}` has no term for the bits {bits:#x} of `{word}`")]
    Bits {
        /// The PMU.
        pmu: String,
        /// The word.
        word: &'static str,
        /// The bits.
        bits: u64,
    },
    /// A hardware, software or cache config outside the kernel's enumeration.
    #[error("the kernel's header defines no event {config:#x} of type {type_} ({})", type_text(*.type_))]
    UndefinedConfig {
        /// `perf_event_attr.type`.
        type_: u32,
        /// `perf_event_attr.config`.
        config: u64,
    },
    /// A breakpoint of this many bytes.
    #[error("a breakpoint covers 1, 2, 4 or 8 bytes, not {0}")]
    BreakpointLength(u32),
    /// A breakpoint without an access.
    #[error("a breakpoint counts loads, stores or instruction fetches: none was named")]
    NoAccess,
    /// A breakpoint for fetches and for something else.
    #[error("a breakpoint on instruction fetches cannot count loads or stores too")]
    MixedAccess,
    /// A breakpoint for fetches of this many bytes.
    #[error("a breakpoint on instruction fetches has the length 8, not {0}")]
    ExecuteLength(u32),
    /// A letter behind an event that is none, or too often.
    #[error(
        "`{letter}` in `:{letters}` is no modifier: the letters are u, k, h, G, H, I, p (up to three), D, e, W"
    )]
    Modifier {
        /// The letter.
        letter: char,
        /// All of them.
        letters: String,
    },
    /// A term that the PMU does not have.
    #[error("the PMU `{pmu}` has no term `{term}`{}", did_you_mean(.near))]
    UnknownTerm {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// Words that are near, the nearest first.
        near: Vec<String>,
    },
    /// A value that does not fit the bits of its term, or is no number.
    #[error("`{term}={value}` of the PMU `{pmu}` is not a number up to {largest:#x}")]
    TermValue {
        /// The PMU.
        pmu: String,
        /// The term.
        term: String,
        /// Its text.
        value: String,
        /// The largest number that its bits hold.
        largest: u64,
    },
    /// A text that is no place in a file.
    #[error("`{text}` is no place: {reason}")]
    ProbeLocation {
        /// The text.
        text: String,
        /// Why not.
        reason: String,
    },
    /// A text that has not the form of an event.
    #[error("`{text}` is not {form}")]
    Form {
        /// The text.
        text: String,
        /// What it should be.
        form: &'static str,
    },
}

pub(super) fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("\n  do: use a name that exists, such as `{}`", near.join("`, `")),
    }
}

impl Event {
    /// As [`Catalog::numbered`], on this machine.
    ///
    /// # Errors
    /// As there.
    pub fn numbered(type_: u32, config: u64) -> Result<Event, PerfError> {
        Catalog::default().numbered(type_, config)
    }

    /// As [`Catalog::named`], on this machine.
    ///
    /// # Errors
    /// As there.
    pub fn named(name: &str) -> Result<Event, PerfError> {
        Catalog::default().named(name)
    }

    /// An event on every CPU, without letters behind it.
    pub(super) fn plain(name: impl Into<String>, kind: EventKind) -> Event {
        Event::encoded(name, vec![Encoding::everywhere(kind)])
    }

    /// An event that the kernel is asked for in these ways, at least one, without letters behind it.
    pub(super) fn encoded(name: impl Into<String>, encodings: Vec<Encoding>) -> Event {
        Event { name: name.into(), encodings, modifiers: Modifiers::default() }
    }

    /// A hardware breakpoint: counts accesses to `len` bytes (1, 2, 4 or 8) at an address of the observed task.
    ///
    /// Errors: [`PerfError::InvalidEvent`] (length, no access, fetches together with another access or with a length
    /// other than 8). Whether the CPU can watch that address is known when it is opened.
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

    /// The name under which messages show this event, for example `page_faults` or `breakpoint:0x7f00:4:w`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is; of several kinds of core, on the first.
    pub(super) fn kind(&self) -> &EventKind {
        &self.encodings[0].kind
    }

    /// Whether each kind of core is asked for it in another way.
    pub(super) fn is_hybrid(&self) -> bool {
        self.encodings.len() > 1 && !self.is_probe()
    }

    /// How many places it probes; 1 for what probes nothing.
    pub(super) fn points(&self) -> usize {
        if self.is_probe() { self.encodings.len() } else { 1 }
    }

    /// The instructions of a file that it probes.
    pub(super) fn probe_points(&self) -> Vec<ProbePoint> {
        let point = |encoding: &Encoding| match &encoding.kind {
            EventKind::Probe { location: ProbeLocation::File(point), .. } => Some(point.clone()),
            _ => None,
        };
        self.encodings.iter().filter_map(point).collect()
    }

    /// The PMUs of the kinds of core that it is bound to; none if it counts on all of them alike.
    pub(super) fn cores(&self) -> impl Iterator<Item = &str> {
        self.encodings.iter().filter_map(Encoding::core)
    }

    /// How the kernel is asked for it at a place; none if its PMU does not count there.
    pub(super) fn encoding_at(&self, location: &CpuAndTask, sysfs: &Sysfs) -> Option<&Encoding> {
        match &self.encodings[..] {
            encodings if self.is_probe() => encodings.get(location.point),
            // Of a CPU that none of them counts on the kernel says why.
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

    /// The name of what is counted at one place: after its PMU where others count it elsewhere, as `perf stat` has it.
    pub(super) fn label(&self, encoding: &Encoding) -> String {
        match encoding.core() {
            Some(core) if self.is_hybrid() => format!("{core}/{}/", self.name),
            _ => self.name.clone(),
        }
    }

    /// The options with what the event's own spelling asks for.
    pub(super) fn options(&self, options: &Options) -> Options {
        self.modifiers.apply(options)
    }

    /// The CPUs on which its PMUs count, if not all.
    pub(super) fn cpus(&self, sysfs: &Sysfs) -> Option<Vec<i32>> {
        let of_each = self.encodings.iter().map(|encoding| Some(encoding.pmu.as_ref()?.cpus_now(sysfs)));
        let mut cpus = of_each.collect::<Option<Vec<_>>>()?.concat();
        cpus.sort_unstable();
        cpus.dedup();
        Some(cpus)
    }

    /// The tracepoint of an id, with its name `category/event`.
    ///
    /// Source: `events/CATEGORY/EVENT/id` in tracefs.
    pub fn of_tracepoint(name: &str, id: u64) -> Event {
        let kind = EventKind::Counter { type_: bindings::PERF_TYPE_TRACEPOINT, config: [id, 0, 0] };
        let named = Some(EventName { family: "tracepoint", name: name.to_owned() });
        Event::encoded(name, vec![Encoding { named, ..Encoding::everywhere(kind) }])
    }

    /// What policies may allow alone: its name on each kind of core, the same for all spellings: `page_faults`,
    /// `LLC-load-misses`, `r1a8`, `msr/tsc/`, `sched/sched_switch`, `breakpoint:0x7f00:4:w`, `uprobe:/bin/sh:main`.
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
            // Nothing but the call that made it names it.
            EventKind::Probe { .. } => self.name.clone(),
            EventKind::Counter { type_, config: [config, config1, config2] } => {
                let general = config & u64::from(bindings::PERF_HW_EVENT_MASK);
                names::name_of(*type_, general)
                    .unwrap_or_else(|| format!("{type_}/{config:#x},{config1:#x},{config2:#x}"))
            }
        }
    }

    /// The family that policies know it by: `hardware`, `cache`, `raw`, `software`, `tracepoint`, `breakpoint`, `kprobe`,
    /// `uprobe`; of PMUs that are not the cores', `aux` for those that write traces, `msr`, `power`, `uncore` for those that
    /// count what CPUs share, and `pmu` for any other.
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

    /// Whether the kernel puts a probe for it.
    pub(super) fn is_probe(&self) -> bool {
        matches!(self.kind(), EventKind::Probe { .. })
    }

    /// The program that it holds open, if it is a probe in one.
    #[cfg(feature = "plugins")]
    pub(crate) fn probed_file(&self) -> Option<Weak<RegularFile>> {
        match self.kind() {
            EventKind::Probe { location: ProbeLocation::File(point), .. } => Some(point.file()),
            _ => None,
        }
    }

    /// What an explanation of a refusal needs to know of the event.
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

    /// The number of the tracepoint that it counts.
    pub(super) fn tracepoint(&self) -> Option<u64> {
        match self.kind() {
            EventKind::Counter { type_: bindings::PERF_TYPE_TRACEPOINT, config: [number, ..] } => {
                Some(*number)
            }
            _ => None,
        }
    }

    /// Context, migration and cgroup switches, tracepoints and probes of kernel functions happen in the kernel only:
    /// without it they would count a silent 0.
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

    /// Whether it is a clock of the kernel: it counts time in user code and in the kernel alike, whatever is left out.
    /// Only whether a sample is taken depends on it.
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

    /// Whether the CPU counts it, so that modes of the CPU can be left out.
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
