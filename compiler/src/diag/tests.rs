//! Tests of [`Diagnostics`]: the kept diagnostics, their number and their order.

use super::{Diagnostic, Diagnostics, MAX_KEPT};
use crate::source::{SourceMap, Span};

fn some_spans(count: u32) -> Vec<Span> {
    let mut sources = SourceMap::default();
    let file = sources.add("t.ks", vec![b'x'; count as usize]).expect("short");
    (0..count).map(|at| Span { file, start: at, end: at + 1 }).collect()
}

#[test]
fn dropped_diagnostics_are_counted() {
    let mut diagnostics = Diagnostics::default();
    for span in some_spans(MAX_KEPT as u32 + 7) {
        diagnostics.report(Diagnostic::error(301, span, "no name `x` here"));
    }
    assert_eq!(diagnostics.iter().count(), MAX_KEPT);
    assert_eq!(diagnostics.error_count(), MAX_KEPT + 7);
    let omitted = diagnostics.omitted().expect("seven were not kept");
    assert_eq!(omitted.to_string(), "7 more errors not shown");
}

#[test]
fn errors_are_kept_despite_many_warnings() {
    let mut diagnostics = Diagnostics::default();
    let spans = some_spans(MAX_KEPT as u32 + 1);
    for span in &spans {
        diagnostics.report(Diagnostic::warning(213, *span, "this has no effect"));
    }
    diagnostics.report(Diagnostic::error(301, spans[0], "no name `x` here"));
    assert!(diagnostics.has_errors());
    assert_eq!(diagnostics.iter().count(), MAX_KEPT + 1);
    assert_eq!(diagnostics.warning_count(), MAX_KEPT + 1);
    assert_eq!(diagnostics.omitted().expect("one was not kept").to_string(), "1 more warning not shown");
}

#[test]
fn near_names_become_suggestions() {
    let span = some_spans(1)[0];
    let one = Diagnostic::error(305, span, "no function `prnt`").suggest_near(
        span,
        "function",
        "prnt",
        ["print", "load"],
    );
    assert_eq!(one.suggestions.len(), 1);
    assert_eq!(one.suggestions[0].replacement, "print");
    assert_eq!(one.suggestions[0].message, "a similar function exists");
    let two = Diagnostic::error(305, span, "no function `count_x`").suggest_near(
        span,
        "function",
        "count_x",
        ["count_b", "count_a", "load"],
    );
    let names: Vec<_> = two.suggestions.iter().map(|one| one.replacement.as_str()).collect();
    assert_eq!(names, ["count_a", "count_b"]);
    assert_eq!(two.suggestions[0].message, "similar functions exist");
}
