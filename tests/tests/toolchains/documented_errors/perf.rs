//! The errors of `perf`.

use std::path::Path;

use nix::errno::Errno;

use super::case::{BPF, Case, IOCTL, OPENAT, Of, PERF_EVENT_OPEN, READ, case};
use super::maps::{EMPTY_BPFFS, MAP_CREATE, MAP_UPDATE_ELEM, NO_BPFFS, OTHER_PIN};

/// No PMU is there.
pub const NO_PMUS: &str = "mount -t tmpfs none /sys/bus/event_source/devices";
/// Made-up PMUs: of probes, without `format`, with two terms, and of two kinds of core.
pub const PMUS: &str = "mount -t tmpfs none /sys/bus/event_source/devices
(cd /sys/bus/event_source/devices
mkdir -p kprobe uprobe odd even/format cpu_core/format cpu_atom/format
echo 6 >kprobe/type; echo 7 >uprobe/type; echo 77 >odd/type; echo 78 >even/type
echo config:0-7 | tee even/format/event cpu_core/format/event >cpu_atom/format/event
echo 4 >cpu_core/type; echo 10 >cpu_atom/type; echo 0 >cpu_core/cpus; echo 1 >cpu_atom/cpus)";
/// Takes tracefs away.
pub const NO_TRACEFS: &str = "mount -t tmpfs none /sys/kernel/tracing
[ ! -d /sys/kernel/debug ] || mount -t tmpfs none /sys/kernel/debug";
/// Mounts tracefs, which belongs to root.
pub const OF_ROOT: &str = "mount -t tracefs tracefs /sys/kernel/tracing -o mode=0700";
/// Something else than tracefs, with a tracepoint whose id is no number.
const NO_NUMBER: &str = "mount -t tmpfs none /sys/kernel/tracing
mkdir -p /sys/kernel/tracing/events/sched/sched_switch
echo none >/sys/kernel/tracing/events/sched/sched_switch/id";
/// A list of symbols without addresses.
const HIDDEN: &str = "list=$(mktemp)
echo '0000000000000000 T schedule' >\"$list\"
chmod 444 \"$list\"
mount --bind \"$list\" /proc/kallsyms
rm \"$list\"";
/// A folder for files.
pub const FILES: &str = "mount -t tmpfs none /mnt";

const NUMBERS: &[&str] = &["perf.event.numbered", "perf.event.raw"];
const NAMED: &[&str] = &["perf.event.named"];
const TRACEPOINT: &[&str] = &["perf.event.tracepoint"];
const KPROBE: &[&str] = &["perf.event.kprobe"];
const UPROBE: &[&str] = &["perf.event.uprobe"];
const AT: &[&str] = &["perf.event.breakpoint-at"];
const OPEN: &[&str] = &["perf.open"];
const PUBLISH: &[&str] = &["perf.attachment.publish"];
const SET_PERIOD: &[&str] = &["perf.attachment.set-period"];
const KERNEL_ID: &[&str] = &["perf.attachment.kernel-id"];
const SWITCHES: &[&str] = &["perf.attachment.enable", "perf.attachment.disable", "perf.attachment.reset"];
const BY_ID: &[&str] = &["perf.read-by-id", "perf.snapshot-by-id", "perf.read-many"];
const READS: &[&str] = &[
    "perf.attachment.read",
    "perf.attachment.snapshot",
    "perf.attachment.snapshot-cpu",
    "perf.read-by-id",
    "perf.snapshot-by-id",
    "perf.read-many",
];

pub fn cases() -> Vec<Case> {
    [
        numbers(),
        names(),
        tracepoints(),
        kprobes(),
        uprobes(),
        breakpoints(),
        kept(),
        tasks_and_cpus(),
        options(),
        open_refuses(),
        open_fails(),
        attachments(),
        published(),
        periods(),
    ]
    .concat()
}

