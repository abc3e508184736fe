//! Only links and events that the policy allows reach the kernel: a plugin tries each of its acts under any
//! policy, and the test reads the target of every link and the numbers of every event before the kernel creates
//! it. What the policy allows is created, too.
//!
//! Of the PMUs with numbers of their own it tries `msr`, where the machine has it: others differ from machine to machine.
//! Kprobes need a kernel that has them: `emulated::trace::probes` attaches them in the emulated machines.
//!
//! `PROPTEST_CASES=5000` sets the number of cases.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use ks_compiler::object::model::Program;
use ks_compiler::object::{Object, write};
use ks_tests::cgroup::Group;
use ks_tests::guest::core_module;
use ks_tests::net::{LEFT, Wire};
use ks_tests::plugins::models::{name, program};
use ks_tests::refused::{Call, PendingCall, observe};
use ks_tests::{Folder, component, finish};
use ks_wit::section::{Arch, BpfRecord};
use nix::libc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// The programs of the plugin: name and section.
const PROGRAMS: [(&str, &str); 8] = [
    ("xdps", "xdp"),
    ("taps", "socket"),
    ("cgrp", "cgroup/connect4"),
    ("rawt", "raw_tp"),
    ("trac", "tp"),
    ("tcin", "tcx/ingress"),
    ("tceg", "tcx/egress"),
    ("prob", "uprobe"),
];

/// Types of links, in `enum bpf_attach_type`.
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// What the kernel is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    /// A program on the interface of this index.
    Xdp(u32),
    /// A socket filter that is bound to the interface of this index.
    Bound(u32),
    /// A program on one side of the interface of this index.
    Tcx(u32, u32),
    /// A program on the group whose folder has this inode number.
    Group(u64),
    /// A program on the raw tracepoint.
    Raw(String),
    /// An event: type, config, and whether it counts every task.
    Event(u32, u64, bool),
    /// A breakpoint at this address.
    Breakpoint(u64),
    /// A probe in a file, at this offset, and its `config`, which is 0 for one without a counter and not of returns.
    Uprobe(PathBuf, u64, u64),
}

/// An act of the plugin, its code, and what it asks the kernel for. The result of its calls is at 1024.
struct Act {
    code: String,
    /// The rules that a policy needs for it.
    rules: Vec<String>,
    asked: Asked,
    /// Whether the kernel may refuse it.
    may_fail: bool,
}

/// Texts of the plugin, and where they are in its memory.
#[derive(Default)]
struct Texts(String, usize);

impl Texts {
    /// Returns the arguments that pass a text.
    fn pass(&mut self, text: &str) -> String {
        let at = 0x4_0000 + self.1 * 256;
        self.1 += 1;
        self.0.push_str(&format!("(data (i32.const {at}) \"{text}\")"));
        format!("(i32.const {at}) (i32.const {})", text.len())
    }
}

/// Returns the code that stores a letter for the result of an act: `.` for success, `D` for `denied-by-policy`, `E` for
/// another error.
fn letter(at: u32) -> String {
    format!(
        "(i32.store8 (i32.const {at}) (if (result i32) (i32.load8_u (i32.const 1024))
           (then (if (result i32) (i32.eq (i32.load8_u (i32.const 1028)) (i32.const 8))
             (then (i32.const 68)) (else (i32.const 69))))
           (else (i32.const 46))))"
    )
}

fn tracepoint_id(target: &str) -> u64 {
    let (category, event) = target.split_once('/').expect("a category");
    ks_host::tracefs::tracepoint_id(category, event).expect("the kernel has it")
}

/// Returns the code that calls an attaching function of a program with these further arguments.
fn attaching(texts: &mut Texts, call: &str, program: &str, arguments: &str) -> String {
    let name = texts.pass(program);
    format!(
        "(call $bpf.program.load {name} (i32.const 1024))
         (if (i32.eqz (i32.load8_u (i32.const 1024))) (then
           (call {call} (i32.load (i32.const 1028)) {arguments} (i32.const 1024))))"
    )
}

