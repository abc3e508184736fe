//! The seccomp filter for a plugin's thread.
//!
//! [`CALLS`] is the whole filter; docs/system-calls.md is made from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use nix::libc;
use seccompiler::{Error, TargetArch, apply_filter};

use super::Confinement;
use super::search::{self, Action, Rule, Test};

/// A group of system calls with the same arguments and the same reason.
pub(super) struct CallGroup {
    /// Numbers and names of the calls.
    calls: &'static [(i64, &'static str)],
    /// The plugins whose thread may make the calls.
    plugins: Plugins,
    /// The accepted arguments, and their description.
    arguments: (Arguments, &'static str),
    /// What the host makes the calls for.
    purpose: &'static str,
}

/// Calls of all plugins with any arguments.
pub(super) const fn calls(calls: &'static [(i64, &'static str)], purpose: &'static str) -> CallGroup {
    CallGroup { calls, plugins: Plugins::All, arguments: (&[&[]], "any"), purpose }
}

impl CallGroup {
    const fn only(self, plugins: Plugins) -> CallGroup {
        CallGroup { plugins, ..self }
    }

    /// Accepts these arguments only.
    pub(super) const fn with(self, arguments: Arguments, text: &'static str) -> CallGroup {
        CallGroup { arguments: (arguments, text), ..self }
    }
}

/// The plugins whose thread may make a call.
#[derive(Clone, Copy)]
enum Plugins {
    All,
    /// Programs or maps of interfaces, control groups and connections, or socket filters.
    Sockets,
    /// Programs or maps of interfaces, control groups and connections.
    Network,
    /// Socket filters.
    Packets,
    /// Plugins that open events, or load programs that observe or write to buffers of events.
    Events,
}

impl Plugins {
    fn include(self, confinement: &Confinement) -> bool {
        match self {
            Plugins::All => true,
            Plugins::Sockets => confinement.network || confinement.packets,
            Plugins::Network => confinement.network,
            Plugins::Packets => confinement.packets,
            Plugins::Events => confinement.events || confinement.observing || confinement.buffers,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Plugins::All => "all",
            Plugins::Sockets => "with network programs or socket filters",
            Plugins::Network => "with network programs",
            Plugins::Packets => "with socket filters",
            Plugins::Events => "with events or observing programs",
        }
    }
}

/// The accepted arguments of a call: all conditions of one of the lists hold.
pub(super) type Arguments = &'static [&'static [Condition]];

/// A condition on an argument. Positions count from 0.
#[derive(Clone, Copy)]
pub(super) enum Condition {
    /// The bits of the mask have this value.
    Bits { at: u8, mask: libc::c_int, value: libc::c_int },
    /// One of these numbers.
    OneOf { at: u8, numbers: &'static [u32] },
    /// A null pointer.
    Null { at: u8 },
    /// The id of this process.
    OwnProcess { at: u8 },
    /// A descriptor of [`Surroundings::outputs`].
    Output { at: u8 },
    /// Any other descriptor.
    NoOutput { at: u8 },
    /// The memory from argument 0 on, as long as argument 1, contains nothing of [`Surroundings::image`].
    OutsideImage,
}

/// The facts that conditions refer to, when the filter is installed.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    /// Id of this process.
    pub(super) process: u32,
    /// Descriptors that the thread writes to: ascending, disjoint ranges of numbers, the last number included.
    pub(super) outputs: Vec<(u32, u32)>,
    /// Memory of the program, its libraries and the first stack: ascending, disjoint ranges of addresses.
    pub(super) image: Vec<Range<u64>>,
}

impl Condition {
    /// Returns the tests of which one must hold.
    ///
    /// The low 32 bits of an argument suffice, except of addresses: the kernel ignores the upper ones of these
    /// arguments, or the bits in question are all in the lower half.
    fn tests(self, surroundings: &Surroundings) -> Vec<Test> {
        let number = |at, value| Test::Low { at, mask: u32::MAX, value };
        let between = |at| move |(first, last)| Test::Between { at, first, last };
        match self {
            Condition::Bits { at, mask, value } => {
                vec![Test::Low { at, mask: mask.cast_unsigned(), value: value.cast_unsigned() }]
            }
            Condition::OneOf { at, numbers } => numbers.iter().map(|value| number(at, *value)).collect(),
            Condition::Null { at } => vec![Test::Zero { at }],
            Condition::OwnProcess { at } => vec![number(at, surroundings.process)],
            Condition::Output { at } => surroundings.outputs.iter().copied().map(between(at)).collect(),
            Condition::NoOutput { at } => surroundings.gaps().into_iter().map(between(at)).collect(),
            Condition::OutsideImage => vec![Test::Outside(surroundings.image.as_slice().into())],
        }
    }
}

