//! Errors of the BPF module, as data. [`crate::explain::bpf`] formats them as messages.

use std::path::PathBuf;

use nix::errno::Errno;

use super::occupant::Occupant;
use super::program::LoadedType;
use super::verifier_log::VerifierLog;
use crate::host_bytes::Full;
use crate::probed::ProbePointError;

/// [`BpfError::Kernel::call`] of opening the folder of a control group.
pub const OPEN_GROUP: &str = "open(cgroup)";
/// [`BpfError::Kernel::call`] of creating a packet socket.
pub const PACKET_SOCKET: &str = "socket(AF_PACKET)";
/// [`BpfError::Kernel::call`] of putting a probe.
pub const OPEN_PROBE: &str = "perf_event_open";
/// [`BpfError::Kernel::call`] of looking for the kernel's probes of functions.
pub const FIND_PROBES: &str = "read(/sys/bus/event_source/devices)";
/// [`BpfError::Kernel::call`] of writing an entry of a map.
pub const UPDATE_ENTRY: &str = "bpf(BPF_MAP_UPDATE_ELEM)";

/// An error of the BPF module.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BpfError {
    /// The plugin file has no BPF object for this machine.
    #[error("the plugin file holds no BPF object for this machine")]
    NoObject,
    /// The object has no program, map or variable of this name.
    #[error("the BPF object has no {what} `{name}`")]
    NotFound {
        /// Kind of the missing object: `program`, `map` or `variable`.
        what: &'static str,
        /// The name that was not found.
        name: String,
        /// All names of this kind in the object.
        known: Vec<String>,
    },
    /// An object that is rejected before libbpf or the kernel sees it; with the reason.
    #[error("the BPF object is refused: {0}")]
    Unsound(String),
    /// The task ids of this process's PID namespace cannot be determined; with the reason.
    #[error("this process runs in a PID namespace, whose numbers of tasks programs cannot read: {0}")]
    PidNamespace(String),
    /// Which functions the kernel has cannot be determined; the reason as text.
    #[error("cannot find out which functions the kernel has: {0}")]
    KernelFunctions(String),
    /// The object prepared by libbpf differs from the one the policy judged; with the difference.
    #[error("what is about to be loaded is not what was judged: {0}")]
    LastLook(String),
    /// The process that loads objects has ended; with how.
    #[error("the process that loads BPF objects is gone: {0}")]
    NoLoader(String),
    /// libbpf or the kernel rejected the object.
    #[error("the BPF object cannot be loaded: {}", .0.errno)]
    Load(Box<LoadError>),
    /// The kernel cannot tell when the runs of programs that have begun are over.
    #[error("cannot wait for the runs of programs that have begun: {0}")]
    Settle(Errno),
    /// A program of a kind that this host does not attach.
    #[error("`{program}` is a {kind} program, which this host does not attach")]
    UnsupportedKind {
        /// Name of the program.
        program: String,
        /// Kind of the program.
        kind: LoadedType,
    },
    /// A perf_event program is attached by opening an event with it.
    #[error("`{program}` is a perf_event program: it is attached by opening an event with it")]
    NeedsEvent {
        /// Name of the program.
        program: String,
    },
    /// A program of another kind cannot run on the overflow of an event.
    #[error("`{program}` is a {kind} program: only a perf_event program runs on an event's overflow")]
    NotForEvents {
        /// Name of the program.
        program: String,
        /// Kind of the program, other than perf_event.
        kind: LoadedType,
    },
    /// A call that attaches programs of another kind.
    #[error("`{program}` is a {kind} program, and {call} is for {wanted}")]
    OtherKind {
        /// Name of the program.
        program: String,
        /// Kind of the program.
        kind: LoadedType,
        /// The call of the contract, for example `attach-xdp`.
        call: &'static str,
        /// What the call is for.
        wanted: &'static str,
    },
    /// A program whose object does not say where it is attached.
    #[error("the object does not say what `{program}` is attached to: say it in the call that attaches it")]
    NoTarget {
        /// Name of the program.
        program: String,
    },
    /// A cookie for a program that can have none.
    #[error("`{program}` has no cookie")]
    NoCookie {
        /// Name of the program.
        program: String,
        /// The kernels that have cookies for its kind; none if it never has one.
        since: Option<&'static str>,
    },
    /// A target that does not exist or suit the program.
    #[error("`{target}` is not a target for `{program}`: {expected}")]
    Target {
        /// Name of the program.
        program: String,
        /// The target that was passed.
        target: String,
        /// Description of a valid target for this kind of program.
        expected: &'static str,
    },
    /// An instruction of a file that cannot be probed.
    #[error("cannot put a probe at `{attach_point}`: program `{program}`\n  because: {error}")]
    ProbeAttachPoint {
        /// Name of the program.
        program: String,
        /// The attach point as written in the program's section.
        attach_point: String,
        /// Why it is not probed.
        error: ProbePointError,
    },
    /// tracefs is not mounted.
    #[error("tracefs is not mounted, so tracepoints cannot be found by name")]
    NoTracefs,
    /// A tracepoint that the kernel does not have.
    #[error("cannot find the tracepoint `{target}` for program `{program}`")]
    NoTracepoint {
        /// Name of the program.
        program: String,
        /// The tracepoint as `category/event`.
        target: String,
        /// Similar ones, the most similar first.
        near: Vec<String>,
    },
    /// This user may not read tracefs.
    #[error("cannot find the tracepoint `{target}` for program `{program}`: this user may not read tracefs")]
    TracefsClosed {
        /// Name of the program.
        program: String,
        /// The tracepoint as `category/event`.
        target: String,
    },
    /// The program is already attached to this target.
    #[error("`{program}` is already attached to `{target}`")]
    AlreadyAttached {
        /// Name of the program.
        program: String,
        /// The target, as in the list of attachments.
        target: String,
    },
    /// A packet for a test run that is too short or too long.
    #[error(
        "cannot test-run program `{program}` on a packet of {size} bytes: it has {} to {}",
        super::test_run::MIN_PACKET_BYTES,
        super::test_run::MAX_PACKET_BYTES
    )]
    PacketSize {
        /// Name of the program.
        program: String,
        /// The requested size in bytes.
        size: u32,
    },
    /// A test run of a program whose type the kernel has none for.
    #[error("cannot test-run program `{program}`: this kernel has no test run for programs of type {kind}")]
    NoTestRun {
        /// Name of the program.
        program: String,
        /// Type of the program.
        kind: LoadedType,
    },
    /// A number of repetitions or of arguments that no test run has.
    #[error(
        "cannot test-run program `{program}`: it runs 1 to {} times, and has at most {} arguments",
        super::test_run::MAX_REPEAT,
        super::test_run::MAX_ARGUMENTS
    )]
    TestRun {
        /// Name of the program.
        program: String,
    },
    /// Data of a different size than the map or variable has.
    #[error("{what} of `{name}` has {expected} bytes, not {given}")]
    Size {
        /// The data of the wrong size, for example `a key`.
        what: &'static str,
        /// Name of the map or variable.
        name: String,
        /// The required size in bytes.
        expected: usize,
        /// The passed size in bytes.
        given: usize,
    },
    /// A pin that differs from the script's declaration.
    #[error("{what} has another shape ({differences}): {}", path.display())]
    PinShape {
        /// The pinned object, for example `pinned map m`.
        what: String,
        /// Path of the pin in the BPF file system.
        path: PathBuf,
        /// The differences, pinned to declared: `key 4→8`.
        differences: String,
    },
    /// The BPF file system is not mounted, so nothing can be pinned.
    #[error("the BPF file system is not mounted at /sys/fs/bpf, so nothing can be pinned")]
    NoBpffs,
    /// A kind of map whose entries cannot be listed.
    #[error("the entries of `{name}` cannot be listed: it has no keys")]
    NoEntries {
        /// Name of the map.
        name: String,
    },
    /// A map without batches that has too many entries to list.
    #[error("`{name}` has more than {most} entries, and its kind has no way to list them in parts")]
    TooManyEntries {
        /// Name of the map.
        name: String,
        /// Upper limit of listed entries.
        most: usize,
    },
    /// The request would exceed the memory that the host keeps for the plugin.
    #[error(transparent)]
    HostBytes(#[from] Full),
    /// A kind of map whose entries are file descriptors of the host.
    #[error("`{name}` holds descriptors: it is for programs and the host")]
    OfDescriptors {
        /// Name of the map.
        name: String,
    },
    /// An operation on inner maps of a map that has none, or none of the host.
    #[error(
        "`{name}` has no inner maps that a plugin creates: it is no array or hash of maps of data, it is pinned, or \
         the object fills it itself"
    )]
    NotOfMaps {
        /// Name of the map.
        name: String,
    },
    /// The size of a map that exists.
    #[error("the map `{name}` exists already: its size is set before the first program is loaded")]
    Created {
        /// Name of the map.
        name: String,
    },
    /// With another size of a map the object exceeds the policy's limits; with the message for a person.
    #[error("{0}")]
    OverLimits(String),
    /// A map that was frozen.
    #[error("`{name}` was frozen: nothing can be written to it")]
    Frozen {
        /// Name of the map.
        name: String,
    },
    /// An operation that the kernel does not have for this kind of map.
    #[error("this kernel cannot {operation} `{name}`: maps of type {ty} have no such operation")]
    NoOperation {
        /// The operation, for example `take entries out of`.
        operation: &'static str,
        /// Name of the map.
        name: String,
        /// Type of the map, a number of `enum bpf_map_type`.
        ty: u32,
    },
    /// A value for all CPUs of a map that has one value only.
    #[error("`{name}` has one value for all CPUs, so there is no sum")]
    NotPerCpu {
        /// Name of the map.
        name: String,
    },
    /// A list of entries or keys with a rest.
    #[error("{given} bytes are no whole number of {what}, which have {expected} each")]
    NotWhole {
        /// What the list is made of, for example `keys of `counts``.
        what: String,
        /// Size of an element in bytes.
        expected: usize,
        /// Size of the list in bytes.
        given: usize,
    },
    /// A map that is not a bloom filter.
    #[error("`{name}` is no bloom filter (BPF_MAP_TYPE_BLOOM_FILTER)")]
    NotBloom {
        /// Name of the map.
        name: String,
    },
    /// A map that is not a perf event array.
    #[error("`{name}` is not an array of events (BPF_MAP_TYPE_PERF_EVENT_ARRAY)")]
    NotOfEvents {
        /// Name of the map.
        name: String,
    },
    /// An array of events that holds other events already.
    #[error("`{name}` is in use: it has either published events, or rings of records")]
    ArrayInUse {
        /// Name of the map.
        name: String,
    },
    /// Data put back that is not from the batch.
    #[error("these are not records of this batch")]
    Batch,
    /// A write to a constant after the programs have been verified with it.
    #[error("`{name}` is a constant: it can be written before the object is loaded only")]
    Constant {
        /// Name of the variable.
        name: String,
    },
    /// The variable's section has no memory in libbpf.
    #[error("`{name}` cannot be reached: this kernel does not map `{section}`")]
    NotMapped {
        /// Name of the variable.
        name: String,
        /// Section of the variable.
        section: String,
    },
    /// An interface that already has an xdp program and takes only one.
    #[error("cannot {tried}: {call}: {errno}")]
    Occupied {
        /// The failed action, to follow "cannot".
        tried: String,
        /// The system call that failed.
        call: &'static str,
        /// The errno of that call.
        errno: Errno,
        /// The interface as the caller named it.
        interface: String,
        /// The program that holds the interface.
        occupant: Box<Occupant>,
    },
    /// An interface whose driver or device cannot run xdp programs as the call asks.
    #[error("cannot {tried}: {call}: {errno}")]
    XdpMode {
        /// The failed action, to follow "cannot".
        tried: String,
        /// The system call that failed.
        call: &'static str,
        /// The errno of that call.
        errno: Errno,
    },
    /// An interface or control group that has as many programs as it takes.
    #[error("cannot {tried}: {call}: {errno}")]
    Crowded {
        /// The number of programs that it takes.
        most: u32,
        /// The failed action, to follow "cannot".
        tried: String,
        /// The system call that failed.
        call: &'static str,
        /// The errno of that call.
        errno: Errno,
    },
    /// A ring that takes more locked memory than the user may have.
    #[error("cannot {tried}: {call}: {errno}")]
    LockedMemory {
        /// The failed action, to follow "cannot".
        tried: String,
        /// The system call that failed.
        call: &'static str,
        /// The errno of that call.
        errno: Errno,
    },
    /// The kernel has a struct (struct_ops) of this name or kind already.
    #[error("cannot {tried}: {call}: {errno}")]
    Registered {
        /// The failed action, to follow "cannot".
        tried: String,
        /// The system call that failed.
        call: &'static str,
        /// The errno of that call.
        errno: Errno,
    },
    /// Any other error of the kernel.
    #[error("cannot {tried}: {call}: {errno}")]
    Kernel {
        /// The failed action, to follow "cannot".
        tried: String,
        /// The system call that failed, for example `bpf(BPF_LINK_CREATE)`.
        call: &'static str,
        /// The errno of that call.
        errno: Errno,
    },
}

