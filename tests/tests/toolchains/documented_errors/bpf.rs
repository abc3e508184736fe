//! The errors of `bpf`.

use ks_tests::refused::Call;
use nix::errno::Errno;

use super::case::{BPF, Case, OPENAT, Object, Of, PERF_EVENT_OPEN, SOCKET, case};
use super::maps::{EMPTY_BPFFS, MAP_CREATE, NO_BPFFS, OTHER_PIN};
use super::perf::{
    CHOOSES, FILES, LONG_FUNCTION, NO_PMUS, NO_TRACEFS, OF_ROOT, OTHER_MACHINE, PMUS, RELOCATED, has_kprobes,
    has_uprobes, library,
};

const LOAD: &[&str] = &["bpf.program.load"];
const INFO: &[&str] = &["bpf.program.info"];
const ATTACH: &str = "bpf.program.attach";
const TRACEPOINT: &str = "bpf.program.attach-tracepoint";
const RAW: &str = "bpf.program.attach-raw-tracepoint";
const KPROBE: &str = "bpf.program.attach-kprobe";
const UPROBE: &str = "bpf.program.attach-uprobe";
const XDP: &str = "bpf.program.attach-xdp";
const TC: &str = "bpf.program.attach-tc";
const CGROUP: &str = "bpf.program.attach-cgroup";
const SOCKET_FILTER: &str = "bpf.program.attach-socket-filter";
const TEST_RUN: &[&str] = &["bpf.program.test-run"];
const REGISTER: &[&str] = &["bpf.link.register"];

/// Numbers of `enum bpf_cmd` in include/uapi/linux/bpf.h.
const PROG_TEST_RUN: u64 = 10;
const OBJ_GET_INFO_BY_FD: u64 = 15;
const RAW_TRACEPOINT_OPEN: u64 = 17;
const LINK_CREATE: u64 = 28;

/// The first argument of socket(2) for a packet socket.
const AF_PACKET: u64 = nix::libc::AF_PACKET as u64;

/// The control groups are at a path of this test's own.
const GROUPS: &str = "mount -t cgroup2 none /mnt";

pub fn cases() -> Vec<Case> {
    [
        loading(LOAD, "tick"),
        loading(REGISTER, "plain_ops"),
        programs(),
        every_attach(),
        own_targets(),
        tracepoints(),
        probes(),
        attach_points_in_files(),
        interfaces(),
        groups(),
        test_runs(),
        registering(),
    ]
    .concat()
}

/// How the load of the object fails.
fn loading(functions: &'static [&'static str], name: &'static str) -> Vec<Case> {
    let (object, other) = match functions == LOAD {
        true => (Object::Plain, "another answer of the kernel"),
        false => (Object::Programs, ""),
    };
    let load = |kind, reason| case(kind, reason).of(functions).on(object).with(name);
    let refused = |kind, reason, errno: Errno, errno_name| {
        let case = load(kind, reason).refused(BPF, Of::First(MAP_CREATE), errno);
        case.errno(errno_name).says("cannot load the BPF object")
    };
    let pinned = |kind, reason| case(kind, reason).of(functions).on(Object::Pinned).with("tick");
    vec![
        load("invalid", "a name of more than 4096 bytes").with("LONG").says("4097 bytes"),
        load("not-permitted", "CAP_BPF or CAP_PERFMON")
            .by_nobody("-all,+bpf")
            .errno("EPERM")
            .says("CAP_PERFMON"),
        pinned("not-found", "bpffs is not mounted")
            .within(NO_BPFFS)
            .says("the BPF file system is not mounted"),
        pinned("invalid", "a pin of another shape")
            .within(&format!("{EMPTY_BPFFS}\n{OTHER_PIN}"))
            .says("has another shape (entries 9\u{2192}2)"),
        refused("invalid", "a size that the kernel refuses", Errno::EINVAL, "EINVAL"),
        refused(
            "unsupported",
            "the kernel lacks something that the object needs",
            Errno::EOPNOTSUPP,
            "EOPNOTSUPP",
        ),
        refused("limit", "memory of the kernel", Errno::ENOMEM, "ENOMEM"),
        refused("kernel", other, Errno::EIO, "EIO"),
        load("not-permitted", "a filter of system calls")
            .refused(BPF, Of::First(MAP_CREATE), Errno::EPERM)
            .errno("EPERM")
            .says("(seccomp) that ks-host was started with refuses bpf"),
    ]
}

