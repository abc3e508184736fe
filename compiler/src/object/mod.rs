//! BPF objects: a strict reader, a model of closed types, and a writer.
//!
//! ```text
//! a plugin's ELF -> read -> Object -> (a policy judges it) -> write -> canonical ELF -> libbpf
//! ```
//!
//! libbpf is a loader for trusted objects: it follows offsets, sizes, indices, counts, flags, names and type
//! ids without checking all of them. It therefore never receives an object that a plugin wrote. [`read`]
//! accepts what is documented and what our compiler, clang and Aya write, and rejects the rest with a reason.
//! [`Object`] can represent only accepted content. [`write()`] recomputes every number of the file.
//! `read(write(object)) == object`, and the same object gives the same bytes.
//!
//! [`build`] makes the objects of our own back end, [`btf`] their types; [`btf`] also reads the kernel's.
//!
//! Pure: no system calls, no knowledge of the running kernel. Not here: the policy, and the check that a
//! kernel struct has the members that the object sets; both are in the host.

pub mod btf;
pub mod build;
mod elf;
mod error;
mod kind;
pub mod limits;
pub mod look;
pub mod model;
mod name;
mod read;
pub mod table;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod write;

pub use error::{MapFault, ReadError, Reason, TypeFault};
pub use model::Object;
pub use name::{Name, NameError};
pub use read::read;
pub use write::{KernelFunctionIds, WriteError, write, write_for};
