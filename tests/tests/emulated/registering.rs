//! Structs of the kernel that a script implements and registers: congestion controls of TCP, listed by name
//! and used by connections of this process. These tests need root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::watched::Running;
use ks_tests::{
    Folder, Outcome, allowed, command, compile, finish, kernel_objects, number, run_script, wait_until,
};
use socket2::SockRef;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_links"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12)
        .run_tests(module_path!(), &["root_links", "root_example", "root_methods", "root_lf_078"]);
}

/// Returns a name that only this process uses.
fn unique(name: &str) -> String {
    format!("{name}{}", std::process::id())
}

fn algorithms(which: &str) -> Vec<String> {
    let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
    let text = std::fs::read_to_string(path).expect("the kernel has TCP");
    text.split_whitespace().map(str::to_owned).collect()
}

fn is_registered(name: &str) -> bool {
    algorithms("available").iter().any(|one| one == name)
}

/// Opens a connection with a congestion control in this process and sends this many bytes, each of which the
/// peer answers.
fn transfer_with(name: &str, bytes: usize) {
    if inside().is_some() {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()), "busybox has ip");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    SockRef::from(&near).set_tcp_congestion(name.as_bytes()).expect("it is registered");
    let (mut far, _) = listener.accept().expect("it was connected");
    let mut byte = [7];
    for _ in 0..bytes {
        near.write_all(&byte).expect("connected");
        far.read_exact(&mut byte).expect("connected");
        far.write_all(&byte).expect("connected");
        near.read_exact(&mut byte).expect("connected");
    }
}

/// Starts a script in which this name replaces `ksname`.
fn started(script: &str, name: &str) -> Running {
    Running::start(name, &script.replace("ksname", name), &[] as &[&str])
}

#[test]
fn root_example_is_used_by_a_connection_and_gone_with_the_plugin() {
    if inside().as_deref() == Some("6.1") {
        return;
    }
    let name = unique("ksm");
    // Emulated machines lack the file, so it is embedded.
    let script = include_str!("../../../examples/net/congestion.ks").replace("ks_modest", &name);
    let arguments = ["--seconds", "60"];
    let running = Running::begin(allowed(), "congestion", &script, &arguments, "registered");
    assert!(is_registered(&name), "{:?}", algorithms("available"));
    transfer_with(&name, 20);
    let output = finish(command("ks-host").args(["ps", "--json", "--seconds", "0.01"]));
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("connections"), [1], "{outcome:#?}");
    // An answer arrives after the acknowledgement of its request.
    assert!(outcome.row("acknowledged")[1].parse::<u64>().expect("a number") >= 20, "{outcome:#?}");
    let window: u64 = outcome.row("window")[1].parse().expect("a number");
    assert!((1..=10).contains(&window), "it starts with 10 and does not grow: {outcome:#?}");
    within(5, "it is gone", || !is_registered(&name));
    let processes: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let registered = format!("{name} (tcp_congestion_ops)");
    let lists = processes.as_array().expect("a list").iter().map(|process| &process["registered"]);
    assert!(lists.into_iter().any(|list| *list == serde_json::json!([registered])), "{processes:#}");
}

/// Methods with parameters of every kind, which call each other and helpers.
const METHODS: &str = include_str!("scripts/registering_methods.ks");

#[test]
fn root_methods_call_each_other_and_read_their_arguments() {
    let name = unique("ksc");
    let running = started(METHODS, &name);
    within(5, "it is registered", || is_registered(&name));
    assert!(!is_registered(&format!("{name}_other")), "nobody registered it");
    transfer_with(&name, 10);
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let row = outcome.row("starts");
    let number = |at: usize| row[at].parse::<u64>().expect("a number");
    let (ones, sum) = (number(9), number(7));
    assert_eq!((number(1), number(3), number(5)), (1, 20, 2), "AF_INET is 2: {outcome:#?}");
    // Each acknowledgement of one segment adds 2 * 1 + 3 * 1.
    assert!(ones >= 1 && sum >= 5 * ones, "{outcome:#?}");
    assert!(outcome.stdout.contains("\na connection\n"), "{outcome:#?}");
}

/// Waits until a condition holds; the limit is longer in an emulated machine.
fn within(seconds: u64, what: &str, holds: impl Fn() -> bool) {
    wait_until(Duration::from_secs(seconds * if inside().is_some() { 6 } else { 1 }), what, holds);
}

const MEMBERS: &str = "fn ssthresh(sk: *u8) -> u32 { return 2 }
        fn undo_cwnd(sk: *u8) -> u32 { return 2 }
        fn cong_avoid(sk: *u8, ack: u32, acked: u32) -> void { }";

