//! A plugin in Rust whose standard library uses WASI: built for `wasm32-wasip2`, run on the running kernel.
//! The tests need root.

use std::sync::LazyLock;

use ks_tests::{Outcome, guests, repository, run_plugin};

/// Runs the plugin, which is built once for all tests.
fn run(arguments: &[&str]) -> Outcome {
    static PLUGIN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        guests::rust_for("wasm32-wasip2", &repository().join("tests/guests/std"), "guest_std.wasm", None)
    });
    run_plugin("guest_std", &PLUGIN, arguments)
}

#[test]
fn root_output_clocks_random_numbers_and_arguments_are_served() {
    let [first, second] = [run(&["one", "two"]), run(&["one", "two"])];
    assert_eq!(first.code, 0, "{first:#?}");
    let lines: Vec<&str> = first.stdout.lines().take(7).collect();
    let expected =
        ["arguments [\"one\", \"two\"]", "bytes", "slept true", "dated true", "map 2", "counted true"];
    assert_eq!((&lines[..4], &lines[5..]), (&expected[..4], &expected[4..]), "{first:#?}");
    assert_ne!(first.row("random"), second.row("random"), "{first:#?}");
    assert!(first.stderr.starts_with("guest_std.wasm: to standard error\n"), "{first:#?}");
}

#[test]
fn root_missing_interfaces_are_refused_with_errors_of_the_library() {
    let outcome = run(&[]);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    // The error depends on the C library, of which there are several.
    let expected = [
        "file Err(",
        "write Err(",
        "list Err(",
        "connect Err(",
        "listen Err(",
        "variables 0 Err(NotPresent)",
        "input Ok(0) []",
        "process Err(Unsupported)",
        "thread Err(Unsupported)",
    ];
    let lines: Vec<_> = outcome.stdout.lines().skip(7).collect();
    let are_refused = lines.iter().zip(expected).all(|(line, start)| line.starts_with(start));
    assert!(are_refused && lines.len() == expected.len(), "{outcome:#?}");
    assert!(outcome.stderr.contains("plugins have no `wasi:"), "{outcome:#?}");
}

#[test]
fn root_exit_ends_the_plugin_with_its_code() {
    assert_eq!(run(&["exit"]).code, 1);
}
