//! CPUs and tasks of this machine.

use alloc::vec::Vec;

use crate::sys::system;

/// The number of possible CPUs: maps with a value for each CPU have so many, and no CPU has this number or a higher one.
pub fn cpu_count() -> u32 {
    system::cpu_count()
}

/// The lowest process id whose command name is `name`; none if there is no such process. Names are compared by the 15
/// bytes that the kernel keeps.
pub fn pid_of(name: &str) -> Option<i32> {
    system::pid_of(name.as_bytes())
}

/// The command name of a process or thread, at most 15 bytes, usually text; empty if there is none of this id.
pub fn comm_of(pid: i32) -> Vec<u8> {
    system::comm_of(pid)
}
