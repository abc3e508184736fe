//! From a plugin to its outcome.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use ks_wit::manifest::Manifest;
use ks_wit::section::BpfRecord;
use wasmtime::component::Linker;

use crate::bpf::{self, BpfError, Object, ObjectShape};
use crate::command::Command;
use crate::perf::Catalog;
use crate::plugin::{
    self, Cache, CodeOrigin, Engine, EngineError, GRACE, Instance, Limits, Outcome, Plugin, PluginError,
    Prepared, StopHandle, Watch,
};
use crate::policy::{self, Limit, Need, Policy};
use crate::world::{self, SettingError, Settings, Setup, StackMap, StackRequest, State};

/// The engine and the world; one per process.
pub struct Host {
    engine: Engine,
    linker: Linker<State>,
    cache: Option<Cache>,
}

/// How a plugin is run.
pub struct RunOptions {
    /// The plugin's name in messages.
    pub name: String,
    /// The plugin's words.
    pub words: Vec<String>,
    /// What was set of its config blocks.
    pub settings: Settings,
    /// Where `print` writes.
    pub stdout: Box<dyn Write + Send>,
    /// Where warnings go.
    pub stderr: Box<dyn Write + Send>,
    /// How to stop it.
    pub stop: StopHandle,
    /// After this time it is asked to stop, and the outcome is [`Outcome::TimedOut`].
    pub timeout: Option<Duration>,
    /// How long it may go on after it was asked to stop.
    pub grace: Duration,
    /// What it may do.
    pub policy: Policy,
    /// What it may take of the host's memory.
    pub limits: Limits,
    /// Where events are looked up: this machine, and vendors' tables.
    pub catalog: Catalog,
    /// A command to observe, program and arguments; empty: none. It runs when the plugin waits for the first time.
    pub exec: Vec<OsString>,
    /// Whether a plugin stays when it is done and returned 0, but has something registered and never waited: until it is
    /// asked to stop.
    pub linger: bool,
    /// Who wants to see the stacks that the plugin counted, when it has ended and all that it attached is detached.
    pub stacks: Option<StackRequest>,
    /// Whether variables and maps of the BPF object are mapped into the plugin's memory; else they are read and written by
    /// host calls, which mean the same.
    pub share_memory: bool,
}

impl RunOptions {
    /// No words, no settings, the process's own output, no time limit; it may observe.
    pub fn new(name: impl Into<String>) -> RunOptions {
        RunOptions {
            name: name.into(),
            words: Vec::new(),
            settings: Settings::default(),
            stdout: Box::new(io::stdout()),
            stderr: Box::new(io::stderr()),
            stop: StopHandle::new(),
            timeout: None,
            grace: GRACE,
            policy: Policy::observing(),
            limits: Limits::default(),
            catalog: Catalog::default(),
            exec: Vec::new(),
            linger: true,
            stacks: None,
            share_memory: true,
        }
    }
}

impl Host {
    /// Starts the engine.
    ///
    /// # Errors
    /// If this machine lacks what generated code needs.
    pub fn new() -> Result<Host, EngineError> {
        let engine = Engine::new()?;
        let linker = world::linker(&engine)?;
        Ok(Host { engine, linker, cache: None })
    }

    /// Keeps compiled code in this cache.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Host {
        Host { cache: Some(cache), ..self }
    }

    /// Compiles a plugin, or takes its code from the cache, and finds its imports.
    ///
    /// # Errors
    /// If it is not valid, or is not a plugin for this host.
    pub fn prepare(&self, plugin: &Plugin) -> Result<PreparedPlugin, PluginError> {
        let object = plugin.object_for_host()?.cloned();
        let (component, code) = self.engine.code(plugin, self.cache.as_ref())?;
        let prepared = Prepared::new(&self.linker, &component, plugin)?;
        Ok(PreparedPlugin {
            engine: self.engine.clone(),
            prepared,
            object,
            code,
            manifests: plugin.manifests().to_vec(),
            imports: plugin.imports().into(),
        })
    }
}

/// A plugin that can be run, any number of times.
pub struct PreparedPlugin {
    engine: Engine,
    prepared: Prepared<State>,
    object: Option<BpfRecord>,
    code: CodeOrigin,
    manifests: Vec<Manifest>,
    imports: Arc<[String]>,
}

impl PreparedPlugin {
    /// Where its code came from.
    pub fn code(&self) -> &CodeOrigin {
        &self.code
    }

    /// Reads words such as `limits.burst=7` against the plugin's config blocks.
    ///
    /// # Errors
    /// The first word that names nothing in them, or whose value does not fit.
    pub fn settings(&self, words: &[String]) -> Result<Settings, SettingError> {
        Settings::read(words, &self.manifests)
    }

    /// The maps in which the plugin counts stacks.
    pub fn stack_maps(&self) -> Vec<StackMap> {
        StackMap::all(&self.manifests)
    }

