//! Programs that act on a target, and maps that take memory, which nobody allowed.

use std::io::Read as _;

use ks_compiler::bpf::{Insn, Operand, Reg};
use ks_compiler::object::model::{Instruction, MapShape, PlainInsn};
use ks_compiler::object::table::MapKind;
use ks_compiler::object::{Object, write};
use ks_tests::cgroup::Group;
use ks_tests::guest::{core_module, data};
use ks_tests::net::Wire;
use ks_tests::plugins::models::{map, name, program};
use ks_tests::plugins::with_object;
use ks_tests::refused::{Call, observe};
use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, command, compile, component, finish, is_within};
use ks_wit::section::{Arch, BpfRecord};
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};
use std::time::Duration;

use super::super::{contained, function};
use super::{loads, traced};

/// Size in bytes of the packet that the program sends: nobody else sends a frame of zeros.
const PACKET_BYTES: usize = 60;

/// The right end of a wire, and the frames of zeros that have arrived there.
struct Tap {
    socket: Socket,
    seen: usize,
}

impl Tap {
    fn new(wire: &Wire) -> Tap {
        let all = Protocol::from(libc::ETH_P_ALL.to_be() >> 16);
        let socket = wire.in_right(|| Socket::new(Domain::PACKET, Type::RAW, Some(all)));
        let socket = socket.expect("root may see packets");
        socket.set_nonblocking(true).expect("a socket");
        Tap { socket, seen: 0 }
    }

    fn seen(&mut self) -> usize {
        let mut frame = [0; 2048];
        while let Ok(bytes) = self.socket.read(&mut frame) {
            self.seen += usize::from(frame[..bytes] == [0; PACKET_BYTES]);
        }
        self.seen
    }
}

/// A script with a program that sends each packet out of the interface of this number, and a test that runs it.
fn sends(interface: u32) -> String {
    format!(
        "struct Packet {{ packet_size: u32 }}\n\
         @tc(\"ingress\") fn kstsend(ctx: *__sk_buff) -> i32 {{\n\
         if (bpf_clone_redirect(ctx, {interface}, 0) == 0) {{ return 77 }}\n return 55\n}}\n\
         fn main() -> i32 {{ return 0 }}\n\
         @test fn sends_nothing() -> i32 {{\n\
         if (test(kstsend, Packet {{ packet_size: {PACKET_BYTES} }}) != 55) {{ return 1 }}\n return 0\n}}\n"
    )
}

/// Returns a guest that runs the program on a packet that pretends to come from this interface, and returns the
/// program's result, or 100 and the kind of the error.
fn runs_once(object: Vec<BpfRecord>, ingress: u32) -> Vec<u8> {
    let body = format!(
        "{}{}",
        data(2048, b"kstsend"),
        function(&format!(
            "(call $bpf.program.load (i32.const 2048) (i32.const 7) (i32.const 1024))
             (if (i32.load8_u (i32.const 1024)) (then (return (i32.const 99))))
             (local.set $a (i32.load (i32.const 1028)))
             (local.set $b (call $bpf.test-input.new))
             (call $bpf.test-input.set-packet-size (local.get $b) (i32.const {PACKET_BYTES}))
             (call $bpf.test-input.set-ingress-ifindex (local.get $b) (i32.const {ingress}))
             (call $bpf.program.test-run (local.get $a) (local.get $b) (i32.const 1024))
             (if (i32.load8_u (i32.const 1024))
               (then (return (i32.add (i32.const 100) (i32.load8_u (i32.const 1032))))))
             (i32.load (i32.const 1032))"
        ))
    );
    component("hostile", &core_module(2, &body), &object).expect("it fits the world")
}

/// The attack `tc`: a test run needs no attaching, but what the program redirects is sent.
#[test]
fn root_a_test_run_sends_no_packet_that_was_not_allowed() {
    let (wire, folder) = (Wire::new(), Folder::new());
    let mut tap = Tap::new(&wire);
    let built = compile("kstsend", &sends(wire.index()));
    let file = folder.write("sends.wasm", runs_once(built.records(), wire.index()));
    let mut run = |rules: &[&str]| -> (Outcome, usize) {
        let before = tap.seen();
        let mut host = wire.command("ks-host");
        rules.iter().for_each(|rule| _ = host.args(["--allow", rule]));
        let outcome = finish(host.arg("--no-cache").arg(&file));
        contained(&outcome);
        // A frame crosses the wire before the program returns, unless another CPU takes it up.
        is_within(Duration::from_millis(200), || tap.seen() > before);
        (outcome, tap.seen() - before)
    };
    for (rules, code, sent, reason) in [
        (&[][..], 126, 0, "--allow tc"),
        (&["tc"], 126, 0, "--allow redirect"),
        (&["redirect"], 126, 0, "--allow tc"),
        (&["xdp", "redirect", "cgroup", "helper"], 126, 0, "--allow tc"),
        // `denied-by-policy` is the kind 8.
        (&["tc=lo", "redirect"], 108, 0, ""),
        (&["tc=left", "redirect"], 77, 1, ""),
    ] {
        let (outcome, arrived) = run(rules);
        assert_eq!((outcome.code, arrived), (code, sent), "{rules:?}: {outcome:#?}");
        assert!(outcome.stderr.contains(reason), "{rules:?}: {outcome:#?}");
    }
}

