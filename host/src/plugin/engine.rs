//! The process-wide engine: how Wasm is compiled and interrupted.

use wasmtime::component::Component;
use wasmtime::{Config, OptLevel};

use super::file::{Plugin, PluginError};

/// Deepest stack of a guest, in bytes. A guest that recurses without end traps here, long before the thread's own
/// stack ends.
const MAX_WASM_STACK_BYTES: usize = 512 << 10;

/// The engine; one per process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
}

/// The engine refuses its configuration on this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the WebAssembly engine: {0}")]
pub struct EngineError(String);

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
            .wasm_component_model(true);
        let inner = wasmtime::Engine::new(&config).map_err(|error| EngineError(format!("{error:#}")))?;
        Ok(Engine { inner })
    }

    /// Compiles the code of a plugin.
    ///
    /// # Errors
    /// [`PluginError::Component`] if the component is not valid.
    pub fn compile(&self, plugin: &Plugin) -> Result<Component, PluginError> {
        Component::new(&self.inner, plugin.bytes())
            .map_err(|error| PluginError::Component(format!("the component is not valid: {error:#}")))
    }

    /// Makes every running guest look whether it must end.
    ///
    /// The epoch is advanced only here. A thread that advances it all the time, as is usual, would wake up a hundred
    /// times a second on a machine whose wake-ups somebody is counting.
    pub fn interrupt(&self) {
        self.inner.increment_epoch();
    }

    /// The engine itself, for a linker.
    pub fn inner(&self) -> &wasmtime::Engine {
        &self.inner
    }
}
