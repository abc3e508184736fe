//! An instance of a plugin: its store, its limits, and calls into it.

use std::sync::Arc;

use ks_wit::CONTRACT;
use ks_wit::lines::Lines;
use wasmtime::component::{self, Component, ComponentNamedList, InstancePre, Lift, Linker, Lower, TypedFunc};
use wasmtime::{Store, UpdateDeadline};

use super::engine::{Engine, EngineError, engine_words};
use super::file::{Plugin, PluginError};
use super::limits::{Computing, Limiter, Limits};
use super::memory::{self, SharedMemory};
use super::outcome::{self, Outcome};
use super::stop::StopHandle;

/// The state in a plugin's store.
pub trait PluginState: 'static {
    /// The limiter that decides about growth of memories and tables.
    fn limiter_mut(&mut self) -> &mut Limiter;
    /// Number of host calls so far.
    fn calls(&self) -> u64;
    /// Called regularly while the plugin computes, to check its limits.
    ///
    /// # Errors
    /// An error that ends the plugin.
    fn tick(&mut self) -> wasmtime::Result<()>;
    /// The handle that stops the run.
    fn stop(&self) -> &StopHandle;
    /// Stores the memory that pages of maps may be mapped into.
    fn set_shared(&mut self, memory: SharedMemory);
}

/// What an instance needs of a plugin file beside its code.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Names of the imported interfaces.
    pub imports: &'a [String],
    /// The lines of the script, for the reasons of traps.
    pub lines: &'a [Lines],
    /// Bytes of the memory that pages of maps may be mapped into.
    pub shared_bytes: Option<usize>,
}

impl<'a> From<&'a Plugin> for Facts<'a> {
    fn from(plugin: &'a Plugin) -> Facts<'a> {
        Facts { imports: plugin.imports(), lines: plugin.lines(), shared_bytes: plugin.shared_bytes() }
    }
}

/// A plugin with compiled code and resolved imports. Its instances are cheap.
pub struct Prepared<S: PluginState> {
    pre: InstancePre<S>,
    lines: Arc<[Lines]>,
    shared_bytes: Option<usize>,
}

impl<S: PluginState> Clone for Prepared<S> {
    fn clone(&self) -> Prepared<S> {
        Prepared { pre: self.pre.clone(), lines: self.lines.clone(), shared_bytes: self.shared_bytes }
    }
}

impl<S: PluginState> Prepared<S> {
    /// Resolves the imports of a plugin's component, and checks that it exports `run`.
    ///
    /// # Errors
    /// [`PluginError::Component`] if an import does not exist, or the component does not export `run: func() ->
    /// result<_, u8>`.
    pub fn new(
        linker: &Linker<S>,
        component: &Component,
        facts: &Facts<'_>,
    ) -> Result<Prepared<S>, PluginError> {
        let pre = linker.instantiate_pre(component).map_err(|error| match other_contract(facts.imports) {
            Some(contract) => PluginError::Contract { contract, served: CONTRACT },
            None => does_not_fit(&error),
        })?;
        if component.get_export_index(None, "run").is_none() {
            return Err(PluginError::Component(
                "the component does not export `run`, with which a plugin starts".into(),
            ));
        }
        Ok(Prepared { pre, lines: facts.lines.into(), shared_bytes: facts.shared_bytes })
    }

    /// Resolves the imports of the same plugin by another linker.
    ///
    /// # Errors
    /// [`PluginError::Component`] if an import does not exist.
    pub fn linked_with(&self, linker: &Linker<S>) -> Result<Prepared<S>, PluginError> {
        let pre = linker.instantiate_pre(self.pre.component()).map_err(|error| does_not_fit(&error))?;
        Ok(Prepared { pre, ..self.clone() })
    }

    /// Whether the plugin says what tests it has.
    pub fn lists_tests(&self) -> bool {
        self.pre.component().get_export_index(None, "list-tests").is_some()
    }