impl Surroundings {
    /// Returns the numbers of all other descriptors.
    fn gaps(&self) -> Vec<(u32, u32)> {
        let mut from = Some(0);
        let mut gaps = Vec::new();
        for (first, last) in &self.outputs {
            gaps.extend(from.zip(first.checked_sub(1)).filter(|(from, to)| from <= to));
            from = last.checked_add(1);
        }
        gaps.extend(from.map(|from| (from, u32::MAX)));
        gaps
    }
}

/// Returns the rules of which one must hold.
fn rules(arguments: Arguments, surroundings: &Surroundings) -> Vec<Rule> {
    let both = |rules: Vec<Rule>, condition: &Condition| -> Vec<Rule> {
        let tests = condition.tests(surroundings);
        let with = |rule: &Rule, test: &Test| rule.iter().chain([test]).cloned().collect();
        rules.iter().flat_map(|rule| tests.iter().map(move |test| with(rule, test))).collect()
    };
    arguments.iter().flat_map(|all| all.iter().fold(vec![Rule::new()], both)).collect()
}

/// Errnos, as a filter returns them.
const EPERM: u16 = libc::EPERM as u16;
const ENOSYS: u16 = libc::ENOSYS as u16;

/// Requests of ioctl(2): operations on open events. Source: include/uapi/linux/perf_event.h, v6.18
/// (`PERF_EVENT_IOC_ENABLE`, `_DISABLE`, `_RESET`, `_PERIOD`, `_ID`).
const EVENT_REQUESTS: [u32; 5] = [0x2400, 0x2401, 0x2403, 0x4008_2404, 0x8008_2407];

/// Commands of fcntl(2). None sends signals (`F_SETOWN`, `F_SETLEASE`, `F_NOTIFY`).
const DESCRIPTOR_COMMANDS: [u32; 5] = [
    libc::F_DUPFD as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
];

/// Signals of faults. Their handlers, of the standard library and of wasmtime, restore the default action of a
/// fault that is not theirs, and would run for ever if that failed.
const FAULTS: [u32; 5] = [
    libc::SIGABRT as u32,
    libc::SIGSEGV as u32,
    libc::SIGBUS as u32,
    libc::SIGILL as u32,
    libc::SIGFPE as u32,
];

/// Flags of clone(2) that create namespaces.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// mmap(2) and mprotect(2) without `PROT_EXEC`.
pub(super) const NOT_EXECUTABLE: Condition = Condition::Bits { at: 2, mask: libc::PROT_EXEC, value: 0 };

/// mprotect(2) that leaves the image as it is.
pub(super) const fn mprotect(purpose: &'static str) -> CallGroup {
    calls(&[(libc::SYS_mprotect, "mprotect")], purpose).with(
        &[&[NOT_EXECUTABLE, Condition::OutsideImage]],
        "without `PROT_EXEC`, outside of the host's image",
    )
}

/// mmap(2) that leaves the image as it is: without `MAP_FIXED` the kernel chooses free memory, and the address may be 0.
pub(super) const fn mmap(purpose: &'static str) -> CallGroup {
    calls(&[(libc::SYS_mmap, "mmap")], purpose).with(
        &[
            &[NOT_EXECUTABLE, Condition::Bits { at: 3, mask: libc::MAP_FIXED, value: 0 }],
            &[NOT_EXECUTABLE, Condition::OutsideImage],
        ],
        "without `PROT_EXEC`; with `MAP_FIXED` outside of the host's image",
    )
}

/// munmap(2) and madvise(2) that leave the image as it is.
pub(super) const MUNMAP: CallGroup =
    calls(&[(libc::SYS_munmap, "munmap"), (libc::SYS_madvise, "madvise")], "memory")
        .with(&[&[Condition::OutsideImage]], "outside of the host's image");

/// mremap(2) that leaves the image as it is.
pub(super) const MREMAP: CallGroup = calls(&[(libc::SYS_mremap, "mremap")], "memory").with(
    &[&[
        Condition::Bits { at: 3, mask: libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP, value: 0 },
        Condition::OutsideImage,
    ]],
    "without `MREMAP_FIXED` and `MREMAP_DONTUNMAP`, outside of the host's image",
);

/// openat(2) for reading only, and its description.
pub(super) const READ_ONLY: Arguments = &[&[Condition::Bits {
    at: 2,
    mask: libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC,
    value: libc::O_RDONLY,
}]];
pub(super) const READ_ONLY_TEXT: &str = "`O_RDONLY`, without `O_CREAT` and `O_TRUNC`";

