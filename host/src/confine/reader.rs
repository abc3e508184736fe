//! The filter of processes without rights, which read untrusted input for the host ([`crate::apart`]).

use super::filter::{
    CallGroup, Condition, NOT_EXECUTABLE, READ_ONLY, READ_ONLY_TEXT, THREADS, THREADS_TEXT, TO_ITSELF, calls,
    install,
};
use super::surroundings::{self, Outputs};
use super::{ConfineError, capabilities};
use nix::libc;

/// What a process without rights opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderFiles {
    /// Nothing: its input is all that it reads.
    Nothing,
    /// Files that everybody may read.
    OfEverybody,
}

/// Reading, memory, threads, and the end; one answer to the standard output.
const CALLS: &[CallGroup] = &[
    calls(&[(libc::SYS_read, "read"), (libc::SYS_pread64, "pread64"), (libc::SYS_close, "close")], "input"),
    calls(&[(libc::SYS_write, "write")], "the answer").with(&[&[Condition::Output { at: 0 }]], "to outputs"),
    calls(&[(libc::SYS_mmap, "mmap")], "memory").with(
        &[&[
            NOT_EXECUTABLE,
            Condition::Bits { at: 3, mask: libc::MAP_ANONYMOUS, value: libc::MAP_ANONYMOUS },
        ]],
        "without `PROT_EXEC`, of no file",
    ),
    calls(&[(libc::SYS_mprotect, "mprotect")], "memory").with(&[&[NOT_EXECUTABLE]], "without `PROT_EXEC`"),
    calls(
        &[
            (libc::SYS_munmap, "munmap"),
            (libc::SYS_mremap, "mremap"),
            (libc::SYS_madvise, "madvise"),
            (libc::SYS_brk, "brk"),
        ],
        "memory",
    ),
    calls(&[(libc::SYS_clone, "clone")], "threads; no processes").with(THREADS, THREADS_TEXT),
    calls(
        &[
            (libc::SYS_futex, "futex"),
            (libc::SYS_rseq, "rseq"),
            (libc::SYS_set_robust_list, "set_robust_list"),
            (libc::SYS_sigaltstack, "sigaltstack"),
            (libc::SYS_sched_yield, "sched_yield"),
            (libc::SYS_sched_getaffinity, "sched_getaffinity"),
            (libc::SYS_getpid, "getpid"),
            (libc::SYS_gettid, "gettid"),
            (libc::SYS_exit, "exit"),
            (libc::SYS_exit_group, "exit_group"),
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
        "signals of faults",
    ),
    calls(&[(libc::SYS_tgkill, "tgkill")], "the end by a panic").with(TO_ITSELF, "threads of the process"),
    calls(
        &[
            (libc::SYS_clock_gettime, "clock_gettime"),
            (libc::SYS_clock_nanosleep, "clock_nanosleep"),
            (libc::SYS_nanosleep, "nanosleep"),
            (libc::SYS_getrandom, "getrandom"),
            (libc::SYS_uname, "uname"),
        ],
        "time; hash tables; what the machine is",
    ),
    calls(&[(libc::SYS_prlimit64, "prlimit64")], "sizes of stacks")
        .with(&[&[Condition::Null { at: 2 }]], "no new limit"),
    calls(&[(libc::SYS_prctl, "prctl")], "names of threads and of memory").with(
        &[&[Condition::OneOf { at: 0, numbers: &[libc::PR_SET_NAME as u32, libc::PR_SET_VMA as u32] }]],
        "`PR_SET_NAME`, `PR_SET_VMA`",
    ),
];

/// Opening files.
const FILES: &[CallGroup] = &[
    calls(&[(libc::SYS_openat, "openat")], "files").with(READ_ONLY, READ_ONLY_TEXT),
    calls(
        &[
            (libc::SYS_lseek, "lseek"),
            (libc::SYS_statx, "statx"),
            (libc::SYS_fstat, "fstat"),
            (libc::SYS_newfstatat, "newfstatat"),
            (libc::SYS_fstatfs, "fstatfs"),
            (libc::SYS_readlinkat, "readlinkat"),
        ],
        "what a file is",
    ),
    #[cfg(target_arch = "x86_64")]
    calls(
        &[(libc::SYS_stat, "stat"), (libc::SYS_readlink, "readlink")],
        "the same, by the C library (x86-64)",
    ),
];

/// Drops all capabilities of the calling thread, and filters its system calls and those of threads that it
/// starts.
///
/// # Errors
/// [`ConfineError`]. The thread may then have fewer privileges than before, never more.
pub(crate) fn enter_reader(files: ReaderFiles) -> Result<(), ConfineError> {
    let surroundings = surroundings::now(&Outputs::open_now());
    capabilities::drop_others(&caps::CapsHashSet::new())?;
    let files = match files {
        ReaderFiles::Nothing => &[],
        ReaderFiles::OfEverybody => FILES,
    };
    install(CALLS.iter().chain(files), &surroundings)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read as _};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn as_reader<R: Send + 'static>(files: ReaderFiles, act: impl FnOnce() -> R + Send + 'static) -> R {
        let reader = thread::spawn(move || {
            enter_reader(files).expect("every kernel of the tests has seccomp");
            act()
        });
        reader.join().expect("the act does not panic")
    }

    #[test]
    fn a_reader_has_memory_and_threads_and_its_input() {
        let (mut input, mut from) = std::io::pipe().expect("a pipe");
        std::io::Write::write_all(&mut from, b"input").expect("it is open");
        as_reader(ReaderFiles::Nothing, move || {
            let mut bytes = [0; 5];
            input.read_exact(&mut bytes).expect("its input was opened before");
            let copies = thread::spawn(move || vec![bytes; 1 << 20].len()).join().expect("a thread");
            assert_eq!((&bytes, copies), (b"input", 1 << 20));
            let refused = [
                File::open("/proc/version").map(drop),
                File::open("/proc/self/mem").map(drop),
                UnixStream::pair().map(drop),
                Command::new("true").spawn().map(drop),
                memfd_create(c"memory", MFdFlags::MFD_CLOEXEC).map(drop).map_err(Into::into),
            ];
            for refused in refused {
                assert_eq!(refused.expect_err("not its input").kind(), ErrorKind::PermissionDenied);
            }
        });
    }

    #[test]
    fn a_reader_of_files_writes_none() {
        as_reader(ReaderFiles::OfEverybody, || {
            assert!(File::open("/proc/version").is_ok());
            for refused in [File::create("/dev/null").map(drop), UnixStream::pair().map(drop)] {
                assert_eq!(refused.expect_err("not to read").kind(), ErrorKind::PermissionDenied);
            }
        });
    }
}
