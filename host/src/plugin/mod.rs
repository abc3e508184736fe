//! Wasm: the plugin file, the engine, a running instance, and the outcome of a run.
//!
//! In: the bytes of a plugin file, untrusted. Out: validated sections, and an [`Instance`] with the caller's
//! state. The imports of a plugin are defined elsewhere: programs, events and text belong to `world`.

mod backtrace;
mod cache;
pub mod compiler;
mod engine;
mod file;
mod imported_functions;
mod instance;
mod instances;
mod limits;
mod mapped;
mod memory;
mod outcome;
mod signature;
mod stop;
mod sys;
mod thread;
mod types_image;

pub(crate) use cache::TrustedCode;
pub use cache::{Cache, CacheError};
pub(crate) use engine::interface_name;
pub use engine::{CodeOrigin, Engine, EngineError};
pub use file::{MAX_PLUGIN_BYTES, Plugin, PluginError, read_file};
pub use instance::{Facts, Instance, PluginState, Prepared};
pub use limits::{Limiter, Limits};
pub use memory::SharedMemory;
pub use outcome::{Abort, Exit, Outcome};
pub use signature::{PublicKey, Signature, SignatureError, Signer, hex, key_pair, sign};
pub use stop::{StopHandle, StopReason};
pub use thread::{GRACE, Interrupt, OUTPUT_WAIT, THREAD_PREFIX, Watch, supervise};
pub(crate) use thread::{STACK_BYTES, thread_name};
pub use types_image::running_kernel;
