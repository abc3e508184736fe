//! Prepares plugins from their files.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ks_host::{Host, PreparedPlugin};
use ks_wit::command_output::shown;
use sha2::{Digest, Sha256};

use crate::apart::Isolation;
use crate::{not_a_plugin, progress, read_plugin};

/// A plugin that can run, and the digest of its file.
pub(crate) struct Prepared {
    pub(crate) plugin: PreparedPlugin,
    /// SHA-256 of the plugin's bytes, to detect a changed file.
    pub(crate) digest: [u8; 32],
}

/// The error was reported on standard error already.
#[derive(Debug)]
pub(crate) struct Reported {
    /// The exit code for it.
    pub(crate) code: u8,
}

/// Prepares all plugins, on as many threads as there are CPUs.
pub(crate) fn all(host: &Host, paths: &[PathBuf]) -> Result<Vec<Prepared>, Reported> {
    match paths {
        [path] => one(host, path).map(|prepared| vec![prepared]),
        paths => {
            let what = format!("compiling {} plugins", paths.len());
            progress::during(&what, || in_parallel(host, paths))
        }
    }
}

/// Prepares one plugin.
pub(crate) fn one(host: &Host, path: &Path) -> Result<Prepared, Reported> {
    progress::during(&format!("compiling {}", shown(path)), || read_and_prepare(host, path))
}

fn in_parallel(host: &Host, paths: &[PathBuf]) -> Result<Vec<Prepared>, Reported> {
    let results: Vec<_> = paths.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(paths.len()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(path), Some(result)) = (paths.get(index), results.get(index)) else { return };
                    *result.lock().expect("nobody panics with the lock") = Some(read_and_prepare(host, path));
                }
            });
        }
    });
    let result = |result: Mutex<Option<_>>| {
        result.into_inner().expect("nobody panics").expect("every index had a worker")
    };
    results.into_iter().map(result).collect()
}

fn read_and_prepare(host: &Host, path: &Path) -> Result<Prepared, Reported> {
    let plugin = read_plugin(path, Isolation::of(host)).map_err(|code| Reported { code })?;
    let digest = Sha256::digest(plugin.bytes()).into();
    prepare(host, path, &plugin, digest)
}

/// Prepares a file again if its digest differs from this one; returns none if it is the same.
pub(crate) fn changed(host: &Host, path: &Path, digest: [u8; 32]) -> Result<Option<Prepared>, Reported> {
    let plugin = read_plugin(path, Isolation::of(host)).map_err(|code| Reported { code })?;
    let now: [u8; 32] = Sha256::digest(plugin.bytes()).into();
    if now == digest { Ok(None) } else { prepare(host, path, &plugin, now).map(Some) }
}

fn prepare(
    host: &Host,
    path: &Path,
    plugin: &ks_host::plugin::Plugin,
    digest: [u8; 32],
) -> Result<Prepared, Reported> {
    match host.prepare(plugin) {
        Ok(plugin) => Ok(Prepared { plugin, digest }),
        Err(error) => Err(Reported { code: not_a_plugin(path, &error) }),
    }
}
