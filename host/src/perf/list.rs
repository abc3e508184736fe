//! Lists every event that this machine names.

use std::fmt;

use perf_event_open_sys::bindings;

use super::attachments::Attachments;
use super::attr::Options;
use super::catalog::Catalog;
use super::error::{ErrorKind, PerfError};
use super::event::Event;
use super::names;
use crate::near::{near, normal};
use crate::pattern::Pattern;
use crate::tracefs;

/// The family of a listed event, in the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Counted by the CPU; a general name of the kernel.
    Hardware,
    /// Counted by the kernel itself.
    Software,
    /// An operation of the CPU's caches.
    Cache,
    /// Named by a PMU in sysfs.
    Pmu,
    /// Named by a vendor table.
    Table,
    /// A static tracepoint of the kernel.
    Tracepoint,
    /// A form with a parameter: a breakpoint, a probe, a raw code.
    Form,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Family::Hardware => "hardware",
            Family::Software => "software",
            Family::Cache => "cache",
            Family::Pmu => "pmu",
            Family::Table => "table",
            Family::Tracepoint => "tracepoint",
            Family::Form => "form",
        })
    }
}

/// One event of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEvent {
    /// As a script writes it: `cache_misses`, `tracepoint("sched/sched_switch")`, `pmu("msr/tsc/")`.
    pub name: String,
    /// As `perf list` writes it: `cache-misses`, `sched:sched_switch`, `msr/tsc/`.
    pub perf: String,
    /// The event's family, by which the list is ordered first.
    pub family: Family,
    /// The PMU that counts the event, as named in sysfs; several kinds of core are separated by commas. None
    /// if no PMU is named.
    pub pmu: Option<String>,
    /// Description from a vendor table, or the unit that a PMU assigns to its counts. Empty if there is
    /// neither.
    pub description: String,
}

/// Forms for events that are too many to list.
const FORMS: [(&str, &str, &str); 6] = [
    ("raw_event(4, 0x3c)", "r3c", "a code of the CPU's manual, by the number of its PMU"),
    ("syscall_event(\"openat\")", "syscalls:sys_enter_openat", "calls of a system call"),
    ("breakpoint(0x7f00, 4, \"w\")", "mem:0x7f00/4:w", "accesses to an address"),
    ("kprobe_event(\"vfs_read\")", "probe:vfs_read", "calls of a function of the kernel"),
    ("uprobe_event(\"/bin/sh:main\")", "probe_sh:main", "calls of a function of a program"),
    ("pmu(\"cpu/event=0x3c/\")", "cpu/event=0x3c/", "terms of a PMU, as its folder `format` names them"),
];

impl Catalog {
    /// Returns the events of which one of the two spellings matches the wildcard (`*`: any text, `?`: any
    /// character; case is ignored, and `-` equals `_`), in the order of families and names. An empty wildcard
    /// matches all.
    ///
    /// Tracepoints are left out if tracefs can be neither read nor mounted.
    pub fn list(&self, wildcard: &str) -> Vec<ListedEvent> {
        // An alias of an event (`cycles`) selects that event.
        let meant = names::find(wildcard);
        let meant = meant.and_then(|numbers| names::defined().find(|(t, c, ..)| (*t, *c) == numbers));
        let wildcard = meant.as_ref().map_or(wildcard, |(.., perf)| perf);
        let mut listed = self.of_header();
        listed.extend(self.of_each_core());
        listed.extend(self.of_pmus());
        listed.extend(self.table.events().map(|event| ListedEvent {
            name: format!("pmu(\"{}\")", event.name),
            perf: event.name.to_ascii_lowercase(),
            family: Family::Table,
            pmu: event.unit.as_deref().map(super::terms::pmu_of_unit),
            description: event.description.clone(),
        }));
        listed.extend(tracefs::tracepoints().unwrap_or_default().into_iter().map(|name| ListedEvent {
            perf: name.replacen('/', ":", 1),
            name: format!("tracepoint(\"{name}\")"),
            family: Family::Tracepoint,
            pmu: None,
            description: String::new(),
        }));
        listed.extend(FORMS.map(|(name, perf, description)| ListedEvent {
            name: name.to_owned(),
            perf: perf.to_owned(),
            family: Family::Form,
            pmu: None,
            description: description.to_owned(),
        }));
        if !wildcard.is_empty() {
            let pattern = Pattern::new(&normal(wildcard));
            listed.retain(|event| event.matches(&pattern));
        }
        listed.sort_by(|a, b| (a.family, &a.name).cmp(&(b.family, &b.name)));
        listed
    }

    /// Suggests at most three names for a wildcard that matches nothing: similar names, else names that
    /// contain it.
    pub fn near(&self, wildcard: &str) -> Vec<String> {
        let stem = wildcard.replace(['*', '?'], "");
        let all = self.list("");
        let spelled = |event: &ListedEvent| {
            let (own, perf) = (event.inner().to_owned(), event.perf.clone());
            if normal(&own) == normal(&perf) { vec![own] } else { vec![own, perf] }
        };
        let found = near(&stem, all.iter().flat_map(spelled));
        if !found.is_empty() || stem.is_empty() {
            return found;
        }
        let anywhere = Pattern::new(&normal(&format!("*{stem}*")));
        let with_it = all.iter().filter(|event| event.matches(&anywhere)).take(3);
        with_it.map(|event| event.perf.clone()).collect()
    }

    fn of_header(&self) -> Vec<ListedEvent> {
        let cores: Vec<String> = self.core_pmus().map(|pmu| pmu.name).collect();
        let core = Some(cores.join(",")).filter(|cores| !cores.is_empty());
        let families = [Family::Hardware, Family::Software, Family::Tracepoint, Family::Cache];
        names::defined()
            .map(|(type_, _, name, perf)| {
                let family = families[type_ as usize];
                let pmu = if family == Family::Software { Some("software".to_owned()) } else { core.clone() };
                ListedEvent { name, perf, family, pmu, description: String::new() }
            })
            .collect()
    }

