//! What the plugin tries: the code of each act, the rules that allow it, and what it asks the kernel for.

use std::path::{Path, PathBuf};
use std::process::Command;

use ks_tests::cgroup::Group;
use ks_tests::net::{LEFT, Wire};
use ks_tests::{Folder, finish};

use super::asked::{Asked, TCX_EGRESS, TCX_INGRESS, type_of};

/// An act of the plugin, its code, and what it asks the kernel for. The result of its calls is at 1024.
pub(super) struct Act {
    pub(super) code: String,
    /// The rules that a policy needs for it.
    pub(super) rules: Vec<String>,
    pub(super) asked: Asked,
    /// Whether the kernel may refuse it.
    pub(super) may_fail: bool,
}

/// Texts of the plugin, and where they are in its memory.
#[derive(Default)]
pub(super) struct Texts(pub(super) String, usize);

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
pub(super) fn letter(at: u32) -> String {
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

/// Probes of functions of the kernel, of events and of programs; none on a kernel without them. Nobody calls these
/// functions meanwhile.
fn kernel_probes(texts: &mut Texts) -> Vec<Act> {
    if type_of("kprobe").is_none() {
        eprintln!("not tried: kprobes, which this kernel lacks; the emulated ones try them");
        return Vec::new();
    }
    let mut acts = Vec::new();
    for function in ["vfs_truncate", "vfs_fallocate"] {
        let call = format!("$perf.event.kprobe {}", texts.pass(function));
        let asked = Asked::Kprobe(function.to_owned(), 0, 0);
        acts.push(event(&call, &format!("kprobe:{function}"), asked));
    }
    let programs = [
        ("kpro", "vfs_fsync_range", 0, 0),
        ("kpro", "vfs_readlink", 4, 0),
        ("kret", "vfs_fsync_range", 0, 1),
    ];
    for (program, function, offset, config) in programs {
        let target = if offset == 0 { function.to_owned() } else { format!("{function}+{offset}") };
        let arguments = format!("{} (i64.const {offset}) (i64.const 0)", texts.pass(function));
        acts.push(Act {
            code: attaching(texts, "$bpf.program.attach-kprobe", program, &arguments),
            rules: vec![format!("kprobe={target}")],
            asked: Asked::Kprobe(function.to_owned(), offset, config),
            may_fail: false,
        });
    }
    acts
}

/// What the acts are aimed at. The emulated machines have neither interfaces nor a compiler.
pub(super) struct Targets {
    pub(super) wire: Option<Wire>,
    pub(super) groups: [Group; 2],
    pub(super) programs: Option<[PathBuf; 2]>,
}

impl Targets {
    /// Creates the targets of this kernel's run; the programs lie in this folder.
    pub(super) fn new(folder: &Folder) -> Targets {
        let groups = [Group::new(), Group::new()];
        match ks_tests::emulated::inside() {
            Some(_) => Targets { wire: None, groups, programs: None },
            None => Targets { wire: Some(Wire::new()), groups, programs: Some(probed(folder)) },
        }
    }

    /// Returns the command of the host that runs there.
    pub(super) fn host(&self) -> Command {
        match &self.wire {
            Some(wire) => wire.command("ks-host"),
            None => ks_tests::command("ks-host"),
        }
    }

    /// Returns every act of the plugin.
    pub(super) fn acts(&self, texts: &mut Texts) -> Vec<Act> {
        let mut acts = events(texts);
        acts.extend(kernel_probes(texts));
        acts.extend(self.programs.iter().flat_map(|programs| probes(texts, programs)));
        acts.extend(self.wire.iter().flat_map(|wire| on_interfaces(texts, wire)));
        acts.extend(on_groups(texts, &self.groups));
        acts.extend(at_tracepoints(texts));
        acts
    }
}

fn on_interfaces(texts: &mut Texts, wire: &Wire) -> Vec<Act> {
    let mut acts = Vec::new();
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
    acts
}

fn on_groups(texts: &mut Texts, groups: &[Group; 2]) -> Vec<Act> {
    let mut acts = Vec::new();
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
    acts
}

fn at_tracepoints(texts: &mut Texts) -> Vec<Act> {
    let mut acts = Vec::new();
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
