//! The WIT world: connects Wasm, perf events and BPF.
//!
//! In: calls of a plugin, which are untrusted. Out: calls of `perf` and `bpf`, and their results in the types
//! of the contract. Errors of the plugin or the kernel are returned as an `error` of the contract; a broken
//! invariant of the host or an invalid handle is a trap. Not here: system calls.

mod args;
mod arguments;
mod attach;
mod attached;
mod audit;
mod bindings;
mod bpf;
mod budget;
mod clock;
mod console;
mod error;
mod format;
mod globals;
mod histogram;
mod layouts;
pub(crate) mod linker;
mod losses;
mod lower;
mod maps;
mod misses;
mod output;
mod perf;
mod prints;
mod recording;
mod ring;
mod settings;
mod stacks;
mod state;
mod streams;
mod symbols;
mod system;
mod table;
pub(crate) mod value;
pub(crate) mod wasi;

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmtime::component::HasSelf;

use crate::plugin::{Engine, EngineError};

pub use audit::Audit;
pub(crate) use audit::AuditEntry;
pub(crate) use budget::PERIOD;
pub use budget::Share;
pub use histogram::{Histogram, HistogramSlot};
pub(crate) use linker::Answers;
pub use recording::Calls;
pub use settings::{SettingError, Settings};
pub use stacks::{StackMap, StackRequest};
pub use state::State;
pub use streams::{Form, Said, said_as_json};

/// Returns a linker with those functions of the world that a plugin imports.
///
/// # Errors
/// If two interfaces define the same name, which a test would detect.
pub(crate) fn linker(
    engine: &Engine,
    answers: Answers,
    imported: &Arc<BTreeSet<String>>,
) -> Result<wasmtime::component::Linker<State>, EngineError> {
    let failed = |error: wasmtime::Error| EngineError(format!("{error:#}"));
    let mut linker = linker::Linker::new(engine.linker(), answers, Arc::clone(imported), State::called);
    bindings::Plugin::add_to_linker::<State, HasSelf<State>>(&mut linker, State::called).map_err(failed)?;
    let mut linker = linker.into_inner();
    // Recorded and replayed runs need the functions of the bindings, which the recording linker wraps.
    if answers == Answers::Host {
        lower::add_to_linker(&mut linker).map_err(failed)?;
    }
    Ok(linker)
}
