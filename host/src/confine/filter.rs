//! The seccomp filter for a plugin's thread.
//!
//! [`CALLS`] is the whole filter; docs/system-calls.md is made from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nix::libc;
use seccompiler::{BackendError, BpfProgram, Error, TargetArch, apply_filter};

use super::Confinement;
use super::search::{self, Action, Test};

/// A group of system calls with the same arguments and the same reason.
struct CallGroup {
    /// Numbers and names of the calls.
    calls: &'static [(i64, &'static str)],
    /// The plugins whose thread may make the calls.
    plugins: Plugins,
    /// The accepted arguments.
    arguments: Arguments,
    /// What the host makes the calls for.
    purpose: &'static str,
}

/// Calls of all plugins with any arguments.
const fn calls(calls: &'static [(i64, &'static str)], purpose: &'static str) -> CallGroup {
    CallGroup { calls, plugins: Plugins::All, arguments: Arguments::Any, purpose }
}

impl CallGroup {
    const fn only(self, plugins: Plugins) -> CallGroup {
        CallGroup { plugins, ..self }
    }

    const fn with(self, arguments: Arguments) -> CallGroup {
        CallGroup { arguments, ..self }
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
    Pins,
    /// Plugins that may observe a command.
    Command,
}

impl Plugins {
    fn include(self, confinement: Confinement) -> bool {
        match self {
            Plugins::All => true,
            Plugins::Sockets => confinement.network || confinement.packets,
            Plugins::Network => confinement.network,
            Plugins::Packets => confinement.packets,
            Plugins::Pins => confinement.pins,
            Plugins::Command => confinement.command,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Plugins::All => "all",
            Plugins::Sockets => "with network programs or socket filters",
            Plugins::Network => "with network programs",
            Plugins::Packets => "with socket filters",
            Plugins::Pins => "with pinned maps",
            Plugins::Command => "with `--exec`",
        }
    }
}

/// The accepted arguments of a call, and their description. Positions count from 0.
#[derive(Clone, Copy)]
enum Arguments {
    Any,
    /// The bits of the mask have this value.
    Bits {
        at: u8,
        mask: libc::c_int,
        value: libc::c_int,
        text: &'static str,
    },
    /// One of these numbers.
    OneOf {
        at: u8,
        numbers: &'static [u32],
        text: &'static str,
    },
    /// A null pointer.
    Null {
        at: u8,
        text: &'static str,
    },
}

impl Arguments {
    /// Returns the tests of which one must hold; none if every call is accepted.
    ///
    /// The low 32 bits of an argument suffice: the kernel ignores the upper ones of these arguments, or the
    /// bits in question are all in the lower half.
    fn tests(&self) -> Vec<Test> {
        match *self {
            Arguments::Any => Vec::new(),
            Arguments::Bits { at, mask, value, .. } => {
                vec![Test::Low { at, mask: mask.cast_unsigned(), value: value.cast_unsigned() }]
            }
            Arguments::OneOf { at, numbers, .. } => {
                numbers.iter().map(|value| Test::Low { at, mask: u32::MAX, value: *value }).collect()
            }
            Arguments::Null { at, .. } => vec![Test::Zero { at }],
        }
    }

    fn text(&self) -> &'static str {
        match *self {
            Arguments::Any => "any",
            Arguments::Bits { text, .. } | Arguments::OneOf { text, .. } | Arguments::Null { text, .. } => {
                text
            }
        }
    }
}

/// Errnos, as a filter returns them.
const EPERM: u16 = libc::EPERM as u16;
const ENOSYS: u16 = libc::ENOSYS as u16;

