//! Ways out of functions: what is thrown, what is deferred, `exit`.

use crate::compile;
use crate::machine::{Outcome, run};
use crate::programs::{lines, output};

/// How a script ends, and what it prints.
fn ends(text: &str) -> (Option<i32>, Vec<String>, Outcome) {
    let outcome = run(&compile(text).core);
    assert_eq!(outcome.aborted, None);
    (outcome.code, lines(&outcome), outcome)
}

#[test]
fn what_is_not_caught_ends_the_plugin_with_its_code() {
    for (thrown, code) in [(3, 3), (125, 125), (126, 1), (1000, 1)] {
        let text = format!(
            "fn note(n: u32) {{\n    print(\"%u\", n)\n}}\nfn fails(n: u32) -> u32 {{\n    defer note(1)\n    \
             throw n\n    return 2\n}}\nfn main() -> i32 {{\n    defer note(2)\n    \
             print(\"%u\", fails({thrown}))\n    return 0\n}}\n"
        );
        let (found, printed, outcome) = ends(&text);
        assert_eq!((found, printed), (Some(code), vec!["1".to_owned(), "2".to_owned()]));
        assert_eq!(outcome.warned, [format!("uncaught error {thrown} at test.ks:6")]);
    }
}

#[test]
fn a_throw_leaves_whatever_is_half_done() {
    let text = r#"
struct Pair {
    a: u32,
    b: u32,
}
fn fails(n: u32) -> u32 {
    if (n > 2) {
        throw 40 + n
    }
    return n
}
fn pair(n: u32) -> Pair {
    return Pair { a: fails(n), b: fails(n + 1) }
}
fn sum(f: fn(u32) -> u32, n: u32) -> u32 {
    return 100 + f(n) * f(n + 1)
}
fn main() -> i32 {
    for (n in 0..4) {
        try {
            var p = pair(n)
            print("%u %u", p.a + 10 * fails(p.b), sum(fails, n))
        } catch 43 {
            print("%u", n)
            if (n == 2) {
                continue
            }
            break
        } catch code {
            print("%d", code)
        }
        print("%u", n)
    }
    var seen: i32 = 0
    try {
        print("%u", 5 + match (fails(1)) { 1: { throw 9 }, default: 2 })
    } catch code {
        seen = code
    }
    print("%d", seen)
    return 0
}
"#;
    let expected = ["10 100", "0", "21 102", "1", "2", "3", "9"];
    assert_eq!(output(text), expected);
}

#[test]
fn deferred_calls_run_last_first_with_the_arguments_of_their_time() {
    let text = r#"
struct Tag {
    name: str(8),
    n: u32,
}
fn show(t: Tag, n: u64) {
    print("%s %u %u", t.name, t.n, n)
}
fn next(n: u32) -> u32 {
    print("%u", n)
    return n + 1
}
fn work(n: u32) -> u32 {
    var t = Tag { name: "a", n: n }
    for (i in 0..3) {
        t.n = i
        if (i == 1) {
            continue
        }
        defer show(t, next(i))
    }
    t.name = "b"
    defer show(t, 77)
    defer print("%u %s", t.n, t.name)
    t.n = 99
    return t.n
}
fn main() -> i32 {
    print("%u", work(5))
    var f: fn(u32) -> u32 = next
    defer f(50)
    f = work
    return 0
}
"#;
    let expected = ["0", "2", "2 b", "b 2 77", "a 2 3", "a 0 1", "99", "50"];
    assert_eq!(output(text), expected);
}

#[test]
fn a_deferred_call_may_throw_inside_and_defer() {
    let text = r#"
fn fails(n: u32) -> u32 {
    throw n
    return 1
}
fn careful(n: u32) {
    try {
        fails(n)
    } catch code {
        print("%d", code)
    }
    defer print("nested")
}
fn outer() -> u32 {
    defer careful(3)
    return fails(8)
}
fn main() -> i32 {
    try {
        outer()
    } catch code {
        print("%d", code)
    }
    return 0
}
"#;
    assert_eq!(output(text), ["3", "nested", "8"]);
}

#[test]
fn exit_runs_what_all_functions_have_deferred() {
    let text = r#"
fn note(n: u32) {
    print("%u", n)
}
fn deep(n: u32) {
    defer note(n)
    if (n == 3) {
        exit(300)
    }
    deep(n + 1)
    print("never")
}
fn main() -> i32 {
    defer note(100)
    for (i in 0..2) {
        defer note(10 + i)
    }
    deep(1)
    return 0
}
"#;
    let outcome = run(&compile(text).core);
    assert_eq!(lines(&outcome), ["3", "2", "1", "11", "10", "100"]);
}

#[test]
fn many_deferred_calls_fit_the_heap() {
    let text = r#"
var total: u64 = 0
fn add(n: u64) {
    total += n
}
fn work(n: u64) {
    for (i in 0..n) {
        defer add(i)
    }
}
fn main() -> i32 {
    for (i in 0..10) {
        work(5000)
    }
    print("%u", total)
    return 0
}
"#;
    assert_eq!(output(text), ["124975000"]);
}

#[test]
fn a_daemon_waits_until_it_is_asked_to_stop() {
    let text = r#"
fn note(n: u32) {
    print("%u", n)
}
fn main() -> i32 {
    defer note(3)
    note(1)
    daemon()
    note(2)
    return 9
}
"#;
    let outcome = run(&compile(text).core);
    assert_eq!((outcome.code, lines(&outcome)), (Some(0), vec!["1".to_owned(), "3".to_owned()]));
}
