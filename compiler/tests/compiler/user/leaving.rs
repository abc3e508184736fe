//! Exits of functions: thrown errors, deferred calls, `exit`.

use crate::user::programs::{lines, output};
use ks_compiler_testing::machine::{Outcome, run};
use ks_compiler_testing::user_half::compile;

/// Runs a script; returns how it ends, and what it prints.
fn ends(text: &str) -> (Option<i32>, Vec<String>, Outcome) {
    let outcome = run(&compile(text).core);
    assert_eq!(outcome.aborted, None);
    (outcome.code, lines(&outcome), outcome)
}

#[test]
fn an_uncaught_code_ends_the_plugin_with_that_code() {
    for (thrown, code) in [(3, 3), (125, 125), (126, 1), (1000, 1)] {
        let text = format!(
            "fn note(n: u32) {{\n    print(\"%u\", n)\n}}\nfn fails(n: u32) -> u32 {{\n    \
             defer note(1)\n    \
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
    let text = include_str!("../scripts/leaving_a_throw_leaves_whatever_is_half_done.ks");
    let expected = ["10 100", "0", "21 102", "1", "2", "3", "9"];
    assert_eq!(output(text), expected);
}

#[test]
fn deferred_calls_run_last_first_with_the_arguments_of_their_time() {
    let text =
        include_str!("../scripts/leaving_deferred_calls_run_last_first_with_the_arguments_of_their_time.ks");
    let expected = ["0", "2", "2 b", "b 2 77", "a 2 3", "a 0 1", "99", "50"];
    assert_eq!(output(text), expected);
}

#[test]
fn a_deferred_call_may_throw_inside_and_defer() {
    let text = include_str!("../scripts/leaving_a_deferred_call_may_throw_inside_and_defer.ks");
    assert_eq!(output(text), ["3", "nested", "8"]);
}

#[test]
fn exit_runs_what_all_functions_have_deferred() {
    let text = include_str!("../scripts/leaving_exit_runs_what_all_functions_have_deferred.ks");
    let outcome = run(&compile(text).core);
    assert_eq!(lines(&outcome), ["3", "2", "1", "11", "10", "100"]);
}

#[test]
fn many_deferred_calls_fit_the_heap() {
    let text = include_str!("../scripts/leaving_many_deferred_calls_fit_the_heap.ks");
    assert_eq!(output(text), ["124975000"]);
}

#[test]
fn a_daemon_waits_until_it_is_asked_to_stop() {
    let text = include_str!("../scripts/leaving_a_daemon_waits_until_it_is_asked_to_stop.ks");
    let outcome = run(&compile(text).core);
    assert_eq!((outcome.code, lines(&outcome)), (Some(0), vec!["1".to_owned(), "3".to_owned()]));
}