fn numbers() -> Vec<Case> {
    let both = |kind, reason| case(kind, reason).of(NUMBERS);
    vec![
        both("invalid", "a hardware, software or cache config that the kernel's header does not define")
            .with("1 99")
            .says("defines no event 0x63"),
        both("denied-by-policy", "a type with a call of its own")
            .with("5 0")
            .says("a constructor of its own"),
        both("denied-by-policy", "a PMU without `format`").with("77 0").within(PMUS).says("has no terms"),
        both("denied-by-policy", "bits of no term")
            .with("78 256")
            .within(PMUS)
            .says("no term for the bits 0x100"),
        both("not-found", "no PMU has that type here").with("12345 0").says("no PMU has the type 12345"),
        case("denied-by-policy", "`config1` or `config2` of a type that has none")
            .of(&["perf.event.raw"])
            .with("1 0 1")
            .says("neither `config1` nor `config2`"),
    ]
}

fn names() -> Vec<Case> {
    let named = |kind, reason| case(kind, reason).of(NAMED).within(PMUS);
    vec![
        named("not-found", "no such event, PMU or tracepoint")
            .with("page_fault")
            .says("such as `page_faults`"),
        named("invalid", "the form").with("even/event=1").says("is not an event of a PMU"),
        named("invalid", "a term that the PMU does not have").with("even/events=1/").says("no term `events`"),
        named("invalid", "a value that does not fit its term").with("even/event=256/").says("up to 0xff"),
        named("invalid", "a letter that is none").with("page_faults:q").says("`q` in `:q` is not a modifier"),
        named("denied-by-policy", "a PMU with a call of its own")
            .with("kprobe/config=1/")
            .says("use `kprobe`"),
        named("denied-by-policy", "a PMU without `format`").with("odd/config=1/").says("has no terms"),
        named("denied-by-policy", "bits of no term")
            .with("even/config=256/")
            .says("no term for the bits 0x100"),
    ]
}

fn tracepoints() -> Vec<Case> {
    let tracepoint = |kind, reason| case(kind, reason).of(TRACEPOINT);
    let in_both_spellings = |case: Case| {
        [case.clone().of(TRACEPOINT).with("sched/sched_switch"), case.of(NAMED).with("sched:sched_switch")]
    };
    let of_tracefs = [
        case("unsupported", "tracefs is not mounted")
            .within(NO_TRACEFS)
            .by_nobody("-all,+perfmon")
            .says("tracefs is not mounted"),
        case("not-permitted", "tracefs may not be read")
            .within(OF_ROOT)
            .by_nobody("-all,+perfmon")
            .says("this user may not read tracefs"),
        case("kernel", "tracefs cannot be read").within(NO_NUMBER).says("is not a number"),
    ];
    let mut cases = vec![
        tracepoint("not-found", "no such tracepoint")
            .with("sched/sched_swich")
            .says("such as `sched/sched_switch`"),
        tracepoint("invalid", "the form").with("sched_switch").says("is not a tracepoint"),
    ];
    cases.extend(of_tracefs.into_iter().flat_map(in_both_spellings));
    cases
}

fn kprobes() -> Vec<Case> {
    let kprobe = |kind, reason| case(kind, reason).of(KPROBE);
    vec![
        kprobe("invalid", "the form").with("schedule+many").says("is not a function of the kernel"),
        kprobe("denied-by-policy", "")
            .with("schedule")
            .allowing("event = [\"software\"]")
            .says("does not allow `event` for `kprobe`"),
        kprobe("not-found", "the kernel was built without kprobes")
            .with("schedule")
            .within(NO_PMUS)
            .says("no PMU named `kprobe`"),
    ]
}

/// Makes a program for another machine.
pub const OTHER_MACHINE: &str = "cp /proc/self/exe /mnt/file
printf '\\367\\000' | dd of=/mnt/file bs=1 seek=18 conv=notrunc 2>/dev/null";

/// Returns commands that build a library from lines of C or assembly, each linked so many times.
pub fn library(lines: &str, times: u32, flags: &str) -> String {
    let objects = "/mnt/one.o ".repeat(times as usize);
    format!(
        "{FILES}\necho '{lines}' | cc -x c -c -o /mnt/one.o -\n\
         cc -shared -nostdlib {flags} -o /mnt/library.so {objects}"
    )
}

/// A function that is not seen outside of its file, so that a library may have several.
const OWN_FUNCTION: &str = "static __attribute__((used)) void twice(void) {}";

