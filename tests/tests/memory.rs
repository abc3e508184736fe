//! Chapter 5 of the language reference where programs run: globals, elements and bindings, in both halves. These tests
//! need root.

use std::process::Command;
use std::sync::{Arc, Weak};

use ks_tests::{Outcome, at_switches, run_script};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const NO_WORDS: &[&str] = &[];

/// Runs a script, which prints just this.
fn prints(project: &str, script: &str, expected: &str) {
    let outcome = run_script(project, script, NO_WORDS);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

/// Runs the statements once as a program, at a page fault, and once as a plain function; the values that `shown` lists
/// are printed after each.
fn in_both(project: &str, items: &str, body: &str, shown: &str) -> Outcome {
    let script = format!(
        "{items}\nvar done : u32 = 0\nvar memory : u8[131072]\n\n@perf_event\n\
         fn watch(ctx: *bpf_perf_event_data) -> i32 {{\nif (done == 0) {{\ndone = 1\n{body}\n}}\nreturn 0\n}}\n\n\
         fn same() {{\n{body}\n}}\n\nfn main() -> i32 {{\nvar program = load(watch)\n\
         attach(program, perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 1 }}, 0)\n\
         memory[8192] = 1\nmemory[81920] = 1\ndetach(program)\n{shown}\nclear_all()\nsame()\n{shown}\nreturn 0\n}}\n"
    );
    run_script(project, &script, NO_WORDS)
}

/// The output is the expected lines twice: once for each half.
fn same_in_both(project: &str, items: &str, body: &str, shown: &str, expected: &str) {
    let outcome = in_both(project, items, body, shown);
    let both = format!("{expected}\n{expected}\n");
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, both.as_str(), ""));
}

#[test]
fn root_lf_084_globals_are_one_copy() {
    let script = r#"
struct S { a: u32, t: str(4) }
enum E { A, B = 7 }
var a : u8 = 1
var b : i64 = -1
var c : bool = true
var d : char = 'x'
var e : E = A
var f : str(8) = "text"
var g : u32[4] = [1, 2]
var h : S
var memory : u8[131072]
var done : u32 = 0

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    if (done == 0) {
        done = 1
        a += 9
        b = b * 5
        c = !c
        d = 'y'
        e = B
        if (f == "user") {
            f = "kernel"
        }
        g[3] = g[1] + 40
        h = S { a: 6, t: "abc" }
    }
    return 0
}

fn main() -> i32 {
    f = "user"
    g[1] = 2
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    memory[8192] = 1
    memory[81920] = 1
    detach(program)
    print("%u %d {} %c %d %s %u %u %s", a, b, c, d, e, f, g[3], h.a, h.t)
    return 0
}
"#;
    let outcome = run_script("globals", script, NO_WORDS);
    let expected = "10 -5 false y 7 kernel 42 6 abc\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_088_compound_assignment_creates_elements_but_no_parts() {
    let items = "struct S { n: u64, k: u8 }\nvar m : hash<u32, u64>(8)\nvar s : hash<u32, S>(8)\n\
                 fn clear_all() {\nclear(m)\nclear(s)\n}";
    let body =
        "m[1] += 2\nm[1] += 3\nm[2] -= 1\ns[1].n += 5\ns[2] = S { n: 1, k: 2 }\ns[2].n += 5\ns[2].k = 9";
    let shown = "print(\"%u %d {} %u %u\", m[1], m[2], s[1] == null, s[2].n, s[2].k)";
    same_in_both("compound", items, body, shown, "5 -1 true 6 9");
}

#[test]
fn root_lf_091_lf_093_scalar_bindings_are_copies_and_others_the_entry() {
    let script = r#"
struct S { a: u32, b: u32[4] }
var m : hash<u32, S>(8)
var n : hash<u32, u64>(8)
var done : u32 = 0
var memory : u8[131072]

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    if (done == 1) {
        return 0
    }
    done = 1
    var v = m[1]
    v.a = 7
    v.b[2] = 8
    v = S { a: 100, b: [] }
    v.a += 1
    var absent = m[3]
    absent.a = 5
    var count = n[1]
    count += 10
    return 0
}

fn main() -> i32 {
    m[1] = S { a: 1, b: [1, 1, 1, 1] }
    n[1] = 4
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    memory[8192] = 1
    memory[81920] = 1
    detach(program)
    print("%u %u {} %u", m[1].a, m[1].b[2], m[3] == null, n[1])
    return 0
}
"#;
    prints("bindings", script, "7 8 true 4\n");
}

