//! `ks share`: adds a shared memory to a plugin of another compiler.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ks_compiler::plugin::share::{self, ShareError};
use ks_wit::command_output::shown;

use crate::files::{MOST_PLUGIN_BYTES, write_output};

#[derive(clap::Args)]
pub struct Args {
    /// The plugin, for example one that cargo built
    file: PathBuf,
    /// The file to write, `-` for standard output; by default the plugin is replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The size of the shared memory in MiB; variables and arrays that do not fit are accessed by calls
    #[arg(long, value_name = "MIB", default_value_t = (share::DEFAULT_BYTES >> 20) as u16)]
    mib: u16,
}

/// Adds the memory to the plugin. A plugin that has one stays unchanged.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (file, displayed) = (&args.file, shown(&args.file));
    let plugin =
        ks_wit::files::read(file, MOST_PLUGIN_BYTES).with_context(|| format!("cannot read {displayed}"))?;
    let shared = match share::share(&plugin, u64::from(args.mib) << 20) {
        Ok(shared) => shared,
        Err(ShareError::Shared) => plugin,
        Err(error) => return Err(error).with_context(|| format!("cannot share memory with {displayed}")),
    };
    write_output(args.output.as_ref().unwrap_or(file), &shared)?;
    Ok(ExitCode::SUCCESS)
}
