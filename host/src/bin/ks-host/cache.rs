//! Selection of the cache of compiled code, and `ks-host precompile`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ks_host::Host;
use ks_host::bpf::kernel_types_were_read;
use ks_host::plugin::{Cache, CacheError, CodeOrigin};
use ks_host::policy::{Limit, Policy};
use ks_wit::command_output::{shown, write_lines, write_stderr};

use crate::prepare::Source;
use crate::{apart, prepare};

/// Returns the host with the cache in this folder, by default this user's. A plugin also runs without a
/// cache: the reason why there is none is printed only if a folder was named.
pub(crate) fn use_in(host: Host, folder: Option<&Path>) -> Host {
    match open(folder) {
        Some(Ok(cache)) => host.with_cache(cache),
        Some(Err(error)) if folder.is_some() => {
            write_stderr(format_args!("ks-host: {error}"));
            host
        }
        Some(Err(error)) => {
            tracing::debug!(target: "ks_host", "{error}");
            host
        }
        None => host,
    }
}

/// Keeps the running kernel's types in the cache in this folder if this process had to read them: later ones then need not.
pub(crate) fn keep_types_that_were_read(folder: &Path) {
    if !kernel_types_were_read() {
        return;
    }
    if let Err(error) = Cache::open(folder).and_then(|cache| cache.keep_types()) {
        tracing::debug!(target: "ks_host", "{error}");
    }
}

fn open(folder: Option<&Path>) -> Option<Result<Cache, CacheError>> {
    let default = || Cache::default_folder(|name| std::env::var_os(name).map(PathBuf::from));
    folder.map(Path::to_owned).or_else(default).map(|folder| Cache::open(&folder))
}

/// Arguments of `ks-host precompile`.
#[derive(Debug, clap::Args)]
pub(crate) struct PrecompileArgs {
    /// Plugin files, or scripts (`.ks`).
    #[arg(required = true, value_name = "PLUGIN")]
    plugins: Vec<PathBuf>,
    /// Keeps compiled code in this folder instead of this user's; name it with --cache when the plugin is
    /// run.
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
}

/// Compiles plugins into the cache, so that the first run starts as fast as later ones. There is no time
/// limit. The exit code is 127 if a file is not a plugin.
pub(crate) fn precompile(args: PrecompileArgs) -> anyhow::Result<u8> {
    let cache = open(args.cache.as_deref());
    let cache = cache.context("no home folder to keep compiled code in: name one with --cache")??;
    let folder = shown(cache.path());
    let host =
        apart::host(None, Duration::MAX, Policy::observing().limit(Limit::CompileBytes)).with_cache(cache);
    let sources: Vec<_> = args.plugins.iter().cloned().map(Source::from).collect();
    let prepared = match prepare::all(&host, &sources) {
        Ok(prepared) => prepared,
        Err(reported) => return Ok(reported.code),
    };
    for (path, prepared) in args.plugins.iter().zip(prepared) {
        let came = match prepared.plugin.code() {
            CodeOrigin::Cached => "was there",
            CodeOrigin::Stored => "compiled",
            CodeOrigin::Compiled => bail!("{} was compiled without a cache", shown(path)),
            CodeOrigin::NotStored(error) => bail!("{error}"),
        };
        write_lines(&format!("{}: {came}, in {folder}\n", shown(path)))?;
    }
    Ok(0)
}