#[test]
fn root_lf_092_parts_are_written_back_while_the_entry_exists() {
    let script = r#"
struct S { a: u32, b: u32 }
var m : hash<u32, S>(8)

fn main() -> i32 {
    m[1] = S { a: 1, b: 2 }
    m[2] = S { a: 3, b: 4 }
    var v = m[1]
    v.a = 10
    var w = m[2]
    delete m[2]
    w.b = 40
    print("%u %u {} %u", m[1].a, m[1].b, m[2] == null, w.b)
    return 0
}
"#;
    prints("back", script, "10 2 true 40\n");
}

#[test]
fn root_lf_094_keys_with_padding_find_their_entry_from_both_halves() {
    let script = r#"
struct K { a: u8, b: u32, c: u16 }
var m : hash<K, u64>(8)
var list : array<u16, u64>(8)
var memory : u8[131072]
var done : u32 = 0

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    if (done == 0) {
        done = 1
        var k = K { a: 1, b: 2, c: 3 }
        m[k] += 5
        m[K { a: 9, b: 2, c: 3 }] = 1
        var i: u16 = 4
        list[i] = 7
    }
    return 0
}

fn main() -> i32 {
    m[K { a: 1, b: 2, c: 3 }] = 10
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    memory[8192] = 1
    memory[81920] = 1
    detach(program)
    print("%u %u %u %u", m[K { a: 1, b: 2, c: 3 }], m[K { a: 9, b: 2, c: 3 }], count(m), list[4])
    return 0
}
"#;
    prints("keys", script, "15 1 2 7\n");
}

/// Starts one short process after the other on one CPU while there is a script: each has some hundred page faults.
fn fault_on(cpu: usize, script: &Weak<()>) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("a CPU of a small number");
    sched_setaffinity(Pid::from_raw(0), &cpus).expect("the CPU is online");
    while script.strong_count() > 0 {
        Command::new("true").status().expect("coreutils are there");
    }
}

/// Two CPUs add to one global, one element and one bound field at every page fault; nothing is lost if the sums are
/// equal to what each CPU counted for itself.
#[test]
fn root_lf_097_additions_of_several_cpus_lose_nothing() {
    let script = r#"
struct S { n: u64 }
var sum : u64 = 0
var total : hash<u32, u64>(4)
var bound : hash<u32, S>(4)
var own : percpu_array<u32, u64>(1)

@perf_event
fn fault(ctx: *bpf_perf_event_data) -> i32 {
    for (i in 0..500) {
        sum += 1
        total[1] += 1
        var s = bound[1]
        s.n += 1
        own[0] += 1
    }
    return 0
}

fn main() -> i32 {
    bound[1] = S { n: 0 }
    var program = load(fault)
    for (cpu in 0..2) {
        attach(program, perf_options { event: page_faults, pid: -1, cpu: cpu, period: 1 }, 0)
    }
    var busy: u32 = 0
    while (busy < 2) {
        sleep(10)
        busy = 0
        for (cpu, n in per_cpu(own, 0)) {
            if (n >= 1000000) {
                busy += 1
            }
        }
    }
    detach(program)
    sleep(50)
    print("%d %d %d", sum - own[0], total[1] - own[0], bound[1].n - own[0])
    return 0
}
"#;
    let running = Arc::new(());
    let faults = [0, 1].map(|cpu| {
        let script = Arc::downgrade(&running);
        std::thread::spawn(move || fault_on(cpu, &script))
    });
    let outcome = run_script("faults", script, NO_WORDS);
    drop(running);
    for thread in faults {
        thread.join().expect("both CPUs are online");
    }
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "0 0 0\n", ""));
}

#[test]
fn root_lf_044_presence_is_not_the_value() {
    let items = "struct S { n: u64, t: str(4) }\nvar m : hash<u32, u64>(8)\nvar s : hash<u32, S>(8)\n\
                 var t : hash<u32, str(8)>(8)\nvar seen : u32 = 0\nvar sum : u64 = 9\nvar text : str(8) = \"old\"\n\
                 fn clear_all() {\nclear(m)\nseen = 0\nsum = 9\ntext = \"old\"\n}";
    let body = "m[1] = 0\nif (m[1]) {\nseen += 1\n}\nif (m[2]) {\nseen += 10\n}\nif (m[1] != null) {\nseen += 100\n}\n\
                if (var v = m[3]) {\nseen += v\n} else {\nseen += 1000\n}\nsum = m[7] + s[7].n\ntext = t[7]";
    same_in_both("presence", items, body, "print(\"%u %u [%s]\", seen, sum, text)", "1101 0 []");
}