/// Tests have a network of their own, whatever is allowed.
#[test]
fn root_a_test_sends_no_packet_at_all() {
    let (wire, folder) = (Wire::new(), Folder::new());
    let mut tap = Tap::new(&wire);
    let file = folder.write("sends.ks", sends(wire.index()));
    for (rules, code, printed) in
        [(&[][..], 127, "--allow redirect"), (&["redirect"], 0, "1 passed"), (&["all"], 0, "1 passed")]
    {
        let mut host = wire.command("ks-host");
        host.arg("test");
        rules.iter().for_each(|rule| _ = host.args(["--allow", rule]));
        let outcome = finish(host.arg(&file));
        contained(&outcome);
        assert_eq!(outcome.code, code, "{rules:?}: {outcome:#?}");
        let said = outcome.stdout.contains(printed) || outcome.stderr.contains(printed);
        assert!(said, "{rules:?}: {outcome:#?}");
        assert_eq!(tap.seen(), 0, "{rules:?}: {outcome:#?}");
    }
}

/// Returns an object with two programs of this section: `drops` returns 0, which drops a packet or refuses a connection,
/// `passes` returns 1.
fn drops_and_passes(section: &str) -> Object {
    let mut object = program(section, &[]);
    let mut passes = object.programs[0].clone();
    object.programs[0].name = name("drops");
    passes.name = name("passes");
    let one = PlainInsn::new(Insn::mov(Reg::R0, Operand::Imm(1))).expect("a plain instruction");
    passes.body.code[0] = Instruction::Plain(one);
    object.programs.push(passes);
    object
}

/// Returns a guest that attaches a program to each of these groups, prints a letter for each, and waits.
fn joins(section: &str, groups: &[(&str, String)]) -> Vec<u8> {
    let mut body = data(2048, b"dropspasses");
    let mut code = String::new();
    for (index, (program, group)) in (0_u32..).zip(groups) {
        let at = 8192 + 1024 * index;
        body += &data(at, group.as_bytes());
        code += &format!(
            "(call $bpf.program.load (i32.const {}) (i32.const {}) (i32.const 1024))
             (call $bpf.program.attach-cgroup (i32.load (i32.const 1028)) (i32.const {at}) (i32.const {})
               (i32.const 1024))
             (i32.store8 (i32.const {}) (if (result i32) (i32.load8_u (i32.const 1024))
               (then (if (result i32) (i32.eq (i32.load8_u (i32.const 1028)) (i32.const 8))
                 (then (i32.const 68)) (else (i32.const 69))))
               (else (i32.const 107))))",
            if *program == "drops" { 2048 } else { 2053 },
            program.len(),
            group.len(),
            4096 + index
        );
    }
    body += &function(&format!(
        "{code}
         (call $console.print (i32.const 4096) (i32.const {}) (i32.const 0) (i32.const 0))
         (loop $again
           (call $clock.sleep (i64.const 1000000000) (i32.const 1024))
           (br_if $again (i32.eqz (i32.load8_u (i32.const 1024)))))
         (i32.const 0)",
        groups.len()
    ));
    let elf = write(&drops_and_passes(section)).expect("a sound object");
    let record = BpfRecord { name: "hostile".into(), arch: Arch::Any, elf };
    component("hostile", &core_module(2, &body), &[record]).expect("it fits the world")
}

