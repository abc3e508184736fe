//! The plugin file: a component around the core module, with the BPF objects and the manifest in custom sections.

mod component;
pub mod contract;
pub mod manifest;
mod shim;
mod stacks;
#[cfg(test)]
mod tests;
mod types;

use ks_wit::manifest::Manifest;
use ks_wit::section::{self, BpfRecord};
use wasm_encoder::{ComponentSection, CustomSection};
use wasmparser::Validator;

use self::contract::World;
use crate::kernel::Checks;

/// Why no plugin file could be made. Both are mistakes of this compiler, or programs beyond what Wasm allows.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The core module does not fit the contract, or is not valid Wasm.
    #[error("the userspace half does not make a component: {0}")]
    Component(String),
    /// The manifest is not JSON.
    #[error("the manifest cannot be written: {0}")]
    Manifest(#[from] serde_json::Error),
    /// A BPF object or manifest above [`section::MAX_RECORD_BYTES`].
    #[error(
        "{what} has {len} bytes; a plugin file holds at most {} in one record",
        section::MAX_RECORD_BYTES
    )]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        len: usize,
    },
}

/// Makes the plugin file. Same input, same bytes.
///
/// # Errors
/// See [`PluginError`].
pub fn assemble(
    core: &[u8],
    bpf: &[BpfRecord],
    manifest: &Manifest,
    checks: Checks,
) -> Result<Vec<u8>, PluginError> {
    let world = if manifest.tests.is_empty() { World::Plugin } else { World::TestPlugin };
    let mut plugin = component::component(core, world)?;
    if checks == Checks::EveryStage {
        let valid = Validator::new().validate_all(&plugin);
        valid.map_err(|error| PluginError::Component(error.to_string()))?;
    }
    if !bpf.is_empty() {
        let records = bpf.iter().map(BpfRecord::to_bytes).collect::<Vec<_>>();
        append(&mut plugin, section::BPF, "a BPF object", &records)?;
    }
    append(&mut plugin, section::MANIFEST, "the manifest", &[serde_json::to_vec(manifest)?])?;
    Ok(plugin)
}

fn append(
    plugin: &mut Vec<u8>,
    name: &str,
    what: &'static str,
    records: &[Vec<u8>],
) -> Result<(), PluginError> {
    let mut data = Vec::new();
    for record in records {
        if record.len() > section::MAX_RECORD_BYTES {
            return Err(PluginError::TooLong { what, len: record.len() });
        }
        section::push_record(&mut data, record);
    }
    CustomSection { name: name.into(), data: data.into() }.append_to_component(plugin);
    Ok(())
}