/// The address of a function within its code.
pub const RELOCATED: &str = "__asm__(\".text; .globl f; .type f,%function; f: .quad f\");";
pub const CHOOSES: &str = "__asm__(\".text; .globl f; .type f,%gnu_indirect_function; f: .quad 0\");";
/// Zeros, which are instructions of two bytes on x86 and of four on arm64.
pub const LONG_FUNCTION: &str =
    "__asm__(\".text; .globl f; .type f,%function; f: .fill 0x100100,1,0; .size f, .-f\");";

fn uprobes() -> Vec<Case> {
    let uprobe = |kind, reason| case(kind, reason).of(UPROBE).within(PMUS);
    let with_files = |script: &str| format!("{PMUS}\n{script}");
    let text_relocations = library(RELOCATED, 1, "-Wl,-z,notext");
    vec![
        uprobe("invalid", "the form").with("/bin/true").says("is not a probe location"),
        uprobe("invalid", "no regular file").with("/dev/null:main").says("it is a device"),
        uprobe("invalid", "no program").with("/etc/passwd:main").says("/etc/passwd"),
        uprobe("denied-by-policy", "the policy")
            .with("/proc/self/exe:main")
            .allowing("event = [\"software\"]")
            .says("does not allow `event` for `uprobe`"),
        uprobe("denied-by-policy", "a place where nothing proves that an instruction begins")
            .within(&with_files(&library(LONG_FUNCTION, 1, "")))
            .with("/mnt/library.so:f+1")
            .says("lies inside an instruction"),
        uprobe("not-found", "no such file").with("/no/such/file:main").says("open: ENOENT"),
        uprobe("not-found", "no such function").with("/proc/self/exe:absent").says("no function `absent`"),
        uprobe("not-found", "a function of another version or source file")
            .with("/proc/self/exe:main@absent.c")
            .says("none of version or source file `absent.c`"),
        uprobe("not-found", "the kernel was built without uprobes")
            .with("/proc/self/exe:main")
            .within(NO_PMUS)
            .says("no PMU named `uprobe`"),
        uprobe("not-permitted", "this user may not read the file")
            .within(&with_files(&format!("{FILES}\n: >/mnt/file; chmod 600 /mnt/file")))
            .by_nobody("-all,+perfmon")
            .with("/mnt/file:main")
            .says("open: EACCES"),
        uprobe("busy", "somebody holds a lease on the file")
            .with("/etc/passwd:main")
            .refused(OPENAT, Of::Path("/etc/passwd"), Errno::EAGAIN)
            .says("open: EAGAIN"),
        uprobe("unsupported", "a program for another machine")
            .within(&with_files(&format!("{FILES}\n{OTHER_MACHINE}")))
            .with("/mnt/file:main")
            .says("e_machine 247"),
        uprobe("unsupported", "text relocations")
            .within(&with_files(&text_relocations))
            .with("/mnt/library.so:f")
            .says("text relocations"),
        uprobe("invalid", "a function that chooses another one when the program starts (IFUNC)")
            .within(&with_files(&library(CHOOSES, 1, "")))
            .with("/mnt/library.so:f")
            .says("chooses one of several functions"),
        uprobe("limit", "a place more than 1 MiB behind the start of its function")
            .within(&with_files(&library(LONG_FUNCTION, 1, "")))
            .with("/mnt/library.so:f+0x100001")
            .says("a function that is too long to be decoded"),
        uprobe("unsupported", "a source line")
            .with("/proc/self/exe@main.c:12")
            .says("no probe is put at a source line"),
        uprobe("limit", "`probes`")
            .with("/proc/self/exe:main")
            .host(&["--limit", "probes=0"])
            .says("`probes` of the plugin is 0"),
        uprobe("limit", "more than 64 functions of the name")
            .within(&with_files(&library(OWN_FUNCTION, 65, "")))
            .with("/mnt/library.so:twice")
            .says("more than 64 functions"),
        uprobe("kernel", "")
            .with("/etc/passwd:main")
            .refused(OPENAT, Of::Path("/etc/passwd"), Errno::EIO)
            .says("open: EIO"),
    ]
}

