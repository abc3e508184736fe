//! A shared memory for plugins that other compilers made, which know one memory: `ks share`.
//!
//! ```text
//! component: | .. | core module: exports kernelscript:shared/load-64, .. | .. |
//!         -> | .. | the same with a second memory, and accesses to it in the place of calls | .. |
//! ```
//!
//! All else of the file stays as it is, byte by byte. What the module exports is defined by [`ks_wit::shared`]; what comes
//! out is checked by the host as the shared memory of a script is.

mod module;

use std::ops::Range;

use ks_wit::section;
use wasm_encoder::{Component, RawSection};
use wasmparser::{BinaryReaderError, MemoryType, Parser, Payload};

use self::module::Module;

/// Bytes of a page of Wasm; what is mapped begins at multiples of them.
const PAGE: u64 = 1 << 16;

/// Bytes of a shared memory unless another number is asked for.
pub const DEFAULT_BYTES: u64 = 16 << 20;

/// Why a plugin gets no shared memory.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// Not a component.
    #[error("not a WebAssembly component; `wasm-tools component new` makes one of a core module")]
    NotAComponent,
    /// Broken WebAssembly.
    #[error("not a well-formed component: {0}")]
    Malformed(#[from] BinaryReaderError),
    /// Nobody would use it.
    #[error(
        "no core module of it exports accesses to shared memory (`{}load-64`, ..)\n  do: build it with a `ks-guest` that \
         has them, and share before components are composed",
        ks_wit::shared::PREFIX
    )]
    NotAsked,
    /// Each would need a memory.
    #[error("several core modules of it export accesses to shared memory; a plugin has one shared memory")]
    Several,
    /// It has one.
    #[error("it has a shared memory already")]
    Shared,
    /// The signature would not fit any more.
    #[error("it is signed, and a signature is of every byte\n  do: share it first, then sign it")]
    Signed,
    /// The module is none that can get one.
    #[error("its core module cannot get a shared memory: {0}")]
    Module(String),
    /// A size that no memory has.
    #[error("a shared memory has {PAGE} bytes to 2 GiB")]
    Size,
}

/// Gives a plugin a shared memory of at least so many bytes.
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
    // Address 0 is no place, and neither is the rest of its page.
    let mut pages = bytes.div_ceil(PAGE).saturating_add(1);
    // The host tells it from others by its size.
    while found.memories.iter().any(|memory| memory.maximum == Some(pages) && memory.initial == pages) {
        pages += 1;
    }
    if bytes < PAGE || pages * PAGE > 2 << 30 {
        return Err(ShareError::Size);
    }
    let shared = module.share(&plugin[range.clone()], pages)?;
    replace(plugin, &range, &shared)
}

/// Whether a plugin asks for a shared memory that it has not yet.
///
/// # Errors
/// As [`share`], for what is no component.
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

/// What one walk over the component finds.
#[derive(Default)]
struct FoundModules<'a> {
    /// The modules that export accesses, each with the place of its bytes.
    asking: Vec<(Range<usize>, Module<'a>)>,
    /// The memories of all modules.
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

/// The component with other bytes for the module that lies there.
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
        // What lies inside of modules and components goes with their sections.
        let (1, Some((id, range))) = (depth, payload.as_section()) else { continue };
        let data = if range == *module { with } else { &plugin[range] };
        component.section(&RawSection { id, data });
    }
    Ok(component.finish())
}
