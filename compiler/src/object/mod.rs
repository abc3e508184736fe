//! BPF objects: a strict reader, a model of closed types, and a writer.
//!
//! ```text
//! a plugin's ELF -> read -> Object -> (a policy judges it) -> write -> canonical ELF -> libbpf
//! ```
//!
//! libbpf is a loader for objects that one trusts: it follows offsets, sizes, indices, counts, flags, names and type ids
//! wherever they lead. So it gets none that a plugin wrote. [`read`] accepts what is documented and what our compiler,
//! clang and Aya write, and refuses the rest with a reason; [`Object`] has a place for that and for nothing else;
//! [`write()`] makes every number of the file from it. `read(write(object)) == object`, and the same object gives the same
//! bytes.
//!
//! Pure: no system calls, no knowledge of the running kernel. Not here: what a policy allows, and whether a struct of the
//! kernel has the members that the object fills in; both are the host's.

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
pub use write::{WriteError, write};