fn breakpoints() -> Vec<Case> {
    // Lengths and accesses, and the same as a name.
    let all = |reason, len_and_access: &str, name: &str, text: &str| {
        let one = |function, words: &str| case("invalid", reason).of(&[function]).with(words).says(text);
        let at = format!("schedule {len_and_access}");
        [
            one("perf.event.breakpoint", len_and_access),
            one("perf.event.breakpoint-at", &at),
            one("perf.event.named", name),
        ]
    };
    let at = |kind, reason| case(kind, reason).of(AT).with("schedule 8 w");
    let mut cases = vec![
        at("denied-by-policy", "")
            .allowing("event = [\"software\"]")
            .says("does not allow `event` for `breakpoint`"),
        at("not-found", "no such symbol").with("absent 8 w").says("the kernel has no symbol of that name"),
        at("not-permitted", "the kernel hides its addresses")
            .within(HIDDEN)
            .says("the kernel hides its addresses"),
        at("unsupported", "the kernel lists no symbols")
            .refused(OPENAT, Of::Path("/proc/kallsyms"), Errno::ENOENT)
            .says("/proc/kallsyms"),
    ];
    cases.extend(all("another length", "3 w", "mem:0x1000/3:w", "covers 1, 2, 4 or 8 bytes, not 3"));
    cases.extend(all("no access", "4 -", "mem:0x1000/4:-", "none was named"));
    cases.extend(all(
        "`execute` together with another",
        "8 rx",
        "mem:0x1000/8:rx",
        "cannot count loads or stores",
    ));
    cases.extend(all(
        "`execute` with a length other than 8",
        "4 x",
        "mem:0x1000/4:x",
        "has the length 8, not 4",
    ));
    cases
}

/// What each function that makes an event has: a name of limited length, a handle, and its bytes.
fn kept() -> Vec<Case> {
    let made = [
        ("perf.event.numbered", "1 2"),
        ("perf.event.raw", "1 2"),
        ("perf.event.named", "page_faults"),
        ("perf.event.tracepoint", "sched/sched_switch"),
        ("perf.event.kprobe", "schedule"),
        ("perf.event.uprobe", "/proc/self/exe:main"),
        ("perf.event.breakpoint", "8 w"),
        ("perf.event.breakpoint-at", "schedule 8 w"),
        ("perf.open", "page_faults own"),
    ];
    let limited = made.into_iter().flat_map(|(function, words)| {
        let limit =
            |reason| case("limit", reason).of(&[function]).with(&format!("{words} many")).within(PMUS);
        [
            limit("`handles`").host(&["--limit", "handles=9"]).says("too many handles"),
            limit("`host_bytes`")
                .host(&["--limit", "host_bytes=9000"])
                .says("`host_bytes` of the plugin is 9000"),
        ]
    });
    let long = |reason| case("invalid", reason).with("LONG").says("a name of 4097 bytes");
    let names = [NAMED, TRACEPOINT, KPROBE, UPROBE].concat();
    limited
        .chain([
            long("a name of more than 4096 bytes").of(&names),
            long("a name of more than 4096 bytes").of(AT).with("LONG 8 w"),
            long("a wildcard of more than 4096 bytes").of(&["perf.list-events"]),
            case("limit", "`host_bytes`")
                .of(&["perf.list-events"])
                .host(&["--limit", "host_bytes=60000"])
                .says("`host_bytes` of the plugin is 60000"),
        ])
        .collect()
}

