//! What can go wrong with BPF, as data. [`crate::explain::bpf`] has the words for a person.

use std::path::PathBuf;

use nix::errno::Errno;

use super::occupant::Occupant;
use super::program::ProgramKind;
use super::verifier_log::VerifierLog;
use crate::host_bytes::Full;
use crate::probed::ProbePointError;

/// A failure of this module.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BpfError {
    /// The plugin file has no BPF object for this machine.
    #[error("the plugin file holds no BPF object for this machine")]
    NoObject,
    /// The object has no such program, map or variable.
    #[error("the BPF object has no {what} `{name}`")]
    NotFound {
        /// What was looked for: `program`, `map` or `variable`.
        what: &'static str,
        /// Its name.
        name: String,
        /// The names that the object has.
        known: Vec<String>,
    },
    /// An object that is refused before libbpf or the kernel sees it.
    #[error("the BPF object is refused: {0}")]
    Unsound(String),
    /// The numbers of tasks in the PID namespace of this process cannot be had.
    #[error("this process runs in a PID namespace, whose numbers of tasks programs cannot read: {0}")]
    PidNamespace(String),
    /// What libbpf would load is not what the policy judged.
    #[error("what is about to be loaded is not what was judged: {0}")]
    LastLook(String),
    /// libbpf or the kernel did not take the object.
    #[error("the BPF object cannot be loaded: {}", .0.errno)]
    Load(Box<LoadError>),
    /// A program of a kind that this host does not attach.
    #[error("`{program}` is a {kind} program, which this host does not attach")]
    UnsupportedKind {
        /// The program.
        program: String,
        /// Its kind.
        kind: ProgramKind,
    },
    /// A perf_event program is attached by opening an event with it.
    #[error("`{program}` is a perf_event program: it is attached by opening an event with it")]
    NeedsEvent {
        /// The program.
        program: String,
    },
    /// A program of another kind cannot run on the overflow of an event.
    #[error("`{program}` is a {kind} program: only a perf_event program runs on an event's overflow")]
    NotForEvents {
        /// The program.
        program: String,
        /// Its kind.
        kind: ProgramKind,
    },
    /// Flags that are no mode of xdp.
    #[error(
        "`{program}` cannot be attached with flags {flags:#x}: 0, 2 (generic), 4 (driver) and 8 (hardware) are known"
    )]
    Mode {
        /// The program.
        program: String,
        /// What was passed.
        flags: u32,
    },
    /// A target that cannot be one.
    #[error("`{target}` is no target for `{program}`: {expected}")]
    Target {
        /// The program.
        program: String,
        /// What was passed.
        target: String,
        /// What a target of its kind looks like.
        expected: &'static str,
    },
    /// A place in a file that is not probed.
    #[error("cannot put a probe at `{attach_point}`: program `{program}`\n  because: {error}")]
    ProbeAttachPoint {
        /// The program.
        program: String,
        /// As its section has it.
        attach_point: String,
        /// Why.
        error: ProbePointError,
    },
    /// tracefs is not mounted.
    #[error("tracefs is not mounted, so tracepoints cannot be found by name")]
    NoTracefs,
    /// This user may not read tracefs.
    #[error("cannot find the tracepoint `{target}` for program `{program}`: this user may not read tracefs")]
    TracefsClosed {
        /// The program.
        program: String,
        /// `category/event`.
        target: String,
    },
    /// The program is attached there already.
    #[error("`{program}` is already attached to `{target}`")]
    AlreadyAttached {
        /// The program.
        program: String,
        /// The target.
        target: String,
    },
    /// A packet for a test run that is too short or too long.
    #[error(
        "cannot test-run program `{program}` on a packet of {size} bytes: it has {} to {}",
        super::test_run::MIN_PACKET_BYTES,
        super::test_run::MAX_PACKET_BYTES
    )]
    PacketSize {
        /// The program.
        program: String,
        /// The size that was asked for.
        size: u32,
    },
    /// Bytes of another size than the map or variable has.
    #[error("{what} of `{name}` has {expected} bytes, not {given}")]
    Size {
        /// For example `a key`.
        what: &'static str,
        /// The map or variable.
        name: String,
        /// The right size.
        expected: usize,
        /// What was passed.
        given: usize,
    },
    /// A pin that is not what the script declares.
    #[error("{what} has another shape ({differences}): {}", path.display())]
    PinShape {
        /// For example `pinned map m`.
        what: String,
        /// The pin.
        path: PathBuf,
        /// In what they differ, from what is there to what is declared: `key 4→8`.
        differences: String,
    },
    /// There is no BPF file system, so nothing can be pinned.
    #[error("the BPF file system is not mounted at /sys/fs/bpf, so nothing can be pinned")]
    NoBpffs,
    /// A kind of map whose entries cannot be listed.
    #[error("the entries of `{name}` cannot be listed: it has no keys")]
    NoEntries {
        /// The map.
        name: String,
    },
    /// More entries than are listed one by one.
    #[error("`{name}` has more than {most} entries, and its kind has no way to list them in parts")]
    TooManyEntries {
        /// The map.
        name: String,
        /// How many are listed.
        most: usize,
    },
    /// What was asked for would make the host keep too much.
    #[error(transparent)]
    HostBytes(#[from] Full),
    /// A kind of map whose entries are descriptors of the host.
    #[error("`{name}` holds descriptors: it is for programs and the host")]
    OfDescriptors {
        /// The map.
        name: String,
    },
    /// A map that is no array of events.
    #[error("`{name}` is no array of events (BPF_MAP_TYPE_PERF_EVENT_ARRAY)")]
    NotOfEvents {
        /// The map.
        name: String,
    },
    /// Bytes that were put back to a ring buffer and are no records of its last batch.
    #[error("these are no records of the last batch")]
    Batch,
    /// A write to a constant that programs have already been verified with.
    #[error("`{name}` is a constant: it can be written before the object is loaded only")]
    Constant {
        /// The variable.
        name: String,
    },
    /// libbpf holds no memory for the variable's section.
    #[error("`{name}` cannot be reached: this kernel does not map `{section}`")]
    NotMapped {
        /// The variable.
        name: String,
        /// Its section.
        section: String,
    },
    /// An interface takes one xdp program only, and has one.
    #[error("cannot {tried}: {call}: {errno}")]
    Occupied {
        /// What was tried, after "cannot".
        tried: String,
        /// The call that failed.
        call: &'static str,
        /// What the kernel said.
        errno: Errno,
        /// The interface, as it was named.
        interface: String,
        /// The program that is there.
        occupant: Box<Occupant>,
    },
    /// Any other refusal of the kernel.
    #[error("cannot {tried}: {call}: {errno}")]
    Kernel {
        /// What was tried, after "cannot".
        tried: String,
        /// The call that failed, for example `bpf(BPF_LINK_CREATE)`.
        call: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// A load that failed: the errno that libbpf passed on and everything that was said about it.
#[derive(Debug, Clone)]
pub struct LoadError {
    /// The object's name.
    pub object: String,
    /// Whether `ks` compiled it: then a refusal is the compiler's mistake.
    pub is_script: bool,
    /// Whether it fills in structs of the kernel, which are registered by links.
    pub registers: bool,
    /// Whether it has programs or maps for which the kernel asks for CAP_NET_ADMIN.
    pub asks_network: bool,
    /// What libbpf returned.
    pub errno: Errno,
    /// The program that the verifier refused, and its log.
    pub verifier: Option<(String, VerifierLog)>,
    /// What libbpf printed, line by line, without its prefix.
    pub libbpf: Vec<String>,
    /// What the object needs and the kernel lacks, if that is why.
    pub lacks: Option<Lack>,
}

/// What an object needs and the kernel lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// A member of a struct, which the refused program reads, or the kernel has another in its place: in words.
    Member(String),
    /// A function of the kernel.
    Function(String),
}

impl std::fmt::Display for Lack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lack::Member(text) => f.write_str(text),
            Lack::Function(name) => write!(f, "neither the kernel nor a module that is loaded has `{name}`"),
        }
    }
}

impl BpfError {
    /// The errno, if a call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            BpfError::Load(load) => Some(load.errno),
            BpfError::Kernel { errno, .. } | BpfError::Occupied { errno, .. } => Some(*errno),
            BpfError::Mode { .. } | BpfError::Target { .. } => Some(Errno::EINVAL),
            BpfError::AlreadyAttached { .. } => Some(Errno::EEXIST),
            BpfError::TracefsClosed { .. } => Some(Errno::EACCES),
            _ => None,
        }
    }
}
