//! The confinement of the naming process, before it reads anything.
//!
//! It is nobody, has no capabilities and cannot gain any (`no_new_privs`). It is killed when it exceeds its limits of
//! memory or CPU time. It can only use system calls that read and write the descriptors that it was passed,
//! allocate memory, and exit. It can open no file, create no socket, process or executable memory, and signal
//! only itself.

use std::collections::BTreeMap;

use caps::CapSet;
use nix::libc;
use nix::sys::resource::Resource;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use crate::apart;
use crate::processes::{limits, sys};

/// Limit of data memory, in bytes: debug information or symbols, and everything derived from them.
const MEMORY_BYTES: u64 = 1 << 30;

/// Limit of mapped memory, in bytes, including the program and its libraries.
const MAPPED_BYTES: u64 = MEMORY_BYTES + (512 << 20);

/// Limit of CPU time, in seconds. The host's deadlines expire earlier, unless the host is gone.
const CPU_SECONDS: u64 = 120;

/// Limit of open files.
pub(super) const MAX_FILES: u64 = 1024;

/// System calls for reading, answering and memory, and those that the standard and C libraries need to exit
/// or abort.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Confines this process to the limits and system calls above.
///
/// # Errors
/// The step that failed, in words. The process must not read anything then.
pub(super) fn enter() -> Result<(), String> {
    let failed = |what: &'static str| move |error: &dyn std::fmt::Display| format!("{what}: {error}");
    sys::close_others().map_err(|errno| failed("close_range")(&errno))?;
    apart::become_nobody();
    // After the change of user, which resets what this sets.
    sys::tie_to_parent().map_err(|errno| failed("prctl")(&errno))?;
    let limits = [
        (Resource::RLIMIT_AS, MAPPED_BYTES),
        (Resource::RLIMIT_DATA, MEMORY_BYTES),
        (Resource::RLIMIT_CPU, CPU_SECONDS),
        (Resource::RLIMIT_NOFILE, MAX_FILES + 16),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_MEMLOCK, 0),
    ];
    limits::lower(&limits).map_err(|errno| failed("setrlimit")(&errno))?;
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        caps::clear(None, set).map_err(|error| failed("capset")(&error))?;
    }
    let filter = filter().map_err(|error| failed("seccomp")(&error))?;
    apply_filter(&filter).map_err(|error| failed("seccomp")(&error))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let masked = |argument, mask: libc::c_int, value: libc::c_int| {
        let comparison = SeccompCmpOp::MaskedEq(mask as u64);
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, comparison, value as u64)
    };
    // Private memory without execute permission. Files are not mapped, since their owners may truncate them.
    let mapped = SeccompRule::new(vec![
        masked(2, libc::PROT_EXEC, 0)?,
        masked(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?,
    ])?;
    rules.insert(libc::SYS_mmap, vec![mapped]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![masked(2, libc::PROT_EXEC, 0)?])?]);
    // Only to itself: a failed allocation or a panic ends with a signal.
    let own = u64::from(std::process::id());
    let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, own)?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![to_itself])?]);
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?.try_into()
}