    /// Creates an instance with this state on the calling thread, and runs the component's start functions.
    ///
    /// # Errors
    /// The outcome that replaces that of a run: a trap in a start function, or a limit.
    pub fn instantiate(&self, state: S, limits: &Limits) -> Result<Instance<S>, Outcome> {
        let mut store = Store::new(self.pre.engine(), state);
        store.limiter(|state| state.limiter_mut());
        store.set_hostcall_fuel(limits.call_bytes);
        store.set_epoch_deadline(1);
        let mut computing = Computing::new(limits.compute);
        store.epoch_deadline_callback(move |mut context| {
            if context.data().stop().killed() {
                return Ok(UpdateDeadline::Interrupt);
            }
            computing.look(context.data().calls())?;
            context.data_mut().tick()?;
            Ok(UpdateDeadline::Continue(1))
        });
        // Checked after the deadline is set: a later kill advances the epoch past it.
        if store.data().stop().killed() {
            return Err(Outcome::Killed);
        }
        let (created, shared) = memory::find_shared(self.shared_bytes, || self.pre.instantiate(&mut store));
        if let Some(shared) = shared {
            store.data_mut().set_shared(shared);
        }
        match created {
            Ok(instance) => Ok(Instance { store, instance, lines: self.lines.clone() }),
            Err(error) => {
                let outcome = outcome::of_error(&error, &self.lines);
                Err(store.data_mut().limiter_mut().with_limit(outcome))
            }
        }
    }
}

/// Returns the contract that a component was built against, if this host does not serve its minor version.
fn other_contract(imports: &[String]) -> Option<String> {
    let (package, served) = CONTRACT.split_once('@')?;
    let minor = |version: &str| version.splitn(3, '.').take(2).map(str::to_owned).collect::<Vec<_>>();
    let versions = imports.iter().filter_map(|import| {
        let (name, version) = import.split_once('@')?;
        name.strip_prefix(package)?.starts_with('/').then_some(version)
    });
    let other = versions.into_iter().find(|version| minor(version) != minor(served))?;
    Some(format!("{package}@{other}"))
}

fn does_not_fit(error: &wasmtime::Error) -> PluginError {
    PluginError::Component(format!("the component does not fit this host: {}", engine_words(error)))
}

/// The result of `run` and of a test: success, or an exit code.
type Ended = Result<(), u8>;

/// Returns the exit code: 0 for success, else not 0.
fn exit_code(ended: Ended) -> i32 {
    ended.map_or_else(|code| i32::from(code.max(1)), |()| 0)
}

/// A running plugin. Dropping it releases all its resources.
pub struct Instance<S: PluginState> {
    store: Store<S>,
    instance: component::Instance,
    lines: Arc<[Lines]>,
}

impl<S: PluginState> Instance<S> {
    /// Calls `run` and returns how it ended.
    pub fn run(&mut self) -> Outcome {
        match self.func::<(), (Ended,)>("run").and_then(|run| self.call(&run, ())) {
            Ok((ended,)) => Outcome::Returned(exit_code(ended)),
            Err(outcome) => outcome,
        }
    }

    /// Calls `list-tests` and returns the names.
    ///
    /// # Errors
    /// How the plugin ended instead.
    pub fn tests(&mut self) -> Result<Vec<String>, Outcome> {
        let (names,) = self.func::<(), (Vec<String>,)>("list-tests").and_then(|list| self.call(&list, ()))?;
        Ok(names)
    }

    /// Calls `run-test` with the name of a test and returns how it ended.
    pub fn run_test(&mut self, name: &str) -> Outcome {
        let run = self.func::<(String,), (Ended,)>("run-test");
        match run.and_then(|run| self.call(&run, (name.to_owned(),))) {
            Ok((ended,)) => Outcome::Returned(exit_code(ended)),
            Err(outcome) => outcome,
        }
    }

    /// Looks up an exported function once, for many calls.
    ///
    /// # Errors
    /// [`Outcome::Failed`] if there is no function of this name and type.
    pub fn func<P, R>(&mut self, name: &str) -> Result<TypedFunc<P, R>, Outcome>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        self.instance
            .get_typed_func(&mut self.store, name)
            .map_err(|error| Outcome::Failed(format!("export `{name}`: {}", engine_words(&error))))
    }

    /// Calls an exported function.
    ///
    /// # Errors
    /// How the plugin ended, if it did not return: an instance that trapped or exited cannot be called again.
    pub fn call<P, R>(&mut self, func: &TypedFunc<P, R>, params: P) -> Result<R, Outcome>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        func.call(&mut self.store, params).map_err(|error| {
            let outcome = outcome::of_error(&error, &self.lines);
            self.store.data_mut().limiter_mut().with_limit(outcome)
        })
    }

    /// The state that host functions see.
    pub fn state(&self) -> &S {
        self.store.data()
    }

    /// Mutable access to the state that host functions see.
    pub fn state_mut(&mut self) -> &mut S {
        self.store.data_mut()
    }
}

impl Engine {
    /// Creates an empty linker for states of this type.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn linker<S: PluginState>(&self) -> Result<Linker<S>, EngineError> {
        self.inner().map(Linker::new)
    }
}
