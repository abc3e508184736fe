//! Computations of scripts, in core modules that need nothing of the kernel.

use ks_compiler_testing::machine::{Outcome, Reading, Value, run, run_counting};
use ks_compiler_testing::user_half::compile;

/// Returns a script's output, one line for each `print`; numbers are signed or unsigned by their type.
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
    let text = include_str!("../scripts/programs_arithmetic_wraps_at_its_width.ks");
    assert_eq!(output(text), ["4", "-128", "0 18446744073709551615", "0", "255", "4", "-128"]);
}

#[test]
fn loops_run_as_often_as_they_say() {
    let text = include_str!("../scripts/programs_loops_run_as_often_as_they_say.ks");
    // 0+1+2+4+5+6 and 5+4+3+1 inner iterations.
    assert_eq!(output(text), ["31", "42"]);
}

#[test]
fn structs_and_arrays_are_copied() {
    let text = include_str!("../scripts/programs_structs_and_arrays_are_copied.ks");
    assert_eq!(output(text), ["2 7 77", "7 2 8 0", "13 0", "80"]);
}

#[test]
fn strings_compare_and_convert_by_their_text() {
    let text = include_str!("../scripts/programs_strings_compare_and_convert_by_their_text.ks");
    assert_eq!(output(text), ["walnut wal", "equal", "cut", "97 1", "1"]);
}

#[test]
fn an_index_outside_its_array_ends_the_plugin_and_reports_the_position() {
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
    let text = include_str!("../scripts/programs_rates_are_per_second_and_never_negative.ks");
    assert_eq!(output(text), ["2000 0 0"]);
}

/// Values that a script gets for a reading of the host; the 128-bit product is computed, and tested, in the
/// host.
#[test]
fn lf_133_scaled_counts_fit_or_saturate() {
    let script = "fn main() -> i32 {\n    \
                  var a = attach(perf_options { event: page_faults, pid: 0, cpu: -1 })\n    \
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
fn values_are_printed_as_they_were_when_evaluated() {
    let text = include_str!("../scripts/programs_values_are_printed_as_they_were_when_their_turn_came.ks");
    assert_eq!(output(text), ["before 1 2 after 2", "0 1"]);
}

#[test]
fn the_exit_code_is_the_low_8_bits_of_what_main_returns() {
    for (returned, code) in [(-1, 255), (0, 0), (3, 3), (256, 0), (0x1_03, 3)] {
        let outcome = run(&compile(&format!("fn main() -> i32 {{\n    return {returned}\n}}\n")).core);
        assert_eq!(outcome.code, Some(code), "{returned}");
    }
}
