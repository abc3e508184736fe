//! Where a new process or thread begins: on a CPU that is free, beside its parent or after it.
//!
//! The kernel often puts it where another one runs, also beside an idle CPU where it does not take that for available, as in
//! virtual machines; and a message wakes its receiver on the sender's CPU. Source: kernel/sched/fair.c,
//! `available_idle_cpu`, `sched_balance_find_dst_cpu` and `wake_affine_idle`, v6.18.

use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread itself, for the kernel.
const THIS: Pid = Pid::from_raw(0);

/// The CPUs of a thread that starts another one, or a process: more than one.
#[derive(Clone, Copy)]
pub(crate) struct Cpus {
    all: CpuSet,
    this: CpuSet,
    others: CpuSet,
}

impl Cpus {
    /// The CPUs of this thread; none if it may run on one only.
    pub(crate) fn now() -> Option<Cpus> {
        let (all, cpu) = (sched_getaffinity(THIS).ok()?, sched_getcpu().ok()?);
        let (mut this, mut others) = (CpuSet::new(), all);
        this.set(cpu).ok()?;
        others.unset(cpu).ok()?;
        (others != CpuSet::new()).then_some(Cpus { all, this, others })
    }

    /// Moves the calling process to another CPU than its parent's, which goes on meanwhile. It may run on all of them
    /// afterwards. It makes system calls only.
    pub(crate) fn move_away(&self) {
        if sched_setaffinity(THIS, &self.others).is_ok() {
            self.release();
        }
    }

    /// Lets the calling thread run on all CPUs again.
    pub(crate) fn release(&self) {
        // It was allowed before.
        let _ = sched_setaffinity(THIS, &self.all);
    }
}

/// Starts, on this CPU, a process or a thread for which this one then waits. A thread first releases the CPUs.
pub(crate) fn start_here<T>(start: impl FnOnce(Option<Cpus>) -> T) -> T {
    let cpus = Cpus::now();
    if let Some(Cpus { this, .. }) = &cpus {
        // Otherwise it begins anywhere.
        let _ = sched_setaffinity(THIS, this);
    }
    let started = start(cpus);
    cpus.iter().for_each(Cpus::release);
    started
}

/// Lets a process that this one has just started, or woken by a message, come to move to another CPU.
pub(crate) fn let_it_move() {
    thread::yield_now();
}

/// Leaves this CPU to another process, for good, if this one may run on others.
pub(crate) fn leave_to_other(cpu: u32) {
    if let (Ok(mut cpus), Ok(cpu)) = (sched_getaffinity(THIS), usize::try_from(cpu)) {
        let _ = cpus.unset(cpu).and_then(|()| sched_setaffinity(THIS, &cpus));
    }
}
