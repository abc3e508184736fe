//! Programs on packets and connections that `ks-host` attaches, and their effects. Each test has its own
//! network namespaces or control group. These tests need root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use ks_tests::cgroup::Group;
use ks_tests::net::{LEFT, Wire};
use ks_tests::plugins::{OWN_EVENT, component, elf, with_object};
use ks_tests::watched::Running;
use ks_tests::{Folder, allowed, command, compile, finish, repository, wait_until_gone};

/// Reads after the headers, at offsets that are constant and at others.
const FAR: &str = include_str!("../../scripts/far_reads.ks");

/// Starts an example and waits until it prints that it is attached.
fn started(mut host: Command, allow: &[&str], name: &str, arguments: &[&str]) -> Running {
    host.args(allow);
    Running::begin(host, name, &example(&format!("{name}.ks")), arguments, "attached")
}

fn example(name: &str) -> String {
    std::fs::read_to_string(repository().join("examples/net").join(name)).expect("the example is there")
}

#[test]
fn root_xdp_packets_are_counted_by_protocol() {
    let wire = Wire::new();
    let arguments = ["--interface", LEFT, "--seconds", "60"];
    let running = started(wire.command("ks-host"), &["--allow", "xdp=left"], "packets", &arguments);
    wire.send(10, 100, 9);
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    // 14 bytes of Ethernet, 20 of IPv4, 8 of UDP.
    assert_eq!(outcome.numbers("udp"), [10, 1420], "{outcome:#?}");
    assert_eq!(outcome.numbers("tcp"), [0, 0], "{outcome:#?}");
    assert!(!wire.describe_left().contains("prog/xdp"), "{}", wire.describe_left());
}

#[test]
fn root_tc_drops_one_port_and_passes_the_others() {
    let wire = Wire::new();
    let arguments = ["--interface", LEFT, "--port", "9000", "--seconds", "60"];
    let running = started(wire.command("ks-host"), &["--allow", "tc=left"], "shield", &arguments);
    let listen = |port: u16| {
        let socket = wire.in_left(|| UdpSocket::bind(("10.9.0.1", port)).expect("the address is there"));
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket has timeouts");
        socket
    };
    let (shut, open) = (listen(9000), listen(9001));
    wire.send(10, 40, 9000);
    wire.send(3, 40, 9001);
    let mut buffer = [0; 64];
    for _ in 0..3 {
        assert_eq!(open.recv(&mut buffer).expect("what is passed arrives"), 40);
    }
    assert!(shut.recv(&mut buffer).is_err(), "what is dropped does not arrive");
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.numbers("dropped"), [10], "{outcome:#?}");
    assert!(outcome.numbers("passed")[0] >= 3, "{outcome:#?}");
    // The programs are gone with the host: the packets arrive now.
    wire.send(2, 40, 9000);
    assert_eq!(shut.recv(&mut buffer).expect("nothing drops it any more"), 40);
}

#[test]
fn root_socket_filter_sees_every_packet() {
    let wire = Wire::new();
    let arguments = ["--interface", LEFT, "--seconds", "60"];
    let running = started(wire.command("ks-host"), &[], "sizes", &arguments);
    wire.send(10, 100, 9);
    wire.send(4, 300, 9);
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    // Packets of 142 and 342 bytes. ICMP port-unreachable answers quote the packets' headers, so they are
    // larger than 128 bytes in both cases.
    assert!(outcome.numbers("256")[1] >= 10, "{outcome:#?}");
    assert!(outcome.numbers("512")[1] >= 4, "{outcome:#?}");
}

#[test]
fn root_cgroup_refuses_all_ports_but_one() {
    let group = Group::new();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    let [good, bad] = listeners.each_ref().map(|one| one.local_addr().expect("bound").port());
    let path = group.path().to_string_lossy().into_owned();
    let arguments = ["--group", &path, "--port", &good.to_string(), "--seconds", "60"];
    let running =
        started(command("ks-host"), &["--allow", &format!("cgroup={path}")], "connects", &arguments);
    // The shell opens the connections itself: bash supports /dev/tcp.
    let try_port = |port: u16| group.run(&format!("exec bash -c 'echo hello > /dev/tcp/127.0.0.1/{port}'"));
    assert_eq!(try_port(good).code, 0, "the one port is open");
    assert_ne!(try_port(bad).code, 0, "the others are shut");
    assert_ne!(try_port(bad).code, 0, "the others are shut");
    TcpStream::connect(("127.0.0.1", bad)).expect("outside of the group nothing is refused");
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!((outcome.numbers("refused"), outcome.numbers("allowed")), (vec![2], vec![1]), "{outcome:#?}");
    assert!(outcome.numbers("sent")[0] > 6, "{outcome:#?}");
    assert_eq!(try_port(bad).code, 0, "gone with the host");
}

