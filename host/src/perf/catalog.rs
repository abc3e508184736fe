//! Looks up events: by numbers, and by the names of the kernel's header, PMUs, tracepoints and vendor tables.
//!
//! Names are accepted in the language's spelling and in that of `perf list`, and messages show them as they
//! were written.
//!
//! Source: perf-list(1); `tools/perf/util/parse-events.l` for the forms.

use std::ffi::CString;

use perf_event_open_sys::bindings;

use super::encoding::{Encoding, EventName};
use super::error::PerfError;
use super::event::{Access, Event, EventKind, InvalidEvent};
use super::modifiers::Modifiers;
use super::pmu::{Pmu, Sysfs};
use super::probe::ProbeLocation;
use super::table::{EventTable, TableEvent};
use super::{names, symbols, terms};
use crate::near::near;
use crate::probed::{ANY_FILE, AllowsFile, ProbePoint};
use crate::tracefs;

/// A catalog of events. The default is this machine's, without a vendor table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    pub(super) sysfs: Sysfs,
    pub(super) table: EventTable,
}

impl Catalog {
    /// Returns a catalog of a machine's events and those of a vendor table.
    pub fn new(sysfs: Sysfs, table: EventTable) -> Catalog {
        Catalog { sysfs, table }
    }

    /// Returns the event with these numbers: `perf_event_attr.type` and `.config`.
    ///
    /// Accepts the types 0 (hardware), 1 (software), 3 (hardware cache), 4 (raw), and those of PMUs under
    /// `/sys/bus/event_source/devices` that describe their numbers in `format`; each set bit must belong to a
    /// term. Breakpoints, tracepoints and probes have functions of their own, since the kernel takes some of
    /// their numbers for addresses. The upper 32 bits of a hardware or cache config select one of several
    /// core PMUs by its type. If they are 0, and for type 4, the event counts on all kinds of cores.
    ///
    /// # Errors
    /// [`PerfError::InvalidEvent`] (a type with a function of its own, a config that the header does not
    /// define, bits of no term), [`PerfError::UnknownPmu`].
    ///
    /// Source: perf_event_open(2); `enum perf_type_id` in `include/uapi/linux/perf_event.h`, v6.18.
    pub fn numbered(&self, type_: u32, config: u64) -> Result<Event, PerfError> {
        self.raw(type_, [config, 0, 0])
    }

    /// As [`Catalog::numbered`], with `config1` and `config2`, which some PMUs need.
    ///
    /// # Errors
    /// As [`Catalog::numbered`].
    pub fn raw(&self, type_: u32, words: [u64; 3]) -> Result<Event, PerfError> {
        let [config, config1, config2] = words;
        match type_ {
            bindings::PERF_TYPE_BREAKPOINT => Err(InvalidEvent::NumberedBreakpoint.into()),
            bindings::PERF_TYPE_TRACEPOINT => Err(InvalidEvent::NumberedTracepoint.into()),
            general if general < bindings::PERF_TYPE_RAW && (config1, config2) != (0, 0) => {
                Err(InvalidEvent::ExtraConfig(type_).into())
            }
            bindings::PERF_TYPE_HARDWARE | bindings::PERF_TYPE_HW_CACHE => self.numbered_core(type_, words),
            bindings::PERF_TYPE_SOFTWARE => {
                let name = names::name_of(type_, config);
                let name = name.ok_or(InvalidEvent::UndefinedConfig { type_, config })?;
                Ok(Event::plain(name, EventKind::Counter { type_, config: words }))
            }
            bindings::PERF_TYPE_RAW => self.raw_on_cores(format!("r{config:x}"), words),
            _ => {
                let name = self.sysfs.pmu_of_type(type_).ok_or(PerfError::UnknownPmu { type_ })?;
                let pmu = self.pmu(&name)?;
                Ok(Event::encoded(pmu.spelled(words), vec![pmu.encoding(words)?]))
            }
        }
    }

    /// Returns the event with this name: the language's name (`page_faults`), a `perf list` spelling with or
    /// without modifiers (`page-faults`, `L1-dcache-load-misses:u`, `r3c`, `msr/tsc/`,
    /// `cpu/event=0x3c,umask=1/pp`, `sched:sched_switch`, `mem:0x7f00/4:w`), or a name of the vendor table.
    ///
    /// # Errors
    /// [`PerfError::UnknownEvent`], [`PerfError::NoPmu`], [`PerfError::Tracepoint`], with similar names;
    /// [`PerfError::InvalidEvent`] for invalid terms and modifiers.
    pub fn named(&self, name: &str) -> Result<Event, PerfError> {
        let found = match name.split_once('/') {
            _ if name.starts_with("mem:") => self.breakpoint_by_name(name),
            Some((pmu, rest)) => self.pmu_event(name, pmu, rest),
            None => self.bare_name(name),
        }?;
        Ok(Event { name: name.to_owned(), ..found })
    }

