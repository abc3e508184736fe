//! The rights of a loader: to create maps and load programs, and none to attach them.

use std::path::PathBuf;

use caps::{CapSet, CapsHashSet};
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::filter::{
    CallGroup, Condition, MREMAP, MUNMAP, READ_ONLY, READ_ONLY_TEXT, Surroundings, TO_ITSELF, calls, install,
    mmap, mprotect, table_of,
};
use super::surroundings::{self, Outputs};
use super::{ConfineError, Confinement, capabilities, emptiness};
use crate::bpf::loader::Rights;
use crate::policy::{PluginObject, Policy};
use crate::processes::limits;
use crate::processes::zygote::TOKEN_PATH;

/// Memory of a loader. It has 4 MiB for what the verifier says of each program, most of which nobody touches.
const BYTES: u64 = 8 << 30;

/// Seconds of a CPU that a loader takes at most: the verifier gives up long before.
const SECONDS: u64 = 600;

/// What libbpf reads, of which every user may read all but addresses: types, names and settings of the kernel, the
/// number of CPUs, and the BPF file system for a token.
const READABLE: [&str; 8] = [
    "/sys/kernel/btf",
    "/sys/devices/system/cpu",
    "/sys/fs/bpf",
    "/proc/kallsyms",
    "/proc/config.gz",
    "/proc/version_signature",
    "/proc/sys/kernel",
    "/boot",
];

/// Commands of bpf(2): BPF_MAP_CREATE, MAP_LOOKUP_ELEM, MAP_UPDATE_ELEM, PROG_LOAD, OBJ_GET_INFO_BY_FD, BTF_LOAD,
/// BTF_GET_FD_BY_ID, MAP_FREEZE, BTF_GET_NEXT_ID, PROG_BIND_MAP, TOKEN_CREATE. Source: include/uapi/linux/bpf.h,
/// `enum bpf_cmd`, v6.18.
const TO_LOAD: [u32; 11] = [0, 1, 2, 5, 15, 18, 19, 22, 23, 35, 36];

/// BPF_LINK_CREATE. Source: as above.
const TO_REGISTER: [u32; 1] = [28];

