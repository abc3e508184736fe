//! Prepares and runs plugins.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ks_wit::manifest::Manifest;
use wasmtime::component::Linker;

use crate::apart::Apart;
use crate::bpf::{self, Object};
use crate::command::Command;
use crate::confine::{Confinement, Outputs, RunNeeds};
use crate::naming::Naming;
use crate::options::RunOptions;
use crate::plugin::{
    self, Cache, CodeOrigin, Engine, EngineError, Instance, Limits, Outcome, Plugin, PluginError, Prepared,
    Signer, Watch,
};
use crate::policy::{Admitted, ObjectSet, Request};
use crate::world::{self, Answers, AuditEntry, Calls, SettingError, Settings, StackMap, State};

/// Adds functions to what a host offers to plugins.
pub type Offer = fn(&mut Linker<State>) -> wasmtime::Result<()>;

/// The engine and the cache; one per process.
pub struct Host {
    engine: Engine,
    cache: Option<Cache>,
    offer: Offer,
}

impl Host {
    /// Creates the engine.
    ///
    /// # Errors
    /// If this machine lacks a feature that generated code needs.
    pub fn new() -> Result<Host, EngineError> {
        Ok(Host { engine: Engine::new()?, cache: None, offer: |_| Ok(()) })
    }

    /// Stores compiled code in this cache.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Host {
        Host { cache: Some(cache), ..self }
    }

    /// Offers functions beside those of the contract, of a program that embeds the host. The policy judges which
    /// interfaces a plugin imports, and nothing that these functions do.
    #[must_use]
    pub fn with_offer(self, offer: Offer) -> Host {
        Host { offer, ..self }
    }

    /// Sets the limit on the time for compiling the code of one plugin. The default is that of the default
    /// policy.
    #[must_use]
    pub fn with_compile_time(self, compile_time: Duration) -> Host {
        Host { engine: self.engine.with_compile_time(compile_time), ..self }
    }

    /// Compiles in separate processes of this program, each limited to this many bytes of memory: see
    /// [`Apart`].
    #[must_use]
    pub fn with_compiler(self, apart: Apart, compile_bytes: u64) -> Host {
        Host { engine: self.engine.with_compiler(apart, compile_bytes), ..self }
    }

    /// Compiles a plugin, or loads its code from the cache, and resolves its imports.
    ///
    /// # Errors
    /// If it is not valid, or is not a plugin for this host.
    pub fn prepare(&self, plugin: &Plugin) -> Result<PreparedPlugin, PluginError> {
        let mut objects = plugin.object_set()?;
        objects.choose(bpf::has_function);
        let (component, code) = self.engine.code(plugin, self.cache.as_ref())?;
        let functions = Arc::new(self.engine.functions(&component));
        let mut linker = world::linker(&self.engine, Answers::Host, &functions)
            .map_err(|error| PluginError::Component(error.to_string()))?;
        if plugin.imports().iter().any(|import| world::wasi::is_wasi(import)) {
            world::wasi::add(&mut linker, &component)
                .map_err(|error| PluginError::Component(format!("its imports of WASI: {error:#}")))?;
        }
        (self.offer)(&mut linker)
            .map_err(|error| PluginError::Component(format!("functions of this program: {error:#}")))?;
        let prepared = Prepared::new(&linker, &component, plugin)?;
        Ok(PreparedPlugin {
            engine: self.engine.clone(),
            prepared,
            objects,
            code,
            manifests: plugin.manifests().to_vec(),
            imports: plugin.imports().into(),
            signers: plugin.signers().into(),
            functions,
            offer: self.offer,
        })
    }
}

/// A compiled plugin, which can be run any number of times.
pub struct PreparedPlugin {
    engine: Engine,
    prepared: Prepared<State>,
    objects: ObjectSet,
    code: CodeOrigin,
    manifests: Vec<Manifest>,
    imports: Arc<[String]>,
    functions: Arc<BTreeSet<String>>,
    signers: Arc<[Signer]>,
    offer: Offer,
}

impl PreparedPlugin {
    /// Where its code came from: the cache or the compiler.
    pub fn code(&self) -> &CodeOrigin {
        &self.code
    }

    /// Parses settings such as `limits.burst=7` for the plugin's config blocks.
    ///
    /// # Errors
    /// The first setting that names no field, or whose value does not fit.
    pub fn settings(&self, arguments: &[String]) -> Result<Settings, SettingError> {
        Settings::read(arguments, &self.manifests)
    }

