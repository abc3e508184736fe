//! The processes of a plugin that runs in one of its own: which are ready for the first run, and how others are started.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::bpf::loader::StartingLoader;
use crate::confine;
use crate::plugin::PluginError;
use crate::policy::PluginObject;
use crate::processes::Grandchild;
use crate::processes::zygote::Forked;
use crate::worker::{self, Worker, WorkerProgram};

/// What starts the processes of a plugin.
pub(super) struct WorkerForm {
    pub(super) program: WorkerProgram,
    pub(super) code: worker::PluginCode,
    pub(super) lists_tests: bool,
    /// The process that has shown that the code fits; the first run takes it.
    pub(super) ready: Mutex<Option<Worker>>,
    /// The process that will load its object; the first run takes it.
    pub(super) loader: Mutex<Option<Loader>>,
}

impl WorkerForm {
    /// Returns a worker that has loaded the code.
    pub(super) fn worker(&self) -> Result<Worker, PluginError> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).take();
        ready.map_or_else(|| Worker::start(&self.program, &self.code).map_err(PluginError::from), Ok)
    }

    /// Returns a process that will load an object, confined or not.
    pub(super) fn loader(&self, object: &PluginObject, confine: bool) -> io::Result<Loader> {
        let ready = self.loader.lock().unwrap_or_else(PoisonError::into_inner).take();
        ready.filter(|_| confine).map_or_else(|| Loader::start(&self.program, object, confine), Ok)
    }
}

/// A process that loads an object, and drops its other rights meanwhile.
pub(super) struct Loader {
    /// Ended when this is dropped.
    pub(super) process: Grandchild,
    pub(super) starting: StartingLoader,
}

impl Loader {
    pub(super) fn start(program: &WorkerProgram, object: &PluginObject, confine: bool) -> io::Result<Loader> {
        let Forked { process, socket } = program.start_loader()?;
        let starting = StartingLoader::of(socket, confine::loader_rights(object, confine))?;
        Ok(Loader { process, starting })
    }
}
