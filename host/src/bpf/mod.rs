//! BPF: the plugin's object, its programs, maps and global variables, and links.
//!
//! In: an object that a policy admitted. Out: an [`Object`] that is loaded at the first request for a program
//! or a map; until then nothing here needs any privilege. Not here: perf events (they belong to `perf`; a
//! program is linked to their descriptors), Wasm, policy, and error messages ([`crate::explain`]).
//!
//! Nothing raises a resource limit, except libbpf itself: on kernels that account BPF memory by
//! RLIMIT_MEMLOCK (before 5.11) it lifts that limit for the process when the first object is loaded.

mod attach;
mod charge;
mod cursor;
mod delivered;
mod error;
pub mod feature;
mod globals;
mod image;
mod inner_maps;
mod kernel_functions;
mod kernel_types;
mod layout;
mod link;
pub(crate) mod loader;
mod look;
mod losses;
mod map;
mod members;
mod needs;
mod object;
mod occupant;
mod pid_namespace;
pub(crate) mod pin;
mod print;
mod program;
mod ring;
pub mod statistics;
mod sys;
mod test_run;
mod tracepoint;
mod verifier_log;

pub use attach::{
    ControlGroup, FileRules, FilterOrder, GroupPath, Interface, ProbeAttachPoint, ProbeKind, XdpMode,
};
pub use cursor::{Cursor, CursorContent};
pub use error::{BpfError, Lack, LoadError};
pub(crate) use error::{FIND_PROBES, OPEN_GROUP, OPEN_PROBE, PACKET_SOCKET, UPDATE_ENTRY};
pub use globals::Variable;
pub use kernel_types::{PATH as KERNEL_TYPES, were_read as kernel_types_were_read};
pub(crate) use kernel_types::{offer as offer_types, running as running_types};
pub use layout::{Layout, Member, Scalar, Subject};
pub use link::Link;
pub use losses::{Loss, LossCounter};
pub use map::{Map, MapShape, Pages, UpdateMode, possible_cpus};
pub use members::{MemberPath, MemberStep, MemberUse, has_function, member};
pub use needs::{InstructionGroup, MapNeeds, Needs, ProgramNeeds};
pub(crate) use object::ObjectFile;
pub use object::{MapSize, Object};
pub use occupant::Occupant;
pub use pid_namespace::number as pid_namespace_number;
pub use program::{LoadedType, Program, ProgramInfo};
pub use ring::{ENTRY_BYTES, Records, Ring, TooLong, split_entry};
pub use test_run::{TestInput, TestOutput};
pub use tracepoint::tracepoint_id;
pub use verifier_log::VerifierLog;

/// Waits until every run of a program that has begun is over.
///
/// # Errors
/// [`BpfError::Settle`].
pub fn settle() -> Result<(), BpfError> {
    sys::membarrier_global().map_err(BpfError::Settle)
}
