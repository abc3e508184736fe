//! What scripts were compiled to, in the cache: a script that was compiled before is not compiled again.
//!
//! An entry has the warnings, too. It belongs to the text and to all else that decides the plugin: the name, which messages
//! and the manifest have, this program, and the kernel. A script that names other files is compiled each time, and so is
//! one with errors.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use ks_host::plugin::{Cache, running_kernel};
use sha2::{Digest, Sha256};

use super::process::{framed, unframed};
use super::{CompileOutcome, Compiled, Request};
use crate::apart::SELF;

/// What a script is compiled to, and whether the text alone decided it.
pub(super) struct Fresh {
    pub(super) compiled: Compiled,
    pub(super) plugin: Vec<u8>,
    pub(super) names_files: bool,
}

/// Returns what the cache has for a script; else what `compile` returns, which is kept.
///
/// # Errors
/// Of compiling.
pub(super) fn or_compiled(
    request: &Request,
    text: &[u8],
    cache: Option<&Cache>,
    compile: impl FnOnce() -> anyhow::Result<Fresh>,
) -> anyhow::Result<(Compiled, Vec<u8>)> {
    let entry = cache.and_then(|cache| Some((cache, digest(request, text).ok()?)));
    if let Some((cache, digest)) = &entry
        && let Some(kept) = cache.script(digest)
        && let Ok((compiled, plugin)) = unframed::<Compiled>(&kept)
    {
        return Ok((Compiled { has_read_types: false, ..compiled }, plugin.to_vec()));
    }
    let Fresh { compiled, plugin, names_files } = compile()?;
    if let Some((cache, digest)) = entry
        && !names_files
        && matches!(compiled.outcome, CompileOutcome::Plugin)
        && let Err(error) = cache.keep_script(&digest, &framed(&compiled, [plugin.as_slice()])?)
    {
        tracing::debug!(target: "ks_host", "{error}");
    }
    Ok((compiled, plugin))
}

/// Returns the digest of all that decides what a script without other files is compiled to.
fn digest(request: &Request, text: &[u8]) -> io::Result<[u8; 32]> {
    let request = serde_json::to_vec(request)?;
    // Another build of this program has another time of change, wherever it is installed.
    let program = fs::metadata(SELF)?;
    let numbers = [
        program.dev(),
        program.ino(),
        program.len(),
        program.ctime().cast_unsigned(),
        program.ctime_nsec().cast_unsigned(),
        request.len() as u64,
    ];
    let digest =
        numbers.iter().fold(Sha256::new(), |digest, number| digest.chain_update(number.to_le_bytes()));
    Ok(digest.chain_update(running_kernel()?).chain_update(request).chain_update(text).finalize().into())
}
