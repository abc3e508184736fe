//! Maps of every kind from both halves, lines that the kernel half prints, and what a full map loses. These tests need
//! root.

use ks_tests::{Folder, Outcome, allowed, command, finish, repository, run_script};

const NO_WORDS: &[&str] = &[];

/// The number before some words of a line of standard error.
fn number_before(outcome: &Outcome, words: &str) -> u64 {
    let line = outcome.stderr.lines().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("no line with `{words}`: {outcome:#?}"));
    let before = line.split(words).next().and_then(|before| before.split_whitespace().last());
    before.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

fn example(name: &str) -> Outcome {
    let folder = Folder::new();
    let plugin = folder.path(name).with_extension("wasm");
    let source = repository().join("examples/state").join(name);
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!((built.code, built.stderr.as_str(), built.stdout.as_str()), (0, "", ""), "{built:#?}");
    finish(allowed().arg(&plugin))
}

#[test]
fn root_examples_print_what_they_promise() {
    let faults = example("latest_faults.ks");
    let lines: Vec<&str> = faults.stdout.lines().collect();
    assert_eq!((faults.code, lines.len(), faults.stderr.as_str()), (0, 9, ""), "{faults:#?}");
    assert!(lines[7].starts_with("fault 8 of "), "{faults:#?}");
    assert_eq!(lines[8], "8 records handled");
    let kinds = example("kinds.ks");
    let expected = "2 kinds of pages, 24 faults or more\noldest job 3, 1 left\nseen: true false\n";
    assert_eq!((kinds.code, kinds.stdout.as_str(), kinds.stderr.as_str()), (0, expected, ""), "{kinds:#?}");
}

#[test]
fn root_lf_105_lines_of_the_kernel_half_stand_in_order_before_those_that_come_after() {
    let script = r#"
enum Colour { RED = 3, GREEN = -2 }
var count : u64 = 0
var name : str(8) = "global"
var raw : u8[6] = [104, 105, 0, 120, 0, 0]
var memory : u8[131072]

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    count += 1
    if (count <= 2) {
        var small: i8 = -1
        var colour = GREEN
        print("%u: %d %u %lx %s %s %c|%5u|%-4d|%%", count, small, small, count + 254, name, raw, 'z', 42, 7)
        print("{} {} {}", count == 1, colour, "text")
    }
    if (count > 1000) {
        print("late")
    }
    return 0
}

