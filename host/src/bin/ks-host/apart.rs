//! Work that this command does in separate processes without rights: compiling plugins, and reading them for
//! `ks-host check` and `ks-host inspect`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use ks_host::Host;
use ks_host::apart::{self, Apart, ApartError, Bounds};
use ks_host::bpf::Needs;
use ks_host::confine::ReaderFiles;
use ks_host::plugin::{Cache, MAX_PLUGIN_BYTES, Plugin, compiler};
use ks_host::worker::WorkerProgram;
use ks_wit::command_output::shown;
use ks_wit::manifest::StructOps;
use serde::{Deserialize, Serialize};

#[cfg(feature = "script")]
use crate::script;
use crate::{inspect, tools};

/// This program, even if its file was replaced or removed since the start.
pub(crate) const SELF: &str = "/proc/self/exe";

/// First argument of a process that reads a plugin for `ks-host check`.
const READ: &str = "read-for-host";

/// First argument of a process that shows a plugin for `ks-host inspect`.
const SHOW: &str = "show-for-host";

/// Limits for reading one plugin; reading takes far less.
const READING: Bounds =
    Bounds { memory: 4 << 30, time: Duration::from_secs(60), threads: 1, answer: 64 << 20 };

/// Where plugins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Isolation {
    /// On threads of ks-host: they share its memory, and reach it without a message.
    Thread,
    /// Each in a process of its own, which has no rights but a socket to ks-host.
    Process,
}

impl Isolation {
    /// Returns how this host runs plugins.
    pub(crate) fn of(host: &Host) -> Isolation {
        if host.has_workers() { Isolation::Process } else { Isolation::Thread }
    }

    /// Returns what starts the processes, and starts the first; none for threads.
    pub(crate) fn workers(self) -> Option<WorkerProgram> {
        (self == Isolation::Process).then(workers_ahead)
    }
}

/// How a script is compiled.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "script"), expect(dead_code, reason = "only the compiler of scripts reads it"))]
pub(crate) struct Compiling<'a> {
    pub(crate) isolation: Isolation,
    /// Where the kernel's types, and what scripts were compiled to, are kept.
    pub(crate) cache: Option<&'a Cache>,
}

impl Compiling<'_> {
    /// Returns how this host compiles scripts.
    pub(crate) fn by(host: &Host) -> Compiling<'_> {
        Compiling { isolation: Isolation::of(host), cache: host.cache() }
    }

    /// Compiles without a cache.
    pub(crate) fn uncached(isolation: Isolation) -> Compiling<'static> {
        Compiling { isolation, cache: None }
    }
}

/// Where plugins run, if the command line does not say it.
pub(crate) const ISOLATION: &str = "KS_HOST_ISOLATION";

/// Starts the process of a worker before the command line is read, if it looks like one that runs a plugin in a process: it
/// takes some milliseconds. If it turns out to be another one, the process ends with this one.
pub(crate) fn start_worker_early(arguments: &[OsString]) {
    let mut before =
        arguments.iter().skip(1).take_while(|argument| *argument != "--" && *argument != "--exec");
    let is_plugin = |argument: &OsString| {
        matches!(Path::new(argument).extension().and_then(OsStr::to_str), Some("wasm" | "ks"))
            || [OsStr::new("-e"), OsStr::new("-")].contains(&argument.as_os_str())
    };
    let first = arguments.get(1);
    let is_tool = first.is_some_and(|first| first == tools::TOOL) && arguments.len() > 2;
    let runs = is_tool
        || first
            .is_some_and(|first| *first == "run" || first.as_bytes().starts_with(b"-") || is_plugin(first));
    let chosen = std::env::var_os(ISOLATION);
    let isolated = chosen.is_none_or(|chosen| chosen == "process")
        && before.clone().all(|argument| *argument != "thread" && *argument != "--isolation=thread");
    if runs && isolated && (is_tool || before.any(is_plugin)) {
        workers_ahead();
    }
}

/// Returns what starts processes, of which one is started already.
fn workers_ahead() -> WorkerProgram {
    static WORKERS: OnceLock<WorkerProgram> = OnceLock::new();
    let workers = WORKERS.get_or_init(WorkerProgram::of_this_program).clone();
    workers.start_ahead();
    workers
}

/// Creates a host that compiles plugins in separate processes with this limit of time and memory, and runs them in
/// `workers`, or on its own threads.
pub(crate) fn host(workers: Option<WorkerProgram>, time: Duration, memory: u64) -> Host {
    let host = workers.map_or_else(Host::of_threads, Host::of_workers);
    host.with_compile_time(time).with_compiler(Apart::new(PathBuf::from(SELF)), memory)
}

/// Runs the task of a helper process if the arguments start one, and returns its exit code; none for any
/// other command line.
pub(crate) fn serve(arguments: &[OsString]) -> Option<u8> {
    let (argument, rest) = arguments.get(1..)?.split_first()?;
    let served = match argument.as_os_str() {
        argument if argument == OsStr::new(compiler::SUBCOMMAND) => compiler::serve(rest),
        argument if argument == OsStr::new(READ) => {
            apart::serve(rest, MAX_PLUGIN_BYTES, ReaderFiles::Nothing, read)
        }
        argument if argument == OsStr::new(SHOW) => {
            apart::serve(rest, MAX_PLUGIN_BYTES + 1, ReaderFiles::OfEverybody, inspect::show)
        }
        #[cfg(feature = "script")]
        argument if argument == OsStr::new(script::process::COMPILE) => script::process::serve(rest),
        _ => return None,
    };
    Some(u8::from(served.is_err()))
}

/// The kernel features that a plugin needs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Asks {
    /// The needs of each object for this machine; there are several if objects are for kernels with other
    /// features.
    pub(crate) objects: Vec<Needs>,
    pub(crate) registers: Vec<StructOps>,
}

/// Reads the needs of the plugin in these bytes, in a process without rights.
pub(crate) fn asks(path: &Path, plugin: Vec<u8>) -> anyhow::Result<Asks> {
    let answer = match Apart::new(PathBuf::from(SELF)).ask(READ, plugin, READING) {
        Err(error @ ApartError::Refused(_)) => anyhow::bail!("{} is not a plugin: {error}", shown(path)),
        answer => answer.with_context(|| format!("cannot read {}", shown(path)))?,
    };
    serde_json::from_slice(&answer)
        .with_context(|| format!("what was read of {} is not understood", shown(path)))
}

/// Shows a plugin in a process without rights. The input is that of [`inspect::show`].
///
/// # Errors
/// If the file is not a plugin; of the process.
pub(crate) fn inspected(path: &Path, input: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    match Apart::new(PathBuf::from(SELF)).ask(SHOW, input, READING) {
        Err(error @ ApartError::Refused(_)) => anyhow::bail!("{} is not a plugin: {error}", shown(path)),
        answer => answer.with_context(|| format!("cannot read {}", shown(path))),
    }
}

fn read(plugin: Vec<u8>) -> Result<Vec<u8>, String> {
    let plugin = Plugin::from_bytes(plugin).map_err(|error| error.to_string())?;
    let objects = plugin.object_set().map_err(|error| error.to_string())?;
    let registers = plugin.manifests().iter().flat_map(|one| &one.struct_ops).cloned().collect();
    let asks = Asks { objects: objects.candidates().map(Needs::of).collect(), registers };
    serde_json::to_vec(&asks).map_err(|error| error.to_string())
}