#[test]
fn root_tc_programs_of_both_directions_replace_each_other() {
    const SCRIPT: &str = include_str!("scripts/net.ks");
    let wire = Wire::new();
    let running = Running::begin(wire.allowed(), "directions", SCRIPT, &[] as &[&str], "attached");
    wire.send(10, 100, 9);
    let outcome = running.stop();
    let numbers = outcome.numbers("packets");
    assert!(numbers[0] >= 10 && numbers[0] == numbers[1], "{outcome:#?}");
}

/// When TCP data is sent, it is not contiguous with the headers.
#[test]
fn root_tc_reads_and_writes_packets_in_several_pieces() {
    const SCRIPT: &str = include_str!("scripts/net_2.ks");
    let wire = Wire::new();
    let running = Running::begin(wire.allowed(), "pieces", SCRIPT, &[] as &[&str], "attached");
    let listener = wire.in_right(|| TcpListener::bind("10.9.0.2:9000").expect("the address is there"));
    let mut sender = wire.in_left(|| TcpStream::connect("10.9.0.2:9000").expect("somebody listens"));
    let (mut receiver, _) = listener.accept().expect("somebody connects");
    sender.write_all(&[7; 1000]).expect("the wire is up");
    let mut received = [0; 1000];
    receiver.read_exact(&mut received).expect("the wire is up");
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let packets = outcome.numbers("packets")[0];
    assert!(packets >= 1, "{outcome:#?}");
    assert_eq!(outcome.numbers("last"), [7 * packets], "{outcome:#?}");
    assert_eq!((received[998], received[999]), (7, 9));
}

/// A wrong target is reported, and the result is the errno; a second attachment to the same point is refused.
#[test]
fn root_refused_attachments_say_why() {
    let wire = Wire::new();
    let script = include_str!("scripts/net_refused_attachments_say_why.ks");
    let folder = Folder::new();
    let plugin = folder.write("refused.wasm", compile("refused", script).plugin);
    let outcome = finish(wire.allowed().arg(plugin));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let expected = [
        ("first", 0),
        ("again", nix::libc::EEXIST),
        ("second", nix::libc::EBUSY),
        ("absent", nix::libc::ENODEV),
        ("flags", nix::libc::EINVAL),
        ("modes", nix::libc::EINVAL),
        ("native", nix::libc::EOPNOTSUPP),
        ("number", 0),
        ("folder", nix::libc::EINVAL),
        ("file", nix::libc::EINVAL),
    ];
    for (name, errno) in expected {
        assert_eq!(outcome.numbers(name), [i64::from(errno)], "{name}: {outcome:#?}");
    }
    for part in ["`left`", "`nothere`", "no flags 64", "in the mode `best` or `generic`", "control group"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:#?}");
    }
    wait_until_gone("kstnet");
}

/// Loads more programs than an interface or a control group takes; the result is the number of attached ones.
#[test]
fn root_interfaces_and_groups_at_their_limit_of_programs_are_reported() {
    let group = Group::new();
    let path = group.path().to_string_lossy().into_owned();
    for (attribute, context, result, target, most) in [
        ("@tc(\"ingress\")", "__sk_buff", "0", LEFT, 63),
        ("@cgroup(\"connect4\")", "bpf_sock_addr", "1", path.as_str(), 64),
    ] {
        let program = |number: usize| {
            format!("{attribute} fn kstfull{number}(ctx: *{context}) -> i32 {{ return {result} }}\n")
        };
        let attach = |number: usize| {
            format!("    if (attach(load(kstfull{number}), \"{target}\", 0) != 0) {{ return {number} }}\n")
        };
        let (programs, attached): (String, String) =
            (0..65).map(|number| (program(number), attach(number))).unzip();
        let script = format!("{programs}fn main() -> i32 {{\n{attached}    return 0\n}}\n");
        let (wire, folder) = (Wire::new(), Folder::new());
        let plugin = folder.write("full.wasm", compile("full", &script).plugin);
        let outcome = finish(wire.allowed().arg(plugin));
        assert_eq!(outcome.code, most, "{outcome:#?}");
        assert!(outcome.stderr.contains(&format!("{most} programs are attached there")), "{outcome:#?}");
    }
    wait_until_gone("kstfull");
}