/// Programs that are not loaded, and what the kernel knows of one.
fn programs() -> Vec<Case> {
    let load = |kind, reason| case(kind, reason).of(LOAD);
    let many = |reason| load("limit", reason).with("tick many");
    vec![
        load("not-found", "no such program").with("absent").says("has no program `absent`"),
        load("not-found", "the kernel lacks the tracepoint, function or hook of its section")
            .on(Object::Refused)
            .with("nowhere")
            .errno("ESRCH")
            .says("no_such_event"),
        load("kernel", "the verifier refused it")
            .on(Object::Refused)
            .with("reads_anywhere")
            .errno("EACCES")
            .says("R1 invalid mem access"),
        load("not-permitted", "CAP_NET_ADMIN, for programs of packets")
            .on(Object::Programs)
            .with("on_device")
            .by_nobody("-all,+bpf,+perfmon")
            .errno("EPERM")
            .says("CAP_NET_ADMIN"),
        many("`handles`").host(&["--limit", "handles=9"]).says("too many handles"),
        many("`host_bytes`").host(&["--limit", "host_bytes=9000"]).says("`host_bytes` of the plugin is 9000"),
        case("kernel", "")
            .of(INFO)
            .with("tick")
            .refused(BPF, Of::First(OBJ_GET_INFO_BY_FD), Errno::EIO)
            .errno("EIO")
            .says("cannot describe: program `tick`"),
    ]
}

/// A call that attaches, and the system call that it ends in.
struct Attach {
    function: &'static str,
    words: &'static str,
    call: Call,
    of: Of,
}

/// Each call that attaches, with arguments by which it succeeds.
const ATTACHES: [Attach; 9] = {
    const fn attach(function: &'static str, words: &'static str, call: Call, of: Of) -> Attach {
        Attach { function, words, call, of }
    }
    [
        attach(ATTACH, "switched", BPF, Of::First(RAW_TRACEPOINT_OPEN)),
        attach(TRACEPOINT, "any_event at=sched/sched_switch", PERF_EVENT_OPEN, Of::Any),
        attach(RAW, "switched at=sched_switch", BPF, Of::First(RAW_TRACEPOINT_OPEN)),
        attach(KPROBE, "any_function at=schedule", PERF_EVENT_OPEN, Of::Any),
        attach(UPROBE, "in_any_file at=/proc/self/exe function=main", PERF_EVENT_OPEN, Of::Any),
        attach(XDP, "on_device at=lo", BPF, Of::First(LINK_CREATE)),
        attach(TC, "incoming at=lo", BPF, Of::First(LINK_CREATE)),
        attach(CGROUP, "in_group at=/mnt", BPF, Of::First(LINK_CREATE)),
        attach(SOCKET_FILTER, "filters at=lo", SOCKET, Of::First(AF_PACKET)),
    ]
};

fn every_attach() -> Vec<Case> {
    ATTACHES.iter().flat_map(of_attach).collect()
}

