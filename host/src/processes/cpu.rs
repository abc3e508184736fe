//! Where a new process or thread begins: on a CPU that is free, beside its parent or after it.
//!
//! The kernel often puts it where another one runs, also beside an idle CPU where it does not take that
//! for available, as in virtual machines. Source: kernel/sched/fair.c, `available_idle_cpu` and
//! `sched_balance_find_dst_cpu`, v6.18.

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
        let mut cpus = 0..CpuSet::count();
        cpus.any(|cpu| others.is_set(cpu) == Ok(true)).then_some(Cpus { all, this, others })
    }

    /// Moves the calling process to another CPU than its parent's, which goes on meanwhile. It may run on all of them
    /// afterwards. It makes system calls only.
    pub(crate) fn move_away(&self) {
        if sched_setaffinity(THIS, &self.others).is_ok() {
            self.leave();
        }
    }

    /// Keeps this thread, and what it starts now, on this CPU, until each calls [`Cpus::leave`]: for one whose parent waits
    /// next.
    pub(crate) fn stay(&self) {
        let _ = sched_setaffinity(THIS, &self.this);
    }

    /// Lets the calling thread run on all CPUs again.
    pub(crate) fn leave(&self) {
        // It was allowed before.
        let _ = sched_setaffinity(THIS, &self.all);
    }
}

/// Lets a process that this one has just started, or woken by a message, come to move to another CPU.
pub(crate) fn let_it_move() {
    thread::yield_now();
}