/// Options that say whose events count, and where.
fn tasks_and_cpus() -> Vec<Case> {
    let of = |option: &'static str, kind, reason| case(kind, reason).of(&[option]);
    let elsewhere = "`/proc` is that of another PID namespace";
    let (task, process) = ("perf.options.observe-task", "perf.options.observe-process");
    let (cgroup, cpu) = ("perf.options.observe-cgroup", "perf.options.on-cpu");
    vec![
        of(task, "invalid", "0 or a negative number").with("page_faults task=0").says("is not a task"),
        of(task, "not-found", "no such task")
            .with("page_faults task=2000000000")
            .errno("ESRCH")
            .says("there is no task 2000000000"),
        of("perf.options.observe-every-task", "invalid", "any CPU")
            .with("page_faults all")
            .says("every task on every CPU"),
        of(process, "not-found", "no such process")
            .with("page_faults process=no-such-process")
            .says("no process runs `no-such-process`"),
        of(process, "invalid", elsewhere)
            .with("page_faults process=no-such-process")
            .within_namespaces("--mount --pid --fork", "")
            .says("/proc shows the tasks of another PID namespace"),
        of("perf.options.set-follow", "invalid", elsewhere)
            .with("page_faults own follow")
            .within_namespaces("--mount --pid --fork", "")
            .says("/proc shows the tasks of another PID namespace"),
        of("perf.options.observe-command", "invalid", "the host starts no command")
            .with("page_faults command")
            .says("the host starts no command"),
        of(cgroup, "not-found", "no such control group")
            .with("page_faults cgroup=no-such-group cpu=0")
            .says("there is no cgroup `no-such-group`"),
        of(cgroup, "invalid", "any CPU").with("page_faults cgroup=any").says("counted on one CPU or on all"),
        of(cpu, "invalid", "a negative number").with("page_faults all cpu=-5").says("cpu -5 is not a CPU"),
        of(cpu, "invalid", "a CPU that the PMU of a kind of core does not count on")
            .with("cpu_atom/event=1/ all cpu=0")
            .within(PMUS)
            .says("counts on other CPUs: 1"),
        of(cpu, "not-found", "offline, or no such CPU")
            .with("page_faults all cpu=100000")
            .errno("EINVAL")
            .says("cpu 100000 is offline or does not exist"),
    ]
}

/// Other options.
fn options() -> Vec<Case> {
    let of = |option: &'static str, kind, reason| case(kind, reason).of(&[option]);
    let member = |option: &'static str, word: &str, name: &str| {
        let case = of(option, "invalid", "a member of a group");
        case.with(&format!("page_faults own + task_clock own {word}"))
            .says(format!("`{name}` is for the leader"))
    };
    let (freq, precise, follow) =
        ("perf.options.set-freq", "perf.options.set-precise", "perf.options.set-follow");
    vec![
        member("perf.options.set-start-disabled", "start-disabled", "start_disabled"),
        member("perf.options.set-pinned", "pinned", "pinned"),
        member("perf.options.set-exclusive", "exclusive", "exclusive"),
        of("perf.options.set-remove-on-exec", "invalid", "together with `set-enable-on-exec` or `observe-command`")
            .with("page_faults own enable-on-exec remove-on-exec")
            .says("cannot both start and end at an exec"),
        of("perf.options.set-period", "limit", "a clock's period below 50000 ns")
            .with("task_clock own period=100 program=tick")
            .says("would run every 100 ns"),
        of("perf.options.set-inherit", "invalid", "a probe")
            .with("event.kprobe=schedule own inherit")
            .within(PMUS)
            .says("a probe's event cannot be inherited"),
        of(follow, "invalid", "a probe")
            .with("event.kprobe=schedule own follow")
            .within(PMUS)
            .says("a probe's event cannot be inherited"),
        of(follow, "invalid", "neither a task, a process nor the command")
            .with("page_faults all cpu=0 follow")
            .says("`follow` needs a task"),
        of(
            "perf.options.set-exclude-kernel",
            "invalid",
            "`context_switches`, `cpu_migrations` and `cgroup_switches`, which happen in the kernel only and would \
             count a silent 0",
        )
        .with("context_switches own exclude-kernel")
        .says("it happens in the kernel only"),
        of(freq, "limit", "above `kernel.perf_event_max_sample_rate`")
            .with("page_faults own freq=100000000 program=tick")
            .errno("EINVAL")
            .says("samples per second are more than kernel.perf_event_max_sample_rate"),
        of(freq, "limit", "of a clock above 20000")
            .with("task_clock own freq=20001 program=tick")
            .says("a `freq` of 20000 or less"),
        of(
            "perf.options.set-exclude-host",
            "invalid",
            "what the kernel counts itself, which happens in the host only",
        )
        .with("page_faults own exclude-host")
        .says("virtual machines do not cause it"),
        of(precise, "invalid", "above 3").with("page_faults own precise=4").says("precise 4 is not a level"),
        of(precise, "unsupported", "the CPU cannot do it")
            .with("even/event=1/ own precise=2")
            .within(PMUS)
            .refused(PERF_EVENT_OPEN, Of::Any, Errno::EOPNOTSUPP)
            .errno("EOPNOTSUPP")
            .says("no such precise samples"),
    ]
}