#[test]
fn root_lf_045_absent_structs_are_zero() {
    let items = "struct S { n: u64, t: str(4) }\nvar s : hash<u32, S>(8)\nvar n : u64 = 5\n\
                 fn clear_all() {\nclear(s)\nn = 5\n}";
    let body = "var v = s[1]\nn = v.n + len(v.t)\nif (v == null) {\nn += 40\n}";
    same_in_both("absent", items, body, "print(\"%u {}\", n, s[1] == null)", "40 true");
}

#[test]
fn root_lf_102_objects_of_new_start_as_zeros() {
    let items = "struct S { n: u64, k: u32 }\nvar n : u64 = 5\nvar k : u32 = 5\nvar w : u32 = 5\n\
                 fn clear_all() {\nn = 5\nk = 5\nw = 5\n}";
    let body = "var p = new S()\nk = p->k\np->n = 7\nn = p->n\ndelete p\nvar q = new u32()\n*q += 3\nw = *q\ndelete q";
    same_in_both("objects", items, body, "print(\"%u %u %u\", n, k, w)", "7 0 3");
}

#[test]
fn root_lf_103_an_object_in_a_map_is_read_and_written_by_both_halves() {
    let script = r#"
struct S { n: u64, k: u32 }
var m : hash<u32, *S>(8)
var seen : u64 = 0
var absent : bool = false
var turn : u32 = 0
var memory : u8[262144]

@perf_event
fn watch(ctx: *bpf_perf_event_data) -> i32 {
    if (turn == 1) {
        turn = 2
        var p = m[1]
        seen = p->n
        p->n += 10
        m[1]->k = 3
        var q = new S()
        q->n = 20
        m[2] = q
        q->k = 4
        absent = m[3] == null
    }
    if (turn == 3) {
        turn = 4
        seen = m[2]->n
        var q = m[2]
        delete q
        absent = m[1] == null
    }
    return 0
}

fn bump(p: *S) {
    p->n += 1
}

fn main() -> i32 {
    var p = new S()
    p->n = 5
    m[1] = p
    bump(p)
    var program = load(watch)
    attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)
    turn = 1
    memory[8192] = 1
    memory[81920] = 1
    print("%u {} %u %u", seen, absent, p->n, p->k)
    var q = m[2]
    if (q != null) {
        print("%u %u", q->n, q->k)
        bump(q)
        q->k = 6
    }
    var sum : u64 = 0
    for (key, value in m) {
        sum += value->n
        value->n += key
    }
    print("%u %u %u", sum, p->n, q->n)
    delete p
    turn = 3
    memory[147456] = 1
    memory[212992] = 1
    detach(program)
    print("%u {} {}", seen, absent, m[2] == null)
    return 0
}
"#;
    prints("maps_of_pointers", script, "6 true 16 3\n20 4\n37 17 23\n23 true true\n");
}

#[test]
fn root_lf_106_surplus_values_are_printed_at_the_end_in_the_kernel_half() {
    let script = "var done : u32 = 0\nvar memory : u8[131072]\n\n@perf_event\n\
                  fn watch(ctx: *bpf_perf_event_data) -> i32 {\nif (done == 0) {\ndone = 1\n\
                  print(\"a\", 1, true)\nprint(\"{} and {}\", 2, 'c')\nprint(done, \"text\")\nprint()\n}\nreturn 0\n}\n\n\
                  fn main() -> i32 {\nvar program = load(watch)\n\
                  attach(program, perf_options { event: page_faults, pid: 0, cpu: -1, period: 1 }, 0)\n\
                  memory[8192] = 1\nmemory[81920] = 1\ndetach(program)\nreturn 0\n}\n";
    let outcome = run_script("surplus", script, NO_WORDS);
    let expected = "a 1 true\n2 and c\n1 text\n\n";
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, expected, ""));
}

#[test]
fn root_lf_106_enumerators_are_printed_by_name_in_the_kernel_half() {
    let declared = "
        enum Level { DEBT = -1, NONE, SOME = 7 }
        enum Wide { LOW = 1, HIGH = 0x8000000000000001 }";
    let body = "
        if (a == -1) {
            a = 1
            var level: Level = DEBT
            var wide: Wide = HIGH
            print(\"{} {} {} %d %u\", level, wide, LOW, level, SOME, NONE)
            level = 5
            print(\"{}\", level)
        }";
    prints("enumerators", &at_switches(declared, body), "DEBT HIGH LOW -1 7 NONE\n5\n1 -1 -1\n");
}
