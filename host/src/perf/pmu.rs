//! The PMUs that the kernel publishes: their types, the terms of their events, and the events that they name.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices`, and the files `-format` and `-events`
//! there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use perf_event_open_sys::bindings;

use super::encoding::{Encoding, EventName, Located};
use super::event::{EventKind, InvalidEvent};
use super::table::EventTable;
use super::terms;

/// One directory per PMU, below the root of sysfs.
const PMUS: &str = "bus/event_source/devices";

/// A sysfs tree: this machine's, or a copy of another machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysfs {
    root: PathBuf,
}

/// This machine's sysfs, `/sys`.
impl Default for Sysfs {
    fn default() -> Sysfs {
        Sysfs::at("/sys")
    }
}

impl Sysfs {
    /// Returns the sysfs tree below a directory.
    pub fn at(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// Returns the names of all PMUs in alphabetical order.
    pub(super) fn pmu_names(&self) -> Vec<String> {
        file_names(&self.root.join(PMUS))
    }

    /// Reads the PMU with this name.
    pub(super) fn pmu(&self, name: &str) -> Option<Pmu> {
        let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        plain.then(|| Pmu::read(name, &self.root.join(PMUS).join(name)))?
    }

    /// Returns the name of the PMU whose events have this type; None if the kernel publishes none.
    pub(super) fn pmu_of_type(&self, type_: u32) -> Option<String> {
        self.pmu_names().into_iter().find(|name| type_of(&self.root.join(PMUS).join(name)) == Some(type_))
    }

    /// Returns the CPUs that a PMU counts on; None is all CPUs.
    pub(super) fn cpus_of(&self, pmu: &str) -> Option<Vec<i32>> {
        cpus(&cpu_list(&self.root.join(PMUS).join(pmu))?)
    }

    /// Returns the PMUs of the kinds of core, each with its type, if there are several: `cpu_core` and
    /// `cpu_atom`, `armv8_cortex_a53` and `armv8_cortex_a72`.
    ///
    /// Source: `is_pmu_core` in `tools/perf/util/pmu.c`, v6.18.
    pub(super) fn kinds_of_core(&self) -> Vec<(Located, u32)> {
        let core = |name: String| {
            let folder = self.root.join(PMUS).join(&name);
            let cpus = cpus(&text(&folder.join(CORES))?)?;
            Some((Located { name, is_core: true, cpus }, type_of(&folder)?))
        };
        let cores: Vec<_> = self.pmu_names().into_iter().filter_map(core).collect();
        if cores.len() > 1 { cores } else { Vec::new() }
    }

    /// Returns a value that changes whenever a CPU was offline: the kernel then recreates the CPU's topology
    /// directory, with a new inode.
    ///
    /// Source: `topology_add_dev` in `drivers/base/topology.c`, v6.18.
    pub(super) fn incarnation(&self, cpu: i32) -> Option<u64> {
        let folder = self.root.join(format!("devices/system/cpu/cpu{cpu}/topology"));
        Some(fs::metadata(folder).ok()?.ino())
    }

    /// Path of the kernel's counter of device events, which include CPUs.
    pub(super) fn uevent_file(&self) -> PathBuf {
        self.root.join("kernel/uevent_seqnum")
    }

    /// Returns the online CPUs in ascending order; CPU 0 if the kernel does not list them.
    pub(super) fn online_cpus(&self) -> Vec<i32> {
        let list = fs::read_to_string(self.online_file()).ok();
        list.as_deref().and_then(cpus).unwrap_or_else(|| vec![0])
    }

    /// Path of the kernel's list of online CPUs.
    pub(super) fn online_file(&self) -> PathBuf {
        self.root.join("devices/system/cpu/online")
    }
}

/// A PMU of sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pmu {
    /// The name, for example `cpu` or `uncore_imc_0`.
    pub(super) name: String,
    /// The `perf_event_attr.type` of its events.
    pub(super) type_: u32,
    /// Terms by name, with the bits that they fill.
    pub(super) formats: BTreeMap<String, Format>,
    /// Named events, with their terms.
    pub(super) events: BTreeMap<String, String>,
    /// The CPUs that its events are opened on; None is all CPUs. One CPU of each package for an uncore PMU
    /// (`cpumask`), the CPUs of its kind for one of several core PMUs (`cpus`).
    pub(super) cpus: Option<Vec<i32>>,
    /// Whether the PMU counts one kind of core, rather than a unit of the machine.
    pub(super) core: bool,
    reach: Reach,
}

