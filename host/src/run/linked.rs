//! The code of a plugin on a thread of this process: loaded and linked at once, or beside what its run does first.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use ks_wit::lines::Lines;
use wasmtime::component::Component;

use super::Offer;
use crate::plugin::{Engine, Facts, Outcome, PluginError, Prepared, TrustedCode};
use crate::processes::cpu::{self, Cpus};
use crate::world::{self, Answers, State};

/// What the code of a plugin is linked with.
pub(super) struct Link {
    pub(super) engine: Engine,
    pub(super) imports: Vec<String>,
    pub(super) lines: Vec<Lines>,
    pub(super) shared_bytes: Option<usize>,
    pub(super) offer: Option<Offer>,
}

impl Link {
    /// Links a component that imports these functions.
    ///
    /// # Errors
    /// As of [`Prepared::new`].
    pub(super) fn with(
        &self,
        component: &Component,
        functions: &Arc<BTreeSet<String>>,
    ) -> Result<Prepared<State>, PluginError> {
        let mut linker =
            world::linker_for(&self.engine, Answers::Host, functions, (&self.imports, component))?;
        if let Some(offer) = self.offer {
            offer(&mut linker)
                .map_err(|error| PluginError::Component(format!("functions of this program: {error:#}")))?;
        }
        let Link { imports, lines, shared_bytes, .. } = self;
        Prepared::new(&linker, component, &Facts { imports, lines, shared_bytes: *shared_bytes })
    }

    /// Loads code whose file says that it imports these functions, and links it.
    fn load(self, code: TrustedCode, functions: &Arc<BTreeSet<String>>) -> Linking {
        let component = self.engine.loaded(&code)?;
        if self.engine.functions(&component) != **functions {
            let reason = "the types in its file name other imports than its code has";
            return Err(PluginError::Component(reason.into()));
        }
        self.with(&component, functions)
    }
}

/// The result of a thread that links code.
type Linking = Result<Prepared<State>, PluginError>;

/// A plugin whose code is linked, or is being linked by a thread.
pub(super) struct Linked {
    prepared: OnceLock<Prepared<State>>,
    thread: Mutex<Option<JoinHandle<Linking>>>,
}

impl From<Prepared<State>> for Linked {
    fn from(prepared: Prepared<State>) -> Linked {
        Linked { prepared: OnceLock::from(prepared), thread: Mutex::new(None) }
    }
}

impl Linked {
    /// Loads and links code on a thread, on another CPU than this one.
    pub(super) fn beside(link: Link, code: TrustedCode, functions: Arc<BTreeSet<String>>) -> Linked {
        let cpus = Cpus::now();
        let load = move || {
            cpus.iter().for_each(Cpus::move_away);
            link.load(code, &functions)
        };
        let thread = thread::Builder::new().name("linker".into()).spawn(load);
        cpu::let_it_move();
        Linked { prepared: OnceLock::new(), thread: Mutex::new(thread.ok()) }
    }

    /// Waits until it is linked.
    ///
    /// # Errors
    /// As of [`Prepared::new`]; [`PluginError::OtherEngine`].
    pub(super) fn wait(&self) -> Result<&Prepared<State>, PluginError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let lost =
            || PluginError::Component("the thread that links its code did not start, or has failed".into());
        let prepared = thread.take().ok_or_else(lost)?.join().map_err(|_| lost())??;
        Ok(self.prepared.get_or_init(|| prepared))
    }
}

/// Why a plugin could not run that was linked beside its run.
#[derive(Clone, Default)]
pub(super) struct Misfit(Arc<Mutex<Option<PluginError>>>);

impl Misfit {
    /// Keeps the reason. Returns the outcome of the run.
    pub(super) fn keep(&self, error: PluginError) -> Outcome {
        let outcome = Outcome::Failed(error.to_string());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        outcome
    }

    pub(super) fn take(&self) -> Option<PluginError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
