//! Resource limits of a plugin.

use ks_compiler::object::model::Memory;

use super::Policy;
use super::file::PolicyError;
use super::object::ObjectSet;
use crate::near::near;
use crate::quantity;

/// A resource whose use by a plugin is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Maps of the plugin's object, including those of global variables.
    Maps,
    /// Bytes that the kernel charges for all maps except ring buffers when they are full.
    MapBytes,
    /// Bytes that the kernel charges for all ring buffers.
    RingBytes,
    /// Maps that the plugin keeps in the BPF file system, whether their pins exist already or not; all
    /// pinned variables are one map. Guards against a plugin that leaves many maps in kernel memory: pins
    /// outlive it.
    Pins,
    /// Bytes written to standard output and standard error per second.
    PrintBytes,
    /// Events open at a time; an event on every CPU counts as one.
    Attachments,
    /// Probes of kernel and user functions at a time, counted once per CPU that an event is opened on, and
    /// files that events hold open for them. The kernel takes 50 to 90 ms to remove a probe, one after the
    /// other, and no signal ends the process while it has some.
    Probes,
    /// Descriptors of its events, links, maps, programs and probed files. All plugins of a host share
    /// RLIMIT_NOFILE: one of them could leave none to the others.
    Descriptors,
    /// Handles of all kinds at a time.
    Handles,
    /// Bytes of all linear memories.
    MemoryBytes,
    /// Elements of all tables.
    TableElements,
    /// Core instances, memories and tables, each. Guards against a component that instantiates a large module
    /// a thousand times: each memory reserves 4 GiB of address space.
    Instances,
    /// Bytes of arguments that one host call may copy out of the plugin. Guards against a list whose elements
    /// all denote the same large text: the plugin holds it once, the host would copy it for each element.
    CallBytes,
    /// Bytes that the host keeps for the plugin: records that it put back, entries read ahead by cursors,
    /// texts of its handles, incomplete lines, copies of variables and values.
    HostBytes,
    /// Milliseconds of CPU time of the plugin's thread between two host calls.
    ComputeMs,
    /// Milliseconds for compiling the plugin's code. Guards against code that is deliberately slow to
    /// compile.
    CompileMs,
    /// Bytes of memory of the process that compiles the plugin's code.
    CompileBytes,
    /// Milliseconds of the whole run.
    RunMs,
}

impl Limit {
    /// All limits, in the order in which messages list them.
    pub const ALL: [Limit; 18] = [
        Limit::Maps,
        Limit::MapBytes,
        Limit::RingBytes,
        Limit::Pins,
        Limit::PrintBytes,
        Limit::Attachments,
        Limit::Probes,
        Limit::Descriptors,
        Limit::Handles,
        Limit::MemoryBytes,
        Limit::TableElements,
        Limit::Instances,
        Limit::CallBytes,
        Limit::HostBytes,
        Limit::ComputeMs,
        Limit::CompileMs,
        Limit::CompileBytes,
        Limit::RunMs,
    ];

