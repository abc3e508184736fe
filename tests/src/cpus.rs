//! CPUs on which the threads of tests run.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the CPUs that this thread may use.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).expect("a thread has its CPUs");
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Lets this thread, and what it starts, run on one CPU only.
pub fn stay_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a small number");
    sched_setaffinity(Pid::from_raw(0), &set).expect("it may run there");
}
