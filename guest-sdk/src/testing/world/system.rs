//! `system`: the CPUs and processes of the test.

use std::vec::Vec;

use super::super::state::with;

pub(crate) fn cpu_count() -> u32 {
    with(|state| state.cpus)
}

pub(crate) fn pid_of(name: &[u8]) -> Option<i32> {
    with(|state| state.processes.iter().find(|(_, command)| command.as_bytes() == name).map(|(pid, _)| *pid))
}

pub(crate) fn comm_of(pid: i32) -> Vec<u8> {
    with(|state| state.processes.get(&pid).map(|command| command.as_bytes().to_vec()).unwrap_or_default())
}

/// Processes of a test have one thread.
pub(crate) fn next_thread(process: i32, after: i32) -> Option<i32> {
    with(|state| (state.processes.contains_key(&process) && after < process).then_some(process))
}
