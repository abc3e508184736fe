//! Prepares plugins from their files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ks_host::plugin::{Plugin, PluginError};
use ks_host::{Host, PreparedPlugin};
use ks_wit::command_output::shown;
use sha2::{Digest, Sha256};

use crate::apart::Compiling;
use crate::{not_a_plugin, progress, read_plugin};

/// A plugin that can run, and the digest of its file.
pub(crate) struct Prepared {
    pub(crate) plugin: PreparedPlugin,
    /// SHA-256 of the plugin's bytes, to detect a changed file.
    pub(crate) digest: [u8; 32],
}

/// A plugin to prepare: a file, or a script without one.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The path of the file; for a script without one its name in messages.
    pub(crate) path: PathBuf,
    /// The text of a script that has no file.
    pub(crate) script: Option<Arc<[u8]>>,
    /// Whether it is a tool of `ks-host tools`.
    pub(crate) is_tool: bool,
    /// How often a script without `main` prints what it keeps; none: at its end.
    pub(crate) refresh: Option<Duration>,
}

impl Source {
    /// A script that has no file.
    pub(crate) fn script(name: &str, text: Vec<u8>) -> Source {
        Source { path: PathBuf::from(name), script: Some(text.into()), is_tool: false, refresh: None }
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        Source { path, script: None, is_tool: false, refresh: None }
    }
}

/// The error was reported on standard error already.
#[derive(Debug)]
pub(crate) struct Reported {
    /// The exit code for it.
    pub(crate) code: u8,
}

/// Prepares all plugins, on as many threads as there are CPUs.
pub(crate) fn all(host: &Host, sources: &[Source]) -> Result<Vec<Prepared>, Reported> {
    match sources {
        [source] => one(host, source).map(|prepared| vec![prepared]),
        sources => {
            let what = format!("compiling {} plugins", sources.len());
            progress::during(&what, || in_parallel(host, sources))
        }
    }
}

/// Prepares one plugin.
pub(crate) fn one(host: &Host, source: &Source) -> Result<Prepared, Reported> {
    progress::during(&format!("compiling {}", shown(&source.path)), || {
        read_and_prepare(host, source, Host::begin)
    })
}

fn in_parallel(host: &Host, sources: &[Source]) -> Result<Vec<Prepared>, Reported> {
    let results: Vec<_> = sources.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(sources.len()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(source), Some(result)) = (sources.get(index), results.get(index)) else {
                        return;
                    };
                    *result.lock().expect("nobody panics with the lock") =
                        Some(read_and_prepare(host, source, Host::prepare));
                }
            });
        }
    });
    let result = |result: Mutex<Option<_>>| {
        result.into_inner().expect("nobody panics").expect("every index had a worker")
    };
    results.into_iter().map(result).collect()
}

/// Prepares a plugin again whose code in the cache is of another engine.
pub(crate) fn anew(host: &Host, source: &Source) -> Result<Prepared, Reported> {
    read_and_prepare(host, source, Host::prepare)
}

/// How a host prepares a plugin.
type Prepare = fn(&Host, &Plugin) -> Result<PreparedPlugin, PluginError>;

fn read_and_prepare(host: &Host, source: &Source, prepare: Prepare) -> Result<Prepared, Reported> {
    let plugin = read_plugin(source, Compiling::by(host)).map_err(|code| Reported { code })?;
    let digest = Sha256::digest(plugin.bytes()).into();
    prepared(&source.path, prepare(host, &plugin), digest)
}

/// Prepares a file again if its digest differs from this one; returns none if it is the same.
pub(crate) fn changed(host: &Host, source: &Source, digest: [u8; 32]) -> Result<Option<Prepared>, Reported> {
    if source.script.is_some() {
        return Ok(None);
    }
    let plugin = read_plugin(source, Compiling::by(host)).map_err(|code| Reported { code })?;
    let now: [u8; 32] = Sha256::digest(plugin.bytes()).into();
    if now == digest { Ok(None) } else { prepared(&source.path, host.prepare(&plugin), now).map(Some) }
}

fn prepared(
    path: &Path,
    result: Result<PreparedPlugin, PluginError>,
    digest: [u8; 32],
) -> Result<Prepared, Reported> {
    match result {
        Ok(plugin) => Ok(Prepared { plugin, digest }),
        Err(error) => Err(Reported { code: not_a_plugin(path, &error) }),
    }
}