/// Returns the code that makes an event by this call, and opens it on the plugin's own thread.
fn opening(call: &str) -> String {
    format!(
        "(call {call} (i32.const 1024))
         (if (i32.eqz (i32.load8_u (i32.const 1024))) (then
           (call $perf.open (i32.load (i32.const 1028)) (call $perf.options.new) (i32.const 0) (i32.const 0)
             (i32.const 0) (i32.const 0) (i32.const 1024))))"
    )
}

/// Returns the act that opens an event, made by this call, on the plugin's own thread; a policy names its target.
fn event(call: &str, target: &str, asked: Asked) -> Act {
    let rules = vec![format!("event={target}"), "scope=own".to_owned()];
    Act { code: opening(call), rules, asked, may_fail: false }
}

/// Returns the type of a PMU's events; none if the machine has no such PMU.
fn type_of(pmu: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/sys/bus/event_source/devices/{pmu}/type")).ok()?;
    Some(text.trim().parse().expect("a number"))
}

/// Numbers of the PMU `msr`: its only event with a name, and one that the kernel refuses on most virtual machines.
fn numbered(msr: u32) -> impl Iterator<Item = Act> {
    [(0, "msr/tsc/"), (1, "msr/config=0x1/")].into_iter().map(move |(config, name)| {
        let call =
            format!("$perf.event.raw (i32.const {msr}) (i64.const {config}) (i64.const 0) (i64.const 0)");
        Act { may_fail: config == 1, ..event(&call, name, Asked::Event(msr, config, false)) }
    })
}

/// Events by their names and by their numbers.
fn events(texts: &mut Texts) -> Vec<Act> {
    let mut acts = Vec::new();
    let named =
        [("page_faults", 1, 2), ("cpu_clock", 1, 0), ("task_clock", 1, 1), ("context_switches", 1, 3)];
    for (name, ty, config) in named {
        let call = format!("$perf.event.named {}", texts.pass(name));
        acts.push(event(&call, name, Asked::Event(ty, config, false)));
    }
    for (name, config) in [("page_faults_min", 5), ("page_faults_maj", 6)] {
        let call = format!("$perf.event.numbered (i32.const 1) (i64.const {config})");
        acts.push(event(&call, name, Asked::Event(1, config, false)));
    }
    match type_of("msr") {
        Some(msr) => acts.extend(numbered(msr)),
        None => eprintln!("not tried: numbers of the PMU `msr`, which this machine lacks"),
    }
    for tracepoint in ["oom/mark_victim", "oom/compact_retry"] {
        let call = format!("$perf.event.tracepoint {}", texts.pass(tracepoint));
        acts.push(event(&call, tracepoint, Asked::Event(2, tracepoint_id(tracepoint), false)));
    }
    for address in [0x1_0000, 0x2_0000] {
        // The access is a set, of which 2 is to write.
        let call = format!("$perf.event.breakpoint (i64.const {address}) (i32.const 4) (i32.const 2)");
        let breakpoint = event(&call, &format!("breakpoint:{address:#x}:4:w"), Asked::Breakpoint(address));
        // Other tests use the CPU's few breakpoints, too.
        acts.push(Act { may_fail: true, ..breakpoint });
    }
    acts
}

/// Two programs, each with the functions `first`, `second` and `third`.
fn probed(folder: &Folder) -> [PathBuf; 2] {
    let source = "#define F(name) __attribute__((noinline)) int name(int a) { return a + __LINE__; }\n\
                  F(first)\nF(second)\nF(third)\n\
                  int main(int argc, char **argv) { return first(second(third(argc))) == 0; }\n";
    let source = folder.write("probed.c", source);
    ["one", "two"].map(|name| {
        let built = folder.path(name);
        let outcome = finish(Command::new("cc").args(["-O1", "-no-pie", "-o"]).arg(&built).arg(&source));
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        built.canonicalize().expect("it was built")
    })
}