/// clone(2) for threads only, and its description.
pub(super) const THREADS: Arguments =
    &[&[Condition::Bits { at: 0, mask: libc::CLONE_THREAD | NEW_NAMESPACES, value: libc::CLONE_THREAD }]];
pub(super) const THREADS_TEXT: &str = "with `CLONE_THREAD`, without new namespaces";

/// Signals of tgkill(2) to threads of this process.
pub(super) const TO_ITSELF: Arguments = &[&[Condition::OwnProcess { at: 0 }]];

/// Requests of ioctl(2) for the index and the name of an interface.
const INTERFACE_REQUESTS: [u32; 2] = [libc::SIOCGIFINDEX as u32, libc::SIOCGIFNAME as u32];

/// Requests of prctl(2).
const PROCESS_REQUESTS: [u32; 4] = [
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_SET_VMA as u32,
    libc::PR_CAPBSET_READ as u32,
];

/// The system calls of a plugin's thread. All others fail with EPERM, except clone3, which fails with ENOSYS.
const CALLS: &[CallGroup] = &[
    calls(
        &[(libc::SYS_read, "read"), (libc::SYS_readv, "readv"), (libc::SYS_pread64, "pread64")],
        "counters, answers of other threads and processes, files of `/proc`, `/sys` and tracefs",
    ),
    calls(
        &[(libc::SYS_write, "write"), (libc::SYS_writev, "writev")],
        "output, audit, records for other processes",
    )
    .with(&[&[Condition::Output { at: 0 }]], "to outputs that were open when the plugin started"),
    calls(&[(libc::SYS_sendmsg, "sendmsg")], "descriptors of maps, to the plugin's process")
        .with(&[&[Condition::Output { at: 0 }]], "to outputs that were open when the plugin started"),
    calls(
        &[(libc::SYS_recvmsg, "recvmsg"), (libc::SYS_recvfrom, "recvfrom")],
        "maps and programs of the process that loads them",
    )
    .with(&[&[Condition::Output { at: 0 }]], "from outputs that were open when the plugin started"),
    calls(&[(libc::SYS_sendto, "sendto")], "output to a socket").with(
        &[&[Condition::Output { at: 0 }, Condition::Null { at: 4 }]],
        "to outputs that were open when the plugin started, without an address",
    ),
    calls(&[(libc::SYS_openat, "openat")], "files of `/proc`, `/sys` and the like that everybody may read")
        .with(READ_ONLY, READ_ONLY_TEXT),
    calls(&[(libc::SYS_close, "close"), (libc::SYS_dup, "dup")], "descriptors of events, maps and programs"),
    calls(&[(libc::SYS_dup3, "dup3")], "libbpf replaces descriptors that it reserved")
        .with(&[&[Condition::NoOutput { at: 1 }]], "over no output that was open when the plugin started"),
    calls(&[(libc::SYS_fcntl, "fcntl")], "copies and flags of descriptors").with(
        &[&[Condition::OneOf { at: 1, numbers: &DESCRIPTOR_COMMANDS }]],
        "`F_DUPFD`, `F_DUPFD_CLOEXEC`, `F_GETFD`, `F_SETFD`, `F_GETFL`",
    ),
    calls(
        &[
            (libc::SYS_lseek, "lseek"),
            (libc::SYS_statx, "statx"),
            (libc::SYS_fstat, "fstat"),
            (libc::SYS_newfstatat, "newfstatat"),
            (libc::SYS_fstatfs, "fstatfs"),
            (libc::SYS_statfs, "statfs"),
            (libc::SYS_faccessat, "faccessat"),
            (libc::SYS_faccessat2, "faccessat2"),
            (libc::SYS_readlinkat, "readlinkat"),
            (libc::SYS_getdents64, "getdents64"),
            (libc::SYS_getcwd, "getcwd"),
        ],
        "what a path is, and whether it is there: observed executables, threads of a process, mounts of tracefs \
         and of the BPF file system",
    ),
    #[cfg(target_arch = "x86_64")]
    calls(
        &[(libc::SYS_stat, "stat"), (libc::SYS_access, "access"), (libc::SYS_readlink, "readlink")],
        "the same, by the C library (x86-64)",
    ),
    mmap("memory; pages of maps, ring buffers and events"),
    mprotect("growing memory of the plugin"),
    MUNMAP,
    MREMAP,
    calls(&[(libc::SYS_brk, "brk")], "memory"),
    calls(&[(libc::SYS_memfd_create, "memfd_create")], "libbpf reserves descriptors for maps"),
    calls(&[(libc::SYS_bpf, "bpf")], "maps, programs, links, types"),
    calls(&[(libc::SYS_perf_event_open, "perf_event_open")], "events").only(Plugins::Events),
    calls(&[(libc::SYS_ioctl, "ioctl")], "events").only(Plugins::Events).with(
        &[&[Condition::OneOf { at: 1, numbers: &EVENT_REQUESTS }]],
        "enable, disable, reset, period and id of an event",
    ),
    calls(&[(libc::SYS_ioctl, "ioctl")], "whether output is a terminal")
        .with(&[&[Condition::OneOf { at: 1, numbers: &[libc::TCGETS as u32] }]], "`TCGETS`"),
    calls(&[(libc::SYS_ioctl, "ioctl")], "indices and names of interfaces").only(Plugins::Sockets).with(
        &[&[Condition::OneOf { at: 1, numbers: &INTERFACE_REQUESTS }]],
        "`SIOCGIFINDEX`, `SIOCGIFNAME`",
    ),
    calls(
        &[
            (libc::SYS_ppoll, "ppoll"),
            (libc::SYS_epoll_create1, "epoll_create1"),
            (libc::SYS_epoll_ctl, "epoll_ctl"),
            (libc::SYS_epoll_pwait, "epoll_pwait"),
            (libc::SYS_eventfd2, "eventfd2"),
        ],
        "waiting for ring buffers, samples and the end",
    ),
    #[cfg(target_arch = "x86_64")]
    calls(
        &[(libc::SYS_poll, "poll"), (libc::SYS_epoll_wait, "epoll_wait")],
        "the same, by libraries (x86-64)",
    ),
    calls(&[(libc::SYS_clone, "clone")], "threads; no processes").with(THREADS, THREADS_TEXT),
    calls(
        &[
            (libc::SYS_futex, "futex"),
            (libc::SYS_rseq, "rseq"),
            (libc::SYS_set_robust_list, "set_robust_list"),
            (libc::SYS_sigaltstack, "sigaltstack"),
            (libc::SYS_membarrier, "membarrier"),
            (libc::SYS_sched_yield, "sched_yield"),
            (libc::SYS_sched_getaffinity, "sched_getaffinity"),
            (libc::SYS_gettid, "gettid"),
            (libc::SYS_exit, "exit"),
        ],
        "threads and locks",
    ),
    calls(
        &[
            (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
            (libc::SYS_rt_sigreturn, "rt_sigreturn"),
            (libc::SYS_restart_syscall, "restart_syscall"),
        ],
        "signals that interrupt a call",
    ),
    calls(&[(libc::SYS_rt_sigaction, "rt_sigaction")], "the end of the process by a fault").with(
        &[&[Condition::OneOf { at: 0, numbers: &FAULTS }], &[Condition::Null { at: 1 }]],
        "`SIGABRT`, `SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`; no new action of others",
    ),
    calls(
        &[(libc::SYS_getpid, "getpid"), (libc::SYS_exit_group, "exit_group")],
        "the end of the process, also by a panic",
    ),
    calls(&[(libc::SYS_tgkill, "tgkill")], "the end of the process by a panic")
        .with(TO_ITSELF, "threads of the host"),
    calls(
        &[
            (libc::SYS_clock_gettime, "clock_gettime"),
            (libc::SYS_clock_nanosleep, "clock_nanosleep"),
            (libc::SYS_nanosleep, "nanosleep"),
            (libc::SYS_gettimeofday, "gettimeofday"),
        ],
        "time",
    ),
    #[cfg(target_arch = "x86_64")]
    calls(&[(libc::SYS_time, "time")], "the same, by the C library (x86-64)"),
    calls(
        &[
            (libc::SYS_getrandom, "getrandom"),
            (libc::SYS_getcpu, "getcpu"),
            (libc::SYS_getuid, "getuid"),
            (libc::SYS_geteuid, "geteuid"),
            (libc::SYS_uname, "uname"),
            (libc::SYS_sysinfo, "sysinfo"),
        ],
        "hash tables; what the machine is, for messages and libbpf",
    ),
    calls(&[(libc::SYS_prlimit64, "prlimit64")], "limits are read, never set")
        .with(&[&[Condition::Null { at: 2 }]], "no new limit"),
    calls(
        &[(libc::SYS_prctl, "prctl")],
        "names of threads and of memory, for tools; capabilities, for messages",
    )
    .with(
        &[&[Condition::OneOf { at: 0, numbers: &PROCESS_REQUESTS }]],
        "`PR_SET_NAME`, `PR_GET_NAME`, `PR_SET_VMA`, `PR_CAPBSET_READ`",
    ),
    calls(&[(libc::SYS_socket, "socket")], "indices and names of interfaces; attaching to them")
        .only(Plugins::Sockets)
        .with(
            &[&[
                Condition::OneOf { at: 0, numbers: &[libc::AF_NETLINK as u32] },
                Condition::OneOf { at: 2, numbers: &[libc::NETLINK_ROUTE as u32] },
            ]],
            "`AF_NETLINK`, `NETLINK_ROUTE`",
        ),
    calls(&[(libc::SYS_socket, "socket")], "attaching socket filters").only(Plugins::Packets).with(
        &[&[
            Condition::OneOf { at: 0, numbers: &[libc::AF_PACKET as u32] },
            Condition::OneOf { at: 2, numbers: &[0] },
        ]],
        "`AF_PACKET`, of no protocol",
    ),
    calls(
        &[
            (libc::SYS_bind, "bind"),
            (libc::SYS_setsockopt, "setsockopt"),
            (libc::SYS_getsockopt, "getsockopt"),
            (libc::SYS_getsockname, "getsockname"),
        ],
        "these sockets; none connects to another host",
    )
    .only(Plugins::Sockets),
    calls(
        &[(libc::SYS_recvfrom, "recvfrom"), (libc::SYS_recvmsg, "recvmsg")],
        "what the kernel answers about interfaces",
    )
    .only(Plugins::Network),
    calls(&[(libc::SYS_sendto, "sendto")], "attaching to interfaces")
        .only(Plugins::Network)
        .with(&[&[Condition::Null { at: 4 }]], "without an address"),
    calls(&[(libc::SYS_flock, "flock")], "one change of an interface's queues at a time")
        .only(Plugins::Network),
];

/// Filters the system calls of the calling thread and of threads that it starts, and sets `no_new_privs` for
/// them. Calls that are not allowed fail with EPERM.
///
/// # Errors
/// Those of seccomp(2); an architecture that `seccompiler` does not support.
pub(super) fn enter(confinement: &Confinement, surroundings: &Surroundings) -> Result<(), Error> {
    install(CALLS.iter().filter(|group| group.plugins.include(confinement)), surroundings)
}

/// Filters the system calls of the calling thread and of threads that it starts by these groups, as [`enter`].
///
/// # Errors
/// As [`enter`].
pub(super) fn install<'groups>(
    groups: impl Iterator<Item = &'groups CallGroup>,
    surroundings: &Surroundings,
) -> Result<(), Error> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    apply_filter(&search::compile(architecture, &actions(groups, surroundings), EPERM)?)
}

