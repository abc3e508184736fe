//! What a person is told when the verifier refuses what `ks` compiled. Needs root.

use ks_tests::{compile, run_plugin};

/// `r0 = 20481`, and in its place `r0 = r6`, which nothing has written.
const ASSIGNMENT: [u8; 8] = [0xb7, 0, 0, 0, 0x01, 0x50, 0, 0];
const UNWRITTEN: [u8; 8] = [0xbf, 0x60, 0, 0, 0, 0, 0, 0];

#[test]
fn root_a_refusal_names_the_scripts_line_and_asks_for_a_report() {
    let script = include_str!("scripts/refusals_a_refusal_names_the_scripts_line_and_asks_for_a_report.ks");
    let mut plugin = compile("refused", script).plugin;
    let at = plugin.windows(8).position(|bytes| bytes == ASSIGNMENT).expect("the result is a constant");
    plugin[at..at + 8].copy_from_slice(&UNWRITTEN);
    let outcome = run_plugin("refused", &plugin, &[] as &[&str]);
    let message = &outcome.stderr;
    assert_ne!(outcome.code, 0, "{message}");
    assert!(message.contains("cannot load the program `watch`"), "{message}");
    assert!(message.contains("verifier: R6 !read_ok"), "{message}");
    assert!(message.contains("return 20481 @ refused.ks:6"), "{message}");
    assert!(message.contains("please report it with the script"), "{message}");
}
