//! Names of machines that this one is not.

use std::fs;
use std::path::PathBuf;

use super::*;

/// A sysfs with these files, removed when dropped.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks-sysfs-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let file = root.join("bus/event_source/devices").join(path);
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

/// An Intel server with one memory controller.
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

fn counter(event: &Event) -> (u32, [u64; 4]) {
    match event.kind() {
        Kind::Counter { type_, config } => (*type_, *config),
        other => panic!("not a counter: {other:?}"),
    }
}

#[test]
fn terms_fill_the_words_that_the_format_names() {
    let tree = server();
    let catalog = tree.catalog();
    let words = |name: &str| counter(&catalog.named(name).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(words("cpu/event=0x3c,umask=1/"), (4, [0x13c, 0, 0, 0]));
    assert_eq!(words("cpu/event=0x3c,inv,cmask=2/u"), (4, [0x0280_003c, 0, 0, 0]));
    assert_eq!(words("cpu/mem-loads/pp"), (4, [0x1cd, 3, 0, 0]));
    assert_eq!(words("cpu/mem-loads,ldlat=30/"), (4, [0x1cd, 30, 0, 0]), "a later term wins");
    assert_eq!(words("cpu/config=0x1ff,config1=7,config2=8,config3=9/"), (4, [0x1ff, 7, 8, 9]));
    assert_eq!(words("mem-loads"), (4, [0x1cd, 3, 0, 0]), "the core's PMU may be left out");
    assert_eq!(words("CYCLE_ACTIVITY.STALLS"), (4, [0x0400_04a3, 0, 0, 0]));
    assert_eq!(words("cpu/cycle_activity.stalls/k"), (4, [0x0400_04a3, 0, 0, 0]));
    assert_eq!(words("r1a8"), (4, [0x1a8, 0, 0, 0]));
}

#[test]
fn an_uncore_event_counts_on_the_cpus_of_its_pmu() {
    let tree = server();
    let event = tree.catalog().named("uncore_imc/cas_count_read/").unwrap();
    assert_eq!((counter(&event), event.cpus()), ((14, [0x304, 0, 0, 0]), Some(&[0, 18][..])));
    let of_table = tree.catalog().named("UNC_M_CAS").unwrap();
    assert_eq!(counter(&of_table), (14, [0xf04, 0, 0, 0]));
}

#[test]
fn what_is_unknown_is_refused_with_what_is_near() {
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
    assert_eq!(counter(&named("cache-misses:u")), (0, [3, 0, 0, 0]));
    assert_eq!(named("cache-misses:u").name(), "cache-misses:u");
    let options = named("cache-misses:upp").options(&Default::default());
    assert!(options.exclude_kernel && !options.exclude_user && options.precise == 2);
    assert_eq!(counter(&named("L1-dcache-load-misses:k")), (3, [0x1_00_00, 0, 0, 0]));
    assert_eq!(
        named("mem:0x7f00/2:w").kind(),
        Event::breakpoint(0x7f00, 2, Access { write: true, ..Access::default() }).unwrap().kind()
    );
    for bad in ["mem:", "mem:x:w", "mem:0x10/3:w", "faults:", "page-faults:z"] {
        let refused = catalog.named(bad);
        assert!(bad == "faults:" || refused.is_err(), "{bad}: {refused:?}");
    }
}
