//! A worker, or the host whose worker it is, is killed (SIGKILL) at random moments: the plugin ends with a message,
//! nothing stays attached, and no process stays. `KS_MOMENTS` is the number of moments. These tests need root.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::fuzzed::Rng;
use ks_tests::{Folder, allowed, compile, is_within, number, wait_until_gone};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp};

use super::killed::{KINDS, script};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).seconds(240).run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).seconds(240).run_tests(module_path!(), &["root_"]);
}

fn moments() -> u64 {
    number("KS_MOMENTS", 10)
}

fn start(plugin: &Path) -> Child {
    let mut host = allowed();
    host.args(["--isolation", "process"]).arg(plugin);
    host.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("ks-host starts")
}

/// Returns the worker of a host; none if it has none now.
fn worker(host: &Child) -> Option<Pid> {
    let processes = fs::read_dir("/proc").expect("proc is mounted").flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // What it is forked from leads their group of processes; what takes filters away is in the group of its host.
    let is_worker = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = after_name.split_whitespace().skip(1).map_while(|field| field.parse::<i64>().ok());
        let (parent, group) = (fields.next(), fields.next());
        let of_others = [Some(i64::from(*pid)), Some(getpgrp().as_raw().into())];
        parent == Some(host.id().into()) && !of_others.contains(&group)
    };
    numbers.find(is_worker).map(Pid::from_raw)
}

fn is_gone(process: Pid) -> bool {
    kill(process, None).is_err()
}

/// Starts hosts of a plugin that attaches and detaches as fast as it can, and calls this at random moments of each.
fn at_moments(what: &str, act: impl Fn(Child)) {
    let folder = Folder::new();
    let prefix = format!("{what}{}x", std::process::id());
    let kinds: Vec<_> = KINDS.iter().collect();
    let file = folder.write(&format!("{prefix}.wasm"), compile(&prefix, &script(&kinds, &prefix)).plugin);
    let mut rng = Rng::new(11);
    for _ in 0..moments() {
        let host = start(&file);
        std::thread::sleep(Duration::from_micros(rng.below(120_000) as u64));
        act(host);
    }
    wait_until_gone(&prefix);
}

#[test]
fn root_a_killed_worker_ends_its_plugin_and_leaves_nothing() {
    at_moments("w", |mut host| {
        let mut found = None;
        assert!(
            is_within(Duration::from_secs(30), || {
                found = worker(&host);
                found.is_some()
            }),
            "a worker is there"
        );
        kill(found.expect("it was found"), Signal::SIGKILL).expect("it is not waited for before");
        let mut said = String::new();
        host.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        let status = host.wait().expect("the child is ours");
        assert!(status.code() == Some(125) && said.contains("SIGKILL"), "{status} {said}");
    });
}

#[test]
fn root_a_killed_host_leaves_no_worker() {
    at_moments("b", |mut host| {
        let worker = worker(&host);
        host.kill().expect("the child is ours");
        host.wait().expect("the child is ours");
        let is_gone = || worker.is_none_or(is_gone);
        assert!(is_within(Duration::from_secs(10), is_gone), "{worker:?} is left");
    });
}