    /// Returns the limit's name in policy files.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Maps => "maps",
            Limit::MapBytes => "map_bytes",
            Limit::RingBytes => "ring_bytes",
            Limit::Pins => "pins",
            Limit::PrintBytes => "print_bytes_per_second",
            Limit::Attachments => "attachments",
            Limit::Probes => "probes",
            Limit::Descriptors => "descriptors",
            Limit::Handles => "handles",
            Limit::MemoryBytes => "memory_bytes",
            Limit::TableElements => "table_elements",
            Limit::Instances => "instances",
            Limit::CallBytes => "call_bytes",
            Limit::HostBytes => "host_bytes",
            Limit::ComputeMs => "compute_ms",
            Limit::CompileMs => "compile_ms",
            Limit::CompileBytes => "compile_bytes",
            Limit::RunMs => "run_ms",
        }
    }

    /// Returns the default value; `u64::MAX` for no limit.
    pub(super) fn default(self) -> u64 {
        match self {
            Limit::Maps => 256,
            Limit::MapBytes => 1 << 30,
            Limit::RingBytes => 256 << 20,
            // A quarter of the maps: plugins keep few of theirs. Each stays until its file is deleted.
            Limit::Pins => 64,
            // Far above what a person or a tool reads; stops a plugin that would fill a disk.
            Limit::PrintBytes => 64 << 20,
            Limit::Attachments => 16_384,
            // Removing this many takes about 20 s at the end of the process.
            Limit::Probes => 256,
            // An event on each of 512 CPUs for a hundred attachments; the share of RLIMIT_NOFILE is often less.
            Limit::Descriptors => 1 << 16,
            // Guards the host's memory.
            Limit::Handles => 1 << 16,
            Limit::MemoryBytes => ks_wit::MEMORY_BYTES as u64,
            // An element costs the host a pointer; an untouched page of memory costs the guest nothing.
            Limit::TableElements => 100_000,
            Limit::Instances => 64,
            Limit::CallBytes => 16 << 20,
            Limit::HostBytes => 256 << 20,
            Limit::ComputeMs => 30_000,
            // An interpreter of 18 MB as a component takes 10 to 15 s.
            Limit::CompileMs => 120_000,
            // Ten times the need of that interpreter.
            Limit::CompileBytes => 4 << 30,
            // Only whoever starts the plugin knows how long it should run.
            Limit::RunMs => u64::MAX,
        }
    }

    /// Parses the value of a limit: a number, a size for bytes (`16M`), or a time for milliseconds (`2s`).
    pub(super) fn number(self, text: &str) -> Result<u64, String> {
        let name = self.name();
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) if name.contains("_bytes") => quantity::bytes(text),
            // A fraction without a unit would be one of seconds, and a whole number is one of milliseconds.
            Err(_) if name.ends_with("_ms") && text.parse::<f64>().is_err() => {
                let time = quantity::duration(text)?;
                u64::try_from(time.as_millis()).map_err(|error| error.to_string())
            }
            Err(_) => Err(format!("`{text}` is not a number")),
        }
    }

    /// Returns the message for a plugin that reached the limit.
    pub fn reached(self, number: u64) -> String {
        let name = self.name();
        let at_most = match self {
            Limit::Descriptors => ", up to its share of `ulimit -n`",
            _ => "",
        };
        format!("the limit `{name}` of the plugin is {number}\n  do: --limit {name}=.. allows more{at_most}")
    }

    /// Finds a limit by its name in policy files.
    pub(super) fn named(name: &str) -> Result<Limit, PolicyError> {
        let found = Limit::ALL.into_iter().find(|limit| limit.name() == name);
        found.ok_or_else(|| {
            let names = Limit::ALL.into_iter().map(|limit| limit.name().to_owned());
            PolicyError::UnknownLimit { name: name.into(), near: near(name, names) }
        })
    }
}

/// The limits of a policy for the maps of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MapLimits {
    maps: u64,
    map_bytes: u64,
    ring_bytes: u64,
}

impl MapLimits {
    pub(super) fn of(policy: &Policy) -> MapLimits {
        MapLimits {
            maps: policy.limit(Limit::Maps),
            map_bytes: policy.limit(Limit::MapBytes),
            ring_bytes: policy.limit(Limit::RingBytes),
        }
    }

    /// Returns a message for each limit that maps with this memory exceed.
    pub(super) fn exceeded(self, memory: Memory) -> Vec<String> {
        let taken = [
            (Limit::Maps, memory.maps, self.maps),
            (Limit::MapBytes, memory.map_bytes, self.map_bytes),
            (Limit::RingBytes, memory.ring_bytes, self.ring_bytes),
        ];
        taken.into_iter().filter_map(|(limit, number, most)| above(limit, number, most)).collect()
    }
}

/// Returns a message for each limit that the union of the objects' maps exceeds, given the number of CPUs.
pub(super) fn exceeded(policy: &Policy, objects: &ObjectSet, cpus: usize) -> Vec<String> {
    let mut reasons = MapLimits::of(policy).exceeded(objects.memory(cpus));
    reasons.extend(above(Limit::Pins, objects.pins(), policy.limit(Limit::Pins)));
    reasons
}

/// Returns the message for maps that need more than a limit.
fn above(limit: Limit, number: u64, most: u64) -> Option<String> {
    let name = limit.name();
    (number > most).then(|| {
        format!(
            "its maps: {name} is {number}, and the limit is {most}: --limit {name}={number} would allow it"
        )
    })
}
