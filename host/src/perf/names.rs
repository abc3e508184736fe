//! The events that the kernel's header names, in the language's spelling and in that of `perf list`.
//!
//! Comparison ignores case, and `-` equals `_`.
//!
//! Source: `enum perf_hw_id`, `perf_sw_ids`, `perf_hw_cache_id` of `include/uapi/linux/perf_event.h`, v6.18;
//! `tools/perf/util/evsel.c` for the spellings of `perf list`.

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CACHE_MAX, PERF_COUNT_HW_CACHE_OP_MAX, PERF_COUNT_HW_CACHE_RESULT_MAX, PERF_TYPE_HARDWARE,
    PERF_TYPE_HW_CACHE, PERF_TYPE_SOFTWARE,
};

use crate::near::normal;

/// One row: type, config, the language's name, and the names of `perf list`.
struct NamedEvent {
    type_: u32,
    config: u64,
    name: &'static str,
    aliases: &'static [&'static str],
}

const fn hardware(config: u64, name: &'static str, aliases: &'static [&'static str]) -> NamedEvent {
    NamedEvent { type_: PERF_TYPE_HARDWARE, config, name, aliases }
}

const fn software(config: u64, name: &'static str, aliases: &'static [&'static str]) -> NamedEvent {
    NamedEvent { type_: PERF_TYPE_SOFTWARE, config, name, aliases }
}

const EVENTS: [NamedEvent; 22] = [
    hardware(0, "cpu_cycles", &["cycles"]),
    hardware(1, "instructions", &[]),
    hardware(2, "cache_references", &[]),
    hardware(3, "cache_misses", &[]),
    hardware(4, "branch_instructions", &["branches"]),
    hardware(5, "branch_misses", &[]),
    hardware(6, "bus_cycles", &[]),
    hardware(7, "stalled_cycles_frontend", &["idle_cycles_frontend"]),
    hardware(8, "stalled_cycles_backend", &["idle_cycles_backend"]),
    hardware(9, "ref_cpu_cycles", &["ref_cycles"]),
    software(0, "cpu_clock", &[]),
    software(1, "task_clock", &[]),
    software(2, "page_faults", &["faults"]),
    software(3, "context_switches", &["cs"]),
    software(4, "cpu_migrations", &["migrations"]),
    software(5, "page_faults_min", &["minor_faults"]),
    software(6, "page_faults_maj", &["major_faults"]),
    software(7, "alignment_faults", &[]),
    software(8, "emulation_faults", &[]),
    software(9, "dummy", &[]),
    software(10, "bpf_output", &[]),
    software(11, "cgroup_switches", &[]),
];

const CACHES: [&str; PERF_COUNT_HW_CACHE_MAX as usize] =
    ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
const CACHE_OPS: [&str; PERF_COUNT_HW_CACHE_OP_MAX as usize] = ["load", "store", "prefetch"];
const CACHE_RESULTS: [&str; PERF_COUNT_HW_CACHE_RESULT_MAX as usize] = ["access", "miss"];

/// The language's names of the caches (`hw_cache`), in the same order.
const LANGUAGE_CACHES: [&str; CACHES.len()] = ["l1d", "l1i", "ll", "dtlb", "itlb", "bpu", "node"];
const LANGUAGE_OPS: [&str; CACHE_OPS.len()] = ["read", "write", "prefetch"];
const LANGUAGE_RESULTS: [&str; CACHE_RESULTS.len()] = ["access", "miss"];

/// Returns the type and config of the event with this name.
pub(super) fn find(name: &str) -> Option<(u32, u64)> {
    let wanted = normal(name);
    let generic =
        EVENTS.iter().find(|event| event.name == wanted || event.aliases.contains(&wanted.as_str()));
    match generic {
        Some(event) => Some((event.type_, event.config)),
        None => cache_events()
            .find(|(_, name)| normal(name) == wanted)
            .map(|(config, _)| (PERF_TYPE_HW_CACHE, config)),
    }
}

/// Returns the name of the event with these numbers: the language's for generic events, that of `perf list`
/// for cache events.
pub(super) fn name_of(type_: u32, config: u64) -> Option<String> {
    if type_ == PERF_TYPE_HW_CACHE {
        return cache_events().find(|(cache, _)| *cache == config).map(|(_, name)| name);
    }
    EVENTS
        .iter()
        .find(|event| event.type_ == type_ && event.config == config)
        .map(|event| event.name.to_owned())
}

/// Returns every name of an event that the kernel's header defines: the language's, then those of `perf
/// list`.
pub(super) fn all() -> impl Iterator<Item = String> {
    let generic =
        EVENTS.iter().flat_map(|event| std::iter::once(event.name).chain(event.aliases.iter().copied()));
    generic.map(str::to_owned).chain(cache_events().map(|(_, name)| name))
}

/// Returns every event that the kernel's header defines: type, config, the language's name, that of `perf
/// list`.
pub(super) fn defined() -> impl Iterator<Item = (u32, u64, String, String)> {
    let generic = EVENTS.iter().map(|event| {
        let listed = event.name.replace('_', "-");
        (event.type_, event.config, event.name.to_owned(), listed)
    });
    let cache = cache_events().map(|(config, name)| {
        let [cache, op, result] = [0, 8, 16].map(|shift| (config >> shift & 0xff) as usize);
        let names = (LANGUAGE_CACHES[cache], LANGUAGE_OPS[op], LANGUAGE_RESULTS[result]);
        let call = format!("hw_cache(\"{}\", \"{}\", \"{}\")", names.0, names.1, names.2);
        (PERF_TYPE_HW_CACHE, config, call, name)
    });
    generic.chain(cache)
}

/// Returns every cache event: config and name.
fn cache_events() -> impl Iterator<Item = (u64, String)> {
    (0_u64..).zip(CACHES).flat_map(|(cache, cache_name)| {
        (0_u64..).zip(CACHE_OPS).flat_map(move |(op, op_name)| {
            (0_u64..).zip(CACHE_RESULTS).map(move |(result, result_name)| {
                let name = match (op_name, result_name) {
                    (op, "miss") => format!("{cache_name}-{op}-misses"),
                    ("prefetch", _) => format!("{cache_name}-prefetches"),
                    (op, _) => format!("{cache_name}-{op}s"),
                };
                (cache | op << 8 | result << 16, name)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event_open_sys::bindings::{
        PERF_COUNT_HW_MAX, PERF_COUNT_HW_REF_CPU_CYCLES, PERF_COUNT_SW_CGROUP_SWITCHES, PERF_COUNT_SW_MAX,
    };

    #[test]
    fn both_spellings_name_the_same_event() {
        for (spellings, numbers) in [
            (&["cpu_cycles", "cpu-cycles", "cycles", "CPU-Cycles"][..], (0, 0)),
            (&["branch_instructions", "branch-instructions", "branches"], (0, 4)),
            (&["ref_cpu_cycles", "ref-cycles"], (0, u64::from(PERF_COUNT_HW_REF_CPU_CYCLES))),
            (&["page_faults", "page-faults", "faults"], (1, 2)),
            (&["context-switches", "cs"], (1, 3)),
            (&["cpu-migrations", "migrations"], (1, 4)),
            (&["page_faults_min", "minor-faults"], (1, 5)),
            (&["page_faults_maj", "major-faults"], (1, 6)),
            (&["cgroup-switches"], (1, u64::from(PERF_COUNT_SW_CGROUP_SWITCHES))),
            (&["L1-dcache-load-misses", "l1_dcache_load_misses"], (3, 0x1_00_00)),
            (&["dTLB-store-misses"], (3, 0x1_01_03)),
            (&["LLC-prefetches"], (3, 0x0_02_02)),
        ] {
            for spelling in spellings {
                assert_eq!(find(spelling), Some(numbers), "{spelling}");
            }
        }
    }

    #[test]
    fn every_config_of_the_header_has_a_name_that_finds_it() {
        let generic = (0..u64::from(PERF_COUNT_HW_MAX))
            .map(|config| (PERF_TYPE_HARDWARE, config))
            .chain((0..u64::from(PERF_COUNT_SW_MAX)).map(|config| (PERF_TYPE_SOFTWARE, config)));
        let cache = (0..u64::from(PERF_COUNT_HW_CACHE_MAX))
            .flat_map(|cache| [0, 1 << 8, 2 << 8].map(|op| cache | op))
            .flat_map(|cache| [0, 1 << 16].map(|result| cache | result))
            .map(|config| (PERF_TYPE_HW_CACHE, config));
        for (type_, config) in generic.chain(cache) {
            let name = name_of(type_, config).unwrap_or_else(|| panic!("{type_}/{config:#x} has no name"));
            assert_eq!(find(&name), Some((type_, config)), "{name}");
        }
    }
}