    /// Returns the tracepoint `category/event`.
    ///
    /// # Errors
    /// [`PerfError::Tracepoint`].
    pub fn tracepoint(&self, name: &str) -> Result<Event, PerfError> {
        let form = "a tracepoint, `category/event`";
        let (category, event) =
            name.split_once('/').ok_or_else(|| InvalidEvent::Form { text: name.to_owned(), form })?;
        let id = tracefs::tracepoint_id(category, event)
            .map_err(|cause| PerfError::Tracepoint { name: name.to_owned(), cause })?;
        Ok(Event::of_tracepoint(name, id))
    }

    /// Returns a breakpoint at a kernel symbol; otherwise as [`Event::breakpoint`].
    ///
    /// # Errors
    /// [`PerfError::ProbeLocation`] (no such symbol, or addresses are hidden), [`PerfError::InvalidEvent`].
    ///
    /// Source: `/proc/kallsyms`, proc(5).
    pub fn breakpoint_at(&self, symbol: &str, len: u32, access: Access) -> Result<Event, PerfError> {
        let address = symbols::kernel_symbol(symbol)?;
        let event = Event::breakpoint(address, len, access)?;
        Ok(Event { name: format!("breakpoint:{symbol}:{len}:{access}"), ..event })
    }

    /// Returns an event that counts calls of a kernel function: `function` or `function+0x10`.
    ///
    /// # Errors
    /// [`PerfError::NoPmu`] if the kernel was built without kprobes, [`PerfError::InvalidEvent`].
    pub fn kprobe(&self, function: &str) -> Result<Event, PerfError> {
        let form = "a function of the kernel, `function` or `function+0x10`";
        let invalid = || InvalidEvent::Form { text: function.to_owned(), form };
        let (symbol, offset) = symbols::with_offset(function).ok_or_else(invalid)?;
        let symbol = CString::new(symbol).map_err(|_| invalid())?;
        let pmu = self.pmu("kprobe")?;
        let location = ProbeLocation::Kernel { function: symbol, offset };
        let kind = EventKind::Probe { type_: pmu.type_, location };
        Ok(Event::plain(format!("kprobe:{function}"), kind))
    }

    /// Returns an event that counts calls of a function of a program or library. [`ks_wit::target`] describes
    /// the form of `location`; if several functions have the name, the event counts all of them. The probed
    /// address must be proven to start an instruction: it is the start of a function, is reached from one by
    /// direct jumps, or is a static probe of the file's notes. The event holds the file open.
    ///
    /// # Errors
    /// [`PerfError::NoPmu`] if the kernel was built without uprobes, [`PerfError::ProbeLocation`],
    /// [`PerfError::InvalidEvent`].
    pub fn uprobe(&self, location: &str) -> Result<Event, PerfError> {
        self.uprobe_in(location, ANY_FILE)
    }

    /// As [`Catalog::uprobe`], in a file that `allows` accepts by its path without links. Policies know the
    /// event by that path, too.
    ///
    /// # Errors
    /// As [`Catalog::uprobe`].
    pub(crate) fn uprobe_in(&self, location: &str, allows: &AllowsFile<'_>) -> Result<Event, PerfError> {
        let pmu = self.pmu("uprobe")?;
        let encoding = |point: ProbePoint| {
            let name = format!("uprobe:{}", point.real_target(location));
            let kind = EventKind::Probe { type_: pmu.type_, location: ProbeLocation::File(point) };
            Encoding { named: Some(EventName { family: "uprobe", name }), ..Encoding::everywhere(kind) }
        };
        let encodings = symbols::in_file(location, allows)?.into_iter().map(encoding).collect();
        Ok(Event::encoded(format!("uprobe:{location}"), encodings))
    }

    /// Looks up a name without slashes, possibly with modifiers.
    fn bare_name(&self, text: &str) -> Result<Event, PerfError> {
        if let Some(event) = self.plain_name(text)? {
            return Ok(event);
        }
        let unknown = || self.unknown(text);
        let (head, tail) = text.split_once(':').ok_or_else(unknown)?;
        if let Some(event) = self.plain_name(head)? {
            return Ok(Event { modifiers: Modifiers::parse(tail)?, ..event });
        }
        let (event, letters) = tail.split_once(':').unwrap_or((tail, ""));
        let event = self.tracepoint(&format!("{head}/{event}"))?;
        Ok(Event { modifiers: Modifiers::parse(letters)?, ..event })
    }

