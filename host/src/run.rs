//! Prepares and runs plugins.

mod display_needs;
mod linked;
mod worker_form;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ks_wit::manifest::Manifest;
use wasmtime::Store;
use wasmtime::component::Linker;

use crate::apart::Apart;
use crate::bpf::loader::StartingLoader;
use crate::bpf::{self, Object, ObjectFile};
use crate::command::{CommandLine, StartingCommand};
use crate::confine::{Confinement, FileOfOne, Outputs, RunNeeds};
use crate::display::{EnumNames, TimeZone};
use crate::naming::Naming;
use crate::options::RunOptions;
use crate::perf::MappingRecorder;
use crate::plugin::{
    self, Cache, CodeOrigin, Engine, EngineError, Instance, Interrupt, Limits, Outcome, Plugin, PluginError,
    Signer, Watch,
};
use crate::policy::{Admitted, ObjectSet, Request};
use crate::worker::{self, Export, ExportCall, NoWorker, RemoteMemory, Worker, WorkerProgram};
use crate::world::{self, Answers, AuditEntry, Calls, SettingError, Settings, StackMap, State};
use display_needs::DisplayNeeds;
use linked::{Link, Linked, Misfit};
use worker_form::{Loader, WorkerForm};

/// Adds functions to what a host offers to plugins.
pub type Offer = fn(&mut Linker<State>) -> wasmtime::Result<()>;

/// The engine and the cache; one per process.
pub struct Host {
    engine: Engine,
    cache: Option<Cache>,
    offer: Option<Offer>,
    workers: Option<WorkerProgram>,
}

impl Host {
    /// Creates the engine. Plugins run on threads of this process.
    ///
    /// # Errors
    /// If this machine lacks a feature that generated code needs.
    pub fn new() -> Result<Host, EngineError> {
        Ok(Host { engine: Engine::new()?, cache: None, offer: None, workers: None })
    }

    /// As [`Host::new`], with an engine that is created when the first plugin is prepared, which fails if the engine does.
    #[must_use]
    pub fn of_threads() -> Host {
        Host { engine: Engine::when_used(), cache: None, offer: None, workers: None }
    }

    /// Runs each plugin in a process of its own, which has nothing but a socket to this one: see
    /// [`worker`](crate::worker).
    #[must_use]
    pub fn of_workers(workers: WorkerProgram) -> Host {
        workers.start_ahead();
        Host { engine: Engine::when_used(), cache: None, offer: None, workers: Some(workers) }
    }

