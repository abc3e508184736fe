//! Plugins that are started and stopped, and hosts that are killed, repeatedly: nothing stays in the kernel,
//! and the host's memory does not grow. The test has a process of its own, because it counts all descriptors
//! and all memory of the process. It needs root.
//!
//! The large run: `make cycles CYCLES=1000 MOMENTS=200`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ks_host::plugin::{Outcome, Plugin};
use ks_host::policy::Policy;
use ks_host::{Host, RunOptions};
use ks_tests::fuzzed::Rng;
use ks_tests::{Folder, allowed, compile, number, wait_until_gone};

/// Limit of the growth over all cycles, in KiB: the allocator keeps freed memory.
const MOST_KIB: u64 = 16 << 10;

/// A script that attaches, counts, and detaches half of its attachments. NAME is filled in.
const SCRIPT: &str = include_str!("scripts/cycles.ks");

/// Returns the resident memory of this process in KiB, and its number of descriptors.
fn taken() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|value| value.split_whitespace().next()?.parse().ok());
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count();
    (resident.expect("the kernel says it"), descriptors)
}

/// Runs a plugin this many times in this process; returns its resident memory in KiB before and after.
fn cycles(file: &[u8], count: u64) -> [u64; 2] {
    let host = Host::new().expect("this machine runs plugins");
    let prepared = host.prepare(&Plugin::from_bytes(file).expect("a plugin")).expect("a plugin");
    let once = || {
        let outcome = prepared.run(RunOptions {
            policy: Policy::everything(),
            stdout: Box::new(std::io::sink()),
            stderr: Box::new(std::io::sink()),
            ..RunOptions::new("cycles.wasm")
        });
        assert_eq!(outcome, Outcome::Returned(0));
    };
    // The first runs allocate everything that is kept for all runs; the C library's pools of memory for threads
    // that run at the same time come a few at a time.
    (0..60).for_each(|_| once());
    let (before, descriptors) = taken();
    (0..count).for_each(|_| once());
    let (after, left) = taken();
    assert_eq!(left, descriptors, "descriptors");
    [before, after]
}

/// Kills this many hosts at random moments.
fn kills(plugin: &Path, count: u64) {
    let mut rng = Rng::new(7);
    for _ in 0..count {
        let mut host = allowed();
        host.arg(plugin).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = host.spawn().expect("ks-host starts");
        std::thread::sleep(Duration::from_micros(rng.below(60_000) as u64));
        // It may already have ended.
        let _ = child.kill();
        child.wait().expect("the child is ours");
    }
}

#[test]
fn root_starts_stops_and_kills_leave_nothing() {
    ks_tests::alone!();
    let name = format!("y{}x", std::process::id());
    let file = compile("cycles", &SCRIPT.replace("NAME", &name)).plugin;
    let count = number("KS_CYCLES", 100);
    let [before, after] = cycles(&file, count);
    assert!(after < before + MOST_KIB, "{before} KiB before {count} cycles, {after} after");
    wait_until_gone(&name);
    let folder = Folder::new();
    let killed = number("KS_KILLS", 20);
    kills(&folder.write("cycles.wasm", file), killed);
    wait_until_gone(&name);
    eprintln!("{count} cycles: {before} KiB before, {after} after; {killed} hosts were killed");
}