    /// Looks up a name without modifiers.
    fn plain_name(&self, name: &str) -> Result<Option<Event>, PerfError> {
        if let Some((type_, config)) = names::find(name) {
            return Ok(Some(match type_ {
                bindings::PERF_TYPE_SOFTWARE => {
                    Event::plain(name, EventKind::Counter { type_, config: [config, 0, 0] })
                }
                _ => self.of_cores(name, type_, [config, 0, 0]),
            }));
        }
        if let Some(row) = self.table.find(name) {
            return self.of_table(row).map(Some);
        }
        let hex = name.strip_prefix('r').filter(|hex| !hex.is_empty());
        if let Some(config) = hex.and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            return self.raw_on_cores(name, [config, 0, 0]).map(Some);
        }
        // Events of core PMUs may be written without the PMU's name.
        let naming: Vec<Pmu> = self.core_pmus().filter(|pmu| pmu.events.contains_key(name)).collect();
        if naming.is_empty() { Ok(None) } else { self.of_each(&naming, name, name).map(Some) }
    }

    /// Parses `PMU/TERMS/LETTERS`, split after the first slash.
    fn pmu_event(&self, text: &str, pmu: &str, rest: &str) -> Result<Event, PerfError> {
        let form = "an event of a PMU, `pmu/terms/`";
        let (terms, letters) =
            rest.rsplit_once('/').ok_or_else(|| InvalidEvent::Form { text: text.to_owned(), form })?;
        let event = self.of_pmu(&self.pmu(pmu)?, terms)?;
        let letters = letters.strip_prefix(':').unwrap_or(letters);
        Ok(Event { modifiers: Modifiers::parse(letters)?, ..event })
    }

    fn of_pmu(&self, pmu: &Pmu, text: &str) -> Result<Event, PerfError> {
        let encoding = match self.general_on(pmu, text) {
            Some(encoding) => encoding,
            None => pmu.encoding(terms::config(pmu, &self.table, text)?)?,
        };
        Ok(Event::encoded(format!("{}/{text}/", pmu.name), vec![encoding]))
    }

    fn of_table(&self, row: &TableEvent) -> Result<Event, PerfError> {
        let pmu = match &row.unit {
            // Some unit names are also PMU names.
            Some(unit) => match self.sysfs.pmu(&unit.to_ascii_lowercase()) {
                Some(pmu) => pmu,
                None => self.pmu(&terms::pmu_of_unit(unit))?,
            },
            None => return self.of_each(&self.core_pmus().collect::<Vec<_>>(), &row.name, &row.terms),
        };
        let event = self.of_pmu(&pmu, &row.terms)?;
        Ok(Event { name: row.name.clone(), ..event })
    }

    /// Parses `mem:ADDRESS[/LENGTH][:ACCESS]`.
    fn breakpoint_by_name(&self, text: &str) -> Result<Event, PerfError> {
        let form = "a breakpoint, `mem:0x7f00/4:rw`";
        let invalid = || InvalidEvent::Form { text: text.to_owned(), form };
        let rest = text.strip_prefix("mem:").unwrap_or(text);
        let (location, access) = rest.split_once(':').unwrap_or((rest, "rw"));
        let access =
            Access { read: access.contains('r'), write: access.contains('w'), execute: access.contains('x') };
        let (address, len) = match location.split_once('/') {
            Some((address, len)) => (address, len.parse().map_err(|_| invalid())?),
            None => (location, if access.execute { 8 } else { 4 }),
        };
        let address = super::table::integer(address).ok_or_else(invalid)?;
        Event::breakpoint(address, len, access)
    }

    pub(super) fn pmu(&self, name: &str) -> Result<Pmu, PerfError> {
        self.sysfs.pmu(name).ok_or_else(|| PerfError::NoPmu {
            name: name.to_owned(),
            near: near(name, self.sysfs.pmu_names()),
        })
    }

    fn unknown(&self, name: &str) -> PerfError {
        let of_pmus = self.sysfs.pmu_names().into_iter().filter_map(|name| self.sysfs.pmu(&name));
        let of_pmus = of_pmus.flat_map(|pmu| {
            let name = pmu.name;
            pmu.events.into_keys().map(move |event| format!("{name}/{event}/"))
        });
        let of_table = self.table.events().map(|event| event.name.clone());
        let candidates = names::all().chain(of_table).chain(of_pmus);
        PerfError::UnknownEvent { name: name.to_owned(), near: near(name, candidates) }
    }
}

#[cfg(test)]
mod tests;
