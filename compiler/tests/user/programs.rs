//! What scripts compute, in core modules that need nothing of the kernel.

use crate::compile;
use crate::machine::{Outcome, Reading, Value, run, run_counting};

/// What a script prints, a line each; numbers as signed or unsigned by their type.
pub fn output(text: &str) -> Vec<String> {
    let outcome = run(&compile(text).core);
    assert_eq!((outcome.code, &outcome.aborted), (Some(0), &None));
    lines(&outcome)
}

pub fn lines(outcome: &Outcome) -> Vec<String> {
    let show = |value: &Value| match value {
        Value::Number("i8", bits) => (*bits as i8).to_string(),
        Value::Number("i16", bits) => (*bits as i16).to_string(),
        Value::Number("i32", bits) => (*bits as i32).to_string(),
        Value::Number("i64", bits) => bits.cast_signed().to_string(),
        Value::Number(_, bits) => bits.to_string(),
        Value::Text(text) => text.clone(),
    };
    outcome.printed.iter().map(|line| line.iter().map(show).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn arithmetic_wraps_at_its_width() {
    let text = r#"
fn narrow(x: u64) -> u8 {
    return x
}
fn main() -> i32 {
    var a: u8 = 250
    var b: u8 = 10
    var c: i8 = 127
    var one: i8 = 1
    var zero: u64 = 0
    var big: u64 = 18446744073709551615
    print("%u", a + b)
    print("%d", c + one)
    print("%u %u", big / zero, big % zero)
    print("%u", big + 1)
    print("%u", narrow(big))
    a += 10
    print("%u", a)
    c -= 255
    print("%d", c)
    return 0
}
"#;
    assert_eq!(output(text), ["4", "-128", "0 18446744073709551615", "0", "255", "4", "-128"]);
}

#[test]
fn loops_run_as_often_as_they_say() {
    let text = r#"
fn main() -> i32 {
    var sum: u64 = 0
    for (i in 0..10) {
        if (i == 3) {
            continue
        }
        if (i == 7) {
            break
        }
        for (j in i..5) {
            sum += 1
        }
        sum += i
    }
    print("%u", sum)
    var n = 0
    while (n < 100) {
        n += 1
        if (n == 42) {
            break
        }
    }
    print("%u", n)
    var first = 9
    for (k in first..3) {
        print("never")
    }
    return 0
}
"#;
    // 0+1+2+4+5+6 and 5+4+3+1 inner turns.
    assert_eq!(output(text), ["31", "42"]);
}

#[test]
fn structs_and_arrays_are_copied() {
    let text = r#"
struct Point {
    x: u8,
    y: i64,
}
struct Line {
    start: Point,
    stop: Point,
    tags: u16[3],
}
var origin: Point
fn move_by(p: Point, by: i64) -> Point {
    p.y = p.y + by
    origin.y = 77
    return p
}
fn swap(l: Line) -> Line {
    return Line { start: l.stop, stop: l.start, tags: l.tags }
}
fn main() -> i32 {
    var p = Point { x: 1, y: 2 }
    var q = move_by(p, 5)
    print("%d %d %d", p.y, q.y, origin.y)
    var l = Line { start: p, stop: q, tags: [7, 8] }
    l = swap(l)
    print("%d %d %u %u", l.start.y, l.stop.y, l.tags[1], l.tags[2])
    var at: u32 = 2
    l.tags[at] = 9
    l.tags[at] += 4
    var copy = l
    l.tags[2] = 0
    print("%u %u", copy.tags[at], l.tags[at])
    origin = move_by(origin, 3)
    print("%d", origin.y)
    return 0
}
"#;
    assert_eq!(output(text), ["2 7 77", "7 2 8 0", "13 0", "80"]);
}

#[test]
fn strings_compare_and_convert_by_their_text() {
    let text = r#"
fn name() -> str(8) {
    return "walnut"
}
fn main() -> i32 {
    var a: str(16) = "walnut"
    var b: str(4) = name()
    print("%s %s", a, b)
    if (a == name()) {
        print("equal")
    }
    if (a != b) {
        print("cut")
    }
    var at = 1
    print("%c %u", a[at], a[at] == 'a')
    at = 400
    print("%u", a[at] == '\0')
    var empty: str(3) = ""
    if (empty) {
        print("never")
    }
    return 0
}
"#;
    assert_eq!(output(text), ["walnut wal", "equal", "cut", "97 1", "1"]);
}

#[test]
fn an_index_outside_its_array_ends_the_plugin_at_its_place() {
    let text =
        "var a: u32[4]\nfn main() -> i32 {\n    var i: i32 = -3\n    print(\"%u\", a[i])\n    return 0\n}\n";
    let outcome = run(&compile(text).core);
    assert_eq!(outcome.code, None);
    assert_eq!(
        outcome.aborted.as_deref(),
        Some("test.ks:4:19: KS-TRAP index: -3 is outside the array of 4 elements")
    );
}

#[test]
fn a_full_stack_ends_the_plugin_at_its_function() {
    let text = "fn deep(n: u64) -> u64 {\n    var a: u64[1000]\n    a[0] = n\n    var b = deep(n + 1)\n    \
                return a[0] + b\n}\nfn main() -> i32 {\n    print(\"%u\", deep(0))\n    return 0\n}\n";
    let outcome = run(&compile(text).core);
    assert_eq!(outcome.code, None);
    assert_eq!(
        outcome.aborted.as_deref(),
        Some("test.ks:1:4: KS-TRAP stack: the stack of the plugin (1 MiB) is full in `deep`")
    );
}

#[test]
fn endless_recursion_ends_the_plugin_at_its_function() {
    let direct = "fn deep(n: u64) -> u64 {\n    return deep(n + 1) + 1\n}\n";
    let value = "type F = fn(u64) -> u64\nfn call(f: F, n: u64) -> u64 {\n    return f(n) + 1\n}\n\
                 fn deep(n: u64) -> u64 {\n    return call(deep, n + 1)\n}\n";
    for text in [direct, value] {
        let text = format!("{text}fn main() -> i32 {{\n    print(\"%u\", deep(0))\n    return 0\n}}\n");
        let outcome = run(&compile(&text).core);
        assert_eq!(outcome.code, None);
        let message = outcome.aborted.expect("a message");
        assert!(
            message.contains(": KS-TRAP stack: the stack of the plugin (1 MiB) is full in `"),
            "{message}"
        );
    }
}

#[test]
fn rates_are_per_second_and_never_negative() {
    let text = r#"
fn main() -> i32 {
    var a: perf_read
    var b: perf_read
    a.scaled = 1000
    b.scaled = 4000
    a.time_enabled = 500000000
    b.time_enabled = 2000000000
    print("%u %u %u", rate(a, b), rate(b, a), rate(a, a))
    return 0
}
"#;
    assert_eq!(output(text), ["2000 0 0"]);
}

/// What a script gets of what the host read; the product of 128 bits is made, and tested, in the host.
#[test]
fn lf_133_scaled_counts_fit_or_saturate() {
    let script = "fn main() -> i32 {\n    var a = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })\n    \
                  var seen = read(a)\n    print(\"\", seen.raw, seen.scaled)\n    return 0\n}\n";
    let core = compile(script).core;
    let seen = |raw, scaled| {
        let outcome = run_counting(&core, Reading { raw, scaled });
        (lines(&outcome).remove(0), outcome.calls)
    };
    // Enabled for 3 and running for 2, then for 5 and 2.
    assert_eq!(seen(1 << 62, Some(3 << 61)), ("4611686018427387904 6917529027641081856".into(), vec![]));
    let (counts, said) = seen(1 << 62, Some(5 << 61));
    assert_eq!(counts, "4611686018427387904 9223372036854775807");
    assert_eq!(said, ["warn-once 7 a count above 9223372036854775807 is shown as that number"]);
    assert_eq!(seen(5, None), ("5 -1".into(), vec![]));
}

#[test]
fn values_are_printed_as_they_were_when_their_turn_came() {
    let text = r#"
var s: str(8) = "before"
var n: u32 = 1
fn change() -> u32 {
    s = "after"
    n = n + 1
    return n
}
fn main() -> i32 {
    print("%s %u %u %s %u", s, n, change(), s, n)
    var i: bool = s == "before"
    print("{} {}", i, s != "before")
    return 0
}
"#;
    assert_eq!(output(text), ["before 1 2 after 2", "0 1"]);
}

#[test]
fn the_exit_code_is_that_of_main() {
    let outcome = run(&compile("fn main() -> i32 {\n    return -1\n}\n").core);
    assert_eq!(outcome.code, Some(-1));
}
