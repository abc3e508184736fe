//! The cost of BPF programs, beside `bpftool prog show`, which reads the same counters in the same run.

use std::process::Command;

use ks_tests::{command, finish};

use super::{RunningTool, rows, tool};

/// How often the program runs while it is watched.
const CALLS: u64 = 250;

/// A plugin whose program runs at a system call that hardly anybody makes.
const WATCHED: &str = "@tracepoint(\"syscalls/sys_enter_getsid\") fn ks_seen_by_stat(ctx: \
                       *trace_event_raw_sys_enter) -> i32 { calls[cpu()] += 1 return 0 }";

/// The runs and nanoseconds that bpftool shows for the program.
fn shown_by_bpftool() -> [u64; 2] {
    let ran = finish(Command::new("bpftool").args(["-j", "prog", "show"]));
    let programs: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let mut programs = programs.as_array().expect("a list").iter();
    let program = programs.find(|program| program["name"] == "ks_seen_by_stat").expect("it is loaded");
    ["run_cnt", "run_time_ns"].map(|member| program[member].as_u64().unwrap_or(0))
}

#[test]
fn root_bpfstat_shows_what_bpftool_shows() {
    let mut watched = command("ks-host");
    let watched = RunningTool::of(watched.args(["-e", WATCHED]));
    let bpfstat = RunningTool::begin("bpfstat", &["--interval", "3600000", "--kind", "tracepoint"]);
    let before = shown_by_bpftool();
    for _ in 0..CALLS {
        nix::unistd::getsid(None).expect("it has one");
    }
    let after = shown_by_bpftool();
    let ran = bpfstat.end();
    watched.end();
    let [runs, ns] = [0, 1].map(|member: usize| after[member] - before[member]);
    let shown = rows(&ran, "ks_seen_by_stat");
    assert_eq!(runs, CALLS, "{ran:#?}");
    assert_eq!(shown.len(), 1, "{ran:#?}");
    let expected = ["tracepoint".to_owned(), "ks_seen_by_stat".into(), runs.to_string(), ns.to_string()];
    assert_eq!(shown[0][1..5], expected.each_ref().map(String::as_str), "{ran:#?}");
    assert_eq!(shown[0][5], (ns / runs).to_string(), "{ran:#?}");
    assert!(rows(&ran, "perf_event").is_empty(), "{ran:#?}");
}

#[test]
fn root_bpfstat_needs_its_class_of_a_policy() {
    let folder = ks_tests::Folder::new();
    let policy = finish(command("ks-host").args(["tools", "bpfstat", "--policy"]));
    assert!(policy.stdout.contains("programs"), "{policy:#?}");
    let file = folder.write("policy.toml", &policy.stdout);
    let run = |policy: &std::path::Path| {
        finish(tool("bpfstat", &["--interval", "1", "--count", "1"]).arg("--policy").arg(policy))
    };
    let allowed = run(&file);
    assert_eq!(allowed.code, 0, "{allowed:#?}");
    let without = policy.stdout.lines().filter(|line| !line.starts_with("programs"));
    let file = folder.write("less.toml", without.collect::<Vec<_>>().join("\n"));
    let denied = run(&file);
    assert_eq!(denied.code, 126, "{denied:#?}");
    assert!(denied.stderr.contains("programs"), "{denied:#?}");
}