    /// Returns the general events of each kind of core if there are several, without names that the PMU
    /// defines itself.
    fn of_each_core(&self) -> Vec<ListedEvent> {
        let pmus = self.core_pmus().collect::<Vec<_>>();
        let of_pmu = pmus.iter().flat_map(|pmu| names::defined().map(move |event| (pmu, event)));
        of_pmu
            .filter(|(pmu, (.., perf))| self.general_on(pmu, perf).is_some())
            .map(|(pmu, (type_, _, _, perf))| ListedEvent {
                name: format!("pmu(\"{}/{perf}/\")", pmu.name),
                perf: format!("{}/{perf}/", pmu.name),
                family: if type_ == bindings::PERF_TYPE_HARDWARE { Family::Hardware } else { Family::Cache },
                pmu: Some(pmu.name.clone()),
                description: String::new(),
            })
            .collect()
    }

    fn of_pmus(&self) -> Vec<ListedEvent> {
        let pmus = self.sysfs.pmu_names().into_iter().filter_map(|name| self.sysfs.pmu(&name));
        pmus.flat_map(|pmu| {
            let one = |event: &String| ListedEvent {
                name: format!("pmu(\"{}/{event}/\")", pmu.name),
                perf: format!("{}/{event}/", pmu.name),
                family: Family::Pmu,
                pmu: Some(pmu.name.clone()),
                description: pmu.unit(&self.sysfs, event).map_or(String::new(), |unit| format!("in {unit}")),
            };
            pmu.events.keys().map(one).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Returns the reason why a listed event cannot be counted here and now. None if it can be counted, if
    /// only in user code of the own tasks (`exclude_kernel`). A listed tracepoint can be counted if its
    /// number can be read; a probe if the kernel has its PMU.
    pub fn why_not(&self, listed: &ListedEvent) -> Option<PerfError> {
        let event = match listed.family {
            Family::Form if listed.name.starts_with("kprobe") => return self.pmu("kprobe").err(),
            Family::Form if listed.name.starts_with("uprobe") => return self.pmu("uprobe").err(),
            Family::Tracepoint => return self.named(&listed.perf).err(),
            _ => match self.named(&listed.perf) {
                Ok(event) => event,
                Err(error) => return Some(error),
            },
        };
        let of_task = Options { pid: 0, cpu: -1, ..Options::default() };
        let refused = self.try_open(&event, &of_task)?;
        // A user who may not count the kernel may still count user code.
        let user = Options { exclude_kernel: true, ..of_task };
        if refused.kind() == ErrorKind::NotPermitted && self.try_open(&event, &user).is_none() {
            return None;
        }
        let cpu = event.cpus(&self.sysfs).and_then(|cpus| cpus.first().copied()).unwrap_or(0);
        // A PMU that counts whole CPUs refuses a task.
        self.try_open(&event, &Options { pid: -1, cpu, ..Options::default() }).map(|_| refused)
    }

    fn try_open(&self, event: &Event, options: &Options) -> Option<PerfError> {
        Attachments::with_sysfs(self.sysfs.clone()).open(event, options, None, None).err()
    }
}

impl ListedEvent {
    /// Returns the name without the surrounding call.
    fn inner(&self) -> &str {
        self.name.split('"').nth(1).unwrap_or(&self.name)
    }

    fn matches(&self, pattern: &Pattern) -> bool {
        [&*self.name, &*self.perf, self.inner()].iter().any(|name| pattern.fits(&normal(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_events_are_listed_in_both_spellings_and_found_by_them() {
        let catalog = Catalog::default();
        let names = |wildcard: &str| -> Vec<String> {
            catalog.list(wildcard).into_iter().map(|listed| listed.name).collect()
        };
        assert_eq!(names("cache_*"), ["cache_misses", "cache_references"]);
        assert_eq!(names("page-faults"), ["page_faults"]);
        assert_eq!(names("cycles"), ["cpu_cycles"]);
        assert!(names("sched/*").contains(&"tracepoint(\"sched/sched_switch\")".to_owned()));
        assert_eq!(names("LLC-load-misses"), ["hw_cache(\"ll\", \"read\", \"miss\")"]);
        assert_eq!(catalog.near("page_fault*").first().map(String::as_str), Some("page_faults"));
        assert_eq!(catalog.near("sched:sched_swich").first().map(String::as_str), Some("sched:sched_switch"));
        assert_eq!(catalog.near("emulation"), ["emulation-faults"]);
        assert!(catalog.near("elephants").is_empty());
        for listed in catalog.list("").iter().filter(|listed| listed.family < Family::Tracepoint) {
            catalog.named(&listed.perf).unwrap_or_else(|error| panic!("{listed:?}: {error}"));
        }
    }

    #[test]
    fn root_countable_events_are_reported() {
        let catalog = Catalog::default();
        let why_not = |name: &str| catalog.why_not(&catalog.list(name)[0]);
        assert_eq!(why_not("page_faults"), None);
        assert_eq!(why_not("sched:sched_switch"), None);
        let has_kprobes = catalog.pmu("kprobe").is_ok();
        assert_eq!(why_not("probe:vfs_read").is_none(), has_kprobes);
        assert_eq!(why_not("mem:0x7f00/4:w"), None);
        assert_eq!(why_not("syscall_event*"), None);
        if catalog.core_pmus().next().is_none() {
            assert!(
                why_not("cpu_cycles").is_some_and(|error| error.to_string().contains("no hardware counters"))
            );
        }
    }
}
