//! Compiles in a separate process ([`crate::apart`]).
//!
//! The code that it sends is trusted like code that this process compiled: a component that can compromise
//! the compiler would have compromised this process otherwise.

use std::ffi::OsString;
use std::io;
use std::thread;
use std::time::Duration;

use super::engine::{COMPILER_STACK_BYTES, Engine, engine_words};
use super::file::{MAX_PLUGIN_BYTES, PluginError};
use crate::apart::{self, Apart, ApartError, Bounds};
use crate::confine::ReaderFiles;
use crate::policy::Limit;

/// First argument of a process that compiles.
pub const SUBCOMMAND: &str = "compile-for-host";

/// Limit on the bytes of compiled code. Guards the host: code has some ten times the bytes of its component.
const MAX_CODE_BYTES: u64 = 16 * MAX_PLUGIN_BYTES;

/// Limit on the threads that compile one component: each takes 128 MiB of address space and more.
const MAX_THREADS: u32 = 4;

/// Compiles a component in a separate process.
///
/// # Errors
/// [`PluginError::Component`] if it is not valid, or takes more memory; [`PluginError::CompileTime`].
pub(super) fn compile(
    apart: &Apart,
    component: Vec<u8>,
    time: Duration,
    memory: u64,
) -> Result<Vec<u8>, PluginError> {
    let bounds = Bounds { memory, time, threads: threads(), answer: MAX_CODE_BYTES };
    apart.ask(SUBCOMMAND, component, bounds).map_err(|error| match error {
        ApartError::Refused(reason) => PluginError::Component(reason),
        ApartError::Time => {
            let number = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            PluginError::CompileTime(Limit::CompileMs.reached(number))
        }
        ApartError::Died(_) => PluginError::Component(format!(
            "{error}, most likely because compiling takes more memory than it may: {}",
            Limit::CompileBytes.reached(memory)
        )),
        ApartError::Io { .. } => PluginError::Component(format!("cannot compile it: {error}")),
    })
}

/// The threads that compile one component.
fn threads() -> u32 {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    u32::try_from(cpus).unwrap_or(MAX_THREADS).min(MAX_THREADS)
}

/// Ends the compiling process, which has no memory for the stacks of its threads: like one that has none for the code.
fn end_without_threads() -> ! {
    std::process::exit(1)
}

/// Runs the compiling process: reads a component, compiles it, and sends the code. `arguments` follow
/// [`SUBCOMMAND`] on the command line.
///
/// # Errors
/// See [`apart::serve`].
pub fn serve(arguments: &[OsString]) -> io::Result<()> {
    apart::serve(arguments, MAX_PLUGIN_BYTES, ReaderFiles::Nothing, |component| {
        // wasmtime takes this pool, and panics if it cannot start one.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads() as usize).build_global();
        pool.unwrap_or_else(|_| end_without_threads());
        let compile = move || -> Result<Vec<u8>, String> {
            let engine = Engine::of_compiler();
            let inner = engine.inner().map_err(|error| error.to_string())?;
            let compiled = inner.precompile_component(&component);
            compiled.map_err(|error| format!("the component is not valid: {}", engine_words(&error)))
        };
        let compiler = thread::Builder::new().name("compiler".into()).stack_size(COMPILER_STACK_BYTES);
        let compiled = compiler.spawn(compile).unwrap_or_else(|_| end_without_threads());
        let panicked = |_| Err("the compiler of the component has a defect: it panicked".to_owned());
        compiled.join().unwrap_or_else(panicked)
    })
}