/// What `open` refuses itself.
fn open_refuses() -> Vec<Case> {
    let open = |kind, reason, words: &str| case(kind, reason).of(OPEN).with(words);
    let functions = format!("{PMUS}\n{}", library(OWN_FUNCTION, 2, ""));
    vec![
        open("stale", "the leader is detached", "page_faults own detached + task_clock own")
            .says("stale leader"),
        open("invalid", "two `observe-` methods that contradict each other", "page_faults own process=sh")
            .says("both select the tasks to count"),
        open("invalid", "a leader that is a member", "page_faults own + task_clock own ++ page_faults own")
            .says("that attachment is a member"),
        open(
            "invalid",
            "another task, CPU or `inherit` than the leader",
            "page_faults own + task_clock own inherit",
        )
        .says("`inherit` is the same in a whole group"),
        open(
            "invalid",
            "several functions in a group",
            "page_faults own + event.uprobe=/mnt/library.so:twice own",
        )
        .within(&functions)
        .says("cannot be in a group"),
        open("invalid", "a program of another kind", "page_faults own program=switched")
            .says("only a perf_event program runs"),
        open("limit", "`attachments`", "page_faults own")
            .host(&["--limit", "attachments=0"])
            .says("`attachments` of the plugin is 0"),
        open("limit", "`probes`", "event.kprobe=schedule own")
            .within(PMUS)
            .host(&["--limit", "probes=0"])
            .says("`probes` of the plugin is 0"),
        open("denied-by-policy", "the event", "page_faults own")
            .allowing("event = [\"cache\"]\nscope = [\"own\"]")
            .says("does not allow `event` for `software`"),
        open("denied-by-policy", "whose events", "page_faults all cpu=0")
            .allowing("event = [\"software\"]\nscope = [\"own\"]")
            .says("does not allow `scope` for `all`"),
        open("busy", "the file of a probe was changed", "event.uprobe=/mnt/library.so:twice own")
            .within(&library(OWN_FUNCTION, 1, ""))
            .changing("/mnt/library.so")
            .needs("uprobes", has_uprobes)
            .says("it was changed meanwhile"),
    ]
}

/// A number of `enum bpf_cmd` in include/uapi/linux/bpf.h.
const LINK_CREATE: u64 = 28;

