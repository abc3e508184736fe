//! Every family of events, with workloads of known counts: a chosen number of system calls, of calls of a
//! function, of accesses to a word.

use std::sync::atomic::AtomicU64;

use crate::perf_support::{fault, own_thread, store};
use ks_host::perf::{Access, Attachments, Catalog, ErrorKind, Event, Options};

/// Makes a system call that nothing else in this thread makes, this many times.
fn ask_for_parent(times: u64) {
    for _ in 0..times {
        nix::unistd::getppid();
    }
}

/// A function whose calls probes count.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn ks_perf_events_probed(number: u64) -> u64 {
    std::hint::black_box(number + 1)
}

fn counted(event: &Event, work: impl FnOnce()) -> u64 {
    let mut attachments = Attachments::new();
    let id = attachments.open(event, &own_thread(), None, None).unwrap_or_else(|error| panic!("{error}"));
    work();
    attachments.read(id).unwrap().raw
}

#[test]
fn root_a_tracepoint_counts_its_hits() {
    let catalog = Catalog::default();
    let event = catalog.tracepoint("syscalls/sys_enter_getppid").unwrap();
    assert_eq!(counted(&event, || ask_for_parent(123)), 123);
    let listed = catalog.named("syscalls:sys_enter_getppid").unwrap();
    assert_eq!(counted(&listed, || ask_for_parent(7)), 7);
}

#[test]
fn root_numbers_count_what_they_stand_for() {
    let catalog = Catalog::default();
    let faults = counted(&catalog.raw(1, [2, 0, 0]).unwrap(), || fault(200));
    assert!((200..400).contains(&faults), "{faults}");
    assert_eq!(catalog.numbered(1, 2).unwrap().name(), "page_faults");
}

#[test]
fn root_a_breakpoint_counts_accesses_to_its_address() {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let address = WORD.as_ptr() as u64;
    let stores = Access { write: true, ..Access::default() };
    assert_eq!(counted(&Event::breakpoint(address, 8, stores).unwrap(), || store(&WORD, 77)), 77);
    let by_name = Event::named(&format!("mem:{address:#x}/8:w")).unwrap();
    assert_eq!(counted(&by_name, || store(&WORD, 78)), 78);
}

/// Without kprobes nothing can probe the kernel's code, but breakpoints can observe its data.
#[test]
fn root_a_symbol_of_the_kernel_can_be_watched() {
    let symbol = if cfg!(target_arch = "x86_64") { "__x64_sys_getppid" } else { "__arm64_sys_getppid" };
    let execute = Access { execute: true, ..Access::default() };
    let event = Catalog::default().breakpoint_at(symbol, 8, execute).unwrap();
    assert_eq!(event.name(), format!("breakpoint:{symbol}:8:x"));
    match Attachments::new().open(&event, &own_thread(), None, None) {
        Ok(_) => assert_eq!(counted(&event, || ask_for_parent(31)), 31),
        Err(error) => assert!(error.to_string().contains("CONFIG_KPROBES"), "{error}"),
    }
    let stores = Access { write: true, ..Access::default() };
    let constant = Catalog::default().breakpoint_at("__start_rodata", 8, stores).unwrap();
    assert_eq!(counted(&constant, || ask_for_parent(1)), 0);
    let missing = Catalog::default().breakpoint_at("no_such_symbol", 8, execute).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn root_a_function_of_a_program_counts_its_calls() {
    let own = std::env::current_exe().unwrap();
    let attach_point = format!("{}:ks_perf_events_probed", own.display());
    let event = Catalog::default().uprobe(&attach_point).unwrap();
    let calls = || (0..55).fold(0, |sum, number| sum + ks_perf_events_probed(number));
    assert_eq!(counted(&event, || assert!(calls() > 0)), 55);
    let error = Catalog::default().uprobe(&format!("{attach_point}+0xfffffff")).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::DeniedByPolicy, None), "{error}");
}

#[test]
fn root_an_event_of_a_pmu_counts_by_its_name() {
    let catalog = Catalog::default();
    let listed = catalog.list("msr/tsc/");
    let Some(tsc) = listed.first() else {
        // Only x86 has this PMU, and its events depend on the machine.
        assert_ne!(std::env::consts::ARCH, "x86_64", "no PMU `msr`");
        return;
    };
    let event = catalog.named(&tsc.perf).unwrap();
    let mut attachments = Attachments::new();
    let clock = attachments.open(&event, &Options::default(), None, None).unwrap();
    let first = attachments.read(clock).unwrap().raw;
    let second = attachments.read(clock).unwrap().raw;
    assert!(second > first && first > 0, "{first} {second}");
}

#[test]
fn root_a_cache_event_counts_or_names_what_is_missing() {
    let event = Event::named("LLC-load-misses").unwrap();
    let mut attachments = Attachments::new();
    match attachments.open(&event, &own_thread(), None, None) {
        Ok(id) => assert!(attachments.read(id).is_ok()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("`LLC-load-misses`"), "{error}");
            assert!(error.to_string().contains("page_faults"), "{error}");
        }
    }
}

#[test]
fn root_a_kernel_function_is_probed_or_the_missing_pmu_is_named() {
    let catalog = Catalog::default();
    match catalog.kprobe("vfs_read") {
        Ok(event) => assert!(counted(&event, || drop(std::fs::read("/proc/self/stat"))) > 0),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains("no PMU named `kprobe`"), "{error}");
        }
    }
}

#[test]
fn root_unknown_tracepoints_come_with_near_ones() {
    let error = Catalog::default().named("sched:sched_swich").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("sched/sched_switch"), "{error}");
}

/// A tracepoint fires in the kernel: excluding the kernel would silently count 0.
#[test]
fn root_a_tracepoint_without_the_kernel_is_refused() {
    let event = Event::named("syscalls:sys_enter_getppid:u").unwrap();
    let error = Attachments::new().open(&event, &own_thread(), None, None).unwrap_err();
    assert!(error.to_string().contains("silent 0"), "{error}");
}