/// The attack `cg`: a program that was allowed for one group, or none, drops what others send.
#[test]
fn root_a_program_of_a_control_group_reaches_no_other() {
    let folder = Folder::new();
    let (mine, theirs) = (Group::new(), Group::new());
    let path = |group: &Group| group.path().display().to_string();
    let root = mine.path().parent().expect("it lies in the hierarchy").display().to_string();
    let groups = [
        ("drops", path(&mine)),
        ("drops", path(&theirs)),
        // Where the host fails, the whole machine is not to lose its network.
        ("passes", root),
        ("passes", "/".to_owned()),
        ("passes", String::new()),
        ("passes", format!("{}/..", path(&mine))),
        ("passes", "../".repeat(8)),
    ];
    let sends = |group: &Group| group.run("exec bash -c 'echo x > /dev/udp/127.0.0.1/9'").code == 0;
    for section in ["cgroup_skb/egress", "cgroup/connect4"] {
        let file = folder.write("joins.wasm", joins(section, &groups));
        for rules in [&[][..], &["other"], &["tc", "xdp", "socket_filter", "redirect"]] {
            let mut host = command("ks-host");
            rules.iter().for_each(|rule| _ = host.args(["--allow", rule]));
            let denied = finish(host.arg("--no-cache").arg(&file));
            contained(&denied);
            assert!(denied.code == 126 && denied.stderr.contains("--allow cgroup"), "{rules:?}: {denied:#?}");
        }
        let rule = format!("cgroup={}", path(&mine));
        let mut host = command("ks-host");
        // Only ends a plugin that attached more, for which the test waits.
        host.args(["--timeout", "20", "--allow", &rule]).arg(&file);
        let running = Running::of(&mut host, "kDDDEDD\n");
        assert!(!sends(&mine), "{section}: it acts where it may");
        assert!(sends(&theirs), "{section}: it acts nowhere else");
        let outcome = running.stop();
        assert_eq!((outcome.code, outcome.signal), (0, None), "{section}: {outcome:#?}");
        assert!(sends(&mine), "{section}: it is gone");
    }
}

/// Returns an object with a map of maps whose maps have this shape.
fn holds(outer: MapKind, inner: MapShape) -> Object {
    let mut one = map("outer", outer, 4, 1);
    one.inner = Some(inner);
    Object { maps: vec![one], ..program("perf_event", &[]) }
}

/// The attack `inner`: the kernel makes a map of maps from a whole map of that shape.
#[test]
fn root_the_maps_inside_a_map_are_counted() {
    let folder = Folder::new();
    let shape = |kind, value, entries| map("inner", kind, value, entries).shape;
    let write_file = |object: &Object| {
        let elf = write(object).expect("a sound object");
        folder.write("inner.wasm", with_object(loads("one"), elf))
    };
    // A gibibyte, and many small entries, each of which the kernel charges with more than its bytes.
    for (outer, inner) in [
        (MapKind::ArrayOfMaps, shape(MapKind::Array, 1024, 1 << 20)),
        (MapKind::HashOfMaps, shape(MapKind::Array, 1024, 1 << 20)),
        (MapKind::ArrayOfMaps, shape(MapKind::Hash, 1, 1 << 24)),
    ] {
        let (outcome, trace) = traced(&["--no-cache", "--allow", "all"], &write_file(&holds(outer, inner)));
        assert!(outcome.code == 126 && outcome.stderr.contains("map_bytes"), "{outer:?}: {outcome:#?}");
        assert_eq!(trace.creates(), 0, "{outer:?}: {trace:?}");
    }
    let rings = holds(MapKind::ArrayOfMaps, map("inner", MapKind::RingBuf, 0, 1 << 29).shape);
    let (outcome, trace) = traced(&["--no-cache", "--allow", "all"], &write_file(&rings));
    assert!(outcome.code == 126 && outcome.stderr.contains("ring_bytes"), "{outcome:#?}");
    assert_eq!(trace.creates(), 0, "{trace:?}");
}

/// What is counted is what the kernel charges for the outer map and for the map that it is made from.
#[test]
fn root_the_maps_inside_a_map_are_counted_as_the_kernel_does() {
    let folder = Folder::new();
    let inner = map("inner", MapKind::Array, 1024, 1 << 12).shape;
    let elf = write(&holds(MapKind::ArrayOfMaps, inner)).expect("a sound object");
    let file = folder.write("inner.wasm", with_object(loads("one"), elf));
    let run = |limit: u64| {
        let watched = [Call { name: "bpf", number: libc::SYS_bpf }];
        let mut most = 0;
        let mut host = command("ks-host");
        host.args(["--no-cache", "--allow", "all", "--limit", &format!("map_bytes={limit}")]).arg(&file);
        let outcome = observe(&mut host, &watched, |pending| {
            most = most.max(charged(pending.thread()));
            None
        });
        (outcome.expect("the kernel has notifications"), most)
    };
    let (refused, none) = run(1 << 20);
    assert_eq!((refused.code, none), (126, 0), "{refused:#?}");
    let counted = refused.stderr.split("map_bytes is ").nth(1).and_then(|rest| rest.split(',').next());
    let counted: u64 =
        counted.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{refused:#?}"));
    let (ran, most) = run(counted);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!((4 << 20..=counted).contains(&most), "{most} of {counted}: {ran:#?}");
    assert_eq!(run(counted - 1).0.code, 126);
}

/// Returns the bytes that the kernel charges for the maps of a process. Source: kernel/bpf/syscall.c,
/// `bpf_map_show_fdinfo`, v6.18.
fn charged(pid: u32) -> u64 {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the caller waits");
    let texts = folder.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let bytes = |text: String| {
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        field("map_id:").and_then(|_| field("memlock:"))
    };
    texts.filter_map(bytes).sum()
}