/// What each call that attaches has: one attachment of a program at a target, a handle, its budget, and a system
/// call that may fail.
fn of_attach(attach: &Attach) -> Vec<Case> {
    let Attach { function, words, call, of } = *attach;
    let real = |kind, reason, unusual: &str| {
        let case =
            case(kind, reason).of(&[function]).on(Object::Programs).with(&format!("{words} {unusual}"));
        let case = case.within_namespaces("--net --mount", GROUPS);
        match function {
            KPROBE => case.needs("kprobes", has_kprobes),
            UPROBE => case.needs("uprobes", has_uprobes),
            _ => case,
        }
    };
    let refused = |kind, reason, errno: Errno, errno_name, text: &str| {
        let case = case(kind, reason).of(&[function]).on(Object::Programs).with(words);
        // Kernels without kprobes would refuse them before this call.
        let script = if function == KPROBE { PMUS } else { GROUPS };
        let case = case.within_namespaces("--net --mount", script);
        case.refused(call, of, errno).errno(errno_name).says(text)
    };
    let filtered = format!("(seccomp) that ks-host was started with refuses {}", call.name);
    let costly = real("limit", "`--max-bpf-share`", "costly");
    let costly = match function {
        // Its program runs only when somebody calls the function.
        UPROBE => costly
            .with("in_any_file at=/mnt/file function=f costly")
            .within_namespaces("--mount --pid --fork --kill-child", &format!("{FILES}\n{CALLS}")),
        _ => costly,
    };
    let mut cases = vec![
        real("busy", "it is attached there", "twice").errno("EEXIST").says("is already attached to"),
        real("limit", "`handles`", "full").host(&["--limit", "handles=9"]).says("too many handles"),
        real("limit", "`host_bytes`", "full")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
        costly.host(&["--max-bpf-share", "0.0001%"]).says("took more of the CPUs' time than it may"),
        refused("not-permitted", "a filter of system calls", Errno::EPERM, "EPERM", &filtered),
        refused("limit", "memory of the kernel", Errno::ENOMEM, "ENOMEM", "ENOMEM"),
        refused("limit", "descriptors", Errno::EMFILE, "EMFILE", "as many descriptors open"),
        refused("kernel", "", Errno::EIO, "EIO", "EIO"),
    ];
    if function != ATTACH {
        cases.push(
            case("invalid", "a name of more than 4096 bytes")
                .of(&[function])
                .on(Object::Programs)
                .with(&format!("{words}LONG"))
                .says("has a name of 4"),
        );
        let other = if function == RAW { "tick" } else { "switched" };
        let words = words.split_once(' ').map_or("", |(_, words)| words);
        cases.push(
            case("invalid", "a program of another kind")
                .of(&[function])
                .on(Object::Programs)
                .with(&format!("{other} {words}"))
                .errno("EINVAL")
                .says(format!("`{other}` is a")),
        );
    }
    cases
}

/// Makes a program that calls a function again and again, and starts it.
const CALLS: &str = "echo '#include <unistd.h>
void f(void) {}
int main(void) { for (;;) { f(); usleep(1000); } }' | cc -x c -o /mnt/file -
/mnt/file >/dev/null 2>&1 &";

/// A case of a program of each kind.
fn attach(function: &'static str, kind: &'static str, reason: &'static str, words: &str) -> Case {
    case(kind, reason).of(&[function]).on(Object::Programs).with(words)
}

/// Programs of which the object says, or not, where they are attached.
fn own_targets() -> Vec<Case> {
    let own = |kind, reason, words: &str| attach(ATTACH, kind, reason, words);
    let nothing = |program| {
        let text = format!("the object does not say what `{program}` is attached to");
        own("invalid", "the object says nothing", program).errno("EINVAL").says(text)
    };
    let mut cases = vec![
        own("invalid", "a perf_event program, which `perf.open` attaches", "tick")
            .says("it is attached by opening an event with it"),
        own("unsupported", "this host does not attach that kind", "ssthresh")
            .says("is a struct_ops program, which this host does not attach"),
        own("unsupported", "it has no cookie, at all or on this kernel", "periodic cookie=7")
            .errno("EINVAL")
            .says("programs of its kind have none"),
        own("unsupported", "this kernel does not attach that kind", "typed")
            .refused(BPF, Of::First(LINK_CREATE), Errno::EOPNOTSUPP)
            .errno("EOPNOTSUPP")
            .says("cannot attach to `sched_switch`"),
        attach(RAW, "unsupported", "it has no cookie on this kernel", "switched at=sched_switch cookie=7")
            .refused(BPF, Of::First(RAW_TRACEPOINT_OPEN), Errno::EINVAL)
            .errno("EINVAL")
            .says("programs of its kind have one since Linux 6.10"),
    ];
    let without =
        ["any_event", "any_function", "in_any_file", "on_device", "incoming", "in_group", "filters"];
    cases.extend(without.map(nothing));
    cases
}