/// An interface takes one xdp program. The error names its holder, since when it is there, and the remedy,
/// both for a holder that is a process and for none.
#[test]
fn root_an_xdp_program_that_an_interface_has_already_is_named() {
    let holder = "@xdp fn kstnetfirst(ctx: *xdp_md) -> xdp_action { return XDP_PASS }\nfn main() -> i32 {\n \
                  if (attach(load(kstnetfirst), \"left\", 0) != 0) { return 1 }\n print(\"ready\")\n \
                  while (!stopping()) { sleep(1000) }\n return 0 }";
    let second = "@xdp fn kstnetsecond(ctx: *xdp_md) -> xdp_action { return XDP_PASS }\nfn main() -> i32 {\n \
                  print(\"second %u\", attach(load(kstnetsecond), \"left\", 0))\n return 0 }";
    let wire = Wire::new();
    let folder = Folder::new();
    let plugin = folder.write("second.wasm", compile("second", second).plugin);
    let refused = || {
        let outcome = finish(wire.allowed().arg(&plugin));
        assert_eq!(
            (outcome.code, outcome.numbers("second")),
            (0, vec![i64::from(nix::libc::EBUSY)]),
            "{outcome:#?}"
        );
        outcome.stderr
    };
    let running = Running::begin(wire.allowed(), "first", holder, &[] as &[&str], "ready");
    let refusal = refused();
    for expected in [
        "`kstnetfirst`",
        ", loaded 20",
        "held by process ",
        "do: detach it there, or end that process: kill ",
    ] {
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
    assert_eq!(refusal.matches("EBUSY").count(), 1, "{refusal}");
    // The text that the plugin receives names nobody else.
    let given = refusal.lines().find(|line| line.contains("EBUSY")).unwrap_or_default();
    assert!(given.contains("has one: program ") && !given.contains("kstnetfirst"), "{refusal}");
    assert_eq!(running.stop().code, 0);
    // Attached by netlink, the program has no holder. `ip` can load one of our own objects.
    let object = folder.path("first.o");
    let script = folder.write("first.ks", holder);
    let built =
        finish(command("ks").arg("build").arg(script).arg("--emit").arg(format!("elf={}", object.display())));
    assert_eq!(built.code, 0, "{built:#?}");
    wire.set_left(&["xdp", "obj", &object.to_string_lossy(), "sec", "xdp"]);
    let refusal = refused();
    assert!(
        refusal.contains("no process holds it; do: take it away: ip link set dev left xdp off"),
        "{refusal}"
    );
}

/// When TCP data is sent, it is not contiguous with the headers, and a program of a control group cannot move
/// it.
#[test]
fn root_cgroup_reads_packets_in_several_pieces() {
    let group = Group::new();
    let attached = format!(
        "if (attach(program, \"{}\", 0) != 0) {{ return 1 }}
         print(\"attached\")
         while (!stopping()) {{ sleep(10) }}
         print(\"packets %u\", packets)
         print(\"right %u\", right)
         print(\"lengths %u\", lengths)",
        group.path().display()
    );
    let script = FAR.replace("TARGET", &attached);
    let running = Running::begin(allowed(), "far", &script, &[] as &[&str], "attached");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("bound").port();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the connection ends");
        received
    });
    let sent = group
        .run(&format!("exec bash -c 'head -c 1000000 /dev/zero | tr \"\\0\" Z > /dev/tcp/127.0.0.1/{port}'"));
    assert_eq!(sent.code, 0, "{sent:#?}");
    assert_eq!(receiver.join().expect("it reads"), vec![b'Z'; 1_000_000]);
    let outcome = running.stop();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let packets = outcome.numbers("packets");
    assert!(packets[0] >= 10, "{outcome:#?}");
    assert_eq!(
        (outcome.numbers("right"), outcome.numbers("lengths")),
        (packets.clone(), packets),
        "{outcome:#?}"
    );
}

/// The verifier does not track a number through the memory in which a loop body passes on its result.
const RETURN_VALUE: &str = r#"
local var g4: u64[8]
var g5: u32[1]
var g8: u32[6]
@cgroup("egress") fn watch(ctx: *__sk_buff) -> i32 {
    while (g4[g8[5]]) {
        if (match (cpu()) { 0: "ab", default: "cd" }) {
        } else {
            while (match (cpu()) { 0: "ab", default: "cd" }) {
                if (g5[g4[3]]) {
                    return ((0 >= g8[5]) as i16)
                }
            }
        }
    }
    return 10
}
"#;

/// At each iteration of a loop the verifier forgets the parts of an offset's state that nothing has needed
/// yet.
const OFFSET: &str = r#"
struct S0 { f0: u32[2], f1: u64 }
var m1: lru_hash<char, i8>(1)
var m2: lru_hash<u32, i32>(54)
local var g3: i32 = (0 as i32)
local var g4: u32 = 0
config c7 { f0: i8[3] = [1, 2, 3], f1: u64 = 24 }
@tc("ingress") fn watch(ctx: *__sk_buff) -> i32 {
    var q10 = (ctx->data + ((cpu() as char) as u32)) as *S0
    if ((cpu() as bool)) {
        match (g4) { 0: {
            while ((cpu() as bool)) {
                m2[c7.f1] = (((g3 + q10->f0[1]) / q10->f0[1]) ^ q10->f0[c7.f1])
            }
            for (n14 in ((0 as u64))..(q10->f1)) {
            }
        }, 7: {
        }, 14: {
        }, default: {
        } }
    } else if (false) {
    } else {
        m1['\0'] = (-7)
        m2[(0 as i8)] = (0 as i32)
    }
    q10->f1 = 0
    return (0 as i32)
}
"#;

#[test]
fn root_bounds_lost_in_loops_are_proven_again() {
    let folder = Folder::new();
    for (name, script) in [("verdict", RETURN_VALUE), ("offset", OFFSET)] {
        let whole = format!("{script}\nfn main() -> i32 {{\n    load(watch)\n    return 0\n}}\n");
        let source = folder.write(&format!("{name}.ks"), &whole);
        for cpu in ["v1", "v2", "v3", "v4"] {
            let plugin = folder.path(format!("{name}.wasm"));
            let built =
                finish(command("ks").args(["build", "--cpu", cpu]).arg(&source).arg("-o").arg(&plugin));
            assert_eq!(built.code, 0, "{built:#?}");
            let ran = finish(allowed().arg(&plugin));
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}, {cpu}: {ran:#?}");
        }
    }
}

/// Runs `tc` in the left namespace.
fn tc(wire: &Wire, parts: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let outcome = wire.in_left(|| finish(Command::new("tc").env("PATH", path).args(parts)));
    assert_eq!(outcome.code, 0, "tc {parts:?}: {outcome:#?}");
    outcome.stdout
}

/// A plugin that attaches its tc program to `left` with this priority and handle, and says how that ended.
fn ordered(priority: u16, handle: u32) -> Vec<u8> {
    let guest = component(&format!(
        r#"{OWN_EVENT}
        (data (i32.const 16) "count")
        (data (i32.const 32) "left")
        (data (i32.const 48) "attached")
        (func (export "run") (result i32)
          (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
          (call $attach_tc (call $ok) (i32.const 32) (i32.const 4) (i32.const 1) (i32.const {priority})
            (i32.const 1) (i32.const {handle}) (i32.const 1024))
          (drop (call $ok))
          (call $print (i32.const 48) (i32.const 8) (i32.const 0) (i32.const 0))
          (call $sleep (i64.const 60000000000) (i32.const 1024))
          (i32.const 0))"#
    ));
    with_object(guest, elf::counting("tcx/ingress"))
}

/// A filter has the priority and the handle that the call says, and one of another tool stays where it is.
#[test]
fn root_a_tc_filter_has_the_order_of_the_call_and_replaces_no_other() {
    let wire = Wire::new();
    let folder = Folder::new();
    let plugin = folder.write("ordered.wasm", ordered(7, 3));
    let running = Running::of(wire.allowed().arg("--no-cache").arg(&plugin), "attached");
    let shown = tc(&wire, &["filter", "show", "dev", LEFT, "ingress"]);
    assert!(shown.contains("pref 7 ") && shown.contains("handle 0x3 ks-host"), "{shown}");
    let second = finish(wire.allowed().arg("--no-cache").arg(&plugin));
    assert!(second.code != 0 && second.stderr.contains("EEXIST"), "{second:#?}");
    let shown = tc(&wire, &["filter", "show", "dev", LEFT, "ingress"]);
    assert!(shown.contains("handle 0x3 ks-host"), "the first one's filter is still there: {shown}");
    assert_eq!(running.stop().code, 0);
    assert_eq!(tc(&wire, &["qdisc", "show", "dev", LEFT]).matches("clsact").count(), 0);
    // Another tool's filter of the same priority and handle.
    tc(&wire, &["qdisc", "add", "dev", LEFT, "clsact"]);
    let other = ["filter", "add", "dev", LEFT, "ingress", "pref", "7", "handle", "3", "bpf", "bytecode"];
    tc(&wire, &[&other[..], &["1,6 0 0 4294967295,"]].concat());
    let refused = finish(wire.allowed().arg("--no-cache").arg(&plugin));
    assert!(refused.code != 0 && refused.stderr.contains("EEXIST"), "{refused:#?}");
    let shown = tc(&wire, &["filter", "show", "dev", LEFT, "ingress"]);
    assert!(shown.contains("pref 7 ") && shown.contains("bytecode"), "it stays: {shown}");
    let folder = Folder::new();
    let zero = folder.write("zero.wasm", ordered(0, 3));
    let refused = finish(wire.allowed().arg("--no-cache").arg(zero));
    assert!(refused.stderr.contains("numbers from 1"), "{refused:#?}");
}