/// Returns the offset of a function in a program that lies at the usual address.
fn offset(program: &Path, function: &str) -> u64 {
    let listed = finish(Command::new("nm").arg(program)).stdout;
    let line = listed.lines().find(|line| line.ends_with(&format!(" {function}"))).expect("the function");
    u64::from_str_radix(&line[..16], 16).expect("an address") - 0x40_0000
}

/// Probes of events and of programs: of two functions, and of two files.
fn probes(texts: &mut Texts, programs: &[PathBuf; 2]) -> Vec<Act> {
    let mut acts = Vec::new();
    for function in ["first", "second"] {
        let location = format!("{}:{function}", programs[0].display());
        let call = format!("$perf.event.uprobe {}", texts.pass(&location));
        let asked = Asked::Uprobe(programs[0].clone(), offset(&programs[0], function), 0);
        acts.push(event(&call, &format!("uprobe:{location}"), asked));
    }
    for program in programs {
        let path = program.display().to_string();
        let arguments = format!(
            "{} {} (i64.const 0) (i32.const 0) (i32.const 0) (i64.const 0)",
            texts.pass(&path),
            texts.pass("third")
        );
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-uprobe", "prob", &arguments),
            rules: vec![format!("uprobe={path}:third")],
            asked: Asked::Uprobe(program.clone(), offset(program, "third"), 0),
            may_fail: false,
        });
    }
    acts
}

fn acts(texts: &mut Texts, wire: &Wire, groups: &[Group; 2], programs: &[PathBuf; 2]) -> Vec<Act> {
    let mut acts = events(texts);
    acts.extend(probes(texts, programs));
    for (interface, number) in [(LEFT, wire.index()), ("lo", 1)] {
        let target = texts.pass(interface);
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-xdp", "xdps", &format!("{target} (i32.const 1)")),
            rules: vec![format!("xdp={interface}")],
            asked: Asked::Xdp(number),
            may_fail: false,
        });
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-socket-filter", "taps", &target),
            rules: vec![format!("socket_filter={interface}")],
            asked: Asked::Bound(number),
            may_fail: false,
        });
        let anywhere = format!("{target} (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)");
        for (program, side) in [("tcin", TCX_INGRESS), ("tceg", TCX_EGRESS)] {
            acts.push(Act {
                code: attaching(texts, "$bpf.program.attach-tc", program, &anywhere),
                rules: vec![format!("tc={interface}")],
                asked: Asked::Tcx(number, side),
                may_fail: false,
            });
        }
    }
    for group in groups {
        let path = group.path().display().to_string();
        let target = texts.pass(&path);
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-cgroup", "cgrp", &target),
            rules: vec![format!("cgroup={path}")],
            asked: Asked::Group(group.id()),
            may_fail: false,
        });
    }
    for tracepoint in ["sched_switch", "sched_wakeup"] {
        let target = format!("{} (i64.const 0)", texts.pass(tracepoint));
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-raw-tracepoint", "rawt", &target),
            rules: vec![format!("raw_tracepoint={tracepoint}")],
            asked: Asked::Raw(tracepoint.to_owned()),
            may_fail: false,
        });
    }
    // The program returns 0, which hides hits from every counter, other tests' too: nobody counts these.
    for tracepoint in ["oom/mark_victim", "oom/compact_retry"] {
        let target = format!("{} (i64.const 0)", texts.pass(tracepoint));
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-tracepoint", "trac", &target),
            rules: vec![format!("tracepoint={tracepoint}"), format!("filters_events={tracepoint}")],
            asked: Asked::Event(2, tracepoint_id(tracepoint), true),
            may_fail: false,
        });
    }
    acts
}