/// What the kernel answers to `open`.
fn open_fails() -> Vec<Case> {
    let open = |kind, reason| case(kind, reason).of(OPEN).with("page_faults own");
    let refused = |kind, reason, errno: Errno, name: &'static str| {
        open(kind, reason).refused(PERF_EVENT_OPEN, Of::Any, errno).errno(name)
    };
    let linked = |kind, reason, errno: Errno, name: &'static str| {
        let case = open(kind, reason).with("page_faults own program=tick").errno(name);
        case.refused(BPF, Of::First(LINK_CREATE), errno)
    };
    let group = "page_faults own + task_clock own";
    let is_strict = || {
        let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        level.trim().parse::<i32>().is_ok_and(|level| level > 0)
    };
    vec![
        refused("unsupported", "no counter for this event on this CPU", Errno::ENOENT, "ENOENT")
            .with("cpu_cycles own")
            .says("`cpu_cycles`"),
        refused("unsupported", "no such function of the kernel", Errno::ENOENT, "ENOENT")
            .with("event.kprobe=absent own")
            .within(PMUS)
            .says("the kernel has no such function"),
        open("not-permitted", "CAP_PERFMON or kernel.perf_event_paranoid")
            .with("page_faults all cpu=0")
            .by_nobody("-all")
            .needs("kernel.perf_event_paranoid above 0", is_strict)
            .errno("EACCES")
            .says("ks-host has no CAP_PERFMON"),
        refused("not-found", "the leader's task has ended", Errno::ENODEV, "ENODEV")
            .with(group)
            .says("the group led by `page_faults` counts has ended"),
        refused("invalid", "an address that the CPU cannot watch", Errno::EINVAL, "EINVAL")
            .with("event.breakpoint=8,w own")
            .says("this CPU cannot watch that address"),
        refused("invalid", "PMUs that cannot be mixed in a group", Errno::EINVAL, "EINVAL")
            .with(group)
            .says("cannot be mixed in a group"),
        refused("limit", "descriptors", Errno::EMFILE, "EMFILE")
            .says("as many descriptors open as its limit"),
        open("limit", "hardware breakpoints")
            .with("event.breakpoint=8,w own many")
            .errno("ENOSPC")
            .says("every breakpoint of the CPU is taken"),
        refused("limit", "memory of the kernel", Errno::ENOMEM, "ENOMEM").says("no memory for another event"),
        refused("busy", "an exclusive event has the PMU", Errno::EBUSY, "EBUSY")
            .says("has the PMU of `page_faults`"),
        refused("unsupported", "an option that this kernel does not know", Errno::E2BIG, "E2BIG")
            .says("older than an option that was asked for"),
        refused("not-permitted", "a filter of system calls", Errno::EPERM, "EPERM").says("(seccomp)"),
        refused("not-found", "the PMU is gone", Errno::ENODEV, "ENODEV").says("is not there (any more)"),
        refused("not-found", "the tracepoint is gone", Errno::EINVAL, "EINVAL")
            .with("sched:sched_switch own")
            .says("no tracepoint with the id"),
        refused("invalid", "a task, and a PMU that counts whole CPUs", Errno::EINVAL, "EINVAL")
            .with("even/event=1/ own")
            .within(PMUS)
            .says("counts whole CPUs, not tasks"),
        refused("invalid", "a place that the kernel does not probe", Errno::EINVAL, "EINVAL")
            .with("event.kprobe=schedule own")
            .within(PMUS)
            .says("allows no probe there"),
        refused(
            "invalid",
            "a name of several functions of the kernel",
            Errno::EADDRNOTAVAIL,
            "EADDRNOTAVAIL",
        )
        .with("event.kprobe=schedule own")
        .within(PMUS)
        .says("the kernel has several functions of that name"),
        refused("limit", "counters of the PMU", Errno::ENOSPC, "ENOSPC")
            .says("no free counter for `page_faults`"),
        refused("limit", "events of a group", Errno::E2BIG, "E2BIG")
            .with("page_faults own + task_clock own + cpu_clock own")
            .says("as many events as one read can bring"),
        linked("invalid", "an event that runs no programs", Errno::EINVAL, "EINVAL")
            .says("does not run this kind of program"),
        linked("limit", "64 programs of a tracepoint or function", Errno::E2BIG, "E2BIG")
            .says("takes 64 programs"),
        refused("kernel", "", Errno::EIO, "EIO").says("cannot open `page_faults`"),
    ]
}

/// Whether the kernel has probes of its own functions.
pub fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe").exists()
}

/// Whether the kernel has probes of programs and libraries.
pub fn has_uprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/uprobe").exists()
}

/// Whether the CPU has counters of its own.
fn has_counters() -> bool {
    let pmus = std::fs::read_dir("/sys/bus/event_source/devices").into_iter().flatten().flatten();
    let mut types = pmus.filter_map(|pmu| std::fs::read_to_string(pmu.path().join("type")).ok());
    types.any(|ty| ty.trim() == "4")
}

fn attachments() -> Vec<Case> {
    let all = [READS, SWITCHES, PUBLISH, SET_PERIOD, KERNEL_ID].concat();
    let on_cpu = "page_faults all cpu=0";
    let refused = |function: &'static str, text: &str| {
        let case = case("kernel", "").of(&[function]).with(on_cpu).refused(IOCTL, Of::Any, Errno::EIO);
        case.errno("EIO").says(text)
    };
    // Far more than any CPU has counters.
    let pinned = ["instructions all cpu=0 pinned"; 64].join(" + ");
    vec![
        case("stale", "it was detached")
            .of(&all)
            .with("page_faults own detached")
            .says("attachment 1 is stale"),
        case("stale", "its leader was detached")
            .of(&all)
            .with("page_faults own detached + task_clock own")
            .says("attachment 2 is stale"),
        case("stale", "no attachment of this plugin has that id").of(BY_ID).with("unknown").says("is stale"),
        case("kernel", "a pinned event lost its counter and is in error state")
            .of(READS)
            .with(&pinned)
            .needs("hardware counters", has_counters)
            .says("the event lost its counter"),
        case("kernel", "another answer of the kernel")
            .of(READS)
            .with(on_cpu)
            .refused(READ, Of::Any, Errno::EIO)
            .errno("EIO")
            .says("cannot read `page_faults`"),
        case("invalid", "nothing of it counts that CPU alone")
            .of(&["perf.attachment.snapshot-cpu"])
            .with("1 of page_faults all cpu=0")
            .says("nothing of it counts cpu 1 alone"),
        case("limit", "`host_bytes`")
            .of(&["perf.read-many"])
            .with("10000 of page_faults own")
            .host(&["--limit", "host_bytes=100000"])
            .says("`host_bytes` of the plugin is 100000"),
        refused("perf.attachment.enable", "cannot enable `page_faults`"),
        refused("perf.attachment.disable", "cannot disable `page_faults`"),
        refused("perf.attachment.reset", "cannot reset `page_faults`"),
    ]
}

