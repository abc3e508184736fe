//! The canonical writer: an object in, the bytes of an ELF file out.
//!
//! ```text
//! Object -> types (.BTF) -> parts (.maps, variables, structs, externs) -> code (programs, .text) -> ext (.BTF.ext) -> elf
//! ```
//!
//! Every offset, size, index, count, flag, type id and name of a section is made here. The same object gives the same
//! bytes, and reading them gives the same object.

mod code;
mod elf;
mod ext;
mod parts;
mod types;

use super::model::Object;
use crate::bpf::EncodeError;

/// Why an object cannot be written. An object that was read always can.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A part refers to another one that does not exist, or is of another kind.
    #[error("the object refers to {0}, which it does not have")]
    Dangling(&'static str),
    /// An instruction has no encoding.
    #[error("function `{name}`: {source}")]
    Encode {
        /// The function.
        name: String,
        /// Why.
        source: EncodeError,
    },
    /// More than the formats' offsets can express.
    #[error("the object is too large")]
    TooLarge,
    /// The ELF file cannot be written.
    #[error("cannot write the ELF file: {0}")]
    Elf(object::write::Error),
}

/// Writes an object.
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

/// A number that the formats hold in 32 bits.
fn small(value: usize) -> Result<u32, WriteError> {
    u32::try_from(value).map_err(|_| WriteError::TooLarge)
}