/// Tracepoints of tracefs, and raw ones.
fn tracepoints() -> Vec<Case> {
    let both = |kind, reason| {
        [
            attach(ATTACH, kind, reason, "own_event"),
            attach(TRACEPOINT, kind, reason, "any_event at=sched/sched_switch"),
        ]
    };
    let nobody = "-all,+bpf,+perfmon";
    let mut cases = vec![
        attach(ATTACH, "not-found", "no such tracepoint", "lost_event").errno("ENOENT").says("no_such_event"),
        attach(ATTACH, "not-found", "no such tracepoint", "lost_raw").errno("ENOENT").says("no_such_event"),
        attach(TRACEPOINT, "not-found", "no such tracepoint", "any_event at=sched/absent")
            .errno("ENOENT")
            .says("sched/absent"),
        attach(RAW, "not-found", "no such tracepoint", "switched at=absent").errno("ENOENT").says("`absent`"),
        attach(TRACEPOINT, "invalid", "the form", "any_event at=sched_switch")
            .errno("EINVAL")
            .says("`category/event`"),
        attach(RAW, "invalid", "the form", "switched at=").errno("EINVAL").says("without its category"),
        attach(TRACEPOINT, "denied-by-policy", "", "any_event at=raw_syscalls/sys_enter")
            .allowing("tracepoint = [\"sched/*\"]")
            .says("does not allow `tracepoint` for `raw_syscalls/sys_enter`"),
        attach(RAW, "denied-by-policy", "", "switched at=sched_wakeup")
            .on(Object::Plain)
            .allowing("raw_tracepoint = [\"sched_switch\"]")
            .says("does not allow `raw_tracepoint` for `sched_wakeup`"),
    ];
    cases.extend(
        both("unsupported", "tracefs is not mounted")
            .map(|case| case.within(NO_TRACEFS).by_nobody(nobody).says("tracefs is not mounted")),
    );
    cases.extend(both("not-permitted", "tracefs may not be read").map(|case| {
        case.within(OF_ROOT).by_nobody(nobody).errno("EACCES").says("this user may not read tracefs")
    }));
    cases.extend(both("not-found", "the tracepoint is gone").map(|case| {
        case.refused(PERF_EVENT_OPEN, Of::Any, Errno::EINVAL)
            .errno("EINVAL")
            .says("no tracepoint with the id")
    }));
    cases.extend(both("limit", "64 programs of a tracepoint").map(|case| {
        case.refused(BPF, Of::First(LINK_CREATE), Errno::E2BIG).errno("E2BIG").says("takes 64 programs")
    }));
    cases
}

/// What the kernel says of probes, and the limits of the policy.
fn probes() -> Vec<Case> {
    let in_kernel = |kind, reason| {
        [
            attach(ATTACH, kind, reason, "own_function"),
            attach(KPROBE, kind, reason, "any_function at=schedule"),
        ]
    };
    let in_file = |kind, reason| {
        let case = attach(UPROBE, kind, reason, "in_any_file at=/mnt/file function=f");
        [attach(ATTACH, kind, reason, "in_own_file"), case].map(|case| case.within(&with_file(PLAIN)))
    };
    let refused = |case: Case, errno: Errno, errno_name| {
        case.within(&format!("{}\n{PMUS}", with_file(PLAIN)))
            .refused(PERF_EVENT_OPEN, Of::Any, errno)
            .errno(errno_name)
    };
    let unprobed = "a place that the kernel does not probe";
    let mut cases = vec![
        attach(KPROBE, "invalid", "the form", "any_function at=")
            .errno("EINVAL")
            .says("a function of the kernel"),
        attach(KPROBE, "denied-by-policy", "", "any_function at=vfs_read")
            .allowing("kprobe = [\"schedule\"]")
            .says("does not allow `kprobe` for `vfs_read`"),
        attach(UPROBE, "invalid", "the form", "in_any_file at= function=f")
            .errno("EINVAL")
            .says("`path:function`"),
        attach(UPROBE, "denied-by-policy", "the policy", "in_any_file at=/proc/self/exe function=main")
            .allowing("uprobe = [\"/mnt/*\"]")
            .says("does not allow `uprobe` for `/proc/self/exe:main`"),
        attach(UPROBE, "unsupported", "a source line", "in_any_file at=/mnt/file@main.c function=12")
            .within(&with_file(PLAIN))
            .says("no probe is put at a source line"),
        attach(
            UPROBE,
            "invalid",
            "a process id below 1",
            "in_any_file at=/proc/self/exe function=main process=0",
        )
        .says("is the id of no process"),
        attach(
            UPROBE,
            "not-found",
            "no such process",
            "in_any_file at=/proc/self/exe function=main process=2000000000",
        )
        .needs("uprobes", has_uprobes)
        .errno("ESRCH")
        .says("ESRCH"),
    ];
    for case in in_kernel("not-found", "no such function") {
        cases.push(refused(case, Errno::ENOENT, "ENOENT").says("`schedule+0`"));
    }
    for (reason, errno, errno_name, text) in [
        (unprobed, Errno::EINVAL, "EINVAL", "`schedule+0`"),
        (unprobed, Errno::EILSEQ, "EILSEQ", "no instruction of the kernel begins at that place"),
        (
            "a name of several functions of the kernel",
            Errno::EADDRNOTAVAIL,
            "EADDRNOTAVAIL",
            "several functions",
        ),
    ] {
        for case in in_kernel("invalid", reason) {
            cases.push(refused(case, errno, errno_name).says(text));
        }
    }
    for case in in_file("invalid", unprobed) {
        cases.push(refused(case, Errno::EINVAL, "EINVAL").says("/mnt/file"));
    }
    let all = |kind, reason| [in_kernel(kind, reason), in_file(kind, reason)].concat();
    for case in all("unsupported", "the kernel was built without such probes") {
        let case = case.within(&format!("{}\n{NO_PMUS}", with_file(PLAIN)));
        cases.push(case.errno("EOPNOTSUPP").says("cannot put a probe"));
    }
    for case in all("limit", "`probes`") {
        cases.push(case.host(&["--limit", "probes=0"]).says("`probes` of the plugin is 0"));
    }
    cases
}

