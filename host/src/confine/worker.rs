//! The filter of a worker: it runs a plugin, and has a socket to its broker.

use nix::libc;

use super::filter::{
    CallGroup, Condition, MREMAP, MUNMAP, Surroundings, TO_ITSELF, calls, install, mmap, mprotect, table_of,
};
use super::surroundings::{self, Outputs};
use super::{ConfineError, capabilities, emptiness};

/// Source: include/uapi/linux/perf_event.h, v6.18.
const PERF_EVENT_IOC_DISABLE: u32 = 0x2401;

/// The commands of bpf(2) for elements of maps: BPF_MAP_LOOKUP_ELEM, UPDATE_ELEM, DELETE_ELEM, GET_NEXT_KEY,
/// LOOKUP_AND_DELETE_ELEM, LOOKUP_BATCH, LOOKUP_AND_DELETE_BATCH, UPDATE_BATCH, DELETE_BATCH. Source:
/// include/uapi/linux/bpf.h, `enum bpf_cmd`, v6.18.
const OF_ELEMENTS: [u32; 9] = [1, 2, 3, 4, 21, 24, 25, 26, 27];

/// The system calls of a worker. All others fail with EPERM.
const CALLS: &[CallGroup] = &[
    calls(
        &[(libc::SYS_recvmsg, "recvmsg"), (libc::SYS_recvfrom, "recvfrom")],
        "answers of the broker, and descriptors that it sends",
    ),
    calls(
        &[(libc::SYS_read, "read")],
        "counters; by its number alone, because it is what a plugin does most",
    ),
    calls(
        &[(libc::SYS_pread64, "pread64")],
        "the kernel's number of device events, which says whether CPUs have come or gone",
    ),
    calls(&[(libc::SYS_ioctl, "ioctl")], "stopping counters").with(
        &[&[Condition::OneOf { at: 1, numbers: &[PERF_EVENT_IOC_DISABLE] }]],
        "`PERF_EVENT_IOC_DISABLE`",
    ),
    calls(&[(libc::SYS_bpf, "bpf")], "operations on maps of data that the broker has passed on").with(
        &[&[Condition::OneOf { at: 0, numbers: &OF_ELEMENTS }]],
        "`BPF_MAP_*_ELEM`, `BPF_MAP_GET_NEXT_KEY` and the batches",
    ),
    calls(&[(libc::SYS_write, "write")], "calls, to the broker")
        .with(&[&[Condition::Output { at: 0 }]], "to its socket"),
    mmap("memory of the plugin, and pages of maps, ring buffers and hardware events"),
    mprotect("growing memory of the plugin"),
    MUNMAP,
    MREMAP,
    calls(&[(libc::SYS_brk, "brk")], "memory"),
    calls(
        &[
            (libc::SYS_futex, "futex"),
            (libc::SYS_sigaltstack, "sigaltstack"),
            (libc::SYS_sched_yield, "sched_yield"),
            (libc::SYS_getpid, "getpid"),
            (libc::SYS_gettid, "gettid"),
        ],
        "locks; a stack for signals; who it is",
    ),
    calls(&[(libc::SYS_exit, "exit"), (libc::SYS_exit_group, "exit_group")], "the end"),
    calls(
        &[
            (libc::SYS_rt_sigprocmask, "rt_sigprocmask"),
            (libc::SYS_rt_sigaction, "rt_sigaction"),
            (libc::SYS_rt_sigreturn, "rt_sigreturn"),
            (libc::SYS_restart_syscall, "restart_syscall"),
        ],
        "traps of the plugin, and the broker's signal",
    ),
    calls(&[(libc::SYS_prlimit64, "prlimit64")], "why there is no memory")
        .with(&[&[Condition::Null { at: 2 }]], "no new limit"),
    calls(&[(libc::SYS_tgkill, "tgkill")], "the end by a panic").with(TO_ITSELF, "to itself"),
    calls(
        &[
            (libc::SYS_clock_gettime, "clock_gettime"),
            (libc::SYS_getrandom, "getrandom"),
            (libc::SYS_close, "close"),
        ],
        "time; hash tables; what it no longer needs",
    ),
];

/// Returns the filter as rows of a Markdown table.
pub(super) fn table() -> String {
    table_of(CALLS)
}

/// What the filter of a worker refers to, which it looks up before it has no files any more.
#[derive(Debug)]
pub(crate) struct WorkerFilter(Surroundings);

impl WorkerFilter {
    /// Prepares the filter of this process.
    pub(crate) fn prepare() -> WorkerFilter {
        WorkerFilter(surroundings::now(&Outputs::open_now()))
    }

    /// Filters the system calls of the calling thread.
    ///
    /// # Errors
    /// [`ConfineError::Filter`].
    pub(crate) fn install(&self) -> Result<(), ConfineError> {
        Ok(install(CALLS.iter(), &self.0)?)
    }
}

/// Drops all capabilities of the calling thread, and takes all files from it. What is open stays.
///
/// # Errors
/// [`ConfineError`]. The thread may then have fewer privileges than before, never more.
pub(crate) fn leave_rights() -> Result<(), ConfineError> {
    capabilities::drop_others(&caps::CapsHashSet::new())?;
    emptiness::leave_nothing()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use wasmtime::{Engine, Memory, MemoryType, Store};

    use super::*;

    /// As of a program that is linked to a fixed address. A memory takes more than there is below it.
    #[test]
    fn a_plugin_gets_memory_although_the_image_lies_low() {
        let engine = Engine::default();
        let mut surroundings = surroundings::now(&Outputs::open_now());
        surroundings.image.insert(0, 0x40_0000..0x80_0000);
        let worker = thread::spawn(move || {
            WorkerFilter(surroundings).install().expect("every kernel of the tests has seccomp");
            let memory = Memory::new(Store::new(&engine, ()), MemoryType::new(1, None));
            memory.map(drop).map_err(|error| error.to_string())
        });
        assert_eq!(worker.join().expect("it does not panic"), Ok(()));
    }
}