fn actions<'groups>(
    groups: impl Iterator<Item = &'groups CallGroup>,
    surroundings: &Surroundings,
) -> BTreeMap<u32, Action> {
    let mut actions = BTreeMap::new();
    for group in groups {
        for (number, _) in group.calls {
            let rules = rules(group.arguments.0, surroundings);
            let is_any = rules.iter().any(Vec::is_empty);
            let action = if is_any { Action::Allow } else { Action::If(rules) };
            // No call has a negative number.
            let known = actions.entry(number.unsigned_abs() as u32).or_insert(Action::If(Vec::new()));
            join(known, action);
        }
    }
    // The C library treats ENOSYS as a kernel without clone3 and falls back to clone, whose flags are in a
    // register, where a filter can check them.
    actions.insert(libc::SYS_clone3 as u32, Action::Fail(ENOSYS));
    actions
}

/// Makes an action allow what another allows, too.
fn join(known: &mut Action, more: Action) {
    match (&mut *known, more) {
        (Action::If(rules), Action::If(more)) => rules.extend(more),
        (_, more) => *known = more,
    }
}

/// Returns the filter as rows of a Markdown table: calls, plugins, arguments, purpose.
pub(super) fn table() -> String {
    table_of(CALLS)
}

/// As [`table`], for other groups.
pub(super) fn table_of(groups: &[CallGroup]) -> String {
    let mut text = "| system calls | plugins | arguments | for |\n|---|---|---|---|\n".to_owned();
    for group in groups {
        let names: Vec<_> = group.calls.iter().map(|(_, name)| format!("`{name}`")).collect();
        let (plugins, (_, arguments)) = (group.plugins.text(), group.arguments);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {plugins} | {arguments} | {} |", names.join(" "), group.purpose);
    }
    text
}
