//! Events of CPU cores, on machines with one kind of core and with several (hybrid x86, big.LITTLE arm).
//!
//! Each of several kinds has its own PMU, and one kernel event is opened on each of them. For a general event
//! (hardware, cache) the upper half of `config` selects the PMU; for a raw event `type` does.
//!
//! Source: PERF_PMU_TYPE_SHIFT in `include/uapi/linux/perf_event.h`, v6.18, which x86-64 knows since 5.13 and
//! arm64 since 6.6; `parse_events_multi_pmu_add` in `tools/perf/util/parse-events.c`.

use perf_event_open_sys::bindings;

use super::catalog::Catalog;
use super::encoding::{Encoding, EventName, Located};
use super::error::PerfError;
use super::event::{Event, EventKind, InvalidEvent};
use super::names;
use super::pmu::Pmu;
use super::terms;

impl Catalog {
    /// Returns the core PMUs: one for each kind of core.
    pub(super) fn core_pmus(&self) -> impl Iterator<Item = Pmu> {
        let pmus = self.sysfs.pmu_names().into_iter();
        pmus.filter_map(|name| self.sysfs.pmu(&name)).filter(|pmu| pmu.core)
    }

    /// Returns the names of the core PMUs, with the CPUs of each if there are several: `cpu`, or `cpu_atom
    /// (cpus 8-15)`.
    pub fn core_names(&self) -> Vec<String> {
        match &self.sysfs.kinds_of_core()[..] {
            [] => self.core_pmus().map(|pmu| pmu.name).collect(),
            kinds => {
                kinds.iter().map(|(pmu, _)| format!("{} (cpus {})", pmu.name, ranges(&pmu.cpus))).collect()
            }
        }
    }

    /// Returns an event with the same numbers on all kinds of core: type 0, 3 or 4.
    pub(super) fn of_cores(&self, name: impl Into<String>, type_: u32, config: [u64; 3]) -> Event {
        let kinds = self.sysfs.kinds_of_core();
        if kinds.is_empty() {
            let named = named_raw(type_, config);
            let encoding = Encoding { named, ..Encoding::everywhere(EventKind::Counter { type_, config }) };
            return Event::encoded(name, vec![encoding]);
        }
        Event::encoded(name, kinds.into_iter().map(|(pmu, of)| on_core(pmu, of, type_, config)).collect())
    }

    /// Returns a raw event on those kinds of core whose terms cover all bits of `config`.
    ///
    /// Errors: if no kind does, the error of the first one.
    pub(super) fn raw_on_cores(&self, name: impl Into<String>, config: [u64; 3]) -> Result<Event, PerfError> {
        let pmus: Vec<Pmu> = self.core_pmus().collect();
        let is_right = |pmu: &&Pmu| pmu.check(config).is_ok();
        let right: Vec<&str> = pmus.iter().filter(is_right).map(|pmu| pmu.name.as_str()).collect();
        match pmus.first() {
            // Without a core PMU, opening the event reports the kernel's error.
            None if config[1..] == [0, 0] => {}
            None => return Err(InvalidEvent::ExtraConfig(bindings::PERF_TYPE_RAW).into()),
            Some(first) if right.is_empty() => drop(first.check(config)?),
            Some(_) => {}
        }
        let mut event = self.of_cores(name, bindings::PERF_TYPE_RAW, config);
        event.encodings.retain(|encoding| encoding.core().is_none_or(|core| right.contains(&core)));
        Ok(event)
    }

    /// Returns a hardware or cache event by its numbers: on all kinds of core, or on the one that the upper
    /// half of the config selects.
    pub(super) fn numbered_core(&self, type_: u32, config: [u64; 3]) -> Result<Event, PerfError> {
        let core = (config[0] >> bindings::PERF_PMU_TYPE_SHIFT) as u32;
        let general = config[0] & u64::from(bindings::PERF_HW_EVENT_MASK);
        let undefined = InvalidEvent::UndefinedConfig { type_, config: config[0] };
        let name = names::name_of(type_, general).ok_or(undefined)?;
        if core == 0 {
            return Ok(self.of_cores(name, type_, config));
        }
        let unknown = || PerfError::UnknownPmu { type_: core };
        let pmu = self.sysfs.pmu_of_type(core).ok_or_else(unknown)?;
        if !self.core_pmus().any(|known| known.name == pmu) {
            return Err(unknown());
        }
        let kinds = self.sysfs.kinds_of_core().into_iter();
        let located = kinds.map(|(located, _)| located).find(|located| located.name == pmu);
        let encoding = Encoding { kind: EventKind::Counter { type_, config }, pmu: located, named: None };
        Ok(Event::encoded(format!("{pmu}/{name}/"), vec![encoding]))
    }

    /// Returns the encoding of a general event on one kind of core, as in `cpu_atom/cache-misses/`. None if
    /// the PMU defines the name itself, if the name is unknown, or if the machine has only one kind of core.
    pub(super) fn general_on(&self, pmu: &Pmu, name: &str) -> Option<Encoding> {
        let (type_, config) =
            names::find(name).filter(|(type_, _)| *type_ != bindings::PERF_TYPE_SOFTWARE)?;
        if pmu.events.contains_key(name) || pmu.formats.contains_key(name) {
            return None;
        }
        let mut kinds = self.sysfs.kinds_of_core().into_iter();
        let (located, of) = kinds.find(|(located, _)| located.name == pmu.name)?;
        Some(on_core(located, of, type_, [config, 0, 0]))
    }

    /// Returns an event with the same terms on each of these PMUs that accepts them.
    ///
    /// Errors: if none accepts them, the error of the first; [`PerfError::NoPmu`] if `pmus` is empty.
    pub(super) fn of_each(&self, pmus: &[Pmu], name: &str, terms: &str) -> Result<Event, PerfError> {
        let mut refused = None;
        let mut encodings = Vec::new();
        for pmu in pmus {
            match terms::config(pmu, &self.table, terms).and_then(|config| pmu.encoding(config)) {
                Ok(encoding) => encodings.push(encoding),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match (encodings.is_empty(), refused) {
            (false, _) => Ok(Event::encoded(name, encodings)),
            (true, Some(error)) => Err(error.into()),
            (true, None) => Err(PerfError::NoPmu { name: "cpu".into(), near: vec![] }),
        }
    }
}

/// Encodes an event of type 0, 3 or 4 for one of several kinds of core; `of` is the type of the core's PMU.
fn on_core(pmu: Located, of: u32, type_: u32, mut config: [u64; 3]) -> Encoding {
    let mut asked = type_;
    let named = named_raw(type_, config);
    match type_ {
        bindings::PERF_TYPE_RAW => asked = of,
        _ => config[0] |= u64::from(of) << bindings::PERF_PMU_TYPE_SHIFT,
    }
    Encoding { kind: EventKind::Counter { type_: asked, config }, pmu: Some(pmu), named }
}

/// Returns the policy name of a raw event; None for other types.
fn named_raw(type_: u32, [config, config1, config2]: [u64; 3]) -> Option<EventName> {
    let name = match (config1, config2) {
        (0, 0) => format!("r{config:x}"),
        _ => format!("r{config:x},config1={config1:#x},config2={config2:#x}"),
    };
    (type_ == bindings::PERF_TYPE_RAW).then_some(EventName { family: "raw", name })
}

/// Formats a CPU list as the kernel does: `0-3,8`.
fn ranges(cpus: &[i32]) -> String {
    let runs = cpus.chunk_by(|one, next| *next == one + 1);
    let range = |run: &[i32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(i32::to_string).collect(),
    };
    runs.map(range).collect::<Vec<_>>().join(",")
}
