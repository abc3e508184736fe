//! Wasm: the plugin file, the engine, one running instance, and how a run ends.
//!
//! In: the bytes of a plugin file, untrusted. Out: checked sections, and an [`Instance`] around the caller's state.
//! Not here: what a plugin may import. Programs, events and text belong to `world`.

mod backtrace;
mod cache;
pub mod compiler;
mod engine;
mod file;
mod instance;
mod instances;
mod limits;
mod memory;
mod outcome;
mod signature;
mod stop;
mod sys;
mod thread;

pub use cache::{Cache, CacheError};
pub(crate) use engine::interface_name;
pub use engine::{CodeOrigin, Engine, EngineError};
pub use file::{MAX_PLUGIN_BYTES, Plugin, PluginError, read_file};
pub use instance::{Instance, PluginState, Prepared};
pub use limits::{Limiter, Limits};
pub use memory::SharedMemory;
pub use outcome::{Abort, Exit, Outcome};
pub use signature::{PublicKey, Signature, SignatureError, Signer, hex, key_pair, sign};
pub use stop::{StopHandle, StopReason};
pub use thread::{GRACE, THREAD_PREFIX, Watch, supervise};
