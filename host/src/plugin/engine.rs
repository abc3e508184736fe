//! The process-wide engine: how Wasm is compiled and interrupted.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, mpsc};
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

/// Deepest stack of a guest, in bytes. A guest that recurses without end traps here, long before the thread's own
/// stack ends. Scripts have a stack of half as many bytes in their memory, which is full before this one is.
const MAX_WASM_STACK_BYTES: usize = 2 << 20;

/// Stack of the thread that compiles. Guards against code that is nested deep: the compiler's own limits are counted in
/// levels, not in bytes.
pub(super) const COMPILER_STACK_BYTES: usize = 64 << 20;

/// The engine; one per process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    compile_time: Duration,
    compile_bytes: u64,
    apart: Option<Apart>,
}

/// The engine refuses its configuration on this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the WebAssembly engine: {0}")]
pub struct EngineError(pub(crate) String);

/// Where the code of a plugin came from.
#[derive(Debug)]
pub enum CodeOrigin {
    /// It was in the cache.
    Cached,
    /// It was compiled, and is in the cache now.
    Stored,
    /// It was compiled; there is no cache.
    Compiled,
    /// It was compiled, and could not be written to the cache.
    NotStored(CacheError),
}

/// `perf` of `kernelscript:host/perf@0.1.0`.
pub(crate) fn interface_name(import: &str) -> &str {
    import.rsplit('/').next().and_then(|name| name.split('@').next()).unwrap_or_default()
}

impl Engine {
    /// Starts the engine.
    ///
    /// # Errors
    /// If this machine lacks what generated code needs.
    pub fn new() -> Result<Engine, EngineError> {
        let mut config = Config::new();
        config
            .cranelift_opt_level(OptLevel::Speed)
            .epoch_interruption(true)
            .max_wasm_stack(MAX_WASM_STACK_BYTES)
            .wasm_backtrace_max_frames(Some(backtrace::MAX_FRAMES))
            .wasm_component_model(true)
            .with_host_memory(Arc::new(memory::Creator))
            // Images are for memories that the engine makes itself.
            .memory_init_cow(false);
        let inner = wasmtime::Engine::new(&config).map_err(|error| EngineError(format!("{error:#}")))?;
        let policy = Policy::observing();
        let compile_bytes = policy.limit(Limit::CompileBytes);
        Ok(Engine { inner, compile_time: policy.compile_time(), compile_bytes, apart: None })
    }

    /// With another time that compiling the code of one plugin may take.
    #[must_use]
    pub fn with_compile_time(self, compile_time: Duration) -> Engine {
        Engine { compile_time, ..self }
    }

    /// Compiles in processes of their own, each of which takes no more than so many bytes of memory.
    #[must_use]
    pub fn with_compiler(self, apart: Apart, compile_bytes: u64) -> Engine {
        Engine { apart: Some(apart), compile_bytes, ..self }
    }

    /// Compiles the code of a plugin: in a process of its own if there is a compiler for that ([`Engine::with_compiler`]).
    ///
    /// # Errors
    /// [`PluginError::Component`] if the component is not valid, or takes too much memory; [`PluginError::CompileTime`] if
    /// it takes too long.
    pub fn compile(&self, plugin: &Plugin) -> Result<Component, PluginError> {
        match self.compiled_apart(plugin)? {
            Some(code) => self.loaded(&code),
            None => self.compile_here(plugin),
        }
    }

    /// The code of a plugin, compiled in a process of its own; none if there is no compiler for that.
    fn compiled_apart(&self, plugin: &Plugin) -> Result<Option<TrustedCode>, PluginError> {
        let compile = |apart: &Apart| {
            let code =
                compiler::compile(apart, plugin.bytes().to_vec(), self.compile_time, self.compile_bytes)?;
            Ok(TrustedCode::own(code))
        };
        self.apart.as_ref().map(compile).transpose()
    }