fn block(name: &str, fields: &str) -> String {
    format!("@struct_ops(\"tcp_congestion_ops\")\nimpl {name} {{\n    {fields}\n        {MEMBERS}\n}}\n")
}

/// LF-078: an impl block with methods, `name:` and numbers registers; the default name is the first 15 bytes
/// of the block's.
#[test]
fn root_lf_078_a_block_registers_and_its_plugin_stays() {
    let (long, given) = (unique("ks_a_long_name_of_"), unique("ksg"));
    let blocks =
        block(&long, "") + &block("second", &format!("name: \"{given}\",\n    flags: 1,\n    key: 0,"));
    let script = format!(
        "{blocks}fn main() -> i32 {{\n    print(\"ready\")\n    \
         if (register({long}) != 0) {{ return 1 }}\n    \
         return register(second)\n}}\n"
    );
    // The plugin has nothing left to do, and stays until it is asked to end.
    let running = Running::start("stays", &script, &[] as &[&str]);
    within(5, "both are registered", || is_registered(&long[..15]) && is_registered(&given));
    // TCP_CONG_NON_RESTRICTED: every user may use it.
    assert!(algorithms("allowed").contains(&given), "{:?}", algorithms("allowed"));
    assert!(!algorithms("allowed").contains(&long[..15].to_owned()), "{:?}", algorithms("allowed"));
    let outcome = running.stop();
    let waits = format!("stays.wasm: waiting, with `{long}`, `second` registered, until this is stopped");
    assert!(outcome.code == 0 && outcome.stderr.starts_with(&waits), "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
    within(5, "both are gone", || !is_registered(&long[..15]) && !is_registered(&given));
    let run = |flags: &[&str]| {
        let folder = Folder::new();
        let file = folder.write("stays.wasm", compile("stays", &script).plugin);
        finish(allowed().args(flags).arg(file))
    };
    let ends = |flags: &[&str]| {
        let outcome = run(flags);
        assert!(outcome.code == 0 && !is_registered(&given), "{outcome:#?} {:?}", algorithms("available"));
        outcome.stderr.contains("registered, until this is stopped")
    };
    assert!(!ends(&["--no-wait"]));
    // The time limit ends the registration; the plugin's code ended long before. A slow machine takes more
    // than 3 s.
    assert!(["3", "20"].iter().any(|limit| ends(&["--timeout", limit])));
}

#[test]
fn root_a_plugin_that_waited_or_failed_does_not_stay() {
    for (name, end) in [("waited", "sleep(1)\n    return 0"), ("failed", "return 3")] {
        let own = unique("kse");
        let script = block(&own, "")
            + &format!("fn main() -> i32 {{\n    var refused = register({own})\n    {end}\n}}\n");
        let script = script.replace("var refused = register", "var refused : u32 = register");
        let outcome = run_script::<&str>(name, &script, &[]);
        assert_eq!(outcome.code, if name == "failed" { 3 } else { 0 }, "{outcome:#?}");
        within(5, "it is gone", || !is_registered(&own));
    }
}

fn result_of(script: &str) -> (Outcome, i64) {
    let outcome = run_script::<&str>("refused", script, &[]);
    let result = outcome.numbers("result")[0];
    (outcome, result)
}

#[test]
fn root_a_refused_registration_returns_the_errno_and_prints_a_line() {
    let name = unique("ksr");
    let twice = block(&name, "")
        + &format!(
            "fn main() -> i32 {{\n    register({name})\n    print(\"result %u\", register({name}))\n    \
             return 1\n}}\n"
        );
    let (outcome, result) = result_of(&twice);
    assert_eq!(result, 17, "EEXIST: {outcome:#?}");
    assert!(outcome.stderr.contains(&format!("cannot register `{name}`")), "{outcome:#?}");
    assert!(outcome.stderr.contains("EEXIST"), "{outcome:#?}");

    let incomplete = format!(
        "@struct_ops(\"tcp_congestion_ops\")\nimpl {name} {{\n    \
         fn undo_cwnd(sk: *u8) -> u32 {{ return 2 }}\n}}\n\
         fn main() -> i32 {{\n    print(\"result %u\", register({name}))\n    return 1\n}}\n"
    );
    let (outcome, result) = result_of(&incomplete);
    assert_eq!(result, 22, "EINVAL: {outcome:#?}");
    assert!(!is_registered(&name));
}

/// No kernel of these tests has the struct: the object is built, libbpf reads it, and the error names what
/// the kernel lacks.
#[test]
fn root_a_scheduler_is_refused_where_the_kernel_has_none() {
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel describes its types");
    let wrapper = b"bpf_struct_ops_sched_ext_ops\0";
    if btf.windows(wrapper.len()).any(|bytes| bytes == wrapper) {
        eprintln!("not run: this kernel has sched_ext, and the test would take over its scheduler");
        return;
    }
    let script = include_str!("scripts/registering_a_scheduler_is_refused_where_the_kernel_has_none.ks");
    let folder = Folder::new();
    let (source, elf) = (folder.write("scheduler.ks", script), folder.path("scheduler.o"));
    let emit = format!("elf={}", elf.display());
    let built = finish(
        command("ks").arg("build").arg(&source).args(["--emit", &emit, "-o"]).arg(folder.path("s.wasm")),
    );
    assert_eq!(built.code, 0, "{built:#?}");
    let open = libbpf_rs::ObjectBuilder::default().open_file(&elf).expect("libbpf opens it");
    let mut programs: Vec<_> = open.progs().map(|one| one.section().to_string_lossy().into_owned()).collect();
    programs.sort();
    assert_eq!(programs, ["struct_ops/enqueue", "struct_ops/init"]);
    let (outcome, result) = result_of(script);
    assert!(result != 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("sched_ext_ops is not found in kernel BTF"), "{outcome:#?}");
}

/// Without links a registration would outlive a killed host, so older kernels are refused.
#[test]
fn root_links_of_structs_came_with_6_4() {
    if inside().as_deref() != Some("6.1") {
        return;
    }
    let script = block("ksold", "")
        + "fn main() -> i32 {\n    print(\"result %u\", register(ksold))\n    return 1\n}\n";
    let (outcome, result) = result_of(&script);
    assert!(result != 0 && outcome.stderr.contains("Linux 6.4"), "{outcome:#?}");
    assert!(!is_registered("ksold"));
}

/// How many times the host is killed, each after another delay; `KS_MOMENTS` overrides it.
const MOMENTS: u64 = 20;

#[test]
fn root_killed_leaves_nothing_registered() {
    let name = unique("ksk");
    let script = block(&name, "") + &format!("fn main() -> i32 {{\n    return register({name})\n}}\n");
    let folder = Folder::new();
    let file = folder.write("killed.wasm", compile(&name, &script).plugin);
    let mut seen = 0;
    for moment in 0..number("KS_MOMENTS", MOMENTS) {
        let mut host = allowed();
        host.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = host.spawn().expect("ks-host starts");
        match moment {
            // At least once the struct is certainly registered.
            0 => within(10, "it is registered", || is_registered(&name)),
            _ => std::thread::sleep(Duration::from_millis(moment * 7 % 60)),
        }
        seen += u64::from(is_registered(&name));
        child.kill().expect("the child is ours");
        let status = child.wait().expect("the child is ours");
        assert_eq!(status.code(), None, "it was killed, and had not ended: {status}");
        within(5, "it is gone", || !is_registered(&name));
    }
    assert!(seen >= 1);
    // A registered struct frees its programs after every task has slept or left the kernel once, which a long
    // verification delays. Source: kernel/bpf/bpf_struct_ops.c, `bpf_struct_ops_map_free`, v6.18.
    let left = || kernel_objects(&name).expect("root may list what the kernel holds");
    within(120, "its programs are gone", || left().is_empty());
}

#[test]
fn inspect_shows_the_struct_and_its_methods() {
    let folder = Folder::new();
    let file = folder.write(
        "shown.wasm",
        compile("shown", &(block("shown_block", "") + "fn main() -> i32 { return register(shown_block) }\n"))
            .plugin,
    );
    let text = finish(command("ks-host").arg("inspect").arg(&file));
    assert_eq!(text.code, 0, "{text:#?}");
    let methods = "ssthresh, undo_cwnd, cong_avoid";
    let row =
        |line: &str| ["shown_block", "tcp_congestion_ops", methods].iter().all(|part| line.contains(part));
    assert!(text.stdout.lines().any(row), "{text:#?}");
    let sections = ["struct_ops/ssthresh", "struct_ops/undo_cwnd", "struct_ops/cong_avoid"];
    assert!(sections.iter().all(|section| text.stdout.contains(section)), "{text:#?}");
    let json = finish(command("ks-host").args(["inspect", "--json"]).arg(&file));
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    let methods = ["ssthresh", "undo_cwnd", "cong_avoid"];
    let expected =
        serde_json::json!([{ "name": "shown_block", "struct": "tcp_congestion_ops", "methods": methods }]);
    assert_eq!(json["manifests"][0]["struct_ops"], expected, "{json:#}");
}
