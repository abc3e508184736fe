//! What this command does in processes of its own, which have no rights: compiling plugins, and reading them for others.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ks_host::Host;
use ks_host::apart::{self, Apart, ApartError, Bounds};
use ks_host::bpf::Needs;
use ks_host::plugin::{MAX_PLUGIN_BYTES, Plugin, compiler};
use ks_wit::manifest::StructOps;
use serde::{Deserialize, Serialize};

/// This program, also if its file was replaced or removed meanwhile.
const SELF: &str = "/proc/self/exe";

/// The word of a process that reads a plugin for `ks-host check`.
const READ: &str = "read-for-host";

/// What reading a plugin may take: far more than it does.
const READING: Bounds = Bounds { memory: 4 << 30, time: Duration::from_secs(60), answer: 64 << 20 };

/// A host whose plugins are compiled apart, in so much time and memory.
pub(crate) fn host(time: Duration, memory: u64) -> anyhow::Result<Host> {
    Ok(Host::new()?.with_compile_time(time).with_compiler(Apart::new(PathBuf::from(SELF)), memory))
}

/// Does what a process is for, if its words say that it was started so; the exit code then.
pub(crate) fn serve(arguments: &[OsString]) -> Option<u8> {
    let (argument, rest) = arguments.get(1..)?.split_first()?;
    let served = match argument.as_os_str() {
        argument if argument == OsStr::new(compiler::SUBCOMMAND) => compiler::serve(rest),
        argument if argument == OsStr::new(READ) => apart::serve(rest, MAX_PLUGIN_BYTES, read),
        _ => return None,
    };
    Some(u8::from(served.is_err()))
}

/// What a plugin asks the kernel for.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Asks {
    /// Of each object for this machine: they are for kernels with other features.
    pub(crate) objects: Vec<Needs>,
    pub(crate) registers: Vec<StructOps>,
}

/// What the plugin in these bytes asks the kernel for, read in a process without rights.
pub(crate) fn asks(path: &Path, plugin: Vec<u8>) -> anyhow::Result<Asks> {
    let answer = match Apart::new(PathBuf::from(SELF)).ask(READ, plugin, READING) {
        Err(ApartError::Refused(reason)) => anyhow::bail!("{} is not a plugin: {reason}", path.display()),
        answer => answer.with_context(|| format!("cannot read {}", path.display()))?,
    };
    serde_json::from_slice(&answer)
        .with_context(|| format!("what was read of {} is not understood", path.display()))
}

fn read(plugin: Vec<u8>) -> Result<Vec<u8>, String> {
    let plugin = Plugin::from_bytes(plugin).map_err(|error| error.to_string())?;
    let objects = plugin.object_set().map_err(|error| error.to_string())?;
    let registers = plugin.manifests().iter().flat_map(|one| &one.struct_ops).cloned().collect();
    let asks = Asks { objects: objects.candidates().map(Needs::of).collect(), registers };
    serde_json::to_vec(&asks).map_err(|error| error.to_string())
}

/// Drops the rights of this process before it reads what a stranger wrote.
pub(crate) fn drop_rights() -> anyhow::Result<()> {
    apart::drop_rights(READING.memory, READING.time.as_secs())
        .context("cannot drop the rights of this process")
}
