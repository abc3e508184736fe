//! Maps and config blocks, on a machine that emulates the kernel's maps.

use ks_compiler::diag::Diagnostic;
use ks_compiler::pipeline::{self, Target};
use ks_compiler::source::Span;

use crate::user::programs::lines;
use ks_compiler_testing::machine::run_with;
use ks_compiler_testing::user_half::compile;

fn output(text: &str) -> Vec<String> {
    let compiled = compile(text);
    let outcome = run_with(&compiled.core, &compiled.hir);
    assert_eq!((outcome.code, &outcome.aborted), (Some(0), &None), "{outcome:?}");
    assert_eq!(outcome.warned, Vec::<String>::new());
    lines(&outcome)
}

#[test]
fn entries_are_deleted() {
    let text = include_str!("../scripts/maps_entries_are_deleted.ks");
    assert_eq!(output(text), ["0 2 1"]);
}

#[test]
fn pointers_to_objects_in_maps_lead_to_the_entries_wherever_they_are_kept() {
    let text = include_str!(
        "../scripts/maps_pointers_to_objects_in_maps_lead_to_the_entries_wherever_they_are_kept.ks"
    );
    let printed = ["101 6 9 1", "101 8 101", "40 2", "1 1 0", "3 0", "1", "51"];
    assert_eq!(output(text), printed);
}

#[test]
fn every_copy_of_a_pointer_that_was_stored_leads_to_the_entry() {
    let text = include_str!("../scripts/maps_every_copy_of_a_pointer_that_was_leads_to_the_entry.ks");
    assert_eq!(output(text), ["3 3 3 0", "5 5 5 2", "11", "0"]);
}

#[test]
fn objects_in_maps_are_found_among_many() {
    let text = include_str!("../scripts/maps_objects_in_maps_are_found_among_many.ks");
    assert_eq!(output(text), ["0"]);
}

#[test]
fn writes_that_do_not_reach_the_map_are_refused_at_their_position() {
    let items = "struct S { x: u64 }\nstruct N { next: *N }\nfn set(p: *u64) { *p = 4 }\n";
    let helper = "@helper\nfn drop(p: *S) { delete p }\n\
                  @perf_event\nfn watch(ctx: *bpf_perf_event_data) -> i32 {\n drop(m[1])\n return 0\n}\n";
    let cases = [
        ("hash<u32, *S>", "", "set(&m[1]->x)", "&m[1]->x", "a part of a map entry has no address"),
        ("hash<u32, *S>", "", "var q = m[1]\n set(&q->x)", "&q->x", "a part of a map entry has no address"),
        ("hash<u32, *S>", "", "var q = m[1]\n *(q as *u8) = 1", "q as *u8", "cannot be cast in userspace"),
        ("hash<u32, *S>", helper, "m[1] = null\n load(watch)", "delete p", "does not tell which entry"),
        ("array<u32, *S>", "", "m[1] = new S()", "*S", "the value of `array`"),
        ("percpu_hash<u32, *S>", "", "m[1] = new S()", "*S", "the value of `percpu_hash`"),
        ("hash<u32, *N>", "", "m[1] = new N()", "*N", "objects with pointers in them"),
    ];
    for (map, more, body, snippet, reason) in cases {
        let text = format!(
            "{items}var m : {map}(8)\n{more}fn main() -> i32 {{\n set(null)\n {body}\n return 0\n}}\n"
        );
        let mut checked = pipeline::parse("dir/test.ks", text.as_bytes(), pipeline::Options::new("test"))
            .expect("a test script is short")
            .check();
        assert!(checked.build(Target::default()).is_err(), "{body}");
        let found = checked.diagnostics.sorted();
        let there = |one: &&Diagnostic| {
            let Span { start, end, .. } = one.primary.span;
            text[start as usize..end as usize].starts_with(snippet) && one.message.contains(reason)
        };
        assert!(found.iter().any(|one| there(&&**one)), "{body}: {found:#?}");
    }
}

#[test]
fn a_pointer_to_a_copy_of_an_entry_changes_the_copy() {
    let text = include_str!("../scripts/maps_a_pointer_to_a_copy_of_an_entry_changes_the_copy.ks");
    assert_eq!(output(text), ["7 5 1", "0 1", "1 2", "3 6"]);
}

#[test]
fn single_slots_of_a_per_cpu_map_are_read() {
    let text = include_str!("../scripts/maps_single_slots_of_a_per_cpu_map_are_read.ks");
    assert_eq!(output(text), ["10 0 0 10", "5 0", "6 10"]);
}

#[test]
fn a_config_has_its_first_values_and_keeps_what_is_written() {
    let text = include_str!("../scripts/maps_a_config_has_its_first_values_and_keeps_what_is_written.ks");
    assert_eq!(output(text), ["100 1 443 0", "0 22", "1 8080", "2 443", "3 0", "8 9"]);
}
