//! Invalid addresses, lengths and values in every parameter of every function.

use std::time::Duration;

use ks_host::plugin::Outcome;
use ks_tests::guest::{Import, Role, imports};

use super::{ended, function, run, run_here, run_here_for, trapped};

/// Calls one function with these constants as its arguments, and drops its result.
fn call(import: &Import, of_role: impl Fn(&Role) -> Vec<String>) -> String {
    let arguments: String = import.roles.iter().flat_map(of_role).collect::<Vec<_>>().join(" ");
    let call = format!("(call ${} {arguments})", import.short);
    if import.returns() { format!("(drop {call})") } else { call }
}

fn ends_the_plugin(import: &Import) -> bool {
    matches!(import.short.as_str(), "args.exit" | "console.abort")
}

/// Invalid ranges for a text, a list or the result area: at the end of memory, after it, and wrapping around
/// the address space.
const NOWHERE: [(i64, i64); 6] =
    [(131_070, 8), (131_072, 1), (-4, 8), (-1, -1), (0, -1), (0x7fff_fff0, 0x7fff_ffff)];

fn constant(number: i64) -> String {
    format!("(i32.const {})", number as i32)
}

#[test]
fn an_address_outside_of_the_memory_traps_in_every_function() {
    for import in imports().iter().filter(|import| {
        import.roles.iter().any(|role| matches!(role, Role::Text | Role::List | Role::Pointer))
            && !import.roles.iter().any(|role| matches!(role, Role::Handle(_)))
            && !ends_the_plugin(import)
    }) {
        let has_text = import.roles.iter().any(|role| matches!(role, Role::Text | Role::List));
        // A result may be at address 0.
        for (address, len) in NOWHERE.into_iter().filter(|(address, _)| has_text || *address != 0) {
            let body = call(import, |role| match role {
                Role::Text | Role::List => vec![constant(address), constant(len)],
                Role::Pointer => vec![constant(address)],
                Role::Number64 => vec!["(i64.const 0)".into()],
                Role::Handle(_) | Role::Number32(_) => vec![constant(0)],
            });
            let outcome = run_here(&function(&format!("{body} (i32.const 0)")));
            let reasons = ["out of bounds", "not aligned", "unaligned", "pointer", "length", "fuel"];
            let returned = matches!(outcome, Outcome::Returned(_));
            assert!(!returned, "{} at {address} and {len}", import.short);
            let reason = trapped(&outcome);
            assert!(
                reasons.iter().any(|text| reason.contains(text)),
                "{} at {address}: {reason}",
                import.short
            );
        }
    }
}

/// Numbers outside of each parameter's range, in one plugin per function: each is an error, or ends the
/// plugin.
#[test]
fn numbers_beyond_a_type_are_contained() {
    for import in imports().iter().filter(|import| !ends_the_plugin(import)) {
        for number in [-1, 0x7fff_ffff, i64::from(i32::MIN), 255, 2] {
            let body = call(import, |role| match role {
                Role::Text | Role::List => vec![constant(2048), constant(1)],
                Role::Pointer => vec![constant(1024)],
                Role::Number64 => {
                    vec![format!("(i64.const {})", if number < 0 { i64::MIN } else { i64::MAX })]
                }
                Role::Handle(_) | Role::Number32(_) => vec![constant(number)],
            });
            // The time limit ends an endless wait.
            let outcome =
                run_here_for(&function(&format!("{body} (i32.const 0)")), Duration::from_millis(500));
            let contained = matches!(outcome, Outcome::Returned(0) | Outcome::Trapped(_) | Outcome::TimedOut);
            assert!(contained, "{} {number}: {outcome:?}", import.short);
        }
    }
}

#[test]
fn texts_that_are_not_utf_8_trap() {
    let body = function(
        "(i32.store (i32.const 2048) (i32.const 0x80ff)) (call $console.warn (i32.const 2048) (i32.const \
         2)) (i32.const 0)",
    );
    ended(&run(&body), &["utf-8"]);
}

#[test]
fn values_of_no_case_trap() {
    // A list of one value whose case does not exist.
    let value = "(i32.store8 (i32.const 2048) (i32.const 99))
        (call $console.print (i32.const 4096) (i32.const 0) (i32.const 2048) (i32.const 1)) (i32.const 0)";
    ended(&run(&function(value)), &["discriminant"]);
    let option = "(drop (i32.const 0)) (call $symbols.name (i32.const 7) (i32.const 1) (i64.const 1) \
                  (i32.const 1024)) (i32.const 0)";
    ended(&run(&function(option)), &["discriminant"]);
}

/// A result may be anywhere in the guest's own memory, even over its parameters.
#[test]
fn a_result_may_overwrite_what_the_guest_has() {
    let body = "(i64.store (i32.const 2048) (i64.const 0x2d656761702d6162))
        (call $perf.event.named (i32.const 2048) (i32.const 8) (i32.const 2048))
        (i32.load8_u (i32.const 2048))";
    let outcome = run(&function(body));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""), "{outcome:#?}");
}
