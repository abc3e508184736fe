//! CPUs and tasks of this machine.

use alloc::vec::Vec;

use crate::sys::system;

/// Returns the number of possible CPUs: per-CPU maps have this many values, and every CPU number is below it.
pub fn cpu_count() -> u32 {
    system::cpu_count()
}

/// Returns the lowest process id whose command name is `name`; none if there is no such process. Names are
/// compared by the 15 bytes that the kernel keeps.
pub fn pid_of(name: &str) -> Option<i32> {
    system::pid_of(name.as_bytes())
}

/// Returns the command name of a process or thread, at most 15 bytes, usually text; empty if no task has this
/// id.
pub fn comm_of(pid: i32) -> Vec<u8> {
    system::comm_of(pid)
}

/// Returns the ids of the threads of a process, in ascending order; none if there is no such process.
pub fn threads_of(process: i32) -> impl Iterator<Item = i32> {
    core::iter::successors(system::next_thread(process, 0), move |last| system::next_thread(process, *last))
}