fn published() -> Vec<Case> {
    let publish = |kind, reason| case(kind, reason).of(PUBLISH).with("page_faults all cpu=0");
    let has_two_cpus = || std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    vec![
        publish("invalid", "it counts a task, or children too, which programs cannot read")
            .with("page_faults own")
            .says("programs read what all tasks do"),
        publish("invalid", "a map that is no array of events")
            .with("bare of page_faults all cpu=0")
            .says("`bare` is not an array of events"),
        publish("busy", "an array whose records are read")
            .with("read of page_faults all cpu=0")
            .says("`events` is in use"),
        publish("busy", "an array that another attachment is published in")
            .with("twice of page_faults all cpu=0")
            .says("programs read another attachment in `events`"),
        publish("invalid", "a name of more than 4096 bytes")
            .with("LONG of page_faults all cpu=0")
            .says("a name of 4097 bytes"),
        publish("invalid", "a pin of another shape")
            .pinned()
            .within(&format!("{EMPTY_BPFFS}\n{OTHER_PIN}"))
            .says("has another shape"),
        publish("not-found", "no such array")
            .with("absent of page_faults all cpu=0")
            .says("has no map `absent`"),
        publish("not-found", "bpffs is not mounted")
            .pinned()
            .within(NO_BPFFS)
            .says("the BPF file system is not mounted"),
        publish("not-permitted", "CAP_BPF").by_nobody("-all,+perfmon").errno("EPERM").says("CAP_BPF"),
        publish("unsupported", "the kernel lacks something that the object needs")
            .refused(BPF, Of::First(MAP_CREATE), Errno::EOPNOTSUPP)
            .errno("EOPNOTSUPP")
            .says("this kernel was built without it"),
        publish("limit", "memory of the kernel")
            .refused(BPF, Of::First(MAP_CREATE), Errno::ENOMEM)
            .errno("ENOMEM")
            .says("cannot load the BPF object"),
        publish("kernel", "the array has no entry for the CPU")
            .with("one_event of page_faults all cpu=1")
            .needs("second CPU", has_two_cpus)
            .errno("E2BIG")
            .says("cannot let programs read `page_faults`"),
        publish("kernel", "another answer of the kernel")
            .with("page_faults all cpu=0 program=tick")
            .refused(BPF, Of::First(MAP_UPDATE_ELEM), Errno::EIO)
            .errno("EIO")
            .says("cannot let programs read `page_faults`"),
    ]
}

fn periods() -> Vec<Case> {
    let set = |kind, reason, words: &str| case(kind, reason).of(SET_PERIOD).with(words);
    vec![
        set("invalid", "0", "0 of page_faults own program=tick").says("a period is 1 or more"),
        set("invalid", "it has no program", "5 of page_faults own").says("nothing is sampled"),
        set("limit", "a clock's period below 50000 ns", "100 of task_clock own program=tick")
            .says("would run every 100 ns"),
        set(
            "limit",
            "above `kernel.perf_event_max_sample_rate`",
            "100000000 of page_faults own freq=100 program=tick",
        )
        .errno("EINVAL")
        .says("no event is sampled more often"),
        set("kernel", "", "5 of page_faults own program=tick")
            .refused(IOCTL, Of::Any, Errno::EIO)
            .errno("EIO")
            .says("cannot change the period"),
    ]
}