/// How events of a PMU are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// From terms and numbers; holds the family that policies use.
    Terms(&'static str),
    /// By another function, which it names: the kernel takes the numbers for addresses, or they do
    /// not belong to a PMU.
    Call(&'static str),
}

impl Reach {
    fn of(name: &str, type_: u32, folder: &Path) -> Reach {
        let begins = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
        match (name, type_) {
            ("software", _) | (_, bindings::PERF_TYPE_SOFTWARE) => Reach::Call("the name of the event"),
            ("tracepoint", _) | (_, bindings::PERF_TYPE_TRACEPOINT) => Reach::Call("`tracepoint`"),
            ("breakpoint", _) | (_, bindings::PERF_TYPE_BREAKPOINT) => Reach::Call("`breakpoint`"),
            ("kprobe", _) => Reach::Call("`kprobe`"),
            ("uprobe", _) => Reach::Call("`uprobe`"),
            (_, bindings::PERF_TYPE_RAW) => Reach::Terms("raw"),
            _ if begins(AUX_PMUS) || writes_traces(folder) => Reach::Terms("aux"),
            ("msr", _) => Reach::Terms("msr"),
            _ if name == "power" || name.starts_with("power_") => Reach::Terms("power"),
            _ if name.starts_with("uncore") || folder.join("cpumask").exists() => Reach::Terms("uncore"),
            _ => Reach::Terms("pmu"),
        }
    }
}

/// Name prefixes of PMUs that write traces into a separate buffer (AUX).
const AUX_PMUS: &[&str] =
    &["intel_pt", "intel_bts", "arm_spe", "arm_trbe", "cs_etm", "coresight", "hisi_ptt"];

/// Whether sysfs marks a PMU as writing traces: it has address filters or AUX capabilities.
fn writes_traces(folder: &Path) -> bool {
    folder.join("nr_addr_filters").exists()
        || file_names(&folder.join("caps")).iter().any(|ability| ability.starts_with("aux"))
}

impl Pmu {
    fn read(name: &str, folder: &Path) -> Option<Pmu> {
        let formats = files(&folder.join("format")).into_iter();
        let type_ = type_of(folder)?;
        Some(Pmu {
            name: name.to_owned(),
            type_,
            reach: Reach::of(name, type_, folder),
            formats: formats.filter_map(|(term, text)| Some((term, Format::parse(&text)?))).collect(),
            events: files(&folder.join("events"))
                .into_iter()
                // `NAME.scale`, `NAME.unit` and similar files describe how a count is displayed.
                .filter(|(event, _)| !event.contains('.'))
                .collect(),
            cpus: cpu_list(folder).as_deref().and_then(cpus),
            core: folder.join(CORES).exists() || name == "cpu",
        })
    }

    /// Returns the names of all terms that an event of this PMU accepts.
    pub(super) fn term_names(&self) -> Vec<String> {
        let fixed = CONFIGS.map(str::to_owned);
        self.formats.keys().chain(self.events.keys()).cloned().chain(fixed).collect()
    }

    /// Returns the encoding of an event of this PMU.
    ///
    /// Errors: as [`Pmu::check`].
    pub(super) fn encoding(&self, config: [u64; 3]) -> Result<Encoding, InvalidEvent> {
        let family = self.check(config)?;
        let kind = EventKind::Counter { type_: self.type_, config };
        let is_it = |terms: &&String| terms::config(self, &EventTable::default(), terms) == Ok(config);
        let event = self.events.iter().find(|(_, terms)| is_it(terms)).map(|(event, _)| event);
        let name = event.map_or_else(|| self.spelled(config), |event| format!("{}/{event}/", self.name));
        let (pmu, is_core) = (self.name.clone(), self.core);
        Ok(Encoding {
            kind,
            pmu: self.cpus.clone().map(|cpus| Located { name: pmu, is_core, cpus }),
            named: Some(EventName { family, name }),
        })
    }

    /// Checks that events of the PMU are made of numbers, and that each set bit belongs to a term. Returns
    /// the family.
    ///
    /// Errors: [`InvalidEvent::OwnCall`], [`InvalidEvent::NoFormat`], [`InvalidEvent::Bits`].
    pub(super) fn check(&self, config: [u64; 3]) -> Result<&'static str, InvalidEvent> {
        let family = match self.reach {
            Reach::Terms(family) => family,
            Reach::Call(call) => return Err(InvalidEvent::OwnCall { pmu: self.name.clone(), call }),
        };
        if self.formats.is_empty() {
            return Err(InvalidEvent::NoFormat(self.name.clone()));
        }
        for (index, word) in config.iter().enumerate() {
            let terms = self.formats.values().filter(|format| format.word == index);
            let known = terms.fold(0, |bits, format| bits | format.mask());
            if word & !known != 0 {
                let (pmu, word, bits) = (self.name.clone(), CONFIGS[index], word & !known);
                return Err(InvalidEvent::Bits { pmu, word, bits });
            }
        }
        Ok(family)
    }

    /// Formats an event of this PMU by its numbers: `cpu/config=0x1cd,config1=0x3/`.
    pub(super) fn spelled(&self, [config, config1, config2]: [u64; 3]) -> String {
        let more = [("config1", config1), ("config2", config2)];
        let more = more.iter().filter(|(_, value)| *value != 0);
        let more: String = more.map(|(term, value)| format!(",{term}={value:#x}")).collect();
        format!("{}/config={config:#x}{more}/", self.name)
    }

    /// Returns the scale factor and the unit in which `perf` shows an event; None if sysfs has no unit.
    pub(super) fn unit(&self, sysfs: &Sysfs, event: &str) -> Option<String> {
        let events = sysfs.root.join(PMUS).join(&self.name).join("events");
        let unit = text(&events.join(format!("{event}.unit")))?;
        let scale = text(&events.join(format!("{event}.scale")));
        Some(scale.map_or(unit.clone(), |scale| format!("{scale} {unit}")))
    }
}

