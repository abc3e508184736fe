//! Tables of the accepted kinds of maps and programs, each with the class that a policy must allow.

mod attribute;
mod capability;
mod map_kind;
mod program_kind;
mod target;

pub use attribute::{ARGUMENTS_OF_C, ARGUMENTS_OF_GO, Attribute, OPTIONAL};
pub use map_kind::{EntriesRule, MAX_ENTRIES, MapKind, MapRow, MapUse, SizeRule, flag, map_row};
pub use program_kind::{AttachType, ProgramRow, ProgramType, program_row};
pub use target::{Target, TargetForm};

/// A class of actions that a policy decides about, as far as an object shows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Programs that run when a perf event overflows.
    PerfEvent,
    /// Programs at tracepoints, with the event record.
    Tracepoint,
    /// Programs at tracepoints with raw, untyped arguments.
    RawTracepoint,
    /// Programs at kernel functions.
    Kprobe,
    /// Programs at functions of userspace programs and libraries.
    Uprobe,
    /// Programs that observe kernel functions and tracepoints with typed arguments.
    Tracing,
    /// Programs that receive packets of an interface.
    SocketFilter,
    /// Programs that decide about packets before the network stack.
    Xdp,
    /// Programs that decide about packets at an interface, in the network stack.
    Tc,
    /// Programs that decide about the sockets of a control group.
    Cgroup,
    /// Programs that decide at a hook of a Linux security module.
    Lsm,
    /// Programs that change the return value of a kernel function.
    ModifyReturn,
    /// Programs that implement functions of kernel structs.
    StructOps,
    /// Maps and helpers that send packets and messages to other interfaces, CPUs and sockets.
    Redirect,
    /// Programs of any other type.
    Other,
}