fn main() -> i32 {
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    memory[4096] = 1
    memory[16384] = 1
    print("own line")
    return 0
}
"#;
    let outcome = run_script("prints", script, NO_WORDS);
    let first = |n: u32| format!("{n}: -1 255 {:x} global hi z|   42|7   |%", n + 254);
    let expected = format!("{}\ntrue GREEN text\n{}\nfalse GREEN text\nown line\n", first(1), first(2));
    assert_eq!((outcome.code, outcome.stdout, outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lost_lines_and_updates_are_counted_exactly() {
    let script = r#"
var runs : u64 = 0
var few : hash<u64, u64>(10)
var name : str(48) = "x"
var memory : u8[16384000]

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    runs += 1
    few[runs] += 1
    few[runs + 1000000] = 2
    print("%u %u %u %u %s", runs, runs, runs, runs, name)
    return 0
}

fn main() -> i32 {
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    for (page in 0..4000) {
        memory[page * 4096] = 1
    }
    detach(program)
    print("runs %u entries %u", runs, count(few))
    return 0
}
"#;
    let outcome = run_script("lost", script, NO_WORDS);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let (last, printed) = lines.split_last().expect("it printed");
    let numbers: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [runs, entries] = numbers[..] else { panic!("{last}") };
    // The first of the pages may hold something else, too, and be there before.
    assert!(runs >= 3999 && entries == 10, "{last}");
    assert_eq!(number_before(&outcome, " updates by programs were lost"), 2 * runs - entries);
    // 96 bytes each, with the header; one byte of the ring stays free.
    assert_eq!(printed.len(), (262_144 - 1) / 96);
    assert_eq!(
        number_before(&outcome, " lines that programs printed were lost"),
        runs - printed.len() as u64
    );
    for (number, line) in (1..).zip(printed) {
        assert_eq!(**line, format!("{number} {number} {number} {number} x"));
    }
}

#[test]
fn root_lf_143_walks_meet_every_entry_once() {
    let script = r#"
struct Key { a: u8, b: u32 }
struct Pair { x: u64, y: u16[2] }
struct Prefix { prefix: u32, addr: u8[4] }
var big : hash<u32, u64>(20000)
var keyed : hash<Key, Pair>(64)
var list : array<u16, i32>(300)
var per : percpu_hash<u32, u64>(64)
var routes : lpm_trie<Prefix, u32>(16)
var recent : lru_hash<str(8), bool>(32)

fn inner() -> u32 {
    for (k, v in keyed) {
        if (k.a == 3) {
            return k.b
        }
    }
    return 0
}

fn thrower() {
    for (k, v in keyed) {
        throw 5
    }
}

fn main() -> i32 {
    for (i in 0..15000) {
        big[i] = i * 3
    }
    var entries: u32 = 0
    var keys: u64 = 0
    var values: u64 = 0
    for (k, v in big) {
        entries += 1
        keys += k
        values += v
        delete big[k]
    }
    print("%u %u %u left %u", entries, keys, values, count(big))
    for (i in 0..10) {
        keyed[Key { a: i, b: i * 2 }] = Pair { x: i, y: [1, 2] }
        per[i] = i
        per[i] += 1
    }
    var sum: u64 = 0
    for (k, v in keyed) {
        if (k.a == 9) {
            continue
        }
        sum += k.b + v.x + v.y[1]
    }
    print("%u %u", sum, inner())
    try {
        thrower()
    } catch code {
        print("caught %d", code)
    }
    list[299] = -4
    var indices: u64 = 0
    var total: i64 = 0
    for (i, v in list) {
        indices += i
        total += v
    }
    print("%u %d %u", indices, total, count(list))
    var slots: u64 = 0
    for (k, v in per) {
        slots += v
    }
    print("%u", slots)
    routes[Prefix { prefix: 8, addr: [10, 0, 0, 0] }] = 1
    routes[Prefix { prefix: 16, addr: [10, 1, 0, 0] }] = 2
    var met: u32 = 0
    for (p, v in routes) {
        met += p.prefix * v
    }
    print("%u %u", met, routes[Prefix { prefix: 32, addr: [10, 1, 9, 9] }])
    recent["one"] = true
    for (name, v in recent) {
        print("%s {}", name, v)
    }
    clear(keyed)
    clear(recent)
    print("%u %u", count(keyed), count(recent))
    return 0
}
"#;
    let outcome = run_script("walks", script, NO_WORDS);
    let expected =
        "15000 112492500 337477500 left 0\n126 6\ncaught 5\n44850 -4 300\n55\n40 2\none true\n0 0\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_096_slots_of_all_cpus_are_added_up() {
    let script = r#"
struct Sums { n: u64, flag: bool, parts: u32[2] }
var counts : percpu_array<u32, u64>(4)
var sums : percpu_hash<u32, Sums>(8)

fn main() -> i32 {
    counts[1] = 40
    counts[1] += 2
    sums[7] = Sums { n: 5, flag: true, parts: [1, 2] }
    var all: u64 = 0
    var cpus: u32 = 0
    for (cpu, v in per_cpu(counts, 1)) {
        cpus += 1
        all += v
    }
    var same = cpus == cpu_count()
    print("%u %u %u {} %u {}", counts[1], all, per_cpu(counts, 1, 0), same, sums[7].n, sums[7].flag)
    print("%u %u", sums[7].parts[1], sums[8].n)
    return 0
}
"#;
    let outcome = run_script("slots", script, NO_WORDS);
    let expected = "42 42 42 true 5 true\n2 0\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_queues_and_filters_are_the_same_in_both_halves() {
    let script = r#"
struct Job { id: u64, name: str(8) }
var jobs : queue<Job>(3)
var last : stack<u32>(4)
var seen : bloom<u32>(64)
var runs : u64 = 0
var memory : u8[131072]
var stacks : stack_trace(64)
var ids : hash<i64, u64>(16)

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    runs += 1
    if (runs == 1) {
        jobs.push(Job { id: 1, name: "kernel" })
        last.push(10)
        last.push(11)
        seen.add(5)
        ids[user_stack_id(ctx, stacks)] += 1
    }
    return 0
}

fn main() -> i32 {
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    memory[8192] = 1
    memory[81920] = 1
    detach(program)
    jobs.push(Job { id: 2, name: "user" })
    jobs.push(Job { id: 3, name: "user" })
    print("%u", jobs.push(Job { id: 4, name: "full" }))
    var job = jobs.pop()
    print("%u %s", job.id, job.name)
    if (var next = jobs.peek()) {
        print("%u %s", next.id, next.name)
    }
    print("%u %u {}", last.pop(), last.pop(), last.pop() == null)
    print("{} {}", seen.has(5), seen.has(6))
    for (id, n in ids) {
        var depth: u32 = 0
        if (id >= 0) {
            var frames = stacks[id]
            depth = 1
            if (frames[0] == 0) {
                depth = 0
            }
        }
        print("%u stack of some depth: %u", n, depth)
    }
    return 0
}
"#;
    let outcome = run_script("queues", script, NO_WORDS);
    let expected = "7\n1 kernel\n2 user\n11 10 true\ntrue false\n1 stack of some depth: 1\n";
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].contains("queues.ks:32: ") && lines[0].contains("`jobs`"),
        "{lines:?}"
    );
}