    /// Runs the plugin once on a thread of its own, and waits for its end. What it attached is gone then.
    pub fn run(&self, options: RunOptions) -> Outcome {
        let linger = options.linger;
        self.call(options, move |instance| match instance.run() {
            Outcome::Returned(0) if linger => {
                instance.state_mut().linger().map_or_else(Outcome::Failed, |()| Outcome::Returned(0))
            }
            outcome => outcome,
        })
    }

    /// Runs one test of the plugin, as [`PreparedPlugin::run`] runs it all: in an instance of its own, with maps and
    /// globals as the plugin file has them.
    pub fn run_test(&self, test: &str, options: RunOptions) -> Outcome {
        let test = test.to_owned();
        self.call(options, move |instance| instance.run_test(&test))
    }

    fn call(
        &self,
        options: RunOptions,
        entry: impl FnOnce(&mut Instance<State>) -> Outcome + Send + 'static,
    ) -> Outcome {
        let watch = Watch {
            name: options.name.clone(),
            stop: options.stop.clone(),
            timeout: options.timeout,
            grace: options.grace,
        };
        let (prepared, asked) = (self.prepared.clone(), self.asked());
        plugin::supervise(&self.engine, &watch, move || match instantiate(&prepared, asked, options) {
            Ok(mut instance) => entry(&mut instance),
            Err(outcome) => outcome,
        })
    }

    /// Makes an instance on the calling thread, for a caller that calls its exports. Nobody watches it: a plugin that
    /// does not come back must be stopped through [`RunOptions::stop`] and [`PreparedPlugin::interrupt`].
    ///
    /// # Errors
    /// The outcome that takes the place of a run.
    pub fn instantiate(&self, options: RunOptions) -> Result<Instance<State>, Outcome> {
        instantiate(&self.prepared, self.asked(), options)
    }

    fn asked(&self) -> Asked {
        Asked { object: self.object.clone(), imports: Arc::clone(&self.imports) }
    }

    /// Makes instances look whether they were killed.
    pub fn interrupt(&self) {
        self.engine.interrupt();
    }
}

/// What a plugin needs to be allowed before it starts, and what its object will create. Nothing is loaded.
///
/// # Errors
/// If the file has no object that this machine can tell from others, or one that is refused.
pub fn needs(plugin: &Plugin) -> Result<(Vec<Need>, ObjectShape), Box<dyn std::error::Error>> {
    let (mut shape, mut calls) = Default::default();
    if let Some(record) = plugin.object_for_host()? {
        calls = bpf::calls(record)?;
        shape = Object::open(record.clone())?.shape().unwrap_or_default();
    }
    Ok((policy::needs(&shape, &calls, plugin.imports()), shape))
}

impl Limits {
    /// These limits, or those of the policy where they are lower.
    fn below(self, policy: &Policy) -> Limits {
        let least = |own: usize, limit| own.min(usize::try_from(policy.limit(limit)).unwrap_or(usize::MAX));
        Limits {
            memory_bytes: least(self.memory_bytes, Limit::MemoryBytes),
            table_elements: least(self.table_elements, Limit::TableElements),
            ..self
        }
    }
}

/// What a policy judges.
struct Asked {
    object: Option<BpfRecord>,
    imports: Arc<[String]>,
}

impl Asked {
    /// Opens the object if the policy allows the plugin to start. What is wrong with the object the plugin hears when it
    /// uses it: it is not loaded.
    fn allowed(self, policy: &Policy) -> Result<Option<Result<Object, BpfError>>, Outcome> {
        let judged = self.object.map(|record| {
            let calls = bpf::calls(&record)?;
            Ok((Object::open(record)?, calls))
        });
        let (object, needs, shape) = match judged {
            Some(Ok((object, calls))) => {
                let shape = object.shape().unwrap_or_default();
                let needs = policy::needs(&shape, &calls, &self.imports);
                (Some(Ok(object)), needs, shape)
            }
            other => {
                let (calls, shape) = Default::default();
                let needs = policy::needs(&shape, &calls, &self.imports);
                (other.map(|judged| judged.map(|(object, _)| object)), needs, shape)
            }
        };
        policy.judge(&needs, &shape).map_err(Outcome::Denied)?;
        Ok(object)
    }
}

fn instantiate(
    prepared: &Prepared<State>,
    asked: Asked,
    options: RunOptions,
) -> Result<Instance<State>, Outcome> {
    let RunOptions {
        name,
        words,
        settings,
        stdout,
        stderr,
        stop,
        policy,
        limits,
        catalog,
        exec,
        stacks,
        share_memory,
        ..
    } = options;
    let object = asked.allowed(&policy)?;
    let limits = limits.below(&policy);
    let command = match exec.as_slice() {
        [] => None,
        exec => Some(Command::start(exec, stop.clone()).map_err(|error| {
            Outcome::Failed(format!("cannot start `{}`: {error}", exec[0].to_string_lossy()))
        })?),
    };
    let state = State::new(Setup {
        name,
        words,
        settings,
        stdout,
        stderr,
        stop,
        object,
        policy,
        limits,
        catalog,
        command,
        stacks,
        share_memory,
    });
    prepared.instantiate(state, &limits)
}
