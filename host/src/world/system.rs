//! `system`: CPUs and tasks of this machine.

use super::audit::Decision;
use super::bindings::kernelscript::host::system::Host;
use super::state::State;
use crate::{bpf, tasks};

impl Host for State {
    fn cpu_count(&mut self) -> wasmtime::Result<u32> {
        Ok(u32::try_from(bpf::possible_cpus()?)?)
    }

    fn pid_of(&mut self, name: Vec<u8>) -> wasmtime::Result<Option<i32>> {
        let pid = tasks::pid_of(&name);
        let answer = if pid.is_some() { "ok" } else { "none" };
        self.note("find", &String::from_utf8_lossy(&name), None, Decision::Allowed, Some(answer.into()))?;
        Ok(pid)
    }

    fn comm_of(&mut self, pid: i32) -> wasmtime::Result<Vec<u8>> {
        self.note_look("names", "tasks", Decision::Allowed)?;
        Ok(tasks::comm_of(pid).unwrap_or_default())
    }

    fn next_thread(&mut self, process: i32, after: i32) -> wasmtime::Result<Option<i32>> {
        self.note_look("names", "tasks", Decision::Allowed)?;
        Ok(tasks::next_thread(process, after))
    }
}
