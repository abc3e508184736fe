//! `system`: CPUs and tasks of this machine.

use super::bindings::kernelscript::host::system::Host;
use super::state::State;
use crate::{bpf, tasks};

impl Host for State {
    fn cpu_count(&mut self) -> wasmtime::Result<u32> {
        Ok(u32::try_from(bpf::possible_cpus()?)?)
    }

    fn pid_of(&mut self, name: Vec<u8>) -> wasmtime::Result<Option<i32>> {
        Ok(tasks::pid_of(&name))
    }

    fn comm_of(&mut self, pid: i32) -> wasmtime::Result<Vec<u8>> {
        Ok(tasks::comm_of(pid).unwrap_or_default())
    }
}