    fn loaded(&self, code: &TrustedCode) -> Result<Component, PluginError> {
        sys::load(&self.inner, code)
            .map_err(|error| PluginError::Component(format!("its code cannot be loaded: {error:#}")))
    }

    /// Compiles on a thread of its own: the compiler cannot be interrupted. One that is not waited for any more goes on
    /// until it is done or the process ends.
    fn compile_here(&self, plugin: &Plugin) -> Result<Component, PluginError> {
        let (done, result) = mpsc::channel();
        let (engine, bytes) = (self.inner.clone(), plugin.bytes().to_vec());
        // Nobody takes the result of one that took too long.
        let compile = move || drop(done.send(Component::new(&engine, bytes)));
        let compiler = thread::Builder::new().name("compiler".into()).stack_size(COMPILER_STACK_BYTES);
        compiler.spawn(compile).map_err(|error| {
            PluginError::Component(format!("cannot start the thread that compiles the component: {error}"))
        })?;
        match result.recv_timeout(self.compile_time) {
            Ok(compiled) => compiled
                .map_err(|error| PluginError::Component(format!("the component is not valid: {error:#}"))),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let number = u64::try_from(self.compile_time.as_millis()).unwrap_or(u64::MAX);
                Err(PluginError::CompileTime(Limit::CompileMs.reached(number)))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(PluginError::Component("the compiler of the component has a defect: it panicked".into()))
            }
        }
    }

    /// The code of a plugin: from the cache if it is there, else compiled and put there.
    ///
    /// # Errors
    /// As [`Engine::compile`]. A cache that does not work is told of in the result.
    pub fn code(
        &self,
        plugin: &Plugin,
        cache: Option<&Cache>,
    ) -> Result<(Component, CodeOrigin), PluginError> {
        let Some(cache) = cache else { return Ok((self.compile(plugin)?, CodeOrigin::Compiled)) };
        let name = EntryName::new(plugin.bytes(), self.compatibility());
        // What the engine does not take (it was made with other options) is written anew.
        if let Some(component) = cache.load(&name).and_then(|code| sys::load(&self.inner, &code).ok()) {
            return Ok((component, CodeOrigin::Cached));
        }
        let store = |code: &[u8]| {
            cache.store(&name, code).map_or_else(CodeOrigin::NotStored, |()| CodeOrigin::Stored)
        };
        if let Some(code) = self.compiled_apart(plugin)? {
            return Ok((self.loaded(&code)?, store(code.bytes())));
        }
        let component = self.compile_here(plugin)?;
        let code = component
            .serialize()
            .map_err(|error| PluginError::Component(format!("the code cannot be written: {error:#}")))?;
        Ok((component, store(&code)))
    }

    /// The functions of the contract that a component imports, as `perf.[static]event.named`: what it can call.
    pub(crate) fn functions(&self, component: &Component) -> BTreeSet<String> {
        let ty = component.component_type();
        let mut functions = BTreeSet::new();
        for (interface, item) in ty.imports(&self.inner) {
            let interface = interface_name(interface);
            if let ComponentItem::ComponentInstance(instance) = item.ty {
                let of = instance.exports(&self.inner).map(|(name, _)| format!("{interface}.{name}"));
                functions.extend(of.collect::<Vec<_>>());
            }
        }
        functions
    }

    /// A number for everything of the engine that compiled code depends on. Another number for the same only costs a
    /// compilation: what fits is checked when code is loaded.
    fn compatibility(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    /// Makes every running guest look whether it must end.
    ///
    /// The epoch is advanced only here. A thread that advances it all the time, as is usual, would wake up a hundred
    /// times a second on a machine whose wake-ups somebody is counting: who watches a plugin does so every few seconds.
    pub fn interrupt(&self) {
        self.inner.increment_epoch();
    }

    /// The engine itself, for a linker.
    pub fn inner(&self) -> &wasmtime::Engine {
        &self.inner
    }
}
