//! Events of the CPU's cores, on machines with one kind of core and with several (hybrid x86, big.LITTLE arm).
//!
//! Several kinds have a PMU each. The kernel is asked for one event on each of them: for a general event (hardware,
//! cache) the upper half of `config` names the PMU, for a raw one the type.
//!
//! Source: PERF_PMU_TYPE_SHIFT in `include/uapi/linux/perf_event.h`, v6.18, which x86-64 knows since 5.13 and arm64
//! since 6.6; `parse_events_multi_pmu_add` in `tools/perf/util/parse-events.c`.

use perf_event_open_sys::bindings;

use super::catalog::Catalog;
use super::encoding::{Encoding, Located};
use super::error::PerfError;
use super::event::{Event, InvalidEvent, Kind};
use super::names;
use super::pmu::Pmu;
use super::terms;

impl Catalog {
    /// The PMUs of the CPU's cores: one for each kind of core.
    pub(super) fn core_pmus(&self) -> impl Iterator<Item = Pmu> {
        let pmus = self.sysfs.pmu_names().into_iter();
        pmus.filter_map(|name| self.sysfs.pmu(&name)).filter(|pmu| pmu.core)
    }

    /// Their names, and for several the CPUs of each: `cpu`, or `cpu_atom (cpus 8-15)`.
    pub fn core_names(&self) -> Vec<String> {
        match &self.sysfs.kinds_of_core()[..] {
            [] => self.core_pmus().map(|pmu| pmu.name).collect(),
            kinds => {
                kinds.iter().map(|(pmu, _)| format!("{} (cpus {})", pmu.name, ranges(&pmu.cpus))).collect()
            }
        }
    }

    /// An event that all kinds of core know by these numbers: type 0, 3 or 4.
    pub(super) fn of_cores(&self, name: impl Into<String>, type_: u32, config: [u64; 4]) -> Event {
        let kinds = self.sysfs.kinds_of_core();
        if kinds.is_empty() {
            return Event::plain(name, Kind::Counter { type_, config });
        }
        Event::encoded(name, kinds.into_iter().map(|(pmu, of)| on_core(pmu, of, type_, config)).collect())
    }

    /// A hardware or cache event by its numbers: on all kinds of core, or on that which the upper half of the config
    /// names.
    pub(super) fn numbered_core(&self, type_: u32, config: [u64; 4]) -> Result<Event, PerfError> {
        let core = (config[0] >> bindings::PERF_PMU_TYPE_SHIFT) as u32;
        let general = config[0] & u64::from(bindings::PERF_HW_EVENT_MASK);
        let undefined = InvalidEvent::UndefinedConfig { type_, config: config[0] };
        let name = names::name_of(type_, general).ok_or(undefined)?;
        if core == 0 {
            return Ok(self.of_cores(name, type_, config));
        }
        let pmu = self.sysfs.pmu_of_type(core).ok_or(PerfError::UnknownPmu { type_: core })?;
        let kinds = self.sysfs.kinds_of_core().into_iter();
        let located = kinds.map(|(located, _)| located).find(|located| located.name == pmu);
        let encoding = Encoding { kind: Kind::Counter { type_, config }, pmu: located };
        Ok(Event::encoded(format!("{pmu}/{name}/"), vec![encoding]))
    }

    /// A general event of one kind of core, by its name: `cpu_atom/cache-misses/`. None if the PMU names it itself, if it
    /// is none, or if there is one kind only, which needs no saying.
    pub(super) fn general_on(&self, pmu: &Pmu, name: &str) -> Option<Encoding> {
        let (type_, config) =
            names::find(name).filter(|(type_, _)| *type_ != bindings::PERF_TYPE_SOFTWARE)?;
        if pmu.events.contains_key(name) || pmu.formats.contains_key(name) {
            return None;
        }
        let mut kinds = self.sysfs.kinds_of_core().into_iter();
        let (located, of) = kinds.find(|(located, _)| located.name == pmu.name)?;
        Some(on_core(located, of, type_, [config, 0, 0, 0]))
    }

    /// The same terms on each of these PMUs that takes them.
    ///
    /// Errors: what the first says if none does; [`PerfError::NoPmu`] without PMUs.
    pub(super) fn of_each(&self, pmus: &[Pmu], name: &str, terms: &str) -> Result<Event, PerfError> {
        let mut refused = None;
        let mut encodings = Vec::new();
        for pmu in pmus {
            match terms::config(pmu, &self.table, terms) {
                Ok(config) => encodings.push(pmu.encoding(config)),
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

/// How one of several kinds of core is asked for an event of type 0, 3 or 4; `of` is the type of its PMU.
fn on_core(pmu: Located, of: u32, type_: u32, mut config: [u64; 4]) -> Encoding {
    let mut asked = type_;
    match type_ {
        bindings::PERF_TYPE_RAW => asked = of,
        _ => config[0] |= u64::from(of) << bindings::PERF_PMU_TYPE_SHIFT,
    }
    Encoding { kind: Kind::Counter { type_: asked, config }, pmu: Some(pmu) }
}

/// As the kernel writes them: `0-3,8`.
fn ranges(cpus: &[i32]) -> String {
    let runs = cpus.chunk_by(|one, next| *next == one + 1);
    let range = |run: &[i32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(i32::to_string).collect(),
    };
    runs.map(range).collect::<Vec<_>>().join(",")
}
