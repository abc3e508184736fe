//! Shared memory for plugins of other compilers, which support one memory only: `ks share`.
//!
//! ```text
//! component: | .. | core module: exports kernelscript:shared/load-64, .. | .. |
//!         -> | .. | the same with a second memory, and accesses to it in the place of calls | .. |
//! ```
//!
//! The rest of the file is copied byte for byte. [`ks_wit::shared`] defines the module's exports; the host
//! checks the result like the shared memory of a script.

mod module;

use std::ops::Range;

use ks_wit::section;
use wasm_encoder::{Component, RawSection};
use wasmparser::{BinaryReaderError, MemoryType, Parser, Payload};

use self::module::Module;

/// Size of a Wasm page in bytes; mapped objects start at multiples of it.
const PAGE: u64 = 1 << 16;

/// Default size of a shared memory in bytes.
pub const DEFAULT_BYTES: u64 = 16 << 20;

/// Reasons why a plugin gets no shared memory.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The file is not a component.
    #[error("not a WebAssembly component; `wasm-tools component new` makes one of a core module")]
    NotAComponent,
    /// The file is not valid WebAssembly.
    #[error("not a well-formed component: {0}")]
    Malformed(#[from] BinaryReaderError),
    /// No core module exports accesses to shared memory.
    #[error(
        "no core module of it exports accesses to shared memory (`{}load-64`, ..)\n  \
         do: build it with a `ks-guest` that has them, and share before components are composed",
        ks_wit::shared::PREFIX
    )]
    NotAsked,
    /// Several core modules export accesses; each would need its own memory.
    #[error("several core modules of it export accesses to shared memory; a plugin has one shared memory")]
    Several,
    /// The plugin has a shared memory already.
    #[error("it has a shared memory already")]
    Shared,
    /// The plugin is signed, and the change would invalidate the signature.
    #[error("it is signed, and a signature is of every byte\n  do: share it first, then sign it")]
    Signed,
    /// The core module cannot get a shared memory, with the reason.
    #[error("its core module cannot get a shared memory: {0}")]
    Module(String),
    /// The requested size is out of range.
    #[error("a shared memory has {PAGE} bytes to 2 GiB")]
    Size,
}

/// Adds a shared memory of at least `bytes` bytes to a plugin.
///
/// # Errors
/// See [`ShareError`].
pub fn share(plugin: &[u8], bytes: u64) -> Result<Vec<u8>, ShareError> {
    if !Parser::is_component(plugin) {
        return Err(ShareError::NotAComponent);
    }
    let found = FoundModules::scan(plugin)?;
    let (range, module) = match <[_; 1]>::try_from(found.asking) {
        Ok([one]) => one,
        Err(none) if none.is_empty() => return Err(ShareError::NotAsked),
        Err(_) => return Err(ShareError::Several),
    };
    // Address 0 means unmapped, so its page is not used.
    let mut pages = bytes.div_ceil(PAGE).saturating_add(1);
    // The host identifies the shared memory by its size.
    while found.memories.iter().any(|memory| memory.maximum == Some(pages) && memory.initial == pages) {
        pages += 1;
    }
    if bytes < PAGE || pages * PAGE > 2 << 30 {
        return Err(ShareError::Size);
    }
    let shared = module.share(&plugin[range.clone()], pages)?;
    replace(plugin, &range, &shared)
}

/// Returns whether a plugin requests a shared memory that it does not have yet.
///
/// # Errors
/// As [`share`], for files that are not components.
pub fn asks(plugin: &[u8]) -> Result<bool, ShareError> {
    if !Parser::is_component(plugin) {
        return Err(ShareError::NotAComponent);
    }
    match FoundModules::scan(plugin) {
        Ok(found) => Ok(!found.asking.is_empty()),
        Err(ShareError::Shared | ShareError::Signed) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Modules and memories found in one traversal of the component.
#[derive(Default)]
struct FoundModules<'a> {
    /// Modules that export accesses, each with its byte range.
    asking: Vec<(Range<usize>, Module<'a>)>,
    /// Memories of all modules.
    memories: Vec<MemoryType>,
}

impl<'a> FoundModules<'a> {
    fn scan(plugin: &'a [u8]) -> Result<FoundModules<'a>, ShareError> {
        let mut found = FoundModules::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(plugin) {
            match payload? {
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ModuleSection { unchecked_range: range, .. } if depth == 1 => {
                    let module = Module::read(&plugin[range.clone()])?;
                    if module.has_accesses() {
                        found.asking.push((range, module));
                    }
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        found.memories.push(memory?);
                    }
                }
                Payload::CustomSection(custom) if custom.name() == section::SHARED_MEMORY => {
                    return Err(ShareError::Shared);
                }
                Payload::CustomSection(custom) if custom.name() == section::SIGNATURE && depth == 1 => {
                    return Err(ShareError::Signed);
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

/// Returns the component with the bytes of one module replaced.
fn replace(plugin: &[u8], module: &Range<usize>, with: &[u8]) -> Result<Vec<u8>, ShareError> {
    let mut component = Component::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(plugin) {
        let payload = payload?;
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ => {}
        }
        // The contents of modules and components are copied with their sections.
        let (1, Some((id, range))) = (depth, payload.as_section()) else { continue };
        let data = if range == *module { with } else { &plugin[range] };
        component.section(&RawSection { id, data });
    }
    Ok(component.finish())
}
