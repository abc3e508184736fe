//! The command `ks-host`: exit codes, signals, inspect.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use ks_tests::plugins::{OWN_EVENT, component, elf, with_object, with_section};
use ks_tests::{Folder, command, compile, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A temporary plugin file, removed when dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, bytes: &[u8]) -> TempFile {
        let path = std::env::temp_dir().join(format!("ks-host-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).expect("the folder for temporary files is writable");
        TempFile(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn host(file: &TempFile, args: &[&str]) -> Output {
    command("ks-host").arg(&file.0).args(args).output().expect("ks-host starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a component that prints `ready` and then runs this code.
fn ready_then(what: &str) -> Vec<u8> {
    component(&format!(
        r#"(data (i32.const 16) "ready")
        (func (export "run") (result i32)
          (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))
          {what})"#
    ))
}

/// Starts a plugin and waits until it has printed `ready`.
fn start(file: &TempFile) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command("ks-host")
        .arg(&file.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ks-host starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("readable");
    assert_eq!(line, "ready\n");
    (child, stdout)
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), signal).expect("the child is there");
}

#[test]
fn a_file_that_is_not_a_plugin_ends_with_127() {
    let module = wat::parse_str("(module)").expect("a module");
    let truncated = with_section(component(RETURNS_0), "kernelscript:bpf", &[9, 0, 0, 0, 1]);
    for (name, bytes, reason) in [
        ("text", &b"#!/bin/sh\n"[..], "is not a plugin: the file is not WebAssembly"),
        ("module", &module, "is a core WebAssembly module"),
        ("truncated", &truncated, "custom section `kernelscript:bpf`: record at offset 0 says 9 bytes"),
    ] {
        let output = host(&TempFile::new(name, bytes), &[]);
        assert_eq!(output.status.code(), Some(127), "{name}");
        assert!(stderr(&output).contains(reason), "{name}: {}", stderr(&output));
    }
    let missing = command("ks-host").arg("/nonexistent.wasm").output().expect("ks-host starts");
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("No such file"), "{}", stderr(&missing));
}

const RETURNS_0: &str = r#"(func (export "run") (result i32) (i32.const 0))"#;

#[test]
fn a_mistake_on_the_command_line_is_not_a_plugins_code() {
    for (args, code) in [(&["--speed"][..], 125), (&[], 125), (&["--help"], 0), (&["--version"], 0)] {
        let output = command("ks-host").args(args).output().expect("ks-host starts");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn the_exit_code_is_the_plugins() {
    let exits = component(r#"(func (export "run") (result i32) (call $exit (i32.const 7)) (unreachable))"#);
    assert_eq!(host(&TempFile::new("exit", &exits), &[]).status.code(), Some(7));
}

#[test]
fn a_trap_ends_with_125_and_says_why() {
    let traps = TempFile::new("trap", &component(r#"(func (export "run") (result i32) (unreachable))"#));
    let output = host(&traps, &[]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("unreachable"), "{}", stderr(&output));
}

#[test]
fn the_time_limit_ends_with_124() {
    let sleeps =
        ready_then("(call $sleep (i64.const 3600000000000) (i32.const 1024)) (i32.load8_u (i32.const 1024))");
    let output = host(&TempFile::new("timeout", &sleeps), &["--timeout", "0.05"]);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
}

#[test]
fn the_first_ctrl_c_requests_a_stop_and_the_plugin_keeps_its_code() {
    let sleeps = TempFile::new(
        "ask",
        &ready_then("(call $sleep (i64.const 3600000000000) (i32.const 1024)) (i32.const 9)"),
    );
    for asked_by in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut child, _stdout) = start(&sleeps);
        signal(&child, asked_by);
        assert_eq!(child.wait().expect("it ends").code(), Some(9), "{asked_by}");
    }
}

#[test]
fn the_second_ctrl_c_ends_the_plugin_with_130() {
    let loops = TempFile::new("second", &ready_then("(loop $again (br $again)) (unreachable)"));
    let (mut child, _stdout) = start(&loops);
    signal(&child, Signal::SIGINT);
    // Two equal signals that are pending at the same time are delivered as one: repeat until one was
    // delivered second.
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        signal(&child, Signal::SIGINT);
        std::thread::yield_now();
    };
    assert_eq!(status.code(), Some(130));
}

/// Returns whether the host has no pending signals left.
fn has_taken_signals(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it is not reaped");
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap_or("0");
    pending.trim().bytes().all(|digit| digit == b'0')
}

/// As `timeout -s INT` sends it: to its child, and at once to the child's group.
#[test]
fn a_signal_repeated_at_once_counts_once() {
    // Computes for some time after it was asked to stop.
    let sleeps = TempFile::new(
        "same",
        &ready_then(
            "(call $sleep (i64.const 3600000000000) (i32.const 1024))
             (loop $again (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
             (br_if $again (i32.lt_u (i32.load (i32.const 2048)) (i32.const 100000000)))) (i32.const 9)",
        ),
    );
    let (mut child, _stdout) = start(&sleeps);
    for _ in 0..2 {
        signal(&child, Signal::SIGINT);
        while !has_taken_signals(&child) {
            std::thread::yield_now();
        }
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}

#[test]
fn a_reader_that_goes_away_asks_the_plugin_to_stop() {
    // Prints until it is asked to stop.
    let prints = TempFile::new(
        "pipe",
        &ready_then(
            "(loop $again
               (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))
               (br_if $again (i32.eqz (call $stopping))))
             (i32.const 4)",
        ),
    );
    let (mut child, stdout) = start(&prints);
    drop(stdout);
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(said, "");
}

/// Runs a plugin as a user without any capability.
fn host_as_nobody(file: &TempFile) -> Output {
    const NOBODY: u32 = 65534;
    command("ks-host").arg(&file.0).uid(NOBODY).gid(NOBODY).output().expect("ks-host starts")
}

#[test]
fn root_without_rights_own_events_are_counted_and_bpf_names_what_is_missing() {
    let counts = format!(
        r#"{OWN_EVENT}
        (data (i32.const 16) "count")
        (func (export "run") (result i32)
          (local $attachment i32)
          (local.set $attachment (call $own_page_faults (i32.const 0) (i32.const 0)))
          (call $fault)
          (call $read (local.get $attachment) (i32.const 1024))
          (if (i64.eqz (i64.load (i32.const 1032))) (then (return (i32.const 1))))
          (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
          (call $ok))"#
    );
    let file = with_object(component(&counts), elf::counting("perf_event"));
    let output = host_as_nobody(&TempFile::new("nobody", &file));
    let said = stderr(&output);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("perf is there");
    if paranoid.trim().parse::<i32>().expect("a number") <= 2 {
        assert!(said.contains("cannot load"), "{said}");
        assert!(said.contains("ks-host does not have CAP_BPF and CAP_PERFMON"), "{said}");
    } else {
        assert!(said.contains("CAP_PERFMON"), "{said}");
    }
    assert_eq!(output.status.code(), Some(125), "{said}");
}

#[test]
fn inspect_shows_what_a_plugin_asks_for() {
    let manifest = r#"{"format":1,"compiler":"ks 0.1.0","project":"faults",
        "source":{"file":"faults.ks","sha256":"00ff"},
        "programs":[{"name":"count","kind":"perf_event"}],
        "maps":[{"name":"hits","kind":"hash","key":"u32","value":"u64","max_entries":16}],
        "globals":[{"name":"counter","type":"u64"}],
        "events":[{"event":"page_faults","pid":0,"cpu":-1,"program":"count","line":7},
                  {"event":null,"pid":null,"cpu":2,"program":null,"line":12}]}"#;
    let mut section = Vec::new();
    ks_wit::section::push_record(&mut section, manifest.as_bytes());
    let file = with_object(component(RETURNS_0), elf::counting("perf_event"));
    let file = TempFile::new("inspect", &with_section(file, ks_wit::section::MANIFEST, &section));
    let inspect = |args: &[&str]| {
        let output =
            command("ks-host").arg("inspect").args(args).arg(&file.0).output().expect("ks-host starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = inspect(&[]);
    for line in [
        "project   faults",
        "source    faults.ks (sha256 00ff)",
        "  page_faults           its own thread             any CPU  runs `count`  line 7",
        "  (chosen at run time)  a task chosen at run time  CPU 2    counted only  line 12",
        "  count  perf_event",
        "  hits  hash  u32 -> u64  at most 16",
        "  counter  u64",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line:?} in:\n{text}");
    }
    assert!(text.contains("  test  any  "), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let json: serde_json::Value = serde_json::from_str(&inspect(&["--json"])).expect("JSON");
    assert_eq!(json["manifests"][0]["project"], "faults");
    assert_eq!(json["objects"][0]["arch"], "any");
    let program = &json["objects"][0]["programs"][0];
    assert_eq!((&program["name"], &program["section"]), (&"count".into(), &"perf_event".into()), "{program}");
    assert!(program["instructions"].as_u64().is_some_and(|size| size > 0), "{program}");
    assert_eq!(json["capabilities"], serde_json::json!(["CAP_BPF", "CAP_PERFMON"]));
    assert!(text.contains("capabilities that it needs\n  CAP_BPF\n  CAP_PERFMON\n"), "{text}");
}

/// The addresses of variables whose type the script declares are in /proc/kallsyms, for those who may see them.
#[test]
fn inspect_lists_the_capability_to_read_addresses_of_variables() {
    let script = "extern total_forks: u64
        var forks : u64 = 0
        @tracepoint(\"sched/sched_switch\")
        fn count(ctx: *trace_event_raw_sched_switch) -> i32 {
            forks = total_forks
            return 0
        }
        fn main() -> i32 { return forks as i32 }";
    let folder = Folder::new();
    let file = folder.write("forks.wasm", compile("forks", script).plugin);
    let outcome = finish(command("ks-host").arg("inspect").arg(&file));
    let needs = "capabilities that it needs\n  CAP_BPF\n  CAP_PERFMON\n  CAP_SYSLOG\n";
    assert!(outcome.stdout.contains(needs), "{outcome:#?}");
}

#[test]
fn the_doctor_looks_at_what_plugins_depend_on() {
    let doctor = |args: &[&str]| {
        let output = command("ks-host").arg("doctor").args(args).output().expect("ks-host starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let findings: serde_json::Value = serde_json::from_str(&doctor(&["--json"])).expect("JSON");
    let findings = findings.as_array().expect("a list");
    let text = doctor(&[]);
    for topic in [
        "kernel.perf_event_paranoid",
        "CAP_BPF",
        "hardware PMU",
        "kernel.nmi_watchdog",
        "BTF",
        "tracefs",
        "bpf",
        "seccomp",
        "perf_event_open(2)",
        "bpf(2)",
    ] {
        let finding = findings.iter().find(|finding| finding["topic"] == topic).expect(topic);
        let state = finding["state"].as_str().expect("text");
        assert!(
            text.lines().any(|line| line.starts_with(state) && line.contains(topic)),
            "{topic} is {state}:\n{text}"
        );
        assert_eq!(finding.get("do").is_some(), matches!(state, "limited" | "missing"), "{finding}");
    }
    let probed = |args: &[&str]| doctor(args).contains("free counters of breakpoint");
    assert!(probed(&["--probe-pmu"]) && !probed(&[]), "only who asks for it takes counters");
    let pmu = findings.iter().find(|finding| finding["topic"] == "hardware PMU").expect("it is looked at");
    let published = ["cpu", "cpu_core", "armv8_pmuv3"]
        .iter()
        .any(|name| std::path::Path::new("/sys/bus/event_source/devices").join(name).exists());
    assert_eq!(pmu["state"] == "good", published, "{pmu}");
}

#[test]
fn events_are_listed_in_both_spellings_with_what_counts_them() {
    let events =
        |args: &[&str]| command("ks-host").arg("events").args(args).output().expect("ks-host starts");
    let text = |args: &[&str]| {
        let output = events(args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(text(&["page-faults"]), "software events\n  page_faults  page-faults  counted\n");
    let listed: serde_json::Value = serde_json::from_str(&text(&["--json", "cache_misses"])).expect("JSON");
    let misses = &listed[0];
    assert_eq!(
        (&misses["name"], &misses["perf"]),
        (&"cache_misses".into(), &"cache-misses".into()),
        "{listed}"
    );
    assert_eq!(misses["family"], "hardware");
    assert_eq!(misses["counted"] == false, misses["because"].is_string(), "{misses}");
    let all: serde_json::Value = serde_json::from_str(&text(&["--json"])).expect("JSON");
    let all = all.as_array().expect("a list");
    let of = |family: &str| all.iter().filter(|event| event["family"] == family).count();
    assert_eq!((of("hardware"), of("software"), of("cache")), (10, 12, 42));
    for event in all.iter().filter(|event| event["counted"] == false) {
        let because = event["because"].as_str().expect("text");
        assert!(!because.is_empty() && !because.contains('\n'), "{event}");
    }
    // A reason that several events share is printed once.
    let table = text(&[]);
    let lines: Vec<&str> = table.lines().filter(|line| line.trim_start().starts_with('[')).collect();
    for reason in &lines {
        let (_, explanation) = reason.split_once("] ").expect("a number and words");
        assert_eq!(
            table.matches(explanation).count(),
            lines.iter().filter(|line| line.contains(explanation)).count(),
            "{explanation}"
        );
    }
    assert_eq!(table.contains("not here ["), !lines.is_empty(), "{table}");
    let unknown = events(&["page_fault"]);
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(125), 0));
    let said = stderr(&unknown);
    assert!(said.contains("no event matches `page_fault`; near: page_faults"), "{said}");
}

#[test]
fn completions_and_the_manual_know_every_verb() {
    let text = |args: &[&str]| {
        let output = command("ks-host").args(args).output().expect("ks-host starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let help = text(&["--help"]);
    let (_, listed) = help.split_once("Commands:\n").expect("verbs");
    let verbs: Vec<&str> =
        listed.lines().map_while(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert!(verbs.contains(&"inspect") && verbs.contains(&"doctor"), "{verbs:?}");
    let (bash, manual) = (text(&["completions", "bash"]), text(&["man"]));
    for verb in verbs {
        assert!(bash.contains(verb), "{verb}");
        assert!(verb == "help" || manual.contains(&format!("\"KS-HOST {}\"", verb.to_uppercase())), "{verb}");
    }
    for shell in ["zsh", "fish"] {
        assert!(text(&["completions", shell]).contains("precompile"), "{shell}");
    }
}

/// An error's message includes its cause, and its chain does too: no part of a message is printed twice.
#[test]
fn no_cause_is_printed_twice() {
    let folder = ks_tests::Folder::new();
    let script = folder.write("fine.ks", "fn main() -> i32 { return 0 }\n");
    let broken = folder.write("broken", "[allow\nnonsense");
    let (script, broken) = (script.to_str().expect("text"), broken.to_str().expect("text"));
    let folder_path = folder.path("").to_string_lossy().into_owned();
    let plugin = TempFile::new("twice", &component("(func (export \"run\") (result i32) (i32.const 0))"));
    let plugin = plugin.0.to_str().expect("text").to_owned();
    let cases: &[(&str, &[&str])] = &[
        ("ks-host", &["--policy", broken, &plugin]),
        ("ks-host", &["--policy", &folder_path, &plugin]),
        ("ks-host", &["--event-table", broken, &plugin]),
        ("ks-host", &["--audit", "/nowhere/audit", &plugin]),
        ("ks-host", &["--record", "/nowhere/record", &plugin]),
        ("ks-host", &["--output", "/nowhere/output", &plugin]),
        ("ks-host", &["--allow", "xpd=lo", &plugin]),
        ("ks-host", &["--limit", "map=1", &plugin]),
        ("ks-host", &["--signer", "a=/nowhere", &plugin]),
        ("ks-host", &["replay", &plugin, broken]),
        ("ks-host", &["replay", &plugin, &folder_path]),
        ("ks-host", &["verify", "--signer", "a=/nowhere", &plugin]),
        ("ks-host", &["inspect", broken]),
        ("ks-host", &["check", broken]),
        ("ks-host", &["/nowhere/x.wasm"]),
        ("ks-host", &["/nowhere/x.ks"]),
        ("ks-host", &[broken]),
        ("ks-host", &[&plugin, "--exec", "/nowhere/command"]),
        ("ks-host", &["test", broken]),
        ("ks", &["build", "/nowhere/x.ks"]),
        ("ks", &["check", "/nowhere/x.ks"]),
        ("ks", &["build", script, "--btf", broken]),
        ("ks", &["build", script, "--btf", "/nowhere"]),
        ("ks", &["build", script, "-o", "/nowhere/x.wasm"]),
        ("ks", &["fmt", "/nowhere/x.ks"]),
        ("ks", &["test", "/nowhere/x.ks"]),
        ("ks", &["share", broken]),
    ];
    for (name, arguments) in cases {
        let output = command(name).args(*arguments).output().expect("it starts");
        let text = stderr(&output);
        assert!(!text.is_empty(), "{name} {arguments:?} says nothing");
        let parts = text.split(['\n', ';']).flat_map(|line| line.split(": ")).map(str::trim);
        let mut parts: Vec<&str> =
            parts.filter(|part| part.len() > 12 && !arguments.contains(part)).collect();
        parts.sort_unstable();
        let twice: Vec<_> = parts.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{name} {arguments:?}: {twice:?} in\n{text}");
    }
}
