//! Handles that were dropped, are guessed, or belong to another resource.

use std::collections::BTreeSet;

use ks_tests::guest::{Role, imports};

use super::{ended, function, run, run_here, trapped};

/// Calls every function that takes a handle with numbers that are not handles: all trap, none has an effect.
#[test]
fn guessed_handles_trap_in_every_function() {
    for import in imports() {
        let Some(Role::Handle(_)) = import.roles.first() else { continue };
        for guess in ["0", "1", "7", "65536", "0x3fffffff", "0x7fffffff", "-1"] {
            let arguments: Vec<String> = import
                .roles
                .iter()
                .flat_map(|role| match role {
                    Role::Handle(_) => vec![format!("(i32.const {guess})")],
                    Role::Text | Role::List => vec!["(i32.const 2048)".into(), "(i32.const 0)".into()],
                    Role::Pointer => vec!["(i32.const 1024)".into()],
                    Role::Number64 => vec!["(i64.const 0)".into()],
                    Role::Number32(_) => vec!["(i32.const 0)".into()],
                })
                .collect();
            let call = format!("(call ${} {})", import.short, arguments.join(" "));
            let call = if import.returns() { format!("(drop {call})") } else { call };
            let outcome = run_here(&function(&format!("{call} (i32.const 0)")));
            let reason = trapped(&outcome);
            assert!(reason.contains("handle"), "{}: {reason}", import.short);
        }
    }
}

/// A handle of one resource is invalid for another, although both are in one table.
#[test]
fn a_handle_of_one_kind_is_none_of_another() {
    let kinds: BTreeSet<&str> = imports()
        .iter()
        .filter(|import| import.short.ends_with(".drop") && import.short != "perf.options.drop")
        .map(|import| import.short.as_str())
        .collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    for kind in kinds {
        let body = format!("(call ${kind} (call $perf.options.new)) (i32.const 0)");
        ended(&run(&function(&body)), &["handle"]);
    }
}

#[test]
fn dropped_handles_are_not_reused() {
    let options = "(local.set $a (call $perf.options.new)) (call $perf.options.drop (local.get $a))";
    for again in [
        "(call $perf.options.drop (local.get $a))",
        "(call $perf.options.observe-task (local.get $a) (i32.const 1))",
        "(call $perf.options.observe-process (local.get $a) (i32.const 2048) (i32.const 1))",
    ] {
        ended(&run(&function(&format!("{options} {again} (i32.const 0)"))), &["handle"]);
    }
    // The next handle may reuse the number of a dropped one, for another object.
    let reused = format!("{options} (i32.eq (call $perf.options.new) (local.get $a))");
    assert_eq!(run(&function(&reused)).code, 1);
}

/// The event and the options are borrowed for the call and may be dropped right after it. Dropping the leader
/// first is allowed, and makes its members stale.
#[test]
fn an_attachment_outlives_its_event_and_options_and_not_its_leader() {
    let open = |leader: &str| {
        format!(
            "(call $perf.event.numbered (i32.const 1) (i64.const 2) (i32.const 1024))
             (local.set $a (i32.load (i32.const 1028)))
             (local.set $b (call $perf.options.new))
             (call $perf.options.set-exclude-kernel (local.get $b) (i32.const 1))
             (call $perf.open (local.get $a) (local.get $b) {leader} (i32.const 0) (i32.const 0) (i32.const \
             1024))
             (if (i32.load8_u (i32.const 1024)) (then (return (i32.const 50))))
             (call $perf.event.drop (local.get $a)) (call $perf.options.drop (local.get $b))"
        )
    };
    let first = open("(i32.const 0) (i32.const 0)");
    let second = open("(i32.const 1) (local.get $n)");
    // The kind of the error `stale` is 5.
    let body = format!(
        "{first} (local.set $n (i32.load (i32.const 1028)))
         {second} (local.set $a (i32.load (i32.const 1028)))
         (call $perf.attachment.drop (local.get $n))
         (call $perf.attachment.read (local.get $a) (i32.const 1024))
         (if (i32.eqz (i32.load8_u (i32.const 1024))) (then (return (i32.const 51))))
         (i32.load8_u (i32.const 1032))"
    );
    let outcome = run(&function(&body));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (5, ""), "{outcome:#?}");
}
