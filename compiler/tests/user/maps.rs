//! Maps and config blocks, on a machine that holds them as a kernel does.

use ks_compiler::diag::Diagnostic;
use ks_compiler::pipeline::{self, Target};
use ks_compiler::source::Span;

use crate::compile;
use crate::machine::run_with;
use crate::programs::lines;

fn output(text: &str) -> Vec<String> {
    let compiled = compile(text);
    let outcome = run_with(&compiled.core, &compiled.hir);
    assert_eq!((outcome.code, &outcome.aborted), (Some(0), &None), "{outcome:?}");
    assert_eq!(outcome.warned, Vec::<String>::new());
    lines(&outcome)
}

#[test]
fn entries_are_deleted() {
    let text = r#"
var counts : hash<str(8), u32>(16)
fn main() -> i32 {
    counts["one"] = 1
    counts["two"] = 2
    delete counts["one"]
    delete counts["three"]
    print("%u %u %u", counts["one"], counts["two"], counts["one"] == null)
    return 0
}
"#;
    assert_eq!(output(text), ["0 2 1"]);
}

#[test]
fn pointers_to_objects_in_maps_lead_to_the_entries_wherever_they_are_kept() {
    let text = r#"
struct Flow {
    packets: u64,
    tags: u8[4],
}
var flows : hash<u32, *Flow>(16)
var last : *Flow = null
fn keep(p: *Flow) -> *Flow {
    p->tags[1] = 6
    last = p
    return p
}
fn touch() -> u64 {
    flows[1]->packets += 100
    flows[1]->tags[3] = 9
    return 1
}
fn main() -> i32 {
    var p = new Flow()
    flows[1] = p
    var q = keep(flows[1])
    q->packets += touch()
    q->tags[0] = 1
    print("%u %u %u %u", flows[1]->packets, p->tags[1], flows[1]->tags[3], last->tags[0])
    var other = new Flow()
    other->packets = 7
    flows[2] = other
    flows[3] = q
    q->packets = 8
    print("%u %u %u", flows[1]->packets, flows[3]->packets, last->packets)
    *q = Flow { packets: 40, tags: [2] }
    var copy = *q
    print("%u %u", flows[3]->packets, copy.tags[0])
    delete other
    delete q
    delete q
    q->packets = 1
    print("{} {} {}", flows[2] == null, flows[3] == null, flows[1] == null)
    delete flows[1]
    flows[1] = new Flow()
    last->packets += 3
    print("%u %u", flows[1]->packets, flows[9]->packets)
    flows[1] = null
    flows[1] = null
    print("{}", flows[1] == null)
    last = new Flow()
    last->packets = 50
    flows[5] = last
    last->packets += 1
    print("%u", flows[5]->packets)
    return 0
}
"#;
    let printed = ["101 6 9 1", "101 8 101", "40 2", "1 1 0", "3 0", "1", "51"];
    assert_eq!(output(text), printed);
}

#[test]
fn every_copy_of_a_pointer_that_was_stored_leads_to_the_entry() {
    let text = r#"
struct Flow { packets: u64, seen: u32 }
var flows : hash<u32, *Flow>(2)
var kept : *Flow = null
fn store(key: u32, p: *Flow) {
    kept = p
    flows[key] = p
}
fn main() -> i32 {
    var p = new Flow()
    var copy = p
    store(1, p)
    var other = new Flow()
    copy->packets = 3
    print("%u %u %u %u", flows[1]->packets, p->packets, kept->packets, other->packets)
    store(1, other)
    other->packets += 5
    copy->seen = 2
    print("%u %u %u %u", flows[1]->packets, p->packets, kept->packets, flows[1]->seen)
    flows[2] = new Flow()
    var third = new Flow()
    third->packets = 10
    flows[2] = third
    third->packets += 1
    print("%u", flows[2]->packets)
    for (i in 0..3000) {
        var one = new Flow()
        one->packets = i
        flows[2] = one
        delete flows[2]
        flows[2] = new Flow()
    }
    print("%u", flows[2]->packets)
    return 0
}
"#;
    assert_eq!(output(text), ["3 3 3 0", "5 5 5 2", "11", "0"]);
}

#[test]
fn objects_in_maps_are_found_among_many() {
    let text = r#"
struct Flow { packets: u64 }
var flows : hash<u64, *Flow>(5000)
fn main() -> i32 {
    for (i in 0..4000) {
        var one = new Flow()
        one->packets = i * 3
        flows[i * 0x100000001] = one
        one->packets += 1
    }
    var wrong: u32 = 0
    for (i in 0..4000) {
        var one = flows[i * 0x100000001]
        if (one == null) {
            wrong += 1
        } else if (one->packets != i * 3 + 1) {
            wrong += 1
        }
    }
    print("%u", wrong)
    return 0
}
"#;
    assert_eq!(output(text), ["0"]);
}

