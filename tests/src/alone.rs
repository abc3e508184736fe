//! Tests that look at or change what belongs to their whole process: its descriptors, its memory, its limits.

use std::process::Command;
use std::time::Duration;

use crate::finish_within;

/// Runs the rest of a test in a process of its own. The first statement of such a test.
#[macro_export]
macro_rules! alone {
    () => {
        fn here() {}
        if !$crate::alone::is_alone(std::any::type_name_of_val(&here)) {
            return;
        }
    };
}

/// The variable that names the test for which a process was started.
const NAME: &str = "KS_ALONE";

/// The longest that such a test takes.
const LIMIT: Duration = Duration::from_secs(600);

/// Whether this process runs the one test that has this function in it. If not, starts a process that does, and panics with
/// its output if the test fails there.
pub fn is_alone(function: &str) -> bool {
    let test = function.strip_suffix("::here").unwrap_or(function);
    let (_, test) = test.split_once("::").expect("a function of a test binary");
    if std::env::var(NAME).as_deref() == Ok(test) {
        return true;
    }
    let binary = std::env::current_exe().expect("a test knows its own path");
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(NAME, test);
    let outcome = finish_within(&mut command, LIMIT);
    print!("{}", outcome.stdout);
    eprint!("{}", outcome.stderr);
    let ran = outcome.stdout.contains("running 1 test");
    assert!(outcome.code == 0 && ran, "{test} failed in a process of its own, code {}", outcome.code);
    false
}
