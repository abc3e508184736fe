//! Scripts that must behave the same in both halves: the cases of the kernel half, with their program as a
//! function of the userspace half. Their first lines state the expected results; see `loads.rs`. A case that
//! cannot be the same says `// kernel only` and why in its first line, or is in the list below.

use std::fmt::Write;
use std::fs;

use ks_compiler_testing::machine::{Outcome, Value, run_with};
use ks_compiler_testing::user_half::compile;
use libtest_mimic::{Failed, Trial};
use serde_json::Value as Json;

use crate::{scripts, stem};

/// Cases of the kernel half that are skipped, with the reason.
const KERNEL_ONLY: &[(&str, &str)] = &[
    ("arrays", "an index out of range is a trap in the userspace half"),
    ("bound_array", "an index out of range is a trap in the userspace half"),
    ("context_and_pointers", "takes the address of a map entry"),
    ("errors", "has a loop that only ends as a program fault; the rest is in `both/throwing.ks`"),
    ("faults", "a program fault ends a program, not a plugin"),
    ("frame_read_leads_out", "takes the address of a map entry"),
    ("kinds", "the interpreter has no queues; `tests/tests/state.rs` has both halves"),
    ("loops", "too many turns for an interpreter"),
    ("mixture", "takes the address of a map entry"),
    ("perf_context", "reads the context of a program"),
    ("pointer_tested_before_the_loop", "takes the address of a map entry"),
    ("pointer_tested_in_the_loop", "takes the address of a map entry"),
    ("pointers", "takes the address of a map entry; the rest is in `both/pointers.ks`"),
    ("pointers_chosen", "takes the address of a map entry"),
    ("pointers_parts", "takes the address of a map entry"),
    ("records_of_iterations", "reserves records"),
    ("rings", "reserves records"),
    ("upper_half", "an index out of range is a trap in the userspace half"),
];

pub fn trials() -> Vec<Trial> {
    let mut paths = scripts("kernel");
    paths.retain(|path| KERNEL_ONLY.iter().all(|(name, _)| stem(path) != *name));
    paths.extend(scripts("both"));
    let mut trials = Vec::new();
    for path in paths {
        let script = fs::read_to_string(&path).expect("a case is readable");
        if script.starts_with("// load only") || script.starts_with("// kernel only") {
            continue;
        }
        trials.push(Trial::test(format!("userspace::{}", stem(&path)), move || check(&script)));
    }
    trials
}

/// Collects the scalars of an expected value, with the lvalues of the script that hold them.
fn leaves(lvalue: &str, value: &Json, found: &mut Vec<(String, Json)>) {
    match value {
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| leaves(&format!("{lvalue}[{at}]"), item, found));
        }
        Json::Object(fields) => {
            fields.iter().for_each(|(name, field)| leaves(&format!("{lvalue}.{name}"), field, found));
        }
        scalar => found.push((lvalue.to_owned(), scalar.clone())),
    }
}

fn expectations(script: &str) -> Vec<(String, Json)> {
    let mut found = Vec::new();
    for line in script.lines().map_while(|line| line.strip_prefix("// ")) {
        let (lvalue, value) = match line.strip_prefix("returns ") {
            Some(value) => ("result_of_watch", value),
            None => match line.strip_prefix("expect ").and_then(|rest| rest.split_once(" = ")) {
                Some(pair) => pair,
                None => continue,
            },
        };
        leaves(lvalue, &serde_json::from_str(value).expect("JSON"), &mut found);
    }
    found
}

/// Converts a script for the userspace half: it prints a line for each expectation.
fn for_userspace(script: &str, expected: &[(String, Json)]) -> String {
    let script = script
        .replace("@perf_event\nfn watch(ctx: *bpf_perf_event_data)", "fn watch()")
        .replace("@helper\n", "");
    let mut main = String::from("fn main() -> i32 {\n    var result_of_watch = watch()\n");
    for (lvalue, _) in expected {
        writeln!(main, "    print(\"{{}}\", {lvalue})").expect("a string grows");
    }
    format!("{script}\n{main}    return 0\n}}\n")
}

fn same(value: &Value, expected: &Json) -> bool {
    match (value, expected) {
        (Value::Text(text), Json::String(expected)) => text == expected,
        (Value::Number("char", bits), Json::String(expected)) => expected.as_bytes() == [*bits as u8],
        (Value::Number(_, bits), Json::Bool(expected)) => *bits == u64::from(*expected),
        (Value::Number(case, bits), Json::Number(expected)) => {
            let value = match *case {
                "i8" => i128::from(*bits as i8),
                "i16" => i128::from(*bits as i16),
                "i32" => i128::from(*bits as i32),
                "i64" => i128::from(bits.cast_signed()),
                _ => i128::from(*bits),
            };
            expected.as_i128() == Some(value)
        }
        _ => false,
    }
}

fn check(script: &str) -> Result<(), Failed> {
    let expected = expectations(script);
    let compiled = compile(&for_userspace(script, &expected));
    let outcome: Outcome = run_with(&compiled.core, &compiled.hir);
    if outcome.code != Some(0) {
        let Outcome { code, aborted, warned, .. } = outcome;
        return Err(format!("ends with {code:?}: {aborted:?} {warned:?}").into());
    }
    let printed = outcome.printed.iter().rev().take(expected.len()).rev();
    let pairs = printed.zip(&expected);
    let unequal = pairs.filter(|(line, (_, value))| line.len() != 1 || !same(&line[0], value));
    let wrong: Vec<_> =
        unequal.map(|(line, (lvalue, value))| format!("{lvalue} is {line:?}, not {value}")).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}
