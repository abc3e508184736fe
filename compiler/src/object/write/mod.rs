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

use std::collections::BTreeMap;

use super::model::{Ksym, KsymId, Object};
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

/// Functions of the kernel, by what stands for them in an object, with their ids in the types of a running kernel.
pub type KernelFunctionIds = BTreeMap<KsymId, i32>;

/// Writes an object as the bytes of an ELF file.
///
/// # Errors
/// [`WriteError`].
pub fn write(object: &Object) -> Result<Vec<u8>, WriteError> {
    write_for(object, &KernelFunctionIds::new())
}

/// Like [`write()`], for one kernel: calls of these functions are what a loader would make of them, so that it need not look
/// them up. Their addresses are not taken.
///
/// # Errors
/// [`WriteError`].
pub fn write_for(object: &Object, functions: &KernelFunctionIds) -> Result<Vec<u8>, WriteError> {
    let mut table = types::Table::new(&object.types)?;
    let layout = parts::describe(object, &mut table, functions)?;
    let code = code::lay_out(object, functions)?;
    let ext = ext::write(object, &code, &layout, &mut table)?;
    elf::write(object, functions, &layout, &code, &table.finish()?, &ext)
}

impl Object {
    /// What of the kernel is still to be looked up, with its position.
    fn ksyms_but(&self, functions: &KernelFunctionIds) -> impl Iterator<Item = (usize, &Ksym)> {
        let number = |at: usize| KsymId(u32::try_from(at).unwrap_or(u32::MAX));
        self.ksyms.iter().enumerate().filter(move |(at, _)| !functions.contains_key(&number(*at)))
    }
}

/// Converts to a 32-bit number of the file formats.
fn small(value: usize) -> Result<u32, WriteError> {
    u32::try_from(value).map_err(|_| WriteError::TooLarge)
}
