//! Malicious plugins: each is contained, each gets a reason, and the host uses a bounded amount of memory for
//! it.
//!
//! They run in `ks-host`, as a user starts it. Damage to the host would end it by a signal or a panic; both
//! have exit codes that no plugin has. Hostile objects and policies: `policy` of the host's own tests;
//! hostile shared memories: `shared_memory`.

mod attacks;
mod calls;
mod files;
mod generated;
mod handles;
mod kept;
mod objects;
mod pointers;
mod written;

use std::sync::LazyLock;
use std::time::Duration;

use ks_host::plugin::{self, Plugin, PluginError};
use ks_host::policy::Policy;
use ks_host::{Host, PreparedPlugin, RunOptions};
use ks_tests::guest::core_module;
use ks_tests::{Folder, Outcome, command, component, finish};

/// Limit of the resident memory of any `ks-host` of these tests, in KiB: the guest's own memories (128 MiB),
/// and copies of them.
const MOST_KIB: i64 = 1200 << 10;

/// Runs a file as a plugin that may only observe, with these options.
fn run_file(file: &[u8], options: &[&str]) -> Outcome {
    let folder = Folder::new();
    let path = folder.write("hostile.wasm", file);
    let outcome = finish(command("ks-host").arg("--no-cache").args(options).arg(path));
    contained(&outcome);
    outcome
}

/// Runs a guest of these functions, one of which exports `run`.
fn run_with(body: &str, options: &[&str]) -> Outcome {
    run_module(&core_module(2, body), options)
}

/// Runs a guest of these functions with the usual options.
fn run(body: &str) -> Outcome {
    run_with(body, &[])
}

fn run_module(text: &str, options: &[&str]) -> Outcome {
    let file = component("hostile", text, &[]).unwrap_or_else(|error| panic!("{error:#}"));
    run_file(&file, options)
}

/// Runs a guest of these functions in this process, for thousands of attempts. A panic is an outcome, a
/// signal ends the test. The guest may only observe; the time limit suits a busy machine.
fn run_here(body: &str) -> plugin::Outcome {
    run_here_for(body, Duration::from_secs(20))
}

/// Runs a guest like [`run_here`], with a time limit for guests that may wait forever.
fn run_here_for(body: &str, limit: Duration) -> plugin::Outcome {
    let file = component("hostile", &core_module(2, body), &[]).unwrap_or_else(|error| panic!("{error:#}"));
    let prepared = prepare(file).expect("a plugin for this host");
    let outcome = run_prepared(&prepared, &[], limit);
    let failed = matches!(outcome, plugin::Outcome::Failed(_));
    assert!(!failed, "{outcome:?}:\n{body}");
    outcome
}

/// Compiles a file in this process.
fn prepare(file: Vec<u8>) -> Result<PreparedPlugin, PluginError> {
    static HOST: LazyLock<Host> = LazyLock::new(|| Host::new().expect("this machine runs plugins"));
    HOST.prepare(&Plugin::from_bytes(file)?)
}

/// Runs a prepared plugin with these limits and this time limit.
fn run_prepared(prepared: &PreparedPlugin, limits: &[&str], time: Duration) -> plugin::Outcome {
    let mut policy = Policy::observing();
    for limit in limits {
        policy.limit_rule(limit).expect("a limit");
    }
    prepared.run(RunOptions {
        policy,
        stdout: Box::new(std::io::sink()),
        stderr: Box::new(std::io::sink()),
        timeout: Some(time),
        grace: Duration::from_millis(500),
        ..RunOptions::new("hostile.wasm")
    })
}

/// Returns the reason of a trap of a guest that ran in this process.
#[track_caller]
fn trapped(outcome: &plugin::Outcome) -> &str {
    let plugin::Outcome::Trapped(reason) = outcome else { panic!("it has not trapped: {outcome:?}") };
    reason
}

/// Returns a `run` of these instructions, with some locals of each type.
fn function(instructions: &str) -> String {
    format!(
        "(func (export \"run\") (result i32) (local $a i32) (local $b i32) (local $n i32) (local $l \
         i64)\n{instructions})\n"
    )
}

/// Asserts that there was no signal, no panic, and bounded memory.
#[track_caller]
fn contained(outcome: &Outcome) {
    // The exit code proves nothing: a guest may return the code of a signal or a panic.
    assert_eq!(outcome.signal, None, "{outcome:#?}");
    let panicked =
        ["panicked", "has a defect", "SIGSEGV"].iter().any(|reason| outcome.stderr.contains(reason));
    assert!(!panicked, "{outcome:#?}");
    let most = outcome.most_memory_kib.expect("it was measured");
    assert!(most < MOST_KIB, "the host took {most} KiB");
}

/// Asserts that the host ended the plugin, and that the reason has all these words.
#[track_caller]
fn ended(outcome: &Outcome, reasons: &[&str]) {
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    for reason in reasons {
        assert!(outcome.stderr.contains(reason), "{reason}: {outcome:#?}");
    }
}
