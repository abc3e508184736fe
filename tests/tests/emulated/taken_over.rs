//! What somebody reaches who runs code of his own in the worker of a plugin, on the running kernel and on emulated
//! ones. These tests need root.

use std::time::Duration;

use ks_host::plugin::{Outcome, Plugin, StopHandle};
use ks_host::policy::Policy;
use ks_host::worker::WorkerProgram;
use ks_host::{Host, PreparedPlugin, RunOptions};
use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{binary, compile};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).program("ks-taken-over").run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).program("ks-taken-over").run_tests(module_path!(), &["root_"]);
}

/// A plugin that may observe, whose workers run attempts instead of it.
fn taken_over() -> PreparedPlugin {
    let script = "fn main() -> i32 {\n    print(\"{}\", read(attach(perf_options { event: page_faults })).raw)\n    return 0\n}";
    let plugin = Plugin::from_bytes(compile("taken", script).plugin).expect("a plugin");
    let host = Host::new().expect("an engine").with_workers(WorkerProgram::of(binary("ks-taken-over")));
    host.prepare(&plugin).expect("a worker")
}

fn options() -> RunOptions {
    let mut policy = Policy::observing();
    policy.limit_rule("memory_bytes=64M").expect("a limit");
    RunOptions {
        stdout: Box::new(std::io::sink()),
        stderr: Box::new(std::io::sink()),
        policy,
        timeout: Some(Duration::from_secs(5)),
        grace: Duration::from_millis(100),
        ..RunOptions::new("taken")
    }
}

#[test]
fn root_a_worker_makes_no_system_call_that_reaches_anything() {
    let outcome = taken_over().run_test("calls", options());
    let Outcome::Failed(said) = &outcome else { panic!("{outcome:?}") };
    assert!(said.starts_with("all ") && said.ends_with("are refused"), "{said}");
}

#[test]
fn root_a_worker_has_as_much_memory_as_its_plugin_and_little_more() {
    let outcome = taken_over().run_test("memory", options());
    // What the plugin may have, and what the process needs itself.
    assert_eq!(outcome, Outcome::Failed("320 MB".into()));
}

/// The broker ends the plugin, goes on itself, and the next run is none the worse.
#[test]
fn root_messages_that_a_worker_must_not_send_end_its_plugin_alone() {
    let plugin = taken_over();
    for attempt in ["random", "long", "empty", "half", "unknown", "short", "wide"] {
        let outcome = plugin.run_test(attempt, options());
        assert!(
            matches!(outcome, Outcome::Trapped(_) | Outcome::TimedOut | Outcome::Failed(_)),
            "{attempt}: {outcome:?}"
        );
    }
    // Every function of the contract, with arguments of others: a function that the plugin does not import is none.
    for number in 0..400 {
        let outcome = plugin.run_test(&number.to_string(), options());
        assert!(matches!(outcome, Outcome::Failed(_) | Outcome::Trapped(_)), "{number}: {outcome:?}");
    }
}

#[test]
fn root_a_worker_that_computes_or_dies_ends_its_plugin_alone() {
    let plugin = taken_over();
    let limited = RunOptions { timeout: Some(Duration::from_millis(300)), ..options() };
    assert_eq!(plugin.run_test("computes", limited), Outcome::TimedOut);
    for (attempt, how) in [("dies", "SIGABRT"), ("leaves", "exit status: 0")] {
        let outcome = plugin.run_test(attempt, options());
        let Outcome::Trapped(reason) = &outcome else { panic!("{attempt}: {outcome:?}") };
        assert!(reason.contains(how), "{attempt}: {reason}");
    }
    let stop = StopHandle::new();
    stop.kill();
    assert_eq!(plugin.run_test("computes", RunOptions { stop, ..options() }), Outcome::Killed);
}