/// A function.
const PLAIN: &str = "int f(void) { return 100000; }";
/// A function in a file with the build id that Go's linker writes.
const GO: &str = "__asm__(\".section .note.go.buildid, \\\"a\\\", %note; .long 4, 4, 4; .asciz \\\"Go\\\"; \
                  .byte 0; .ascii \\\"abcd\\\"; .text\"); int f(void) { return 100000; }";
/// Functions of one name, each of its own file, in a library that is linked of 65 of them.
const MANY: &str = "static __attribute__((used)) void f(void) {}";

/// Returns commands that build `/mnt/file` from lines of C.
fn with_file(lines: &str) -> String {
    built(lines, 1, "")
}

fn built(lines: &str, times: u32, flags: &str) -> String {
    format!("{}\nmv /mnt/library.so /mnt/file", library(lines, times, flags))
}

/// What is wrong with an attach point in a file: of the object's own program, and of one that the call names.
fn attach_points_in_files() -> Vec<Case> {
    let attach_point = |kind, reason, script: &str, text: &'static str| {
        let named = attach(UPROBE, kind, reason, "in_any_file at=/mnt/file function=f");
        [attach(ATTACH, kind, reason, "in_own_file"), named].map(|case| case.within(script).says(text))
    };
    let other = |own: &str, named: &str, kind, reason, script: &str, text: &'static str| {
        let named = attach(UPROBE, kind, reason, named);
        [attach(ATTACH, kind, reason, own), named].map(|case| case.within(script).says(text))
    };
    let files = |script: &str| format!("{FILES}\n{script}");
    let unproven = "a place where nothing proves that an instruction begins";
    let long = with_file(LONG_FUNCTION);
    [
        attach_point("invalid", "no regular file", &files("mkdir /mnt/file"), "not a regular file"),
        attach_point("invalid", "no program", &files("echo text >/mnt/file"), "/mnt/file"),
        attach_point(
            "invalid",
            "a function that chooses another one when the program starts (IFUNC)",
            &with_file(CHOOSES),
            "chooses one of several functions",
        ),
        attach_point("not-found", "no such file", FILES, "open: ENOENT"),
        attach_point(
            "not-found",
            "no such function",
            &with_file("int other(void) { return 1; }"),
            "no function `f`",
        ),
        other(
            "of_other_source",
            "in_any_file at=/mnt/file function=f@absent.c",
            "not-found",
            "a function of another version or source file",
            &with_file(PLAIN),
            "none of version or source file `absent.c`",
        ),
        other(
            "behind_start",
            "in_any_file at=/mnt/file function=f offset=1",
            "denied-by-policy",
            unproven,
            &long,
            "lies inside an instruction",
        ),
        other(
            "far_behind_start",
            "in_any_file at=/mnt/file function=f offset=1048577",
            "limit",
            "a place more than 1 MiB behind the start of its function",
            &long,
            "a function that is too long to be decoded",
        ),
        other(
            "own_return",
            "any_return at=/mnt/file function=f",
            "denied-by-policy",
            "returns in a file with code in Go",
            &with_file(GO),
            "it has code in Go",
        ),
        attach_point(
            "limit",
            "more than 64 functions of the name",
            &built(MANY, 65, ""),
            "more than 64 functions",
        ),
        attach_point("unsupported", "a program for another machine", &files(OTHER_MACHINE), "e_machine 247"),
        attach_point(
            "unsupported",
            "text relocations",
            &built(RELOCATED, 1, "-Wl,-z,notext"),
            "text relocations",
        ),
        attach_point(
            "not-permitted",
            "this user may not read the file",
            &files(": >/mnt/file; chmod 600 /mnt/file"),
            "open: EACCES",
        )
        .map(|case| case.by_nobody("-all,+bpf,+perfmon")),
        attach_point("busy", "somebody holds a lease on the file", &with_file(PLAIN), "open: EAGAIN")
            .map(|case| case.refused(OPENAT, Of::Path("/mnt/file"), Errno::EAGAIN)),
        attach_point("busy", "the file was changed meanwhile", &with_file(PLAIN), "it was changed meanwhile")
            .map(|case| case.changing_at("/mnt/file", PERF_EVENT_OPEN).needs("uprobes", has_uprobes)),
    ]
    .concat()
}