fn object() -> Object {
    let programs: Vec<Program> = PROGRAMS
        .iter()
        .map(|(text, section)| {
            let mut one = program(section, &[]).programs.swap_remove(0);
            one.name = name(text);
            one
        })
        .collect();
    Object { license: Some("GPL".into()), programs, ..Object::default() }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four bytes")))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Source: include/uapi/linux/perf_event.h, `struct perf_event_attr`; kernel/events/core.c,
/// `perf_uprobe_event_init`; v6.18.
fn look_at_event(pending: &PendingCall) -> Asked {
    const BREAKPOINT: u32 = 5;
    let attr = pending.memory(pending.args[0], 72).unwrap_or_default();
    let (ty, config) = (u32_at(&attr, 0), u64_at(&attr, 8));
    let (config1, config2) = (u64_at(&attr, 56), u64_at(&attr, 64));
    match ty {
        BREAKPOINT => Asked::Breakpoint(config1),
        _ if type_of("uprobe") == Some(ty) => {
            let text = pending.memory(config1, 64).expect("a path of the host");
            let text = String::from_utf8_lossy(text.split(|byte| *byte == 0).next().expect("one part"));
            let file = text.replace("/proc/self/", &format!("/proc/{}/", pending.thread()));
            Asked::Uprobe(fs::canonicalize(file).expect("an open file"), config2, config)
        }
        _ => Asked::Event(ty, config, (pending.args[1] as u32).cast_signed() == -1),
    }
}

/// Source: include/uapi/linux/bpf.h, `union bpf_attr` and `enum bpf_attach_type`; perf_event.h, `struct
/// perf_event_attr`; linux/if_packet.h, `struct sockaddr_ll`; v6.18.
fn look(pending: &PendingCall, seen: &mut Vec<Asked>) {
    const LINK_CREATE: u64 = 28;
    const RAW_TRACEPOINT_OPEN: u64 = 17;
    const XDP: u32 = 37;
    const CONNECT4: u32 = 10;
    const PERF_EVENT: u32 = 41;
    let memory = |address: u64, len: usize| pending.memory(address, len).unwrap_or_default();
    match (pending.kind, pending.args[0]) {
        (0, LINK_CREATE) => {
            let attr = memory(pending.args[1], 16);
            let (target, attach_type) = (u32_at(&attr, 4), u32_at(&attr, 8));
            match attach_type {
                XDP => seen.push(Asked::Xdp(target)),
                CONNECT4 => {
                    let folder = fs::metadata(format!("/proc/{}/fd/{target}", pending.thread()));
                    seen.push(Asked::Group(folder.expect("the caller waits").ino()));
                }
                TCX_INGRESS | TCX_EGRESS => seen.push(Asked::Tcx(target, attach_type)),
                // The event was seen when it was opened. libbpf probes what the kernel has with no target.
                PERF_EVENT => {}
                _ => assert!(target.cast_signed() <= 0, "a link of type {attach_type} to {target}"),
            }
        }
        (0, RAW_TRACEPOINT_OPEN) => {
            let address = u64_at(&memory(pending.args[1], 16), 0);
            let text = memory(address, 16);
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            let text = String::from_utf8_lossy(&text[..end]).into_owned();
            // Without a name it is a probe of what the kernel has.
            if address != 0 && !text.is_empty() {
                seen.push(Asked::Raw(text));
            }
        }
        (1, _) => {
            seen.push(look_at_event(pending));
        }
        (2, _) => {
            let address = memory(pending.args[1], 8);
            if address.first() == Some(&(libc::AF_PACKET as u8)) {
                seen.push(Asked::Bound(u32_at(&address, 4)));
            }
        }
        _ => {}
    }
}

#[test]
fn root_links_and_events_are_those_that_the_policy_allows() {
    let (wire, groups) = (Wire::new(), [Group::new(), Group::new()]);
    let folder = Folder::new();
    let programs = probed(&folder);
    let mut texts = Texts::default();
    let acts = acts(&mut texts, &wire, &groups, &programs);
    let code: String = (2048..).zip(&acts).map(|(at, act)| act.code.clone() + &letter(at)).collect();
    let body = format!(
        "{} (func (export \"run\") (result i32) {code}
           (call $console.print (i32.const 2048) (i32.const {}) (i32.const 0) (i32.const 0)) (i32.const 0))",
        texts.0,
        acts.len()
    );
    let elf = write(&object()).expect("a sound object");
    let record = BpfRecord { name: "attached".into(), arch: Arch::Any, elf };
    let plugin = component("attached", &core_module(8, &body), &[record]).expect("it fits the world");
    let file = folder.write("acts.wasm", plugin);
    let empty = folder.write("policy.toml", "");
    let rules: BTreeSet<String> = acts.iter().flat_map(|act| &act.rules).cloned().collect();
    let rules: Vec<String> = rules.into_iter().collect();
    let counts = Mutex::new((0, 0));
    let check = |left_out: &BTreeSet<String>| -> Result<(), TestCaseError> {
        let mut command = wire.command("ks-host");
        command.arg("--policy").arg(&empty).args(["--allow", "import"]);
        // A class with no target at all ends the start: none of these is chosen by the plugin.
        let classes = [
            "xdp",
            "socket_filter",
            "cgroup",
            "raw_tracepoint",
            "tracepoint",
            "filters_events",
            "tc",
            "uprobe",
        ];
        classes.iter().for_each(|class| _ = command.args(["--allow", &format!("{class}=none")]));
        let allowed = rules.iter().filter(|rule| !left_out.contains(*rule));
        allowed.for_each(|rule| _ = command.args(["--allow", rule]));
        let watched = [
            Call { name: "bpf", number: libc::SYS_bpf },
            Call { name: "perf_event_open", number: libc::SYS_perf_event_open },
            Call { name: "bind", number: libc::SYS_bind },
        ];
        let mut seen = Vec::new();
        let outcome = observe(command.arg(&file), &watched, |pending| {
            look(pending, &mut seen);
            None
        });
        let outcome = outcome.expect("the kernel has notifications");
        prop_assert_eq!(outcome.code, 0, "{:?}", outcome);
        let is_allowed = |act: &&Act| act.rules.iter().all(|rule| !left_out.contains(rule));
        let expected = acts.iter().filter(is_allowed).map(|act| act.asked.clone()).collect::<BTreeSet<_>>();
        let seen: BTreeSet<Asked> = seen.into_iter().collect();
        prop_assert_eq!(&seen, &expected, "without {:?}: {:?}", left_out, outcome);
        prop_assert_eq!(outcome.stdout.trim_end().len(), acts.len(), "{:?}", outcome);
        for (act, letter) in acts.iter().zip(outcome.stdout.chars()) {
            let is_expected = match letter {
                '.' => is_allowed(&act),
                'D' => !is_allowed(&act),
                _ => is_allowed(&act) && act.may_fail,
            };
            prop_assert!(
                is_expected,
                "{:?} gave {} without {:?}: {:?}",
                act.asked,
                letter,
                left_out,
                outcome
            );
        }
        let mut counts = counts.lock().expect("nobody panics");
        *counts = (counts.0 + expected.len(), counts.1 + acts.len() - expected.len());
        Ok(())
    };
    let cases = std::env::var("PROPTEST_CASES").map_or(24, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let left_out = prop_oneof![
        1 => Just(BTreeSet::new()),
        5 => prop::collection::btree_set(prop::sample::select(rules.clone()), 0..rules.len()),
    ];
    let result = TestRunner::new(config).run(&left_out, |left_out| check(&left_out));
    result.unwrap_or_else(|error| panic!("{error}"));
    let (allowed, denied) = counts.into_inner().expect("nobody panics");
    assert!(allowed > 0 && denied > 0, "{allowed} {denied}");
}
