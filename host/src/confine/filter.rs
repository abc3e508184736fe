//! The seccomp filter for a plugin's thread.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use super::Confinement;

/// Calls that the host makes for any plugin: reading files, mapping memory, waiting, printing, and querying
/// BPF and perf.
const ANY: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getrandom,
    libc::SYS_getcpu,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // A panic ends the process by abort.
    libc::SYS_tgkill,
    // Never reaches the kernel: the first of the two filters answers it.
    libc::SYS_clone3,
];

/// Equivalents that exist only on older architectures.
#[cfg(target_arch = "x86_64")]
const ANY_OLD: &[i64] = &[
    libc::SYS_stat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ANY_OLD: &[i64] = &[];

/// Calls for attaching to interfaces: netlink, its lock, and packet sockets. Connections are not possible.
const SOCKETS: &[i64] = &[
    libc::SYS_flock,
    libc::SYS_bind,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
];

/// Requests of ioctl(2): operations on open events, and the test for a terminal. Source:
/// include/uapi/linux/perf_event.h, v6.18 (`PERF_EVENT_IOC_ENABLE`, `_DISABLE`, `_RESET`, `_ID`).
const REQUESTS: [u64; 5] = [0x2400, 0x2401, 0x2403, 0x8008_2407, libc::TCGETS];

/// Requests of ioctl(2) for the index and the name of an interface.
const INTERFACE_REQUESTS: [u64; 2] = [libc::SIOCGIFINDEX, libc::SIOCGIFNAME];

/// Filters the system calls of the calling thread and of threads that it starts, and sets `no_new_privs` for
/// them. Calls that are not allowed fail with EPERM.
///
/// # Errors
/// Those of seccomp(2); an architecture that `seccompiler` does not support.
pub(super) fn enter(confinement: Confinement) -> Result<(), Error> {
    // The C library treats ENOSYS as a kernel without clone3 and falls back to clone. A filter can check
    // clone's flags, which are in a register.
    let clone3 = [(libc::SYS_clone3, Vec::new())].into();
    apply_filter(&program(clone3, errno(libc::ENOSYS), SeccompAction::Allow)?)?;
    apply_filter(&program(allowed(confinement)?, SeccompAction::Allow, errno(libc::EPERM))?)
}

/// Builds a filter with one action for calls that match these rules, and another for all other calls.
fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    matching: SeccompAction,
    other: SeccompAction,
) -> Result<BpfProgram, Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(BpfProgram::try_from(SeccompFilter::new(rules, other, matching, arch)?)?)
}

fn errno(number: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn allowed(confinement: Confinement) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut calls: Vec<i64> = [ANY, ANY_OLD].concat();
    if confinement.network {
        calls.extend(SOCKETS);
    }
    if confinement.pins {
        calls.extend([libc::SYS_mkdirat, libc::SYS_unlinkat]);
        #[cfg(target_arch = "x86_64")]
        calls.extend([libc::SYS_mkdir, libc::SYS_unlink]);
    }
    if confinement.command {
        calls.push(libc::SYS_kill);
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.into_iter().map(|call| (call, Vec::new())).collect();
    // No executable memory: plugins are compiled before.
    let not_executable = rule(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0)?;
    rules.insert(libc::SYS_mmap, vec![not_executable.clone()]);
    rules.insert(libc::SYS_mprotect, vec![not_executable]);
    // Files are opened for reading only, without O_CREAT and O_TRUNC.
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    rules.insert(libc::SYS_openat, vec![rule(2, SeccompCmpOp::MaskedEq(writes), libc::O_RDONLY as u64)?]);
    // Threads, no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    // Limits are read, never set: the new limit must be a null pointer.
    let no_new_limit =
        SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0).map(|null| vec![null])?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(no_new_limit)?]);
    let interfaces = INTERFACE_REQUESTS.iter().filter(|_| confinement.network);
    let requests = REQUESTS.iter().chain(interfaces).map(|request| rule(1, SeccompCmpOp::Eq, *request));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    // Names of threads and memory mappings, and queries of the bounding set.
    let names = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, libc::PR_CAPBSET_READ];
    let names: Result<_, _> = names.iter().map(|name| rule(0, SeccompCmpOp::Eq, *name as u64)).collect();
    rules.insert(libc::SYS_prctl, names?);
    if confinement.network {
        // Interface names, messages to the network stack, packets; no connections to other hosts.
        let families = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_PACKET];
        let families: Result<_, _> =
            families.iter().map(|family| rule(0, SeccompCmpOp::Eq, *family as u64)).collect();
        rules.insert(libc::SYS_socket, families?);
    }
    Ok(rules)
}

/// Builds a rule that compares the low 32 bits of an argument. They suffice: the kernel ignores the upper
/// bits of these arguments, or the compared bits are all in the lower half.
fn rule(argument: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)?])
}
