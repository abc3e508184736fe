//! Finding events: by numbers, by the names of the kernel's header, of its PMUs, of its tracepoints, and of vendors'
//! tables.
//!
//! Names are taken in the language's spelling and in that of `perf list`, and shown as they were written.
//!
//! Source: perf-list(1); `tools/perf/util/parse-events.l` for the forms.

use std::ffi::CString;

use perf_event_open_sys::bindings;

use super::encoding::Encoding;
use super::error::PerfError;
use super::event::{Access, Event, EventKind, InvalidEvent};
use super::modifiers::Modifiers;
use super::pmu::{Pmu, Sysfs};
use super::probe::ProbeLocation;
use super::table::{EventTable, TableEvent};
use super::{names, symbols, terms};
use crate::near::near;
use crate::tracefs;

/// Where events are looked up. The default is this machine, with no vendor's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    pub(super) sysfs: Sysfs,
    pub(super) table: EventTable,
}

impl Catalog {
    /// A machine and a vendor's events.
    pub fn new(sysfs: Sysfs, table: EventTable) -> Catalog {
        Catalog { sysfs, table }
    }

    /// The event with these numbers: `perf_event_attr.type` and `.config`.
    ///
    /// Types 0 (hardware), 1 (software), 3 (hardware cache), 4 (raw) and those under `/sys/bus/event_source/devices` are
    /// accepted whose PMU says in `format` what its numbers mean; each bit must be one of a term. Breakpoints, tracepoints
    /// and probes have calls of their own: the kernel takes some of their numbers for addresses. The upper 32 bits of a hardware or cache config choose one of
    /// several core PMUs by its type. 0 there, and type 4, mean the CPU's cores: of several kinds each.
    ///
    /// # Errors
    /// [`PerfError::InvalidEvent`] (a type with a call of its own, a config that the header does not define, bits of no
    /// term), [`PerfError::UnknownPmu`].
    ///
    /// Source: perf_event_open(2); `enum perf_type_id` in `include/uapi/linux/perf_event.h`, v6.18.
    pub fn numbered(&self, type_: u32, config: u64) -> Result<Event, PerfError> {
        self.raw(type_, [config, 0, 0])
    }

    /// As [`Catalog::numbered`], with `config1` and `config2` too, which some PMUs want.
    ///
    /// # Errors
    /// As there.
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

    /// The event of this name: the language's (`page_faults`), or in the spelling of `perf list`, with modifiers or
    /// without: `page-faults`, `L1-dcache-load-misses:u`, `r3c`, `msr/tsc/`, `cpu/event=0x3c,umask=1/pp`,
    /// `sched:sched_switch`, `mem:0x7f00/4:w`; or a name of the vendor's table.
    ///
    /// # Errors
    /// [`PerfError::UnknownEvent`], [`PerfError::NoPmu`], [`PerfError::Tracepoint`], with near names;
    /// [`PerfError::InvalidEvent`] for terms and modifiers that are none.
    pub fn named(&self, name: &str) -> Result<Event, PerfError> {
        let found = match name.split_once('/') {
            _ if name.starts_with("mem:") => self.breakpoint_by_name(name),
            Some((pmu, rest)) => self.pmu_event(name, pmu, rest),
            None => self.bare_name(name),
        }?;
        Ok(Event { name: name.to_owned(), ..found })
    }

    /// The tracepoint `category/event`.
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

    /// A breakpoint at a symbol of the kernel; else as [`Event::breakpoint`].
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

    /// Calls of a function of the kernel: `function` or `function+0x10`.
    ///
    /// # Errors
    /// [`PerfError::NoPmu`] if the kernel was built without kprobes, [`PerfError::InvalidEvent`].
    pub fn kprobe(&self, function: &str) -> Result<Event, PerfError> {
        let pmu = self.pmu("kprobe")?;
        let form = "a function of the kernel, `function` or `function+0x10`";
        let invalid = || InvalidEvent::Form { text: function.to_owned(), form };
        let (symbol, offset) = symbols::with_offset(function).ok_or_else(invalid)?;
        let symbol = CString::new(symbol).map_err(|_| invalid())?;
        let location = ProbeLocation::Kernel { function: symbol, offset };
        let kind = EventKind::Probe { type_: pmu.type_, location };
        Ok(Event::plain(format!("kprobe:{function}"), kind))
    }

    /// Calls of functions of a program or library: a place as [`ks_wit::target`] describes them; of several functions of
    /// one name their sum. An instruction begins there: it is the start of a function, what direct jumps lead to from one,
    /// or a static probe of the file's notes. The event holds the file open.
    ///
    /// # Errors
    /// [`PerfError::NoPmu`] if the kernel was built without uprobes, [`PerfError::ProbeLocation`], [`PerfError::InvalidEvent`].
    pub fn uprobe(&self, location: &str) -> Result<Event, PerfError> {
        let pmu = self.pmu("uprobe")?;
        let encoding = |point| {
            Encoding::everywhere(EventKind::Probe { type_: pmu.type_, location: ProbeLocation::File(point) })
        };
        let encodings = symbols::in_file(location)?.into_iter().map(encoding).collect();
        Ok(Event::encoded(format!("uprobe:{location}"), encodings))
    }

    /// A name without slashes.
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

    /// A name with nothing behind it.
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
        // What the PMUs of the cores name may be written without them.
        let naming: Vec<Pmu> = self.core_pmus().filter(|pmu| pmu.events.contains_key(name)).collect();
        if naming.is_empty() { Ok(None) } else { self.of_each(&naming, name, name).map(Some) }
    }

    /// `PMU/TERMS/LETTERS`, split behind the first slash.
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
            // Some units are PMUs by their own name.
            Some(unit) => match self.sysfs.pmu(&unit.to_ascii_lowercase()) {
                Some(pmu) => pmu,
                None => self.pmu(&terms::pmu_of_unit(unit))?,
            },
            None => return self.of_each(&self.core_pmus().collect::<Vec<_>>(), &row.name, &row.terms),
        };
        let event = self.of_pmu(&pmu, &row.terms)?;
        Ok(Event { name: row.name.clone(), ..event })
    }

    /// `mem:ADDRESS[/LENGTH][:ACCESS]`.
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
