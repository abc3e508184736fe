//! The commands of this build, as a user runs them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Returns the path of `ks` or `ks-host` of this build, two folders above the bench.
///
/// # Errors
/// If it is not built.
pub fn path(name: &str) -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let folder = bench.parent().and_then(Path::parent).context("a bench lies below the target folder")?;
    let command = folder.join(name);
    ensure!(command.exists(), "{} is not built: run `make bench`", command.display());
    Ok(command)
}