    /// Returns the cache, if there is one.
    #[must_use]
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// Stores compiled code in this cache, and takes the running kernel's types from there.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Host {
        let folder = cache.path().to_owned();
        bpf::offer_types(move || Cache::types_in(&folder));
        Host { cache: Some(cache), ..self }
    }

    /// Offers functions beside those of the contract, of a program that embeds the host. The policy judges which
    /// interfaces a plugin imports, and nothing that these functions do.
    #[must_use]
    pub fn with_offer(self, offer: Offer) -> Host {
        Host { offer: Some(offer), ..self }
    }

    /// Sets the limit on the time for compiling the code of one plugin. The default is that of the default
    /// policy.
    #[must_use]
    pub fn with_compile_time(self, compile_time: Duration) -> Host {
        Host { engine: self.engine.with_compile_time(compile_time), ..self }
    }

    /// Whether plugins run in processes of their own.
    pub fn has_workers(&self) -> bool {
        self.workers.is_some()
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
        self.prepared(plugin, Host::prepare_here)
    }

    /// As [`Host::prepare`]. If plugins run on threads of this process, code that is compiled already is loaded beside what
    /// this thread and the run do until they need it: that the plugin does not fit shows in its run then, after which
    /// [`PreparedPlugin::misfit`] says why.
    ///
    /// # Errors
    /// As of [`Host::prepare`].
    pub fn begin(&self, plugin: &Plugin) -> Result<PreparedPlugin, PluginError> {
        self.prepared(plugin, Host::begin_here)
    }

    fn prepared(
        &self,
        plugin: &Plugin,
        here: impl FnOnce(&Host, &Plugin) -> Result<(Form, CodeOrigin), PluginError>,
    ) -> Result<PreparedPlugin, PluginError> {
        let mut objects = plugin.object_set()?;
        objects.choose(bpf::has_function);
        let (file, loader) = (OnceLock::new(), OnceLock::new());
        let (form, code) = match &self.workers {
            None => here(self, plugin)?,
            Some(_) if self.offer.is_some() => {
                return Err(PluginError::Component(
                    "functions of this program are offered only to plugins on its own threads".into(),
                ));
            }
            Some(program) => {
                if objects.own().is_some() {
                    program.start_loader_ahead();
                }
                // What fails here the run does again, and says why.
                let write = || objects.own().and_then(|object| ObjectFile::of(object).ok()).map(Arc::new);
                let load = || objects.own().and_then(|object| Loader::start(program, object, true).ok());
                let meanwhile = || {
                    loader.get_or_init(load);
                    file.get_or_init(write).as_ref().map(|file| file.kernel_part());
                    // The thread that answers the worker's calls needs it.
                    let _ = self.engine.inner();
                };
                let (ready, worker_code, code) = self.prepare_worker(plugin, program, meanwhile)?;
                let form = WorkerForm {
                    program: program.clone(),
                    code: worker_code,
                    lists_tests: ready.lists_tests,
                    ready: Mutex::new(Some(ready)),
                    loader: Mutex::new(loader.into_inner().flatten()),
                };
                (Form::Apart(form), code)
            }
        };
        Ok(PreparedPlugin {
            engine: self.engine.clone(),
            form,
            objects,
            file: file.into_inner().flatten(),
            code,
            manifests: plugin.manifests().to_vec(),
            imports: plugin.imports().into(),
            signers: plugin.signers().into(),
            offer: self.offer,
            misfit: Misfit::default(),
        })
    }

    fn prepare_here(&self, plugin: &Plugin) -> Result<(Form, CodeOrigin), PluginError> {
        let (component, origin) = self.engine.code(plugin, self.cache.as_ref())?;
        let functions = Arc::new(self.engine.functions(&component));
        let linked = Linked::from(self.link(plugin).with(&component, &functions)?);
        Ok((Form::Here { linked: Arc::new(linked), functions }, origin))
    }

    fn begin_here(&self, plugin: &Plugin) -> Result<(Form, CodeOrigin), PluginError> {
        let cache = self.cache.as_ref();
        if !self.engine.compiles_apart(cache) {
            return self.prepare_here(plugin);
        }
        let Some(functions) = plugin.functions().map(Arc::new) else { return self.prepare_here(plugin) };
        let (code, origin) = self.engine.trusted_code(plugin, cache, false)?;
        let linked = Linked::beside(self.link(plugin), code, Arc::clone(&functions));
        Ok((Form::Here { linked: Arc::new(linked), functions }, origin))
    }

    fn link(&self, plugin: &Plugin) -> Link {
        Link {
            engine: self.engine.clone(),
            imports: plugin.imports().to_vec(),
            lines: plugin.lines().to_vec(),
            shared_bytes: plugin.shared_bytes(),
            offer: self.offer,
        }
    }

    /// Starts a worker with the code of a plugin; acts while it loads that.
    fn prepare_worker(
        &self,
        plugin: &Plugin,
        program: &WorkerProgram,
        meanwhile: impl Fn(),
    ) -> Result<(Worker, worker::PluginCode, CodeOrigin), PluginError> {
        let start = |anew| {
            let (code, origin) = self.engine.trusted_code(plugin, self.cache.as_ref(), anew)?;
            let code = worker::PluginCode::new(&code, plugin)
                .map_err(|error| PluginError::Component(format!("its code finds no memory: {error}")))?;
            Ok::<_, PluginError>((Worker::start_and(program, &code, &meanwhile), code, origin))
        };
        let mut started = start(false)?;
        // What another engine has written is compiled again.
        if let (Err(NoWorker::OtherEngine(_)), _, CodeOrigin::Cached) = started {
            started = start(true)?;
        }
        let (started, code, origin) = started;
        Ok((started.map_err(PluginError::from)?, code, origin))
    }
}

/// A compiled plugin, which can be run any number of times.
pub struct PreparedPlugin {
    engine: Engine,
    form: Form,
    objects: ObjectSet,
    /// The file of the object for this machine, if that was written already.
    file: Option<Arc<ObjectFile>>,
    code: CodeOrigin,
    manifests: Vec<Manifest>,
    imports: Arc<[String]>,
    signers: Arc<[Signer]>,
    offer: Option<Offer>,
    misfit: Misfit,
}

