//! The process-wide engine: how Wasm is compiled and interrupted.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;
use wasmtime::{Config, OptLevel};

use super::backtrace;
use super::cache::{Cache, CacheError, EntryName, TrustedCode};
use super::compiler;
use super::file::{Plugin, PluginError};
use super::memory;
use super::sys;
use crate::apart::Apart;
use crate::policy::{Limit, Policy};
use crate::text::{MOST_BYTES, visible};

/// Limit on the stack bytes of a guest. Endless recursion traps here, long before the thread's own stack
/// ends. A script's own stack in its linear memory has half as many bytes, and overflows before this one.
const MAX_WASM_STACK_BYTES: usize = 2 << 20;

/// Stack bytes of the thread that compiles. Guards against deeply nested code: the compiler's own limits
/// count levels, not bytes.
pub(super) const COMPILER_STACK_BYTES: usize = 64 << 20;

/// The Wasm engine; one per process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<LazyEngine>,
    compile_time: Duration,
    compile_bytes: u64,
    apart: Option<Apart>,
}

/// What makes wasmtime's engine when it is first used: that takes as long as to start a process.
#[derive(Debug)]
struct LazyEngine {
    /// Whether several threads compile.
    compiles_in_parallel: bool,
    made: OnceLock<Result<wasmtime::Engine, EngineError>>,
}

/// The engine rejects its configuration on this machine, for the reason in the text.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot start the WebAssembly engine: {0}")]
pub struct EngineError(pub(crate) String);

/// The origin of a plugin's code.
#[derive(Debug)]
pub enum CodeOrigin {
    /// It was loaded from the cache.
    Cached,
    /// It was compiled, and written to the cache.
    Stored,
    /// It was compiled; there is no cache.
    Compiled,
    /// It was compiled, and could not be written to the cache.
    NotStored(CacheError),
}

/// Extracts the interface from an import: `perf` from `kernelscript:host/perf@0.2.0`.
pub(crate) fn interface_name(import: &str) -> &str {
    import.rsplit('/').next().and_then(|name| name.split('@').next()).unwrap_or_default()
}

/// Formats an error of the engine with its causes as one line. It may hold names from the component.
pub(super) fn engine_words(error: &wasmtime::Error) -> String {
    visible(&format!("{error:#}"), MOST_BYTES).into_owned()
}

fn create(compiles_in_parallel: bool) -> Result<wasmtime::Engine, EngineError> {
    let mut config = Config::new();
    config
        .parallel_compilation(compiles_in_parallel)
        .cranelift_opt_level(OptLevel::Speed)
        .epoch_interruption(true)
        .max_wasm_stack(MAX_WASM_STACK_BYTES)
        .wasm_backtrace_max_frames(Some(backtrace::MAX_FRAMES))
        .wasm_component_model(true)
        .with_host_memory(Arc::new(memory::Creator))
        // Images apply only to memories that the engine allocates itself.
        .memory_init_cow(false);
    wasmtime::Engine::new(&config).map_err(|error| EngineError(engine_words(&error)))
}

impl Engine {
    /// Creates the engine. It compiles on the calling thread: threads that stay in the process would make every
    /// system call with a descriptor take a reference to it, which is a tenth of the time of a reading.
    ///
    /// # Errors
    /// If this machine lacks a feature that generated code needs.
    pub fn new() -> Result<Engine, EngineError> {
        let engine = Engine::when_used();
        engine.inner()?;
        Ok(engine)
    }

    /// Returns an engine as [`Engine::new`], which is created when it is first used.
    pub(crate) fn when_used() -> Engine {
        Engine::lazy(false)
    }

    /// Returns the engine of a process that compiles and ends.
    pub(super) fn of_compiler() -> Engine {
        Engine::lazy(true)
    }

    fn lazy(compiles_in_parallel: bool) -> Engine {
        let inner = Arc::new(LazyEngine { compiles_in_parallel, made: OnceLock::new() });
        let policy = Policy::observing();
        let compile_bytes = policy.limit(Limit::CompileBytes);
        Engine { inner, compile_time: policy.compile_time(), compile_bytes, apart: None }
    }

