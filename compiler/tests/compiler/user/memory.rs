//! Pointers, objects of `new` and function values.

use crate::user::programs::output;
use ks_compiler_testing::machine::run;
use ks_compiler_testing::user_half::compile;

/// Runs a script that the plugin's own checks stop, and returns the message.
fn trap(text: &str) -> String {
    let outcome = run(&compile(text).core);
    assert_eq!(outcome.code, None, "{outcome:?}");
    outcome.aborted.unwrap_or_else(|| panic!("no message: {:?}", outcome.printed))
}

const NODE: &str = "struct Node {\n    value: u32,\n    next: *Node,\n}\n";

#[test]
fn null_is_neither_read_nor_written() {
    let functions = "fn give() -> *Node {\n    var p: *Node = null\n    return p\n}\n";
    for (statement, column) in [
        ("print(\"%u\", give()->value)", 17),
        ("give()->value = 3", 5),
        ("give()->value += 3", 5),
        ("var n = *give()", 14),
        ("var v = give()[1 - 1].value", 13),
    ] {
        let text = format!("{NODE}{functions}fn main() -> i32 {{\n    {statement}\n    return 0\n}}\n");
        assert_eq!(
            trap(&text),
            format!("test.ks:10:{column}: KS-TRAP null: this pointer is null"),
            "{statement}"
        );
    }
}

#[test]
fn a_pointer_beyond_the_memory_is_caught() {
    let text = "fn far(p: *u64, n: u64) -> u64 {\n    return p[n]\n}\nfn main() -> i32 {\n    \
                var x: u64 = 1\n    \
                print(\"%u\", far(&x, 536870912))\n    return 0\n}\n";
    let message = trap(text);
    assert!(message.starts_with("test.ks:2:"), "{message}");
    assert!(message.ends_with(", is outside the memory of the plugin"), "{message}");
}

#[test]
fn objects_live_until_they_are_deleted() {
    let text = include_str!("../scripts/memory_objects_live_until_they_are_deleted.ks");
    assert_eq!(output(&format!("{NODE}{text}")), ["10 43210", "0 1", "78"]);
}

#[test]
fn freed_memory_is_used_again() {
    let text = include_str!("../scripts/memory_memory_that_was_given_back_is_used_again.ks");
    assert_eq!(output(text), ["1001", "499500 1001"]);
}

#[test]
fn only_objects_of_new_are_deleted_and_only_once() {
    let double = "fn drop(p: *u64) {\n    delete p\n}\nfn main() -> i32 {\n    var p = new u64()\n    \
                  drop(p)\n    \
                  drop(p)\n    return 0\n}\n";
    let message = "KS-TRAP delete: this is not an object of `new`, or it was deleted before";
    assert_eq!(trap(double), format!("test.ks:2:12: {message}"));
    let local = "fn drop(p: *u64) {\n    delete p\n}\nfn main() -> i32 {\n    var x: u64 = 3\n    \
                 drop(&x)\n    \
                 return 0\n}\n";
    assert_eq!(trap(local), format!("test.ks:2:12: {message}"));
}

#[test]
fn a_full_memory_ends_the_plugin_and_reports_the_position() {
    let text = "struct Large {\n    bytes: u64[4000],\n}\nfn main() -> i32 {\n    \
                for (i in 0..1000) {\n        \
                var p = new Large()\n        p->bytes[1] = i\n    }\n    return 0\n}\n";
    assert_eq!(trap(text), "test.ks:6:17: KS-TRAP memory: the memory of the plugin is full");
}

#[test]
fn addresses_of_variables_stay_their_own() {
    let text = include_str!("../scripts/memory_addresses_of_variables_stay_their_own.ks");
    assert_eq!(output(text), ["4 9", "15", "2 20", "10", "0", "7", "0", "1", "2"]);
}

#[test]
fn text_reached_through_a_pointer_is_printed() {
    let text = include_str!("../scripts/memory_text_behind_a_pointer_is_printed.ks");
    assert_eq!(output(text), ["walnut nut 119"]);
}

#[test]
fn functions_are_kept_and_called() {
    let text = include_str!("../scripts/memory_functions_are_kept_and_called.ks");
    assert_eq!(output(text), ["8 16", "6", "12", "2", "42"]);
}

#[test]
fn a_function_value_that_is_null_is_not_called() {
    let text = "var f: fn(u32) -> u32\nfn main() -> i32 {\n    print(\"%u\", f(1))\n    return 0\n}\n";
    assert_eq!(trap(text), "test.ks:3:17: KS-TRAP null: this function value is null");
}

#[test]
fn a_match_is_a_value_of_any_type() {
    let text = include_str!("../scripts/memory_a_match_is_a_value_of_any_type.ks");
    assert_eq!(output(text), ["one two many", "2 8 4", "4 11", "0"]);
}
