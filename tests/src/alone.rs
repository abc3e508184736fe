//! Tests that read or change state of their whole process: its descriptors, its memory, its limits.

use std::process::Command;
use std::time::Duration;

use crate::finish_within;

/// Runs the rest of a test in a process of its own. It must be the test's first statement.
#[macro_export]
macro_rules! alone {
    () => {
        fn here() {}
        if !$crate::alone::is_alone(std::any::type_name_of_val(&here)) {
            return;
        }
    };
}

/// The environment variable with the name of the test that a child process runs.
const NAME: &str = "KS_ALONE";

/// Time limit of a test in its own process.
const LIMIT: Duration = Duration::from_secs(600);

/// Returns true in the process that runs the one test that contains this function. In any other process it
/// starts one that does, and panics with the child's output if the test fails there.
pub fn is_alone(function: &str) -> bool {
    let test = function.strip_suffix("::here").unwrap_or(function);
    let (_, test) = test.split_once("::").expect("a function of a test binary");
    if std::env::var(NAME).as_deref() == Ok(test) {
        return true;
    }
    let binary = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(NAME, test);
    // The C library makes a pool of memory, megabytes large, for each thread that runs beside another: in which run all of
    // them exist depends on the machine, and looks like memory that grows.
    command.env("MALLOC_ARENA_MAX", "1");
    let outcome = finish_within(&mut command, LIMIT);
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    let ran = outcome.stdout.contains("running 1 test");
    assert!(outcome.code == 0 && ran, "{test} failed in a process of its own, code {}", outcome.code);
    false
}