/// Where a plugin runs.
enum Form {
    /// On a thread of this process.
    Here {
        linked: Arc<Linked>,
        /// The functions of the contract that it imports.
        functions: Arc<BTreeSet<String>>,
    },
    /// In a process of its own.
    Apart(WorkerForm),
}

/// What is called of a plugin.
enum Call {
    /// The plugin itself. With `linger` it stays for what it registered.
    Run { linger: bool },
    /// The list of its tests.
    Tests(Arc<Mutex<Vec<String>>>),
    /// A test.
    Test(String),
}

impl Call {
    /// Calls it in an instance on this thread.
    fn here(self, instance: &mut Instance<State>) -> Outcome {
        match self {
            Call::Run { linger } => {
                let outcome = instance.run();
                lingered(outcome, linger, instance.state_mut())
            }
            Call::Tests(found) => match instance.tests() {
                Ok(names) => keep(&found, names),
                Err(outcome) => outcome,
            },
            Call::Test(name) => instance.run_test(&name),
        }
    }

    /// Returns the export that a worker calls.
    fn export(&self) -> Export {
        match self {
            Call::Run { .. } => Export::Run,
            Call::Tests(_) => Export::Tests,
            Call::Test(name) => Export::Test(name.clone()),
        }
    }

    /// Takes what a worker answers in the end.
    ///
    /// # Errors
    /// How the connection to it ended.
    fn served(self, served: worker::Served, state: &mut State) -> Result<Outcome, String> {
        match (served, self) {
            (worker::Served::Ended(outcome), Call::Run { linger }) => Ok(lingered(outcome, linger, state)),
            (worker::Served::Ended(outcome), _) => Ok(outcome),
            (worker::Served::Tests(names), Call::Tests(found)) => Ok(keep(&found, names)),
            (worker::Served::Tests(_), _) => Err("it lists tests, and was not asked for them".into()),
            (worker::Served::Gone(reason), _) => Err(reason),
        }
    }
}

fn lingered(outcome: Outcome, linger: bool, state: &mut State) -> Outcome {
    match outcome {
        Outcome::Returned(0) if linger => {
            state.linger().map_or_else(Outcome::Failed, |()| Outcome::Returned(0))
        }
        outcome => outcome,
    }
}

fn keep(found: &Mutex<Vec<String>>, names: Vec<String>) -> Outcome {
    *found.lock().unwrap_or_else(PoisonError::into_inner) = names;
    Outcome::Returned(0)
}

impl PreparedPlugin {
    /// Where its code came from: the cache or the compiler.
    pub fn code(&self) -> &CodeOrigin {
        &self.code
    }

    /// Takes the reason why its last run failed if that was that the plugin does not fit this host: of one of
    /// [`Host::begin`].
    pub fn misfit(&self) -> Option<PluginError> {
        self.misfit.take()
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
        self.call(options, Call::Run { linger })
    }

    /// Asks the plugin for the names of its tests, in an instance of its own. One without tests has none.
    ///
    /// # Errors
    /// How the plugin ended instead.
    pub fn tests(&self, options: RunOptions) -> Result<Vec<String>, Outcome> {
        let lists_tests = match &self.form {
            Form::Here { linked, .. } => {
                linked.wait().map_err(|error| self.misfit.keep(error))?.lists_tests()
            }
            Form::Apart(form) => form.lists_tests,
        };
        if !lists_tests {
            return Ok(Vec::new());
        }
        let names = Arc::new(Mutex::new(Vec::new()));
        match self.call(options, Call::Tests(Arc::clone(&names))) {
            Outcome::Returned(0) => {
                Ok(std::mem::take(&mut *names.lock().unwrap_or_else(PoisonError::into_inner)))
            }
            outcome => Err(outcome),
        }
    }

    /// Runs one test of the plugin like [`PreparedPlugin::run`]: in an instance of its own, with maps and
    /// globals in their initial state.
    pub fn run_test(&self, test: &str, options: RunOptions) -> Outcome {
        self.call(options, Call::Test(test.to_owned()))
    }