    /// Returns the wasmtime engine.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn inner(&self) -> Result<&wasmtime::Engine, EngineError> {
        self.inner.made.get_or_init(|| create(self.inner.compiles_in_parallel)).as_ref().map_err(Clone::clone)
    }

    /// Sets the limit on the time for compiling the code of one plugin.
    #[must_use]
    pub fn with_compile_time(self, compile_time: Duration) -> Engine {
        Engine { compile_time, ..self }
    }

    /// Compiles in separate processes, each limited to this many bytes of memory.
    #[must_use]
    pub fn with_compiler(self, apart: Apart, compile_bytes: u64) -> Engine {
        Engine { apart: Some(apart), compile_bytes, ..self }
    }

    /// Compiles the code of a plugin in a separate process; returns none if there is no compiler for that.
    fn compiled_apart(&self, plugin: &Plugin) -> Result<Option<TrustedCode>, PluginError> {
        let compile = |apart: &Apart| {
            let code =
                compiler::compile(apart, plugin.bytes().to_vec(), self.compile_time, self.compile_bytes)?;
            Ok(TrustedCode::own(code))
        };
        self.apart.as_ref().map(compile).transpose()
    }

    /// Loads code that a process of this program compiled.
    ///
    /// # Errors
    /// [`PluginError::OtherEngine`].
    pub(crate) fn loaded(&self, code: &TrustedCode) -> Result<Component, PluginError> {
        sys::load(self.inner()?, code).map_err(|error| PluginError::OtherEngine(engine_words(&error)))
    }

    /// Whether code comes from a process of this program, now or before: it can be loaded later.
    pub(crate) fn compiles_apart(&self, cache: Option<&Cache>) -> bool {
        cache.is_some() || self.apart.is_some()
    }

    /// Compiles on a separate thread, since the compiler cannot be interrupted. After a timeout the thread
    /// continues until it is done or the process ends.
    fn compile_here(&self, plugin: &Plugin) -> Result<Component, PluginError> {
        let (done, result) = mpsc::channel();
        let (engine, bytes) = (self.inner()?.clone(), plugin.bytes().to_vec());
        // The receiver is gone after a timeout.
        let compile = move || drop(done.send(Component::new(&engine, bytes)));
        let compiler = thread::Builder::new().name("compiler".into()).stack_size(COMPILER_STACK_BYTES);
        compiler.spawn(compile).map_err(|error| {
            PluginError::Component(format!("cannot start the thread that compiles the component: {error}"))
        })?;
        match result.recv_timeout(self.compile_time) {
            Ok(compiled) => compiled.map_err(|error| {
                PluginError::Component(format!("the component is not valid: {}", engine_words(&error)))
            }),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let number = u64::try_from(self.compile_time.as_millis()).unwrap_or(u64::MAX);
                Err(PluginError::CompileTime(Limit::CompileMs.reached(number)))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(PluginError::Component("the compiler of the component has a defect: it panicked".into()))
            }
        }
    }

    /// Returns the code of a plugin, from the cache if possible; otherwise compiles it, in a separate process if
    /// [`Engine::with_compiler`] was called, and stores it there.
    ///
    /// # Errors
    /// [`PluginError::Component`] if the component is not valid, or takes too much memory;
    /// [`PluginError::CompileTime`] if it takes too long. A failure of the cache is reported in the result.
    pub fn code(
        &self,
        plugin: &Plugin,
        cache: Option<&Cache>,
    ) -> Result<(Component, CodeOrigin), PluginError> {
        if !self.compiles_apart(cache) {
            return Ok((self.compile_here(plugin)?, CodeOrigin::Compiled));
        }
        let (code, origin) = self.trusted_code(plugin, cache, false)?;
        match (self.loaded(&code), origin) {
            // Code that the engine rejects, because it was compiled with other options, is compiled again.
            (Err(_), CodeOrigin::Cached) => {
                let (code, origin) = self.trusted_code(plugin, cache, true)?;
                Ok((self.loaded(&code)?, origin))
            }
            (loaded, origin) => Ok((loaded?, origin)),
        }
    }

    /// Returns the code of a plugin without loading it, from the cache if possible; otherwise compiles it and
    /// stores it there. With `anew`, what is in the cache does not count.
    ///
    /// # Errors
    /// As for [`Engine::code`].
    pub(crate) fn trusted_code(
        &self,
        plugin: &Plugin,
        cache: Option<&Cache>,
        anew: bool,
    ) -> Result<(TrustedCode, CodeOrigin), PluginError> {
        let entry = cache.map(|cache| (cache, EntryName::new(plugin.bytes(), compatibility())));
        if let Some((cache, name)) = entry.as_ref().filter(|_| !anew)
            && let Some(code) = cache.load(name)
        {
            return Ok((code, CodeOrigin::Cached));
        }
        let code = match self.compiled_apart(plugin)? {
            Some(code) => code,
            None => {
                let code = self.compile_here(plugin)?.serialize();
                TrustedCode::own(code.map_err(|error| {
                    PluginError::Component(format!("the code cannot be written: {}", engine_words(&error)))
                })?)
            }
        };
        let origin = match entry {
            None => CodeOrigin::Compiled,
            Some((cache, name)) => {
                cache.store(&name, code.bytes()).map_or_else(CodeOrigin::NotStored, |()| CodeOrigin::Stored)
            }
        };
        Ok((code, origin))
    }

    /// Returns the functions of the contract that a component imports and so may call, as
    /// `perf.[static]event.named`.
    pub(crate) fn functions(&self, component: &Component) -> BTreeSet<String> {
        let (ty, engine) = (component.component_type(), component.engine());
        let mut functions = BTreeSet::new();
        for (interface, item) in ty.imports(engine) {
            let interface = interface_name(interface);
            if let ComponentItem::ComponentInstance(instance) = item.ty {
                let of = instance.exports(engine).map(|(name, _)| format!("{interface}.{name}"));
                functions.extend(of.collect::<Vec<_>>());
            }
        }
        functions
    }

    /// Makes every running guest check whether it must end.
    ///
    /// The epoch is advanced only here. A ticker thread, as is usual, would wake up a hundred times a second
    /// and disturb measurements of wake-ups; the thread that watches a plugin does so every few seconds.
    pub fn interrupt(&self) {
        if let Some(Ok(made)) = self.inner.made.get() {
            made.increment_epoch();
        }
    }
}

/// Hashes what compiled code depends on, as far as that is known without an engine. Code for something else under this name
/// only costs a compilation: an engine checks all when it loads code.
fn compatibility() -> u64 {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), cpu_features()).hash(&mut hasher);
    hasher.finish()
}

/// Features of this CPU that code is compiled for, where it has them.
#[cfg(target_arch = "x86_64")]
fn cpu_features() -> [bool; 9] {
    [
        is_x86_feature_detected!("sse4.1"),
        is_x86_feature_detected!("sse4.2"),
        is_x86_feature_detected!("popcnt"),
        is_x86_feature_detected!("lzcnt"),
        is_x86_feature_detected!("bmi1"),
        is_x86_feature_detected!("bmi2"),
        is_x86_feature_detected!("avx2"),
        is_x86_feature_detected!("fma"),
        is_x86_feature_detected!("avx512f"),
    ]
}

/// Features of this CPU that code is compiled for, where it has them.
#[cfg(not(target_arch = "x86_64"))]
fn cpu_features() -> [bool; 0] {
    []
}