/// Interfaces of a network namespace that has `lo` alone, whose number is 1.
fn interfaces() -> Vec<Case> {
    let on_interface =
        [(XDP, "on_device", "xdp"), (TC, "incoming", "tc"), (SOCKET_FILTER, "filters", "socket_filter")];
    let within = |case: Case| case.within_namespaces("--net --mount", "");
    let any = on_interface.into_iter().flat_map(|(function, program, class)| {
        let on = |kind, reason, words: &str| attach(function, kind, reason, &format!("{program} {words}"));
        [
            on("not-found", "no such interface", "at=absent").errno("ENODEV").says("`absent`"),
            on("invalid", "the form", "at=a-name-that-is-too-long")
                .errno("EINVAL")
                .says("a network interface"),
            on("denied-by-policy", "", "at=lo")
                .allowing(format!("{class} = [\"x*\"]"))
                .says(format!("does not allow `{class}` for `lo`")),
        ]
    });
    let more = [
        attach(XDP, "busy", "the interface has an xdp program", "on_device at=1 first=lo")
            .errno("EBUSY")
            .says("the interface takes one xdp program and has one"),
        attach(XDP, "unsupported", "the driver or the device cannot", "on_device at=lo mode=native")
            .errno("EOPNOTSUPP")
            .says("does not run xdp programs in this mode"),
        attach(XDP, "unsupported", "the driver or the device cannot", "on_device at=lo mode=offloaded")
            .errno("EOPNOTSUPP")
            .says("does not run xdp programs in this mode"),
        attach(
            TC,
            "busy",
            "a filter of this priority and handle",
            "incoming at=1 first=lo priority=1 handle=1",
        )
        .errno("EEXIST")
        .says("cannot attach to the interface `1`"),
        attach(TC, "invalid", "a priority or handle of 0", "incoming at=lo priority=0")
            .says("numbers from 1"),
        attach(TC, "limit", "63 programs of an interface", "incoming at=lo")
            .refused(BPF, Of::First(LINK_CREATE), Errno::ERANGE)
            .errno("ERANGE")
            .says("63 programs are attached there"),
        attach(SOCKET_FILTER, "not-permitted", "CAP_NET_RAW", "filters at=lo")
            .by_nobody("-all,+bpf,+perfmon")
            .errno("EPERM")
            .says("CAP_NET_RAW"),
    ];
    any.chain(more).map(within).collect()
}