/// Destination of a term's value: bits of `config` (0), `config1` (1) or `config2` (2), the lowest first.
/// Terms of other fields are not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    /// Index of the config word, 0 to 2.
    pub(super) word: usize,
    /// Ranges of bits, both ends included.
    bits: Vec<(u32, u32)>,
}

impl Format {
    /// Parses `config:0-7,32-35` or `config1:21`.
    fn parse(text: &str) -> Option<Format> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = CONFIGS.iter().position(|config| *config == word)?;
        let range = |range: &str| {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
            (low <= high && high < u64::BITS).then_some((low, high))
        };
        Some(Format { word, bits: bits.split(',').map(range).collect::<Option<_>>()? })
    }

    /// Returns the mask of the word's bits that the term fills.
    fn mask(&self) -> u64 {
        let mask = |(low, high): &(u32, u32)| (u64::MAX >> (u64::BITS - (high - low + 1))) << low;
        self.bits.iter().map(mask).fold(0, |bits, mask| bits | mask)
    }

    /// Number of bits of the value.
    fn width(&self) -> u32 {
        self.bits.iter().map(|(low, high)| high - low + 1).sum()
    }

    /// Returns `into` with the value in the term's bits. None if the value is too large.
    pub(super) fn put(&self, value: u64, into: u64) -> Option<u64> {
        let width = self.width();
        if width < u64::BITS && value >> width != 0 {
            return None;
        }
        let mut rest = value;
        let mut word = into;
        for &(low, high) in &self.bits {
            let count = high - low + 1;
            let mask = u64::MAX >> (u64::BITS - count);
            word = word & !(mask << low) | (rest & mask) << low;
            rest = rest.checked_shr(count).unwrap_or(0);
        }
        Some(word)
    }

    /// Returns the largest value that the term can hold.
    pub(super) fn largest(&self) -> u64 {
        u64::MAX.checked_shr(u64::BITS.saturating_sub(self.width())).unwrap_or(0)
    }
}

/// Names of the config words, by [`Format::word`].
pub(super) const CONFIGS: [&str; 3] = ["config", "config1", "config2"];

/// The file in a PMU's directory that lists the CPUs of its kind of core.
const CORES: &str = "cpus";

/// Returns the CPUs of the PMU's kind of core, or those that its events are opened on, in the kernel's
/// format.
fn cpu_list(pmu: &Path) -> Option<String> {
    text(&pmu.join(CORES)).or_else(|| text(&pmu.join("cpumask")))
}

fn type_of(pmu: &Path) -> Option<u32> {
    text(&pmu.join("type"))?.parse().ok()
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns names and contents of a directory's files; empty if the directory does not exist.
fn files(folder: &Path) -> Vec<(String, String)> {
    file_names(folder)
        .into_iter()
        .filter_map(|name| Some((name.clone(), text(&folder.join(name))?)))
        .collect()
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Parses a CPU list: `0-3,8` is 0 to 3 and 8. None if it is malformed.
pub(super) fn cpus(list: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (i32, i32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // No machine has more CPUs.
        if !(0..=last).contains(&first) || last > 1 << 20 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_fills_its_bits_from_the_lowest() {
        let event = Format::parse("config:0-7,32-35\n").unwrap();
        assert_eq!((event.word, event.largest()), (0, 0xfff));
        assert_eq!(event.put(0xabc, 0), Some(0xa_0000_00bc));
        assert_eq!(event.put(0x1000, 0), None, "12 bits hold no more");
        assert_eq!(event.put(0, 0xff_ffff_ffff), Some(0xf0_ffff_ff00));
        let whole = Format::parse("config2:0-63").unwrap();
        assert_eq!((whole.word, whole.put(u64::MAX, 0)), (2, Some(u64::MAX)));
        assert_eq!(Format::parse("config1:21").unwrap().put(1, 0), Some(1 << 21));
        assert_eq!((event.mask(), whole.mask()), (0xf_0000_00ff, u64::MAX));
        for bad in
            ["config3:0-7", "config", "config:", "config:7-0", "config:64", "other:0-7", "config:0-7,x"]
        {
            assert_eq!(Format::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpus("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(cpus("0"), Some(vec![0]));
        assert_eq!(cpus(""), None);
        assert_eq!(cpus("3-1"), None);
        assert_eq!(cpus("0-99999999"), None);
    }

    #[test]
    fn this_machine_publishes_its_software_pmu() {
        let sysfs = Sysfs::default();
        assert_eq!(sysfs.pmu("software").map(|pmu| pmu.type_), Some(1));
        assert_eq!(sysfs.pmu_of_type(1).as_deref(), Some("software"));
        assert!(sysfs.online_cpus().contains(&0));
        assert_eq!(sysfs.pmu(".."), None);
        assert_eq!(sysfs.pmu("no_such_pmu"), None);
    }
}