    /// Returns the maps in which the plugin counts stacks.
    pub fn stack_maps(&self) -> Vec<StackMap> {
        StackMap::all(&self.manifests)
    }

    /// Runs the plugin once on a thread of its own, and waits for its end. All that it attached is detached
    /// then.
    pub fn run(&self, options: RunOptions) -> Outcome {
        let linger = options.linger;
        self.call(options, move |instance| match instance.run() {
            Outcome::Returned(0) if linger => {
                instance.state_mut().linger().map_or_else(Outcome::Failed, |()| Outcome::Returned(0))
            }
            outcome => outcome,
        })
    }

    /// Asks the plugin for the names of its tests, in an instance of its own. One without tests has none.
    ///
    /// # Errors
    /// How the plugin ended instead.
    pub fn tests(&self, options: RunOptions) -> Result<Vec<String>, Outcome> {
        if !self.prepared.lists_tests() {
            return Ok(Vec::new());
        }
        let names = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&names);
        let outcome = self.call(options, move |instance| match instance.tests() {
            Ok(tests) => {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = tests;
                Outcome::Returned(0)
            }
            Err(outcome) => outcome,
        });
        match outcome {
            Outcome::Returned(0) => {
                Ok(std::mem::take(&mut *names.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            outcome => Err(outcome),
        }
    }

    /// Runs one test of the plugin like [`PreparedPlugin::run`]: in an instance of its own, with maps and
    /// globals in their initial state.
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
            timeout: options.timeout.into_iter().chain(options.policy.run_time()).min(),
            grace: options.grace,
            tick: match options.bpf_share {
                Some(_) => Limits::of(&options.policy).tick().min(world::PERIOD / 2),
                None => Limits::of(&options.policy).tick(),
            },
        };
        let prepared = match self.linked(&options.calls) {
            Ok(prepared) => prepared,
            Err(reason) => return Outcome::Failed(reason),
        };
        let (calls, asked) = (options.calls.clone(), self.asked());
        let functions = options.confine.then(|| Arc::clone(&self.functions));
        let audit = options.audit.clone().map(|audit| (audit, options.name.clone()));
        let outcome = plugin::supervise(&self.engine, &watch, move || {
            match instantiate(&prepared, asked, options, functions) {
                Ok(mut instance) => match (entry(&mut instance), instance.state().output_lost()) {
                    (Outcome::Returned(_) | Outcome::Exited(_), Some(reason)) => Outcome::Failed(reason),
                    (outcome, _) => outcome,
                },
                Err(outcome) => outcome,
            }
        });
        if let Some((audit, name)) = audit {
            let answer = Some(format!("exit code {}", outcome.exit_code()));
            let entry = AuditEntry { plugin: &name, act: "end", target: "", id: None, allowed: true, answer };
            if let Err(error) = audit.write(&entry) {
                return Outcome::Failed(format!("{name}: {error}"));
            }
        }
        if let Calls::Recorded(recording) = calls
            && let Err(reason) = recording.end(&outcome)
        {
            return Outcome::Failed(reason);
        }
        outcome
    }

    /// Links the plugin with the implementation of its host calls.
    fn linked(&self, calls: &Calls) -> Result<Prepared<State>, String> {
        match calls.answers() {
            Answers::Host => Ok(self.prepared.clone()),
            answers => {
                let mut linker = world::linker(&self.engine, answers, &self.functions)
                    .map_err(|error| error.to_string())?;
                (self.offer)(&mut linker).map_err(|error| error.to_string())?;
                self.prepared.linked_with(&linker).map_err(|error| error.to_string())
            }
        }
    }

    /// Creates an instance on the calling thread, which is not confined, for a caller that calls its exports.
    /// Nothing watches it: a plugin that does not return must be stopped through [`RunOptions::stop`] and
    /// [`PreparedPlugin::interrupt`].
    ///
    /// # Errors
    /// The outcome that replaces that of a run.
    pub fn instantiate(&self, options: RunOptions) -> Result<Instance<State>, Outcome> {
        let prepared = self.linked(&options.calls).map_err(Outcome::Failed)?;
        instantiate(&prepared, self.asked(), options, None)
    }

    fn asked(&self) -> Asked {
        Asked {
            objects: self.objects.clone(),
            imports: Arc::clone(&self.imports),
            signers: Arc::clone(&self.signers),
        }
    }

