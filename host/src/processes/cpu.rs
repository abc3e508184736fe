//! Where a new process begins: on a CPU other than its parent's, which goes on meanwhile.
//!
//! The kernel puts a copy of a process on its parent's CPU, also beside an idle one where it does not take that for
//! available, as in virtual machines. Source: kernel/sched/fair.c, `available_idle_cpu` and `sched_balance_find_dst_cpu`,
//! v6.18.

use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread itself, for the kernel.
const THIS: Pid = Pid::from_raw(0);

/// The CPUs of a process that starts another one.
pub(crate) struct OtherCpu {
    all: CpuSet,
    others: CpuSet,
}

impl OtherCpu {
    /// The CPUs other than that of this thread; none if it may run on no other.
    pub(crate) fn than_this() -> Option<OtherCpu> {
        let all = sched_getaffinity(THIS).ok()?;
        let mut others = all;
        others.unset(sched_getcpu().ok()?).ok()?;
        let mut cpus = 0..CpuSet::count();
        cpus.any(|cpu| others.is_set(cpu) == Ok(true)).then_some(OtherCpu { all, others })
    }

    /// Moves the calling process there, which may run on all of them again afterwards. It makes system calls only.
    pub(crate) fn move_there(&self) {
        if sched_setaffinity(THIS, &self.others).is_ok() {
            // It was allowed before.
            let _ = sched_setaffinity(THIS, &self.all);
        }
    }
}

/// Lets a process that this one has just started, or woken by a message, come to move to another CPU.
pub(crate) fn let_it_move() {
    thread::yield_now();
}