#[test]
fn what_would_not_reach_the_map_is_refused_at_its_place() {
    let items = "struct S { x: u64 }\nstruct N { next: *N }\nfn set(p: *u64) { *p = 4 }\n";
    let helper = "@helper\nfn drop(p: *S) { delete p }\n\
                  @perf_event\nfn watch(ctx: *bpf_perf_event_data) -> i32 {\n drop(m[1])\n return 0\n}\n";
    let cases = [
        ("hash<u32, *S>", "", "set(&m[1]->x)", "&m[1]->x", "a part of a map entry has no address"),
        ("hash<u32, *S>", "", "var q = m[1]\n set(&q->x)", "&q->x", "a part of a map entry has no address"),
        ("hash<u32, *S>", "", "var q = m[1]\n *(q as *u8) = 1", "q as *u8", "cannot be cast in userspace"),
        ("hash<u32, *S>", helper, "m[1] = null\n load(watch)", "delete p", "does not tell which entry"),
        ("array<u32, *S>", "", "m[1] = new S()", "*S", "the value of `array`"),
        ("percpu_hash<u32, *S>", "", "m[1] = new S()", "*S", "the value of `percpu_hash`"),
        ("hash<u32, *N>", "", "m[1] = new N()", "*N", "objects with pointers in them"),
    ];
    for (map, more, body, place, reason) in cases {
        let text = format!(
            "{items}var m : {map}(8)\n{more}fn main() -> i32 {{\n set(null)\n {body}\n return 0\n}}\n"
        );
        let mut checked = pipeline::parse("dir/test.ks", text.as_bytes(), pipeline::Options::new("test"))
            .expect("a test script is short")
            .check();
        assert!(checked.build(Target::default()).is_err(), "{body}");
        let found = checked.diagnostics.sorted();
        let there = |one: &&Diagnostic| {
            let Span { start, end, .. } = one.primary.span;
            text[start as usize..end as usize].starts_with(place) && one.message.contains(reason)
        };
        assert!(found.iter().any(|one| there(&&**one)), "{body}: {found:#?}");
    }
}

#[test]
fn a_pointer_to_a_copy_of_an_entry_changes_the_copy() {
    let text = r#"
struct Pair {
    a: u32,
    b: u64,
}
var counts : hash<u32, u32>(16)
var pairs : hash<u32, Pair>(16)
fn fill(p: *Pair) {
    p->a = 3
    p->b += 4
}
fn main() -> i32 {
    counts[1] = 5
    var v = counts[1]
    var p = &v
    *p += 2
    print("%u %u %u", v, counts[1], v != null)
    v = counts[9]
    print("%u %u", *p, v == null)
    pairs[1] = Pair { a: 1, b: 2 }
    var s = pairs[1]
    fill(&s)
    print("%u %u", pairs[1].a, pairs[1].b)
    pairs[1] = s
    print("%u %u", pairs[1].a, pairs[1].b)
    return 0
}
"#;
    assert_eq!(output(text), ["7 5 1", "0 1", "1 2", "3 6"]);
}

#[test]
fn single_slots_of_a_per_cpu_map_are_read() {
    let text = r#"
struct Pair {
    a: u32,
    b: u64,
}
var counts : percpu_array<u32, u64>(4)
var pairs : percpu_hash<u32, Pair>(4)
fn main() -> i32 {
    counts[2] = 7
    counts[2] += 3
    print("%u %u %u %u", per_cpu(counts, 2, 0), per_cpu(counts, 2, 1), per_cpu(counts, 2, 9), counts[2])
    pairs[1] = Pair { a: 4, b: 5 }
    var p = per_cpu(pairs, 1, 0)
    print("%u %u", p.b, per_cpu(pairs, 1, 2).b)
    var turns: u32 = 0
    var sum: u64 = 0
    for (cpu, v in per_cpu(counts, 2)) {
        turns += cpu + 1
        sum += v
    }
    for (cpu, v in per_cpu(pairs, 7)) {
        print("never")
    }
    print("%u %u", turns, sum)
    return 0
}
"#;
    assert_eq!(output(text), ["10 0 0 10", "5 0", "6 10"]);
}

#[test]
fn a_config_has_its_first_values_and_keeps_what_is_written() {
    let text = r#"
config limits {
    burst: u32 = 100,
    strict: bool = true,
    ports: u16[4] = [22, 80, 443, 0],
    spare: u64,
}
fn set(n: u32) {
    limits.burst = n
}
fn main() -> i32 {
    print("%u %u %u %u", limits.burst, limits.strict, limits.ports[2], limits.spare)
    set(7)
    limits.burst += 1
    limits.spare = 9
    var at = 1
    limits.ports[at] = 8080
    for (i, port in limits.ports) {
        print("%u %u", i, port)
    }
    print("%u %u", limits.burst, limits.spare)
    return 0
}
"#;
    assert_eq!(output(text), ["100 1 443 0", "0 22", "1 8080", "2 443", "3 0", "8 9"]);
}