    fn call(&self, options: RunOptions, call: Call) -> Outcome {
        let watch = Watch {
            name: options.name.clone(),
            stop: options.stop.clone(),
            timeout: options.timeout.into_iter().chain(options.policy.run_time()).min(),
            grace: options.grace,
            output_wait: options.output_wait,
            tick: match options.bpf_share {
                Some(_) => Limits::of(&options.policy).tick().min(world::PERIOD / 2),
                None => Limits::of(&options.policy).tick(),
            },
        };
        let calls = options.calls.clone();
        let audit = options.audit.clone().map(|audit| (audit, options.name.clone()));
        let outcome = match &self.form {
            Form::Here { linked, functions } => self.call_here(linked, functions, &watch, options, call),
            Form::Apart(form) => self.call_worker(form, &watch, options, call),
        };
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

    /// Calls the plugin on a thread of this process.
    fn call_here(
        &self,
        linked: &Arc<Linked>,
        functions: &Arc<BTreeSet<String>>,
        watch: &Watch,
        options: RunOptions,
        call: Call,
    ) -> Outcome {
        let linked = match self.linked(linked, functions, &options.calls) {
            Ok(linked) => linked,
            Err(outcome) => return outcome,
        };
        let (functions, misfit) = (Arc::clone(functions), self.misfit.clone());
        let (asked, engine, confine) = (self.asked(), self.engine.clone(), options.confine);
        plugin::supervise(
            watch,
            |_| engine.interrupt(),
            move || match instantiate(&linked, asked, options, &functions, confine, &misfit) {
                Ok(mut instance) => {
                    let outcome = call.here(&mut instance);
                    with_lost_output(outcome, instance.state())
                }
                Err(outcome) => outcome,
            },
        )
    }

    /// Calls the plugin in a worker, whose calls a thread of this process answers.
    fn call_worker(&self, form: &WorkerForm, watch: &Watch, options: RunOptions, call: Call) -> Outcome {
        let worker = match form.worker() {
            Ok(worker) => worker,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        // Ended when the run has: the plugin's thread may end no process.
        let (_loader, loader) = match self.loader(form, &options) {
            Ok(Some(Loader { process, starting })) => (Some(process), Some(starting)),
            Ok(None) => (None, None),
            Err(error) => {
                return Outcome::Failed(format!("{}: no process loads its object: {error}", options.name));
            }
        };
        // It begins while this process is confined. If it has ended, the first message that is awaited says so.
        let _ = worker.enter(ExportCall::of(call.export(), &options, self.has_prints()));
        let answers = Arc::new(AtomicBool::new(false));
        let run = WorkerRun {
            engine: self.engine.clone(),
            asked: self.asked(),
            loader,
            pid: worker.pid(),
            answers: Arc::clone(&answers),
        };
        let functions = worker.functions.iter().cloned().collect();
        let (socket, process) = worker.into_parts();
        let gone = Arc::new(OnceLock::new());
        let reason = Arc::clone(&gone);
        let outcome = plugin::supervise(
            watch,
            |how| {
                // A worker that waits for an answer computes nothing, and a signal would be a switch to count.
                if how == Interrupt::End || !answers.load(Ordering::Relaxed) {
                    worker::interrupt(&process, how);
                }
            },
            move || match run.serve(&socket, options, &functions, call) {
                Ok(outcome) => outcome,
                Err(lost) => {
                    let _ = reason.set(lost);
                    Outcome::Killed
                }
            },
        );
        match gone.get() {
            // It did not end because the host wanted it to.
            Some(lost) if outcome == Outcome::Killed && !watch.stop.killed() => {
                Outcome::Trapped(format!("the process of the plugin {} ({lost})", process.end()))
            }
            _ => outcome,
        }
    }

    /// Whether the kernel half prints.
    fn has_prints(&self) -> bool {
        self.objects.own().is_some_and(|object| object.model().print_table.is_some())
    }

    /// Starts the loader of the object, if the run has one.
    fn loader(&self, form: &WorkerForm, options: &RunOptions) -> io::Result<Option<Loader>> {
        let object = self.objects.own().filter(|_| !matches!(options.calls, Calls::Replayed(_)));
        object.map(|object| form.loader(object, options.confine)).transpose()
    }

    /// Links the plugin with the implementation of its host calls.
    fn linked(
        &self,
        linked: &Arc<Linked>,
        functions: &Arc<BTreeSet<String>>,
        calls: &Calls,
    ) -> Result<Arc<Linked>, Outcome> {
        let answers = calls.answers();
        if answers == Answers::Host {
            return Ok(Arc::clone(linked));
        }
        let prepared = linked.wait().map_err(|error| self.misfit.keep(error))?;
        let mut linker = world::linker(&self.engine, answers, functions)
            .map_err(|error| Outcome::Failed(error.to_string()))?;
        if let Some(offer) = self.offer {
            offer(&mut linker).map_err(|error| Outcome::Failed(error.to_string()))?;
        }
        let linked = prepared.linked_with(&linker).map_err(|error| Outcome::Failed(error.to_string()))?;
        Ok(Arc::new(Linked::from(linked)))
    }

    /// Creates an instance on the calling thread, which is not confined, for a caller that calls its exports. The
    /// plugin must have been prepared for threads of this process.
    /// Nothing watches it: a plugin that does not return must be stopped through [`RunOptions::stop`] and
    /// [`PreparedPlugin::interrupt`].
    ///
    /// # Errors
    /// The outcome that replaces that of a run.
    pub fn instantiate(&self, options: RunOptions) -> Result<Instance<State>, Outcome> {
        let Form::Here { linked, functions } = &self.form else {
            return Err(Outcome::Failed("the plugin was prepared for a process of its own".into()));
        };
        let linked = self.linked(linked, functions, &options.calls)?;
        instantiate(&linked, self.asked(), options, functions, false, &self.misfit)
    }

    fn asked(&self) -> Asked {
        Asked {
            objects: self.objects.clone(),
            file: self.file.clone(),
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
    file: Option<Arc<ObjectFile>>,
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

/// Replaces the outcome of a plugin that ended by itself if its last output was lost.
fn with_lost_output(outcome: Outcome, state: &State) -> Outcome {
    match (outcome, state.output_lost()) {
        (Outcome::Returned(_) | Outcome::Exited(_) | Outcome::Killed, Some(reason)) => {
            Outcome::Failed(reason)
        }
        (outcome, _) => outcome,
    }
}

/// A run in a worker, as the thread of the broker sees it.
struct WorkerRun {
    engine: Engine,
    asked: Asked,
    /// The loader of its object.
    loader: Option<StartingLoader>,
    /// The process, whose only thread is the plugin's own.
    pid: i32,
    /// Whether it waits for an answer.
    answers: Arc<AtomicBool>,
}

impl WorkerRun {
    /// Answers the worker's calls until the plugin has ended, and releases all that it has.
    ///
    /// # Errors
    /// How the connection to the worker ended.
    fn serve(
        self,
        socket: &File,
        options: RunOptions,
        functions: &BTreeSet<String>,
        call: Call,
    ) -> Result<Outcome, String> {
        let answers = options.calls.answers();
        let call_bytes = Limits::of(&options.policy).call_bytes;
        let served = match world::served(answers, &self.asked.imports) {
            Ok(served) => served,
            Err(error) => return Ok(Outcome::Failed(error.to_string())),
        };
        let confine = options.confine;
        let memory = match FileOfOne::open(|| socket.try_clone()) {
            Ok(socket) => Box::new(RemoteMemory(socket)),
            Err(error) => return Ok(Outcome::Failed(format!("no descriptor for its memory: {error}"))),
        };
        let apart = ApartFrom { sockets: [socket.as_fd(), memory.0.as_fd()], loader: self.loader };
        let mut state = match state(self.asked, options, functions, confine, Some(apart)) {
            Ok(state) => state.of_task(self.pid, memory),
            Err(outcome) => return Ok(outcome),
        };
        // A recording has every call.
        if answers == Answers::Host {
            state.pass_on();
        }
        let mut store = match self.engine.inner() {
            Ok(engine) => Store::new(engine, state),
            Err(error) => return Ok(Outcome::Failed(error.to_string())),
        };
        let mut serving = worker::Serving {
            socket,
            functions: &served,
            store: &mut store,
            call_bytes,
            answers: &self.answers,
        };
        let ended = worker::serve(&mut serving);
        match (call.served(ended, store.data_mut()), store.data().output_lost()) {
            (Ok(outcome), _) => Ok(with_lost_output(outcome, store.data())),
            (Err(_), Some(reason)) => Ok(Outcome::Failed(reason)),
            (Err(lost), None) => Err(lost),
        }
    }
}

/// Creates an instance on the calling thread of a plugin that imports these functions. With `confine`, the thread is
/// confined to its needs.
fn instantiate(
    linked: &Linked,
    asked: Asked,
    options: RunOptions,
    functions: &BTreeSet<String>,
    confine: bool,
    misfit: &Misfit,
) -> Result<Instance<State>, Outcome> {
    let limits = Limits::of(&options.policy);
    let mut state = state(asked, options, functions, confine, None)?;
    match linked.wait() {
        Ok(prepared) => prepared.instantiate(state, &limits),
        Err(error) => {
            state.forget_command();
            Err(misfit.keep(error))
        }
    }
}

/// What a run has in processes of its own.
struct ApartFrom<'a> {
    /// The sockets to its worker.
    sockets: [BorrowedFd<'a>; 2],
    /// The loader of its object.
    loader: Option<StartingLoader>,
}

/// Creates the state of a run on the calling thread of a plugin that imports these functions. With `confine`, the thread
/// is confined to its needs.
fn state(
    asked: Asked,
    options: RunOptions,
    functions: &BTreeSet<String>,
    confine: bool,
    apart: Option<ApartFrom<'_>>,
) -> Result<State, Outcome> {
    let (sockets, loader) = apart.map(|apart| (apart.sockets, apart.loader)).unzip();
    let file = asked.file.clone();
    let admitted = asked.allowed(&options)?;
    let no_loader =
        |error: io::Error| Outcome::Failed(format!("{}: no process loads its object: {error}", options.name));
    let loader = loader.flatten();
    let displays = DisplayNeeds::of(admitted.as_ref().map(Admitted::object), functions, &options);
    let confinement = confine.then(|| {
        let object = admitted.as_ref().map(Admitted::object);
        let run = RunNeeds { stacks: options.stacks.is_some() };
        Confinement::of(object, functions, &options.policy, run)
    });
    // Before libbpf reserves descriptors for maps, which it replaces.
    let outputs = Outputs::open_now();
    let no_command = |error: io::Error| {
        let program = options.exec.first().map(|program| program.to_string_lossy());
        Outcome::Failed(format!("cannot start `{}`: {error}", program.unwrap_or_default()))
    };
    let command = (!options.exec.is_empty()).then(|| {
        let line = CommandLine { words: options.exec.clone(), is_silent: options.exec_is_silent };
        StartingCommand::new(line, options.stop.clone(), options.exec_status.clone()).map_err(no_command)
    });
    let command = command.transpose()?;
    let mut object = admitted.map(|admitted| Object::open_written(admitted, file.as_deref()));
    if let Some(Ok(object)) = &mut object {
        if let Some(loader) = loader {
            let loader = loader.with_types(object.kernel_part(), object.descriptors()).map_err(no_loader)?;
            object.load_apart(loader);
        }
        object.prepare_ahead();
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
    // Runs on a separate thread that may open files and start the naming process. Without it, user-space
    // addresses have no names, which is reported when one is asked for.
    let process = options.naming.clone().filter(|_| displays.processes);
    let naming = process.and_then(|process| Naming::start(process).ok());
    let mappings = naming.as_ref().filter(|_| displays.ended_processes).map(|_| MappingRecorder::start());
    let zone = if displays.times { TimeZone::of_system() } else { TimeZone::utc() };
    let enums = if displays.enums { EnumNames::of_running() } else { EnumNames::none() };
    // After the threads exist that need this process's rights: that of the command, for one.
    if let Some(confinement) = confinement {
        let supervisor = object.as_ref().and_then(|object| object.as_ref().ok()?.supervisor());
        let outputs = outputs.with(supervisor);
        let loader = object.as_ref().and_then(|object| object.as_ref().ok()?.loader());
        let sockets = sockets.into_iter().flatten().chain(loader);
        let outputs = sockets.fold(outputs, |outputs, socket| outputs.with(Some(socket)));
        confinement
            .enter(&outputs)
            .map_err(|error| Outcome::Failed(format!("{}: {error}\n  do: --unconfined", options.name)))?;
    }
    let command = command.map(|command| command.started().map_err(no_command)).transpose()?;
    Ok(State::new(options, object, command)
        .naming_by(naming, mappings)
        .in_zone(zone)
        .naming_enumerators(enums))
}
