//! `ks-host` is killed (SIGKILL) at random moments while it attaches and detaches programs on packets and
//! connections: nothing stays attached. These tests need root.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ks_tests::net::Wire;
use ks_tests::{Folder, compile, finish, number, wait_until_gone};

/// Moments per kind of program; `KS_MOMENTS` overrides the number.
const MOMENTS: u64 = 20;
/// Time from the start to the first attachment and a few iterations, in milliseconds.
const LONGEST_MS: u64 = 60;

/// A script that attaches and detaches as fast as it can. NAME, KIND, CONTEXT, RESULT, PASS and TARGET are
/// filled in.
const SCRIPT: &str = include_str!("scripts/net_killed.ks");

struct Case<'a> {
    name: &'a str,
    kind: &'a str,
    context: &'a str,
    result: &'a str,
    pass: &'a str,
    target: &'a str,
}

impl Case<'_> {
    fn script(&self) -> String {
        SCRIPT
            .replace("NAME", self.name)
            .replace("KIND", self.kind)
            .replace("CONTEXT", self.context)
            .replace("RESULT", self.result)
            .replace("PASS", self.pass)
            .replace("TARGET", self.target)
    }

    /// Kills hosts at random moments; several hosts run at once, each with its own wire.
    fn run(&self) {
        let folder = Folder::new();
        let plugin = folder.write(&format!("{}.wasm", self.name), compile(self.name, &self.script()).plugin);
        let moments = number("KS_MOMENTS", MOMENTS);
        std::thread::scope(|scope| {
            for worker in 0..2 {
                let plugin = &plugin;
                scope.spawn(move || {
                    let wire = Wire::new();
                    for moment in 0..moments / 2 {
                        let child = start(wire.allowed().arg(plugin));
                        std::thread::sleep(Duration::from_millis(spread(worker * moments + moment)));
                        kill(child);
                    }
                    assert!(!wire.describe_left().contains("xdp"), "{}", wire.describe_left());
                });
            }
        });
        wait_until_gone(self.name);
    }
}

/// Returns a moment; the moments are spread over the time and the same in every run.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) % LONGEST_MS
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ks-host starts")
}

fn kill(mut child: Child) {
    child.kill().expect("the child is ours");
    let status = child.wait().expect("the child is ours");
    assert_eq!(status.code(), None, "it was killed, and had not ended: {status}");
}

#[test]
fn root_killed_xdp_leaves_nothing() {
    let (context, result) = ("xdp_md", "xdp_action");
    Case { name: "kskx", kind: "@xdp", context, result, pass: "XDP_PASS", target: "left" }.run();
}

#[test]
fn root_killed_tc_leaves_nothing() {
    let (kind, context, result) = ("@tc(\"egress\")", "__sk_buff", "i32");
    Case { name: "kskt", kind, context, result, pass: "TC_ACT_OK", target: "left" }.run();
}

#[test]
fn root_killed_cgroup_leaves_nothing() {
    let (kind, context, result) = ("@cgroup(\"connect4\")", "bpf_sock_addr", "i32");
    Case { name: "kskc", kind, context, result, pass: "1", target: "." }.run();
}

#[test]
fn root_killed_socket_filter_leaves_nothing() {
    let (kind, context, result) = ("@socket_filter", "__sk_buff", "i32");
    Case { name: "ksks", kind, context, result, pass: "0", target: "left" }.run();
}

/// The loop does attach: asked to stop instead of killed, it ends successfully.
#[test]
fn root_the_loop_attaches() {
    let case = Case {
        name: "kskl",
        kind: "@xdp",
        context: "xdp_md",
        result: "xdp_action",
        pass: "XDP_PASS",
        target: "left",
    };
    let (folder, wire) = (Folder::new(), Wire::new());
    let plugin = folder.write("kskl.wasm", compile("kskl", &case.script()).plugin);
    let outcome = finish(wire.allowed().args(["--timeout", "1"]).arg(plugin));
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (124, 1), "{outcome:#?}");
}