    /// Makes all instances check whether they were killed.
    pub fn interrupt(&self) {
        self.engine.interrupt();
    }
}

/// Collects the permissions that a plugin needs before it starts, and its objects. Nothing is loaded.
///
/// # Errors
/// See [`Plugin::object_set`].
pub fn request(plugin: &Plugin) -> Result<Request, PluginError> {
    Ok(Request::new(plugin.object_set()?, plugin.imports()))
}

/// The request that a policy decides about.
struct Asked {
    objects: ObjectSet,
    imports: Arc<[String]>,
    signers: Arc<[Signer]>,
}

impl Asked {
    /// Returns the object for this machine, if the policy allows the plugin to start.
    fn allowed(self, options: &RunOptions) -> Result<Option<Admitted>, Outcome> {
        if let Calls::Replayed(_) = &options.calls {
            return Ok(None);
        }
        let RunOptions { name, policy, audit, .. } = options;
        policy.judge_signers(&self.signers).map_err(Outcome::Denied)?;
        let request = Request::new(self.objects, &self.imports);
        if let Some(audit) = audit {
            for need in request.needs() {
                let target = need.target.as_deref().unwrap_or_default();
                let target = format!("{} {target} ({})", need.class.name(), need.by);
                let allowed = policy.allows(need).is_ok();
                let entry =
                    AuditEntry { plugin: name, act: "ask", target: &target, id: None, allowed, answer: None };
                audit.write(&entry).map_err(|error| Outcome::Failed(format!("{name}: {error}")))?;
            }
        }
        // Maps with a value per CPU count that many times.
        let cpus = match request.objects().objects() {
            [] => 1,
            _ => bpf::possible_cpus().map_err(|error| Outcome::Failed(format!("{name}: {error}")))?,
        };
        policy.admit(request, cpus).map_err(Outcome::Denied)
    }
}

/// Creates an instance on the calling thread. With `confine`, the thread is confined to the needs of a plugin
/// that imports these functions.
fn instantiate(
    prepared: &Prepared<State>,
    asked: Asked,
    options: RunOptions,
    confine: Option<Arc<BTreeSet<String>>>,
) -> Result<Instance<State>, Outcome> {
    let names = asked.imports.iter().any(|import| import.contains("/symbols@"));
    let admitted = asked.allowed(&options)?;
    let confinement = confine.map(|functions| {
        let object = admitted.as_ref().map(Admitted::object);
        let run = RunNeeds { stacks: options.stacks.is_some() };
        Confinement::of(object, &functions, &options.policy, run)
    });
    // Before libbpf reserves descriptors for maps, which it replaces.
    let outputs = Outputs::open_now();
    let mut object = admitted.map(Object::open);
    if let Some(Ok(object)) = &mut object {
        object.supervise().map_err(|errno| {
            Outcome::Failed(format!(
                "{}: cannot start the process that detaches tc programs: {errno}",
                options.name
            ))
        })?;
        object.find_occupants().map_err(|errno| {
            Outcome::Failed(format!("{}: cannot start a second thread: {errno}", options.name))
        })?;
    }
    let command = match options.exec.as_slice() {
        [] => None,
        exec => Some(Command::start(exec, options.stop.clone(), options.exec_status.clone()).map_err(
            |error| Outcome::Failed(format!("cannot start `{}`: {error}", exec[0].to_string_lossy())),
        )?),
    };
    // Runs on a separate thread that may open files and start the naming process. Without it, user-space
    // addresses have no names, which is reported when one is asked for.
    let naming = options.naming.clone().filter(|_| names).and_then(|process| Naming::start(process).ok());
    // After the command's process exists: it keeps this process's rights.
    if let Some(confinement) = confinement {
        let confinement = match &command {
            Some(command) => confinement.observing_command(command.pid()),
            None => confinement,
        };
        let supervisor = object.as_ref().and_then(|object| object.as_ref().ok()?.supervisor());
        let outputs = outputs.with(supervisor).with(command.as_ref().and_then(Command::gate));
        confinement
            .enter(&outputs)
            .map_err(|error| Outcome::Failed(format!("{}: {error}\n  do: --unconfined", options.name)))?;
    }
    let limits = Limits::of(&options.policy);
    let state = State::new(options, object, command).naming_by(naming);
    prepared.instantiate(state, &limits)
}
