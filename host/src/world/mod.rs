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
mod columns;
mod console;
pub(crate) mod direct;
mod display;
mod error;
mod format;
mod globals;
mod histogram;
mod histograms;
mod layouts;
pub(crate) mod linker;
mod losses;
mod lower;
mod maps;
mod misses;
mod output;
mod perf;
mod prints;
mod programs;
mod recording;
mod ring;
pub(crate) mod served;
mod settings;
mod stacks;
mod state;
mod streams;
mod symbols;
mod system;
mod table;
pub(crate) mod value;
mod view;
pub(crate) mod wasi;
pub(crate) mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmtime::component::{Component, HasSelf};

use crate::plugin::{Engine, EngineError, PluginError, interface_name};

pub use audit::Audit;
pub(crate) use audit::AuditEntry;
pub(crate) use budget::PERIOD;
pub use budget::Share;
pub use histogram::{Histogram, HistogramSlot};
pub(crate) use linker::Answers;
pub use recording::Calls;
pub(crate) use served::Served;
pub use settings::{SettingError, Settings};
pub use stacks::{StackMap, StackRequest};
pub use state::State;
pub use streams::{Form, Said, said_as_json};
pub use view::{Cell, ShownColumn, ShownRow, ShownTable, View};

/// Returns a linker with those functions of the world that a plugin imports.
///
/// # Errors
/// If two interfaces define the same name, which a test would detect.
pub(crate) fn linker(
    engine: &Engine,
    answers: Answers,
    imported: &Arc<BTreeSet<String>>,
) -> Result<wasmtime::component::Linker<State>, EngineError> {
    let linker = linker::Linker::new(engine.linker()?, answers, Arc::clone(imported), State::called);
    let (mut linker, numbers) = with_bindings(linker)?.into_inner().ok_or_else(no_linker)?;
    match answers {
        Answers::Host => lower::add_to_linker(&mut linker).map_err(failed)?,
        Answers::Broker => {
            lower::add_to_linker_of_worker(&mut linker, &numbers).map_err(failed)?;
            ring::worker::add_to_linker_of_worker(&mut linker, &numbers).map_err(failed)?;
        }
        // These need the functions of the bindings, which the recording linker wraps.
        Answers::Recorded | Answers::Replayed => {}
    }
    Ok(linker)
}

/// Returns a linker as [`linker`], with what a component imports of WASI, too.
///
/// # Errors
/// [`PluginError::Component`].
pub(crate) fn linker_for(
    engine: &Engine,
    answers: Answers,
    imported: &Arc<BTreeSet<String>>,
    (imports, component): (&[String], &Component),
) -> Result<wasmtime::component::Linker<State>, PluginError> {
    let mut linker = linker(engine, answers, imported)?;
    if imports.iter().any(|import| wasi::is_wasi(import)) {
        wasi::add(&mut linker, component)
            .map_err(|error| PluginError::Component(format!("its imports of WASI: {error:#}")))?;
    }
    Ok(linker)
}

/// Returns the functions that a worker calls whose plugin imports this.
///
/// # Errors
/// As for [`linker`].
pub(crate) fn served(answers: Answers, imports: &[String]) -> Result<Served<State>, EngineError> {
    let interfaces: BTreeSet<String> = imports
        .iter()
        .filter(|import| !wasi::is_wasi(import))
        .map(|import| interface_name(import).to_owned())
        .collect();
    let polls = interfaces.contains("ring");
    let linker = linker::Linker::serving(answers, Arc::new(interfaces), State::called);
    let mut served = with_bindings(linker)?.into_served().ok_or_else(no_linker)?;
    if polls {
        ring::worker::serve(&mut served);
    }
    if imports.iter().any(|import| wasi::is_wasi(import)) {
        wasi::effects::serve(&mut served);
    }
    Ok(served)
}

fn with_bindings(mut linker: linker::Linker<State>) -> Result<linker::Linker<State>, EngineError> {
    bindings::Plugin::add_to_linker::<State, HasSelf<State>>(&mut linker, State::called).map_err(failed)?;
    Ok(linker)
}

fn failed(error: wasmtime::Error) -> EngineError {
    EngineError(format!("{error:#}"))
}

fn no_linker() -> EngineError {
    EngineError("it links for another process".to_owned())
}
