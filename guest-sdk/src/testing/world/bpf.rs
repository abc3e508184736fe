//! `bpf`: programs and links. Programs can be loaded and attached, but never run.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

pub(crate) use crate::bindings::kernelscript::host::bpf::{
    ProgramDescription, ProgramInfo, ProgramKind, TestOutput, XdpMode,
};
use crate::bindings::kernelscript::host::types::Error;
use crate::error::ErrorKind;

use super::super::state::{Linked, error, if_there, missing, with};

pub(crate) fn list_programs() -> Vec<ProgramDescription> {
    let describe = |name: &String| ProgramDescription {
        name: name.clone(),
        kind: ProgramKind::Other(0),
        target: String::new(),
    };
    with(|state| state.programs.iter().map(describe).collect())
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(super) name: String,
}

impl Program {
    pub(crate) fn load(name: &str) -> Result<Program, Error> {
        with(|state| {
            state.permit(name)?;
            if state.programs.contains(name) {
                Ok(Program { name: name.to_string() })
            } else {
                Err(missing("program", name, "program(..)"))
            }
        })
    }

    pub(crate) fn info(&self) -> Result<ProgramInfo, Error> {
        let kind = ProgramKind::Other(0);
        Ok(ProgramInfo { name: self.name.clone(), kind, id: 1, instructions: 0 })
    }

    pub(crate) fn attach(&self, _cookie: u64) -> Result<Link, Error> {
        Ok(link(&self.name, ""))
    }

    pub(crate) fn attach_tracepoint(&self, tracepoint: &str, _cookie: u64) -> Result<Link, Error> {
        Ok(link(&self.name, tracepoint))
    }

    pub(crate) fn attach_raw_tracepoint(&self, tracepoint: &str, _cookie: u64) -> Result<Link, Error> {
        Ok(link(&self.name, tracepoint))
    }

    pub(crate) fn attach_kprobe(&self, function: &str, _offset: u64, _cookie: u64) -> Result<Link, Error> {
        Ok(link(&self.name, function))
    }

    pub(crate) fn attach_uprobe(
        &self,
        path: &str,
        function: &str,
        _offset: u64,
        _process: Option<i32>,
        _cookie: u64,
    ) -> Result<Link, Error> {
        Ok(link(&self.name, &format!("{path}:{function}")))
    }

    pub(crate) fn attach_xdp(&self, interface: &str, _mode: XdpMode) -> Result<Link, Error> {
        Ok(link(&self.name, interface))
    }

    pub(crate) fn attach_tc(
        &self,
        interface: &str,
        _priority: Option<u16>,
        _handle: Option<u32>,
    ) -> Result<Link, Error> {
        Ok(link(&self.name, interface))
    }

    pub(crate) fn attach_cgroup(&self, path: &str) -> Result<Link, Error> {
        Ok(link(&self.name, path))
    }

    pub(crate) fn attach_socket_filter(&self, interface: &str) -> Result<Link, Error> {
        Ok(link(&self.name, interface))
    }

    pub(crate) fn test_run(&self, _input: &TestInput) -> Result<TestOutput, Error> {
        Err(error(ErrorKind::Unsupported, "the host of a test runs no programs".to_string()))
    }

    pub(crate) fn detach_all(&self) {
        with(|state| {
            state.links.retain(|_, link| link.program != self.name);
            let own = |id: &u64| state.opened[id].program.as_ref() == Some(&self.name);
            let own: Vec<u64> = state.opened.keys().copied().filter(own).collect();
            own.into_iter().for_each(|id| state.close(id));
        });
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    id: u64,
}

fn link(program: &str, target: &str) -> Link {
    with(|state| {
        let id = state.new_id();
        let linked = Linked { program: program.to_string(), target: target.to_string() };
        state.links.insert(id, linked);
        Link { id }
    })
}

impl Link {
    pub(crate) fn register(name: &str) -> Result<Link, Error> {
        Program::load(name).map(|program| link(&program.name, ""))
    }

    pub(crate) fn detach(&self) {
        if_there(|state| drop(state.links.remove(&self.id)));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.detach();
    }
}

/// The input of a test run; nothing runs.
#[derive(Debug)]
pub(crate) struct TestInput;

impl TestInput {
    pub(crate) fn new() -> TestInput {
        TestInput
    }

    pub(crate) fn set_data(&self, _data: &[u8]) {}

    pub(crate) fn set_packet_size(&self, _bytes: u32) {}

    pub(crate) fn set_ingress_ifindex(&self, _index: u32) {}

    pub(crate) fn set_mark(&self, _mark: u32) {}

    pub(crate) fn set_repeat(&self, _times: u32) {}

    pub(crate) fn set_arguments(&self, _arguments: &[u64]) {}
}
