//! Properties that the text of diagnostics does not show.

use std::fmt::Write;

use crate::pipeline::{self, Checked, Options};

fn checked(text: &str, options: Options) -> Checked {
    pipeline::parse("t.ks", text.as_bytes(), options).expect("short").check()
}

fn codes(checked: &Checked) -> Vec<String> {
    checked.diagnostics.sorted().iter().map(|one| format!("{:?} {}", one.severity, one.code)).collect()
}

const LEAVES: &str = "@perf_event\nfn watch(ctx: *bpf_perf_event_data) -> i32 {\n throw 1\n}\n";

#[test]
fn strict_mode_warns_only_about_what_leaves_a_program() {
    let usual = checked(LEAVES, Options::new("t"));
    assert_eq!(codes(&usual), ["Error KS0710"]);
    assert!(usual.hir.is_none());
    let strict = checked(LEAVES, Options { strict_011: true, ..Options::new("t") });
    assert_eq!(codes(&strict), ["Warning KS0710"]);
    assert!(strict.hir.is_some());
}

#[test]
fn functions_that_a_throw_may_leave_are_marked() {
    let script = "fn thrower(n: u32) -> u32 {\n if (n == 1) { throw 5 }\n return n\n}\n\
        fn passes(n: u32) -> u32 { return thrower(n) }\n\
        fn catches(n: u32) -> u32 {\n try { return passes(n) } catch 5 { return 0 }\n}\n\
        fn misses(n: u32) -> u32 {\n try { return passes(n) } catch 6 { return 0 }\n}\n\
        fn rounds(n: u32) -> u32 {\n if (n == 0) { return misses(n) }\n return rounds(n - 1)\n}\n\
        fn main() -> i32 {\n catches(1)\n try { rounds(3) } catch _ { }\n return 0\n}\n";
    let checked = checked(script, Options::new("t"));
    assert_eq!(codes(&checked), Vec::<String>::new());
    let hir = checked.hir.expect("no error");
    let throwing: Vec<&str> =
        hir.functions.iter().filter(|one| one.throws).map(|one| one.name.as_str()).collect();
    assert_eq!(throwing, ["thrower", "passes", "misses", "rounds"]);
}

/// The traversal of a chain of calls is not recursive: its author may make it arbitrarily long.
#[test]
fn long_chains_of_calls_are_analysed_quickly() {
    let mut script = String::from("@helper\nfn f0(n: u32) -> u32 {\n throw 3\n}\n");
    for at in 1..5000 {
        writeln!(script, "@helper\nfn f{at}(n: u32) -> u32 {{ return f{}(n) }}", at - 1).expect("memory");
    }
    script += "@perf_event\nfn watch(ctx: *bpf_perf_event_data) -> i32 {\n f4999(1)\n return 0\n}\n";
    assert_eq!(codes(&checked(&script, Options::new("t"))), ["Error KS0710"]);
}

/// Removes each line of the cases, one at a time: the rest is often odd, and must not make a rule panic.
#[test]
fn a_missing_line_makes_no_rule_panic() {
    let cases = [
        include_str!("../../tests/cases/check/safety/records.ks"),
        include_str!("../../tests/cases/check/safety/throws.ks"),
        include_str!("../../tests/cases/check/safety/unreachable.ks"),
        include_str!("../../tests/cases/check/safety/kinds.ks"),
    ];
    for case in cases {
        let lines: Vec<&str> = case.lines().collect();
        for missing in 0..lines.len() {
            let rest: Vec<&str> = lines[..missing].iter().chain(&lines[missing + 1..]).copied().collect();
            let checked = checked(&rest.join("\n"), Options::new("t"));
            assert_eq!(checked.hir.is_none(), checked.diagnostics.has_errors());
        }
    }
}