/// Folders of control groups, and others.
fn groups() -> Vec<Case> {
    let group = |kind, reason, at: &str| {
        let case = attach(CGROUP, kind, reason, &format!("in_group at={at}"));
        case.within(GROUPS)
    };
    let no_group = |at| group("invalid", "no folder of a control group", at).errno("EINVAL");
    vec![
        group("not-found", "no such folder", "/mnt/absent").errno("ENOENT").says("/mnt/absent"),
        no_group("/tmp").says("the folder of a control group"),
        no_group("/mnt/cgroup.procs").says("the folder of a control group"),
        no_group("").says("the folder of a control group"),
        group("not-permitted", "this user may not open the folder", "/mnt/closed")
            .within(&format!("{FILES}\nmkdir -m 700 /mnt/closed"))
            .by_nobody("-all,+bpf,+perfmon,+net_admin")
            .errno("EACCES")
            .says("/mnt/closed"),
        group("denied-by-policy", "", "/mnt")
            .allowing("cgroup = [\"/sys/*\"]")
            .says("does not allow `cgroup` for `/mnt`"),
        group("limit", "64 programs of a control group", "/mnt")
            .refused(BPF, Of::First(LINK_CREATE), Errno::E2BIG)
            .errno("E2BIG")
            .says("/mnt"),
    ]
}

/// Inputs that no test run has, and what becomes of one.
fn test_runs() -> Vec<Case> {
    let run = |kind, reason, words: &str| case(kind, reason).of(TEST_RUN).on(Object::Programs).with(words);
    let refused = |kind, reason, errno: Errno, errno_name| {
        let case = run(kind, reason, "switched").refused(BPF, Of::First(PROG_TEST_RUN), errno);
        case.errno(errno_name).says(errno_name)
    };
    vec![
        run("invalid", "the packet's size", "on_device size=13").says("a packet of 13 bytes"),
        run("invalid", "the number of repetitions", "on_device repeat=0").says("it runs 1 to 10000 times"),
        run("invalid", "the number of arguments", "switched arguments=13").says("at most 12 arguments"),
        run("not-found", "no such interface", "on_device interface=2000000000")
            .errno("ENXIO")
            .says("find the interface of number 2000000000"),
        run("denied-by-policy", "", "on_device interface=1")
            .allowing("xdp = [\"x*\"]")
            .says("does not allow `xdp` for `lo`"),
        run("unsupported", "the kernel has no test run for programs of this type", "tick")
            .says("no test run for programs of type perf_event"),
        run("limit", "`--max-bpf-share`", "switched costly")
            .host(&["--max-bpf-share", "0.0001%"])
            .says("took more of the CPUs' time than it may"),
        run("limit", "the packet grew by more than 4096 bytes", "lengthens")
            .errno("ENOSPC")
            .says("`lengthens`"),
        refused("limit", "memory of the kernel", Errno::ENOMEM, "ENOMEM"),
        refused("not-permitted", "a filter of system calls", Errno::EPERM, "EPERM"),
        refused("kernel", "", Errno::EIO, "EIO"),
    ]
}

/// Returns commands that build and start a program which sends over connections of a congestion control, as soon
/// as it is registered.
fn traffic(name: &str) -> String {
    let source = include_str!("traffic.c");
    format!(
        "{FILES}\nip link set lo up\ncat >/mnt/traffic.c <<'END'\n{source}END\n\
         cc -o /mnt/traffic /mnt/traffic.c\n/mnt/traffic {name} >/dev/null 2>&1 &"
    )
}

/// Congestion controls of the object, and one that it does not have.
fn registering() -> Vec<Case> {
    let register =
        |kind, reason, words: &str| case(kind, reason).of(REGISTER).on(Object::Programs).with(words);
    vec![
        register("not-found", "no such struct", "absent").says("has no struct to register `absent`"),
        register("invalid", "members that are missing or wrong", "broken_ops")
            .errno("EINVAL")
            .says("cannot register `broken_ops`"),
        register("busy", "the kernel has one of that name", "busy_ops twice")
            .errno("EEXIST")
            .says("the kernel has one already"),
        register("denied-by-policy", "", "absent")
            .allowing("struct_ops = [\"*_ops\"]")
            .says("does not allow `struct_ops` for `absent`"),
        register("limit", "`handles`", "full_ops full")
            .host(&["--limit", "handles=9"])
            .says("too many handles"),
        register("limit", "`host_bytes`", "plain_ops full")
            .host(&["--limit", "host_bytes=9000"])
            .says("`host_bytes` of the plugin is 9000"),
        register("limit", "`--max-bpf-share`", "costly_ops costly")
            .host(&["--max-bpf-share", "0.0001%"])
            .within_namespaces("--net --mount --pid --fork --kill-child", &traffic("kst_doc_costly"))
            .says("took more of the CPUs' time than it may"),
    ]
}
