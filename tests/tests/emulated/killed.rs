//! `ks-host` is killed (SIGKILL) at random moments while it attaches and detaches programs that observe:
//! nothing stays attached. Packets and connections on the running kernel: `net_killed`; structs of the
//! kernel: `registering`. These tests need root.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::{Folder, allowed, compile, number, wait_until_gone};

#[test]
fn kernel_6_1() {
    killed_in(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    killed_in(Kernel::V6_12);
}

fn killed_in(kernel: Kernel) {
    Machine::new(kernel).seconds(120 + 4 * moments()).run_tests(module_path!(), &["everything_killed"]);
}

/// Moments per kind of program; an emulated kernel attaches all kinds together. `KS_MOMENTS` overrides the
/// number.
const MOMENTS: u64 = 10;

fn moments() -> u64 {
    number("KS_MOMENTS", MOMENTS)
}

/// A program to attach: its name, attribute, parameters and result, the returned value, and the target.
pub(super) struct AttachedProgram {
    name: &'static str,
    attribute: &'static str,
    params: &'static str,
    result: &'static str,
    pass: &'static str,
    target: &'static str,
}

impl AttachedProgram {
    /// Creates a program that observes, attached to the target of its attribute.
    const fn new(name: &'static str, attribute: &'static str, params: &'static str) -> AttachedProgram {
        AttachedProgram { name, attribute, params, result: "i32", pass: "0", target: "" }
    }

    /// Creates a program that lets packets or connections pass.
    const fn passing(
        self,
        result: &'static str,
        pass: &'static str,
        target: &'static str,
    ) -> AttachedProgram {
        AttachedProgram { result, pass, target, ..self }
    }

    fn program(&self) -> String {
        let AttachedProgram { name, attribute, params, result, pass, .. } = self;
        format!("{attribute}\nfn NAME{name}({params}) -> {result} {{ hits += 1 return {pass} }}\n")
    }

    /// Returns one iteration: attach, check, detach.
    fn loop_body(&self) -> String {
        let AttachedProgram { name, target, .. } = self;
        match *name {
            "perf" => format!(
                "var att = attach(p_{name}, \
                 perf_options {{ event: context_switches, pid: 0, cpu: -1, period: 1 }}, 0)
                if (att == null) {{ return 1 }}
                detach(att)\n"
            ),
            // A timer starts at its load and keeps running.
            "turns" => {
                format!("detach(p_{name})\nif (attach(p_{name}, \"\", 0) != 0) {{ return 1 }}\n")
            }
            _ => format!("if (attach(p_{name}, \"{target}\", 0) != 0) {{ return 1 }}\ndetach(p_{name})\n"),
        }
    }
}

/// Programs for any kernel.
pub(super) const KINDS: [AttachedProgram; 8] = [
    AttachedProgram::new("perf", "@perf_event", "ctx: *bpf_perf_event_data"),
    AttachedProgram::new(
        "record",
        "@tracepoint(\"sched/sched_switch\")",
        "ctx: *trace_event_raw_sched_switch",
    ),
    AttachedProgram::new("raw", "@raw_tracepoint(\"sched_switch\")", "preempt: bool"),
    AttachedProgram::new("enter", "@syscall_enter(\"read\")", "fd: u32"),
    AttachedProgram::new("called", "@syscall_exit(\"read\")", "ret: i64"),
    AttachedProgram::new("user", "@uprobe(\"/proc/self/exe:main\")", "a: i32"),
    AttachedProgram::new("userret", "@uretprobe(\"/proc/self/exe:main\")", "ret: i32"),
    AttachedProgram::new("turns", "@timer(\"1ms\")", "").passing("void", "", ""),
];

/// Programs for kernels that are not locked down.
const PROBES: [AttachedProgram; 4] = [
    AttachedProgram::new("entry", "@probe(\"vfs_fsync\")", "file: *file"),
    AttachedProgram::new("leave", "@retprobe(\"vfs_fsync\")", "file: *file"),
    AttachedProgram::new("offset", "@probe(\"vfs_fsync+0\")", "file: *file"),
    AttachedProgram::new("hook", "@lsm(\"file_open\")", "file: *file, ret: i32"),
];

/// Programs on packets and connections, for emulated kernels; `net_killed` covers the running one.
const NETWORK: [AttachedProgram; 5] = [
    AttachedProgram::new("driver", "@xdp", "ctx: *xdp_md").passing("xdp_action", "XDP_PASS", "lo"),
    AttachedProgram::new("queue", "@tc(\"ingress\")", "ctx: *__sk_buff").passing("i32", "TC_ACT_OK", "lo"),
    AttachedProgram::new("group", "@cgroup(\"egress\")", "ctx: *__sk_buff").passing(
        "i32",
        "1",
        "/sys/fs/cgroup",
    ),
    AttachedProgram::new("connect", "@cgroup(\"connect4\")", "ctx: *bpf_sock_addr").passing(
        "i32",
        "1",
        "/sys/fs/cgroup",
    ),
    AttachedProgram::new("filter", "@socket_filter", "ctx: *__sk_buff").passing("i32", "0", "lo"),
];

/// Returns a script that attaches and detaches as fast as it can, and prints a line after the first time.
pub(super) fn script(kinds: &[&AttachedProgram], prefix: &str) -> String {
    let programs: String = kinds.iter().map(|kind| kind.program()).collect();
    let load = |kind: &&AttachedProgram| format!("var p_{0} = load(NAME{0})\n", kind.name);
    let loads: String = kinds.iter().map(load).collect();
    let loop_bodies: String = kinds.iter().map(|kind| kind.loop_body()).collect();
    let script = format!(
        "var hits: u64 = 0
        {programs}
        fn main() -> i32 {{
            {loads}
            var turns: u64 = 0
            while (!stopping()) {{
                {loop_bodies}
                turns += 1
                if (turns == 1) {{ print(\"attached\") }}
            }}
            return 0
        }}"
    );
    script.replace("NAME", prefix)
}

fn start(plugin: &Path) -> Child {
    // Where tracefs is not mounted, the host mounts it in its own namespace.
    let mut host = allowed();
    host.arg(plugin).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    host.spawn().expect("ks-host starts")
}

fn kill(mut child: Child) {
    child.kill().expect("the child is ours");
    let status = child.wait().expect("the child is ours");
    assert_eq!(status.code(), None, "it was killed, and had not ended: {status}");
}

/// Kills the host after its first line; returns the time from the start to that line.
fn attached_once(plugin: &Path) -> Duration {
    let began = Instant::now();
    let mut child = start(plugin);
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
    assert_eq!(line, "attached\n", "{}: it does attach", plugin.display());
    let whole = began.elapsed();
    kill(child);
    whole
}

/// Kills hosts at moments that are spread over the time of the first attachment and a few iterations; they
/// are the same in every run.
fn kill_at_moments(kinds: &[&AttachedProgram], prefix: &str) {
    let folder = Folder::new();
    let plugin = folder.write(&format!("{prefix}.wasm"), compile(prefix, &script(kinds, prefix)).plugin);
    // The first run also compiles the plugin.
    attached_once(&plugin);
    let whole = attached_once(&plugin).min(Duration::from_secs(2));
    for moment in 0..moments() {
        let child = start(&plugin);
        let spread = moment.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % 1000;
        std::thread::sleep(whole * 5 / 4 * u32::try_from(spread).expect("below 1000") / 1000);
        kill(child);
    }
    wait_until_gone(prefix);
}

#[test]
fn root_each_kind_killed_leaves_nothing() {
    if inside().is_some() {
        return;
    }
    std::thread::scope(|scope| {
        for (number, kinds) in KINDS.chunks(4).enumerate() {
            scope.spawn(move || {
                for (index, kind) in kinds.iter().enumerate() {
                    kill_at_moments(&[kind], &format!("k{}x{number}{index}", std::process::id()));
                }
            });
        }
    });
}

#[test]
fn everything_killed_leaves_nothing() {
    if inside().is_none() {
        return;
    }
    let kinds: Vec<&AttachedProgram> = KINDS.iter().chain(&PROBES).chain(&NETWORK).collect();
    kill_at_moments(&kinds, "ksm");
    // The qdiscs are removed too.
    let users = std::fs::read_to_string("/sys/module/sch_ingress/refcnt").expect("the module is loaded");
    assert_eq!(users.trim(), "0");
}