/// Requests of ioctl(2): operations on open events, and the test for a terminal. Source:
/// include/uapi/linux/perf_event.h, v6.18 (`PERF_EVENT_IOC_ENABLE`, `_DISABLE`, `_RESET`, `_PERIOD`, `_ID`).
const EVENT_REQUESTS: [u32; 6] = [0x2400, 0x2401, 0x2403, 0x4008_2404, 0x8008_2407, libc::TCGETS as u32];

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
        "output, audit, answers to other threads",
    ),
    calls(&[(libc::SYS_sendto, "sendto")], "output to a socket")
        .with(Arguments::Null { at: 4, text: "without an address" }),
    calls(
        &[(libc::SYS_openat, "openat")],
        "files of `/proc`, `/sys`, tracefs and the BPF file system; observed executables",
    )
    .with(Arguments::Bits {
        at: 2,
        mask: libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC,
        value: libc::O_RDONLY,
        text: "`O_RDONLY`, without `O_CREAT` and `O_TRUNC`",
    }),
    calls(
        &[
            (libc::SYS_close, "close"),
            (libc::SYS_dup, "dup"),
            (libc::SYS_dup3, "dup3"),
            (libc::SYS_fcntl, "fcntl"),
        ],
        "descriptors of events, maps and programs",
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
    calls(&[(libc::SYS_mmap, "mmap")], "memory; pages of maps, ring buffers and events")
        .with(Arguments::Bits { at: 2, mask: libc::PROT_EXEC, value: 0, text: "without `PROT_EXEC`" }),
    calls(&[(libc::SYS_mprotect, "mprotect")], "growing memory of the plugin").with(Arguments::Bits {
        at: 2,
        mask: libc::PROT_EXEC,
        value: 0,
        text: "without `PROT_EXEC`",
    }),
    calls(
        &[
            (libc::SYS_munmap, "munmap"),
            (libc::SYS_mremap, "mremap"),
            (libc::SYS_madvise, "madvise"),
            (libc::SYS_brk, "brk"),
        ],
        "memory",
    ),
    calls(&[(libc::SYS_memfd_create, "memfd_create")], "libbpf reserves descriptors for maps"),
    calls(&[(libc::SYS_bpf, "bpf")], "maps, programs, links, types"),
    calls(&[(libc::SYS_perf_event_open, "perf_event_open")], "events"),
    calls(&[(libc::SYS_ioctl, "ioctl")], "events; whether output is a terminal").with(Arguments::OneOf {
        at: 1,
        numbers: &EVENT_REQUESTS,
        text: "enable, disable, reset, period and id of an event; `TCGETS`",
    }),
    calls(&[(libc::SYS_ioctl, "ioctl")], "indices and names of interfaces").only(Plugins::Sockets).with(
        Arguments::OneOf { at: 1, numbers: &INTERFACE_REQUESTS, text: "`SIOCGIFINDEX`, `SIOCGIFNAME`" },
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
    calls(&[(libc::SYS_clone, "clone")], "threads; no processes").with(Arguments::Bits {
        at: 0,
        mask: libc::CLONE_THREAD,
        value: libc::CLONE_THREAD,
        text: "with `CLONE_THREAD`",
    }),
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
            (libc::SYS_rt_sigaction, "rt_sigaction"),
            (libc::SYS_rt_sigreturn, "rt_sigreturn"),
            (libc::SYS_restart_syscall, "restart_syscall"),
        ],
        "signals that interrupt a call",
    ),
    calls(
        &[(libc::SYS_tgkill, "tgkill"), (libc::SYS_getpid, "getpid"), (libc::SYS_exit_group, "exit_group")],
        "the end of the process, also by a panic",
    ),
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
        .with(Arguments::Null { at: 2, text: "no new limit" }),
    calls(
        &[(libc::SYS_prctl, "prctl")],
        "names of threads and of memory, for tools; capabilities, for messages",
    )
    .with(Arguments::OneOf {
        at: 0,
        numbers: &PROCESS_REQUESTS,
        text: "`PR_SET_NAME`, `PR_GET_NAME`, `PR_SET_VMA`, `PR_CAPBSET_READ`",
    }),
    calls(
        &[(libc::SYS_mkdirat, "mkdirat"), (libc::SYS_unlinkat, "unlinkat")],
        "folders and files of the BPF file system",
    )
    .only(Plugins::Pins),
    #[cfg(target_arch = "x86_64")]
    calls(&[(libc::SYS_mkdir, "mkdir"), (libc::SYS_unlink, "unlink")], "the same, by libbpf (x86-64)")
        .only(Plugins::Pins),
    calls(&[(libc::SYS_kill, "kill")], "ending the observed command").only(Plugins::Command),
    calls(&[(libc::SYS_socket, "socket")], "indices and names of interfaces")
        .only(Plugins::Sockets)
        .with(Arguments::OneOf { at: 0, numbers: &[libc::AF_UNIX as u32], text: "`AF_UNIX`" }),
    calls(&[(libc::SYS_socket, "socket")], "attaching to interfaces")
        .only(Plugins::Network)
        .with(Arguments::OneOf { at: 0, numbers: &[libc::AF_NETLINK as u32], text: "`AF_NETLINK`" }),
    calls(&[(libc::SYS_socket, "socket")], "attaching socket filters")
        .only(Plugins::Packets)
        .with(Arguments::OneOf { at: 0, numbers: &[libc::AF_PACKET as u32], text: "`AF_PACKET`" }),
    calls(
        &[
            (libc::SYS_bind, "bind"),
            (libc::SYS_setsockopt, "setsockopt"),
            (libc::SYS_getsockopt, "getsockopt"),
            (libc::SYS_getsockname, "getsockname"),
            (libc::SYS_sendto, "sendto"),
            (libc::SYS_sendmsg, "sendmsg"),
            (libc::SYS_recvfrom, "recvfrom"),
            (libc::SYS_recvmsg, "recvmsg"),
        ],
        "these sockets; none connects to another host",
    )
    .only(Plugins::Sockets),
    calls(&[(libc::SYS_flock, "flock")], "one change of an interface's queues at a time")
        .only(Plugins::Network),
];

/// Filters the system calls of the calling thread and of threads that it starts, and sets `no_new_privs` for
/// them. Calls that are not allowed fail with EPERM.
///
/// # Errors
/// Those of seccomp(2); an architecture that `seccompiler` does not support.
pub(super) fn enter(confinement: Confinement) -> Result<(), Error> {
    apply_filter(&program(confinement)?)
}

fn program(confinement: Confinement) -> Result<BpfProgram, BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    search::compile(architecture, &actions(confinement), EPERM)
}

fn actions(confinement: Confinement) -> BTreeMap<u32, Action> {
    let mut actions = BTreeMap::new();
    for group in CALLS.iter().filter(|group| group.plugins.include(confinement)) {
        for (number, _) in group.calls {
            let tests = group.arguments.tests();
            let action = if tests.is_empty() { Action::Allow } else { Action::If(tests) };
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

/// Makes a action allow what another allows, too.
fn join(known: &mut Action, more: Action) {
    match (&mut *known, more) {
        (Action::If(tests), Action::If(more)) => tests.extend(more),
        (_, more) => *known = more,
    }
}

/// Returns the filter as rows of a Markdown table: calls, plugins, arguments, purpose.
pub(super) fn table() -> String {
    let mut text = "| system calls | plugins | arguments | for |\n|---|---|---|---|\n".to_owned();
    for group in CALLS {
        let names: Vec<_> = group.calls.iter().map(|(_, name)| format!("`{name}`")).collect();
        let (plugins, arguments) = (group.plugins.text(), group.arguments.text());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {plugins} | {arguments} | {} |", names.join(" "), group.purpose);
    }
    text
}
