//! Finds the events of the contract's table by their names, in the language's spelling and in that of `perf
//! list`.
//!
//! Comparison ignores case, and `-` equals `_`.

use ks_wit::event::{CACHE_OPS, CACHE_RESULTS, CACHES, CacheTerm, EVENTS, HW_CACHE};

use crate::near::normal;

/// Returns the type and config of the event with this name.
pub(super) fn find(name: &str) -> Option<(u32, u64)> {
    let wanted = normal(name);
    let generic =
        EVENTS.iter().find(|event| event.name == wanted || event.aliases.contains(&wanted.as_str()));
    match generic {
        Some(event) => Some((event.type_, event.config)),
        None => cache_events().find(|(_, name)| normal(name) == wanted).map(|(config, _)| (HW_CACHE, config)),
    }
}

/// Returns the name of the event with these numbers: the language's for generic events, that of `perf list`
/// for cache events.
pub(super) fn name_of(type_: u32, config: u64) -> Option<String> {
    if type_ == HW_CACHE {
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
    let generic = EVENTS.iter();
    let generic = generic.map(|event| (event.type_, event.config, event.name.to_owned(), event.perf_name()));
    let cache = cache_events().map(|(config, name)| {
        let [cache, op, result] = [0, 8, 16].map(|shift| (config >> shift & 0xff) as usize);
        let [cache, op, result] = [CACHES[cache], CACHE_OPS[op], CACHE_RESULTS[result]].map(|term| term.name);
        let call = format!("hw_cache(\"{cache}\", \"{op}\", \"{result}\")");
        (HW_CACHE, config, call, name)
    });
    generic.chain(cache)
}

/// Returns every cache event: config and name.
fn cache_events() -> impl Iterator<Item = (u64, String)> {
    (0_u64..).zip(CACHES).flat_map(|(cache, of_cache)| {
        (0_u64..).zip(CACHE_OPS).flat_map(move |(op, of_op)| {
            (0_u64..).zip(CACHE_RESULTS).map(move |(result, of_result)| {
                (cache | op << 8 | result << 16, cache_event_name(of_cache, of_op, of_result))
            })
        })
    })
}

/// Returns the name of a cache event in `perf list`: `L1-dcache-load-misses`.
fn cache_event_name(cache: CacheTerm, op: CacheTerm, result: CacheTerm) -> String {
    match (op.perf, result.perf) {
        (op, "miss") => format!("{}-{op}-misses", cache.perf),
        ("prefetch", _) => format!("{}-prefetches", cache.perf),
        (op, _) => format!("{}-{op}s", cache.perf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ks_wit::event::{HARDWARE, SOFTWARE};
    use perf_event_open_sys::bindings::{
        PERF_COUNT_HW_CACHE_MAX, PERF_COUNT_HW_CACHE_OP_MAX, PERF_COUNT_HW_CACHE_RESULT_MAX,
        PERF_COUNT_HW_MAX, PERF_COUNT_HW_REF_CPU_CYCLES, PERF_COUNT_SW_CGROUP_SWITCHES, PERF_COUNT_SW_MAX,
        PERF_TYPE_BREAKPOINT, PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_SOFTWARE,
        PERF_TYPE_TRACEPOINT,
    };

    #[test]
    fn numbers_are_those_of_the_header() {
        use ks_wit::event;
        let ours = [event::HARDWARE, event::SOFTWARE, event::TRACEPOINT, event::HW_CACHE, event::BREAKPOINT];
        let kernels = [
            PERF_TYPE_HARDWARE,
            PERF_TYPE_SOFTWARE,
            PERF_TYPE_TRACEPOINT,
            PERF_TYPE_HW_CACHE,
            PERF_TYPE_BREAKPOINT,
        ];
        assert_eq!(ours, kernels);
        assert_eq!(CACHES.len(), PERF_COUNT_HW_CACHE_MAX as usize);
        assert_eq!(CACHE_OPS.len(), PERF_COUNT_HW_CACHE_OP_MAX as usize);
        assert_eq!(CACHE_RESULTS.len(), PERF_COUNT_HW_CACHE_RESULT_MAX as usize);
    }

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
            .map(|config| (HARDWARE, config))
            .chain((0..u64::from(PERF_COUNT_SW_MAX)).map(|config| (SOFTWARE, config)));
        let cache = (0..u64::from(PERF_COUNT_HW_CACHE_MAX))
            .flat_map(|cache| [0, 1 << 8, 2 << 8].map(|op| cache | op))
            .flat_map(|cache| [0, 1 << 16].map(|result| cache | result))
            .map(|config| (HW_CACHE, config));
        for (type_, config) in generic.chain(cache) {
            let name = name_of(type_, config).unwrap_or_else(|| panic!("{type_}/{config:#x} has no name"));
            assert_eq!(find(&name), Some((type_, config)), "{name}");
        }
    }
}
