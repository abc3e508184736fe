//! The canonical writer: an object in, the bytes of an ELF file out.
//!
//! ```text
//! Object -> types (.BTF) -> parts (.maps, variables, structs, externs)
//!     -> code (programs, .text) -> ext (.BTF.ext) -> elf
//! ```
//!
//! It computes every offset, size, index, count, flag, type id and section name. The same object gives the
//! same bytes, and reading them gives the same object.

mod code;
mod elf;
mod ext;
mod parts;
mod types;

use super::model::Object;
use crate::bpf::EncodeError;

/// Reasons for the failure to write an object. An object that was read can always be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A part refers to a missing part, or to one of another kind.
    #[error("the object refers to {0}, which it does not have")]
    Dangling(&'static str),
    /// An instruction has no encoding.
    #[error("function `{name}`: {source}")]
    Encode {
        /// Name of the function.
        name: String,
        /// Why the encoder failed.
        source: EncodeError,
    },
    /// A size or count exceeds the format's 32-bit fields.
    #[error("the object is too large")]
    TooLarge,
    /// The ELF library failed.
    #[error("cannot write the ELF file: {0}")]
    Elf(object::write::Error),
}

/// Writes an object as the bytes of an ELF file.
///
/// # Errors
/// [`WriteError`].
pub fn write(object: &Object) -> Result<Vec<u8>, WriteError> {
    let mut table = types::Table::new(&object.types)?;
    let layout = parts::describe(object, &mut table)?;
    let code = code::lay_out(object)?;
    let ext = ext::write(object, &code, &layout, &mut table)?;
    elf::write(object, &layout, &code, &table.finish()?, &ext)
}

/// Converts to a 32-bit number of the file formats.
fn small(value: usize) -> Result<u32, WriteError> {
    u32::try_from(value).map_err(|_| WriteError::TooLarge)
}
