//! Plugins that mean harm: each is contained, each is told why, and the host takes a bounded amount of memory for it.
//!
//! They run in `ks-host`, as a person starts it. What hurts the host would end it by a signal or a panic; both have exit
//! codes that no plugin has. Hostile objects and policies: `policy` of the host's own tests; hostile shared memories:
//! `shared_memory`.

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

/// KiB of resident memory that no `ks-host` of these tests may come to: the guest's own memories (128 MiB), and what
/// is copied of them.
const MOST_KIB: i64 = 1200 << 10;

/// Runs a file as a plugin that may observe, with these options.
fn run_file(file: &[u8], options: &[&str]) -> Outcome {
    let folder = Folder::new();
    let path = folder.write("hostile.wasm", file);
    let outcome = finish(command("ks-host").arg("--no-cache").args(options).arg(path));
    contained(&outcome);
    outcome
}

/// Runs the guest of these functions, one of which exports `run`.
fn run_with(body: &str, options: &[&str]) -> Outcome {
    run_module(&core_module(2, body), options)
}

/// The same, with the usual options.
fn run(body: &str) -> Outcome {
    run_with(body, &[])
}

fn run_module(text: &str, options: &[&str]) -> Outcome {
    let file = component("hostile", text, &[]).unwrap_or_else(|error| panic!("{error:#}"));
    run_file(&file, options)
}

/// Runs the guest of these functions in this process, for what is tried a thousand times: a panic is an outcome, a signal
/// ends the test. It may observe, and has as long as a machine with no time for it may need.
fn run_here(body: &str) -> plugin::Outcome {
    run_here_for(body, Duration::from_secs(20))
}

/// The same for what may wait for ever: it has so long.
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

/// Runs it with these limits, for so long.
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

/// Why a guest trapped that was run here.
#[track_caller]
fn trapped(outcome: &plugin::Outcome) -> &str {
    let plugin::Outcome::Trapped(reason) = outcome else { panic!("it has not trapped: {outcome:?}") };
    reason
}

/// A `run` of these instructions, with some locals of each type.
fn function(instructions: &str) -> String {
    format!(
        "(func (export \"run\") (result i32) (local $a i32) (local $b i32) (local $n i32) (local $l i64)\n{instructions})\n"
    )
}

/// No signal, no panic, and not all of the machine's memory.
#[track_caller]
fn contained(outcome: &Outcome) {
    // A guest may return what a signal or a panic would: the code says nothing.
    assert_eq!(outcome.signal, None, "{outcome:#?}");
    let panicked =
        ["panicked", "has a defect", "SIGSEGV"].iter().any(|reason| outcome.stderr.contains(reason));
    assert!(!panicked, "{outcome:#?}");
    let most = outcome.most_memory_kib.expect("it was measured");
    assert!(most < MOST_KIB, "the host took {most} KiB");
}

/// The plugin was ended, and the reason has all these words.
#[track_caller]
fn ended(outcome: &Outcome, reasons: &[&str]) {
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    for reason in reasons {
        assert!(outcome.stderr.contains(reason), "{reason}: {outcome:#?}");
    }
}
