//! The syntax tree and the typed tree as `ks build --emit` prints them.

use ks_compiler::diag::Severity;
use ks_compiler::pipeline::{self, CHECKED, Options, Parsed};
use ks_compiler::{ast, hir};

/// A script with one node of each kind.
const SCRIPT: &str = include_str!("scripts/trees.ks");

fn parsed(script: &str) -> Parsed {
    pipeline::parse("trees.ks", script.as_bytes(), Options::new("trees")).expect("a script is short")
}

/// Prints the typed tree, as it was checked and after each rewrite.
fn typed(script: &str) -> Vec<(&'static str, String)> {
    let mut seen = Vec::new();
    let checked = parsed(script).check_watched(&mut |name, tree| seen.push((name, hir::print::hir(tree))));
    let errors = checked.diagnostics.iter().filter(|one| one.severity == Severity::Error);
    assert!(checked.hir.is_some(), "{:#?}", errors.collect::<Vec<_>>());
    seen
}

#[test]
fn the_syntax_tree_is_printed_as_lists() {
    insta::assert_snapshot!(ast::print::file(&parsed(SCRIPT).ast));
}

#[test]
fn the_typed_tree_is_printed_as_a_script_with_types() {
    let seen = typed(SCRIPT);
    let (first, last) = (&seen[0], seen.last().expect("there are rewrites"));
    assert_eq!(first.0, CHECKED);
    insta::assert_snapshot!("checked", first.1);
    insta::assert_snapshot!("rewritten", last.1);
}

/// Each rewrite appears under its name, and changes the construct that it is named after.
#[test]
fn each_rewrite_is_seen_by_its_name() {
    let seen = typed(SCRIPT);
    let names: Vec<_> = seen.iter().map(|(name, _)| *name).skip(1).collect();
    assert_eq!(names, pipeline::rewrites().collect::<Vec<_>>());
    let after = |name: &str| {
        let at = seen.iter().position(|(one, _)| *one == name).expect("it is a rewrite");
        (&seen[at - 1].1, &seen[at].1)
    };
    let (before, with) = after("counters");
    assert!(before.contains("read(faults)") && !before.contains("show_counter"), "{before}");
    assert!(with.contains("show_counter(faults, "), "{with}");
}

#[test]
fn the_event_of_a_system_call_is_its_tracepoint() {
    let script = |event: &str| {
        format!(
            "fn main() -> i32 {{\n    var a = attach(perf_options {{ event: {event}, pid: 0, cpu: -1 }})\n    \
             return 0\n}}\n"
        )
    };
    let tracepoint = typed(&script("tracepoint(\"syscalls/sys_enter_openat\")"));
    assert!(tracepoint[0].1.contains("syscalls/sys_enter_openat"), "{tracepoint:?}");
    assert_eq!(typed(&script("syscall_event(\"openat\")")), tracepoint);
}

/// One line for each statement, whatever nodes the tree needs for it.
#[test]
fn trees_are_about_as_long_as_their_script() {
    let lines = SCRIPT.lines().count();
    let (syntax, typed) = (ast::print::file(&parsed(SCRIPT).ast), &typed(SCRIPT)[0].1);
    assert!(syntax.lines().count() < 3 * lines, "{syntax}");
    assert!(typed.lines().count() < 2 * lines, "{typed}");
}