/// A failed load: libbpf's errno and all diagnostics.
#[derive(Debug, Clone)]
pub struct LoadError {
    /// Name of the object.
    pub object: String,
    /// Whether `ks` compiled the object; a rejection is then a bug of the compiler.
    pub is_script: bool,
    /// Whether the object fills in kernel structs (struct_ops) that are registered by links.
    pub registers: bool,
    /// Whether the object has programs or maps that require CAP_NET_ADMIN.
    pub needs_net_admin: bool,
    /// The errno that libbpf returned.
    pub errno: Errno,
    /// The program that the verifier rejected, and its log. None if the verifier logged nothing.
    pub verifier: Option<(String, VerifierLog)>,
    /// Lines that libbpf printed, without its prefix.
    pub libbpf: Vec<String>,
    /// The missing kernel feature, if that caused the failure.
    pub lacks: Option<Lack>,
}

/// A kernel feature that the object needs and the kernel lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// A struct member that the rejected program reads and that is missing or different in this kernel; as a
    /// sentence.
    Member(String),
    /// A kernel function, by name.
    Function(String),
    /// A variable of the kernel, by name.
    Variable(String),
    /// A variable of the kernel with a value for each CPU, by name.
    PerCpuVariable(String),
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lack::Member(text) => f.write_str(text),
            Lack::Function(name) => write!(f, "neither the kernel nor a module that is loaded has `{name}`"),
            Lack::Variable(name) => write!(f, "the kernel lists no variable `{name}` in /proc/kallsyms"),
            Lack::PerCpuVariable(name) => {
                write!(f, "the kernel's types have no variable `{name}` with a value for each CPU")
            }
        }
    }
}

impl BpfError {
    /// Returns the errno; none if no system call is involved.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            BpfError::Load(load) => Some(load.errno),
            BpfError::Settle(errno)
            | BpfError::Kernel { errno, .. }
            | BpfError::Occupied { errno, .. }
            | BpfError::XdpMode { errno, .. }
            | BpfError::Crowded { errno, .. }
            | BpfError::LockedMemory { errno, .. }
            | BpfError::Registered { errno, .. } => Some(*errno),
            BpfError::OtherKind { .. }
            | BpfError::NoTarget { .. }
            | BpfError::NoCookie { .. }
            | BpfError::Target { .. } => Some(Errno::EINVAL),
            BpfError::AlreadyAttached { .. } => Some(Errno::EEXIST),
            BpfError::NoTracepoint { .. } => Some(Errno::ENOENT),
            BpfError::TracefsClosed { .. } => Some(Errno::EACCES),
            _ => None,
        }
    }
}
