//! Helpers that take pointers do the same in the kernel, inlined at every call or functions that calls share.

use ks_compiler::kernel::{Inlining, Machine, Object};
use ks_wit::section::Arch;

use ks_compiler_testing::kernel_half::build;
use ks_compiler_testing::loaded::Loaded;

/// Every kind of pointer goes to `sum` at two places or more: to a local, a global, an entry that is there or
/// not, a record, the packet, a part of a struct, null, and one of two.
const SCRIPT: &str = r#"
struct Four { a: u8, b: u8, c: u8, d: u8 }
struct Two { first: Four, second: Four }
var shared: Four = Four { a: 1, b: 2, c: 3, d: 4 }
var entries: hash<u32, Four>(8)
var out: ringbuf<Two>(4096)
var results: u64[20] = [0]
var n: u32 = 4

@helper
fn sum(p: *u8, at: u32) -> u64 {
    var total: u64 = 0
    for (i in 0..n) {
        total = total * 10 + (p[at + i] as u64)
    }
    return total
}

@helper
fn fill(f: *Four, low: u8) -> void {
    for (i in 0..n) {
        var p = f as *u8
        p[i] = low + (i as u8)
    }
}

@helper
fn both(t: *Two, low: u8) -> u64 {
    fill(&t->first, low)
    fill(&t->second, low + 4)
    return sum(t as *u8, 0) * 10000 + sum(t as *u8, 4)
}

@xdp
fn watch(ctx: *xdp_md) -> xdp_action {
    var own = Four { a: 5, b: 6, c: 7, d: 8 }
    entries[1] = Four { a: 2, b: 0, c: 2, d: 6 }
    results[0] = sum(&own as *u8, 0)
    results[1] = sum(&own as *u8, 2)
    results[2] = sum(&shared as *u8, 0)
    results[3] = sum(&shared as *u8, 1)
    results[4] = sum(&entries[1] as *u8, 0)
    results[5] = sum(&entries[7] as *u8, 0)
    results[6] = sum(ctx->data, 0)
    results[7] = sum(ctx->data + 2, n)
    results[8] = sum(ctx->data + 62, 0)
    results[9] = sum(null, 0)
    fill(&own, 3)
    results[10] = sum(&own as *u8, 0)
    fill(&entries[1], 6)
    results[11] = sum(&entries[1] as *u8, 0)
    var record = out.reserve()
    if (record != null) {
        results[12] = both(record, 1)
        results[13] = sum(record as *u8, 6)
        out.discard(record)
    }
    var pair: Two = Two { first: own, second: own }
    results[14] = both(&pair, 0)
    results[15] = (pair.second.d as u64)
    var chosen: *Four = &own
    if (n == 5) { chosen = &shared }
    results[16] = sum(chosen as *u8, 0)
    results[17] = sum(&pair.second as *u8, 1)
    return XDP_PASS
}
"#;

/// What the language says: a byte that is not there is 0. The packet of a test run has 64 bytes, all 0, unless
/// the kernel writes an Ethernet header.
const EXPECTED: [(usize, u64); 16] = [
    (0, 5678),
    (1, 7800),
    (2, 1234),
    (3, 2340),
    (4, 2026),
    (5, 0),
    (8, 0),
    (9, 0),
    (10, 3456),
    (11, 6789),
    (12, 12_345_678),
    (13, 7800),
    (14, 1_234_567),
    (15, 7),
    (16, 3456),
    (17, 5670),
];

fn built(inlining: Inlining) -> Object {
    let machine = Machine { inlining, ..Arch::X86_64.into() };
    build(SCRIPT, &[], machine).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// Returns how many functions an object has that begin so.
fn functions(object: &Object, name: &str) -> usize {
    object.mir().lines().filter(|line| line.starts_with(&format!("helper {name}"))).count()
}

#[test]
fn calls_with_pointers_of_the_same_kinds_share_a_function() {
    let alone = built(Inlining::Always);
    assert_eq!(functions(&alone, "sum"), 0, "{}", alone.mir());
    let shared = built(Inlining::Once);
    let sums = functions(&shared, "sum");
    assert!((4..=9).contains(&sums), "{sums} kinds\n{}", shared.mir());
    assert_eq!(built(Inlining::ByCost), alone, "it is small");
}

#[test]
fn root_shared_helpers_do_what_inlined_ones_do() {
    let results = [Inlining::Always, Inlining::Once].map(|inlining| {
        let loaded = Loaded::load_runnable(built(inlining).elf());
        loaded.run("watch");
        loaded.globals("bss")["results"].clone()
    });
    assert_eq!(results[0], results[1]);
    for (at, expected) in EXPECTED {
        assert_eq!(results[0][at], expected, "result {at} of {:?}", results[0]);
    }
}

/// The pointees of `own` are known only when all of `outer` was lowered: the first time the call could share a
/// function, later it is inlined, and the objects after it are others than before.
#[test]
fn a_call_that_is_inlined_later_changes_no_object() {
    let script = "
        struct Pair { a: char, b: u32 }
        var numbers: array<u32, char>(15)
        var kept: lru_hash<i64, *Pair>(16)
        @helper fn fill(p: *Pair) -> u32 {
            for (key, value in numbers) {
                var inner = new Pair()
                kept[0] = inner
            }
            return 99
        }
        @helper fn outer(n: u64) -> u64 {
            var own = new Pair()
            kept[0] = own
            fill(own)
            var last = new Pair()
            return 31
        }
        @perf_event fn watch(ctx: *bpf_perf_event_data) -> i32 {
            outer(3)
            return fill(null) as i32
        }";
    let machine = Machine { inlining: Inlining::Once, ..Arch::X86_64.into() };
    build(script, &[], machine).unwrap_or_else(|errors| panic!("{errors:#?}"));
}
