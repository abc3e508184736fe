//! The plugin file: a component around the core module, with the BPF objects and the manifest in custom
//! sections.

mod component;
pub mod contract;
pub mod manifest;
pub mod share;
mod shim;
#[cfg(test)]
mod tests;
mod types;

use ks_wit::manifest::Manifest;
use ks_wit::section::{self, BpfRecord};
use wasm_encoder::{ComponentSection, CustomSection};
use wasmparser::{Parser, Validator};

use self::contract::World;
use crate::kernel::Checks;

/// Reasons for the failure to build a plugin file. Except for foreign components, these are bugs of this
/// compiler, or programs beyond the limits of Wasm.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The core module does not fit the contract, or is not valid Wasm.
    #[error("the userspace half does not make a component: {0}")]
    Component(String),
    /// The replacement of the userspace half is not a component.
    #[error("not a WebAssembly component; `wasm-tools component new` makes one of a core module")]
    NotAComponent,
    /// The component requests a shared memory and cannot get it.
    #[error("the component cannot get a shared memory: {0}")]
    Share(#[from] share::ShareError),
    /// The manifest cannot be serialised as JSON.
    #[error("the manifest cannot be written: {0}")]
    Manifest(#[from] serde_json::Error),
    /// A BPF object or manifest above [`section::MAX_RECORD_BYTES`].
    #[error(
        "{what} has {len} bytes; a plugin file holds at most {} in one record",
        section::MAX_RECORD_BYTES
    )]
    TooLong {
        /// Name of the record.
        what: &'static str,
        /// Length in bytes.
        len: usize,
    },
}

/// Builds the plugin file. The same input gives the same bytes.
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
    append_sections(&mut plugin, bpf, manifest)?;
    Ok(plugin)
}

/// Builds a plugin file around a component of another tool, which replaces the userspace half. A component
/// that requests a shared memory gets it.
///
/// # Errors
/// See [`PluginError`]; [`PluginError::NotAComponent`] if it is none.
pub fn assemble_around(
    component: Vec<u8>,
    bpf: &[BpfRecord],
    manifest: &Manifest,
) -> Result<Vec<u8>, PluginError> {
    if !Parser::is_component(&component) {
        return Err(PluginError::NotAComponent);
    }
    // Events, tests and targets belong to the script's userspace half, which the component replaces.
    let mut manifest = Manifest { events: Vec::new(), tests: Vec::new(), ..manifest.clone() };
    manifest.programs.iter_mut().for_each(|program| program.targets = None);
    let mut plugin =
        if share::asks(&component)? { share::share(&component, share::DEFAULT_BYTES)? } else { component };
    append_sections(&mut plugin, bpf, &manifest)?;
    Ok(plugin)
}

/// Returns the content of the section [`section::MANIFEST`], for a plugin that another tool assembles.
///
/// # Errors
/// [`PluginError::TooLong`].
pub fn manifest_section(manifest: &Manifest) -> Result<Vec<u8>, PluginError> {
    section_of("the manifest", &[serde_json::to_vec(manifest)?])
}

fn append_sections(plugin: &mut Vec<u8>, bpf: &[BpfRecord], manifest: &Manifest) -> Result<(), PluginError> {
    if !bpf.is_empty() {
        let records = bpf.iter().map(BpfRecord::to_bytes).collect::<Vec<_>>();
        append(plugin, section::BPF, "a BPF object", &records)?;
    }
    append(plugin, section::MANIFEST, "the manifest", &[serde_json::to_vec(manifest)?])
}

fn append(
    plugin: &mut Vec<u8>,
    name: &str,
    what: &'static str,
    records: &[Vec<u8>],
) -> Result<(), PluginError> {
    CustomSection { name: name.into(), data: section_of(what, records)?.into() }.append_to_component(plugin);
    Ok(())
}

fn section_of(what: &'static str, records: &[Vec<u8>]) -> Result<Vec<u8>, PluginError> {
    let mut data = Vec::new();
    for record in records {
        if record.len() > section::MAX_RECORD_BYTES {
            return Err(PluginError::TooLong { what, len: record.len() });
        }
        section::push_record(&mut data, record);
    }
    Ok(data)
}
