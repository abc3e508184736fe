//! Tests of the catalog with the sysfs of other machines.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::perf::encoding::Encoding;
use crate::perf::locations::CpuAndTask;

/// A temporary sysfs with these PMU files. A path after a `:` is relative to the root of sysfs. Removed when
/// dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks-sysfs-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let file = match path.split_once(':') {
                Some((_, elsewhere)) => root.join(elsewhere),
                None => root.join("bus/event_source/devices").join(path),
            };
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Tree(root)
    }

    fn catalog(&self) -> Catalog {
        let mut table = EventTable::default();
        table
            .add(
                r#"[{ "EventName": "CYCLE_ACTIVITY.STALLS", "EventCode": "0xa3", "UMask": "0x4", "CounterMask": "4" },
                    { "EventName": "UNC_M_CAS", "EventCode": "0x4", "UMask": "0xf", "Unit": "iMC" }]"#,
            )
            .unwrap();
        Catalog::new(Sysfs::at(&self.0), table)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A sysfs of an Intel server with one memory controller.
fn server() -> Tree {
    Tree::new(&[
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/cmask", "config:24-31\n"),
        ("cpu/format/inv", "config:23\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("uncore_imc/type", "14\n"),
        ("uncore_imc/cpumask", "0,18\n"),
        ("uncore_imc/format/event", "config:0-7\n"),
        ("uncore_imc/format/umask", "config:8-15\n"),
        ("uncore_imc/events/cas_count_read", "event=0x04,umask=0x03\n"),
        ("uncore_imc/events/cas_count_read.unit", "MiB\n"),
        ("software/type", "1\n"),
    ])
}

fn counter(event: &Event) -> (u32, [u64; 3]) {
    match event.kind() {
        EventKind::Counter { type_, config } => (*type_, *config),
        other => panic!("not a counter: {other:?}"),
    }
}

#[test]
fn terms_fill_the_config_fields_that_the_format_names() {
    let tree = server();
    let catalog = tree.catalog();
    let config = |name: &str| counter(&catalog.named(name).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(config("cpu/event=0x3c,umask=1/"), (4, [0x13c, 0, 0]));
    assert_eq!(config("cpu/event=0x3c,inv,cmask=2/u"), (4, [0x0280_003c, 0, 0]));
    assert_eq!(config("cpu/mem-loads/pp"), (4, [0x1cd, 3, 0]));
    assert_eq!(config("cpu/mem-loads,ldlat=30/"), (4, [0x1cd, 30, 0]), "a later term wins");
    assert_eq!(config("cpu/config=0x1ff,config1=7/"), (4, [0x1ff, 7, 0]));
    assert_eq!(config("mem-loads"), (4, [0x1cd, 3, 0]), "the core's PMU may be left out");
    assert_eq!(config("CYCLE_ACTIVITY.STALLS"), (4, [0x0400_04a3, 0, 0]));
    assert_eq!(config("cpu/cycle_activity.stalls/k"), (4, [0x0400_04a3, 0, 0]));
    assert_eq!(config("r1a8"), (4, [0x1a8, 0, 0]));
}

#[test]
fn an_uncore_event_counts_on_the_cpus_of_its_pmu() {
    let tree = server();
    let event = tree.catalog().named("uncore_imc/cas_count_read/").unwrap();
    assert_eq!(
        (counter(&event), event.cpus(&tree.catalog().sysfs)),
        ((14, [0x304, 0, 0]), Some(vec![0, 18]))
    );
    let of_table = tree.catalog().named("UNC_M_CAS").unwrap();
    assert_eq!(counter(&of_table), (14, [0xf04, 0, 0]));
}

#[test]
fn unknown_names_are_refused_with_similar_ones() {
    let tree = server();
    let error = |name: &str| tree.catalog().named(name).unwrap_err().to_string();
    assert!(error("cpu/evnt=1/").contains("such as `event`"), "{}", error("cpu/evnt=1/"));
    assert!(error("cpu/umask=0x100/").contains("up to 0xff"));
    assert!(error("cpu/event=many/").contains("up to 0xff"));
    assert!(error("cpuu/event=1/").contains("`cpu`"));
    assert!(error("uncore_imc/cas_count_reed/").contains("cas_count_read"));
    assert!(error("cpu/event=1/z").contains("modifier"));
    assert!(error("cpu/event=1").contains("pmu/terms/"));
    assert!(error("cache-miss").contains("cache_misses"));
    assert!(error("CYCLE_ACTIVITY.STAL").contains("CYCLE_ACTIVITY.STALLS"));
}

#[test]
fn spellings_of_perf_list_name_the_same_events() {
    let catalog = Catalog::default();
    let named = |name: &str| catalog.named(name).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(counter(&named("cache-misses:u")), (0, [3, 0, 0]));
    assert_eq!(named("cache-misses:u").name(), "cache-misses:u");
    let options = named("cache-misses:upp").options(&Default::default());
    assert!(options.exclude_kernel && !options.exclude_user && options.precise == 2);
    assert_eq!(counter(&named("L1-dcache-load-misses:k")), (3, [0x1_00_00, 0, 0]));
    assert_eq!(
        named("mem:0x7f00/2:w").kind(),
        Event::breakpoint(0x7f00, 2, Access { write: true, ..Access::default() }).unwrap().kind()
    );
    for bad in ["mem:", "mem:x:w", "mem:0x10/3:w", "faults:", "page-faults:z"] {
        let refused = catalog.named(bad);
        assert!(bad == "faults:" || refused.is_err(), "{bad}: {refused:?}");
    }
}

/// A sysfs with PMUs of every kind. The uprobe PMU has the terms of Linux 6.18.
fn zoo() -> Tree {
    Tree::new(&[
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/format/secret", "config3:0-63\n"),
        ("software/type", "1\n"),
        ("tracepoint/type", "2\n"),
        ("tracepoint/format/id", "config:0-63\n"),
        ("breakpoint/type", "5\n"),
        ("kprobe/type", "6\n"),
        ("kprobe/format/retprobe", "config:0\n"),
        ("kprobe/format/function", "config1:0-63\n"),
        ("uprobe/type", "7\n"),
        ("uprobe/format/retprobe", "config:0\n"),
        ("uprobe/format/ref_ctr_offset", "config:32-63\n"),
        ("uprobe/format/path", "config1:0-63\n"),
        ("uprobe/format/offset", "config2:0-63\n"),
        ("intel_pt/type", "8\n"),
        ("intel_pt/format/pt", "config:0\n"),
        ("tracer/type", "9\n"),
        ("tracer/nr_addr_filters", "2\n"),
        ("tracer/format/on", "config:0\n"),
        ("msr/type", "10\n"),
        ("msr/format/event", "config:0-63\n"),
        ("msr/events/tsc", "event=0x00\n"),
        ("power/type", "11\n"),
        ("power/cpumask", "0\n"),
        ("power/format/event", "config:0-7\n"),
        ("uncore_imc/type", "12\n"),
        ("uncore_imc/cpumask", "0\n"),
        ("uncore_imc/format/event", "config:0-7\n"),
        ("amd_df/type", "13\n"),
        ("amd_df/cpumask", "0\n"),
        ("amd_df/format/event", "config:0-7\n"),
        ("ibs_op/type", "14\n"),
        ("ibs_op/format/cnt_ctl", "config:19\n"),
        ("silent/type", "15\n"),
    ])
}

#[test]
fn pmus_whose_numbers_are_addresses_are_reached_by_no_number_and_no_name() {
    let tree = zoo();
    let catalog = tree.catalog();
    let refused = |event: Result<Event, PerfError>| match event {
        Err(PerfError::InvalidEvent(reason)) => reason.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    for type_ in [1, 2, 5, 6, 7] {
        for config in [[0, 0x7fff_0000_0000, 0x1000], [1 << 32, 0x1000, 0], [0, 1, 0]] {
            refused(catalog.raw(type_, config));
        }
    }
    for type_ in [2, 5, 6, 7] {
        refused(catalog.numbered(type_, 0));
    }
    for name in [
        "uprobe/path=0x7fff0000,offset=0x1000/",
        "uprobe/config1=0x7fff0000,config2=0x1000/",
        "uprobe/ref_ctr_offset=4096/",
        "uprobe/retprobe/u",
        "kprobe/function=0x7fff0000/",
        "kprobe/config=0/",
        "tracepoint/id=7/",
        "tracepoint/config=7/",
        "breakpoint/config1=0x7fff0000/",
        "software/config=2/",
    ] {
        refused(catalog.named(name));
    }
    // The upper half of a general event's config selects a core PMU.
    for core in [6_u64, 7, 10, 12] {
        assert_eq!(catalog.numbered(0, core << 32 | 3), Err(PerfError::UnknownPmu { type_: core as u32 }));
    }
}

#[test]
fn each_bit_is_one_of_a_term() {
    let tree = zoo();
    let catalog = tree.catalog();
    let bits = |event: Result<Event, PerfError>| match event {
        Err(PerfError::InvalidEvent(InvalidEvent::Bits { word, bits, .. })) => (word, bits),
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(bits(catalog.raw(4, [0x1_003c, 0, 0])), ("config", 0x1_0000));
    assert_eq!(bits(catalog.raw(4, [0x3c, 0xf_0000, 0])), ("config1", 0xf_0000));
    assert_eq!(bits(catalog.raw(10, [0, 1, 0])), ("config1", 1));
    assert_eq!(bits(catalog.raw(12, [0, 0, 1 << 63])), ("config2", 1 << 63));
    assert_eq!(bits(catalog.named("r1003c")), ("config", 0x1_0000));
    assert_eq!(bits(catalog.named("cpu/event=0x3c,config2=1/")), ("config2", 1));
    assert_eq!(bits(catalog.named("msr/tsc,config1=4/")), ("config1", 4));
    for name in ["cpu/secret=1/", "cpu/config3=1/"] {
        let unknown = catalog.named(name);
        assert!(matches!(unknown, Err(PerfError::InvalidEvent(InvalidEvent::UnknownTerm { .. }))), "{name}");
    }
    let silent = PerfError::from(InvalidEvent::NoFormat("silent".into()));
    assert_eq!(catalog.numbered(15, 0), Err(silent.clone()));
    assert_eq!(catalog.named("silent/config=0/"), Err(silent));
    for type_ in [0, 1, 3] {
        assert_eq!(catalog.raw(type_, [0, 1, 0]), Err(InvalidEvent::ExtraConfig(type_).into()));
    }
}

#[test]
fn families_and_names_are_the_same_for_all_spellings() {
    let tree = zoo();
    let catalog = tree.catalog();
    let known = |event: Result<Event, PerfError>| {
        let event = event.unwrap_or_else(|error| panic!("{error}"));
        (event.family(), event.targets().join(" "))
    };
    for (event, family, target) in [
        (catalog.named("msr/tsc/"), "msr", "msr/tsc/"),
        (catalog.named("msr/event=0/u"), "msr", "msr/tsc/"),
        (catalog.numbered(10, 0), "msr", "msr/tsc/"),
        (catalog.numbered(10, 7), "msr", "msr/config=0x7/"),
        (catalog.named("power/event=2/"), "power", "power/config=0x2/"),
        (catalog.named("uncore_imc/event=4/"), "uncore", "uncore_imc/config=0x4/"),
        (catalog.numbered(13, 1), "uncore", "amd_df/config=0x1/"),
        (catalog.named("intel_pt/pt/"), "aux", "intel_pt/config=0x1/"),
        (catalog.numbered(9, 1), "aux", "tracer/config=0x1/"),
        (catalog.named("ibs_op/cnt_ctl/"), "pmu", "ibs_op/config=0x80000/"),
        (catalog.named("faults:u"), "software", "page_faults"),
        (catalog.numbered(1, 2), "software", "page_faults"),
        (catalog.named("cycles"), "hardware", "cpu_cycles"),
        (catalog.named("LLC-load-misses"), "cache", "LLC-load-misses"),
        (catalog.named("r3c"), "raw", "r3c"),
        (catalog.raw(4, [0x3c, 3, 0]), "raw", "r3c,config1=0x3,config2=0x0"),
        (catalog.named("cpu/event=0x3c/"), "raw", "cpu/config=0x3c/"),
        (catalog.named("mem:0x7f00/4:w"), "breakpoint", "breakpoint:0x7f00:4:w"),
    ] {
        assert_eq!(known(event), (family, target.to_owned()));
    }
    let laptop = laptop();
    let stores = laptop.catalog().named("mem-stores").unwrap();
    assert_eq!(stores.targets(), ["cpu_atom/mem-stores/", "cpu_core/mem-stores/"]);
    assert_eq!(laptop.catalog().named("cycles").unwrap().targets(), ["cpu_cycles"]);
}

/// A sysfs of an Intel laptop with eight CPUs on four fast cores and four on slow ones.
fn laptop() -> Tree {
    Tree::new(&[
        ("cpu_core/type", "4\n"),
        ("cpu_core/cpus", "0-7\n"),
        ("cpu_core/format/event", "config:0-7\n"),
        ("cpu_core/format/umask", "config:8-15\n"),
        ("cpu_core/format/cmask", "config:24-31\n"),
        ("cpu_core/format/ldlat", "config1:0-15\n"),
        ("cpu_core/events/instructions", "event=0xc0\n"),
        ("cpu_core/events/mem-stores", "event=0xcd,umask=0x2\n"),
        ("cpu_core/events/slots", "event=0x00,umask=0x4\n"),
        ("cpu_atom/type", "10\n"),
        ("cpu_atom/cpus", "8-11\n"),
        ("cpu_atom/format/event", "config:0-7\n"),
        ("cpu_atom/format/umask", "config:8-15\n"),
        ("cpu_atom/events/mem-stores", "event=0xd0,umask=0x6\n"),
        ("software/type", "1\n"),
        (":devices/system/cpu/online", "0-9,11\n"),
    ])
}

/// A sysfs of an arm64 phone with four small cores and two big ones.
fn phone() -> Tree {
    Tree::new(&[
        ("armv8_cortex_a53/type", "7\n"),
        ("armv8_cortex_a53/cpus", "0-3\n"),
        ("armv8_cortex_a53/format/event", "config:0-15\n"),
        ("armv8_cortex_a53/events/cpu_cycles", "event=0x0011\n"),
        ("armv8_cortex_a72/type", "8\n"),
        ("armv8_cortex_a72/cpus", "4-5\n"),
        ("armv8_cortex_a72/format/event", "config:0-15\n"),
        ("armv8_cortex_a72/events/cpu_cycles", "event=0x0011\n"),
        (":devices/system/cpu/online", "0-5\n"),
    ])
}

/// The encoding on each kind of core: PMU, type and config words.
fn on_cores(event: &Event) -> Vec<(&str, u32, [u64; 3])> {
    let one = |encoding: &'_ Encoding| match encoding.kind {
        EventKind::Counter { type_, config } => (type_, config),
        _ => panic!("not a counter: {event:?}"),
    };
    let row = |encoding| {
        let (type_, config) = one(encoding);
        (encoding.core().unwrap_or("every"), type_, config)
    };
    event.encodings.iter().map(row).collect()
}

#[test]
fn an_event_of_several_kinds_of_core_is_asked_for_on_each() {
    let tree = laptop();
    let catalog = tree.catalog();
    let named = |name: &str| catalog.named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let word = |config| [config, 0, 0];
    for event in [named("cache-misses"), named("cache_misses:u"), catalog.numbered(0, 3).unwrap()] {
        let expected = [("cpu_atom", 0, word(10 << 32 | 3)), ("cpu_core", 0, word(4 << 32 | 3))];
        assert_eq!(on_cores(&event), expected, "{event:?}");
    }
    let cache = named("L1-dcache-load-misses");
    let expected = [("cpu_atom", 3, word(10 << 32 | 0x10000)), ("cpu_core", 3, word(4 << 32 | 0x10000))];
    assert_eq!(on_cores(&cache), expected);
    for event in [named("r1a8"), catalog.numbered(4, 0x1a8).unwrap()] {
        assert_eq!(on_cores(&event), [("cpu_atom", 10, word(0x1a8)), ("cpu_core", 4, word(0x1a8))]);
    }
    let stores = [("cpu_atom", 10, word(0x6d0)), ("cpu_core", 4, word(0x2cd))];
    assert_eq!(on_cores(&named("mem-stores")), stores, "each kind has its own code");
    assert_eq!(on_cores(&named("slots")), [("cpu_core", 4, word(0x400))], "one kind has it");
    assert_eq!(on_cores(&named("CYCLE_ACTIVITY.STALLS")), [("cpu_core", 4, word(0x0400_04a3))]);
    assert_eq!(on_cores(&named("page-faults")), [("every", 1, word(2))]);
}

#[test]
fn one_kind_of_core_can_be_named() {
    let tree = laptop();
    let catalog = tree.catalog();
    let named = |name: &str| catalog.named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let atom = [("cpu_atom", 0, [10 << 32 | 3, 0, 0])];
    assert_eq!(on_cores(&named("cpu_atom/cache-misses/")), atom);
    assert_eq!(on_cores(&named("cpu_atom/cache_misses/u")), atom);
    let numbered = catalog.numbered(0, 10 << 32 | 3).unwrap();
    assert_eq!((numbered.name(), on_cores(&numbered)), ("cpu_atom/cache_misses/", atom.to_vec()));
    assert_eq!(numbered.cpus(&catalog.sysfs), Some(vec![8, 9, 10, 11]));
    let core = [("cpu_core", 4, [0xc0, 0, 0])];
    assert_eq!(on_cores(&named("cpu_core/instructions/")), core, "as the PMU itself has it");
    assert_eq!(on_cores(&named("cpu_core/event=0xc0/")), core);
    let other = catalog.named("cpu_atom/slots/").unwrap_err().to_string();
    assert!(other.contains("cpu_atom"), "{other}");
    let label = |event: &Event| event.encodings.iter().map(|one| event.label(one)).collect::<Vec<_>>();
    assert_eq!(label(&named("cycles")), ["cpu_atom/cycles/", "cpu_core/cycles/"]);
    assert_eq!(label(&named("cpu_core/event=0xc0/")), ["cpu_core/event=0xc0/"]);
    // With one kind of core, names have no PMU prefix.
    let server = server();
    assert_eq!(on_cores(&server.catalog().named("cycles").unwrap()), [("every", 0, [0; 3])]);
}

#[test]
fn locations_are_those_of_the_core_types() {
    use crate::perf::Options;
    use crate::perf::error::Refusal;
    use crate::perf::locations::{Surroundings, locations};
    type Spot = (i32, i32, String);

    let spots = |tree: &Tree, event: &str, options: &Options| -> Result<Vec<Spot>, Refusal> {
        let event = tree.catalog().named(event).unwrap_or_else(|error| panic!("{event}: {error}"));
        let surroundings = Surroundings { sysfs: Sysfs::at(&tree.0), ..Surroundings::default() };
        let spot = |location: &CpuAndTask| {
            let encoding = event.encoding_at(location, &surroundings.sysfs).expect("it is counted there");
            (location.task, location.cpu, event.label(encoding))
        };
        Ok(locations(&event, options, &surroundings)?.iter().map(spot).collect())
    };
    let one = |task, cpu, label: &str| (task, cpu, label.to_owned());
    let task = Options { pid: 7, cpu: -1, ..Options::default() };
    let all = Options { every_cpu: true, ..Options::default() };
    let cpu = |cpu| Options { cpu, ..Options::default() };

    let laptop = laptop();
    assert_eq!(
        spots(&laptop, "cycles", &task),
        Ok(vec![one(7, -1, "cpu_atom/cycles/"), one(7, -1, "cpu_core/cycles/")])
    );
    assert_eq!(spots(&laptop, "page-faults", &task), Ok(vec![one(7, -1, "page-faults")]));
    assert_eq!(spots(&laptop, "cpu_core/slots/", &task), Ok(vec![one(7, -1, "cpu_core/slots/")]));
    assert_eq!(spots(&laptop, "cycles", &cpu(9)), Ok(vec![one(-1, 9, "cpu_atom/cycles/")]));
    let on_cpu = Options { cpu: 2, ..task };
    assert_eq!(spots(&laptop, "cycles", &on_cpu), Ok(vec![one(7, 2, "cpu_core/cycles/")]));
    assert_eq!(
        spots(&laptop, "cpu_atom/cycles/", &cpu(2)),
        Err(Refusal::OtherPmuCpu { cpus: vec![8, 9, 10, 11] })
    );
    let fanned = spots(&laptop, "r3c", &all).unwrap();
    let expected =
        (0..=9).chain([11]).map(|cpu| one(-1, cpu, if cpu < 8 { "cpu_core/r3c/" } else { "cpu_atom/r3c/" }));
    assert_eq!(fanned, expected.collect::<Vec<_>>(), "CPU 10 is offline");
    let slots: Vec<i32> = spots(&laptop, "slots", &all).unwrap().iter().map(|(_, cpu, _)| *cpu).collect();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);

    let phone = phone();
    let fanned = spots(&phone, "instructions", &all).unwrap();
    let expected = (0..6).map(|cpu| {
        let pmu = if cpu < 4 { "armv8_cortex_a53" } else { "armv8_cortex_a72" };
        one(-1, cpu, &format!("{pmu}/instructions/"))
    });
    assert_eq!(fanned, expected.collect::<Vec<_>>());
    // A CPU of the other kind joins the PMU after the event was created: sysfs is read again.
    let event = phone.catalog().named("cycles").unwrap();
    fs::write(phone.0.join("bus/event_source/devices/armv8_cortex_a72/cpus"), "4-6\n").unwrap();
    assert_eq!(event.cpus(&phone.catalog().sysfs), Some((0..7).collect()));
}

#[test]
fn kinds_of_core_are_listed_with_what_each_counts() {
    let rows = |tree: &Tree, wildcard: &str| -> Vec<(String, String, Option<String>)> {
        let listed = tree.catalog().list(wildcard).into_iter();
        listed.map(|listed| (listed.name, listed.perf, listed.pmu)).collect()
    };
    let row = |name: &str, perf: &str, pmu: &str| (name.to_owned(), perf.to_owned(), Some(pmu.to_owned()));
    let laptop = laptop();
    assert_eq!(
        rows(&laptop, "*instructions*")[..],
        [
            row("branch_instructions", "branch-instructions", "cpu_atom,cpu_core"),
            row("instructions", "instructions", "cpu_atom,cpu_core"),
            row("pmu(\"cpu_atom/branch-instructions/\")", "cpu_atom/branch-instructions/", "cpu_atom"),
            row("pmu(\"cpu_atom/instructions/\")", "cpu_atom/instructions/", "cpu_atom"),
            row("pmu(\"cpu_core/branch-instructions/\")", "cpu_core/branch-instructions/", "cpu_core"),
            row("pmu(\"cpu_core/instructions/\")", "cpu_core/instructions/", "cpu_core"),
        ]
    );
    assert!(rows(&laptop, "cpu_atom/LLC-load-misses/").len() == 1);
    let server = server();
    assert_eq!(rows(&server, "*instructions*").len(), 2, "one kind of core: once each");
    for tree in [&laptop, &phone()] {
        for listed in tree.catalog().list("").iter().filter(|listed| listed.perf.ends_with('/')) {
            if listed.family == crate::perf::Family::Form {
                continue;
            }
            tree.catalog().named(&listed.perf).unwrap_or_else(|error| panic!("{listed:?}: {error}"));
        }
    }
    assert_eq!(laptop.catalog().core_names(), ["cpu_atom (cpus 8-11)", "cpu_core (cpus 0-7)"]);
    assert_eq!(server.catalog().core_names(), ["cpu"]);
}
