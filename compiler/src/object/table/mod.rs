//! What an object may contain: kinds of maps and of programs, each with the class that a policy must allow.

mod attribute;
mod map_kind;
mod program_kind;
mod target;

pub use attribute::Attribute;
pub use map_kind::{EntriesRule, MapKind, MapRow, MapUse, SideRule, flag, map_row};
pub use program_kind::{AttachType, ProgramRow, ProgramType, program_row};
pub use target::{Target, TargetForm};

/// A class of acts that a policy decides about, as far as an object tells it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Programs that run on the overflow of an event.
    PerfEvent,
    /// Programs at tracepoints.
    Tracepoint,
    /// Programs at tracepoints with the arguments as the kernel passes them.
    RawTracepoint,
    /// Programs at functions of the kernel.
    Kprobe,
    /// Programs at functions of programs and libraries.
    Uprobe,
    /// Programs that watch functions and tracepoints of the kernel with typed arguments.
    Tracing,
    /// Programs that see packets of an interface.
    SocketFilter,
    /// Programs that decide about packets before the network stack.
    Xdp,
    /// Programs that decide about packets at an interface.
    Tc,
    /// Programs that decide about the sockets of a control group.
    Cgroup,
    /// Programs that decide at a hook of the security module.
    Lsm,
    /// Programs that change what a function of the kernel returns.
    ModifyReturn,
    /// Programs that take the place of functions of the kernel.
    StructOps,
    /// Maps and helpers that send packets and messages to other interfaces, CPUs and sockets.
    Redirect,
    /// Programs of a kind that is none of these.
    Other,
}