/// The system calls of a loader. All others fail with EPERM.
const CALLS: &[CallGroup] = &[
    calls(
        &[
            (libc::SYS_recvmsg, "recvmsg"),
            (libc::SYS_recvfrom, "recvfrom"),
            (libc::SYS_read, "read"),
            (libc::SYS_pread64, "pread64"),
        ],
        "orders of ks-host; types and names of the kernel",
    ),
    calls(&[(libc::SYS_sendmsg, "sendmsg")], "answers, to ks-host")
        .with(&[&[Condition::Output { at: 0 }]], "to its socket"),
    calls(&[(libc::SYS_openat, "openat")], "types, names and settings of the kernel")
        .with(READ_ONLY, READ_ONLY_TEXT),
    calls(
        &[
            (libc::SYS_close, "close"),
            (libc::SYS_lseek, "lseek"),
            (libc::SYS_fstat, "fstat"),
            (libc::SYS_newfstatat, "newfstatat"),
            (libc::SYS_statx, "statx"),
            (libc::SYS_fstatfs, "fstatfs"),
            (libc::SYS_faccessat, "faccessat"),
            (libc::SYS_faccessat2, "faccessat2"),
            (libc::SYS_uname, "uname"),
        ],
        "the same",
    ),
    #[cfg(target_arch = "x86_64")]
    calls(&[(libc::SYS_access, "access"), (libc::SYS_stat, "stat")], "the same, by the C library (x86-64)"),
    calls(&[(libc::SYS_bpf, "bpf")], "maps, programs and types").with(
        &[&[Condition::OneOf { at: 0, numbers: &TO_LOAD }]],
        "`BPF_MAP_CREATE`, `BPF_PROG_LOAD`, `BPF_BTF_LOAD`, what they need, and no links",
    ),
    calls(&[(libc::SYS_memfd_create, "memfd_create")], "libbpf reserves descriptors for maps"),
    calls(&[(libc::SYS_dup3, "dup3")], "libbpf replaces descriptors that it reserved")
        .with(&[&[Condition::NoOutput { at: 1 }]], "not over its socket"),
    calls(&[(libc::SYS_fcntl, "fcntl")], "copies of descriptors").with(
        &[&[Condition::OneOf {
            at: 1,
            numbers: &[
                libc::F_DUPFD_CLOEXEC as u32,
                libc::F_GETFD as u32,
                libc::F_SETFD as u32,
                libc::F_GETFL as u32,
            ],
        }]],
        "`F_DUPFD_CLOEXEC`, `F_GETFD`, `F_SETFD`, `F_GETFL`",
    ),
    mmap("memory, and pages of variables"),
    mprotect("memory"),
    MUNMAP,
    MREMAP,
    calls(
        &[
            (libc::SYS_brk, "brk"),
            (libc::SYS_futex, "futex"),
            (libc::SYS_getrandom, "getrandom"),
            (libc::SYS_getpid, "getpid"),
            (libc::SYS_gettid, "gettid"),
            (libc::SYS_geteuid, "geteuid"),
            (libc::SYS_clock_gettime, "clock_gettime"),
            (libc::SYS_sched_yield, "sched_yield"),
            (libc::SYS_sigaltstack, "sigaltstack"),
            (libc::SYS_rt_sigaction, "rt_sigaction"),
            (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
            (libc::SYS_rt_sigreturn, "rt_sigreturn"),
            (libc::SYS_restart_syscall, "restart_syscall"),
            (libc::SYS_exit, "exit"),
            (libc::SYS_exit_group, "exit_group"),
        ],
        "memory, locks, faults, the end",
    ),
    calls(&[(libc::SYS_tgkill, "tgkill")], "the end by a panic").with(TO_ITSELF, "to itself"),
    calls(
        &[(libc::SYS_prlimit64, "prlimit64")],
        "the limit on locked memory, where the kernel charges BPF by it",
    ),
    // The last one, which only a loader of kernel structs has.
    calls(&[(libc::SYS_bpf, "bpf")], "registering kernel structs, if the object has some")
        .with(&[&[Condition::OneOf { at: 0, numbers: &TO_REGISTER }]], "`BPF_LINK_CREATE`"),
];

/// Returns the filter as rows of a Markdown table.
pub(super) fn table() -> String {
    table_of(CALLS)
}

/// Returns what the loader of an object keeps.
pub(crate) fn loader_rights(object: &PluginObject, is_confined: bool) -> Rights {
    let needs = Confinement::of(Some(object), &Default::default(), &Policy::nothing(), Default::default());
    let capabilities = capabilities::to_load(&needs).into_iter().map(|one| one.index()).collect();
    Rights { capabilities, is_confined, registers: !object.model().struct_ops.is_empty() }
}

/// What is left to do before anything is loaded.
#[derive(Debug)]
pub(crate) struct LoaderFilter {
    /// The process at the time when it lost its files; none if its system calls are not filtered.
    surroundings: Option<Surroundings>,
    /// How many of [`CALLS`] it has.
    calls: usize,
}

/// Drops all rights of this process but these, for good. It may still write to a file that it makes.
///
/// # Errors
/// [`ConfineError`]: nothing may be loaded then.
pub(crate) fn leave_rights_to_load(rights: &Rights) -> Result<LoaderFilter, ConfineError> {
    let kept: CapsHashSet =
        caps::all().into_iter().filter(|one| rights.capabilities.contains(&one.index())).collect();
    let permitted = caps::read(None, CapSet::Permitted)?.intersection(&kept).copied().collect();
    // A change of the user has emptied the effective set.
    caps::set(None, CapSet::Effective, &permitted)?;
    capabilities::drop_others(&permitted)?;
    prctl::set_no_new_privs()?;
    let calls = if rights.registers { CALLS.len() } else { CALLS.len() - 1 };
    let surroundings = rights.is_confined.then(|| surroundings::now(&Outputs::open_now()));
    if rights.is_confined {
        let token = std::env::var_os(TOKEN_PATH).map(PathBuf::from);
        emptiness::leave_readable(READABLE.map(PathBuf::from).into_iter().chain(token))?;
    }
    Ok(LoaderFilter { surroundings, calls })
}

impl LoaderFilter {
    /// Bounds what this process takes, and filters its system calls.
    ///
    /// # Errors
    /// [`ConfineError`]: nothing may be loaded then.
    pub(crate) fn enter(self) -> Result<(), ConfineError> {
        bound()?;
        match self.surroundings {
            Some(surroundings) => Ok(install(CALLS.iter().take(self.calls), &surroundings)?),
            None => Ok(()),
        }
    }
}

fn bound() -> Result<(), Errno> {
    // Each map and program takes one.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    limits::lower(&[
        (Resource::RLIMIT_DATA, BYTES),
        (Resource::RLIMIT_CPU, SECONDS),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NPROC, 0),
        (Resource::RLIMIT_MSGQUEUE, 0),
    ])
}