/// What a module declares is there under its own name, whatever the script that imports it declares.
#[test]
fn root_modules_bring_maps_variables_and_rings() {
    const MODULE: &str = "
        struct Noted { value: u32 }
        var seen : hash<u32, u64>(16)
        var total: u64 = 0
        var ring : ringbuf<Noted>(4096)
        config limits { most: u32 = 3, }
        @helper
        fn note(value: u32) -> u32 {
            seen[value] += 1
            total += 1
            var noted = ring.reserve()
            noted->value = limits.most
            ring.submit(noted)
            return value
        }
        fn noted(value: u32) -> u64 { return seen[value] * 100 + total }";
    const SCRIPT: &str = "
        import lib from \"lib.ks\"
        var lib_seen: u64 = 5
        @tracepoint(\"sched/sched_switch\")
        fn kststmodule(ctx: *trace_event_raw_sched_switch) -> i32 {
            if (lib_seen == 5) {
                lib_seen += lib.note(7)
            }
            return 0
        }
        fn main() -> i32 {
            var p = load(kststmodule)
            if (attach(p, \"\", 0) != 0) { return 1 }
            for (i in 0..50) { sleep(1) }
            detach(p)
            print(\"{} {}\", lib.noted(7), lib_seen)
            return 0
        }";
    let folder = Folder::new();
    folder.write("lib.ks", MODULE);
    let script = folder.write("importing.ks", SCRIPT);
    let ran = finish(allowed().arg(script));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "101 12\n"), "{ran:#?}");
}

/// Structs are the entries themselves; every index is met once, until `break`.
#[test]
fn root_arrays_are_walked_in_the_kernel_half() {
    const SCRIPT: &str = "
        struct Slot { hits: u32, sum: u64 }
        var small : array<u8, u64>(200)
        var slots : array<u32, Slot>(8)
        var own : percpu_array<u16, u64>(4)
        var sum: u64 = 0
        var done: u32 = 0
        @tracepoint(\"sched/sched_switch\")
        fn kststwalk(ctx: *trace_event_raw_sched_switch) -> i32 {
            if (done > 0) { return 0 }
            done = 1
            var skipped = 10
            for (k, v in small) {
                if (k == skipped) { continue }
                if (k >= 100) { break }
                sum += v * k
            }
            for (k, slot in slots) {
                slot.hits += k
                for (i, v in own) {
                    own[i] += 1
                    slot.sum += i
                }
            }
            done = 2
            return 0
        }
        fn main() -> i32 {
            for (k, v in small) { small[k] = k }
            var p = load(kststwalk)
            if (attach(p, \"\", 0) != 0) { return 1 }
            for (i in 0..100) {
                if (done < 2) { sleep(1) }
            }
            detach(p)
            print(\"{} {} {} {}\", sum, slots[7].hits, slots[7].sum, own[3])
            return 0
        }";
    let ran = run_script("kststwalk", SCRIPT, NO_WORDS);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "328250 7 6 8\n"), "{ran:#?}");
}

/// The first string is worked out while it is compiled, and its bytes of the frame, which begin as the key does, are never
/// written.
#[test]
fn root_a_key_has_its_own_bytes_whatever_lay_there_before() {
    let script = r#"
var hits : hash<char, u32>(4)

@perf_event
fn kskeyp(ctx: *bpf_perf_event_data) -> i32 {
    var found: u32 = match (match (cpu()) { 0: "abcdefg", 7: "abcdefg", default: "abcdefg" }) { "": 1, "a": 2, default: 3 }
    hits['a'] = found
    return 0
}

var memory : u8[65536]

fn main() -> i32 {
    var program = load(kskeyp)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    memory[8192] = 1
    for (letter, found in hits) {
        print("{} {}", letter as u32, found)
    }
    return 0
}
"#;
    let outcome = run_script("kskeyp", script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "97 3\n"), "{outcome:#?}");
}
